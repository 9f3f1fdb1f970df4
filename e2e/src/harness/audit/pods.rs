//! The second source: pods in the members, by a watch of each member.
//!
//! An audit log of each member's pods would have the bodies of every write to every pod, several
//! kilobytes each. A watch sends the same bodies once, and this module keeps a line of each. It
//! misses changes while a member's API server does not answer.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use futures::StreamExt as _;
use jiff::{SignedDuration, Timestamp};
use kube::Client;
use kube::api::{Api, DynamicObject};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event};
use parking_lot::Mutex;
use serde_json::Value;

use super::footprint::Footprint;
use super::quantity::{self, UNIT};
use crate::harness::kinds::POD;

/// The time for which more pods than expected may be seen: members report ends and starts at
/// different speeds, and the remains of a deletion are collected a moment later.
const MOMENT: SignedDuration = SignedDuration::from_secs(10);

/// The pods seen so far in all watched members.
#[derive(Debug, Clone, Default)]
pub struct PodSightings(Arc<Mutex<HashMap<String, PodSighting>>>);

/// A pod that ran.
#[derive(Debug, Clone)]
struct PodSighting {
    cluster: String,
    namespace: String,
    /// The name of the pod's owner, possibly with a suffix.
    owner: String,
    devices: u128,
    from: Timestamp,
    until: Option<Timestamp>,
}

/// The facts about the jobs of one name.
#[derive(Debug, Default)]
pub(super) struct KnownJob {
    /// Devices of all pods together, in thousandths.
    pub(super) devices: u128,
    /// The clusters of each attempt.
    pub(super) attempts: Vec<BTreeSet<String>>,
}

impl PodSightings {
    /// Watches the pods of a member until the process ends.
    pub fn watch(&self, cluster: &str, client: Client) {
        let (pods, cluster) = (self.clone(), cluster.to_owned());
        drop(tokio::spawn(async move {
            let api = Api::<DynamicObject>::all_with(client, &POD.resource());
            let events = watcher::watcher(api, watcher::Config::default()).default_backoff();
            let mut events = std::pin::pin!(events);
            let mut listed = BTreeSet::new();
            while let Some(event) = events.next().await {
                let now = Timestamp::now();
                match event {
                    Ok(Event::Init) => listed.clear(),
                    Ok(Event::InitApply(pod)) => {
                        listed.extend(pod.metadata.uid.clone());
                        pods.seen(&cluster, &json(&pod), now);
                    }
                    Ok(Event::InitDone) => pods.only(&cluster, &listed, now),
                    Ok(Event::Apply(pod)) => pods.seen(&cluster, &json(&pod), now),
                    Ok(Event::Delete(pod)) => {
                        pods.ended(&pod.metadata.uid.unwrap_or_default(), now)
                    }
                    // The watcher restarts by itself.
                    Err(_) => {}
                }
            }
        }));
    }

    /// Notes the current state of a pod.
    pub(super) fn seen(&self, cluster: &str, pod: &Value, now: Timestamp) {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let uid = text(&pod["metadata"]["uid"]);
        match pod["status"]["phase"].as_str() {
            Some("Running") => {}
            Some("Succeeded" | "Failed") => return self.ended(&uid, now),
            _ => return,
        }
        let mut sightings = self.0.lock();
        sightings.entry(uid).or_insert_with(|| PodSighting {
            cluster: cluster.to_owned(),
            namespace: text(&pod["metadata"]["namespace"]),
            owner: owner(pod),
            devices: devices(pod),
            from: now,
            until: None,
        });
    }

    /// Notes that a pod was deleted or ended.
    pub(super) fn ended(&self, uid: &str, now: Timestamp) {
        if let Some(sighting) = self.0.lock().get_mut(uid) {
            sighting.until.get_or_insert(now);
        }
    }

    /// Ends all pods of a cluster except these.
    fn only(&self, cluster: &str, uids: &BTreeSet<String>, now: Timestamp) {
        for (uid, sighting) in self.0.lock().iter_mut() {
            if sighting.cluster == cluster && !uids.contains(uid) {
                sighting.until.get_or_insert(now);
            }
        }
    }

    /// Returns a violation for each job that ran twice so far: with more devices than the job has, or
    /// with pods in clusters of different attempts.
    pub(super) fn verify(&self, jobs: &BTreeMap<String, KnownJob>, now: Timestamp) -> Vec<String> {
        let mut by_job: BTreeMap<&String, Vec<PodSighting>> = BTreeMap::new();
        for sighting in self.0.lock().values() {
            if let Some(job) = sighting.job(jobs) {
                by_job.entry(job).or_default().push(sighting.clone());
            }
        }
        let verified = by_job.into_iter();
        verified
            .flat_map(|(name, sightings)| twice(name, &jobs[name], &sightings, now))
            .collect()
    }
}

impl PodSighting {
    /// Returns the job of the pod; generated names add a dash and a suffix.
    fn job<'a>(&self, jobs: &'a BTreeMap<String, KnownJob>) -> Option<&'a String> {
        let name = format!("{}/{}", self.namespace, self.owner);
        let shorter = name.rsplit_once('-').map(|(name, _)| name);
        let found = jobs.get_key_value(&name);
        let found = found.or_else(|| jobs.get_key_value(shorter?));
        found.map(|(name, _)| name)
    }

    fn runs_at(&self, time: Timestamp) -> bool {
        self.from <= time && self.until.is_none_or(|until| time < until)
    }
}

/// Returns the violation of a job that ran twice for longer than [`MOMENT`]. It checks every time at
/// which a pod of the job started or ended, and the last one.
fn twice(
    name: &str,
    known: &KnownJob,
    sightings: &[PodSighting],
    last: Timestamp,
) -> Option<String> {
    let starts = sightings.iter().map(|sighting| sighting.from);
    let ends = sightings.iter().filter_map(|sighting| sighting.until);
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
        let run: Vec<&PodSighting> = sightings.iter().filter(|pod| pod.runs_at(time)).collect();
        since = wrong(known, &run).map(|what| match since {
            Some((from, _)) => (from, what),
            None => (time, what),
        });
    }
    None
}

fn wrong(known: &KnownJob, run: &[&PodSighting]) -> Option<String> {
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

/// Returns the name of the pod's job, possibly with a suffix.
fn owner(pod: &Value) -> String {
    let metadata = &pod["metadata"];
    let labels = [
        "volcano.sh/job-name",
        "training.kubeflow.org/job-name",
        "jobset.sigs.k8s.io/jobset-name",
        "leaderworkerset.sigs.k8s.io/name",
        "ray.io/cluster",
        "batch.kubernetes.io/job-name",
    ];
    let labelled = labels.iter().map(|label| &metadata["labels"][*label]);
    let owner = &metadata["ownerReferences"][0]["name"];
    let mut names = labelled.chain([owner, &metadata["name"]]);
    let name = names.find_map(Value::as_str);
    name.unwrap_or_default().to_owned()
}

fn devices(pod: &Value) -> u128 {
    let mut pod = pod.clone();
    (pod["apiVersion"], pod["kind"]) = ("v1".into(), "Pod".into());
    // The devices of claims are not in the pod.
    let whole = Footprint::of(&pod).map(|takes| takes.whole());
    let amounts = whole.unwrap_or_default().into_values().flatten();
    let devices = amounts.filter(|(resource, _)| resource.contains('/'));
    devices.map(|(_, amount)| amount / UNIT * UNIT).sum()
}

fn json(pod: &DynamicObject) -> Value {
    // The object was parsed from JSON, so only an object with non-text keys could fail.
    serde_json::to_value(pod).unwrap_or_default()
}
