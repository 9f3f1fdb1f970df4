//! Jobs for which no reservation is possible, and when one may be.
//!
//! That none is possible is noted of jobs, and of shapes for all jobs behind every owner of reserved nodes. A search
//! for the next head takes a note of a shape for one of all its jobs. So queues with a job in their window that is
//! before an owner are marked dirty when the note is made, and when the job comes before an owner later. Queues move in
//! the order by charges that come or go, by past usage that fades, and by the first job that is pending in them: they
//! are looked at when they are ranked, whatever moved them.

use crate::api::job::QueueOrder;
use crate::backfill::{feasible, withheld};
use crate::cycle::wake::mark_dirty;
use crate::pending::shapes::ShapeId;
use crate::quota::{QueueId, RankMoves};
use crate::reservation::store::Reservation;
use crate::state::{Engine, Inputs};
use facts::{JobKey, QueueName};
use std::collections::BTreeSet;

/// Queues that come sooner or later among their siblings than before, each with all below it.
#[derive(Debug, Default)]
pub(super) struct OrderMoves {
    sooner: BTreeSet<QueueId>,
    later: BTreeSet<QueueId>,
}

impl OrderMoves {
    pub(super) fn add(&mut self, moves: RankMoves) {
        self.sooner.extend(moves.sooner);
        self.later.extend(moves.later);
    }
}

/// Nothing can be reserved for a job: nor for any other of its shape, if the job is behind all owners
/// of reserved nodes.
pub(crate) fn note_unreservable(engine: &mut Engine, queue: &QueueName, rank: &QueueOrder) {
    let inputs = engine.inputs();
    let last = feasible::last_holder(inputs);
    let is_before = |queue: &QueueName, rank: &QueueOrder| {
        last.is_some_and(|last| !feasible::stands_before(inputs, last, queue, rank))
    };
    let shape = withheld::shape_of(inputs, &rank.key).filter(|_| !is_before(queue, rank));
    let noted = shape.filter(|shape| !inputs.pending.shapes.is_unreservable(*shape));
    let firsts = noted
        .into_iter()
        .flat_map(|shape| in_windows(inputs, shape));
    let before = firsts.filter(|(queue, first)| is_before(queue, first));
    let before: BTreeSet<QueueName> = before.map(|(queue, _)| queue.clone()).collect();
    engine.pending.note_unreservable(&rank.key, shape);
    // It leaves the window of its queue to the next one.
    engine.pending.queues.note_changed(queue);
    for queue in &before {
        mark_dirty(engine, queue);
    }
}

/// Queues were ranked again. What is reserved for an owner binds those jobs no more that are before it now.
pub(super) fn order_moved(engine: &mut Engine, moves: &OrderMoves) {
    let inputs = engine.inputs();
    let is_any = !moves.sooner.is_empty() || !moves.later.is_empty();
    if !is_any || !inputs.pending.has_unreservable() {
        return;
    }
    let is_below = |queue: &QueueName, above: &BTreeSet<QueueId>| {
        let path = inputs.quota.id(queue).map(|id| inputs.quota.path_of(id));
        path.is_some_and(|path| path.iter().any(|id| above.contains(id)))
    };
    let last = feasible::last_holder(inputs);
    let later = inputs.reservations.with_nodes();
    let later = later.filter(|kept| !moves.later.is_empty() && is_below(&kept.queue, &moves.later));
    let later = feasible::last_of(inputs, later);
    let may_be_free = |queue: &QueueName, rank: &QueueOrder| {
        let is_before = |owner: &Reservation| !feasible::stands_before(inputs, owner, queue, rank);
        later.is_some_and(is_before)
            || (last.is_some_and(is_before) && is_below(queue, &moves.sooner))
    };
    let (jobs, queues) = that_may_be_free(inputs, may_be_free);
    retry(engine, jobs, &queues);
}

/// The jobs of the queue of these owners come in another order.
pub(super) fn owners_moved_back(engine: &mut Engine, owners: &[JobKey]) {
    let inputs = engine.inputs();
    let owners = owners.iter().filter_map(|key| inputs.reservations.of(key));
    let Some(last) = feasible::last_of(inputs, owners.filter(|kept| !kept.nodes.is_empty())) else {
        return;
    };
    let is_before =
        |queue: &QueueName, rank: &QueueOrder| !feasible::stands_before(inputs, last, queue, rank);
    let (jobs, queues) = that_may_be_free(inputs, is_before);
    retry(engine, jobs, &queues);
}

/// The jobs for which no reservation was possible, and the queues in whose windows is a job with a shape of which that
/// is noted, where `may_be_free` says so of the job.
fn that_may_be_free(
    inputs: Inputs<'_>,
    may_be_free: impl Fn(&QueueName, &QueueOrder) -> bool,
) -> (BTreeSet<JobKey>, BTreeSet<QueueName>) {
    let jobs = inputs.pending.unreservable().iter().filter(|key| {
        let line = inputs.jobs.line_of(key);
        line.is_some_and(|line| may_be_free(&line.queue, &line.rank))
    });
    let shapes = inputs.pending.shapes.unreservable();
    let queues = shapes.flat_map(|shape| in_windows(inputs, shape));
    let queues = queues.filter(|(queue, first)| may_be_free(queue, first));
    let queues = queues.map(|(queue, _)| queue.clone());
    (jobs.cloned().collect(), queues.collect())
}

/// The queues in whose reservation window an active class of a shape is, each with the first job of that class.
fn in_windows(
    inputs: Inputs<'_>,
    shape: ShapeId,
) -> impl Iterator<Item = (&QueueName, &QueueOrder)> {
    let queues = inputs.pending.queues.with_active_in_window(shape);
    queues.filter_map(move |id| {
        let queue = inputs.quota.name(id);
        let pending_queue = inputs.pending.queues.pending_queue(queue)?;
        let (first, _) = pending_queue.first_active(shape)?;
        Some((queue, first))
    })
}

fn retry(engine: &mut Engine, jobs: BTreeSet<JobKey>, queues: &BTreeSet<QueueName>) {
    engine.pending.retry_reservations(jobs);
    for queue in queues {
        mark_dirty(engine, queue);
    }
}
