//! Which reservations withhold capacity and headroom from a request; how much is in `assume.rs`.
//!
//! A job ahead of a reservation's owner is never stopped by it. A job behind the owner may use what
//! is reserved only if it will have ended before the owner's expected start, or if enough is left
//! besides; where the start is not known, no job may. Starts come from declared or predicted ends,
//! which err: then the start moves, and no job is stopped for it.
//!
//! A preemptor's reservation binds every job (except those ahead in its own queue where that is
//! StrictFIFO) until its victims are gone and it was evaluated once more: otherwise a victim that is
//! first again when it is gone would take its capacity back, and be evicted again.

use crate::jobs::elastic;
use crate::jobs::job::PendingEntry;
use crate::pending::shapes::ShapeId;
use crate::placement::request::Request;
use crate::reservation::store::Reservation;
use crate::state::Inputs;
use facts::{JobKey, QueueOrdering, Time};
use std::cmp::Ordering;

/// Owners of the reservations that bind a request that starts now, in order.
pub(crate) fn reservations_ahead<'a>(inputs: Inputs<'a>, request: Request<'_>) -> Vec<&'a JobKey> {
    reservations_ahead_from(inputs, request, Some(inputs.now))
}

/// Owners of the reservations that bind a request that starts at `start`, in order.
pub(crate) fn reservations_ahead_from<'a>(
    inputs: Inputs<'a>,
    request: Request<'_>,
    start: Option<Time>,
) -> Vec<&'a JobKey> {
    let mut ahead: Vec<&Reservation> = inputs
        .reservations
        .iter()
        .filter(|reserved| binds_from(inputs, reserved, request, start))
        .collect();
    ahead.sort_by(|a, b| {
        inputs
            .quota
            .compare((&a.queue, &a.rank), (&b.queue, &b.rank))
    });
    ahead
        .into_iter()
        .map(|reserved| &reserved.rank.key)
        .collect()
}

/// True if a request that starts now must not use what a reservation withholds.
pub(crate) fn binds(inputs: Inputs<'_>, reserved: &Reservation, request: Request<'_>) -> bool {
    binds_from(inputs, reserved, request, Some(inputs.now))
}

/// True if a request that starts at `start` must not use what a reservation withholds; with an unknown start it will
/// be gone before no owner's.
pub(crate) fn binds_from(
    inputs: Inputs<'_>,
    reserved: &Reservation,
    request: Request<'_>,
    start: Option<Time>,
) -> bool {
    if reserved.taking() {
        // It binds jobs ahead of it, too: what is freed for it is for it. In a StrictFIFO queue the
        // owner cannot start before the jobs ahead of it, so these may use it.
        let strict = inputs.quota.ordering(request.queue) == QueueOrdering::StrictFifo;
        let here = (request.queue, request.rank);
        let ahead = reserved.queue == *request.queue
            && inputs
                .quota
                .compare(here, (&reserved.queue, &reserved.rank))
                == Ordering::Less;
        return reserved.rank.key != request.rank.key && !(strict && ahead);
    }
    let own = inputs.reservations.of(&request.rank.key);
    if own.is_some_and(Reservation::is_served) {
        // What was freed for it is withheld from it by no reservation. Before its victims are gone,
        // the other reservations bind it.
        return false;
    }
    let owner = (&reserved.queue, &reserved.rank);
    let behind = inputs.quota.compare(owner, (request.queue, request.rank)) == Ordering::Less;
    let gone_before = match (reserved.start, start, request.shape.duration) {
        (Some(owners), Some(start), Some(duration)) => start.after(duration) <= owners,
        _ => false,
    };
    behind && !gone_before
}

/// True if jobs are being evicted for this one.
pub(crate) fn has_pending_evictions(inputs: Inputs<'_>, key: &JobKey) -> bool {
    inputs.reservations.has_preemptors()
        && inputs.reservations.of(key).is_some_and(Reservation::taking)
}

/// A pending job's entry in its queue.
pub(crate) fn line_now(inputs: Inputs<'_>, key: &JobKey) -> Option<PendingEntry> {
    inputs.jobs.get(key)?.derived.line.clone()
}

/// The request shape of a pending job.
pub(crate) fn shape_of(inputs: Inputs<'_>, key: &JobKey) -> Option<ShapeId> {
    Some(inputs.jobs.line_of(key)?.shape)
}

/// Returns what `make` makes of what a request reserves: of the smallest size of an elastic gang.
pub(crate) fn at_least<T>(request: Request<'_>, make: impl FnOnce(Request<'_>) -> T) -> T {
    let least = elastic::smallest(request.shape);
    let shape = least.as_ref().unwrap_or(request.shape);
    make(Request { shape, ..request })
}

/// The request of a reservation's owner; `None` if it is not pending any more.
pub(crate) fn request_of<'a>(inputs: Inputs<'a>, kept: &'a Reservation) -> Option<Request<'a>> {
    let shape = shape_of(inputs, &kept.rank.key)?;
    Some(Request {
        queue: &kept.queue,
        rank: &kept.rank,
        shape: inputs.pending.shapes.get(shape)?,
        verbose: false,
    })
}
