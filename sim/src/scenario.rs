//! The input of a simulation: a fleet, its queues, and jobs with their true run times.

use crate::faults::FaultPlan;
use engine::facts::{
    Backfill, ClusterFact, FairShare, JobFact, Limits, NodeFact, PlacementWeights, PolicyFact,
    Preemption, PriorityClassFact, QueueFact, QueueOrdering, QueueState,
};
use engine::{QueueName, Resources, Time};

/// A start deadline that never passes: there are no pods that could be bound late.
pub const NO_DEADLINE_MS: i64 = i64::MAX / 4;

/// The fleet: clusters and their nodes.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Fleet {
    /// The clusters, in the file's order.
    pub clusters: Vec<ClusterFact>,
    /// All their nodes.
    pub nodes: Vec<NodeFact>,
}

/// The queues and their configuration.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ScenarioQueues {
    /// The queues.
    pub queues: Vec<QueueFact>,
    /// Their policies.
    pub policies: Vec<PolicyFact>,
    /// The priority classes of jobs.
    pub classes: Vec<PriorityClassFact>,
}

/// A job, with facts that only the simulation knows.
#[derive(Debug, Clone, PartialEq)]
pub struct SimJob {
    /// The fact for the engine; the job arrives at `queued_at`.
    pub fact: JobFact,
    /// The run time with all pods, in milliseconds.
    pub run_ms: i64,
    /// The checkpoint interval, in milliseconds of running; `None` if an eviction loses all work.
    pub checkpoint_ms: Option<i64>,
}

/// The input of a simulation, with jobs in order of arrival.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Scenario {
    /// The fleet.
    pub fleet: Fleet,
    /// The queues.
    pub queues: ScenarioQueues,
    /// The jobs.
    pub jobs: Vec<SimJob>,
    /// The faults of nodes; `None` if there are none, and pods are not simulated then.
    pub faults: Option<FaultPlan>,
}

/// Overrides from the command line.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ScenarioOverrides {
    /// The ordering of every queue.
    pub ordering: Option<QueueOrdering>,
    /// The factor by which arrivals are accelerated.
    pub speedup: Option<f64>,
    /// True if jobs declare their true run times.
    pub oracle: bool,
    /// Over how many clusters gangs may be placed, whatever the jobs say.
    pub split: Option<engine::facts::Split>,
}

impl Scenario {
    /// Applies the overrides and sorts the jobs by arrival.
    pub fn change(&mut self, changes: &ScenarioOverrides) {
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

    /// Returns when the first and the last job arrive; `None` without jobs.
    #[must_use]
    pub fn window(&self) -> Option<(Time, Time)> {
        let first = self.jobs.first()?.fact.queued_at;
        let last = self.jobs.last()?.fact.queued_at;
        Some((first, last))
    }
}

/// Returns a queue with default values.
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

/// Returns a queue's policy with default values.
#[must_use]
pub fn plain_policy(queue: &str) -> PolicyFact {
    PolicyFact {
        queue: QueueName::from(queue),
        pools: Vec::new(),
        ordering: QueueOrdering::default(),
        ageing: None,
        backfill: Backfill::default(),
        fair_share: FairShare::default(),
        preemption: Preemption::default(),
        limits: Limits::default(),
        max_clusters: None,
        weights: PlacementWeights::default(),
        preferred_clusters: Vec::new(),
        start_deadline_ms: NO_DEADLINE_MS,
        recovery_deadline_ms: None,
        spare: None,
        stop: None,
        invalid: None,
    }
}
