//! The engine: jobs, queues and room together, changed by events, asked for decisions.
//!
//! `apply` records a fact and brings what is derived of the touched job, queue or node up to
//! date; `decide` moves what can move. A job is charged from the moment its release is decided
//! until its end is confirmed, so that stale facts make the engine careful, never generous.
//! Waiting jobs of equal demand stand in line as one group, which sleeps until something it
//! waits for changes: deciding must never scan all that is queued.

use crate::amounts::hashed::Hashed;
use crate::api::facts::{ClusterFact, PriorityClassFact};
use crate::api::ids::{ClusterName, JobKey, QueueName, Time};
use crate::capacity::completion_grace::CompletionGrace;
use crate::capacity::{PoolSummary, Room};
use crate::config::EngineConfig;
use crate::forecast::predict::History;
use crate::jobs::job::Job;
use crate::jobs::job::JobView;
use crate::jobs::names::Names;
use crate::pending::head_selector::HeadSelector;
use crate::pending::infeasible::FreedNodes;
use crate::pending::shapes::Shapes;
use crate::pending::store::Pending;
use crate::placement::eligible::Eligibility;
use crate::preemption::backoff::PreemptionBackoff;
use crate::preemption::preemptible_index::PreemptibleIndex;
use crate::quota::queues::Queues;
use crate::reservation::store::Reservations;
use std::collections::{BTreeMap, BTreeSet};

/// What may look different than before, for whoever writes status.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Changed {
    /// Jobs whose state or reason may have changed. Of many jobs that are blocked alike, those
    /// that stand first; the others are not named each time something moves.
    pub jobs: BTreeSet<JobKey>,
    /// Queues whose usage, counts or head may have changed.
    pub queues: BTreeSet<QueueName>,
}

/// The decision core. Same events, same decisions, byte for byte.
#[derive(Debug, Clone)]
pub struct Engine {
    pub(crate) config: EngineConfig,
    /// The latest time that was told.
    pub(crate) now: Time,
    pub(crate) room: Room,
    pub(crate) clusters: BTreeMap<ClusterName, ClusterFact>,
    pub(crate) eligibility: Eligibility,
    pub(crate) classes: BTreeMap<String, PriorityClassFact>,
    pub(crate) queues: Queues,
    /// Boxed, so that the map's free places stay small.
    pub(crate) jobs: Hashed<JobKey, Box<Job>>,
    /// What many jobs are named by.
    pub(crate) names: Names,
    pub(crate) shapes: Shapes,
    pub(crate) pending: Pending,
    pub(crate) reservations: Reservations,
    /// Nodes of which more became free since all that is open was judged.
    pub(crate) freed: FreedNodes,
    pub(crate) head_selector: HeadSelector,
    /// When to look at a job again although no event came.
    pub(crate) timers: BTreeSet<(Time, JobKey)>,
    /// Until when what is expected of the end of each charged job holds.
    pub(crate) ends: BTreeSet<(Time, JobKey)>,
    /// How long jobs ran.
    pub(crate) history: History,
    /// Released jobs that ask for another size than they have.
    pub(crate) growing: BTreeSet<JobKey>,
    /// Jobs that hold something and may still be evicted, by queue and priority.
    pub(crate) held: PreemptibleIndex,
    /// Jobs that found nothing to evict, and when they look again.
    pub(crate) preemption_backoff: PreemptionBackoff,
    /// Jobs that were stopped for a limit of run time.
    pub(crate) stopped: BTreeSet<JobKey>,
    /// Whether something came free since elastic jobs last tried to grow.
    pub(crate) stretch_due: bool,
    /// Whether some job may have to leave its cluster.
    pub(crate) drain_due: bool,
    /// Pods that have ended before their jobs are seen to have.
    pub(crate) completion_grace: CompletionGrace,
    /// Jobs with pods that have lost their room, looked at while it lasts.
    pub(crate) roomless: BTreeSet<JobKey>,
    pub(crate) changed: Changed,
}

impl Engine {
    /// An engine that knows nothing yet.
    #[must_use]
    pub fn new(config: EngineConfig) -> Self {
        Self {
            config,
            now: Time::default(),
            room: Room::new(),
            clusters: BTreeMap::new(),
            eligibility: Eligibility::default(),
            classes: BTreeMap::new(),
            queues: Queues::default(),
            jobs: Hashed::default(),
            names: Names::default(),
            shapes: Shapes::default(),
            pending: Pending::default(),
            reservations: Reservations::default(),
            freed: FreedNodes::default(),
            head_selector: HeadSelector::default(),
            timers: BTreeSet::new(),
            ends: BTreeSet::new(),
            history: History::default(),
            growing: BTreeSet::new(),
            held: PreemptibleIndex::default(),
            preemption_backoff: PreemptionBackoff::default(),
            stopped: BTreeSet::new(),
            stretch_due: true,
            drain_due: false,
            completion_grace: CompletionGrace::default(),
            roomless: BTreeSet::new(),
            changed: Changed::default(),
        }
    }

    /// What it was told of a cluster.
    #[must_use]
    pub fn cluster(&self, name: &ClusterName) -> Option<&ClusterFact> {
        self.clusters.get(name)
    }

    /// Names of the clusters that it has been told of, in order.
    pub fn cluster_names(&self) -> impl Iterator<Item = &ClusterName> {
        self.clusters.keys()
    }

    /// Every queue that exists or has jobs, in order of name.
    pub fn queues(&self) -> impl Iterator<Item = &QueueName> {
        self.queues.listed()
    }

    /// A job as the engine sees it.
    #[must_use]
    pub fn job(&self, key: &JobKey) -> Option<JobView<'_>> {
        let job = self.jobs.get(key)?;
        Some(job.view(self.priority_of(job).unwrap_or_default()))
    }

    /// What may look different since the last call.
    pub fn take_changed(&mut self) -> Changed {
        std::mem::take(&mut self.changed)
    }

    /// Every pool of every member, in order of cluster and class.
    #[must_use]
    pub fn pools(&self) -> Vec<PoolSummary> {
        self.room.pools()
    }

    /// The value of the class that a job names, or of the global default; `None` where it
    /// names one that does not exist.
    pub(crate) fn priority_of(&self, job: &Job) -> Option<i32> {
        match &job.priority_class {
            Some(name) => self.classes.get(name.as_ref()).map(|class| class.value),
            // Kubernetes takes the smallest where several claim to be the default.
            None => Some(
                self.classes
                    .values()
                    .filter(|class| class.global_default)
                    .map(|class| class.value)
                    .min()
                    .unwrap_or_default(),
            ),
        }
    }
}
