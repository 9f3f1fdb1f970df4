//! The first check: what the pods in the members request, compared with the quota of their queue.
//!
//! It believes no record, no Work and no status. A pod holds what it requests, as the API server of
//! its member stored it (with defaults, overhead and injected containers), from the moment in which
//! it is seen on a node until it has succeeded, failed or is gone; a pod that is being deleted holds
//! it too. It holds it in the queue of its job, and a pod of no known job in the default queue of
//! its namespace.
//!
//! Whenever a pod of a job starts, all pods of the queue, and of those above it, must be within the
//! quota. Some pods could not be known when the job got its placement, and count only if they were
//! there [`SEEN_WITHIN`] before it: those of no job, containers that the template of their job does
//! not have, and more that a pod requests than at its start. Everything else counts from the start:
//! overhead and defaults are in the pods, and a job that ended must not have pods left. A pod that
//! its job replaces while it ends counts only for the placements after it, since members replace
//! pods at any time.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::AuditSubject;
use super::bounds::AuditedBounds;
use super::footprint::{Classes, Footprint};
use super::held::HeldAmounts;
use super::pods::{PodSighting, PodSightings};
use super::quantity;
use super::report::AuditReport;

/// The time in which Muster hears of a pod that it could not foresee, and a placement that it had
/// decided before is written.
const SEEN_WITHIN: SignedDuration = SignedDuration::from_secs(3);
/// The time by which the watches of two members may differ. Within a member the order is exact.
const BETWEEN_MEMBERS: SignedDuration = SignedDuration::from_secs(2);

/// What the API server's log says of placements and quotas.
#[derive(Debug, Clone, Default)]
pub(super) struct AuditedPlacements {
    pub(super) bounds: AuditedBounds,
    /// When each job got a new placement or a share of another size, by `namespace/name`.
    pub(super) times: BTreeMap<String, Vec<Timestamp>>,
}

impl AuditedPlacements {
    /// Returns the last placement of a job by `now`; `now` if there was none.
    fn last(&self, job: &str, now: Timestamp) -> Timestamp {
        let times = self.times.get(job).into_iter().flatten();
        times
            .filter(|time| **time <= now)
            .max()
            .map_or(now, |time| *time)
    }
}

/// The findings about pods in members.
#[derive(Debug, Clone, Default)]
pub struct PodReport {
    /// The number of pods that were bound to a node.
    pub pods: usize,
    /// Every violation.
    pub violations: Vec<String>,
    /// The most that pods of a queue requested at once, by resource; in thousandths.
    peaks: BTreeMap<(String, String), u128>,
}

impl fmt::Display for PodReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} pods", self.pods)?;
        let devices = |(_, resource): &&(String, String)| quantity::is_device(resource);
        let peaks = self.peaks.iter().filter(|(of, _)| devices(of));
        for (at, ((queue, resource), &peak)) in peaks.enumerate() {
            let start = if at == 0 { ", peak" } else { ";" };
            write!(f, "{start} {} {resource} in {queue}", quantity::show(peak))?;
        }
        Ok(())
    }
}

/// A pod with what it requests.
struct HeldPod {
    seen: PodSighting,
    /// The `namespace/name` of its job, if it is of one.
    job: Option<String>,
    /// Its queue and those above it.
    queues: Vec<String>,
    /// What it requests from these times on.
    all: Vec<(Timestamp, HeldAmounts)>,
    /// What it was known to request before it started.
    known: HeldAmounts,
}

impl fmt::Display for HeldPod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pod = &self.seen;
        write!(f, "{}/{} in {}", pod.namespace, pod.name, pod.cluster)?;
        write!(f, " on its node since {}", pod.bound)?;
        if let Some(since) = pod.deleting {
            write!(f, " deleted at {since}")?;
        }
        match pod.until {
            Some(until) => write!(f, " ended at {until}"),
            None => write!(f, " without an end"),
        }
    }
}

/// A job of the subject, as its pods show it.
struct JobOfPods {
    queue: String,
    /// The names of the containers in its template.
    containers: BTreeSet<String>,
}

/// Returns the jobs by `namespace/name`. Jobs of one name have the containers of all.
fn jobs(subject: &AuditSubject) -> BTreeMap<&str, JobOfPods> {
    let mut jobs = BTreeMap::new();
    for job in subject.jobs.values() {
        let known = jobs.entry(&*job.name).or_insert_with(|| JobOfPods {
            queue: job.queue.clone(),
            containers: BTreeSet::new(),
        });
        known.containers.extend(job.containers.iter().cloned());
    }
    jobs
}

impl HeldPod {
    fn of(
        subject: &AuditSubject,
        jobs: &BTreeMap<&str, JobOfPods>,
        bounds: &AuditedBounds,
        seen: PodSighting,
    ) -> anyhow::Result<Self> {
        let name = seen.job(|name| jobs.contains_key(name));
        let job = name.as_deref().and_then(|name| jobs.get(name));
        let queue = job
            .map(|job| &job.queue)
            .or(subject.defaults.get(&seen.namespace));
        let held = |spec: &Value| {
            let classes = requests(subject, spec)?;
            anyhow::Ok(HeldAmounts::in_each([(seen.cluster.clone(), classes)]))
        };
        let all = seen
            .specs
            .iter()
            .map(|(from, spec)| Ok((*from, held(spec)?)));
        let all = all.collect::<anyhow::Result<Vec<_>>>()?;
        let known = match job.zip(seen.specs.first()) {
            Some((job, (_, spec))) => held(&of_template(spec.clone(), &job.containers))?,
            None => HeldAmounts::default(),
        };
        Ok(Self {
            queues: bounds.path(queue.map_or("default", String::as_str)),
            job: name,
            seen,
            all,
            known,
        })
    }

    /// Returns what it requests at a time.
    fn at(&self, time: Timestamp) -> Option<&HeldAmounts> {
        let until = self.all.iter().take_while(|(from, _)| *from <= time);
        until.last().map(|(_, held)| held)
    }

    /// Returns true if it had ended when `started` was seen, or soon after in another member.
    fn had_ended(&self, started: &PodSighting) -> bool {
        let late = match self.seen.cluster == started.cluster {
            true => SignedDuration::ZERO,
            false => BETWEEN_MEMBERS,
        };
        let ended = |until: Timestamp| started.bound.duration_until(until) <= late;
        self.seen.until.is_some_and(ended)
    }

    fn is_replaced(&self, by: Timestamp, placed: Timestamp) -> bool {
        self.seen.bound > placed && self.seen.deleting.is_some_and(|since| since <= by)
    }
}

/// Compares the pods of the subject's managed namespaces with the quotas of their queues.
///
/// # Errors
/// Returns an error if a pod's requests cannot be read.
pub(super) fn check(
    subject: &AuditSubject,
    pods: &PodSightings,
    report: &AuditReport,
) -> anyhow::Result<PodReport> {
    let managed = |namespace: &str| {
        subject.namespaces.contains(namespace) && !subject.unmanaged.contains(namespace)
    };
    let (jobs, bounds) = (jobs(subject), &report.placed.bounds);
    let seen = pods.in_namespaces(managed).into_iter();
    let seen = seen.filter(|pod| !subject.out_of_service.contains(&pod.cluster));
    let held = seen.map(|pod| HeldPod::of(subject, &jobs, bounds, pod));
    let held = held.collect::<anyhow::Result<Vec<_>>>()?;
    let mut found = PodReport {
        pods: held.len(),
        ..PodReport::default()
    };
    let unlisted = pods.unlisted().into_iter();
    found.violations = unlisted
        .map(|member| format!("the pods of {member} were never listed"))
        .collect();
    let mut told = BTreeSet::new();
    let mut live: Vec<&HeldPod> = Vec::new();
    for pod in &held {
        let now = pod.seen.bound;
        live.retain(|other| other.seen.until.is_none_or(|until| until > now));
        live.push(pod);
        found.peak(&live, pod);
        let violations = exceeded(&report.placed, &live, pod);
        if !violations.is_empty() && told.insert(&pod.job) {
            found.violations.extend(violations);
        }
    }
    Ok(found)
}

impl PodReport {
    fn peak(&mut self, live: &[&HeldPod], started: &HeldPod) {
        let now = started.seen.bound;
        let Some(more) = started.at(now) else { return };
        for queue in &started.queues {
            let own = live.iter().filter(|pod| pod.queues.contains(queue));
            let own: Vec<&HeldAmounts> = own.filter_map(|pod| pod.at(now)).collect();
            for resource in more.resources() {
                let sum: u128 = own.iter().map(|held| held.all(resource)).sum();
                let peak = self.peaks.entry((queue.clone(), resource.clone()));
                let peak = peak.or_default();
                *peak = sum.max(*peak);
            }
        }
    }
}

/// Returns a sentence for each quota beyond which the pod of a job started.
fn exceeded(log: &AuditedPlacements, live: &[&HeldPod], started: &HeldPod) -> Vec<String> {
    let Some(job) = &started.job else {
        return Vec::new();
    };
    let now = started.seen.bound;
    let placed = log.last(job, now);
    let heard = placed.saturating_sub(SEEN_WITHIN).unwrap_or(placed);
    let counts = |pod: &&&HeldPod| {
        let replaced = |job: &String| pod.is_replaced(now, log.last(job, now));
        let replaced = pod.job.as_ref().is_some_and(replaced);
        !pod.had_ended(&started.seen) && (!replaced || pod.seen.bound <= heard)
    };
    let counted: Vec<(&HeldPod, &HeldAmounts)> = live
        .iter()
        .filter(counts)
        .filter_map(|pod| {
            let early = pod.seen.bound <= heard;
            let held = if early {
                pod.at(heard)
            } else {
                Some(&pod.known)
            };
            Some((*pod, held?))
        })
        .collect();
    let mut found = Vec::new();
    for queue in &started.queues {
        for (scope, bound) in log.bounds.between(queue, placed, now) {
            let own = counted.iter().filter(|(pod, _)| pod.queues.contains(queue));
            let all: u128 = own.clone().map(|(_, held)| scope.of(held)).sum();
            if scope.of(&started.known) > 0 && all > bound {
                let beside = own.filter(|(pod, _)| !std::ptr::eq(*pod, started));
                let beside: Vec<String> = beside.map(|(pod, _)| pod.to_string()).collect();
                found.push(format!(
                    "{scope} holds {} of {} {} in pods: {}/{} of {job} starts in {} at {now}, placed at {placed}, beside {}",
                    quantity::show(all),
                    quantity::show(bound),
                    scope.resource,
                    started.seen.namespace,
                    started.seen.name,
                    started.seen.cluster,
                    beside.join(", "),
                ));
            }
        }
    }
    found
}

/// Returns what a pod with this spec requests.
fn requests(subject: &AuditSubject, spec: &Value) -> anyhow::Result<Classes> {
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "spec": spec});
    let mut takes = Footprint::of(&pod)?;
    takes.resolve(&subject.claims)?;
    Ok(takes.whole())
}

/// Removes the containers that the template of the pod's job does not have.
fn of_template(mut spec: Value, containers: &BTreeSet<String>) -> Value {
    for field in ["containers", "initContainers"] {
        if let Some(list) = spec[field].as_array_mut() {
            list.retain(|container| {
                let name = container["name"].as_str().unwrap_or_default();
                containers.contains(name)
            });
        }
    }
    spec
}

/// Returns the names of all containers in a template.
pub(super) fn containers(template: &Value) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    collect(template, &mut names);
    names
}

fn collect(of: &Value, names: &mut BTreeSet<String>) {
    match of {
        Value::Array(list) => list.iter().for_each(|value| collect(value, names)),
        Value::Object(fields) => {
            for (field, value) in fields {
                if matches!(&**field, "containers" | "initContainers") {
                    let containers = value.as_array().into_iter().flatten();
                    let own = containers.map(|container| container["name"].as_str());
                    names.extend(own.map(|name| name.unwrap_or_default().to_owned()));
                } else {
                    collect(value, names);
                }
            }
        }
        _ => {}
    }
}
