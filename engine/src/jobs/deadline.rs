//! Times: back-offs, start deadlines, lost room, limits of run time. When they come, what is to be done.
//!
//! A job has at most one timer, for the next thing that may happen to it by time alone. What
//! is to be done is found from the job's state when the timer comes, so a timer that comes
//! too early or twice does no harm.

use crate::api::decision::Decision;
use crate::api::event::Progress;
use crate::api::facts::{Demand, Share};
use crate::api::ids::{ClusterName, JobKey, Time};
use crate::api::reason::Reason;
use crate::config::EngineConfig;
use crate::engine::Engine;
use crate::jobs::job::{Job, Released};
use crate::jobs::runtime::runtime_ends;
use crate::quota::queues::Queues;
use std::collections::BTreeSet;

/// When time alone may next change something about a job.
pub(crate) fn next_look(config: &EngineConfig, queues: &Queues, job: &Job) -> Option<Time> {
    let Some(released) = &job.released else {
        let ends = job
            .cold
            .back_off_until
            .into_iter()
            .chain(job.cold.avoid.values().copied());
        return ends.min();
    };
    if matches!(released.progress, Progress::Ending | Progress::Finished) {
        return None;
    }
    let lost = released.room_lost.as_ref().filter(|_| released.starting());
    let lost = lost.map(|(since, _)| since.after(config.room_lost_grace_ms));
    let deadline = released.seated.then(|| deadline(config, queues, released));
    let limit = runtime_ends(queues, released);
    lost.into_iter().chain(deadline).chain(limit).min()
}

fn deadline(config: &EngineConfig, queues: &Queues, released: &Released) -> Time {
    let policy = queues.policy(&released.admission.queue);
    let allowed = policy.map_or(config.start_deadline_ms, |policy| policy.start_deadline_ms);
    released.admission.admitted_at.after(allowed)
}

impl Engine {
    /// Handles every timer that has come, as far as the budget goes.
    pub(crate) fn run_timers(&mut self, decisions: &mut Vec<Decision>) {
        while let Some((at, key)) = self.jobs.timers.first().cloned() {
            if at > self.now || decisions.len() >= self.config.decision_budget {
                return;
            }
            self.jobs.timers.remove(&(at, key.clone()));
            if let Some(job) = self.jobs.by_key.get_mut(&key) {
                job.derived.timer = None;
            }
            decisions.extend(self.look(&key));
            self.register(&key);
        }
    }

    fn look(&mut self, key: &JobKey) -> Option<Decision> {
        let now = self.now;
        let job = self.jobs.by_key.get_mut(key)?;
        if job.released.is_none() {
            job.cold.change(|known| {
                known.back_off_until = known.back_off_until.filter(|until| *until > now);
                known.avoid.retain(|_, until| *until > now);
            });
            return None;
        }
        if let Some(lost) = self.room_is_lost(key) {
            return self.evict(key, Reason::RoomLost, &lost.1, Some(lost.0));
        }
        if let Some(stopped) = self.stop_overdue(key) {
            return Some(stopped);
        }
        let job = self.jobs.by_key.get(key)?;
        let released = job.released.as_deref()?;
        if !released.seated || deadline(&self.config, &self.quota, released) > now {
            return None;
        }
        let late = self.late_share(key, job);
        if let Some((cluster, message)) = late.filter(|_| released.starting()) {
            return self.evict(key, Reason::StartDeadlineExceeded, &message, Some(cluster));
        }
        // It has started, or never will be asked again: nothing more is held for it.
        self.capacity.room.forget(key);
        self.jobs.by_key.get_mut(key)?.released.as_mut()?.seated = false;
        None
    }

    fn room_is_lost(&self, key: &JobKey) -> Option<(ClusterName, String)> {
        let released = self.jobs.by_key.get(key)?.released.as_deref()?;
        let lost = released.room_lost.as_ref().filter(|_| released.starting());
        let (since, cluster) = lost?;
        let grace = self.config.room_lost_grace_ms;
        if since.after(grace) > self.now {
            return None;
        }
        let message = format!(
            "for {} s its pods that are not bound yet have fitted on no nodes of {cluster}",
            grace / 1000
        );
        Some((cluster.clone(), message))
    }

    /// The first part of a job of which too few pods are bound.
    fn late_share(&self, key: &JobKey, job: &Job) -> Option<(ClusterName, String)> {
        let released = job.released.as_deref()?;
        let demand = released.basis.as_deref()?;
        released.admission.shares.iter().find_map(|share| {
            let bound = self.capacity.room.bound_pods(key, &share.cluster);
            let least = least_of(demand, share);
            let after = self.now.millis_since(released.admission.admitted_at) / 1000;
            (bound < least).then(|| {
                let message = format!(
                    "{bound} of the {least} pods it needs on {} were bound {after} s after its release",
                    share.cluster
                );
                (share.cluster.clone(), message)
            })
        })
    }

    pub(crate) fn evict(
        &mut self,
        key: &JobKey,
        reason: Reason,
        message: &str,
        avoid: Option<ClusterName>,
    ) -> Option<Decision> {
        let attempt = self.jobs.by_key.get(key)?.attempt;
        self.begin_ending(key, reason, message, avoid);
        Some(Decision::Evict {
            key: key.clone(),
            attempt,
            reason,
            for_job: None,
            message: message.to_owned(),
        })
    }

    /// Gives released pods that lost their nodes other ones, and notes since when there are
    /// none for them.
    pub(crate) fn settle_room(&mut self) {
        let lost = self.capacity.room.settle();
        let now = self.now;
        let mut seen = BTreeSet::new();
        for (key, cluster) in lost {
            let usable = self
                .capacity
                .clusters
                .get(&cluster)
                .is_some_and(|fact| fact.usable);
            let Some(released) = self
                .jobs
                .by_key
                .get_mut(&key)
                .and_then(|job| job.released.as_mut())
            else {
                continue;
            };
            // What a cluster looks like that cannot be seen says nothing.
            if usable && released.starting() && seen.insert(key.clone()) {
                let known = released
                    .room_lost
                    .as_ref()
                    .is_some_and(|(_, lost)| *lost == cluster);
                if !known {
                    released.room_lost = Some((now, cluster));
                }
            }
        }
        for key in self.jobs.stranded.union(&seen).cloned().collect::<Vec<_>>() {
            if !seen.contains(&key)
                && let Some(released) = self
                    .jobs
                    .by_key
                    .get_mut(&key)
                    .and_then(|job| job.released.as_mut())
            {
                released.room_lost = None;
            }
            self.register(&key);
        }
        self.jobs.stranded = seen;
    }
}

/// Pods of a share that have to be bound: its part of the gang's minimum, rounded up.
fn least_of(demand: &Demand, share: &Share) -> u32 {
    let all = demand.pods();
    let part = u64::from(share.replicas());
    let least = (u64::from(demand.min_available) * part).div_ceil(all.max(1));
    u32::try_from(least.min(part)).unwrap_or(u32::MAX)
}
