//! Pods that still end when the Works of their job are gone.
//!
//! Karmada deletes a job in a member in the background: its Work goes at once, and its pods have their grace period.
//! Until they have ended they use capacity. If the job counted as gone before, a preemptor for which it was evicted
//! would find its nodes in use, and evict another job. When they have ended, their objects are left for a moment. An
//! operator that names pods by their job cannot create them again before these are gone: Volcano's controller loses a
//! job that it meets with pods of an earlier one of its name.
//!
//! An evicted or deleted job is therefore charged until its pods are gone, too, as far as its members can be seen.
//! A member that was away may be seen by Karmada before its pods are listed here: it is waited for, too, for
//! [`PODS_END_MS`].
//! That may take as long as the longest grace period of the pods that are left, and [`SLACK_MS`] more; at least
//! [`PODS_END_MS`], and at most what an operator allows; and [`REMOVED_WITHIN_MS`] once all have ended: a pod that a
//! member cannot end must not keep its job from starting elsewhere, or its name from being used again. What is left
//! then stays charged by itself, in the engine (`engine/src/cycle/pod_charges.rs`).
//!
//! Volcano's controller may lose a job for longer: for as long after the pods are gone as they took to end
//! (`WorkloadKind::may_be_forgotten`). The next attempt waits for that in the clusters where they were, and stays
//! charged meanwhile, so that it keeps its place, unless it was evicted for another job.
//!
//! A job that waits may have such pods, too: a cluster that was out of service answers again. It is placed in no
//! cluster where it has some, for the same time.

use crate::reconcile::JobPass;
use engine::capacity::PodsLeft;
use engine::facts::Admission;
use engine::matching::{LEAVING, OUT_OF_SERVICE};
use engine::{ClusterName, Engine, JobKey, Reason, Time, still_end};
use std::collections::BTreeSet;

/// Milliseconds for which the end of pods is waited for whatever their grace period: several times the usual one.
pub(crate) const PODS_END_MS: i64 = 120_000;
/// Milliseconds beyond their grace period that a member has to end pods.
const SLACK_MS: i64 = 60_000;
/// Milliseconds that a member has to remove the objects of pods that have ended.
const REMOVED_WITHIN_MS: i64 = 30_000;
/// The most milliseconds between two tries of Volcano's controller to drop a job (`jobCache`, v1.14).
const LONGEST_RETRY_MS: i64 = 180_000;
/// Milliseconds that may pass between the end of a job in a member and the first look at its pods.
const FORGOTTEN_SLACK_MS: i64 = 2_000;
/// Milliseconds between two looks.
const LOOK_MS: i64 = 250;
/// Milliseconds between two looks after [`PODS_END_MS`].
const LATER_LOOK_MS: i64 = 2_000;

/// Since when pods of a former attempt are waited for.
#[derive(Debug, Default)]
pub(crate) struct FormerPods {
    /// Since when any are.
    since: Option<Time>,
    /// Since when all that are left have ended.
    ended_since: Option<Time>,
    /// Since when none is left.
    gone_since: Option<Time>,
    /// Where they were.
    clusters: BTreeSet<ClusterName>,
}

impl FormerPods {
    /// Returns true if some are, or were.
    pub(crate) fn are_waited_for(&self) -> bool {
        self.since.is_some()
    }

    /// Returns since when those that are left are waited for, and until when; `None` if there are none, and their job
    /// can start again. `unseen` says whether there may be others.
    fn until(
        &mut self,
        left: &[PodsLeft],
        unseen: bool,
        forgotten: bool,
        (most, now): (i64, Time),
    ) -> Option<(Time, Time)> {
        if left.is_empty() && !unseen {
            return self.until_forgotten(now).filter(|(_, until)| {
                let waits = forgotten && now < *until;
                if !waits {
                    *self = Self::default();
                }
                waits
            });
        }
        self.gone_since = None;
        let clusters = left.iter().map(|left| left.cluster.clone());
        self.clusters.extend(clusters);
        let since = *self.since.get_or_insert(now);
        let grace_s = left.iter().filter_map(|left| left.longest_grace).max();
        let until = match grace_s.or_else(|| unseen.then_some(0)) {
            Some(grace_s) => {
                self.ended_since = None;
                since.after(allowed(grace_s, most))
            }
            None => {
                let ended = *self.ended_since.get_or_insert(now);
                ended.after(REMOVED_WITHIN_MS).min(since.after(most))
            }
        };
        Some((since, until))
    }

    /// Returns until when an operator may forget the next job of the name, once none is left.
    fn until_forgotten(&mut self, now: Time) -> Option<(Time, Time)> {
        let since = self.since?;
        let gone = *self.gone_since.get_or_insert(now);
        let again = gone.millis_since(since).min(LONGEST_RETRY_MS);
        Some((since, gone.after(again + FORGOTTEN_SLACK_MS)))
    }
}

/// Returns when to look again at a job whose Works are gone, if pods of it are left or it could not start again yet.
pub(crate) fn pods_still_end(pass: &mut JobPass<'_>) -> Option<Time> {
    let now = pass.now;
    let left = pass.engine.pods_of(pass.key).left();
    let unseen = is_unseen(pass.engine, pass.key);
    let forgotten = may_be_forgotten(pass);
    let within = (pass.options.pods_end_ms, now);
    let former = &mut pass.in_flight.former_pods;
    let (since, until) = former.until(&left, unseen, forgotten, within)?;
    if former.gone_since.is_some() && !keeps_place(pass) {
        return None;
    }
    let look = match now < since.after(PODS_END_MS) {
        true => LOOK_MS,
        false => LATER_LOOK_MS,
    };
    (now < until).then(|| now.after(look).min(until))
}

/// Returns a cluster of `admission` where pods of a former attempt still end, and that in words.
pub(crate) fn former_pods_in(
    pass: &mut JobPass<'_>,
    admission: &Admission,
) -> Option<(ClusterName, String)> {
    let left = pass.engine.pods_of(pass.key).left();
    let forgotten = may_be_forgotten(pass);
    let within = (pass.options.pods_end_ms, pass.now);
    let former = &mut pass.in_flight.former_pods;
    let (_, until) = former.until(&left, false, forgotten, within)?;
    let shares = admission.shares.iter().map(|share| &share.cluster);
    let cluster = shares
        .filter(|_| pass.now < until)
        .find(|cluster| former.clusters.contains(*cluster))?;
    let of_cluster = left.into_iter().filter(|left| left.cluster == *cluster);
    let of_cluster: Vec<PodsLeft> = of_cluster.collect();
    let words = still_end(&of_cluster).unwrap_or_else(|| {
        format!("its operator in cluster {cluster} still removes its former attempt")
    });
    Some((cluster.clone(), words))
}

/// Returns true if the operator of a job may forget its next attempt.
fn may_be_forgotten(pass: &JobPass<'_>) -> bool {
    let resource = &pass.binding.spec.resource;
    workload::may_be_forgotten(&format!("{}/{}", resource.api_version, resource.kind))
}

/// Returns true if a job is charged until it can start again: it is queued again, and was not evicted for another one.
fn keeps_place(pass: &JobPass<'_>) -> bool {
    let deleted = pass.binding.metadata.deletion_timestamp.is_some();
    let evicted = pass.engine.evicted_because(pass.key);
    let gives_way = evicted
        .is_some_and(|(_, reason, _)| matches!(reason, Reason::Reclaimed | Reason::Preempted));
    !deleted && !gives_way
}

/// Returns true if a job was admitted to a member that cannot be seen now, and that is neither out of service nor
/// removed.
fn is_unseen(engine: &Engine, key: &JobKey) -> bool {
    let admission = engine.job(key).and_then(|job| job.admission);
    let shares = admission
        .into_iter()
        .flat_map(|admission| &admission.shares);
    let mut clusters = shares.filter_map(|share| engine.fleet().cluster(&share.cluster));
    clusters.any(|cluster| {
        !cluster.usable && !cluster.has_taint(OUT_OF_SERVICE) && !cluster.has_taint(LEAVING)
    })
}

/// Returns for how many milliseconds the end of pods with this grace period is waited for.
fn allowed(grace_s: u32, most: i64) -> i64 {
    let of_grace = i64::from(grace_s) * 1_000 + SLACK_MS;
    of_grace.max(PODS_END_MS).min(most)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3_600_000;

    #[test]
    fn pods_have_their_grace_period_and_a_minute_within_what_is_allowed() {
        for (grace_s, most, want) in [
            (0, HOUR, PODS_END_MS),
            (60, HOUR, PODS_END_MS),
            (600, HOUR, 660_000),
            (u32::MAX, HOUR, HOUR),
            (600, 30_000, 30_000),
        ] {
            assert_eq!(allowed(grace_s, most), want, "{grace_s} {most}");
        }
    }

    #[test]
    fn pods_that_have_ended_have_half_a_minute_from_then_on() {
        let left = |longest_grace| PodsLeft {
            cluster: ClusterName::new("m1"),
            pods: 1,
            longest_grace,
        };
        let mut pods = FormerPods::default();
        let mut until = |left: &[PodsLeft], now| {
            let until = pods.until(left, false, false, (HOUR, Time(now)));
            until.map(|(_, Time(until))| until)
        };
        assert_eq!(until(&[left(Some(30))], 1_000), Some(121_000));
        assert_eq!(until(&[left(None)], 40_000), Some(70_000));
        assert_eq!(until(&[left(None), left(Some(1))], 41_000), Some(121_000));
        assert_eq!(until(&[left(None)], 45_000), Some(75_000));
        assert_eq!(until(&[], 46_000), None);
        assert_eq!(until(&[left(None)], 50_000), Some(80_000), "others");
    }

    #[test]
    fn an_operator_may_forget_a_job_for_as_long_as_its_pods_took_to_end() {
        let left = PodsLeft {
            cluster: ClusterName::new("m1"),
            pods: 1,
            longest_grace: Some(30),
        };
        let mut pods = FormerPods::default();
        let mut until = |left: &[PodsLeft], now| {
            let until = pods.until(left, false, true, (HOUR, Time(now)));
            until.map(|(_, Time(until))| until)
        };
        assert_eq!(until(&[], 0), None, "there were none");
        assert_eq!(until(&[left], 1_000), Some(121_000));
        assert_eq!(until(&[], 8_000), Some(17_000));
        assert_eq!(until(&[], 16_999), Some(17_000));
        assert_eq!(until(&[], 17_000), None);
        assert_eq!(until(&[], 17_001), None);
    }
}
