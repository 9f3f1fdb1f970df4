//! What follows from other rules: a queue, a policy or a priority class that is another.
//!
//! The pending jobs that it concerns move in their queues and are evaluated again; charges stay.

use crate::api::facts::{PolicyFact, PriorityClassFact, QueueFact};
use crate::api::ids::{JobKey, QueueName};
use crate::cycle::react::{Change, react};
use crate::cycle::{reserve, spare, sync};
use crate::evaluation::pending_as;
use crate::jobs::ageing::{self, age_at};
use crate::quota::ROOT;
use crate::state::{Engine, Inputs};

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
}

/// A person changed the rules of a queue: that may entitle jobs of any queue.
fn note_changed_queue(engine: &mut Engine, name: &QueueName) {
    let (now, is_gone) = (engine.now, engine.quota.id(name).is_none());
    let causes = engine.jobs.queue_causes_mut();
    causes.note([QueueName::from(ROOT)], now);
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
    let aged = ages_jobs(engine, name);
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
    policies_above_changed(engine, name);
    // To find the jobs of a queue that are queued takes a look at all jobs.
    let ages = aged || ages_jobs(engine, name);
    let aged = ages.then(|| set_ages(engine, name));
    reorder(engine, name, aged.unwrap_or_default());
}

fn ages_jobs(engine: &Engine, name: &QueueName) -> bool {
    let policy = engine.quota.policy(name);
    policy.is_some_and(|policy| policy.ageing.is_some())
}

/// Jobs of the queue and of all below it go by other limits.
fn policies_above_changed(engine: &mut Engine, name: &QueueName) {
    resync_below(engine, name);
    // Deadlines of released jobs may be others, and stopped jobs may be stopped no more.
    let held = engine
        .jobs
        .preemptible()
        .below(|queue| engine.quota.path(queue).contains(name));
    for key in held.into_iter().chain(engine.jobs.stopped().clone()) {
        sync::sync_indexes(engine, &key);
    }
}

/// Puts the waiting jobs of a queue in the order that its policy asks for; `aged` are those whose ages it changes.
fn reorder(engine: &mut Engine, name: &QueueName, aged: Vec<JobKey>) {
    let pending_queue = engine.pending.queues.pending_queue(name);
    let ranks = pending_queue
        .into_iter()
        .flat_map(|pending_queue| pending_queue.ranks().iter());
    let most = pending_as::max_clusters(engine.inputs(), name);
    let moved = ranks.filter(|rank| {
        let line = engine.jobs.line_of(&rank.key);
        let shape = line.and_then(|line| engine.pending.shapes.get(line.shape));
        let job = engine.jobs.get(&rank.key);
        shape.is_some_and(|shape| shape.max_clusters != most)
            || job.is_some_and(|job| pending_as::rank_of(engine.inputs(), &rank.key, job) != **rank)
    });
    let moved: Vec<JobKey> = moved.map(|rank| rank.key.clone()).collect();
    for key in moved.into_iter().chain(aged) {
        sync::sync_indexes(engine, &key);
    }
}

/// Counts the steps of ageing of the queued jobs of a queue by its present rule. Returns the jobs: their timers may be
/// others.
fn set_ages(engine: &mut Engine, name: &QueueName) -> Vec<JobKey> {
    let jobs = engine.jobs.iter();
    let queued = jobs.filter(|(_, job)| job.released.is_none() && job.queue == *name);
    let ages = queued.map(|(key, job)| (key.clone(), age_at(&engine.quota, job, engine.now)));
    let mut ages: Vec<_> = ages.collect();
    ages.sort_unstable();
    for (key, age) in &ages {
        engine.jobs.set_age(key, *age);
    }
    ages.into_iter().map(|(key, _)| key).collect()
}

/// Brings pending jobs in step with whether the queue distinguishes users and namespaces.
fn resync_below(engine: &mut Engine, name: &QueueName) {
    let differs =
        |(queue, pending_queue): &(&QueueName, &crate::pending::pending_queue::PendingQueue)| {
            let apart = pending_as::apart(engine.inputs(), queue);
            let first = pending_queue
                .ranks()
                .first()
                .and_then(|rank| engine.jobs.get(&rank.key));
            let line = first.and_then(|job| job.derived.line.as_ref());
            let shape = line.and_then(|line| engine.pending.shapes.get(line.shape));
            let was_apart = shape.map_or((false, false), |shape| {
                (shape.user.is_some(), shape.namespace.is_some())
            });
            engine.quota.is_within(queue, name) && apart != was_apart
        };
    let pending_queues = engine.pending.queues.pending_queues().filter(differs);
    let mut keys: Vec<JobKey> = pending_queues
        .flat_map(|(_, pending_queue)| pending_queue.ranks().iter().map(|rank| rank.key.clone()))
        .collect();
    keys.sort_unstable();
    for key in keys {
        sync::sync_indexes(engine, &key);
    }
}

/// Pending jobs of the class move in their queues; released ones keep what they have, and
/// are evicted by their new priority.
pub(crate) fn class_told(engine: &mut Engine, name: &str, fact: Option<PriorityClassFact>) {
    let before = engine.jobs.priority_class(name).cloned();
    if before == fact {
        return;
    }
    let default =
        |fact: &Option<PriorityClassFact>| fact.as_ref().is_some_and(|fact| fact.global_default);
    let concerns_unnamed = default(&before) || default(&fact);
    engine.jobs.observe_priority_class(name, fact);
    react(engine, Change::PriorityClass);
    let mut concerned: Vec<JobKey> = engine
        .jobs
        .iter()
        .filter(|(_, job)| match &job.priority_class {
            // It may be the highest that a job rises to.
            _ if job.released.is_none() && ageing::applies(&engine.quota, job) => true,
            Some(class) => class.as_ref() == name,
            None => concerns_unnamed,
        })
        .map(|(key, _)| key.clone())
        .collect();
    concerned.sort_unstable();
    for key in concerned {
        sync::sync_indexes(engine, &key);
        // It may take from others now, or may not any more.
        react(engine, Change::Priority(&key));
    }
}

/// The parent that a queue names, if the queue exists.
fn place_of_queue(inputs: Inputs<'_>, name: &QueueName) -> Option<Option<QueueName>> {
    Some(inputs.quota.fact(name)?.parent.clone())
}
