//! Keeps what is derived of a job in step with the job: its place in line, its charge, the
//! counts of its queue, its timer.
//!
//! One function works out what should be and changes what is not so. It is called after
//! every change of a job, and may be called once too often without harm.

use crate::amounts::rare::Rare;
use crate::api::facts::{Demand, QueueOrdering};
use crate::api::ids::{JobKey, QueueName};
use crate::api::reason::Reason;
use crate::engine::Engine;
use crate::forecast::predict::{Forecast, outlook};
use crate::jobs::deadline::next_look;
use crate::jobs::job::{ChargedState, Derived, Job, JobState, PendingEntry, QueueOrder};
use crate::jobs::runtime::stopped;
use crate::pending::inadmissible::RequeueCondition;
use crate::pending::shapes::RequestShape;
use crate::quota::queues::Pools;
use crate::reservation::store::Reservation;
use std::cmp::Reverse;
use std::sync::Arc;

impl Engine {
    /// Brings what is derived of a job up to date.
    pub(crate) fn sync_indexes(&mut self, key: &JobKey) {
        let Some(job) = self.jobs.get(key) else {
            return;
        };
        let was = job.derived.clone();
        let charge = self.charge_of(job);
        let counted = Some(self.count_of(job));
        let holder = self.holder_of(job);
        let timer = next_look(&self.config, &self.quota, job);
        let outlook = outlook(job, self.now);
        let held = self.jobs.preemptible_as(job);
        let line = self.line_of(key);
        let gone = was.has.charge.is_some() && charge.is_none();
        let recharged = was.has.charge != charge;
        if was.has.holder != holder {
            self.rehold(&was, holder.as_ref());
        }
        if was.has.charge != charge {
            self.recharge(&was, charge.as_ref());
        }
        if was.counted != counted {
            self.recount(&was, counted.as_ref());
        }
        if was.has.charge != charge || was.has.held != held {
            self.pending.backoff.moved();
        }
        self.reline(&was, line.as_ref());
        let now = Derived {
            line,
            counted,
            timer,
            has: Rare::new(ChargedState {
                charge,
                holder,
                outlook,
                held,
            }),
        };
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
    pub(crate) fn unregister(&mut self, key: &JobKey) {
        let Some(was) = self.jobs.remove(key) else {
            return;
        };
        self.rehold(&was, None);
        self.recharge(&was, None);
        self.recount(&was, None);
        self.leave_line(&was);
        self.drop_reservation_of(key);
        self.end_completion_grace_of(key);
        self.victim_gone(key);
        self.capacity.room.forget(key);
        self.pending.backoff.moved();
        self.changed.jobs.insert(key.clone());
    }

    /// Why a queued job does not stand in line, if it does not, apart from its back-off and
    /// its queue.
    pub(crate) fn obstacle(&self, job: &Job) -> Option<(Reason, String)> {
        if let Some(hold) = &job.cold.hold {
            return Some((hold.reason, hold.message.clone()));
        }
        if let Some(stopped) = stopped(&self.quota, job) {
            return Some(stopped);
        }
        let Some(demand) = &job.demand else {
            let message = "its template has not been seen yet".to_owned();
            return Some((Reason::NotEvaluated, message));
        };
        if let Some(class) = job
            .priority_class
            .as_ref()
            .filter(|_| self.jobs.priority_of(job).is_none())
        {
            let message =
                format!("priority class {class} does not exist; create it or name another");
            return Some((Reason::PriorityClassNotFound, message));
        }
        if demand.total().is_none() {
            let message = "what its pods request together is too large to be counted".to_owned();
            return Some((Reason::InvalidTemplate, message));
        }
        None
    }

    /// The rank of a queued job.
    pub(crate) fn rank_of(&self, key: &JobKey, job: &Job) -> QueueOrder {
        QueueOrder {
            priority: Reverse(self.jobs.priority_of(job).unwrap_or_default()),
            at: self.due(job),
            key: key.clone(),
        }
    }

    /// When a job was queued, as its queue counts it: where the shortest go first, a multiple
    /// of its predicted run time later. So no job is passed by one that was queued more than
    /// that multiple of its own prediction after it.
    fn due(&self, job: &Job) -> crate::Time {
        if self.quota.ordering(&job.queue) != QueueOrdering::ShortestPredicted {
            return job.queued_at;
        }
        let predicted = job.forecast.and_then(Forecast::mean_ms);
        let predicted = predicted.unwrap_or(self.config.assumed_runtime_ms);
        let later = predicted.saturating_mul(i64::from(self.config.ageing));
        job.queued_at.after(later)
    }

    pub(crate) fn charge_of(&self, job: &Job) -> Option<(QueueName, Arc<Pools>)> {
        let released = job
            .released
            .as_ref()
            .filter(|released| released.charged())?;
        Some((released.admission.queue.clone(), Arc::new(released.pools())))
    }

    pub(crate) fn holder_of(&self, job: &Job) -> Option<(QueueName, Arc<str>)> {
        let released = job.released.as_ref();
        let charged = released.filter(|released| released.charged())?;
        Some((charged.admission.queue.clone(), Arc::clone(&job.user)))
    }

    pub(crate) fn count_of(&self, job: &Job) -> (QueueName, JobState, Option<Arc<Demand>>) {
        let state = job.state();
        let waits = state == JobState::Queued && job.cold.hold.is_none();
        let pending = job.demand.clone().filter(|_| waits);
        (job.queue_now().clone(), state, pending)
    }

    /// Where the job should stand in line, and for what. A back-off ends when its timer says.
    pub(crate) fn place_of(
        &self,
        key: &JobKey,
        job: &Job,
    ) -> Option<(QueueName, QueueOrder, RequestShape)> {
        let waits = job.released.is_none()
            && job.cold.back_off_until.is_none()
            && self.obstacle(job).is_none();
        let demand = job.demand.as_ref().filter(|_| waits)?;
        let shape = RequestShape {
            demand: Arc::clone(demand),
            total: demand.total()?,
            user: self
                .quota
                .counts_users(&job.queue)
                .then(|| Arc::clone(&job.user)),
            duration: job
                .duration
                .or_else(|| job.forecast.and_then(Forecast::high_ms)),
            max_clusters: self.max_clusters(&job.queue),
            avoid: job.cold.avoid.keys().cloned().collect(),
            preempts: self.jobs.preempts(job),
        };
        Some((job.queue.clone(), self.rank_of(key, job), shape))
    }

    pub(crate) fn max_clusters(&self, queue: &QueueName) -> Option<u32> {
        self.quota.policy(queue)?.max_clusters
    }

    /// The place in line; takes hold of its shape. The old one is given back in
    /// [`Self::reline`].
    fn line_of(&mut self, key: &JobKey) -> Option<PendingEntry> {
        let job = self.jobs.get(key)?;
        self.place_of(key, job)?;
        if job.forecast.is_none() {
            let forecast = self.forecast(job);
            self.jobs.set_forecast(key, forecast);
        }
        let (queue, rank, shape) = self.place_of(key, self.jobs.get(key)?)?;
        let shape = self.pending.shapes.acquire(shape);
        Some(PendingEntry { queue, shape, rank })
    }

    fn reline(&mut self, was: &Derived, line: Option<&PendingEntry>) {
        match (&was.line, line) {
            (Some(old), Some(new)) if old == new => self.pending.shapes.release(new.shape),
            (old, new) => {
                let taking = self.taking_for(old.as_ref(), new);
                self.leave_line(was);
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
        }
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

    fn leave_line(&mut self, was: &Derived) {
        if let Some(old) = &was.line {
            self.pending.queues.remove(&old.queue, old.shape, &old.rank);
            self.pending.shapes.release(old.shape);
            self.drop_reservation_of(&old.rank.key);
            self.pending.backoff.forget(&old.rank.key);
            self.changed.queues.insert(old.queue.clone());
        }
    }

    fn rehold(&mut self, was: &Derived, holder: Option<&(QueueName, Arc<str>)>) {
        if let Some((queue, user)) = holder {
            self.quota.hold(queue, user, 1);
        }
        if let Some((queue, user)) = &was.has.holder {
            self.quota.hold(queue, user, -1);
        }
    }

    fn recharge(&mut self, was: &Derived, charge: Option<&(QueueName, Arc<Pools>)>) {
        if let Some((queue, pools)) = charge {
            self.quota.charge(queue, pools, 1);
            self.touch_queues(queue, false);
        }
        if let Some((queue, pools)) = &was.has.charge {
            self.quota.charge(queue, pools, -1);
            self.touch_queues(queue, true);
        }
    }

    fn recount(
        &mut self,
        was: &Derived,
        counted: Option<&(QueueName, JobState, Option<Arc<Demand>>)>,
    ) {
        let total = |pending: &Option<Arc<Demand>>| pending.as_ref().and_then(|d| d.total());
        if let Some((queue, state, pending)) = counted {
            self.quota.count(queue, *state, total(pending).as_ref(), 1);
            self.touch_queues(queue, false);
        }
        if let Some((queue, state, pending)) = &was.counted {
            self.quota.count(queue, *state, total(pending).as_ref(), -1);
            self.touch_queues(queue, false);
        }
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
        let entitled = self
            .pending
            .backoff
            .due_in(queue, |resource| queues.due(queue, resource));
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
            if name.as_str() != crate::quota::queues::ROOT {
                self.changed.queues.insert(name);
            }
        }
    }
}
