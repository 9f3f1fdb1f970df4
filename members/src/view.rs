//! The live view of one member: the reports of its watches, as facts for the engine.
//!
//! ```text
//! nodes, pods (deltas) ──────┐
//! devices, claims of devices ├─► View ─► events, only where a fact changed
//! answers of climbs ─────────┘    └────► owners to climb from, once each
//! ```
//!
//! Of owners with very many ended pods only the number of these is kept (`ended`).
//!
//! Devices are resources of their nodes, and claims of devices are part of the requests of pods; the view
//! combines both into facts.
//!
//! A view outlives its connection: while a member is away its nodes and pods stay, and objects that were
//! deleted meanwhile are found when the next connection has listed. Pure.

mod claims;
mod ended;

use super::devices::Devices;
use super::member_rules::KnownRules;
use crate::matching::{Belongs, Owner, belongs};
use crds::kubernetes::{Node, Pod, pool_class};
use crds::node_health::NodeHealth;
use ended::EndedPods;
use facts::{
    Amount, ClusterName, Event, JobKey, NodeFact, NodeImages, NodeName, PodFact, ResourceName, Uid,
};
use kube::core::{Selector, SelectorExt as _};
use runtime::watch::{Delta, ObjectKey};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};

/// The part of a pod that concerns capacity. The task of the watch builds it, so that the object itself is
/// never kept.
#[derive(Debug, Clone)]
pub(crate) struct SeenPod {
    key: ObjectKey,
    /// The fact, without its job and the devices that it has claimed.
    fact: PodFact,
    belongs: Belongs,
    /// True if it is not charged should it belong to no job.
    uncharged: bool,
    /// Its claims of devices; `None` for one that does not exist yet.
    claims: Vec<Option<ObjectKey>>,
}

impl SeenPod {
    pub(crate) fn new(cluster: &ClusterName, pod: &Pod, uncharged: Option<&Selector>) -> Self {
        let labels = pod.metadata.labels.as_ref();
        let uncharged = uncharged.filter(|these| these.matches(labels.unwrap_or(&BTreeMap::new())));
        let key = ObjectKey::of(pod);
        let fact = pod.to_fact(cluster, None).unwrap_or_else(|error| {
            tracing::warn!(%cluster, pod = %key, %error, "its request cannot be read; counted as one pod");
            unread(cluster, pod)
        });
        let claim = |name: &str| ObjectKey {
            namespace: pod.metadata.namespace.clone(),
            name: name.to_owned(),
        };
        Self {
            key,
            fact,
            belongs: belongs(&pod.metadata),
            uncharged: uncharged.is_some(),
            claims: pod.claim_names().map(|name| name.map(claim)).collect(),
        }
    }
}

impl SeenPod {
    /// Returns the key that it is charged for, by the `answer` of the climb from its owner.
    fn job_by(&self, answer: Option<JobKey>) -> Option<JobKey> {
        let of_namespace = || {
            let namespace = self.key.namespace.as_deref().unwrap_or_default();
            (!self.uncharged).then(|| JobKey::of_namespace(namespace))
        };
        answer.or_else(of_namespace)
    }
}

/// Returns the fact of a pod whose request is unknown.
fn unread(cluster: &ClusterName, pod: &Pod) -> PodFact {
    PodFact {
        cluster: cluster.clone(),
        uid: Uid::new(pod.metadata.uid.as_deref().unwrap_or_default()),
        node: pod.spec.node_name.as_ref().map(NodeName::new),
        request: [(ResourceName::new(ResourceName::PODS), Amount(1))]
            .into_iter()
            .collect(),
        job: None,
        phase: pod.phase(),
        symptom: pod.symptom().map(Box::new),
        grace_s: pod.grace_s(),
    }
}

/// The part of a node that concerns capacity, and its health beyond that.
#[derive(Debug, Clone)]
pub(crate) struct SeenNode {
    fact: NodeFact,
    health: NodeHealth,
    images: Vec<String>,
}

/// Converts `delta` of a node.
pub(crate) fn node_delta(cluster: &ClusterName, delta: Delta<Node>) -> Delta<SeenNode> {
    delta.map(|node| SeenNode {
        fact: node.to_fact(cluster),
        health: node.to_health(),
        images: node.status.images,
    })
}

/// Converts `delta` of a pod. Pods of no job that match `uncharged` are not charged.
pub(crate) fn pod_delta(
    cluster: &ClusterName,
    delta: Delta<Pod>,
    uncharged: Option<&Selector>,
) -> Delta<SeenPod> {
    delta.map(|pod| SeenPod::new(cluster, &pod, uncharged))
}

/// What is known of an owner.
#[derive(Debug)]
struct OwnerEntry {
    owner: Owner,
    /// True if the climb from it was requested.
    asked: bool,
    /// Its pods.
    pods: HashSet<Uid>,
    /// How many of them have ended.
    ended: usize,
    /// The result of the climb from it: a job, or `Some(None)` if the topmost owner belongs to none. `None`
    /// while unknown.
    answer: Option<Option<JobKey>>,
}

/// A node as seen, and as last sent.
#[derive(Debug)]
struct KnownNode {
    seen: NodeFact,
    sent: Option<NodeFact>,
    health: NodeHealth,
    /// Its health with that of its devices, as last sent.
    told: NodeHealth,
    /// The hash of its images as last sent, 0 for none: 50 names for each of 10,000 nodes would take much memory.
    images: u64,
}

/// A pod as seen, with its job, and as last sent.
#[derive(Debug)]
struct KnownPod {
    seen: SeenPod,
    sent: Option<PodFact>,
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct MemberView {
    cluster: ClusterName,
    nodes: BTreeMap<String, KnownNode>,
    pods: HashMap<Uid, KnownPod>,
    devices: Devices,
    /// What the member applies to pods before it stores them.
    pub(crate) rules: KnownRules,
    /// The facts last sent for claims without a known pod: they hold devices nevertheless.
    loose: BTreeMap<ObjectKey, Vec<PodFact>>,
    /// Pods that count as unbound until the allocations of these claims have been seen.
    waiting: BTreeMap<ObjectKey, BTreeSet<Uid>>,
    pod_uids: HashMap<ObjectKey, Uid>,
    owners: HashMap<String, OwnerEntry>,
    /// Ended pods of which only the number is kept, by the UIDs of their owners.
    ended: HashMap<String, EndedPods>,
    /// Of the names of such pods, and of images.
    hasher: RandomState,
    /// Nodes from an earlier connection that have not been seen over the present one.
    unseen_nodes: HashSet<String>,
    unseen_pods: HashSet<ObjectKey>,
    nodes_listed: bool,
    pods_listed: bool,
    events: Vec<Event>,
    /// Changed healths of nodes.
    healths: Vec<(NodeName, NodeHealth)>,
    asks: Vec<Owner>,
}

impl MemberView {
    /// Creates the empty view of a member.
    pub(crate) fn new(cluster: ClusterName) -> Self {
        Self {
            cluster,
            nodes: BTreeMap::new(),
            pods: HashMap::new(),
            devices: Devices::default(),
            rules: KnownRules::default(),
            loose: BTreeMap::new(),
            waiting: BTreeMap::new(),
            pod_uids: HashMap::new(),
            owners: HashMap::new(),
            ended: HashMap::new(),
            hasher: RandomState::new(),
            unseen_nodes: HashSet::new(),
            unseen_pods: HashSet::new(),
            nodes_listed: false,
            pods_listed: false,
            events: Vec::new(),
            healths: Vec::new(),
            asks: Vec::new(),
        }
    }

    /// Starts to list over a new connection. Climbs that the old one has not ended are requested again.
    pub(crate) fn begin(&mut self) {
        self.nodes_listed = false;
        self.pods_listed = false;
        self.devices.begin();
        self.rules.begin();
        self.unseen_nodes = self.nodes.keys().cloned().collect();
        self.unseen_pods = self.pod_uids.keys().cloned().collect();
        self.ended.values_mut().for_each(EndedPods::begin);
        let open = self.owners.values();
        let open = open.filter(|entry| entry.asked && entry.answer.is_none());
        self.asks = open.map(|entry| entry.owner.clone()).collect();
    }

    /// Returns true if nodes and pods have listed over the present connection.
    pub(crate) fn has_listed(&self) -> bool {
        self.nodes_listed && self.pods_listed
    }

    /// Returns true if devices, classes and claims have listed over the present connection.
    pub(crate) fn devices_have_listed(&self) -> bool {
        self.devices.has_listed()
    }

    /// Returns the numbers of known nodes and pods.
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.nodes.len(), self.pods.len())
    }

    /// Returns the changes since the last call, and the owners to climb from.
    pub(crate) fn take(&mut self) -> (Vec<Event>, Vec<Owner>) {
        (
            std::mem::take(&mut self.events),
            std::mem::take(&mut self.asks),
        )
    }

    /// Returns the healths of nodes that have changed since the last call. A node is healthy until it is said
    /// not to be, and after it is gone.
    pub(crate) fn take_healths(&mut self) -> Vec<(NodeName, NodeHealth)> {
        std::mem::take(&mut self.healths)
    }

    /// Applies a delta of a node.
    pub(crate) fn node(&mut self, delta: Delta<SeenNode>) {
        match delta {
            Delta::Upserted(node) => {
                let SeenNode {
                    fact,
                    health,
                    images,
                } = node;
                let name = fact.name.as_str().to_owned();
                self.unseen_nodes.remove(&name);
                let before = self.nodes.remove(&name);
                let (sent, told, hash) = before.map_or_else(Default::default, |known| {
                    (known.sent, known.told, known.images)
                });
                let known = KnownNode {
                    seen: fact,
                    sent,
                    health,
                    told,
                    images: hash,
                };
                self.nodes.insert(name.clone(), known);
                self.emit_node(&name);
                self.emit_images(&name, images);
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
        if let Some(known) = self.nodes.remove(name) {
            let NodeFact { cluster, name, .. } = known.seen;
            self.events.push(Event::NodeGone(cluster, name));
        }
    }

    /// Sends a node with its devices, and its health with theirs, if that has changed.
    fn emit_node(&mut self, name: &str) {
        let Some(known) = self.nodes.get_mut(name) else {
            return;
        };
        let mut health = known.health.clone();
        health
            .conditions
            .extend_from_slice(self.devices.taints_of(name));
        if health != known.told {
            known.told = health.clone();
            self.healths.push((known.seen.name.clone(), health));
        }
        let mut fact = known.seen.clone();
        if let Some(devices) = self.devices.of_node(name) {
            for (class, count) in devices.iter() {
                fact.allocatable.set(class.clone(), count);
            }
            fact.class = pool_class(&fact.labels, &fact.allocatable);
        }
        if known.sent.as_ref() != Some(&fact) {
            known.sent = Some(fact.clone());
            self.events.push(Event::NodeUpserted(fact));
        }
    }

    /// Sends the images of a node if they have changed. Their order does not matter to the engine, and is the same
    /// each time.
    fn emit_images(&mut self, name: &str, images: Vec<String>) {
        let Some(known) = self.nodes.get_mut(name) else {
            return;
        };
        let hash = match images.is_empty() {
            true => 0,
            false => self.hasher.hash_one(&images).max(1),
        };
        if known.images != hash {
            known.images = hash;
            self.events.push(Event::NodeImages(NodeImages {
                cluster: self.cluster.clone(),
                node: known.seen.name.clone(),
                images,
            }));
        }
    }

    /// Applies a delta of a pod.
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
                self.ended_listed();
                self.pods_listed = true;
            }
        }
    }

    fn pod_upserted(&mut self, mut pod: SeenPod) {
        if pod.fact.ended() && matches!(pod.belongs, Belongs::Namespace(_) | Belongs::Nobody) {
            // It uses nothing, and no job needs to know how it ended.
            return self.pod_gone(&pod.key);
        }
        if self.is_counted(&pod) {
            return;
        }
        let uid = pod.fact.uid.clone();
        if self
            .pod_uids
            .get(&pod.key)
            .is_some_and(|known| *known != uid)
        {
            self.pod_gone(&pod.key.clone());
        }
        let before = self.pods.get(&uid);
        let is_new = before.is_none_or(|known| known.sent.is_none());
        if is_new && self.has_many_ended(&pod) {
            return self.count_ended(&pod);
        }
        self.note_ended(&uid, &pod);
        pod.fact.job = self.job_of(&uid, &pod);
        self.pod_uids.insert(pod.key.clone(), uid.clone());
        let sent = self.pods.remove(&uid).and_then(|known| known.sent);
        let folds = self.has_many_ended(&pod);
        self.pods.insert(uid.clone(), KnownPod { seen: pod, sent });
        self.emit_pod(&uid);
        if is_new {
            self.emit_claims_of(&uid);
        }
        if folds && let Some(known) = self.pods.get(&uid) {
            let pod = known.seen.clone();
            self.count_ended(&pod);
            self.pod_gone(&pod.key);
        }
    }

    /// Returns the job of the pod `uid`: from the climb, or else the likely one. A member may have thousands of
    /// owners all of whose pods have `ended`, so there is no climb for these: they use nothing.
    fn job_of(&mut self, uid: &Uid, pod: &SeenPod) -> Option<JobKey> {
        let (owner, likely) = match &pod.belongs {
            Belongs::Applied(key) => return Some(key.clone()),
            Belongs::Namespace(key) => return (!pod.uncharged).then(|| key.clone()),
            Belongs::Nobody => return None,
            Belongs::Owned { owner, likely } => (owner, likely),
        };
        let entry = self.owner_entry(owner);
        let asks = !pod.fact.ended() && !entry.asked;
        entry.asked |= asks;
        entry.pods.insert(uid.clone());
        let answer = entry.answer.clone();
        if asks {
            self.asks.push(owner.clone());
        }
        match answer {
            Some(answer) => pod.job_by(answer),
            None => Some(likely.clone()),
        }
    }

    fn owner_entry(&mut self, owner: &Owner) -> &mut OwnerEntry {
        let entry = self.owners.entry(owner.uid.clone());
        entry.or_insert_with(|| OwnerEntry {
            owner: owner.clone(),
            asked: false,
            pods: HashSet::new(),
            ended: 0,
            answer: None,
        })
    }

    fn pod_gone(&mut self, key: &ObjectKey) {
        let Some(uid) = self.pod_uids.remove(key) else {
            return self.counted_gone(key);
        };
        let gone = self.pods.remove(&uid).map(|known| known.seen);
        self.stop_waiting(&uid, gone.as_ref());
        if let Some(pod) = &gone
            && let Belongs::Owned { owner, .. } = &pod.belongs
        {
            let is_last = self.owners.get_mut(&owner.uid).is_some_and(|entry| {
                if entry.pods.remove(&uid) && pod.fact.ended() {
                    entry.ended = entry.ended.saturating_sub(1);
                }
                entry.pods.is_empty()
            });
            if is_last && !self.ended.contains_key(&owner.uid) {
                self.owners.remove(&owner.uid);
            }
        }
        self.events
            .push(Event::PodGone(self.cluster.clone(), uid.clone()));
        self.emit_claims_of(&uid);
    }

    /// Applies the result of the climb from the owner `uid`.
    pub(crate) fn owner_known(&mut self, uid: &str, job: Option<JobKey>) {
        let Some(entry) = self.owners.get_mut(uid) else {
            return;
        };
        // The order of the hash map affects only the order of events of different pods.
        for uid in &entry.pods {
            let Some(pod) = self.pods.get_mut(uid) else {
                continue;
            };
            let job = pod.seen.job_by(job.clone());
            pod.seen.fact.job.clone_from(&job);
            if let Some(sent) = pod.sent.as_mut().filter(|sent| sent.job != job) {
                sent.job = job;
                self.events.push(Event::PodUpserted(sent.clone()));
            }
        }
        entry.answer = Some(job);
        self.emit_ended(uid);
    }
}

#[cfg(test)]
mod tests;
