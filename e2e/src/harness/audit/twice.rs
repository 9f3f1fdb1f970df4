//! Checks that no job runs twice: with more devices than it has, or with pods in the clusters of
//! different attempts.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::footprint::Footprint;
use super::pods::{PodSighting, PodSightings};
use super::quantity::{self, UNIT};

/// The time for which more pods than expected may be seen: members report ends and starts at
/// different speeds, and the remains of a deletion are collected a moment later.
const MOMENT: SignedDuration = SignedDuration::from_secs(10);

/// The facts about the jobs of one name.
#[derive(Debug, Default)]
pub(super) struct KnownJob {
    /// Devices of all pods together, in thousandths.
    pub(super) devices: u128,
    /// The clusters of each attempt.
    pub(super) attempts: Vec<BTreeSet<String>>,
}

/// A pod of a job while it ran.
struct PodRun {
    cluster: String,
    devices: u128,
    from: Timestamp,
    until: Option<Timestamp>,
}

impl PodRun {
    /// Returns `None` for a pod that never ran.
    fn of(sighting: &PodSighting) -> Option<Self> {
        let spec = sighting.specs.first().map(|(_, spec)| spec);
        Some(Self {
            cluster: sighting.cluster.clone(),
            devices: spec.map_or(0, devices),
            from: sighting.running?,
            until: sighting.until,
        })
    }

    fn runs_at(&self, time: Timestamp) -> bool {
        self.from <= time && self.until.is_none_or(|until| time < until)
    }
}

/// Returns a violation for each job that ran twice so far.
pub(super) fn verify(
    pods: &PodSightings,
    jobs: &BTreeMap<String, KnownJob>,
    now: Timestamp,
) -> Vec<String> {
    let namespaces: BTreeSet<&str> = jobs
        .keys()
        .filter_map(|job| job.split('/').next())
        .collect();
    let mut by_job: BTreeMap<String, Vec<PodRun>> = BTreeMap::new();
    for sighting in pods.in_namespaces(|namespace| namespaces.contains(namespace)) {
        let job = sighting.job(|name| jobs.contains_key(name));
        if let (Some(job), Some(run)) = (job, PodRun::of(&sighting)) {
            by_job.entry(job).or_default().push(run);
        }
    }
    let verified = by_job.into_iter();
    verified
        .flat_map(|(name, runs)| twice(&name, &jobs[&name], &runs, now))
        .collect()
}

/// Returns the violation of a job that ran twice for longer than [`MOMENT`]. It checks every time at
/// which a pod of the job started or ended, and the last one.
fn twice(name: &str, known: &KnownJob, runs: &[PodRun], last: Timestamp) -> Option<String> {
    let starts = runs.iter().map(|run| run.from);
    let ends = runs.iter().filter_map(|run| run.until);
    let times: BTreeSet<Timestamp> = starts.chain(ends).collect();
    let mut since: Option<(Timestamp, String)> = None;
    for time in times.into_iter().chain([last]) {
        if let Some((from, what)) = &since
            && from.duration_until(time) > MOMENT
        {
            return Some(format!(
                "{name}: {what} from {from} for longer than {MOMENT:#}"
            ));
        }
        let run: Vec<&PodRun> = runs.iter().filter(|run| run.runs_at(time)).collect();
        since = wrong(known, &run).map(|what| match since {
            Some((from, _)) => (from, what),
            None => (time, what),
        });
    }
    None
}

fn wrong(known: &KnownJob, run: &[&PodRun]) -> Option<String> {
    let devices: u128 = run.iter().map(|pod| pod.devices).sum();
    let clusters: BTreeSet<String> = run.iter().map(|pod| pod.cluster.clone()).collect();
    if devices > known.devices {
        let [devices, all] = [devices, known.devices].map(quantity::show);
        return Some(format!("pods with {devices} of its {all} devices run"));
    }
    let mut attempts = known.attempts.iter();
    let of_one = attempts.any(|attempt| clusters.is_subset(attempt));
    (!of_one && !clusters.is_empty()).then(|| {
        let attempts = &known.attempts;
        format!("pods run in {clusters:?} at once, and its attempts were in {attempts:?}")
    })
}

fn devices(spec: &Value) -> u128 {
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "spec": spec});
    // The devices of claims are not in the pod.
    let whole = Footprint::of(&pod).map(|takes| takes.whole());
    let amounts = whole.unwrap_or_default().into_values().flatten();
    let devices = amounts.filter(|(resource, _)| resource.contains('/'));
    devices.map(|(_, amount)| amount / UNIT * UNIT).sum()
}
