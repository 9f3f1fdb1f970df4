//! The engine: jobs, queues and room together, changed by events, asked for decisions.
//!
//! `apply` records a fact and brings what is derived of the touched job, queue or node up to
//! date; `decide` moves what can move. A job is charged from the moment its release is decided
//! until its end is confirmed, so that stale facts make the engine careful, never generous.
//! Waiting jobs of equal demand stand in line as one group, which sleeps until something it
//! waits for changes: deciding must never scan all that is queued.

use crate::amounts::resources::Resources;
use crate::api::facts::{ClusterFact, Leaving};
use crate::api::ids::{ClusterName, JobKey, QueueName, Time};
use crate::capacity::PoolSummary;
use crate::capacity::store::Capacity;
use crate::config::EngineConfig;
use crate::forecast::Forecast;
use crate::jobs::job::JobView;
use crate::jobs::store::Jobs;
use crate::pending::store::Pending;
use crate::quota::Quota;
use crate::reservation::store::Reservations;
use std::collections::{BTreeMap, BTreeSet};

/// What may look different than before, for whoever writes status.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Changed {
    /// Jobs whose state or reason may have changed. Of many jobs that are blocked alike, those
    /// that stand first; the others are not named each time something moves.
    pub jobs: BTreeSet<JobKey>,
    /// Quota whose usage, counts or head may have changed.
    pub queues: BTreeSet<QueueName>,
}

/// The decision core. Same events, same decisions, byte for byte.
#[derive(Debug, Clone)]
pub struct Engine {
    pub(crate) config: EngineConfig,
    /// The latest time that was observed.
    pub(crate) now: Time,
    pub(crate) quota: Quota,
    pub(crate) capacity: Capacity,
    pub(crate) pending: Pending,
    pub(crate) reservations: Reservations,
    pub(crate) jobs: Jobs,
    pub(crate) forecast: Forecast,
    pub(crate) changed: Changed,
}

impl Engine {
    /// An engine that knows nothing yet.
    #[must_use]
    pub fn new(config: EngineConfig) -> Self {
        Self {
            config,
            now: Time::default(),
            quota: Quota::default(),
            capacity: Capacity::default(),
            pending: Pending::default(),
            reservations: Reservations::default(),
            jobs: Jobs::default(),
            forecast: Forecast::default(),
            changed: Changed::default(),
        }
    }

    /// What it was told of a cluster.
    #[must_use]
    pub fn cluster(&self, name: &ClusterName) -> Option<&ClusterFact> {
        self.capacity.clusters.get(name)
    }

    /// Names of the clusters that it has been told of, in order.
    pub fn cluster_names(&self) -> impl Iterator<Item = &ClusterName> {
        self.capacity.clusters.keys()
    }

    /// Every queue that exists or has jobs, in order of name.
    pub fn queues(&self) -> impl Iterator<Item = &QueueName> {
        self.quota.listed()
    }

    /// A job as the engine sees it.
    #[must_use]
    pub fn job(&self, key: &JobKey) -> Option<JobView<'_>> {
        let job = self.jobs.get(key)?;
        Some(job.view(self.jobs.priority_of(job).unwrap_or_default()))
    }

    /// Pods of a released job that were told to go, and are charged until they are seen gone.
    #[must_use]
    pub fn leaving(&self, key: &JobKey) -> &[Leaving] {
        let released = self.jobs.released(key);
        released.map_or(&[], |released| &released.leaving)
    }

    /// What a released job is charged beyond its admission, by cluster.
    #[must_use]
    pub fn excess(&self, key: &JobKey) -> Option<&BTreeMap<ClusterName, Resources>> {
        Some(&self.jobs.released(key)?.excess)
    }

    /// What the pods of a job in a cluster request that have not ended, as the member shows them.
    #[must_use]
    pub fn requested_by_pods(&self, key: &JobKey, cluster: &ClusterName) -> Resources {
        self.capacity.room.requested(key, cluster)
    }

    /// What may look different since the last call.
    pub fn take_changed(&mut self) -> Changed {
        std::mem::take(&mut self.changed)
    }

    /// Every pool of every member, in order of cluster and class.
    #[must_use]
    pub fn pools(&self) -> Vec<PoolSummary> {
        self.capacity.room.pools()
    }
}
