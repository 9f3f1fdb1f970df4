//! The scheduler's own view of the members: capacity of their nodes, and the clusters' facts.
//!
//! It gets the same events from [`members`] as the engine, and is kept apart from it: a plan must not be
//! checked on the data that it was made from. The pods of a plan that was carried out stay assumed here
//! until they are bound, the job is forgotten, or the time in which pods appear is over.

use crds::node_health::{NodeAvoidance, NodeHealth};
use engine::capacity::{Capacity, PoolSummary};
use engine::facts::{ClusterFact, Demand, Share};
use engine::{Blocker, ClusterName, Event, JobKey, NodeName, PoolClass};
use members::MemberEvent;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// How long pods that do not appear stay assumed: as long as a slow member may take to show them, and well
/// below the engine's start deadline. The engine assumes them for that whole deadline; if this time were
/// longer, valid plans would be refused.
const HELD_FOR: Duration = Duration::from_secs(120);

/// The view. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Live {
    inner: Arc<Mutex<LiveView>>,
}

#[derive(Debug, Default)]
struct LiveView {
    room: Capacity,
    clusters: BTreeMap<ClusterName, ClusterFact>,
    listed: BTreeSet<ClusterName>,
    ready: bool,
    held_since: HashMap<JobKey, Instant>,
    /// Nodes with the taint of avoided nodes, and why, if Muster put it there.
    avoided: BTreeMap<ClusterName, BTreeMap<NodeName, NodeAvoidance>>,
    /// Counts changes, so that readers notice new data.
    version: u64,
}

/// Input of GpuPools.
#[derive(Debug, Clone)]
pub(crate) struct LivePools {
    /// Changes whenever other data may have.
    pub(crate) version: u64,
    /// True if it has every member that existed at the start.
    pub(crate) ready: bool,
    pub(crate) pools: Vec<PoolSummary>,
    /// The nodes of each pool that are avoided.
    pub(crate) avoided: BTreeMap<(ClusterName, PoolClass), BTreeMap<NodeName, NodeAvoidance>>,
    /// The clusters, and whether their nodes have all been sent.
    pub(crate) clusters: BTreeMap<ClusterName, bool>,
}

/// Why a share is not possible on the present view.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Objection {
    /// The cluster does not exist.
    NoCluster,
    /// The cluster is not usable.
    Unusable(String),
    /// The cluster does not serve the kind.
    NoApi(String),
    /// Its nodes have too little capacity.
    NoRoom(Blocker),
}

impl Live {
    /// Applies `events` until they end.
    pub(crate) async fn follow(self, mut events: mpsc::Receiver<MemberEvent>) {
        while let Some(event) = events.recv().await {
            self.apply(event);
        }
    }

    pub(crate) fn apply(&self, event: MemberEvent) {
        let mut view = self.inner.lock();
        view.version += 1;
        match event {
            MemberEvent::Fact(event) => view.fact(event),
            MemberEvent::NodeHealth {
                cluster,
                node,
                health,
            } => view.node_health(cluster, node, &health),
            MemberEvent::Listed { cluster } => {
                view.listed.insert(cluster);
            }
            MemberEvent::Marks { .. } | MemberEvent::Rules { .. } => {}
            MemberEvent::Ready => view.ready = true,
        }
    }

    /// Returns true if every member that existed at the start has been sent.
    pub(crate) fn is_ready(&self) -> bool {
        self.inner.lock().ready
    }

    /// Returns the clusters' facts.
    pub(crate) fn clusters(&self) -> BTreeMap<ClusterName, ClusterFact> {
        self.inner.lock().clusters.clone()
    }

    /// Assumes the pods of `shares` if each share is possible on the present view. Otherwise returns the first
    /// that is not, and assumes nothing.
    pub(crate) fn assume(
        &self,
        key: &JobKey,
        demand: &Demand,
        shares: &[Share],
    ) -> Result<(), (ClusterName, Objection)> {
        let mut view = self.inner.lock();
        view.drop_expired();
        for share in shares {
            let object = |objection| (share.cluster.clone(), objection);
            view.check_share(demand, share).map_err(object)?;
            let room = view.room.check(key, demand, share);
            room.map_err(|blocker| object(Objection::NoRoom(blocker)))?;
        }
        view.room.assume(key, demand, shares);
        view.held_since.insert(key.clone(), Instant::now());
        view.version += 1;
        Ok(())
    }

    /// Drops the assumed pods of `key`.
    pub(crate) fn forget(&self, key: &JobKey) {
        let mut view = self.inner.lock();
        if view.held_since.remove(key).is_some() {
            view.room.forget(key);
            view.version += 1;
        }
    }

    /// Returns the input of GpuPools, if it has changed since `version`.
    pub(crate) fn pools_since(&self, version: Option<u64>) -> Option<LivePools> {
        let mut view = self.inner.lock();
        view.drop_expired();
        let view = &*view;
        if version == Some(view.version) {
            return None;
        }
        let listed = |name: &ClusterName| (name.clone(), view.listed.contains(name));
        Some(LivePools {
            version: view.version,
            ready: view.ready,
            pools: view.room.pools(),
            avoided: view.avoided_by_pool(),
            clusters: view.clusters.keys().map(listed).collect(),
        })
    }
}

impl LiveView {
    fn fact(&mut self, event: Event) {
        match event {
            Event::ClusterUpserted(fact) => {
                self.clusters.insert(fact.name.clone(), fact);
            }
            Event::ClusterGone(name) => {
                self.clusters.remove(&name);
                self.listed.remove(&name);
                self.avoided.remove(&name);
                self.room.remove_cluster(&name);
            }
            Event::NodeUpserted(fact) => self.room.upsert_node(fact),
            Event::NodeGone(cluster, node) => {
                if let Some(avoided) = self.avoided.get_mut(&cluster) {
                    avoided.remove(&node);
                }
                self.room.remove_node(&cluster, &node);
            }
            Event::PodUpserted(fact) => self.room.upsert_pod(fact),
            Event::PodGone(cluster, uid) => self.room.remove_pod(&cluster, &uid),
            // They use nothing.
            Event::PodsEnded { .. } => {}
            // They never decide whether a pod fits.
            Event::NodeImages(_) => {}
            other => tracing::error!(?other, "not a fact about a member; ignored"),
        }
        // Only the engine recovers jobs: here they would add up.
        self.room.take_pods_changed();
    }

    fn node_health(&mut self, cluster: ClusterName, node: NodeName, health: &NodeHealth) {
        let avoided = self.avoided.entry(cluster).or_default();
        if health.is_avoided {
            avoided.insert(node, health.avoidance.clone().unwrap_or_default());
        } else {
            avoided.remove(&node);
        }
    }

    fn avoided_by_pool(
        &self,
    ) -> BTreeMap<(ClusterName, PoolClass), BTreeMap<NodeName, NodeAvoidance>> {
        let mut by_pool = BTreeMap::<_, BTreeMap<_, _>>::new();
        for (cluster, nodes) in &self.avoided {
            for (node, avoidance) in nodes {
                if let Some(class) = self.room.class_of(cluster, node) {
                    let pool = by_pool.entry((cluster.clone(), class.clone())).or_default();
                    pool.insert(node.clone(), avoidance.clone());
                }
            }
        }
        by_pool
    }

    /// Checks the cluster of `share`, except for its capacity.
    fn check_share(&self, demand: &Demand, share: &Share) -> Result<(), Objection> {
        let cluster = self
            .clusters
            .get(&share.cluster)
            .ok_or(Objection::NoCluster)?;
        if !cluster.usable {
            return Err(Objection::Unusable(cluster.unusable_because.clone()));
        }
        let api = &demand.placement.api;
        match &cluster.apis {
            Some(apis) if !apis.contains(api) => Err(Objection::NoApi(api.clone())),
            _ => Ok(()),
        }
    }

    fn drop_expired(&mut self) {
        let old = self
            .held_since
            .extract_if(|_, since| since.elapsed() > HELD_FOR);
        for (key, _) in old {
            self.room.forget(&key);
            self.version += 1;
        }
    }
}
