//! Brings jobs in step with rules that changed, in batches.
//!
//! A policy of the root or a priority class may concern every job. `apply` brings the first in step, and each call
//! of `decide` the next; nothing is admitted before all are. So no call is long, and none decides by old rules.

use crate::cycle::react::{Change, react};
use crate::cycle::{decide, sync};
use crate::evaluation::pending_as;
use crate::jobs::ageing::age_at;
use crate::jobs::deadline::next_look;
use crate::jobs::job::Job;
use crate::state::{Engine, Inputs};
use facts::{JobKey, QueueName};

/// To look at so many jobs that are in step costs what it costs to bring one in step.
const LOOKS: usize = 8;

/// The most jobs that are taken at once.
const BATCH: usize = 64;

/// Brings noted jobs in step, up to the budget of a call. Whether none is left.
pub(crate) fn resync(engine: &mut Engine) -> bool {
    let mut left = engine.config.resync_budget.saturating_mul(LOOKS);
    while left > 0 {
        if let Some(queue) = engine.jobs.unsynced_mut().take_bounds_of() {
            left = left.saturating_sub(wake(engine, &queue));
            continue;
        }
        let most = (left / LOOKS).clamp(1, BATCH);
        let Some(batch) = take_batch(engine, most) else {
            return true;
        };
        for key in batch {
            left = left.saturating_sub(bring_in_step(engine, &key));
        }
    }
    engine.jobs.unsynced().is_empty()
}

/// Has all pending jobs of a queue evaluated by its present bounds. Returns what that costs in looks.
fn wake(engine: &mut Engine, queue: &QueueName) -> usize {
    decide::name_first(engine, queue);
    1 + engine.pending.queues.wake_queue(queue)
}

/// The next jobs, at most so many; `None` if none is left.
fn take_batch(engine: &mut Engine, most: usize) -> Option<Vec<JobKey>> {
    if let Some(key) = engine.jobs.unsynced_mut().take_job() {
        return Some(vec![key]);
    }
    let (queue, last) = engine.jobs.unsynced().first_queue()?;
    let pending_queue = engine.pending.queues.pending_queue(queue);
    let ranks = pending_queue.map(|pending_queue| pending_queue.ranks().by_user_after(last));
    let batch: Vec<_> = ranks.into_iter().flatten().take(most).cloned().collect();
    let queue = queue.clone();
    let unsynced = engine.jobs.unsynced_mut();
    match batch.last() {
        Some(last) => unsynced.note_taken(&queue, last.clone()),
        None => unsynced.note_all_taken(&queue),
    }
    Some(batch.into_iter().map(|rank| rank.key).collect())
}

/// Brings a job in step. Returns what that costs in looks.
fn bring_in_step(engine: &mut Engine, key: &JobKey) -> usize {
    let inputs = engine.inputs();
    let Some(job) = inputs.jobs.get(key) else {
        return 1;
    };
    if is_in_step(inputs, key, job) {
        return 1;
    }
    let claim = claim_of(inputs, key);
    sync::sync_indexes(engine, key);
    if claim != claim_of(engine.inputs(), key) {
        // It may take from others now, or may not any more.
        react(engine, Change::Priority(key));
    }
    LOOKS
}

/// Returns true if a pending job has the place and the timer that follow from the rules. To others the rules are many
/// more.
fn is_in_step(inputs: Inputs<'_>, key: &JobKey, job: &Job) -> bool {
    let Some(listed) = pending_as::listed_as(inputs, job) else {
        return false;
    };
    let place = pending_as::place_of(inputs, key, job);
    let is_placed = place.is_some_and(|(queue, rank, shape)| listed == (&queue, &rank, &shape));
    let timer = next_look(&inputs.config, &inputs.jobs, &inputs.quota, job, true);
    is_placed
        && age_at(&inputs.quota, job, inputs.now) == job.cold.age
        && timer == inputs.jobs.timer_of(key)
}

/// By what a pending job takes from others.
fn claim_of(inputs: Inputs<'_>, key: &JobKey) -> Option<(i32, bool)> {
    let line = inputs.jobs.line_of(key)?;
    let shape = inputs.pending.shapes.get(line.shape)?;
    Some((line.rank.priority.0, shape.preempts))
}
