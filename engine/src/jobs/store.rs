//! The job store: every job, and indexes over jobs.
//!
//! What becomes known of a job and what is decided about it flow in through methods that say what
//! happened (`observe.rs`, `transitions.rs`, `resize.rs`); [`Jobs::sync`] then brings the
//! indexes in step with the job. Others read jobs and change none. The store must know no other
//! store: what a change means for quota, capacity and pending jobs is up to its callers.

use crate::amounts::hashed::Hashed;
use crate::api::charge::Pools;
use crate::api::demand::Demand;
use crate::api::facts::PriorityClassFact;
use crate::api::ids::{JobKey, QueueName, Time};
use crate::api::job::JobState;
use crate::jobs::job::{Derived, Job, PendingEntry, Released};
use crate::jobs::names::Names;
use crate::jobs::preemptible_index::PreemptibleIndex;
use crate::jobs::timers::Timers;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// All jobs, and indexes over them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Jobs {
    /// Boxed, so that the map's free places stay small.
    by_key: Hashed<JobKey, Box<Job>>,
    /// Texts that many jobs are named by.
    pub(super) names: Names,
    /// Priority classes by name.
    priority_classes: BTreeMap<String, PriorityClassFact>,
    /// When to look at a job again although no event came.
    pub(super) timers: Timers,
    /// Until when the expected end of each charged job holds.
    pub(super) ends: Timers,
    /// Released jobs that ask for another size than they have.
    pub(super) resizing: BTreeSet<JobKey>,
    /// Jobs that may be evicted, by queue and priority.
    pub(super) preemptible: PreemptibleIndex,
    /// Jobs that were stopped for a limit of run time.
    pub(super) stopped: BTreeSet<JobKey>,
    /// Jobs that wait for nodes for pods that have lost theirs.
    pub(super) stranded: BTreeSet<JobKey>,
    /// Whether something came free since elastic jobs last tried to scale up.
    scale_up_due: bool,
    /// Whether some job may have to leave its cluster.
    drain_due: bool,
}

impl Jobs {
    /// A job.
    pub(crate) fn get(&self, key: &JobKey) -> Option<&Job> {
        self.by_key.get(key).map(Box::as_ref)
    }

    /// Every job, in no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&JobKey, &Job)> {
        self.by_key.iter().map(|(key, job)| (key, job.as_ref()))
    }

    /// What a released job has.
    pub(crate) fn released(&self, key: &JobKey) -> Option<&Released> {
        self.get(key)?.released.as_deref()
    }

    /// What a job asks for, if that is known.
    pub(crate) fn demand_of(&self, key: &JobKey) -> Option<&Arc<Demand>> {
        self.get(key)?.demand.as_ref()
    }

    /// Where a job stands while it is pending.
    pub(crate) fn line_of(&self, key: &JobKey) -> Option<&PendingEntry> {
        self.get(key)?.derived.line.as_ref()
    }

    /// What is charged for a job, and to which queue.
    pub(crate) fn charge_of(&self, key: &JobKey) -> Option<&(QueueName, Arc<Pools>)> {
        self.get(key)?.derived.has.charge.as_ref()
    }

    /// Jobs that may be evicted, by queue and priority; and those that are terminating.
    pub(crate) fn preemptible(&self) -> &PreemptibleIndex {
        &self.preemptible
    }

    /// Released jobs that ask for another size than they have.
    pub(crate) fn resizing(&self) -> &BTreeSet<JobKey> {
        &self.resizing
    }

    /// Jobs that were stopped for a limit of run time.
    pub(crate) fn stopped(&self) -> &BTreeSet<JobKey> {
        &self.stopped
    }

    /// When to look at a job again although no event came.
    pub(crate) fn next_timer(&self) -> Option<Time> {
        self.timers.first()
    }

    /// The job whose timer came first, if it has come by `now`. The timer is unset.
    pub(crate) fn take_timer(&mut self, now: Time) -> Option<JobKey> {
        let (at, key) = self.timers.first_by(now)?;
        self.timers.change(&key, Some(at), None);
        if let Some(job) = self.by_key.get_mut(&key) {
            job.derived.timer = None;
        }
        Some(key)
    }

    /// When the first expected end has to be estimated again.
    pub(crate) fn next_end(&self) -> Option<Time> {
        self.ends.first()
    }

    /// The job whose expected end passed first, if it has by `now`.
    pub(crate) fn first_past_end(&self, now: Time) -> Option<JobKey> {
        Some(self.ends.first_by(now)?.1)
    }

    /// Expected ends after `now`, the first first.
    pub(crate) fn ends_after(&self, now: Time) -> impl Iterator<Item = (Time, &JobKey)> {
        self.ends.after(now)
    }

    /// The one copy of the name of a queue.
    pub(crate) fn share_queue(&mut self, name: &QueueName) -> QueueName {
        self.names.share_queue(name)
    }

    /// Adds a job as a snapshot has it.
    pub(crate) fn restore(&mut self, key: JobKey, job: Job) {
        self.by_key.insert(key, Box::new(job));
    }

    /// Forgets a job. What was derived of it.
    pub(crate) fn remove(&mut self, key: &JobKey) -> Option<Derived> {
        self.job_mut(key)?.released = None;
        self.job_mut(key)?
            .cold
            .change(|cold| cold.stopped_after = None);
        let was = self.sync(key, Derived::default());
        self.by_key.remove(key);
        was
    }

    /// Sets what is derived of a job, and brings the indexes in step with the job. What was
    /// derived before.
    pub(crate) fn sync(&mut self, key: &JobKey, now: Derived) -> Option<Derived> {
        let job = self.by_key.get_mut(key)?;
        let was = std::mem::replace(&mut job.derived, now);
        let (job, now) = (&*job, &job.derived);
        self.timers.change(key, was.timer, now.timer);
        let until = |derived: &Derived| derived.has.expected_end.map(|end| end.until);
        self.ends.change(key, until(&was), until(now));
        self.preemptible
            .set(key, was.has.held.as_ref(), now.has.held.as_ref());
        self.preemptible.set_terminating(key, job.is_terminating());
        put(&mut self.stopped, key, job.is_stopped());
        put(&mut self.stranded, key, job.is_stranded());
        self.scale_up_due |= put(&mut self.resizing, key, job.asks_other_size());
        Some(was)
    }

    /// A job to be broken, for tests of what finds that.
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
        let entry = self.by_key.entry(key.clone());
        entry.or_insert_with(|| Box::new(new()))
    }

    /// Has elastic jobs try to scale up: something may have come free.
    pub(crate) fn retry_scale_up(&mut self) {
        self.scale_up_due = true;
    }

    /// Whether elastic jobs should try to scale up; they are taken to do so.
    pub(crate) fn take_scale_up_due(&mut self) -> bool {
        std::mem::take(&mut self.scale_up_due)
    }

    /// Has the clusters of released jobs checked for taints that evict.
    pub(crate) fn recheck_taints(&mut self) {
        self.drain_due = true;
    }

    /// Whether the clusters of released jobs should be checked for taints that evict; they are
    /// taken to be.
    pub(crate) fn take_taints_due(&mut self) -> bool {
        std::mem::take(&mut self.drain_due)
    }
}

/// Puts a key into a set, or takes it out of it. Whether it is new there.
fn put(set: &mut BTreeSet<JobKey>, key: &JobKey, belongs: bool) -> bool {
    if belongs {
        // Most often it is there already.
        !set.contains(key) && set.insert(key.clone())
    } else {
        set.remove(key);
        false
    }
}

/// Priority classes.
impl Jobs {
    /// A priority class.
    pub(crate) fn priority_class(&self, name: &str) -> Option<&PriorityClassFact> {
        self.priority_classes.get(name)
    }

    /// All priority classes, in order of name.
    pub(crate) fn priority_classes(&self) -> impl Iterator<Item = &PriorityClassFact> {
        self.priority_classes.values()
    }

    /// Sets or forgets a priority class.
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
            // Kubernetes takes the smallest where several claim to be the default.
            None => Some(self.default_class().map_or(0, |class| class.value)),
        }
    }

    /// Whether a job's priority class lets it have other jobs evicted.
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

    /// The queue and priority by which a job is listed as preemptible, if it holds something that
    /// could be evicted.
    pub(crate) fn preemptible_as(&self, job: &Job) -> Option<(QueueName, i32)> {
        let holds = matches!(
            job.state(),
            JobState::Assumed | JobState::Placed | JobState::Running
        );
        let released = job.released.as_ref().filter(|_| holds)?;
        let priority = self.priority_of(job).unwrap_or_default();
        Some((released.admission.queue.clone(), priority))
    }
}
