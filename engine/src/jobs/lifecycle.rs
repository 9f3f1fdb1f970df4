//! What happens to a job, carried through all stores: observed, admitted, resized, evicted, queued
//! again.
//!
//! The job store changes the job; capacity that is assumed for its pods follows; and `settle`
//! brings its charge, its counts and its place among pending jobs in step.

use super::excess::Excess;
use super::job::{Cause, Job};
use super::observe::{ObservedAdmission, ObservedProgress};
use super::resize::Edited;
use super::terminating::Cut;
use crate::api::decision::Decision;
use crate::api::event::Progress;
use crate::api::facts::{Admission, JobFact, Leaving, Share};
use crate::api::ids::{Attempt, ClusterName, JobKey, Time, Uid};
use crate::api::reason::Reason;
use crate::engine::Engine;
use crate::forecast::{Prediction, Runner};

/// Why what an earlier object of a job's name holds is evicted.
const REPLACED: &str = "another object of this name took its place";

/// What becomes known.
impl Engine {
    pub(crate) fn observe_job(&mut self, fact: JobFact) {
        let demand = fact.hold.is_none().then(|| {
            self.note_submitted(&fact.key, &fact.demand);
            self.pending.shapes.intern_demand(&fact.demand)
        });
        let observed = self.jobs.observe(fact, demand);
        let key = &observed.key;
        if observed.preemptible_changed {
            self.pending.backoff.moved();
        }
        if observed.replaced {
            self.begin_eviction(key, Reason::Deleting, REPLACED, None);
        }
        if observed.gated {
            self.jobs.note_given_up(key);
        }
        let intern = |demand: &_| self.pending.shapes.intern_demand(demand);
        match self.jobs.compare_template(key, intern) {
            Some(Edited::Requests(demand)) => self.capacity.room.add_seats(key, &demand, None),
            Some(Edited::Pods(demand, shares)) => {
                self.capacity.room.assume_seats(key, demand, &shares);
            }
            None => {}
        }
        self.settle_record(key);
    }

    pub(crate) fn observe_admission(
        &mut self,
        key: &JobKey,
        admission: Admission,
        progress: Progress,
    ) {
        let attempt = admission.attempt;
        match self.jobs.observe_admission(key, admission, progress) {
            ObservedAdmission::Outdated => return,
            ObservedAdmission::Known => {
                return self.observe_progress(key, attempt, progress, self.now);
            }
            ObservedAdmission::New => self.capacity.room.forget(key),
            ObservedAdmission::Replaced => {
                self.capacity.room.forget(key);
                self.begin_eviction(key, Reason::Deleting, REPLACED, None);
            }
        }
        self.settle_record(key);
    }

    /// Holds capacity for the pods of an admission read back that are not bound yet, and brings
    /// what is derived of the job in step.
    fn settle_record(&mut self, key: &JobKey) {
        if let Some((demand, shares)) = self.jobs.take_unseated(key) {
            self.capacity.room.assume_seats(key, demand, &shares);
        }
        self.settle(key);
        self.note_drain(key);
    }

    pub(crate) fn observe_progress(
        &mut self,
        key: &JobKey,
        attempt: Attempt,
        progress: Progress,
        at: Time,
    ) {
        self.advance(at);
        match self.jobs.observe_progress(key, attempt, progress, at) {
            ObservedProgress::Known => return,
            ObservedProgress::Evicted => {
                return self.begin_eviction(key, Reason::Evicted, "it is being evicted", None);
            }
            ObservedProgress::Placed => {}
            ObservedProgress::Running => self.pending.backoff.moved(),
            ObservedProgress::Finished => self.add_run(key, at),
        }
        self.settle(key);
    }

    /// Adds the run of a job that has ended to the forecast.
    fn add_run(&mut self, key: &JobKey, at: Time) {
        let (Some(job), Some(released)) = (self.jobs.get(key), self.jobs.released(key)) else {
            return;
        };
        let demand = released.basis.as_deref().or(job.demand.as_deref());
        let Some(demand) = demand else { return };
        let millis = at.millis_since(released.begun());
        let runner = Runner::new(&released.admission.queue, &job.user, demand);
        self.forecast.add(&runner, millis);
    }

    /// An attempt was refused before anything of it was written.
    pub(crate) fn observe_refusal(
        &mut self,
        key: &JobKey,
        attempt: Attempt,
        cause: Cause,
        avoid: Option<ClusterName>,
        at: Time,
    ) {
        self.advance(at);
        // Of a job that was seen placed something was written: what is refused is a resize,
        // and the charge stays.
        let open = self.jobs.released(key).is_some_and(|released| {
            released.admission.attempt == attempt && released.progress == Progress::Assumed
        });
        if open {
            self.requeue(key, Some(cause), avoid, at);
        }
    }

    /// Nothing of a job is left in any cluster.
    pub(crate) fn observe_works_gone(&mut self, key: &JobKey, at: Time) {
        self.advance(at);
        let released = self.jobs.released(key);
        let Some(released) = released.filter(|r| r.progress == Progress::Ending) else {
            return;
        };
        let (cause, avoid) = released.ending.clone().unzip();
        self.requeue(key, cause, avoid.flatten(), at);
    }

    /// An earlier process has told pods of a job to go.
    pub(crate) fn observe_terminating(
        &mut self,
        key: &JobKey,
        attempt: Attempt,
        leaving: Vec<Leaving>,
    ) {
        if self.jobs.observe_terminating(key, attempt, leaving) {
            self.settle(key);
        }
    }

    /// Fewer pods of a job can be in a cluster than were told to go: the charge of the rest is
    /// released.
    pub(crate) fn confirm_gone(
        &mut self,
        key: &JobKey,
        attempt: Attempt,
        cluster: &ClusterName,
        pods: u32,
        at: Time,
    ) {
        self.advance(at);
        let Some(may_be) = self.jobs.confirm_gone(key, attempt, cluster, pods) else {
            return;
        };
        self.capacity.room.trim_seats(key, cluster, &may_be);
        let all_gone = self.leaving(key).is_empty();
        self.settle(key);
        if all_gone {
            self.victim_gone(key);
        }
        self.note_touched();
    }

    /// A job is told to run more than was admitted.
    pub(crate) fn observe_excess(&mut self, key: &JobKey, attempt: Attempt, excess: Excess) {
        if self.jobs.observe_excess(key, attempt, excess) {
            self.settle(key);
            self.note_touched();
        }
    }

    /// A job was found stopped, by its record.
    pub(crate) fn observe_stopped(&mut self, key: &JobKey, uid: &Uid, ran_ms: i64) {
        if self.jobs.observe_stopped(key, uid, ran_ms) {
            self.sync_indexes(key);
        }
    }
}

/// What is decided.
impl Engine {
    /// How long a job is expected to run: as it declares, else by the runs most like it; no
    /// longer than its queue lets it. `None` if nothing is known.
    pub(crate) fn predict(&self, job: &Job) -> Option<Prediction> {
        let (demand, queue) = (job.demand.as_deref()?, job.queue_now());
        let known = || {
            self.forecast
                .predict(&Runner::new(queue, &job.user, demand))
        };
        let prediction = job.duration.map(Prediction::declared).or_else(known)?;
        let limit = self.quota.runtime_limit(queue);
        Some(limit.map_or(prediction, |(limit, _)| prediction.at_most(limit)))
    }

    /// Admits a pending job with a plan.
    pub(crate) fn release(&mut self, key: &JobKey, shares: Vec<Share>) -> Option<Decision> {
        let job = self.jobs.get(key)?;
        let expected = self.predict(job).filter(|_| job.duration.is_none());
        let expected_ms = expected.map(|prediction| prediction.high);
        let (admission, demand) = self.jobs.admit(key, shares, expected_ms, self.now)?;
        let message = released_message(&admission);
        self.capacity
            .room
            .assume_seats(key, demand, &admission.shares);
        let intern = |demand: &_| self.pending.shapes.intern_demand(demand);
        self.jobs.rebase(key, intern);
        self.settle(key);
        Some(Decision::Release {
            key: key.clone(),
            admission,
            message,
        })
    }

    /// Adds pods to a released job that waits for them.
    pub(crate) fn scale_up(&mut self, key: &JobKey, more: &Share) -> Option<Decision> {
        let intern = |demand: &_| self.pending.shapes.intern_demand(demand);
        let (admission, demand) = self.jobs.scale_up(key, more, intern)?;
        self.capacity.room.add_seats(key, &demand, Some(more));
        self.settle(key);
        self.note_touched();
        Some(Decision::Resize {
            key: key.clone(),
            admission,
            for_job: None,
            message: format!("grows by {} pods on {}", more.replicas(), more.cluster),
        })
    }

    /// Makes a released job smaller. Nothing where it has none of those pods.
    pub(crate) fn shrink(
        &mut self,
        key: &JobKey,
        cuts: &[Cut],
        for_job: Option<&JobKey>,
        why: &str,
    ) -> Option<Decision> {
        let intern = |demand: &_| self.pending.shapes.intern_demand(demand);
        let (admission, pods) = self.jobs.shrink(key, cuts, for_job, intern)?;
        self.settle(key);
        Some(Decision::Resize {
            key: key.clone(),
            admission,
            for_job: for_job.cloned(),
            message: format!("shrinks by {pods} pods{why}"),
        })
    }

    /// Evicts a job for a reason of its own.
    pub(crate) fn evict(
        &mut self,
        key: &JobKey,
        reason: Reason,
        message: &str,
        avoid: Option<ClusterName>,
    ) -> Option<Decision> {
        let attempt = self.jobs.get(key)?.attempt;
        self.begin_eviction(key, reason, message, avoid);
        Some(Decision::Evict {
            key: key.clone(),
            attempt,
            reason,
            for_job: None,
            message: message.to_owned(),
        })
    }

    /// Begins to evict a released job. What was charged stays charged.
    pub(crate) fn begin_eviction(
        &mut self,
        key: &JobKey,
        reason: Reason,
        message: &str,
        avoid: Option<ClusterName>,
    ) {
        let message = message.to_owned();
        if self
            .jobs
            .begin_eviction(key, Cause { reason, message }, avoid)
        {
            self.settle(key);
        }
    }

    /// Queues a job again of which nothing is left.
    fn requeue(
        &mut self,
        key: &JobKey,
        cause: Option<Cause>,
        avoid: Option<ClusterName>,
        at: Time,
    ) {
        self.capacity.room.forget(key);
        self.jobs.requeue(key, cause, avoid, at, &self.config);
        self.settle(key);
    }

    /// Brings all that follows from a job in step with it.
    fn settle(&mut self, key: &JobKey) {
        let Some(job) = self.jobs.get(key) else {
            return;
        };
        let released = job.released.as_deref();
        if released.is_none_or(|released| !released.charged()) {
            self.capacity.room.forget(key);
        }
        self.sync_indexes(key);
    }
}

fn released_message(admission: &Admission) -> String {
    let parts: Vec<String> = admission
        .shares
        .iter()
        .map(|share| {
            let pods = share.replicas();
            let plural = if pods == 1 { "" } else { "s" };
            format!("{pods} pod{plural} on {}", share.cluster)
        })
        .collect();
    let charge = admission.charge().unwrap_or_default();
    format!(
        "queue {}: {}; charged {charge}",
        admission.queue,
        parts.join(", ")
    )
}
