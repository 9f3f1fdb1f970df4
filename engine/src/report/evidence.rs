//! The facts that the verdict on a pending job rests on, for users.
//!
//! Each line is one fact that the verdict uses: the usage of each queue on its path, what the own user and
//! the own namespace have of the limits on them, what the own user has where users come in turn, the nodes
//! that are reserved for the job, its predicted run time.

use crate::amounts::totals::ResourceTotals;
use crate::evaluation::prediction;
use crate::forecast::{Prediction, PredictionBasis};
use crate::pending::shapes::RequestShape;
use crate::placement::request::owner_of;
use crate::quota::{OwnedRequest, ROOT};
use crate::state::Inputs;
use facts::{JobKey, QueueName, ResourceName, Resources};
use std::collections::BTreeMap;

/// The facts behind the verdict on a pending job, those of its queues first.
pub(crate) fn evidence(
    inputs: Inputs<'_>,
    key: &JobKey,
    queue: &QueueName,
    shape: &RequestShape,
) -> Vec<String> {
    let mut lines: Vec<String> = inputs
        .quota
        .path(queue)
        .iter()
        .rev()
        .filter_map(|name| holds(inputs, name, &shape.total))
        .collect();
    let owner = owner_of(inputs, key);
    lines.extend(inputs.quota.use_of_limits(OwnedRequest {
        queue,
        owner,
        request: &shape.total,
    }));
    lines.extend(turn_of(inputs, queue, owner.user));
    lines.extend(unadmitted(inputs, queue, &shape.total));
    lines.extend(reserved_nodes(inputs, key));
    let job = inputs.jobs.get(key);
    lines.extend(job.and_then(|job| Some(expected(prediction::predict(inputs, job)?))));
    lines
}

/// The charge and the capability of a queue, in the resources that are requested.
fn holds(inputs: Inputs<'_>, queue: &QueueName, asked: &Resources) -> Option<String> {
    let real = inputs.quota.real_capability(queue);
    let charged = inputs.quota.charged(queue);
    let parts: Vec<String> = real
        .iter()
        .filter(|(name, _)| asked.amount_of(name).0 > 0)
        .map(|(name, most)| {
            let charged = charged.amount_of(name);
            format!("{name} {} of {}", name.format(charged), name.format(most))
        })
        .collect();
    (!parts.is_empty()).then(|| format!("queue {queue} holds {}", parts.join(", ")))
}

/// Returns what a user has of a queue whose users come in turn, and how many go before it. No other user is named.
fn turn_of(inputs: Inputs<'_>, queue: &QueueName, user: &str) -> Option<String> {
    let share = inputs.quota.share_of_user(queue, user)?;
    let has = match (share.now, share.with_past) {
        (now, Some(with_past)) => format!("{now} % of it and {with_past} % with past usage"),
        (now, None) => format!("{now} % of it"),
    };
    let pending_queue = inputs.pending.queues.pending_queue(queue)?;
    let user_id = inputs.quota.user_in(queue, user);
    let (others, less) = pending_queue.ranks().others(user_id);
    let less = match less {
        0 => "none has less".to_owned(),
        1 => "1 has less".to_owned(),
        less => format!("{less} have less"),
    };
    let others = match others {
        0 => "no other user waits".to_owned(),
        1 => format!("of 1 other user that waits, {less}"),
        others => format!("of {others} other users that wait, {less}"),
    };
    Some(format!(
        "users of queue {queue} come in turn: user {user} has {has}; {others}"
    ))
}

/// Returns what of these charges is for pods beyond what was admitted, in the resources that are requested.
fn unadmitted(inputs: Inputs<'_>, queue: &QueueName, asked: &Resources) -> Option<String> {
    let path = inputs.quota.path(queue);
    let below = path.iter().find(|name| name.as_str() != ROOT)?;
    let mut sums = ResourceTotals::default();
    for (_, charge) in inputs.pod_charges.iter() {
        if inputs.quota.is_within(&charge.queue, below) {
            charge.pools.values().for_each(|used| sums.add(used, 1));
        }
    }
    let asked = |name: &ResourceName| asked.amount_of(name).0 > 0;
    let sums = sums.to_resources();
    let parts = sums.iter().filter(|(name, _)| asked(name));
    let parts: Vec<String> = parts
        .map(|(name, used)| format!("{name} {}", name.format(used)))
        .collect();
    let parts = parts.join(", ");
    (!parts.is_empty()).then(|| {
        format!("pods of queue {below} use {parts} beyond what was admitted; kubectl muster jobs names them")
    })
}

/// The numbers of nodes that are reserved for a job, by cluster and class.
fn reserved_nodes(inputs: Inputs<'_>, key: &JobKey) -> Option<String> {
    let reservation = inputs.reservations.of(key)?;
    let mut nodes: BTreeMap<_, usize> = BTreeMap::new();
    for node in &reservation.nodes {
        *nodes.entry((&node.cluster, &node.class)).or_default() += 1;
    }
    let nodes: Vec<String> = nodes
        .iter()
        .map(|((cluster, class), count)| format!("{count} of class {class} in {cluster}"))
        .collect();
    (!nodes.is_empty()).then(|| format!("nodes kept for it: {}", nodes.join(", ")))
}

/// The predicted run time, with its basis.
fn expected(prediction: Prediction) -> String {
    let runs = |count: usize, whose: &str| format!("the mean of {count} runs {whose}");
    let basis = match prediction.basis {
        PredictionBasis::Declared => "as declared".to_owned(),
        PredictionBasis::OfUser(count) => runs(count, "of its user of this size"),
        PredictionBasis::OfQueue(count) => runs(count, "in its queue of this size"),
        PredictionBasis::OfShape(count) => runs(count, "of this size"),
        PredictionBasis::OfAll(count) => runs(count, "of any size"),
    };
    let seconds = prediction.millis / 1_000;
    format!("expected to run {seconds} s: {basis}")
}
