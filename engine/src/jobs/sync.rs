//! Keeps what is derived of a job in step with the job: its place among pending jobs, its charge,
//! the counts of its queue, its timer, its expected end.
//!
//! One function works out what should be and changes what is not so. It is called after every
//! change of a job, and may be called once too often without harm.

use crate::amounts::rare::Rare;
use crate::api::ids::{JobKey, QueueName};
use crate::engine::Engine;
use crate::forecast::Prediction;
use crate::jobs::deadline::next_look;
use crate::jobs::expected_end::ExpectedEnd;
use crate::jobs::job::{ChargedState, Derived, PendingEntry};
use crate::pending::inadmissible::RequeueCondition;
use crate::reservation::store::Reservation;

impl Engine {
    /// Brings what is derived of a job up to date.
    pub(crate) fn sync_indexes(&mut self, key: &JobKey) {
        let line = self.acquire_entry(key);
        let Some(job) = self.jobs.get(key) else {
            return;
        };
        let was = job.derived.clone();
        let now = Derived {
            line,
            counted: Some(job.counted_as()),
            timer: next_look(&self.config, &self.quota, job),
            has: Rare::new(ChargedState {
                charge: job.charge(),
                holder: job.charged_user(),
                expected_end: ExpectedEnd::of(job, self.now),
                held: self.jobs.preemptible_as(job),
            }),
        };
        self.apply_derived(&was, &now);
        let (before, after) = (&was.has.charge, &now.has.charge);
        let (recharged, gone) = (before != after, before.is_some() && after.is_none());
        let changed = was != now;
        self.jobs.sync(key, now);
        if recharged {
            self.end_completion_grace_of(key);
        }
        if gone {
            self.victim_gone(key);
        }
        if changed {
            self.changed.jobs.insert(key.clone());
        }
    }

    /// Forgets a job and all that is derived of it.
    pub(crate) fn forget_job(&mut self, key: &JobKey) {
        let Some(was) = self.jobs.remove(key) else {
            return;
        };
        self.apply_derived(&was, &Derived::default());
        self.drop_reservation_of(key);
        self.end_completion_grace_of(key);
        self.victim_gone(key);
        self.capacity.room.forget(key);
        self.pending.backoff.moved();
        self.changed.jobs.insert(key.clone());
    }

    /// Changes in the other stores what is not so any more.
    fn apply_derived(&mut self, was: &Derived, now: &Derived) {
        for ((queue, user), sign) in changes(&was.has.holder, &now.has.holder) {
            self.quota.hold(queue, user, sign);
        }
        for ((queue, pools), sign) in changes(&was.has.charge, &now.has.charge) {
            self.quota.charge(queue, pools, i64::from(sign));
            self.touch_queues(queue, sign < 0);
        }
        for ((queue, state, pending), sign) in changes(&was.counted, &now.counted) {
            let total = pending.as_ref().and_then(|demand| demand.total());
            self.quota.count(queue, *state, total.as_ref(), sign);
            self.touch_queues(queue, false);
        }
        if was.has.charge != now.has.charge || was.has.held != now.has.held {
            self.pending.backoff.moved();
        }
        self.move_entry(was.line.as_ref(), now.line.as_ref());
    }

    /// Where a job stands while it is pending; takes hold of its shape. The old one is given back
    /// in [`Self::move_entry`].
    fn acquire_entry(&mut self, key: &JobKey) -> Option<PendingEntry> {
        let job = self.jobs.get(key)?;
        self.place_of(key, job)?;
        if job.forecast.is_none() {
            let predicted = self.predict(job).map(Prediction::rounded);
            self.jobs.set_forecast(key, predicted.unwrap_or_default());
        }
        let (queue, rank, shape) = self.place_of(key, self.jobs.get(key)?)?;
        let shape = self.pending.shapes.acquire(shape);
        Some(PendingEntry { queue, shape, rank })
    }

    fn move_entry(&mut self, old: Option<&PendingEntry>, new: Option<&PendingEntry>) {
        if old == new {
            return new
                .into_iter()
                .for_each(|new| self.pending.shapes.release(new.shape));
        }
        let taking = self.taking_for(old, new);
        if let Some(old) = old {
            self.pending.queues.remove(&old.queue, old.shape, &old.rank);
            self.pending.shapes.release(old.shape);
            self.drop_reservation_of(&old.rank.key);
            self.pending.backoff.forget(&old.rank.key);
            self.changed.queues.insert(old.queue.clone());
        }
        // A queue has a number while jobs are counted in it, which they are by now.
        let id = new.and_then(|new| self.quota.id(&new.queue));
        if let (Some(new), Some(id)) = (new, id) {
            self.pending
                .queues
                .insert(&new.queue, id, new.shape, &new.rank);
            self.changed.queues.insert(new.queue.clone());
        }
        if let Some(kept) = taking {
            self.reservations.set(kept);
        }
        self.rouse_behind_takers(new);
    }

    /// Where the first of a group waits for what is evicted for it, who joins it may take
    /// too: the group is judged again.
    fn rouse_behind_takers(&mut self, line: Option<&PendingEntry>) {
        let Some(line) = line else { return };
        let pending_queue = self.pending.queues.pending_queue(&line.queue);
        let first = pending_queue.and_then(|pending_queue| pending_queue.group(line.shape).next());
        if first.is_some_and(|first| self.awaits_eviction(&first.key)) {
            self.pending.queues.rouse(&line.queue, line.shape);
        }
    }

    /// A preemptor that only moves in its line keeps what is being freed for it.
    fn taking_for(
        &self,
        old: Option<&PendingEntry>,
        new: Option<&PendingEntry>,
    ) -> Option<Reservation> {
        let (old, new) = (old?, new?);
        let stays = old.queue == new.queue && old.shape == new.shape;
        let kept = self.reservations.of(&old.rank.key);
        let kept = kept.filter(|kept| stays && kept.taking())?;
        Some(Reservation {
            rank: new.rank.clone(),
            ..kept.clone()
        })
    }

    /// Wakes those who wait for headroom of a queue, of which there may be more.
    pub(crate) fn wake_for_quota(&mut self, queue: &QueueName) {
        self.pending
            .queues
            .wake(&RequeueCondition::Quota(queue.clone()));
        let queues = &self.quota;
        self.pending
            .queues
            .wake_for_headroom(queue, |class, resource| {
                queues.headroom(queue, class, resource)
            });
        let entitled = self.pending.backoff.due_in(queue, |resource| {
            queues.unused_deserved(queue, resource).unwrap_or(i128::MIN)
        });
        for key in entitled {
            self.ask_again(&key);
        }
    }

    /// Marks a queue and all above it changed; where quota `freed` wakes who waits for it.
    fn touch_queues(&mut self, queue: &QueueName, freed: bool) {
        for name in self.quota.path(queue) {
            if freed {
                self.jobs.retry_scale_up();
                self.wake_for_quota(&name);
                // What was to become free has: as much more is kept from now on.
                for holder in self.reservations.short_of(&name) {
                    self.rouse_job(&holder);
                }
            }
            if name.as_str() != crate::quota::ROOT {
                self.changed.queues.insert(name);
            }
        }
    }
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
