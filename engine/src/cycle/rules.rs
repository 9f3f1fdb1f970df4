//! Applies a changed queue, policy or priority class.
//!
//! The pending jobs that it concerns move in their queues and are evaluated again ([`resync`]); charges stay.

use crate::cycle::lifecycle::time_of_cause;
use crate::cycle::react::{Change, react};
use crate::cycle::{reserve, resync, spare};
use crate::evaluation::pending_as;
use crate::pending::pending_queue::PendingQueue;
use crate::quota::ROOT;
use crate::state::{Engine, Inputs};
use facts::{JobKey, PolicyFact, PriorityClassFact, QueueFact, QueueName};

/// A queue's bounds, state or place in the tree changed. Capacity knows nothing of those.
pub(crate) fn queue_told(engine: &mut Engine, name: &QueueName, fact: Option<QueueFact>) {
    let before = place_of_queue(engine.inputs(), name);
    let above_before = engine.quota.path(name);
    if !engine.quota.set_fact(name, fact) {
        return;
    }
    note_changed_queue(engine, name);
    engine.pending.shapes.forget_lets();
    react(engine, Change::Queue(name));
    drop_of_stopped(engine);
    if before != place_of_queue(engine.inputs(), name) {
        // Other policies are above it now, and above those that name it or stood on a circle
        // with it.
        policies_above_changed(engine, &QueueName::from(ROOT));
        // What it holds does not count any more where it was.
        react(engine, Change::QueueMovedFrom(&above_before));
    }
    resync::resync(engine);
}

/// A person changed the rules of a queue: that may entitle jobs of any queue.
fn note_changed_queue(engine: &mut Engine, name: &QueueName) {
    let (cause, is_gone) = (time_of_cause(engine), engine.quota.id(name).is_none());
    let causes = engine.jobs.queue_causes_mut();
    causes.note([QueueName::from(ROOT)], cause);
    if is_gone {
        causes.forget(name);
    }
}

/// Drops the reservations of queues that take no jobs now.
fn drop_of_stopped(engine: &mut Engine) {
    let stopped: Vec<JobKey> = engine
        .reservations
        .iter()
        .filter(|kept| engine.quota.problem(&kept.queue).is_some())
        .map(|kept| kept.rank.key.clone())
        .collect();
    for key in stopped {
        reserve::drop_reservation_of(engine, &key);
    }
}

/// A queue has another policy, or none.
pub(crate) fn policy_told(engine: &mut Engine, name: &QueueName, fact: Option<PolicyFact>) {
    if !engine.quota.set_policy(name, fact) {
        return;
    }
    note_changed_queue(engine, name);
    spare::note_policies(engine);
    react(engine, Change::Policy(name));
    drop_of_stopped(engine);
    if engine.quota.is_drained(name) {
        engine.jobs.recheck_drains();
    }
    // Its own jobs may have another order or another limit of clusters, and age otherwise.
    engine.jobs.unsynced_mut().note_pending_of([name.clone()]);
    policies_above_changed(engine, name);
    resync::resync(engine);
}

/// Jobs of the queue and of all below it go by other limits.
fn policies_above_changed(engine: &mut Engine, name: &QueueName) {
    let inputs = engine.inputs();
    let pending_queues = inputs.pending.queues.pending_queues();
    let queues = pending_queues.filter(|(queue, pending_queue)| {
        inputs.quota.is_within(queue, name) && distinguishes_otherwise(inputs, queue, pending_queue)
    });
    let queues: Vec<QueueName> = queues.map(|(queue, _)| queue.clone()).collect();
    // Deadlines of admitted jobs may be others, and stopped jobs may be stopped no more.
    let admitted = inputs.jobs.preemptible();
    let admitted = admitted.below(|queue| inputs.quota.path(queue).contains(name));
    let jobs: Vec<JobKey> = admitted.chain(inputs.jobs.stopped()).cloned().collect();
    let unsynced = engine.jobs.unsynced_mut();
    unsynced.note_jobs(jobs);
    unsynced.note_pending_of(queues);
}

/// Returns true if the users and namespaces of a queue are distinguished, and were not when its jobs were listed, or
/// the other way round.
fn distinguishes_otherwise(inputs: Inputs<'_>, name: &QueueName, queue: &PendingQueue) -> bool {
    let first = queue.ranks().first();
    let line = first.and_then(|rank| inputs.jobs.line_of(&rank.key));
    let shape = line.and_then(|line| inputs.pending.shapes.get(line.shape));
    let was_apart = shape.map_or((false, false), |shape| {
        (shape.user.is_some(), shape.namespace.is_some())
    });
    pending_as::apart(inputs, name) != was_apart
}

/// Pending jobs of the class move in their queues; released ones keep what they have, and
/// are evicted by their new priority.
pub(crate) fn class_told(engine: &mut Engine, name: &str, fact: Option<PriorityClassFact>) {
    if engine.jobs.priority_class(name) == fact.as_ref() {
        return;
    }
    engine.jobs.observe_priority_class(name, fact);
    react(engine, Change::PriorityClass);
    // It may be the class of any job, or the highest that a job rises to.
    let admitted = engine.jobs.admitted().map(|(key, _)| key);
    let jobs: Vec<JobKey> = admitted.chain(engine.jobs.not_pending()).cloned().collect();
    let queues = engine.pending.queues.pending_queues();
    let queues: Vec<QueueName> = queues.map(|(queue, _)| queue.clone()).collect();
    let unsynced = engine.jobs.unsynced_mut();
    unsynced.note_jobs(jobs);
    unsynced.note_pending_of(queues);
    resync::resync(engine);
}

/// The parent that a queue names, if the queue exists.
fn place_of_queue(inputs: Inputs<'_>, name: &QueueName) -> Option<Option<QueueName>> {
    Some(inputs.quota.fact(name)?.parent.clone())
}
