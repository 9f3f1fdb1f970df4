//! What is simulated: a fleet, its queues, and jobs with their true run times.

use engine::facts::{
    Backfill, ClusterFact, FairShare, JobFact, Limits, NodeFact, PlacementWeights, PolicyFact,
    Preemption, PriorityClassFact, QueueFact, QueueOrdering, QueueState,
};
use engine::{QueueName, Resources, Time};

/// A start deadline that never comes: there are no pods that could be bound late.
pub const NO_DEADLINE_MS: i64 = i64::MAX / 4;

/// The fleet: clusters and their nodes.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Fleet {
    /// The clusters, in the file's order.
    pub clusters: Vec<ClusterFact>,
    /// All their nodes.
    pub nodes: Vec<NodeFact>,
}

/// The queues and how they are run.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Queues {
    /// The queues.
    pub queues: Vec<QueueFact>,
    /// Their policies.
    pub policies: Vec<PolicyFact>,
    /// The priority classes that jobs may name.
    pub classes: Vec<PriorityClassFact>,
}

/// A job, with what only the simulation knows of it.
#[derive(Debug, Clone, PartialEq)]
pub struct SimJob {
    /// The fact for the engine; the job arrives at `queued_at`.
    pub fact: JobFact,
    /// How long it runs with all its pods, in milliseconds.
    pub run_ms: i64,
    /// How often it saves its work, in milliseconds of running; `None`: never, and all is lost
    /// when it is evicted.
    pub checkpoint_ms: Option<i64>,
}

/// All that is simulated. Jobs are in order of arrival.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Scenario {
    /// The fleet.
    pub fleet: Fleet,
    /// The queues.
    pub queues: Queues,
    /// The jobs.
    pub jobs: Vec<SimJob>,
}

/// Changes to what the files say, from the command line.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Changes {
    /// The ordering of every queue, instead of its own.
    pub ordering: Option<QueueOrdering>,
    /// Arrivals come this many times as fast.
    pub speedup: Option<f64>,
    /// Jobs declare their true run times.
    pub oracle: bool,
    /// Over how many clusters gangs may be placed, instead of what jobs say.
    pub split: Option<engine::facts::Split>,
}

impl Scenario {
    /// Makes the changes, and puts the jobs in order of arrival.
    pub fn change(&mut self, changes: &Changes) {
        if let Some(ordering) = changes.ordering {
            for policy in &mut self.queues.policies {
                policy.ordering = ordering;
            }
        }
        let first = self.jobs.iter().map(|job| job.fact.queued_at).min();
        for job in &mut self.jobs {
            if let (Some(speedup), Some(first)) = (changes.speedup, first) {
                let offset = job.fact.queued_at.millis_since(first) as f64 / speedup;
                job.fact.queued_at = first.after(offset.round() as i64);
            }
            if changes.oracle {
                job.fact.expected_duration_ms = Some(job.run_ms.max(1));
            }
            if let Some(split) = changes.split {
                job.fact.demand.split = split;
            }
        }
        self.jobs
            .sort_by(|a, b| (a.fact.queued_at, &a.fact.key).cmp(&(b.fact.queued_at, &b.fact.key)));
    }

    /// When the first and the last job arrive; `None` without jobs.
    #[must_use]
    pub fn window(&self) -> Option<(Time, Time)> {
        let first = self.jobs.first()?.fact.queued_at;
        let last = self.jobs.last()?.fact.queued_at;
        Some((first, last))
    }
}

/// A queue of that name with nothing said about it.
#[must_use]
pub fn plain_queue(name: &str) -> QueueFact {
    QueueFact {
        name: QueueName::from(name),
        parent: None,
        priority: 0,
        weight: 1,
        guarantee: Resources::new(),
        deserved: Resources::new(),
        capability: Resources::new(),
        reclaimable: true,
        state: QueueState::Open,
        invalid: None,
    }
}

/// The policy of a queue with nothing said about it.
#[must_use]
pub fn plain_policy(queue: &str) -> PolicyFact {
    PolicyFact {
        queue: QueueName::from(queue),
        pools: Vec::new(),
        ordering: QueueOrdering::default(),
        backfill: Backfill::default(),
        fair_share: FairShare::default(),
        preemption: Preemption::default(),
        limits: Limits::default(),
        max_clusters: None,
        weights: PlacementWeights::default(),
        preferred_clusters: Vec::new(),
        start_deadline_ms: NO_DEADLINE_MS,
        recovery_deadline_ms: None,
        invalid: None,
    }
}
