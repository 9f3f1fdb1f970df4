//! Transitions of jobs by decisions: admitted, evicted, queued again, stopped.

use crate::api::job::PredictedRunTime;
use crate::config::EngineConfig;
use crate::jobs::job::{Cause, Released};
use crate::jobs::store::Jobs;
use facts::{Admission, Attempt, ClusterName, Demand, JobKey, Progress, Share, Time};
use std::collections::BTreeSet;
use std::sync::Arc;

impl Jobs {
    /// Admits a pending job. `expected_ms` is its expected run time, if it declares none. Returns
    /// the admission and its demand.
    pub(crate) fn admit(
        &mut self,
        key: &JobKey,
        shares: Vec<Share>,
        expected_ms: Option<i64>,
        now: Time,
    ) -> Option<(Admission, Arc<Demand>)> {
        let job = self.job_mut(key)?;
        let demand = Arc::clone(job.demand.as_ref()?);
        job.attempt = Attempt(job.attempt.0.saturating_add(1));
        job.cold.change(|cold| cold.back_off_until = None);
        let admission = Admission {
            uid: job.uid.clone(),
            attempt: job.attempt,
            queue: job.queue.clone(),
            admitted_at: now,
            declared_ms: job.duration,
            shares,
        };
        job.released = Some(Box::new(Released {
            basis: Some(Arc::clone(&demand)),
            placed: true,
            expected_ms,
            ..Released::new(admission.clone(), Progress::Assumed)
        }));
        if !self.resizing.is_empty() {
            // Jobs that were shrunk for it may scale up again.
            self.retry_scale_up();
        }
        Some((admission, demand))
    }

    /// Notes how long an admitted job is expected to run in all, in milliseconds.
    pub(crate) fn expect(&mut self, key: &JobKey, expected_ms: i64) {
        if let Some(released) = self.released_mut(key) {
            released.expected_ms = Some(expected_ms);
        }
    }

    /// Begins to evict an admitted job, which stays charged. Whether it was not being evicted yet.
    pub(crate) fn begin_eviction(
        &mut self,
        key: &JobKey,
        cause: Cause,
        avoid: Option<ClusterName>,
    ) -> bool {
        let Some(released) = self.released_mut(key) else {
            return false;
        };
        if released.progress == Progress::Ending {
            return false;
        }
        released.progress = Progress::Ending;
        released.ending = Some((cause, avoid));
        true
    }

    /// Returns until when an admitted job would wait if it were queued again at `at`; `None` if it would wait for no
    /// back-off.
    pub(crate) fn requeued_until(
        &self,
        key: &JobKey,
        at: Time,
        config: &EngineConfig,
    ) -> Option<Time> {
        let job = self.get(key)?;
        let released = job.released.as_ref()?;
        let cause = released.ending.as_ref().map(|(cause, _)| cause);
        let failed = cause.is_none_or(Cause::is_failure) && released.admission.uid == job.uid;
        failed.then(|| at.after(back_off(config, job.cold.failures.saturating_add(1))))
    }

    /// Queues an admitted job again whose Works are gone, with a back-off if its attempt failed.
    pub(crate) fn requeue(
        &mut self,
        key: &JobKey,
        cause: Option<Cause>,
        avoid: Option<ClusterName>,
        at: Time,
        config: &EngineConfig,
    ) {
        let Some(job) = self.job_mut(key) else {
            return;
        };
        let released = job.released.take();
        let gives_way = cause.as_ref().is_some_and(Cause::is_for_another);
        if !gives_way {
            job.cold.change(|cold| cold.renew(at));
        }
        if released.is_some_and(|released| released.admission.uid != job.uid) {
            // An earlier object with this name has ended.
            job.attempt = Attempt::default();
            job.cold.change(|cold| {
                cold.failures = 0;
                cold.stopped_after = None;
            });
        } else if cause.as_ref().is_some_and(|cause| !cause.is_failure()) {
            job.cold.change(|cold| cold.last = cause);
        } else {
            job.cold.change(|cold| {
                cold.failures = cold.failures.saturating_add(1);
                let back_off = back_off(config, cold.failures);
                let until = at.after(back_off);
                cold.back_off_until = Some(until);
                cold.last = cause;
                if let Some(cluster) = avoid {
                    let extra = config.avoid_extra_ms.max(back_off);
                    cold.avoid.insert(cluster, until.after(extra));
                }
            });
        }
    }

    /// Queues an admitted job again whose attempt did not happen: its number is used again, and it is no failure.
    /// The pause is a quarter of the shortest back-off.
    pub(crate) fn withdraw(&mut self, key: &JobKey, at: Time, config: &EngineConfig) {
        let Some(job) = self.job_mut(key) else {
            return;
        };
        job.released = None;
        job.attempt = Attempt(job.attempt.0.saturating_sub(1));
        let until = at.after(config.backoff_base_ms / 4);
        job.cold.change(|cold| cold.back_off_until = Some(until));
    }

    /// Ends the back-off of a queued job and its avoidance of clusters, if they are over at `now`.
    pub(crate) fn end_back_off(&mut self, key: &JobKey, now: Time) {
        if let Some(job) = self.job_mut(key) {
            job.cold.change(|cold| {
                if cold.back_off_until.is_some_and(|until| until <= now) {
                    cold.back_off_until = None;
                    cold.renew(now);
                }
                cold.avoid.retain(|_, until| *until > now);
            });
        }
    }

    /// Notes how many steps of ageing a job has waited.
    pub(crate) fn set_age(&mut self, key: &JobKey, age: u32) {
        if let Some(job) = self.job_mut(key)
            && job.cold.age != age
        {
            job.cold.change(|cold| cold.age = age);
        }
    }

    /// Notes that a job was stopped at its queue's limit after `ran_ms` milliseconds.
    pub(crate) fn stop(&mut self, key: &JobKey, ran_ms: i64) {
        if let Some(job) = self.job_mut(key) {
            job.cold.change(|cold| cold.stopped_after = Some(ran_ms));
        }
    }

    /// Notes that the unbound pods of a job are assumed no longer.
    pub(crate) fn release_assumed(&mut self, key: &JobKey) {
        if let Some(released) = self.released_mut(key) {
            released.placed = false;
        }
    }

    /// Sets the predicted run time, by which a pending job is ordered and backfilled.
    pub(crate) fn set_forecast(&mut self, key: &JobKey, forecast: PredictedRunTime) {
        if let Some(job) = self.job_mut(key) {
            job.forecast = Some(forecast);
        }
    }

    /// Forgets that nothing was known of the run time of a pending job, so that it is predicted again.
    pub(crate) fn forget_forecast(&mut self, key: &JobKey) {
        if let Some(job) = self.job_mut(key) {
            job.forecast = job
                .forecast
                .filter(|known| *known != PredictedRunTime::default());
        }
    }

    /// Updates which admitted jobs have pods that fit on no node of a cluster (`lost`), and since
    /// when. Returns all jobs that may have changed.
    pub(crate) fn set_stranded(
        &mut self,
        lost: impl IntoIterator<Item = (JobKey, ClusterName)>,
        now: Time,
    ) -> BTreeSet<JobKey> {
        let mut concerned = self.stranded.clone();
        let mut stranded = BTreeSet::new();
        for (key, cluster) in lost {
            let released = self.released_mut(&key);
            let Some(released) = released.filter(|released| released.lacks_pods()) else {
                continue;
            };
            if stranded.insert(key) {
                let known = released.room_lost.take();
                let known = known.filter(|(_, known)| *known == cluster);
                released.room_lost = known.or(Some((now, cluster)));
            }
        }
        for key in concerned.difference(&stranded) {
            if let Some(released) = self.released_mut(key) {
                released.room_lost = None;
            }
        }
        concerned.append(&mut stranded);
        concerned
    }
}

/// The back-off in milliseconds after `failures` failures in a row.
fn back_off(config: &EngineConfig, failures: u32) -> i64 {
    let doublings = failures.saturating_sub(1).min(32);
    config
        .backoff_base_ms
        .saturating_mul(1_i64 << doublings)
        .min(config.backoff_max_ms)
}
