//! The engine's public calls: events in, decisions out, and what it tells of its state.
//!
//! `apply` records a fact and brings what is derived of the touched job, queue or node up to date;
//! `decide` moves what can move. A job is charged from the moment its admission is decided until
//! its end is confirmed, so that stale facts make the engine careful, never generous. Pending jobs
//! of equal demand are one class, which sleeps until something it waits for changes: deciding must
//! never scan all that is queued.

use crate::amounts::resources::Resources;
use crate::api::decision::{Decisions, Explanation, Help, QueueUsage, Reserved};
use crate::api::demand::ClusterPlacement;
use crate::api::event::Event;
use crate::api::facts::{ClusterFact, Leaving};
use crate::api::ids::{ClusterName, JobKey, QueueName, Time};
use crate::audit::snapshot::Snapshot;
use crate::audit::{invariants, snapshot};
use crate::capacity::PoolSummary;
use crate::config::EngineConfig;
use crate::cycle::{decide, events};
use crate::jobs::job::JobView;
use crate::placement::eligible;
use crate::report::{advise, explain, usage};
use crate::state::{Changed, Engine};
use std::collections::BTreeMap;

impl Engine {
    /// What it was told of a cluster.
    #[must_use]
    pub fn cluster(&self, name: &ClusterName) -> Option<&ClusterFact> {
        self.capacity.cluster_fact(name)
    }

    /// Names of the clusters that it has been told of, in order.
    pub fn cluster_names(&self) -> impl Iterator<Item = &ClusterName> {
        self.capacity.cluster_names()
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
        self.capacity.requested(key, cluster)
    }

    /// Takes in what became known. Costs what the touched object costs, however much is queued.
    pub fn apply(&mut self, event: Event) {
        events::apply(self, event);
    }

    /// Decides all that can be decided at `now`, up to the budget. A time before one that it has
    /// seen already counts as that one.
    pub fn decide(&mut self, now: Time) -> Decisions {
        decide::decide(self, now)
    }

    /// An engine that goes on where the snapshot was taken.
    #[must_use]
    pub fn restore(snapshot: Snapshot, config: EngineConfig) -> Self {
        snapshot::restore(snapshot, config)
    }

    /// What may look different since the last call.
    pub fn take_changed(&mut self) -> Changed {
        std::mem::take(&mut self.changed)
    }

    /// Every pool of every member, in order of cluster and class.
    #[must_use]
    pub fn pools(&self) -> Vec<PoolSummary> {
        self.capacity.pools()
    }

    /// The clusters that `placement` selects now: of its first group that has any, all that
    /// are usable, serve the kind and are tolerated. For what is placed without being queued.
    #[must_use]
    pub fn eligible_clusters(&self, placement: &ClusterPlacement) -> Vec<ClusterName> {
        eligible::eligible_clusters(self.inputs(), placement)
    }

    /// Where a job stands, and why; `None` for one that is not known. Also for admitted jobs.
    #[must_use]
    pub fn explain(&self, key: &JobKey) -> Option<Explanation> {
        explain::explain(self.inputs(), key)
    }

    /// The smallest changes with which a pending job would start now; none where nothing stops it,
    /// or where neither quota nor capacity does. Other queues are named only where `may_use` says
    /// that the job may be submitted to them.
    #[must_use]
    pub fn advise(&self, key: &JobKey, may_use: &dyn Fn(&QueueName) -> bool) -> Vec<Help> {
        advise::advise(self.inputs(), key, may_use)
    }

    /// Whether something is charged to a queue or to one below it.
    #[must_use]
    pub fn is_charged(&self, queue: &QueueName) -> bool {
        usage::is_charged(self.inputs(), queue)
    }

    /// The queues from the top down to `queue`, the root left out: those that are charged for what
    /// runs in it.
    #[must_use]
    pub fn queue_path(&self, queue: &QueueName) -> Vec<QueueName> {
        usage::queue_path(self.inputs(), queue)
    }

    /// Usage, demand and limits of a queue; `None` for one that neither exists nor has jobs.
    #[must_use]
    pub fn queue_usage(&self, queue: &QueueName) -> Option<QueueUsage> {
        usage::queue_usage(self.inputs(), queue)
    }

    /// How a bound is exceeded, of the queue that an admitted job is charged to or of one above it,
    /// in a resource that the job has; `None` if none is.
    #[must_use]
    pub fn bound_passed_by(&self, key: &JobKey) -> Option<String> {
        usage::bound_passed_by(self.inputs(), key)
    }

    /// How many of a queue's own pending jobs have a reservation, by what is reserved.
    #[must_use]
    pub fn reserved(&self, queue: &QueueName) -> Reserved {
        usage::reserved(self.inputs(), queue)
    }

    /// All that it knows, to rebuild an equal engine with [`Engine::restore`].
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        snapshot::snapshot(self.inputs())
    }

    /// What is not as it should be, in words; nothing when all is right. For tests: it costs as
    /// much as rebuilding the engine.
    #[must_use]
    pub fn check_invariants(&self) -> Vec<String> {
        invariants::check_invariants(self.inputs())
    }
}
