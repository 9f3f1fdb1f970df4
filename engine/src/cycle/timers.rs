//! What time alone does to jobs: back-offs and avoidances end, jobs are evicted that start too late,
//! have lost their nodes, run too long or do not tolerate a taint, and expected ends are estimated
//! anew.
//!
//! A job has at most one timer, for the next thing that may happen to it by time alone. What is
//! to be done is found from the job's state when the timer comes, so a timer that comes too early
//! or twice does no harm.

use crate::api::decision::Decision;
use crate::api::facts::Share;
use crate::api::ids::{ClusterName, JobKey};
use crate::api::reason::Reason;
use crate::engine::Engine;
use crate::jobs::deadline::{deadline, least_of, room_lost_at};
use crate::jobs::drain::{emptied, is_emptied, must_leave};
use crate::jobs::job::Job;
use crate::jobs::runtime::runtime_ends;

impl Engine {
    /// Handles every timer that has come, as far as the budget goes.
    pub(crate) fn run_timers(&mut self, decisions: &mut Vec<Decision>) {
        while decisions.len() < self.config.decision_budget
            && let Some(key) = self.jobs.take_timer(self.now)
        {
            decisions.extend(self.look(&key));
            self.sync_indexes(&key);
        }
    }

    fn look(&mut self, key: &JobKey) -> Option<Decision> {
        let now = self.now;
        let job = self.jobs.get(key)?;
        let Some(released) = job.released.as_deref() else {
            self.jobs.end_back_off(key, now);
            return None;
        };
        let lost = room_lost_at(&self.config, released).filter(|(at, _)| *at <= now);
        if let Some((_, cluster)) = lost {
            let grace = self.config.room_lost_grace_ms / 1000;
            let message = format!(
                "for {grace} s its pods that are not bound yet have fitted on no nodes of {cluster}"
            );
            let cluster = cluster.clone();
            return self.evict(key, Reason::RoomLost, &message, Some(cluster));
        }
        if runtime_ends(&self.quota, released).is_some_and(|at| at <= now) {
            return self.stop_overdue(key);
        }
        if !released.seated || deadline(&self.config, &self.quota, released) > now {
            return None;
        }
        let late = self.late_share(key, job);
        if let Some((cluster, message)) = late.filter(|_| released.starting()) {
            return self.evict(key, Reason::StartDeadlineExceeded, &message, Some(cluster));
        }
        // It has started, or never will be asked again: nothing more is held for it.
        self.capacity.room.forget(key);
        self.jobs.unseat(key);
        None
    }

    /// Stops a job that has run as long as it may.
    fn stop_overdue(&mut self, key: &JobKey) -> Option<Decision> {
        let released = self.jobs.released(key)?;
        let (limit, queue) = self.quota.runtime_limit(&released.admission.queue)?;
        let ran = self.now.millis_since(released.started_at?).max(limit);
        self.jobs.stop(key, ran);
        let message = format!(
            "it ran {} s, and queue {queue} lets a job run {} s",
            ran / 1000,
            limit / 1000
        );
        self.evict(key, Reason::RuntimeLimitExceeded, &message, None)
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

    /// Finds other nodes for released pods that have lost theirs, and notes since when there are
    /// none for them.
    pub(crate) fn settle_room(&mut self) {
        let lost = self.capacity.room.settle().into_iter();
        // What a cluster looks like that cannot be seen says nothing.
        let clusters = &self.capacity.clusters;
        let usable = |cluster: &_| clusters.get(cluster).is_some_and(|fact| fact.usable);
        let lost = lost.filter(|(_, cluster)| usable(cluster));
        for key in self.jobs.set_stranded(lost, self.now) {
            self.sync_indexes(&key);
        }
    }

    /// Evicts what does not tolerate a taint of its cluster, as far as the budget goes.
    pub(crate) fn evict_drained(&mut self, decisions: &mut Vec<Decision>) {
        if !self.jobs.take_taints_due() {
            return;
        }
        let emptied = emptied(self.capacity.clusters.values());
        if emptied.is_empty() {
            return;
        }
        let leaving = self.jobs.iter().filter_map(|(key, job)| {
            let (cluster, taint) = must_leave(job, &emptied)?;
            Some((key.clone(), cluster, taint))
        });
        let mut leaving: Vec<(JobKey, ClusterName, String)> = leaving.collect();
        leaving.sort_unstable();
        for (key, cluster, taint) in leaving {
            if decisions.len() >= self.config.decision_budget {
                return self.jobs.recheck_taints();
            }
            let message = format!("cluster {cluster} is being emptied (taint {taint})");
            decisions.extend(self.evict(&key, Reason::ClusterDrained, &message, None));
        }
    }

    /// Notes that a job that was told of may have to leave.
    pub(crate) fn note_drain(&mut self, key: &JobKey) {
        let shares = self.jobs.released(key).map(|r| &r.admission.shares);
        let cluster_of = |share: &Share| self.capacity.clusters.get(&share.cluster);
        let mut clusters = shares.into_iter().flatten().filter_map(cluster_of);
        if clusters.any(is_emptied) {
            self.jobs.recheck_taints();
        }
    }

    /// Estimates that have passed are made anew, and the reservations that rest on them.
    pub(crate) fn renew_ends(&mut self) {
        let mut slipped = false;
        while let Some(key) = self.jobs.first_past_end(self.now) {
            slipped = true;
            self.sync_indexes(&key);
        }
        if !slipped {
            return;
        }
        let late = self.reservations.iter();
        let late = late.filter(|kept| kept.start.is_none_or(|start| start <= self.now));
        let late = late.filter(|kept| {
            // Nothing is new where its nodes are free no sooner and no later than was thought.
            kept.nodes.is_empty() || self.start_on(&kept.nodes) != kept.start
        });
        let late: Vec<JobKey> = late.map(|kept| kept.rank.key.clone()).collect();
        for key in late {
            self.rouse_job(&key);
        }
    }
}
