//! Snapshots of an engine: to continue in another process, to simulate, to report a bug.
//!
//! A snapshot has the facts and the states of jobs, from which the indexes are rebuilt.

use crate::api::slot::ReservationSlot;
use crate::backfill::withheld;
use crate::capacity::{AssumedPod, Ended, EndedCount, MixRecord};
use crate::config::EngineConfig;
use crate::cycle::react::{Change, react};
use crate::cycle::{decide, next_head, pod_charges, spare, sync};
use crate::forecast::{Forecast, KnownRuns};
use crate::jobs::causes::QueueCauses;
use crate::jobs::job::{Derived, Job};
use crate::pending::backoff::PreemptionBackoff;
use crate::pod_charges::QueueMemory;
use crate::quota::{DecayedUsageSnapshot, UserUsageSnapshot};
use crate::reservation::spares::Spare;
use crate::reservation::store::Reservation;
use crate::state::{Engine, Inputs};
use facts::faults::FaultRuleSet;
use facts::{
    ClusterFact, ClusterName, Demand, JobKey, NodeFact, NodeImages, PodFact, PolicyFact,
    PriorityClassFact, QueueFact, Time,
};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The state of an engine. A restored engine makes the same decisions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    now: Time,
    queues: Vec<QueueFact>,
    policies: Vec<PolicyFact>,
    priority_classes: Vec<PriorityClassFact>,
    clusters: Vec<ClusterFact>,
    nodes: Vec<NodeFact>,
    pods: Vec<PodFact>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    images: Vec<NodeImages>,
    jobs: Vec<JobSnapshot>,
    #[serde(default, skip_serializing_if = "QueueMemory::is_empty")]
    pod_queues: QueueMemory,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    completion_grace: Vec<Ended>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    ended: Vec<EndedCount>,
    reservations: Vec<Reservation>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    slots: Vec<ShapeSlots>,
    #[serde(default, skip_serializing_if = "QueueCauses::is_empty")]
    queue_causes: QueueCauses,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    spares: Vec<Spare>,
    /// Jobs that found no victims, and when they try again.
    preemption_backoff: PreemptionBackoff,
    /// The decayed usage of queues.
    pasts: Vec<DecayedUsageSnapshot>,
    /// The decayed usage of users, where queues order their jobs by it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    user_pasts: Vec<UserUsageSnapshot>,
    /// The recently requested pods.
    mix: MixRecord,
    runs: Vec<KnownRuns>,
    /// The rules that classify faults.
    #[serde(default, skip_serializing_if = "FaultRuleSet::is_empty")]
    fault_rules: FaultRuleSet,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct JobSnapshot {
    key: JobKey,
    #[serde(flatten)]
    job: Job,
    /// Its assumed pods, with their demand.
    assumed: Option<(Arc<Demand>, Vec<AssumedPod>)>,
}

/// The slots that a reservation takes for jobs of one shape. They follow from the nodes that there were when they were
/// asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct ShapeSlots {
    /// One of the jobs.
    job: JobKey,
    slots: BTreeSet<ReservationSlot>,
}

/// An engine in the state of `snapshot`.
pub(crate) fn restore(snapshot: Snapshot, config: EngineConfig) -> Engine {
    let mut engine = Engine::new(config);
    decide::advance(&mut engine, snapshot.now);
    engine.forecast = Forecast::restore(snapshot.runs);
    engine.fault_rules = snapshot.fault_rules;
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
        engine.capacity.set_cluster(fact);
    }
    for fact in snapshot.nodes {
        engine.capacity.upsert_node(fact);
    }
    for fact in snapshot.pods {
        engine.capacity.upsert_pod(fact);
    }
    for fact in &snapshot.images {
        engine.capacity.set_images(fact);
    }
    for count in snapshot.ended {
        engine.capacity.restore_ended(count);
    }
    engine.pod_charges.restore(snapshot.pod_queues);
    for job in snapshot.jobs {
        restore_job(&mut engine, job);
    }
    let with_pods: Vec<JobKey> = engine.capacity.keys_of_pods().cloned().collect();
    with_pods
        .iter()
        .for_each(|key| engine.pod_charges.note(key));
    pod_charges::settle(&mut engine);
    engine.capacity.restore_grace(snapshot.completion_grace);
    *engine.jobs.queue_causes_mut() = snapshot.queue_causes;
    for mut reservation in snapshot.reservations {
        // A number of a user is that of one engine.
        if let Some(line) = engine.jobs.line_of(&reservation.rank.key) {
            reservation.rank.user = line.rank.user;
        }
        engine.reservations.set(reservation);
    }
    spare::note_policies(&mut engine);
    engine.spares.replace(snapshot.spares);
    for past in &snapshot.pasts {
        engine.quota.restore_decayed(past);
    }
    engine.quota.restore_decayed_users(snapshot.user_pasts);
    let clusters: Vec<ClusterName> = engine.capacity.cluster_names().cloned().collect();
    engine.capacity.restore_mix(snapshot.mix);
    react(&mut engine, Change::Fleet(&clusters));
    engine.jobs.recheck_drains();
    engine.pending.backoff = snapshot.preemption_backoff;
    restore_slots(&mut engine, &snapshot.slots);
    next_head::rank_queues(&mut engine);
    engine
}

fn restore_job(engine: &mut Engine, snapshot: JobSnapshot) {
    let (key, mut job) = (snapshot.key, snapshot.job);
    let demand = job.demand.take();
    job.demand = demand.map(|demand| engine.pending.shapes.intern_demand(&demand));
    if let Some(demand) = &job.demand {
        engine.eligibility.note(&demand.placement, &engine.capacity);
    }
    engine.jobs.restore(key.clone(), job);
    if let Some((demand, assumed)) = snapshot.assumed {
        engine.capacity.restore_assumed(&key, demand, assumed);
    }
    sync::sync_indexes(engine, &key);
}

fn restore_slots(engine: &mut Engine, known: &[ShapeSlots]) {
    for known in known {
        let Some(shape) = withheld::shape_of(engine.inputs(), &known.job) else {
            continue;
        };
        engine.pending.note_scopes(shape, &known.slots);
        engine.pending.shapes.note_guessed(shape);
    }
}

/// The state of the engine.
pub(crate) fn snapshot(inputs: Inputs<'_>) -> Snapshot {
    let rooms = || inputs.capacity.clusters().values();
    Snapshot {
        now: inputs.now,
        queues: inputs.quota.facts().cloned().collect(),
        policies: inputs.quota.policies().cloned().collect(),
        priority_classes: inputs.jobs.priority_classes().cloned().collect(),
        clusters: inputs.capacity.cluster_facts().values().cloned().collect(),
        nodes: rooms()
            .flat_map(|r| r.nodes().values())
            .map(|n| n.fact.clone())
            .collect(),
        pods: rooms()
            .flat_map(|room| room.pods().values())
            .cloned()
            .collect(),
        images: inputs.capacity.images().collect(),
        jobs: inputs
            .jobs
            .iter()
            .collect::<BTreeMap<_, _>>()
            .into_iter()
            .map(|(key, job)| job_snapshot(inputs, key, job))
            .collect(),
        pod_queues: inputs.pod_charges.queues().clone(),
        ended: inputs.capacity.ended_counts().cloned().collect(),
        completion_grace: inputs.capacity.in_grace().cloned().collect(),
        reservations: inputs.reservations.iter().cloned().collect(),
        slots: slots_of_shapes(inputs),
        queue_causes: inputs.jobs.queue_causes().clone(),
        spares: inputs.spares.iter().cloned().collect(),
        preemption_backoff: inputs.pending.backoff.clone(),
        pasts: inputs.quota.decayed_usages(),
        user_pasts: inputs.quota.decayed_users(),
        mix: inputs.capacity.mix().clone(),
        runs: inputs.forecast.snapshot(),
        fault_rules: inputs.fault_rules.clone(),
    }
}

fn job_snapshot(inputs: Inputs<'_>, key: &JobKey, job: &Job) -> JobSnapshot {
    let assumed = inputs.capacity.assumed().get(key);
    JobSnapshot {
        key: key.clone(),
        job: Job {
            derived: Derived::default(),
            ..job.clone()
        },
        assumed: assumed.map(|pods| (Arc::clone(&pods.demand), pods.assumed.clone())),
    }
}

/// The slots of each shape, where they are known, by the first of its jobs.
fn slots_of_shapes(inputs: Inputs<'_>) -> Vec<ShapeSlots> {
    let jobs: BTreeSet<&JobKey> = inputs.jobs.iter().map(|(key, _)| key).collect();
    let mut listed = BTreeSet::new();
    let slots_of = |job: &JobKey| {
        let shape = withheld::shape_of(inputs, job).filter(|shape| listed.insert(*shape))?;
        Some(ShapeSlots {
            job: job.clone(),
            slots: inputs.pending.shapes.scopes(shape)?.clone(),
        })
    };
    jobs.into_iter().filter_map(slots_of).collect()
}
