//! Keeps what is derived of a job in step with the job: its place among pending jobs, its charge,
//! the counts of its queue, its timer, its expected end.
//!
//! One function works out what should be and changes what is not so. It is called after every
//! change of a job, and may be called once too often without harm.

use crate::amounts::rare::Rare;
use crate::cycle::react::{Change, react};
use crate::cycle::{lifecycle, pod_charges, reserve};
use crate::evaluation::{pending_as, prediction};
use crate::forecast::Prediction;
use crate::jobs::ageing::age_at;
use crate::jobs::deadline::next_look;
use crate::jobs::expected_end::expected_end;
use crate::jobs::job::{ChargedState, Derived, PendingEntry};
use crate::quota::ChargeOwner;
use crate::reservation::store::Reservation;
use crate::state::{Engine, Inputs};
use facts::JobKey;

/// Brings what is derived of a job up to date.
pub(crate) fn sync_indexes(engine: &mut Engine, key: &JobKey) {
    set_age(engine, key);
    let line = acquire_entry(engine, key);
    let Some(job) = engine.jobs.get(key) else {
        return;
    };
    let was = job.derived.clone();
    let timer = next_look(
        &engine.config,
        &engine.jobs,
        &engine.quota,
        job,
        line.is_some(),
    );
    let now = Derived {
        line,
        counted: Some(job.counted_as()),
        has: Rare::new(ChargedState {
            charge: job.charge(),
            holder: job.charged_user(),
            expected_end: expected_end(job, engine.now),
            held: engine.jobs.preemptible_as(job),
        }),
    };
    apply_derived(engine, key, &was, &now);
    let (before, after) = (&was.has.charge, &now.has.charge);
    let (recharged, gone) = (before != after, before.is_some() && after.is_none());
    let moved_end = was.has.expected_end != now.has.expected_end;
    if moved_end && before.is_some() && after.is_some() && !engine.reservations.is_empty() {
        engine.jobs.note_moved_end(key);
    }
    let changed = engine.jobs.set_timer(key, timer) || was != now;
    engine.jobs.sync(key, now);
    if recharged {
        engine.capacity.end_grace_of(key);
    }
    if recharged && before.is_some() {
        engine.reservations.note_recharged(key);
    }
    if gone {
        reserve::victim_gone(engine, key);
    }
    if changed {
        engine.changed.jobs.insert(key.clone());
    }
    if changed || pod_charges::is_of_another(engine.inputs(), key) {
        pod_charges::note_job(engine, key);
    }
}

/// Counts the steps of ageing of a queued job by the present rule of its queue.
fn set_age(engine: &mut Engine, key: &JobKey) {
    let job = engine.jobs.get(key).filter(|job| job.released.is_none());
    if let Some(age) = job.map(|job| age_at(&engine.quota, job, engine.now)) {
        engine.jobs.set_age(key, age);
    }
}

/// Forgets a job and all that is derived of it.
pub(crate) fn forget_job(engine: &mut Engine, key: &JobKey) {
    pod_charges::remember_queue(engine, key);
    let ending = engine
        .jobs
        .released(key)
        .is_some_and(|released| !released.alive());
    if !ending {
        lifecycle::note_end(engine, key);
    }
    let Some(was) = engine.jobs.remove(key) else {
        return;
    };
    apply_derived(engine, key, &was, &Derived::default());
    reserve::drop_reservation_of(engine, key);
    engine.capacity.end_grace_of(key);
    engine.reservations.note_recharged(key);
    reserve::victim_gone(engine, key);
    engine.capacity.forget(key);
    react(engine, Change::Victims);
    engine.changed.jobs.insert(key.clone());
}

/// Changes in the other stores what is not so any more.
pub(crate) fn apply_derived(engine: &mut Engine, key: &JobKey, was: &Derived, now: &Derived) {
    for ((queue, user), sign) in changes(&was.has.holder, &now.has.holder) {
        engine.quota.hold(queue, user, sign);
    }
    let recharged = was.has.charge != now.has.charge;
    let owned = [was, now].map(|derived| derived.has.owned_charge());
    let mut charged = None;
    for ((queue, user, pools), sign) in changes(&owned[0], &owned[1]) {
        let namespace = &key.namespace;
        let owner = ChargeOwner { user, namespace };
        engine.quota.charge(queue, owner, pools, i64::from(sign));
        let freed = sign < 0;
        // To the queue itself it is the same whose its charge is.
        if recharged || engine.quota.limited_owners(queue).resources() {
            react(engine, Change::Usage { queue, freed });
        }
        if !freed {
            charged = Some((queue, owner));
        }
    }
    for ((queue, state, pending), sign) in changes(&was.counted, &now.counted) {
        let total = pending.as_ref().and_then(|demand| demand.total());
        engine.quota.count(queue, *state, total.as_ref(), sign);
        react(engine, Change::Counted(queue));
    }
    if recharged || was.has.held != now.has.held {
        react(engine, Change::Victims);
    }
    move_entry(engine, was.line.as_ref(), now.line.as_ref());
    // A job that was admitted is not ahead of others any more.
    if let Some((queue, owner)) = charged {
        react(engine, Change::OwnerCharged { queue, owner });
    }
}

/// Where a job stands while it is pending; takes hold of its shape. The old one is given back
/// in [`move_entry`].
pub(crate) fn acquire_entry(engine: &mut Engine, key: &JobKey) -> Option<PendingEntry> {
    let job = engine.jobs.get(key)?;
    engine.quota.number_user(&job.user);
    pending_as::place_of(engine.inputs(), key, job)?;
    if job.forecast.is_none() {
        let predicted = prediction::predict(engine.inputs(), job).map(Prediction::rounded);
        engine.jobs.set_forecast(key, predicted.unwrap_or_default());
    }
    let (queue, rank, shape) = pending_as::place_of(engine.inputs(), key, engine.jobs.get(key)?)?;
    let shape = engine.pending.shapes.acquire(shape);
    Some(PendingEntry { queue, shape, rank })
}

pub(crate) fn move_entry(
    engine: &mut Engine,
    old: Option<&PendingEntry>,
    new: Option<&PendingEntry>,
) {
    if old == new {
        return new
            .into_iter()
            .for_each(|new| engine.pending.shapes.release(new.shape));
    }
    let taking = taking_for(engine.inputs(), old, new);
    if let Some(old) = old {
        engine
            .pending
            .queues
            .remove(&old.queue, old.shape, &old.rank);
        engine.pending.shapes.release(old.shape);
        reserve::drop_reservation_of(engine, &old.rank.key);
        engine.pending.backoff.forget(&old.rank.key);
        engine.changed.queues.insert(old.queue.clone());
    }
    // A queue has a number while jobs are counted in it, which they are by now.
    let id = new.and_then(|new| engine.quota.id(&new.queue));
    if let (Some(new), Some(id)) = (new, id) {
        let slots = engine.pending.shapes.slot_set(new.shape);
        let queues = &mut engine.pending.queues;
        queues.insert(&new.queue, id, (new.shape, slots), &new.rank);
        engine.changed.queues.insert(new.queue.clone());
    }
    if let Some(kept) = taking {
        engine.reservations.set(kept);
    }
    if let Some(new) = new {
        react(engine, Change::Queued(new));
    }
}

/// A preemptor that only moves in its queue keeps the reservation of what is being freed for it.
pub(crate) fn taking_for(
    inputs: Inputs<'_>,
    old: Option<&PendingEntry>,
    new: Option<&PendingEntry>,
) -> Option<Reservation> {
    let (old, new) = (old?, new?);
    let stays = old.queue == new.queue && old.shape == new.shape;
    let kept = inputs.reservations.of(&old.rank.key);
    let kept = kept.filter(|kept| stays && kept.taking())?;
    Some(Reservation {
        rank: new.rank.clone(),
        ..kept.clone()
    })
}

/// Returns what is new, to be added, and what it replaces, to be taken off; nothing where both are equal.
pub(crate) fn changes<'a, T: PartialEq>(
    was: &'a Option<T>,
    now: &'a Option<T>,
) -> impl Iterator<Item = (&'a T, i32)> {
    let differ = was != now;
    let now = now.iter().map(|now| (now, 1));
    let was = was.iter().map(|was| (was, -1));
    now.chain(was).filter(move |_| differ)
}
