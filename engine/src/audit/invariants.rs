//! The audit: recomputes every index from the facts and the states of jobs, and reports
//! differences. It scans everything; tests and simulations call it.

use crate::amounts::totals::ResourceTotals;
use crate::api::ids::{ClusterName, JobKey, NodeName};
use crate::backfill::feasible;
use crate::capacity::completion_grace::Ended;
use crate::cycle::{next_head, wake};
use crate::evaluation::pending_as;
use crate::jobs::deadline::next_look;
use crate::state::Inputs;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

/// The violated invariants, in words.
pub(crate) fn check_invariants(inputs: Inputs<'_>) -> Vec<String> {
    let mut wrong = Vec::new();
    check_jobs(inputs, &mut wrong);
    wrong.extend(inputs.jobs.audit());
    check_queues(inputs, &mut wrong);
    check_nodes(inputs, &mut wrong);
    check_pending(inputs, &mut wrong);
    check_reservations(inputs, &mut wrong);
    wrong
}

/// The index entries of each job follow from the job.
fn check_jobs(inputs: Inputs<'_>, wrong: &mut Vec<String>) {
    for (key, job) in inputs.jobs.iter() {
        let pending = job.derived.line.as_ref().and_then(|entry| {
            let shape = inputs.pending.shapes.get(entry.shape)?;
            Some((&entry.queue, &entry.rank, shape.as_ref()))
        });
        let should = pending_as::place_of(inputs, key, job);
        let should = should
            .as_ref()
            .map(|(queue, rank, shape)| (queue, rank, shape));
        let (is, charged) = (&job.derived, &job.derived.has);
        let preemptible = inputs.jobs.preemptible_as(job);
        let timer = next_look(&inputs.config, &inputs.quota, job);
        let differences = [
            differs(key, "pending as", &pending, &should),
            differs(key, "charged", &charged.charge, &job.charge()),
            differs(key, "charged for", &charged.holder, &job.charged_user()),
            differs(key, "counted as", &is.counted, &Some(job.counted_as())),
            differs(key, "preemptible as", &charged.held, &preemptible),
            differs(key, "timer", &is.timer, &timer),
        ];
        wrong.extend(differences.into_iter().flatten());
    }
}

/// Bounds, charges, counts and order of queues follow from their objects, their jobs and the fleet.
fn check_queues(inputs: Inputs<'_>, wrong: &mut Vec<String>) {
    let mut fresh = inputs.quota.rebuilt();
    for cluster in inputs.capacity.clusters.keys() {
        fresh.set_fleet(cluster, &wake::cluster_total(inputs, cluster));
    }
    for (_, job) in inputs.jobs.iter() {
        if let Some((queue, pools)) = &job.derived.has.charge {
            fresh.charge(queue, pools, 1);
        }
        if let Some((queue, user)) = &job.derived.has.holder {
            fresh.hold(queue, user, 1);
        }
        if let Some((queue, state, pending)) = &job.derived.counted {
            let total = pending.as_ref().and_then(|demand| demand.total());
            fresh.count(queue, *state, total.as_ref(), 1);
        }
    }
    if inputs.capacity.room.nothing_touched() {
        wrong.extend(inputs.quota.audit(&fresh));
    }
    wrong.extend(inputs.quota.audit_decay());
    if !inputs.pending.queues.is_dirty() {
        let heads = |id| next_head::front_of(inputs, id);
        wrong.extend(inputs.quota.audit_order(heads));
    }
    wrong.extend(next_head::never_asked(inputs));
    let feasible = feasible::feasible(inputs);
    wrong.extend(feasible::wrongly_feasible(inputs, &feasible));
}

/// The free capacity of a node is what its pods and assumed pods leave, and assumed pods belong to
/// charged jobs.
fn check_nodes(inputs: Inputs<'_>, wrong: &mut Vec<String>) {
    for Ended { until, pod, .. } in inputs.capacity.completion_grace.all() {
        let room = inputs.capacity.room.cluster(&pod.cluster);
        let known = room.and_then(|room| room.pods().get(&pod.uid));
        let job = pod.job.as_ref().and_then(|key| inputs.jobs.get(key));
        let charged = job.is_some_and(|job| job.derived.has.charge.is_some());
        if !charged || known.is_none_or(|known| known.ended) {
            wrong.push(format!("pod {}: in use until {until:?}", pod.uid));
        }
    }
    let mut taken: BTreeMap<(&ClusterName, &NodeName), ResourceTotals> = BTreeMap::new();
    for (cluster, room) in inputs.capacity.room.clusters() {
        for pod in room.pods().values().filter(|pod| !pod.ended) {
            if let Some(node) = &pod.node {
                let sum = taken.entry((cluster, node)).or_default();
                sum.add(&pod.request, 1);
            }
        }
    }
    let mut uncharged = Vec::new();
    for (key, pods) in inputs.capacity.room.assumed() {
        for assumed_pod in &pods.assumed {
            if let Some(node) = &assumed_pod.node {
                let request = &pods.demand.roles[assumed_pod.role].request;
                let sum = taken.entry((&assumed_pod.cluster, node)).or_default();
                sum.add(request, i64::from(assumed_pod.count));
            }
        }
        if inputs.jobs.charge_of(key).is_none() {
            uncharged.push(format!("job {key}: has assumed pods and is not charged"));
        }
    }
    uncharged.sort();
    wrong.append(&mut uncharged);
    for (cluster, room) in inputs.capacity.room.clusters() {
        for (name, node) in room.nodes() {
            let mut free = ResourceTotals::from(&node.fact.allocatable);
            if let Some(taken) = taken.get(&(cluster, name)) {
                free.add_totals(taken, -1);
            }
            if free != node.free() {
                wrong.push(format!(
                    "node {cluster}/{name}: kept free {:?}, from facts {free:?}",
                    node.free()
                ));
            }
        }
    }
    wrong.extend(inputs.capacity.room.stale());
    let (clusters, room) = (&inputs.capacity.clusters, &inputs.capacity.room);
    if !inputs.eligibility.is_sound(clusters, room) {
        wrong.push("eligibility: differs from that of the clusters".to_owned());
    }
}

/// Pending queues have exactly the jobs that are pending in them.
fn check_pending(inputs: Inputs<'_>, wrong: &mut Vec<String>) {
    let should: BTreeSet<(&crate::QueueName, &JobKey)> = inputs
        .jobs
        .iter()
        .filter_map(|(key, job)| Some((&job.derived.line.as_ref()?.queue, key)))
        .collect();
    let mut pending = BTreeSet::new();
    for (queue, pending_queue) in inputs.pending.queues.pending_queues() {
        pending.extend(pending_queue.ranks().iter().map(|rank| (queue, &rank.key)));
        let grouped: BTreeSet<&JobKey> = pending_queue.grouped().map(|rank| &rank.key).collect();
        let ranked: BTreeSet<&JobKey> =
            pending_queue.ranks().iter().map(|rank| &rank.key).collect();
        if grouped != ranked {
            wrong.push(format!("queue {queue}: its classes have other jobs"));
        }
        if inputs.quota.id(queue) != Some(pending_queue.id()) {
            wrong.push(format!("queue {queue}: its pending queue has another id"));
        }
    }
    if should != pending {
        wrong.push(format!("pending jobs: {pending:?}, should be {should:?}"));
    }
}

/// The owners of reservations are pending.
fn check_reservations(inputs: Inputs<'_>, wrong: &mut Vec<String>) {
    wrong.extend(inputs.reservations.stale());
    wrong.extend(inputs.forecast.audit());
    for reservation in inputs.reservations.iter() {
        let (queue, rank) = (&reservation.queue, &reservation.rank);
        let entry = inputs.jobs.line_of(&rank.key);
        if entry.is_none_or(|entry| entry.queue != *queue || entry.rank != *rank) {
            wrong.push(format!("reservation of {}: not pending there", rank.key));
        }
    }
}

fn differs<T: PartialEq + Debug>(key: &JobKey, what: &str, is: &T, should: &T) -> Option<String> {
    (is != should).then(|| format!("job {key}: {what} {is:?}, should be {should:?}"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use crate::api::facts::{JobFact, PodFact};
    use crate::capacity::completion_grace::Ended;
    use crate::capacity::testing::demand;
    use crate::quota::QueueHeads;
    use crate::testing::pending;
    use crate::{Engine, Event, JobKey, QueueName, Time, Uid};
    use std::collections::BTreeMap;

    /// A function that breaks one index, and the start of its report.
    type Break = (&'static str, fn(&mut Engine));

    fn job<'a>(engine: &'a mut Engine, name: &str) -> &'a mut crate::jobs::job::Job {
        engine.jobs.corrupt(&JobKey::new("ns", name)).unwrap()
    }

    #[test]
    fn each_wrong_index_is_reported() {
        assert_eq!(pending().check_invariants(), Vec::<String>::new());
        let breaks: &[Break] = &[
            ("job ns/waits: pending as None", |e| {
                job(e, "waits").derived.line = None;
            }),
            ("job ns/runs: charged None", |e| {
                job(e, "runs").derived.has.change(|has| has.charge = None);
            }),
            ("job ns/runs: charged for None", |e| {
                job(e, "runs").derived.has.change(|has| has.holder = None);
            }),
            ("job ns/runs: counted as None", |e| {
                job(e, "runs").derived.counted = None;
            }),
            ("job ns/runs: preemptible as None", |e| {
                job(e, "runs").derived.has.change(|has| has.held = None);
            }),
            ("stopped jobs: kept {}", |e| {
                let cold = &mut job(e, "runs").cold;
                cold.change(|cold| cold.stopped_after = Some(7));
            }),
            ("job ns/runs: timer Some(", |e| {
                job(e, "runs").derived.timer = Some(crate::Time(7));
            }),
            ("queue q: kept", |e| {
                let (queue, pools) = job(e, "runs").derived.has.charge.clone().unwrap();
                e.quota.charge(&queue, &pools, 1);
            }),
            ("fleet of all: kept", |e| {
                e.quota
                    .set_fleet(&crate::ClusterName::from("a"), &BTreeMap::new());
            }),
            ("queue q: ranked as None", |e| {
                let id = e.quota.id(&QueueName::from("q")).unwrap();
                e.quota.rank(id, &QueueHeads::default());
            }),
            ("job ns/ghost: has assumed pods and is not charged", |e| {
                let runs = job(e, "runs");
                let demand = runs.demand.clone().unwrap();
                let shares = runs.released.as_ref().unwrap().admission.shares.clone();
                e.capacity
                    .room
                    .assume_pods(&JobKey::new("ns", "ghost"), demand, &shares);
            }),
            ("pod ghost: in use until", |e| {
                crate::cycle::ended_pods::restore_ended(
                    e,
                    vec![Ended {
                        until: crate::Time(7),
                        pod: PodFact {
                            cluster: crate::ClusterName::from("a"),
                            uid: crate::Uid::from("ghost"),
                            node: None,
                            request: crate::Resources::new(),
                            job: Some(JobKey::new("ns", "runs")),
                            ended: false,
                        },
                        gone: false,
                    }],
                );
            }),
            ("eligibility: differs from that of the clusters", |e| {
                let cluster = e.capacity.clusters.values_mut().next().unwrap();
                cluster.usable = false;
            }),
            ("pending jobs: {}, should be {", |e| {
                let line = job(e, "waits").derived.line.clone().unwrap();
                e.pending.queues.remove(&line.queue, line.shape, &line.rank);
            }),
            ("reservation of ns/waits: not pending there", |e| {
                e.jobs.remove(&JobKey::new("ns", "waits"));
            }),
            ("reservation of ns/waits: not pending there", |e| {
                let line = job(e, "waits").derived.line.as_mut().unwrap();
                line.rank.at = crate::Time(7);
            }),
        ];
        for (words, breaks) in breaks {
            let mut engine = pending();
            breaks(&mut engine);
            let wrong = engine.check_invariants();
            let named = wrong.iter().any(|wrong| wrong.starts_with(words));
            assert!(named, "{words}: {wrong:#?}");
        }
    }

    #[test]
    fn an_unranked_queue_is_not_reported() {
        let mut engine = pending();
        engine.apply(Event::JobUpserted(JobFact {
            key: JobKey::new("ns", "earlier"),
            uid: Uid::from("earlier"),
            queue: QueueName::from("q"),
            priority_class: None,
            queued_at: Time(0),
            demand: demand(1, "nvidia.com/gpu 8, pods 1"),
            hold: None,
            expected_duration_ms: None,
            user: "ann".to_owned(),
            preemptible: true,
            checkpointed_at: None,
        }));
        assert_eq!(engine.check_invariants(), Vec::<String>::new());
    }
}
