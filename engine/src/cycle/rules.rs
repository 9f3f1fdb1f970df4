//! What follows from other rules: a queue, a policy or a priority class that is another.
//!
//! Those whom it concerns move in their lines and are judged anew; what is charged stays.

use crate::api::facts::{PriorityClassFact, QueueFact};
use crate::api::ids::{JobKey, QueueName};
use crate::cycle::decide;
use crate::jobs::pending_as;
use crate::jobs::sync;
use crate::pending::head_selector;
use crate::pending::inadmissible::RequeueCondition;
use crate::quota::ROOT;
use crate::reservation::reserve;
use crate::state::{Engine, Inputs};

/// A queue's bounds, state or place in the tree are others. Room knows nothing of those.
pub(crate) fn queue_told(engine: &mut Engine, name: &QueueName, fact: Option<QueueFact>) {
    let before = place_of_queue(engine.inputs(), name);
    let above_before = engine.quota.path(name);
    if !engine.quota.set_fact(name, fact) {
        return;
    }
    engine.pending.shapes.forget_lets();
    queue_changed(engine, name);
    if before != place_of_queue(engine.inputs(), name) {
        // Other policies are above it now, and above those that name it or stood on a circle
        // with it.
        policies_above_changed(engine, &QueueName::from(ROOT));
        // What it holds does not count any more where it was.
        for above in &above_before {
            sync::wake_for_quota(engine, above);
        }
    }
}

fn queue_changed(engine: &mut Engine, name: &QueueName) {
    engine.changed.queues.insert(name.clone());
    engine.jobs.retry_scale_up();
    engine.pending.backoff.hurry();
    head_selector::stir_all(engine);
    engine
        .pending
        .queues
        .wake(&RequeueCondition::Quota(name.clone()));
    decide::bounds_moved(engine);
    // Its jobs, and those of every queue below it, are judged by other bounds now.
    let below: Vec<QueueName> = engine
        .pending
        .queues
        .pending_queues()
        .map(|(pending_queue, _)| pending_queue.clone())
        .filter(|pending_queue| engine.quota.is_within(pending_queue, name))
        .collect();
    for pending_queue in below {
        engine.pending.queues.wake_queue(&pending_queue);
        name_first(engine, &pending_queue);
    }
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

pub(crate) fn policy_changed(engine: &mut Engine, name: &QueueName, changed: bool) {
    if changed {
        engine.pending.shapes.open_all();
        queue_changed(engine, name);
        policies_above_changed(engine, name);
        reorder(engine, name);
    }
}

/// Jobs of the queue and of all below it go by other limits.
fn policies_above_changed(engine: &mut Engine, name: &QueueName) {
    reline_below(engine, name);
    // The deadlines of what is released may be others, and who is stopped may not be.
    let held = engine
        .jobs
        .preemptible()
        .below(|queue| engine.quota.path(queue).contains(name));
    for key in held.into_iter().chain(engine.jobs.stopped().clone()) {
        sync::sync_indexes(engine, &key);
    }
}

/// Puts the waiting jobs of a queue in the order that its policy asks for.
fn reorder(engine: &mut Engine, name: &QueueName) {
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
    for key in moved {
        sync::sync_indexes(engine, &key);
    }
}

/// Whether users are told apart in line may be another now.
fn reline_below(engine: &mut Engine, name: &QueueName) {
    let differs =
        |(queue, pending_queue): &(&QueueName, &crate::pending::pending_queue::PendingQueue)| {
            let apart = engine.quota.counts_users(queue);
            let first = pending_queue
                .ranks()
                .first()
                .and_then(|rank| engine.jobs.get(&rank.key));
            let line = first.and_then(|job| job.derived.line.as_ref());
            let shape = line.and_then(|line| engine.pending.shapes.get(line.shape));
            let was_apart = shape.is_some_and(|shape| shape.user.is_some());
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

/// Names the first jobs of a queue as changed.
fn name_first(engine: &mut Engine, queue: &QueueName) {
    let pending_queue = engine.pending.queues.pending_queue(queue);
    let first = pending_queue
        .into_iter()
        .flat_map(|pending_queue| pending_queue.ranks().iter())
        .take(10);
    engine
        .changed
        .jobs
        .extend(first.map(|rank| rank.key.clone()));
    engine.changed.queues.insert(queue.clone());
}

/// Queued jobs of the class move in their lines; released ones keep what they have, and
/// are evicted by their new priority.
pub(crate) fn class_told(engine: &mut Engine, name: &str, fact: Option<PriorityClassFact>) {
    let before = engine.jobs.priority_class(name).cloned();
    if before == fact {
        return;
    }
    engine.pending.backoff.hurry();
    head_selector::stir_all(engine);
    let default =
        |fact: &Option<PriorityClassFact>| fact.as_ref().is_some_and(|fact| fact.global_default);
    let concerns_unnamed = default(&before) || default(&fact);
    engine.jobs.observe_priority_class(name, fact);
    let mut concerned: Vec<JobKey> = engine
        .jobs
        .iter()
        .filter(|(_, job)| match &job.priority_class {
            Some(class) => class.as_ref() == name,
            None => concerns_unnamed,
        })
        .map(|(key, _)| key.clone())
        .collect();
    concerned.sort_unstable();
    for key in concerned {
        sync::sync_indexes(engine, &key);
        // It may take from others now, or may not any more.
        reserve::rouse_job(engine, &key);
    }
}

/// The parent that a queue names, if the queue exists.
fn place_of_queue(inputs: Inputs<'_>, name: &QueueName) -> Option<Option<QueueName>> {
    Some(inputs.quota.fact(name)?.parent.clone())
}
