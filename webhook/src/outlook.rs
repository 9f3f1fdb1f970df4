//! The line that a user reads when a job is accepted: its queue and its position, when it may start, and what would
//! start it now; or why it cannot start.
//!
//! It is computed from what is published ([`crate::published`]), says nothing of what is not known there, and refuses
//! nothing.

use crate::published::{PublishedIndex, QueueOutlook, ResourceOutlook};
use crate::queues::QueueIndex;
use crate::review::ReviewRequest;
use crate::users;
use facts::{Amount, ClusterPlacement, Reason, ResourceName, Resources, Split, listed};
use jiff::Timestamp;
use serde_json::Value;
use workload::WorkloadSpec;

/// The most characters of a warning; an API server may cut longer ones.
const LONGEST: usize = 256;
/// How many resources a line names.
const SHOWN: usize = 3;

/// Returns the warnings about a template that `request` creates, or moves to another queue.
#[must_use]
pub fn of_template(
    request: &ReviewRequest<Value>,
    queues: &QueueIndex,
    published: &PublishedIndex,
    now: Timestamp,
) -> Vec<String> {
    let Some(new) = request.object.as_ref().filter(|_| users::concerns(request)) else {
        return Vec::new();
    };
    let queue_of = |object| queues.queue_of(object, &request.namespace);
    let old = request.old_object.as_ref();
    let Some(queue) = queue_of(new).filter(|queue| old.and_then(queue_of).as_ref() != Some(queue))
    else {
        return Vec::new();
    };
    let outlook = published.outlook(&queue, &request.namespace, queues);
    let stop = queues.stop_of(&queue);
    let on_hold = workload::is_on_hold(new).unwrap_or(true);
    let spec = workload::read_spec(new).ok();
    let spec = spec.filter(|spec| !(on_hold || spec.suspended || spec.scaled_to_zero));
    let line = line(&queue, &outlook, stop, spec.as_ref(), now);
    line.map(short).into_iter().collect()
}

/// Returns the line about a job in `queue`; without `spec` its size is unknown, or it does not compete at present.
#[must_use]
pub fn line(
    queue: &str,
    outlook: &QueueOutlook,
    stop: Option<&'static str>,
    spec: Option<&WorkloadSpec>,
    now: Timestamp,
) -> Option<String> {
    if outlook.is_missing {
        return Some(format!(
            "queue {queue} does not exist: the job waits; create it, or name another (label muster.io/queue)"
        ));
    }
    if let Some(stop) = stop {
        return Some(format!(
            "queue {queue} is stopped (spec.stopPolicy of capacitypolicy {queue} is {stop}): the job waits until it \
             is resumed"
        ));
    }
    if let Some(closed) = &outlook.closed {
        return Some(closed.clone());
    }
    let spec = spec?;
    let requests = requests(spec)?;
    if let Some(above) = above(queue, outlook, &requests) {
        return Some(above);
    }
    let ahead = outlook.pending?;
    let start = outlook.last_start.filter(|start| ahead > 0 && *start > now);
    let lacks = lacks(outlook, &requests);
    // The devices of claims are not in the template, so that what is free says nothing about them.
    let is_counted = spec.claim_templates().is_empty() && !outlook.resources.is_empty();
    let mut text = format!("queue {queue}: position {}", ahead.saturating_add(1));
    match start {
        Some(start) => {
            let wait = start.as_second().saturating_sub(now.as_second());
            text += &format!(", expected to start in about {}", duration(wait));
        }
        None if ahead == 0 && lacks.is_empty() && is_counted => {
            text += ", expected to start at once"
        }
        None => {}
    }
    if !lacks.is_empty() {
        text += &format!("; would start now with {}", lacks.join(" and "));
    }
    Some(text)
}

/// Returns the least that a job requests to start.
fn requests(spec: &WorkloadSpec) -> Option<Resources> {
    if spec.elastic {
        return Some(spec.min_resources.clone());
    }
    let demand = spec.demand(false, Split::Never, ClusterPlacement::default());
    demand.total()
}

/// Returns why a job cannot start at all, if it requests more than the queue can have.
fn above(queue: &str, outlook: &QueueOutlook, requests: &Resources) -> Option<String> {
    let over = requests.iter().find_map(|(name, requested)| {
        let most = outlook.resources.get(name)?.most?;
        (requested > most).then(|| (name, name.format(requested), name.format(most)))
    });
    let (name, requested, most) = over?;
    let what = Reason::ExceedsCapability
        .next_step()
        .map_or("", |step| step.what);
    Some(format!(
        "queue {queue} can give a job of this namespace {name} {most} at most, and it requests {requested}: it cannot \
         start. {what}"
    ))
}

/// Returns what is missing for a job to start now, by quota and in the clusters.
fn lacks(outlook: &QueueOutlook, requests: &Resources) -> Vec<String> {
    let missing = |free: fn(&ResourceOutlook) -> Option<Amount>| {
        let missing = requests.iter().filter_map(|(name, requested)| {
            let free = free(outlook.resources.get(name)?)?;
            (requested > free).then(|| more(name, Amount(requested.0.saturating_sub(free.0))))
        });
        let missing: Vec<String> = missing.collect();
        (!missing.is_empty()).then(|| listed(missing, SHOWN))
    };
    let quota = missing(|outlook| outlook.free).map(|all| format!("{all} of quota"));
    let clusters =
        missing(|outlook| outlook.in_clusters).map(|all| format!("{all} free in clusters"));
    quota.into_iter().chain(clusters).collect()
}

fn more(name: &ResourceName, amount: Amount) -> String {
    format!("{} more {name}", name.format(amount))
}

/// Returns a number of seconds in words, as rough as the estimate.
fn duration(seconds: i64) -> String {
    match seconds {
        ..=90 => "a minute".to_owned(),
        91..=7_200 => format!("{} min", (seconds + 59) / 60),
        7_201..=172_800 => format!("{} h", (seconds + 1_800) / 3_600),
        _ => format!("{} days", (seconds + 43_200) / 86_400),
    }
}

/// Returns `text` as one line that no API server cuts.
pub(crate) fn short(text: String) -> String {
    let line = text.replace(['\n', '\r'], " ");
    match line.char_indices().nth(LONGEST) {
        None => line,
        Some(_) => line.chars().take(LONGEST - 1).chain(['…']).collect(),
    }
}

#[cfg(test)]
mod tests;
