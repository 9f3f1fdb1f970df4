//! The benchmark's watches of the control plane: bindings and Works, and PodGroups for their
//! number.
//!
//! Only the fields in use are decoded, so that the watches cost little beside the measured work.

use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::Arc;

use futures::{Stream, StreamExt as _};
use kube::api::{Api, ObjectMeta};
use kube::core::Object;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event};
use kube::{Client, Resource};
use parking_lot::Mutex;
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use tokio::task::JoinSet;

use super::ledger::BindingId;
use super::seen::{BindingNow, Seen, WorkNow};
use crate::harness::kinds::{BINDING, POD_GROUP, WORK};

const BINDING_NAME: &str = "resourcebinding.karmada.io/name";
const BINDING_NAMESPACE: &str = "resourcebinding.karmada.io/namespace";
const RECORD: &str = "muster.io/admission";

type WatchedBinding = Object<WatchedBindingSpec, WatchedBindingStatus>;
type WatchedWork = Object<IgnoredAny, WatchedWorkStatus>;
type WatchedPodGroup = Object<IgnoredAny, IgnoredAny>;

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct WatchedBindingSpec {
    suspension: Option<WatchedSuspension>,
    clusters: Option<Vec<WatchedTarget>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct WatchedSuspension {
    scheduling: bool,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct WatchedTarget {
    name: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WatchedBindingStatus {
    aggregated_status: Option<Vec<Reported>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Reported {
    cluster_name: String,
    status: Option<JobStatus>,
}

/// The status of a batch Job, the only kind that the benchmark submits.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct JobStatus {
    conditions: Option<Vec<Condition>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Condition {
    #[serde(rename = "type")]
    type_: String,
    status: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WatchedWorkStatus {
    conditions: Option<Vec<Condition>>,
    manifest_statuses: Option<Vec<ManifestStatus>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct ManifestStatus {
    status: Option<JobStatus>,
}

/// Watches until the set is dropped; returns after each watch has listed once.
pub(super) async fn spawn(client: &Client, seen: &Arc<Mutex<Seen>>) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    let (listed, mut lists) = tokio::sync::mpsc::channel::<()>(3);
    let api = Api::<WatchedBinding>::all_with(client.clone(), &BINDING.resource());
    let shared = Arc::clone(seen);
    tasks.spawn(follow(
        events(api),
        listed.clone(),
        move |change| match change {
            WatchedChange::Seen(binding) => shared.lock().binding(&binding_now(&binding)),
            WatchedChange::Gone((id, revision)) => shared.lock().binding_gone(&id, revision),
        },
    ));
    let api = Api::<WatchedWork>::all_with(client.clone(), &WORK.resource());
    let shared = Arc::clone(seen);
    tasks.spawn(follow(events(api), listed.clone(), move |change| {
        if let WatchedChange::Seen(work) = change
            && let Some(now) = work_now(&work)
        {
            shared.lock().work(&now);
        }
    }));
    let api = Api::<WatchedPodGroup>::all_with(client.clone(), &POD_GROUP.resource());
    let shared = Arc::clone(seen);
    tasks.spawn(follow(events(api), listed, move |_| {
        shared.lock().pod_group()
    }));
    for _ in 0..3 {
        // The tasks end only with the set.
        let _ = lists.recv().await;
    }
    tasks
}

/// An object, and the revision in which it was last seen.
type Version = (BindingId, u64);

enum WatchedChange<K> {
    Seen(K),
    Gone(Version),
}

fn events<K>(api: Api<K>) -> impl Stream<Item = watcher::Result<Event<K>>>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    watcher::watcher(api, watcher::Config::default()).default_backoff()
}

/// Reports every change once: it skips what a relist repeats, and reports objects missing from the
/// relist as deleted.
async fn follow<K: Resource>(
    events: impl Stream<Item = watcher::Result<Event<K>>>,
    listed: tokio::sync::mpsc::Sender<()>,
    mut tell: impl FnMut(WatchedChange<K>),
) {
    let mut known: HashMap<BindingId, u64> = HashMap::new();
    let mut before: HashMap<BindingId, u64> = HashMap::new();
    let mut events = std::pin::pin!(events);
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Init) => before = std::mem::take(&mut known),
            Ok(Event::InitApply(object)) => {
                let (id, revision) = version(object.meta());
                let old = before.remove(&id);
                known.insert(id, revision);
                if old != Some(revision) {
                    tell(WatchedChange::Seen(object));
                }
            }
            Ok(Event::InitDone) => {
                before
                    .drain()
                    .for_each(|gone| tell(WatchedChange::Gone(gone)));
                // The channel is full if this watch has already reported its list.
                let _ = listed.try_send(());
            }
            Ok(Event::Apply(object)) => {
                let (id, revision) = version(object.meta());
                known.insert(id, revision);
                tell(WatchedChange::Seen(object));
            }
            Ok(Event::Delete(object)) => {
                let gone = version(object.meta());
                known.remove(&gone.0);
                tell(WatchedChange::Gone(gone));
            }
            // The watcher restarts by itself.
            Err(_) => {}
        }
    }
}

fn version(meta: &ObjectMeta) -> Version {
    (id(meta), revision(meta))
}

fn id(meta: &ObjectMeta) -> BindingId {
    (
        meta.namespace.clone().unwrap_or_default(),
        meta.name.clone().unwrap_or_default(),
    )
}

fn revision(meta: &ObjectMeta) -> u64 {
    meta.resource_version
        .as_deref()
        .and_then(|version| version.parse().ok())
        .unwrap_or(0)
}

fn annotation<'a>(meta: &'a ObjectMeta, name: &str) -> Option<&'a String> {
    meta.annotations.as_ref()?.get(name)
}

fn binding_now(binding: &WatchedBinding) -> BindingNow {
    let reported = binding
        .status
        .iter()
        .flat_map(|status| status.aggregated_status.iter().flatten());
    let ended = reported.filter(|item| item.status.as_ref().is_some_and(has_ended));
    let clusters = binding.spec.clusters.iter().flatten();
    BindingNow {
        id: id(&binding.metadata),
        revision: revision(&binding.metadata),
        suspended: binding
            .spec
            .suspension
            .as_ref()
            .is_some_and(|suspension| suspension.scheduling),
        clusters: clusters.map(|cluster| cluster.name.clone()).collect(),
        record: annotation(&binding.metadata, RECORD).cloned(),
        ended_in: ended.map(|item| item.cluster_name.clone()).collect(),
    }
}

/// Returns `None` for a Work without a binding.
fn work_now(work: &WatchedWork) -> Option<WorkNow> {
    let binding = (
        annotation(&work.metadata, BINDING_NAMESPACE)?.clone(),
        annotation(&work.metadata, BINDING_NAME)?.clone(),
    );
    let status = work.status.clone().unwrap_or_default();
    let manifests = status.manifest_statuses.unwrap_or_default();
    let ended = |manifest: &ManifestStatus| manifest.status.as_ref().is_some_and(has_ended);
    Some(WorkNow {
        binding,
        revision: revision(&work.metadata),
        applied: holds(&status.conditions, "Applied"),
        ended: !manifests.is_empty() && manifests.iter().all(ended),
    })
}

fn has_ended(status: &JobStatus) -> bool {
    holds(&status.conditions, "Complete") || holds(&status.conditions, "Failed")
}

fn holds(conditions: &Option<Vec<Condition>>, type_: &str) -> bool {
    let mut conditions = conditions.iter().flatten();
    conditions.any(|condition| condition.type_ == type_ && condition.status == "True")
}
