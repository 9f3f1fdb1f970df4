//! Keeps what is derived of a job in step with the job: its place among pending jobs, its charge,
//! the counts of its queue, its timer, its expected end.
//!
//! One function works out what should be and changes what is not so. It is called after every
//! change of a job, and may be called once too often without harm.

use crate::amounts::rare::Rare;
use crate::api::ids::{JobKey, QueueName};
use crate::capacity::completion_grace;
use crate::forecast::Prediction;
use crate::jobs::deadline::next_look;
use crate::jobs::expected_end::ExpectedEnd;
use crate::jobs::job::{ChargedState, Derived, PendingEntry};
use crate::jobs::lifecycle;
use crate::jobs::pending_as;
use crate::pending::inadmissible::RequeueCondition;
use crate::reservation::reserve;
use crate::reservation::store::Reservation;
use crate::state::Engine;
use crate::state::Inputs;

/// Brings what is derived of a job up to date.
pub(crate) fn sync_indexes(engine: &mut Engine, key: &JobKey) {
    let line = acquire_entry(engine, key);
    let Some(job) = engine.jobs.get(key) else {
        return;
    };
    let was = job.derived.clone();
    let now = Derived {
        line,
        counted: Some(job.counted_as()),
        timer: next_look(&engine.config, &engine.quota, job),
        has: Rare::new(ChargedState {
            charge: job.charge(),
            holder: job.charged_user(),
            expected_end: ExpectedEnd::of(job, engine.now),
            held: engine.jobs.preemptible_as(job),
        }),
    };
    apply_derived(engine, &was, &now);
    let (before, after) = (&was.has.charge, &now.has.charge);
    let (recharged, gone) = (before != after, before.is_some() && after.is_none());
    let changed = was != now;
    engine.jobs.sync(key, now);
    if recharged {
        completion_grace::end_completion_grace_of(engine, key);
    }
    if gone {
        reserve::victim_gone(engine, key);
    }
    if changed {
        engine.changed.jobs.insert(key.clone());
    }
}

/// Forgets a job and all that is derived of it.
pub(crate) fn forget_job(engine: &mut Engine, key: &JobKey) {
    let Some(was) = engine.jobs.remove(key) else {
        return;
    };
    apply_derived(engine, &was, &Derived::default());
    reserve::drop_reservation_of(engine, key);
    completion_grace::end_completion_grace_of(engine, key);
    reserve::victim_gone(engine, key);
    engine.capacity.room.forget(key);
    engine.pending.backoff.moved();
    engine.changed.jobs.insert(key.clone());
}

/// Changes in the other stores what is not so any more.
fn apply_derived(engine: &mut Engine, was: &Derived, now: &Derived) {
    for ((queue, user), sign) in changes(&was.has.holder, &now.has.holder) {
        engine.quota.hold(queue, user, sign);
    }
    for ((queue, pools), sign) in changes(&was.has.charge, &now.has.charge) {
        engine.quota.charge(queue, pools, i64::from(sign));
        touch_queues(engine, queue, sign < 0);
    }
    for ((queue, state, pending), sign) in changes(&was.counted, &now.counted) {
        let total = pending.as_ref().and_then(|demand| demand.total());
        engine.quota.count(queue, *state, total.as_ref(), sign);
        touch_queues(engine, queue, false);
    }
    if was.has.charge != now.has.charge || was.has.held != now.has.held {
        engine.pending.backoff.moved();
    }
    move_entry(engine, was.line.as_ref(), now.line.as_ref());
}

/// Where a job stands while it is pending; takes hold of its shape. The old one is given back
/// in [`Self::move_entry`].
fn acquire_entry(engine: &mut Engine, key: &JobKey) -> Option<PendingEntry> {
    let job = engine.jobs.get(key)?;
    pending_as::place_of(engine.inputs(), key, job)?;
    if job.forecast.is_none() {
        let predicted = lifecycle::predict(engine.inputs(), job).map(Prediction::rounded);
        engine.jobs.set_forecast(key, predicted.unwrap_or_default());
    }
    let (queue, rank, shape) = pending_as::place_of(engine.inputs(), key, engine.jobs.get(key)?)?;
    let shape = engine.pending.shapes.acquire(shape);
    Some(PendingEntry { queue, shape, rank })
}

fn move_entry(engine: &mut Engine, old: Option<&PendingEntry>, new: Option<&PendingEntry>) {
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
        engine
            .pending
            .queues
            .insert(&new.queue, id, new.shape, &new.rank);
        engine.changed.queues.insert(new.queue.clone());
    }
    if let Some(kept) = taking {
        engine.reservations.set(kept);
    }
    rouse_behind_takers(engine, new);
}

/// Where the first of a group waits for what is evicted for it, who joins it may take
/// too: the group is judged again.
fn rouse_behind_takers(engine: &mut Engine, line: Option<&PendingEntry>) {
    let Some(line) = line else { return };
    let pending_queue = engine.pending.queues.pending_queue(&line.queue);
    let first = pending_queue.and_then(|pending_queue| pending_queue.group(line.shape).next());
    if first.is_some_and(|first| reserve::awaits_eviction(engine.inputs(), &first.key)) {
        engine.pending.queues.rouse(&line.queue, line.shape);
    }
}

/// Wakes those who wait for headroom of a queue, of which there may be more.
pub(crate) fn wake_for_quota(engine: &mut Engine, queue: &QueueName) {
    engine
        .pending
        .queues
        .wake(&RequeueCondition::Quota(queue.clone()));
    let queues = &engine.quota;
    engine
        .pending
        .queues
        .wake_for_headroom(queue, |class, resource| {
            queues.headroom(queue, class, resource)
        });
    let entitled = engine.pending.backoff.due_in(queue, |resource| {
        queues.unused_deserved(queue, resource).unwrap_or(i128::MIN)
    });
    for key in entitled {
        reserve::ask_again(engine, &key);
    }
}

/// Marks a queue and all above it changed; where quota `freed` wakes who waits for it.
fn touch_queues(engine: &mut Engine, queue: &QueueName, freed: bool) {
    for name in engine.quota.path(queue) {
        if freed {
            engine.jobs.retry_scale_up();
            wake_for_quota(engine, &name);
            // What was to become free has: as much more is kept from now on.
            for holder in engine.reservations.short_of(&name) {
                reserve::rouse_job(engine, &holder);
            }
        }
        if name.as_str() != crate::quota::ROOT {
            engine.changed.queues.insert(name);
        }
    }
}

/// A preemptor that only moves in its line keeps what is being freed for it.
fn taking_for(
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

/// What is new, to be added, and what it replaces, to be taken off; nothing where both are equal.
fn changes<'a, T: PartialEq>(
    was: &'a Option<T>,
    now: &'a Option<T>,
) -> impl Iterator<Item = (&'a T, i32)> {
    let differ = was != now;
    let now = now.iter().map(|now| (now, 1));
    let was = was.iter().map(|was| (was, -1));
    now.chain(was).filter(move |_| differ)
}
