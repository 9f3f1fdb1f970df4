//! The audit: recomputes every index from the facts and the states of jobs, and reports
//! differences. It scans everything; tests and simulations call it.

use crate::backfill::{feasible, spare};
use crate::cycle::{next_head, pod_charges, wake};
use crate::evaluation::pending_as;
use crate::jobs::deadline::next_look;
use crate::quota::ChargeOwner;
use crate::state::Inputs;
use facts::JobKey;
use std::collections::BTreeSet;
use std::fmt::Debug;

/// The violated invariants, in words.
pub(crate) fn check_invariants(inputs: Inputs<'_>) -> Vec<String> {
    let mut wrong = Vec::new();
    check_jobs(inputs, &mut wrong);
    check_pod_charges(inputs, &mut wrong);
    wrong.extend(inputs.jobs.audit());
    wrong.extend(inputs.pending.audit());
    check_queues(inputs, &mut wrong);
    check_capacity(inputs, &mut wrong);
    check_pending(inputs, &mut wrong);
    check_reservations(inputs, &mut wrong);
    wrong
}

/// The index entries of each job follow from the job.
fn check_jobs(inputs: Inputs<'_>, wrong: &mut Vec<String>) {
    // Until all jobs are in step with the rules, the entries of some follow from earlier ones.
    if !inputs.jobs.unsynced().is_empty() {
        return;
    }
    for (key, job) in inputs.jobs.iter() {
        let pending = pending_as::listed_as(inputs, job);
        let should = pending_as::place_of(inputs, key, job);
        let should = should
            .as_ref()
            .map(|(queue, rank, shape)| (queue, rank, shape));
        let (is, charged) = (&job.derived, &job.derived.has);
        let preemptible = inputs.jobs.preemptible_as(job);
        let is_pending = pending.is_some();
        let timer = next_look(&inputs.config, &inputs.jobs, &inputs.quota, job, is_pending);
        let differences = [
            differs(key, "pending as", &pending, &should),
            differs(key, "charged", &charged.charge, &job.charge()),
            differs(key, "charged for", &charged.holder, &job.charged_user()),
            differs(key, "counted as", &is.counted, &Some(job.counted_as())),
            differs(key, "preemptible as", &charged.held, &preemptible),
            differs(key, "timer", &inputs.jobs.timer_of(key), &timer),
        ];
        wrong.extend(differences.into_iter().flatten());
    }
}

/// Pods are charged for what they use beyond the charges of their jobs.
fn check_pod_charges(inputs: Inputs<'_>, wrong: &mut Vec<String>) {
    if !inputs.pod_charges.is_settled() || inputs.capacity.has_changed_pods() {
        return;
    }
    let charged = inputs.pod_charges.iter().map(|(key, _)| key);
    let keys: BTreeSet<&JobKey> = charged.chain(inputs.capacity.keys_of_pods()).collect();
    for key in keys {
        let should = pod_charges::charge_for_pods(inputs, key);
        let is = inputs.pod_charges.of(key);
        wrong.extend(differs(key, "pods charged", &is, &should.as_ref()));
    }
}

/// Bounds, charges, counts and order of queues follow from their objects, their jobs and the fleet.
fn check_queues(inputs: Inputs<'_>, wrong: &mut Vec<String>) {
    let mut fresh = inputs.quota.rebuilt();
    let clusters = inputs.capacity.cluster_names();
    fresh.set_fleet(clusters.map(|cluster| (cluster, wake::cluster_total(inputs, cluster))));
    for (key, job) in inputs.jobs.iter() {
        if let Some((queue, user, pools)) = job.derived.has.owned_charge() {
            let namespace = &key.namespace;
            fresh.charge(queue, ChargeOwner { user, namespace }, pools, 1);
        }
        if let Some((queue, user)) = &job.derived.has.holder {
            fresh.hold(queue, user, 1);
        }
        if let Some((queue, state, pending)) = &job.derived.counted {
            let total = pending.as_ref().and_then(|demand| demand.total());
            fresh.count(queue, *state, total.as_ref(), 1);
        }
    }
    for (key, charge) in inputs.pod_charges.iter() {
        let owner = ChargeOwner {
            user: &charge.user,
            namespace: &key.namespace,
        };
        fresh.charge(&charge.queue, owner, &charge.pools, 1);
    }
    if inputs.capacity.nothing_touched() {
        wrong.extend(inputs.quota.audit(&fresh));
    }
    wrong.extend(inputs.quota.audit_decay());
    if !inputs.pending.queues.has_changed() {
        wrong.extend(
            inputs
                .quota
                .audit_order(|id| next_head::front_of(inputs, id)),
        );
    }
    if !inputs.pending.queues.has_changed() && !inputs.quota.has_unranked() {
        wrong.extend(wrong_shares(inputs));
    }
    wrong.extend(next_head::never_asked(inputs));
    let feasible = feasible::feasible(inputs);
    wrong.extend(feasible::wrongly_feasible(inputs, &feasible));
}

/// Pending jobs are ordered by the shares that their users have.
fn wrong_shares(inputs: Inputs<'_>) -> Vec<String> {
    let queues = inputs.pending.queues.pending_queues();
    let differ = queues.filter_map(|(name, queue)| {
        let mut users = queue.ranks().users();
        let user =
            users.find(|user| queue.share_of(*user) != inputs.quota.user_share(name, *user))?;
        Some(format!(
            "queue {name}: {user:?} is ordered by another share than it has"
        ))
    });
    differ.collect()
}

/// The free capacity of a node is what its pods and assumed pods leave, and assumed pods belong to
/// charged jobs.
fn check_capacity(inputs: Inputs<'_>, wrong: &mut Vec<String>) {
    wrong.extend(inputs.capacity.audit());
    for ended in inputs.capacity.in_grace() {
        let pod = &ended.pod;
        let known = inputs.capacity.pod(&pod.cluster, &pod.uid);
        let job = pod.job.as_ref().and_then(|key| inputs.jobs.get(key));
        let charged = job.is_some_and(|job| job.derived.has.charge.is_some());
        if !charged || known.is_none_or(|known| known.ended()) {
            let until = ended.until;
            wrong.push(format!(
                "pod {}: keeps its capacity until {until:?}",
                pod.uid
            ));
        }
    }
    let assumed = inputs.capacity.assumed().keys();
    let uncharged = assumed.filter(|key| inputs.jobs.charge_of(key).is_none());
    let uncharged: BTreeSet<&JobKey> = uncharged.collect();
    let said = uncharged.into_iter();
    wrong.extend(said.map(|key| format!("job {key}: has assumed pods and is not charged")));
    if !inputs.eligibility.is_sound(&inputs.capacity) {
        wrong.push("eligibility: it is not that of the clusters".to_owned());
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
    wrong.extend(inputs.reservations.audit());
    wrong.extend(spare::audit(inputs));
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

    use crate::capacity::testing::demand;
    use crate::quota::QueueHeads;
    use crate::quota::testing::ann;
    use crate::testing::pending;
    use crate::{Engine, Event, JobKey, QueueName, Time, Uid};
    use facts::{JobFact, PodFact, PodPhase};
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
                e.jobs
                    .set_timer(&crate::JobKey::new("ns", "runs"), Some(crate::Time(7)));
            }),
            ("queue q: kept", |e| {
                let (queue, pools) = job(e, "runs").derived.has.charge.clone().unwrap();
                e.quota.charge(&queue, ann(), &pools, 1);
            }),
            ("fleet of all: kept", |e| {
                e.quota
                    .set_fleet([(&crate::ClusterName::from("a"), BTreeMap::new())]);
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
                    .assume_pods(&JobKey::new("ns", "ghost"), demand, &shares);
            }),
            ("pod ghost: keeps its capacity until", |e| {
                let pod = PodFact {
                    cluster: crate::ClusterName::from("a"),
                    uid: crate::Uid::from("ghost"),
                    node: None,
                    request: crate::Resources::new(),
                    job: Some(JobKey::new("ns", "runs")),
                    phase: PodPhase::Running,
                    symptom: None,
                    grace_s: 0,
                };
                e.capacity
                    .begin_grace(&JobKey::new("ns", "runs"), pod, false, crate::Time(7));
            }),
            ("eligibility: it is not that of the clusters", |e| {
                let mut cluster = e.capacity.cluster_facts().values().next().unwrap().clone();
                cluster.usable = false;
                e.capacity.set_cluster(cluster);
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
            images: Vec::new(),
        }));
        assert_eq!(engine.check_invariants(), Vec::<String>::new());
    }
}
