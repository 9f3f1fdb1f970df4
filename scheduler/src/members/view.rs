//! The live view of one member: what its watches told, as facts for the engine.
//!
//! ```text
//! nodes, pods (deltas) ─┐
//! answers of climbs ────┴─► View ─► events, only where a fact changed
//!                            └────► owners to climb from, once each
//! ```
//!
//! A view outlives its connection: while a member is away its nodes and pods stay as they
//! were, and what has vanished meanwhile is found when the next connection has listed. Pure.

use crate::matching::{Belongs, Owner, belongs};
use crds::kubernetes::{Node, Pod};
use engine::facts::{NodeFact, PodFact};
use engine::{Amount, ClusterName, Event, JobKey, NodeName, ResourceName, Uid};
use runtime::watch::{Delta, ObjectKey};
use std::collections::{BTreeMap, HashMap, HashSet};

/// A pod as far as room is concerned. Made in the watch's own task, so that the object itself
/// is never kept.
#[derive(Debug, Clone)]
pub(crate) struct SeenPod {
    key: ObjectKey,
    /// Without its job.
    fact: PodFact,
    belongs: Belongs,
}

impl SeenPod {
    pub(crate) fn new(cluster: &ClusterName, pod: &Pod) -> Self {
        let key = ObjectKey::of(pod);
        let fact = pod.to_fact(cluster, None).unwrap_or_else(|error| {
            tracing::warn!(%cluster, pod = %key, %error, "its request cannot be read; counted as one pod");
            unread(cluster, pod)
        });
        Self {
            key,
            fact,
            belongs: belongs(&pod.metadata),
        }
    }
}

/// The fact of a pod whose request is not known.
fn unread(cluster: &ClusterName, pod: &Pod) -> PodFact {
    PodFact {
        cluster: cluster.clone(),
        uid: Uid::new(pod.metadata.uid.as_deref().unwrap_or_default()),
        node: pod.spec.node_name.as_ref().map(NodeName::new),
        request: [(ResourceName::new(ResourceName::PODS), Amount(1))]
            .into_iter()
            .collect(),
        job: None,
        ended: pod.has_ended(),
    }
}

/// Turns `delta` of a node into one of its fact.
pub(crate) fn node_delta(cluster: &ClusterName, delta: Delta<Node>) -> Delta<NodeFact> {
    map(delta, |node| node.to_fact(cluster))
}

/// Turns `delta` of a pod into one of what is seen of it.
pub(crate) fn pod_delta(cluster: &ClusterName, delta: Delta<Pod>) -> Delta<SeenPod> {
    map(delta, |pod| SeenPod::new(cluster, &pod))
}

fn map<A, B>(delta: Delta<A>, read: impl FnOnce(A) -> B) -> Delta<B> {
    match delta {
        Delta::Upserted(object) => Delta::Upserted(read(object)),
        Delta::Gone(key) => Delta::Gone(key),
        Delta::Listed => Delta::Listed,
    }
}

/// What is known of an owner.
#[derive(Debug)]
struct OwnerEntry {
    owner: Owner,
    /// Its pods.
    pods: HashSet<Uid>,
    /// Where the climb from it ended: at a job, or at the top of what is nobody's. `None`
    /// while that is not known.
    answer: Option<Option<JobKey>>,
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct View {
    cluster: ClusterName,
    nodes: BTreeMap<String, NodeFact>,
    pods: HashMap<Uid, SeenPod>,
    pod_uids: HashMap<ObjectKey, Uid>,
    owners: HashMap<String, OwnerEntry>,
    /// Known from an earlier connection and not yet seen over this one.
    unseen_nodes: HashSet<String>,
    unseen_pods: HashSet<ObjectKey>,
    nodes_listed: bool,
    pods_listed: bool,
    events: Vec<Event>,
    asks: Vec<Owner>,
}

impl View {
    /// Of a member of which nothing is known yet.
    pub(crate) fn new(cluster: ClusterName) -> Self {
        Self {
            cluster,
            nodes: BTreeMap::new(),
            pods: HashMap::new(),
            pod_uids: HashMap::new(),
            owners: HashMap::new(),
            unseen_nodes: HashSet::new(),
            unseen_pods: HashSet::new(),
            nodes_listed: false,
            pods_listed: false,
            events: Vec::new(),
            asks: Vec::new(),
        }
    }

    /// A new connection begins to list. Climbs that the old one has not ended are asked anew.
    pub(crate) fn begin(&mut self) {
        self.nodes_listed = false;
        self.pods_listed = false;
        self.unseen_nodes = self.nodes.keys().cloned().collect();
        self.unseen_pods = self.pod_uids.keys().cloned().collect();
        let open = self.owners.values().filter(|entry| entry.answer.is_none());
        self.asks = open.map(|entry| entry.owner.clone()).collect();
    }

    /// Whether nodes and pods have listed over the present connection.
    pub(crate) fn has_listed(&self) -> bool {
        self.nodes_listed && self.pods_listed
    }

    /// How many nodes and pods are known.
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.nodes.len(), self.pods.len())
    }

    /// What changed since the last call, and the owners to climb from.
    pub(crate) fn take(&mut self) -> (Vec<Event>, Vec<Owner>) {
        (
            std::mem::take(&mut self.events),
            std::mem::take(&mut self.asks),
        )
    }

    /// Takes in a delta of a node.
    pub(crate) fn node(&mut self, delta: Delta<NodeFact>) {
        match delta {
            Delta::Upserted(fact) => {
                let name = fact.name.as_str().to_owned();
                self.unseen_nodes.remove(&name);
                if self.nodes.get(&name) != Some(&fact) {
                    self.nodes.insert(name, fact.clone());
                    self.events.push(Event::NodeUpserted(fact));
                }
            }
            Delta::Gone(key) => self.node_gone(&key.name),
            Delta::Listed => {
                for name in std::mem::take(&mut self.unseen_nodes) {
                    self.node_gone(&name);
                }
                self.nodes_listed = true;
            }
        }
    }

    fn node_gone(&mut self, name: &str) {
        if let Some(fact) = self.nodes.remove(name) {
            self.events.push(Event::NodeGone(fact.cluster, fact.name));
        }
    }

    /// Takes in a delta of a pod.
    pub(crate) fn pod(&mut self, delta: Delta<SeenPod>) {
        match delta {
            Delta::Upserted(pod) => {
                self.unseen_pods.remove(&pod.key);
                self.pod_upserted(pod);
            }
            Delta::Gone(key) => self.pod_gone(&key),
            Delta::Listed => {
                for key in std::mem::take(&mut self.unseen_pods) {
                    self.pod_gone(&key);
                }
                self.pods_listed = true;
            }
        }
    }

    fn pod_upserted(&mut self, mut pod: SeenPod) {
        let uid = pod.fact.uid.clone();
        if self
            .pod_uids
            .get(&pod.key)
            .is_some_and(|known| *known != uid)
        {
            self.pod_gone(&pod.key.clone());
        }
        pod.fact.job = self.job_of(&uid, &pod.belongs);
        if self.pods.get(&uid).map(|known| &known.fact) != Some(&pod.fact) {
            self.events.push(Event::PodUpserted(pod.fact.clone()));
        }
        self.pod_uids.insert(pod.key.clone(), uid.clone());
        self.pods.insert(uid, pod);
    }

    /// The job of the pod `uid`: what the climb from its owner found, else what is likely.
    fn job_of(&mut self, uid: &Uid, belongs: &Belongs) -> Option<JobKey> {
        let (owner, likely) = match belongs {
            Belongs::Applied(key) => return Some(key.clone()),
            Belongs::Nobody => return None,
            Belongs::Owned { owner, likely } => (owner, likely),
        };
        let entry = self.owners.entry(owner.uid.clone()).or_insert_with(|| {
            self.asks.push(owner.clone());
            OwnerEntry {
                owner: owner.clone(),
                pods: HashSet::new(),
                answer: None,
            }
        });
        entry.pods.insert(uid.clone());
        entry.answer.clone().unwrap_or_else(|| Some(likely.clone()))
    }

    fn pod_gone(&mut self, key: &ObjectKey) {
        let Some(uid) = self.pod_uids.remove(key) else {
            return;
        };
        if let Some(Belongs::Owned { owner, .. }) = self.pods.remove(&uid).map(|pod| pod.belongs) {
            let is_last = self.owners.get_mut(&owner.uid).is_some_and(|entry| {
                entry.pods.remove(&uid);
                entry.pods.is_empty()
            });
            if is_last {
                self.owners.remove(&owner.uid);
            }
        }
        self.events.push(Event::PodGone(self.cluster.clone(), uid));
    }

    /// The climb from the owner `uid` ended: at a job, or at the top of what is nobody's.
    pub(crate) fn owner_known(&mut self, uid: &str, job: Option<JobKey>) {
        let Some(entry) = self.owners.get_mut(uid) else {
            return;
        };
        // Hash order reaches only the order of events about different pods.
        for uid in &entry.pods {
            let Some(pod) = self.pods.get_mut(uid) else {
                continue;
            };
            if pod.fact.job != job {
                pod.fact.job.clone_from(&job);
                self.events.push(Event::PodUpserted(pod.fact.clone()));
            }
        }
        entry.answer = Some(job);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::{Value, json};

    fn cluster() -> ClusterName {
        ClusterName::new("m1")
    }

    fn pod(name: &str, uid: &str, owner: Option<&str>) -> Delta<SeenPod> {
        let owners: Value = owner.map_or(json!([]), |name| {
            json!([{"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": format!("{name}-uid"),
                    "controller": true}])
        });
        let pod = serde_json::from_value(json!({
            "metadata": {"namespace": "team", "name": name, "uid": uid, "ownerReferences": owners},
            "spec": {"nodeName": "n1", "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]},
            "status": {"phase": "Running"},
        }))
        .unwrap();
        pod_delta(&cluster(), Delta::Upserted(pod))
    }

    fn node(name: &str, cpu: &str) -> Delta<NodeFact> {
        let node = serde_json::from_value(json!({
            "metadata": {"name": name},
            "status": {"allocatable": {"cpu": cpu}, "conditions": [{"type": "Ready", "status": "True"}]},
        }))
        .unwrap();
        node_delta(&cluster(), Delta::Upserted(node))
    }

    fn gone<K>(namespace: Option<&str>, name: &str) -> Delta<K> {
        Delta::Gone(ObjectKey {
            namespace: namespace.map(str::to_owned),
            name: name.to_owned(),
        })
    }

    /// Events in short, and the owners asked for.
    fn told(view: &mut View) -> String {
        let (events, asks) = view.take();
        let events = events.iter().map(|event| match event {
            Event::NodeUpserted(fact) => format!("+{} {}", fact.name, fact.allocatable),
            Event::NodeGone(_, name) => format!("-{name}"),
            Event::PodUpserted(fact) => {
                let job = fact
                    .job
                    .as_ref()
                    .map_or("others".to_owned(), ToString::to_string);
                format!("+{} of {job}", fact.uid)
            }
            Event::PodGone(_, uid) => format!("-{uid}"),
            other => format!("{other:?}"),
        });
        let asks = asks.iter().map(|owner| format!("?{}", owner.name));
        events.chain(asks).collect::<Vec<_>>().join(", ")
    }

    #[test]
    fn only_changes_are_told() {
        let mut view = View::new(cluster());
        view.node(node("n1", "8"));
        assert_eq!(told(&mut view), "+n1 cpu 8");
        view.node(node("n1", "8"));
        assert_eq!(told(&mut view), "");
        view.node(node("n1", "4"));
        view.node(gone(None, "n1"));
        view.node(gone(None, "n1"));
        assert_eq!(told(&mut view), "+n1 cpu 4, -n1");
        view.pod(pod("p", "u1", None));
        view.pod(pod("p", "u1", None));
        view.pod(pod("p", "u2", None));
        assert_eq!(told(&mut view), "+u1 of others, -u1, +u2 of others");
    }

    #[test]
    fn the_climb_corrects_what_was_likely_once_per_owner() {
        let mut view = View::new(cluster());
        view.pod(pod("a", "u1", Some("set-0")));
        view.pod(pod("b", "u2", Some("set-0")));
        assert_eq!(
            told(&mut view),
            "+u1 of team/set-0-job, +u2 of team/set-0-job, ?set-0"
        );
        view.pod(gone(Some("team"), "b"));
        view.owner_known("set-0-uid", Some(JobKey::new("team", "set-jobset")));
        assert_eq!(told(&mut view), "-u2, +u1 of team/set-jobset");
        view.pod(pod("c", "u3", Some("set-0")));
        assert_eq!(told(&mut view), "+u3 of team/set-jobset");
        // The last pod takes the answer with it; another owner of that name is asked about.
        view.pod(gone(Some("team"), "a"));
        view.pod(gone(Some("team"), "c"));
        view.pod(pod("d", "u4", Some("set-0")));
        view.owner_known("set-0-uid", None);
        assert_eq!(
            told(&mut view),
            "-u1, -u3, +u4 of team/set-0-job, +u4 of others, ?set-0"
        );
    }

    #[test]
    fn what_vanished_between_two_connections_is_gone_once_both_have_listed() {
        let mut view = View::new(cluster());
        view.begin();
        view.node(node("n1", "8"));
        view.node(node("n2", "8"));
        view.pod(pod("a", "u1", Some("j")));
        view.pod(pod("b", "u2", None));
        view.node(Delta::Listed);
        assert!(!view.has_listed());
        view.pod(Delta::Listed);
        assert!(view.has_listed());
        told(&mut view);
        view.begin();
        assert!(!view.has_listed());
        assert_eq!(
            told(&mut view),
            "?j",
            "nothing is forgotten while the member is away"
        );
        view.pod(pod("b", "u2", None));
        view.pod(Delta::Listed);
        view.node(node("n2", "8"));
        view.node(Delta::Listed);
        assert_eq!(told(&mut view), "-u1, -n1");
        assert_eq!(view.counts(), (1, 1));
    }
}
