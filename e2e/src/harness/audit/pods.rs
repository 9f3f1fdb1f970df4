//! Pods in the members, by a watch of each member: what [`super::in_members`] and [`super::twice`] check.
//!
//! An audit log of each member's pods would have the bodies of every write to every pod, several
//! kilobytes each. A watch sends the same bodies once, and this module keeps what each pod requests,
//! since when, and how it ends. It misses changes while a member's API server does not answer, and
//! asks again every [`RECONNECT`]: a pod that ended meanwhile must not seem to run longer than it did.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use backon::ExponentialBuilder;
use futures::StreamExt as _;
use jiff::Timestamp;
use kube::Client;
use kube::api::{Api, DynamicObject};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, ExponentialBackoff};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::harness::kinds::POD;

/// The pause before a watch that failed begins again. The usual one grows to half a minute, and what
/// changed in a member that answers again would be known only after it.
const RECONNECT: Duration = Duration::from_millis(250);

/// The pods seen so far in all watched members.
#[derive(Debug, Clone, Default)]
pub struct PodSightings(Arc<Mutex<WatchedPods>>);

#[derive(Debug, Default)]
struct WatchedPods {
    /// The pods that were bound to a node, by UID.
    pods: HashMap<String, PodSighting>,
    /// The watched members, and whether their pods were listed.
    members: BTreeMap<String, bool>,
}

/// A pod that was bound to a node.
#[derive(Debug, Clone)]
pub(super) struct PodSighting {
    pub(super) cluster: String,
    pub(super) namespace: String,
    pub(super) name: String,
    /// The name of the pod's owner, possibly with a suffix.
    owner: String,
    /// When it was first seen on its node, and when it was first seen running.
    pub(super) bound: Timestamp,
    pub(super) running: Option<Timestamp>,
    /// When its deletion was first seen; it may run on for long.
    pub(super) deleting: Option<Timestamp>,
    /// When it was seen succeeded, failed or gone.
    pub(super) until: Option<Timestamp>,
    /// The part of its spec that says what it requests, from these times on.
    pub(super) specs: Vec<(Timestamp, Value)>,
}

impl PodSightings {
    /// Watches the pods of a member until the process ends.
    pub fn watch(&self, cluster: &str, client: Client) {
        let (pods, cluster) = (self.clone(), cluster.to_owned());
        pods.0.lock().members.insert(cluster.clone(), false);
        drop(tokio::spawn(async move {
            let api = Api::<DynamicObject>::all_with(client, &POD.resource());
            let events = watcher::watcher(api, watcher::Config::default());
            let pauses = ExponentialBuilder::new()
                .with_min_delay(RECONNECT)
                .with_max_delay(RECONNECT)
                .without_max_times();
            let events = events.backoff(ExponentialBackoff::from(pauses));
            let mut events = std::pin::pin!(events);
            let mut listed = BTreeSet::new();
            while let Some(event) = events.next().await {
                let now = Timestamp::now();
                match event {
                    Ok(Event::Init) => listed.clear(),
                    Ok(Event::InitApply(pod)) => {
                        listed.extend(pod.metadata.uid.clone());
                        pods.seen(&cluster, &value(&pod), now);
                    }
                    Ok(Event::InitDone) => pods.only(&cluster, &listed, now),
                    Ok(Event::Apply(pod)) => pods.seen(&cluster, &value(&pod), now),
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
        let (metadata, phase) = (&pod["metadata"], pod["status"]["phase"].as_str());
        let uid = text(&metadata["uid"]);
        if matches!(phase, Some("Succeeded" | "Failed")) {
            return self.ended(&uid, now);
        }
        if pod["spec"]["nodeName"].is_null() {
            return;
        }
        let mut watched = self.0.lock();
        let sighting = watched.pods.entry(uid).or_insert_with(|| PodSighting {
            cluster: cluster.to_owned(),
            namespace: text(&metadata["namespace"]),
            name: text(&metadata["name"]),
            owner: owner(pod),
            bound: now,
            running: None,
            deleting: None,
            until: None,
            specs: Vec::new(),
        });
        if phase == Some("Running") {
            sighting.running.get_or_insert(now);
        }
        if !metadata["deletionTimestamp"].is_null() {
            sighting.deleting.get_or_insert(now);
        }
        let spec = requesting(&pod["spec"]);
        if sighting.specs.last().is_none_or(|(_, last)| *last != spec) {
            sighting.specs.push((now, spec));
        }
    }

    /// Notes that a pod was deleted or ended.
    pub(super) fn ended(&self, uid: &str, now: Timestamp) {
        if let Some(sighting) = self.0.lock().pods.get_mut(uid) {
            sighting.until.get_or_insert(now);
        }
    }

    /// Ends all pods of a cluster except these: its pods were listed.
    fn only(&self, cluster: &str, uids: &BTreeSet<String>, now: Timestamp) {
        let mut watched = self.0.lock();
        watched.members.insert(cluster.to_owned(), true);
        for (uid, sighting) in &mut watched.pods {
            if sighting.cluster == cluster && !uids.contains(uid) {
                sighting.until.get_or_insert(now);
            }
        }
    }

    /// Returns the pods of some namespaces, in the order in which they were bound.
    pub(super) fn in_namespaces(&self, wanted: impl Fn(&str) -> bool) -> Vec<PodSighting> {
        let watched = self.0.lock();
        let pods = watched.pods.values();
        let pods = pods.filter(|sighting| wanted(&sighting.namespace));
        let mut pods: Vec<PodSighting> = pods.cloned().collect();
        pods.sort_by(|a, b| (a.bound, &a.name).cmp(&(b.bound, &b.name)));
        pods
    }

    /// Returns the members whose pods were never listed, so that nothing is known of them.
    pub(super) fn unlisted(&self) -> Vec<String> {
        let watched = self.0.lock();
        let unlisted = watched.members.iter().filter(|(_, listed)| !**listed);
        unlisted.map(|(member, _)| member.clone()).collect()
    }
}

impl PodSighting {
    /// Returns the `namespace/name` of the pod's job; generated names add a dash and a suffix.
    pub(super) fn job(&self, known: impl Fn(&str) -> bool) -> Option<String> {
        let name = format!("{}/{}", self.namespace, self.owner);
        if known(&name) {
            return Some(name);
        }
        let (shorter, _) = name.rsplit_once('-')?;
        known(shorter).then(|| shorter.to_owned())
    }
}

/// Returns the fields of a pod's spec that say what it requests.
fn requesting(spec: &Value) -> Value {
    let mut part = json!({});
    for field in ["nodeSelector", "overhead", "resources", "resourceClaims"] {
        if !spec[field].is_null() {
            part[field] = spec[field].clone();
        }
    }
    for field in ["containers", "initContainers"] {
        let containers = spec[field].as_array().into_iter().flatten();
        let containers = containers.map(|container| {
            json!({
                "name": container["name"],
                "resources": container["resources"],
                "restartPolicy": container["restartPolicy"],
            })
        });
        part[field] = containers.collect();
    }
    part
}

/// Returns the name of the pod's job, possibly with a suffix.
fn owner(pod: &Value) -> String {
    let metadata = &pod["metadata"];
    let labels = [
        "volcano.sh/job-name",
        "training.kubeflow.org/job-name",
        "jobset.sigs.k8s.io/jobset-name",
        "leaderworkerset.sigs.k8s.io/name",
        "ray.io/originated-from-cr-name",
        "ray.io/cluster",
        "batch.kubernetes.io/job-name",
    ];
    let labelled = labels.iter().map(|label| &metadata["labels"][*label]);
    let owner = &metadata["ownerReferences"][0]["name"];
    let mut names = labelled.chain([owner, &metadata["name"]]);
    let name = names.find_map(Value::as_str);
    name.unwrap_or_default().to_owned()
}

fn value(pod: &DynamicObject) -> Value {
    // The object was parsed from JSON, so only an object with non-text keys could fail.
    serde_json::to_value(pod).unwrap_or_default()
}
