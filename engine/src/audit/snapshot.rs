//! All that an engine knows, as data: to go on elsewhere, to simulate, to report a bug.
//!
//! Facts and the states of jobs are kept; everything derived is built anew from them.

use crate::amounts::rare::Rare;
use crate::api::facts::{
    ClusterFact, Demand, NodeFact, PodFact, PolicyFact, PriorityClassFact, QueueFact,
};
use crate::api::ids::{Attempt, ClusterName, JobKey, QueueName, Time, Uid};
use crate::api::job::PredictedRunTime;
use crate::capacity::completion_grace::Ended;
use crate::capacity::{AssumedPod, MixRecord};
use crate::config::EngineConfig;
use crate::engine::Engine;
use crate::forecast::{Forecast, KnownRuns};
use crate::jobs::job::{ColdState, Derived, Job, Released};
use crate::preemption::backoff::PreemptionBackoff;
use crate::quota::DecayedUsageSnapshot;
use crate::reservation::store::Reservation;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The content of an engine. Restored, it decides what the engine would have decided.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    now: Time,
    queues: Vec<QueueFact>,
    policies: Vec<PolicyFact>,
    priority_classes: Vec<PriorityClassFact>,
    clusters: Vec<ClusterFact>,
    nodes: Vec<NodeFact>,
    pods: Vec<PodFact>,
    jobs: Vec<JobSnapshot>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    completion_grace: Vec<Ended>,
    reservations: Vec<Reservation>,
    /// Who found nothing to evict, and looks again when.
    preemption_backoff: PreemptionBackoff,
    /// What queues held in the past, where that counts.
    pasts: Vec<DecayedUsageSnapshot>,
    /// The pods asked for of late.
    mix: MixRecord,
    runs: Vec<KnownRuns>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct JobSnapshot {
    key: JobKey,
    uid: Uid,
    queue: QueueName,
    priority_class: Option<Arc<str>>,
    user: Arc<str>,
    queued_at: Time,
    demand: Option<Arc<Demand>>,
    duration: Option<i64>,
    forecast: Option<PredictedRunTime>,
    preemptible: bool,
    attempt: Attempt,
    cold: ColdState,
    released: Option<Released>,
    /// Room held for it: for what demand, and where.
    seats: Option<(Arc<Demand>, Vec<AssumedPod>)>,
}

impl Engine {
    /// All that the engine knows.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let rooms = || self.capacity.room.clusters().values();
        Snapshot {
            now: self.now,
            queues: self.quota.facts().cloned().collect(),
            policies: self.quota.policies().cloned().collect(),
            priority_classes: self.jobs.priority_classes().cloned().collect(),
            clusters: self.capacity.clusters.values().cloned().collect(),
            nodes: rooms()
                .flat_map(|r| r.nodes().values())
                .map(|n| n.fact.clone())
                .collect(),
            pods: rooms()
                .flat_map(|room| room.pods().values())
                .cloned()
                .collect(),
            jobs: self
                .jobs
                .iter()
                .collect::<BTreeMap<_, _>>()
                .into_iter()
                .map(|(key, job)| self.job_snapshot(key, job))
                .collect(),
            completion_grace: self.capacity.completion_grace.all().cloned().collect(),
            reservations: self.reservations.iter().cloned().collect(),
            preemption_backoff: self.pending.backoff.clone(),
            pasts: self.quota.decayed_usages(),
            mix: self.capacity.room.mix().clone(),
            runs: self.forecast.snapshot(),
        }
    }

    /// An engine that goes on where the snapshot was taken.
    #[must_use]
    pub fn restore(snapshot: Snapshot, config: EngineConfig) -> Self {
        let mut engine = Self::new(config);
        engine.advance(snapshot.now);
        engine.forecast = Forecast::restore(snapshot.runs);
        for fact in snapshot.queues {
            engine.quota.set_fact(&fact.name.clone(), Some(fact));
        }
        for fact in snapshot.policies {
            engine.quota.set_policy(&fact.queue.clone(), Some(fact));
        }
        for fact in snapshot.priority_classes {
            engine
                .jobs
                .observe_priority_class(&fact.name.clone(), Some(fact));
        }
        for fact in snapshot.clusters {
            engine.capacity.clusters.insert(fact.name.clone(), fact);
        }
        snapshot
            .nodes
            .into_iter()
            .for_each(|fact| engine.capacity.room.upsert_node(fact));
        snapshot
            .pods
            .into_iter()
            .for_each(|fact| engine.capacity.room.upsert_pod(fact));
        for job in snapshot.jobs {
            engine.restore_job(job);
        }
        engine.restore_lingering(snapshot.completion_grace);
        for reservation in snapshot.reservations {
            engine.reservations.set(reservation);
        }
        for past in snapshot.pasts {
            engine.quota.restore_decayed(past);
        }
        let clusters: Vec<ClusterName> = engine.capacity.clusters.keys().cloned().collect();
        engine.capacity.room.restore_mix(snapshot.mix);
        engine.refleet(clusters.iter());
        engine.pending.backoff = snapshot.preemption_backoff;
        engine.rank_queues();
        engine
    }

    fn job_snapshot(&self, key: &JobKey, job: &Job) -> JobSnapshot {
        let seats = self.capacity.room.assumed().get(key);
        JobSnapshot {
            key: key.clone(),
            uid: job.uid.clone(),
            queue: job.queue.clone(),
            priority_class: job.priority_class.clone(),
            user: Arc::clone(&job.user),
            queued_at: job.queued_at,
            demand: job.demand.clone(),
            duration: job.duration,
            forecast: job.forecast,
            preemptible: job.preemptible,
            attempt: job.attempt,
            cold: (*job.cold).clone(),
            released: job.released.as_deref().cloned(),
            seats: seats.map(|held| (Arc::clone(&held.demand), held.seats.clone())),
        }
    }

    fn restore_job(&mut self, snapshot: JobSnapshot) {
        let key = snapshot.key;
        let demand = snapshot
            .demand
            .map(|demand| self.pending.shapes.intern_demand(&demand));
        if let Some(demand) = &demand {
            self.capacity.eligibility.note(
                &demand.placement,
                &self.capacity.clusters,
                &self.capacity.room,
            );
        }
        let job = Job {
            uid: snapshot.uid,
            queue: snapshot.queue,
            priority_class: snapshot.priority_class,
            user: snapshot.user,
            queued_at: snapshot.queued_at,
            demand,
            duration: snapshot.duration,
            forecast: snapshot.forecast,
            preemptible: snapshot.preemptible,
            attempt: snapshot.attempt,
            cold: Rare::new(snapshot.cold),
            released: snapshot.released.map(Box::new),
            derived: Derived::default(),
        };
        self.jobs.restore(key.clone(), job);
        if let Some((demand, seats)) = snapshot.seats {
            self.capacity.room.restore_seats(&key, demand, seats);
        }
        self.sync_indexes(&key);
    }
}
