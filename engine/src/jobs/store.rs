//! The job store: all jobs, and indexes over jobs.
//!
//! Facts and decisions change a job through methods that say what happened (`observe.rs`,
//! `transitions.rs`, `resize.rs`); [`Jobs::sync`] then updates the indexes. The store knows no
//! other store: its callers update quota, capacity and pending jobs.

use crate::amounts::sharded::Sharded;
use crate::api::charge::Pools;
use crate::jobs::causes::QueueCauses;
use crate::jobs::ends_in_order::EndsInOrder;
use crate::jobs::job::{Derived, Job, PendingEntry, Released};
use crate::jobs::names::Names;
use crate::jobs::preemptible_index::PreemptibleIndex;
use crate::jobs::unsynced::Unsynced;
use crate::timers::Timers;
use facts::{Demand, JobKey, PriorityClassFact, QueueName, Time};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// All jobs, and indexes over them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Jobs {
    /// Boxed, so that unused slots of the map are small.
    by_key: Sharded<JobKey, Box<Job>>,
    /// Interned texts.
    pub(super) names: Names,
    /// Priority classes by name.
    priority_classes: BTreeMap<String, PriorityClassFact>,
    /// When each job has to be checked again although no event came.
    pub(super) timers: Timers<JobKey>,
    /// The expected ends of charged jobs.
    pub(super) ends: EndsInOrder,
    /// Jobs whose expected end has moved since this was last taken.
    moved_ends: BTreeSet<JobKey>,
    /// Pending and charged jobs of which no run time is known: no job had ended before.
    pub(super) unpredicted: BTreeSet<JobKey>,
    /// Jobs with an admission.
    pub(super) admitted: BTreeSet<JobKey>,
    /// Queued jobs that are not pending: held, in back-off, or with an invalid or missing part.
    pub(super) not_pending: BTreeSet<JobKey>,
    /// What other rules may have put out of step.
    unsynced: Unsynced,
    /// Admitted jobs whose template has another size.
    pub(super) resizing: BTreeSet<JobKey>,
    /// Jobs that may be evicted, and terminating jobs.
    pub(super) preemptible: PreemptibleIndex,
    /// What came up for which jobs of a queue may have others evicted.
    pub(super) queue_causes: QueueCauses,
    /// Jobs that were stopped at a limit of run time.
    pub(super) stopped: BTreeSet<JobKey>,
    /// Starting jobs with pods that fit on no node of their cluster.
    pub(super) stranded: BTreeSet<JobKey>,
    /// True if elastic jobs have to try to scale up, since capacity may be free.
    scale_up_due: bool,
    /// True if admitted jobs have to be checked for queues and clusters that are being drained.
    drain_due: bool,
}

impl Jobs {
    pub(crate) fn get(&self, key: &JobKey) -> Option<&Job> {
        self.by_key.get(key).map(Box::as_ref)
    }

    /// All jobs, in no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&JobKey, &Job)> {
        self.by_key.iter().map(|(key, job)| (key, job.as_ref()))
    }

    /// All jobs with an admission, those that end or have ended too. What this costs does not depend on the number of
    /// pending jobs.
    pub(crate) fn admitted(&self) -> impl Iterator<Item = (&JobKey, &Job)> {
        let keys = self.admitted.iter();
        keys.filter_map(|key| Some((key, self.get(key)?)))
    }

    /// The state of an admitted job.
    pub(crate) fn released(&self, key: &JobKey) -> Option<&Released> {
        self.get(key)?.released.as_deref()
    }

    /// The demand of a job, if it is known.
    pub(crate) fn demand_of(&self, key: &JobKey) -> Option<&Arc<Demand>> {
        self.get(key)?.demand.as_ref()
    }

    /// The entry of a pending job.
    pub(crate) fn line_of(&self, key: &JobKey) -> Option<&PendingEntry> {
        self.get(key)?.derived.line.as_ref()
    }

    /// The charge of a job, and the queue that is charged.
    pub(crate) fn charge_of(&self, key: &JobKey) -> Option<&(QueueName, Arc<Pools>)> {
        self.get(key)?.derived.has.charge.as_ref()
    }

    /// Jobs that may be evicted, and terminating jobs.
    pub(crate) fn preemptible(&self) -> &PreemptibleIndex {
        &self.preemptible
    }

    /// Admitted jobs whose template has another size.
    pub(crate) fn resizing(&self) -> &BTreeSet<JobKey> {
        &self.resizing
    }

    /// Queued jobs that are not pending.
    pub(crate) fn not_pending(&self) -> &BTreeSet<JobKey> {
        &self.not_pending
    }

    /// Returns what other rules may have put out of step.
    pub(crate) fn unsynced(&self) -> &Unsynced {
        &self.unsynced
    }

    /// The same, to note or to take some.
    pub(crate) fn unsynced_mut(&mut self) -> &mut Unsynced {
        &mut self.unsynced
    }

    /// Jobs that were stopped at a limit of run time.
    pub(crate) fn stopped(&self) -> &BTreeSet<JobKey> {
        &self.stopped
    }

    /// The next time at which a job has to be checked although no event came.
    pub(crate) fn next_timer(&self) -> Option<Time> {
        self.timers.first()
    }

    /// Takes the first timer that is due at `now`, and returns its job.
    pub(crate) fn take_timer(&mut self, now: Time) -> Option<JobKey> {
        self.timers.take_due(now)
    }

    /// When a job has to be checked again although no event came.
    pub(crate) fn timer_of(&self, key: &JobKey) -> Option<Time> {
        self.timers.of(key)
    }

    /// Sets when a job has to be checked again. Returns whether that is another time than before.
    pub(crate) fn set_timer(&mut self, key: &JobKey, at: Option<Time>) -> bool {
        self.timers.set(key, at)
    }

    /// When the first expected end has to be estimated again, which is at that end.
    pub(crate) fn next_end(&self) -> Option<Time> {
        self.ends.first().map(|(at, _)| *at)
    }

    /// The job with the first expected end, if that has passed at `now`.
    pub(crate) fn first_past_end(&self, now: Time) -> Option<JobKey> {
        let (_, key) = self.ends.first().filter(|(at, _)| *at <= now)?;
        Some(key.clone())
    }

    /// Notes that the expected end of a charged job has moved.
    pub(crate) fn note_moved_end(&mut self, key: &JobKey) {
        self.moved_ends.insert(key.clone());
    }

    /// Pending and charged jobs of which no run time is known, in order of name.
    pub(crate) fn unpredicted(&self) -> &BTreeSet<JobKey> {
        &self.unpredicted
    }

    /// The jobs that were noted since the last call.
    pub(crate) fn take_moved_ends(&mut self) -> BTreeSet<JobKey> {
        std::mem::take(&mut self.moved_ends)
    }

    /// The expected ends after `now`, in order.
    pub(crate) fn ends_after(&self, now: Time) -> impl Iterator<Item = (Time, &JobKey)> {
        self.ends.after(now)
    }

    /// The same name, with a shared text.
    pub(crate) fn share_queue(&mut self, name: &QueueName) -> QueueName {
        self.names.share_queue(name)
    }

    /// Adds a job from a snapshot.
    pub(crate) fn restore(&mut self, key: JobKey, job: Job) {
        self.by_key.insert(key, Box::new(job));
    }

    /// Forgets a job. Returns the entries that it had in the indexes.
    pub(crate) fn remove(&mut self, key: &JobKey) -> Option<Derived> {
        self.job_mut(key)?.released = None;
        self.job_mut(key)?
            .cold
            .change(|cold| cold.stopped_after = None);
        self.timers.set(key, None);
        let was = self.sync(key, Derived::default());
        self.not_pending.remove(key);
        self.by_key.remove(key);
        was
    }

    /// Updates the indexes after a change of a job, and returns its earlier entries.
    pub(crate) fn sync(&mut self, key: &JobKey, now: Derived) -> Option<Derived> {
        let job = self.by_key.get_mut(key)?;
        let was = std::mem::replace(&mut job.derived, now);
        let (job, now) = (&*job, &job.derived);
        let until = |derived: &Derived| derived.has.expected_end;
        self.ends.change(key, until(&was), until(now));
        self.preemptible
            .set(key, was.has.held.as_ref(), job.preemptible_entry());
        self.preemptible.set_terminating(key, job.is_terminating());
        put(&mut self.unpredicted, key, job.is_unpredicted());
        put(&mut self.admitted, key, job.released.is_some());
        put(&mut self.not_pending, key, job.is_queued_not_pending());
        put(&mut self.stopped, key, job.is_stopped());
        put(&mut self.stranded, key, job.is_stranded());
        self.scale_up_due |= put(&mut self.resizing, key, job.asks_other_size());
        Some(was)
    }

    /// A job that a test of an audit may break.
    #[cfg(test)]
    pub(crate) fn corrupt(&mut self, key: &JobKey) -> Option<&mut Job> {
        self.job_mut(key)
    }

    pub(super) fn job_mut(&mut self, key: &JobKey) -> Option<&mut Job> {
        self.by_key.get_mut(key).map(Box::as_mut)
    }

    pub(super) fn released_mut(&mut self, key: &JobKey) -> Option<&mut Released> {
        self.job_mut(key)?.released.as_deref_mut()
    }

    pub(super) fn get_or_insert(&mut self, key: &JobKey, new: impl FnOnce() -> Job) -> &mut Job {
        self.by_key.get_or_insert(key.clone(), || Box::new(new()))
    }

    /// Makes elastic jobs try to scale up, since capacity may be free. Those that cannot do not wait: all
    /// are tried once in the next call, after the pending jobs.
    pub(crate) fn retry_scale_up(&mut self) {
        self.scale_up_due = true;
    }

    /// Returns true if elastic jobs have to try to scale up. The caller makes them try.
    pub(crate) fn take_scale_up_due(&mut self) -> bool {
        std::mem::take(&mut self.scale_up_due)
    }

    /// Makes admitted jobs be checked for queues and clusters that are being drained.
    pub(crate) fn recheck_drains(&mut self) {
        self.drain_due = true;
    }

    /// Returns true if admitted jobs have to be checked for queues and clusters that are being drained. The
    /// caller checks them.
    pub(crate) fn take_drains_due(&mut self) -> bool {
        std::mem::take(&mut self.drain_due)
    }
}

/// Adds a key to a set, or removes it. Whether it was added.
fn put(set: &mut BTreeSet<JobKey>, key: &JobKey, belongs: bool) -> bool {
    if belongs {
        // Mostly it is there already, and need not be cloned.
        !set.contains(key) && set.insert(key.clone())
    } else {
        set.remove(key);
        false
    }
}

/// Priority classes.
impl Jobs {
    pub(crate) fn priority_class(&self, name: &str) -> Option<&PriorityClassFact> {
        self.priority_classes.get(name)
    }

    /// All priority classes, in order of name.
    pub(crate) fn priority_classes(&self) -> impl Iterator<Item = &PriorityClassFact> {
        self.priority_classes.values()
    }

    /// Sets or removes a priority class.
    pub(crate) fn observe_priority_class(&mut self, name: &str, fact: Option<PriorityClassFact>) {
        match fact {
            Some(fact) => self.priority_classes.insert(name.to_owned(), fact),
            None => self.priority_classes.remove(name),
        };
    }

    /// The value of the priority class that a job names, or of the global default; `None` if it
    /// names one that does not exist.
    pub(crate) fn priority_of(&self, job: &Job) -> Option<i32> {
        match &job.priority_class {
            Some(name) => Some(self.priority_class(name)?.value),
            // As Kubernetes does, the lowest value counts if there are several defaults.
            None => Some(self.default_class().map_or(0, |class| class.value)),
        }
    }

    /// Returns true if the priority class of a job lets it preempt.
    pub(crate) fn preempts(&self, job: &Job) -> bool {
        let class = match &job.priority_class {
            Some(name) => self.priority_class(name),
            None => self.default_class(),
        };
        class.is_none_or(|class| class.preempts)
    }

    fn default_class(&self) -> Option<&PriorityClassFact> {
        self.priority_classes()
            .filter(|class| class.global_default)
            .min_by_key(|class| class.value)
    }

    /// The queue and priority by which a job is listed as preemptible, if it is admitted and
    /// neither ending nor over.
    pub(crate) fn preemptible_as(&self, job: &Job) -> Option<(QueueName, i32)> {
        let released = job.released.as_ref().filter(|released| released.alive())?;
        let priority = self.priority_of(job).unwrap_or_default();
        Some((released.admission.queue.clone(), priority))
    }
}
