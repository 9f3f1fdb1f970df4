//! How a job changes hands: released, evicted, put in line again.
//!
//! The only places where a job's phase changes. Each ends by registering the job, so that
//! charge, counts and place in line follow.

use crate::api::decision::Decision;
use crate::api::event::Progress;
use crate::api::facts::{Admission, Share};
use crate::api::ids::{Attempt, ClusterName, JobKey, Time};
use crate::api::reason::Reason;
use crate::engine::Engine;
use crate::jobs::excess::Excess;
use crate::jobs::job::{Cause, Released};
use std::collections::BTreeSet;
use std::sync::Arc;

impl Engine {
    /// Releases a waiting job with a plan.
    pub(crate) fn release(&mut self, key: &JobKey, shares: Vec<Share>) -> Option<Decision> {
        let now = self.now;
        let job = self.jobs.by_key.get(key)?;
        let expected = self.predict(job).filter(|_| job.duration.is_none());
        let job = self.jobs.by_key.get_mut(key)?;
        let demand = Arc::clone(job.demand.as_ref()?);
        job.attempt = Attempt(job.attempt.0.saturating_add(1));
        job.cold.change(|known| known.back_off_until = None);
        let admission = Admission {
            uid: job.uid.clone(),
            attempt: job.attempt,
            queue: job.queue.clone(),
            admitted_at: now,
            declared_ms: job.duration,
            shares,
        };
        job.released = Some(Box::new(Released {
            admission: admission.clone(),
            progress: Progress::Assumed,
            over: false,
            basis: Some(Arc::clone(&demand)),
            granted: None,
            overgrown: false,
            seated: true,
            started_at: None,
            expected_ms: expected.map(|prediction| prediction.high),
            declared_ms: job.duration,
            leaving: Vec::new(),
            excess: Excess::new(),
            gave_to: BTreeSet::new(),
            room_lost: None,
            ending: None,
        }));
        let message = released_message(&admission);
        // Who was made smaller for it may grow again.
        self.jobs.scale_up_due |= !self.jobs.resizing.is_empty();
        self.capacity
            .room
            .assume_seats(key, demand, &admission.shares);
        self.rebase(key);
        self.settle_released(key);
        Some(Decision::Release {
            key: key.clone(),
            admission,
            message,
        })
    }

    /// Begins to take a released job back. What was charged stays charged.
    pub(crate) fn begin_ending(
        &mut self,
        key: &JobKey,
        reason: Reason,
        message: &str,
        avoid: Option<ClusterName>,
    ) {
        let Some(job) = self.jobs.by_key.get_mut(key) else {
            return;
        };
        let Some(released) = &mut job.released else {
            return;
        };
        if released.progress == Progress::Ending {
            return;
        }
        let cause = Cause {
            reason,
            message: message.to_owned(),
        };
        released.progress = Progress::Ending;
        released.ending = Some((cause, avoid));
        self.settle_released(key);
    }

    /// Nothing of a released job is left: it is queued again, after a back-off.
    pub(crate) fn requeue(
        &mut self,
        key: &JobKey,
        cause: Option<Cause>,
        avoid: Option<ClusterName>,
        at: Time,
    ) {
        self.capacity.room.forget(key);
        let Some(job) = self.jobs.by_key.get_mut(key) else {
            return;
        };
        let another = job
            .released
            .take()
            .is_some_and(|released| released.admission.uid != job.uid);
        if another {
            // What ended was an earlier object of this name.
            job.attempt = Attempt::default();
            job.cold.change(|known| {
                known.failures = 0;
                known.stopped_after = None;
            });
        } else if cause.as_ref().is_some_and(|cause| !cause.is_failure()) {
            // Nothing is wrong with it: it stands where it stood.
            job.cold.change(|known| known.last = cause);
        } else {
            let config = &self.config;
            job.cold.change(|known| {
                known.failures = known.failures.saturating_add(1);
                let back_off = back_off(config, known.failures);
                let until = at.after(back_off);
                known.back_off_until = Some(until);
                known.last = cause;
                if let Some(cluster) = avoid {
                    let extra = config.avoid_extra_ms.max(back_off);
                    known.avoid.insert(cluster, until.after(extra));
                }
            });
        }
        self.settle_released(key);
    }

    /// Brings the sets of released jobs to look at, and all else that is derived, up to date.
    pub(crate) fn settle_released(&mut self, key: &JobKey) {
        let Some(job) = self.jobs.by_key.get(key) else {
            return;
        };
        let released = job.released.as_deref();
        if released.is_none_or(|released| !released.charged()) {
            self.capacity.room.forget(key);
        }
        if released.is_none_or(|released| !released.starting()) {
            self.jobs.stranded.remove(key);
        }
        self.note_growth(key);
        self.register(key);
    }
}

/// The back-off after so many failures in a row.
pub(crate) fn back_off(config: &crate::config::EngineConfig, failures: u32) -> i64 {
    let doublings = failures.saturating_sub(1).min(32);
    config
        .backoff_base_ms
        .saturating_mul(1_i64 << doublings)
        .min(config.backoff_max_ms)
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
