//! Observations of jobs: their templates, their records, their progress.
//!
//! Each method applies one kind of fact and returns what has changed. The same fact a second time
//! changes nothing, and a fact of an older attempt is ignored.

use crate::amounts::rare::Rare;
use crate::api::decision::without_slots;
use crate::jobs::excess::Excess;
use crate::jobs::images::ImageList;
use crate::jobs::job::{ColdState, Derived, Job, Released};
use crate::jobs::store::Jobs;
use facts::{
    Admission, Attempt, Demand, JobFact, JobKey, Leaving, Progress, QueueName, Share, Time, Uid,
};
use std::sync::Arc;

/// The changes through an observed template.
#[derive(Debug)]
pub(crate) struct ObservedJob {
    pub(crate) key: JobKey,
    /// True if the admission of its name belongs to an earlier object, and has to be evicted.
    pub(crate) replaced: bool,
    /// True if it may no longer be evaluated.
    pub(crate) gated: bool,
    /// True if `preemptible` has changed.
    pub(crate) preemptible_changed: bool,
    /// True if a known job names another priority class.
    pub(crate) class_changed: bool,
    /// True if this object was not known before.
    pub(crate) is_new: bool,
    /// True if a person changed what a known job requests, its queue or its priority class, or ended its hold.
    pub(crate) renewed: bool,
}

/// The change through an observed admission record.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ObservedAdmission {
    /// None: a later attempt is known.
    Outdated,
    /// At most the progress: the admission is known.
    Known,
    /// A new admission of the current object.
    New,
    /// A new admission of an earlier object with the same name.
    Replaced,
}

/// The change through observed progress.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ObservedProgress {
    /// None.
    Known,
    /// It is being evicted.
    Evicted,
    /// It is placed.
    Placed,
    /// It runs.
    Running,
    /// It has ended.
    Finished,
}

impl Jobs {
    /// Observes the template of a job. `demand` is `None` for a job on hold, whose demand may not
    /// be known: then the earlier demand stays.
    pub(crate) fn observe(&mut self, fact: JobFact, demand: Option<Arc<Demand>>) -> ObservedJob {
        let key = self.names.share_key(&fact.key);
        let queue = self.names.share_queue(&fact.queue);
        let priority_class = fact.priority_class.as_deref();
        let priority_class = priority_class.map(|class| self.names.share(class));
        let user = self.names.share(&user_of(&fact.key, &fact.user));
        let images = ImageList::new(&fact.images, |text| self.names.share(text));
        let asks_other_size = self.resizing.contains(&key);
        let is_known = self.get(&key).is_some();
        let job = self.get_or_insert(&key, || {
            let queued_at = fact.queued_at;
            Job::bare(
                fact.uid.clone(),
                queue.clone(),
                Arc::clone(&user),
                queued_at,
            )
        });
        let gated = job.cold.hold.is_none() && fact.hold.is_some();
        let another = job.uid != fact.uid;
        let demand = demand.or_else(|| job.demand.clone());
        let duration = fact.expected_duration_ms.filter(|duration| *duration > 0);
        let other_pods = job.demand != demand;
        if another || other_pods || job.queue != queue || job.duration != duration {
            job.forecast = None;
        }
        let preemptible_changed = job.preemptible != fact.preemptible;
        let class_changed = is_known && job.priority_class != priority_class;
        let resumed = job.cold.hold.is_some() && fact.hold.is_none();
        let renewed = is_known && (other_pods || job.queue != queue || class_changed || resumed);
        job.uid = fact.uid;
        job.queue = queue;
        job.priority_class = priority_class;
        job.user = user;
        job.queued_at = fact.queued_at;
        job.cold.change(|cold| {
            cold.hold = fact.hold;
            cold.checkpointed_at = fact.checkpointed_at;
        });
        job.demand = demand;
        job.duration = duration;
        job.preemptible = fact.preemptible;
        job.images = images;
        let replaced = another && job.reset();
        if other_pods && asks_other_size {
            // The new pods may be smaller and fit.
            self.retry_scale_up();
        }
        ObservedJob {
            key,
            replaced,
            gated,
            preemptible_changed,
            class_changed,
            is_new: !is_known || another,
            renewed,
        }
    }

    /// Observes an admission record.
    pub(crate) fn observe_admission(
        &mut self,
        key: &JobKey,
        admission: Admission,
        progress: Progress,
    ) -> ObservedAdmission {
        let job = self.get_or_insert(key, || {
            let (uid, queue) = (admission.uid.clone(), admission.queue.clone());
            Job::bare(uid, queue, user_of(key, ""), admission.admitted_at)
        });
        let same_object = job.uid == admission.uid;
        if same_object && admission.attempt < job.attempt {
            return ObservedAdmission::Outdated;
        }
        let known = job.released.as_ref().map(|released| &released.admission);
        let known = known.filter(|known| same_object && known.attempt == admission.attempt);
        // The record of a known admission may differ in its slots only.
        if known.is_some_and(|k| without_slots(&k.shares) == without_slots(&admission.shares)) {
            return ObservedAdmission::Known;
        }
        job.attempt = admission.attempt;
        job.cold.change(|cold| {
            cold.failures = cold.failures.max(admission.attempt.0.saturating_sub(1));
            cold.back_off_until = None;
        });
        let basis = job.demand.clone();
        let basis = basis.filter(|_| same_object && job.cold.hold.is_none());
        job.released = Some(Box::new(Released {
            // Older versions did not write it.
            declared_ms: admission.declared_ms.or(job.duration),
            over: progress == Progress::Finished,
            basis,
            // The record does not say when it began to run.
            started_at: (progress == Progress::Running).then_some(admission.admitted_at),
            ..Released::new(admission, progress)
        }));
        if same_object {
            ObservedAdmission::New
        } else {
            ObservedAdmission::Replaced
        }
    }

    /// The demand and shares of an admission from a record whose pods are not assumed yet. Marks
    /// them as assumed: the caller assumes them.
    pub(crate) fn take_unassumed(&mut self, key: &JobKey) -> Option<(Arc<Demand>, Vec<Share>)> {
        let job = self.job_mut(key)?;
        let demand = job.demand.clone()?;
        let released = job.released.as_mut()?;
        if released.placed || !released.alive() || released.admission.uid != job.uid {
            return None;
        }
        released.basis.get_or_insert_with(|| Arc::clone(&demand));
        // If a gang runs already, its missing pods may never start.
        if released.progress == Progress::Running {
            return None;
        }
        released.placed = true;
        Some((demand, released.admission.shares.clone()))
    }

    /// Observes the progress of an attempt.
    pub(crate) fn observe_progress(
        &mut self,
        key: &JobKey,
        attempt: Attempt,
        progress: Progress,
        at: Time,
    ) -> ObservedProgress {
        let Some(job) = self.job_mut(key) else {
            return ObservedProgress::Known;
        };
        let released = job.released.as_mut();
        let Some(released) = released.filter(|r| r.admission.attempt == attempt) else {
            return ObservedProgress::Known;
        };
        let was = released.progress;
        let observed = match (was, progress) {
            // An eviction ends only when the Works are gone.
            (Progress::Ending, _) => return ObservedProgress::Known,
            (_, Progress::Ending) => return ObservedProgress::Evicted,
            (Progress::Assumed | Progress::Finished, Progress::Placed) => ObservedProgress::Placed,
            (_, Progress::Running) if was != progress => ObservedProgress::Running,
            (_, Progress::Finished) if was != progress => ObservedProgress::Finished,
            // Later progress is known already.
            _ => return ObservedProgress::Known,
        };
        released.progress = progress;
        released.over = progress == Progress::Finished;
        if observed == ObservedProgress::Running {
            released.started_at.get_or_insert(at);
            job.cold.change(|cold| {
                cold.failures = 0;
                cold.last = None;
            });
        }
        observed
    }

    /// Observes the record of a job that was stopped. Whether it belongs to the current object.
    pub(crate) fn observe_stopped(&mut self, key: &JobKey, uid: &Uid, ran_ms: i64) -> bool {
        let Some(job) = self.job_mut(key).filter(|job| job.uid == *uid) else {
            return false;
        };
        job.cold.change(|cold| cold.stopped_after = Some(ran_ms));
        true
    }

    /// Observes the pods of an attempt that terminate since an earlier process. Whether they are
    /// new.
    pub(crate) fn observe_terminating(
        &mut self,
        key: &JobKey,
        attempt: Attempt,
        leaving: Vec<Leaving>,
    ) -> bool {
        let Some(released) = self.attempt_mut(key, attempt) else {
            return false;
        };
        if !released.leaving.is_empty() {
            return false;
        }
        released.leaving = leaving;
        released.leaving.retain(|leaving| leaving.count > 0);
        true
    }

    /// Observes the excess of an attempt. Whether it has changed.
    pub(crate) fn observe_excess(
        &mut self,
        key: &JobKey,
        attempt: Attempt,
        mut excess: Excess,
    ) -> bool {
        excess.retain(|_, resources| !resources.is_empty());
        let Some(released) = self.attempt_mut(key, attempt) else {
            return false;
        };
        let new = released.excess != excess;
        released.excess = excess;
        new
    }

    pub(super) fn attempt_mut(&mut self, key: &JobKey, attempt: Attempt) -> Option<&mut Released> {
        let released = self.released_mut(key)?;
        (released.admission.attempt == attempt).then_some(released)
    }
}

impl Job {
    /// A job of which only this is known.
    fn bare(uid: Uid, queue: QueueName, user: Arc<str>, queued_at: Time) -> Self {
        Self {
            uid,
            queue,
            priority_class: None,
            user,
            queued_at,
            demand: None,
            duration: None,
            forecast: None,
            preemptible: true,
            images: ImageList::default(),
            attempt: Attempt::default(),
            cold: Rare::default(),
            released: None,
            derived: Derived::default(),
        }
    }

    /// Resets the job for a new object with its name. Whether the earlier object is still charged,
    /// until it is gone.
    fn reset(&mut self) -> bool {
        self.cold.change(ColdState::reset);
        let released = self.released.as_ref();
        let charged = released.is_some_and(|r| r.progress != Progress::Finished);
        if !charged {
            self.released = None;
            self.attempt = Attempt::default();
        }
        charged
    }
}

/// The user who submitted a job, or its namespace if that is not known.
fn user_of(key: &JobKey, user: &str) -> Arc<str> {
    if user.is_empty() {
        Arc::clone(&key.namespace)
    } else {
        Arc::from(user)
    }
}
