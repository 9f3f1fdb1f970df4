//! Jobs that reservations stop, and those for which none is possible: when they come before an owner.
//!
//! That none is possible is noted of jobs, and of shapes for all jobs behind every owner of reserved nodes. A
//! search for the next head takes a note of a shape for one of all its jobs. So queues with a job in their window
//! that is before an owner are marked dirty when the note is made, and when the job comes before an owner later.
//! What is reserved for an owner does not bind the jobs before it: classes that wait for a reservation to be
//! dropped are woken when their first job may have come before an owner. Queues move in the order by charges that
//! come or go, by past usage that fades, and by the first job that is pending in them: they are looked at when they
//! are ranked, whatever moved them.

use crate::api::job::QueueOrder;
use crate::backfill::{feasible, withheld};
use crate::cycle::wake::mark_dirty;
use crate::pending::inadmissible::RequeueCondition;
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

/// Which owners of reservations stop a job.
#[derive(Debug, Clone, Copy)]
enum AmongOwners {
    /// Those of reserved nodes: beside them no reservation was possible.
    OfNodes,
    /// Those of reserved quota too: what they reserve is withheld.
    All,
}

/// The last in order of some owners, preemptors left out.
struct LastOwners<'a> {
    of_nodes: Option<&'a Reservation>,
    of_all: Option<&'a Reservation>,
}

impl<'a> LastOwners<'a> {
    fn among(inputs: Inputs<'_>, owners: Vec<&'a Reservation>) -> Self {
        let has_nodes = |kept: &&Reservation| !kept.nodes.is_empty();
        Self {
            of_nodes: feasible::last_of(inputs, owners.iter().copied().filter(has_nodes)),
            of_all: feasible::last_of(inputs, owners.into_iter()),
        }
    }

    /// Returns true if a job is before the last of them.
    fn is_before(
        &self,
        inputs: Inputs<'_>,
        among: AmongOwners,
        (queue, rank): (&QueueName, &QueueOrder),
    ) -> bool {
        let last = match among {
            AmongOwners::OfNodes => self.of_nodes,
            AmongOwners::All => self.of_all,
        };
        last.is_some_and(|owner| !feasible::stands_before(inputs, owner, queue, rank))
    }
}

/// Queues were ranked again. What is reserved for an owner binds those jobs no more that are before it now.
pub(super) fn order_moved(engine: &mut Engine, moves: &OrderMoves) {
    let inputs = engine.inputs();
    let is_any = !moves.sooner.is_empty() || !moves.later.is_empty();
    if !is_any || inputs.reservations.iter().next().is_none() {
        return;
    }
    let is_below = |queue: &QueueName, above: &BTreeSet<QueueId>| {
        let path = inputs.quota.id(queue).map(|id| inputs.quota.path_of(id));
        path.is_some_and(|path| path.iter().any(|id| above.contains(id)))
    };
    let moved_later = |kept: &&Reservation| is_below(&kept.queue, &moves.later);
    let later = inputs.reservations.iter().filter(moved_later).collect();
    let later = LastOwners::among(inputs, later);
    let all = LastOwners::among(inputs, inputs.reservations.iter().collect());
    let may_be_free = |among, job: (&QueueName, &QueueOrder)| {
        later.is_before(inputs, among, job)
            || (is_below(job.0, &moves.sooner) && all.is_before(inputs, among, job))
    };
    let free = that_may_be_free(inputs, may_be_free);
    retry(engine, free);
}

/// The jobs of the queue of these owners come in another order.
pub(super) fn owners_moved_back(engine: &mut Engine, owners: &[JobKey]) {
    let inputs = engine.inputs();
    let moved = owners.iter().filter_map(|key| inputs.reservations.of(key));
    let moved = LastOwners::among(inputs, moved.collect());
    let free = that_may_be_free(inputs, |among, job| moved.is_before(inputs, among, job));
    retry(engine, free);
}

/// What no reservation may bind any more.
struct MayBeFree {
    /// Jobs for which no reservation was possible.
    unreservable: BTreeSet<JobKey>,
    /// Queues in whose windows is a job with a shape of which that is noted.
    queues: BTreeSet<QueueName>,
    /// Classes that wait for a reservation to be dropped.
    parked: Vec<(QueueName, ShapeId)>,
}

/// Returns those of which `may_be_free` says so of the job, for a class of its first one.
fn that_may_be_free(
    inputs: Inputs<'_>,
    may_be_free: impl Fn(AmongOwners, (&QueueName, &QueueOrder)) -> bool,
) -> MayBeFree {
    let jobs = inputs.pending.unreservable().iter().filter(|key| {
        let line = inputs.jobs.line_of(key);
        line.is_some_and(|line| may_be_free(AmongOwners::OfNodes, (&line.queue, &line.rank)))
    });
    let shapes = inputs.pending.shapes.unreservable();
    let queues = shapes.flat_map(|shape| in_windows(inputs, shape));
    let queues = queues.filter(|first| may_be_free(AmongOwners::OfNodes, *first));
    let queues = queues.map(|(queue, _)| queue.clone());
    MayBeFree {
        unreservable: jobs.cloned().collect(),
        queues: queues.collect(),
        parked: parked_before(inputs, |job| may_be_free(AmongOwners::All, job)),
    }
}

/// The classes that wait for a reservation to be dropped, where `may_be_free` says so of their first job. Where it does
/// not say so of the first jobs of a queue, it says so of no other: its classes are not looked at one by one.
fn parked_before(
    inputs: Inputs<'_>,
    may_be_free: impl Fn((&QueueName, &QueueOrder)) -> bool,
) -> Vec<(QueueName, ShapeId)> {
    let queues = &inputs.pending.queues;
    let mut known: Option<(&QueueName, bool)> = None;
    let mut parked = Vec::new();
    for waiting in queues.waiting_for(&RequeueCondition::Reservation) {
        let (queue, shape) = waiting;
        let Some(pending_queue) = queues.pending_queue(queue) else {
            continue;
        };
        let any = match known {
            Some((of, any)) if of == queue => any,
            _ => {
                let ranks = pending_queue.ranks();
                let mut firsts = ranks.first().into_iter().chain(ranks.earliest());
                firsts.any(|first| may_be_free((queue, first)))
            }
        };
        known = Some((queue, any));
        let first = pending_queue.class(*shape).next().filter(|_| any);
        if first.is_some_and(|first| may_be_free((queue, first))) {
            parked.push(waiting.clone());
        }
    }
    parked
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

fn retry(engine: &mut Engine, free: MayBeFree) {
    engine.pending.retry_reservations(free.unreservable);
    for queue in &free.queues {
        mark_dirty(engine, queue);
    }
    for (queue, shape) in &free.parked {
        engine.pending.queues.wake_class(queue, *shape);
    }
}
