//! The scheduler's own view of the members: room on their nodes, and the clusters' facts.
//!
//! It is fed by [`members`] as the engine is, and kept apart from it: what a plan is
//! checked on must not be what the plan was made from. Plans that were carried out hold their
//! room here until their pods are bound, the job is forgotten, or the time in which pods come
//! has passed.

use engine::capacity::{PoolSummary, Room};
use engine::facts::{ClusterFact, Demand, Share};
use engine::{Blocker, ClusterName, Event, JobKey};
use members::MemberEvent;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// How long room is held for pods that do not come: as long as a slow member may take to show
/// them, and well below the engine's start deadline. The engine holds room for the whole of
/// that; what is held here must never outlast it, or plans that stand would be refused.
const HELD_FOR: Duration = Duration::from_secs(120);

/// The view. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Live {
    inner: Arc<Mutex<LiveView>>,
}

#[derive(Debug, Default)]
struct LiveView {
    room: Room,
    clusters: BTreeMap<ClusterName, ClusterFact>,
    listed: BTreeSet<ClusterName>,
    ready: bool,
    held_since: HashMap<JobKey, Instant>,
    /// Counts changes, so that readers can tell whether anything is new.
    version: u64,
}

/// What GpuPools are made from.
#[derive(Debug, Clone)]
pub(crate) struct LivePools {
    /// Changes whenever anything else may have.
    pub(crate) version: u64,
    /// Whether every member there was at start is in it.
    pub(crate) ready: bool,
    pub(crate) pools: Vec<PoolSummary>,
    /// The clusters there are, and whether their nodes have all been told.
    pub(crate) clusters: BTreeMap<ClusterName, bool>,
}

/// Why a share does not stand on what is seen now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Objection {
    /// The cluster is not there.
    NoCluster,
    /// It is not to be used.
    Unusable(String),
    /// It does not serve the kind.
    NoApi(String),
    /// Its nodes have too little room.
    NoRoom(Blocker),
}

impl Live {
    /// Takes in what `events` tell, until they end.
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
            MemberEvent::Listed { cluster } => {
                view.listed.insert(cluster);
            }
            MemberEvent::Ready => view.ready = true,
        }
    }

    /// Whether every member there was at start has been told.
    pub(crate) fn is_ready(&self) -> bool {
        self.inner.lock().ready
    }

    /// The clusters' facts.
    pub(crate) fn clusters(&self) -> BTreeMap<ClusterName, ClusterFact> {
        self.inner.lock().clusters.clone()
    }

    /// Holds room for `shares`, if each of them stands on what is seen now; else the first
    /// that does not, and nothing more is held.
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
            view.stands(demand, share).map_err(object)?;
            let room = view.room.check(key, demand, share);
            room.map_err(|blocker| object(Objection::NoRoom(blocker)))?;
        }
        view.room.assume(key, demand, shares);
        view.held_since.insert(key.clone(), Instant::now());
        view.version += 1;
        Ok(())
    }

    /// Gives back what is held for `key`.
    pub(crate) fn forget(&self, key: &JobKey) {
        let mut view = self.inner.lock();
        if view.held_since.remove(key).is_some() {
            view.room.forget(key);
            view.version += 1;
        }
    }

    /// What GpuPools are made from, if anything is new since `version`.
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
                self.room.remove_cluster(&name);
            }
            Event::NodeUpserted(fact) => self.room.upsert_node(fact),
            Event::NodeGone(cluster, node) => self.room.remove_node(&cluster, &node),
            Event::PodUpserted(fact) => self.room.upsert_pod(fact),
            Event::PodGone(cluster, uid) => self.room.remove_pod(&cluster, &uid),
            other => tracing::error!(?other, "not a fact about a member; ignored"),
        }
    }

    /// Whether the cluster of `share` is one to place on, its room aside.
    fn stands(&self, demand: &Demand, share: &Share) -> Result<(), Objection> {
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
