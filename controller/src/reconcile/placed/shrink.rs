//! Shrinks that members have not confirmed yet.
//!
//! A job that was shrunk stays charged for the leaving pods until its member shows the new size and no more
//! pods than that. The size is read from the member itself, because Karmada's report may be older than the
//! write. The member's controllers need a moment to apply the size, so it counts only after it has been
//! seen for a while.

use crate::messages::action::Effect;
use crate::reconcile::JobPass;
use crate::reconcile::check_result::CheckResult;
use crate::reconcile::placed::Placed;
use crds::record::{AdmissionRecord, RecordState};
use engine::facts::{Admission, Leaving, PodFact, Share};
use engine::{Attempt, ClusterName, Engine, Event, JobKey, Time, Uid};
use std::collections::{BTreeMap, HashMap};

/// Milliseconds between two checks of a shrink that is not confirmed.
const RECHECK_MS: i64 = 1_000;

/// Milliseconds for which the new size has to be seen before it counts, so that the member's controllers
/// and the watch of its pods can catch up.
const SETTLE_MS: i64 = 2_000;

/// Pods of jobs that members show and that have not ended.
#[derive(Debug, Default)]
pub(crate) struct LivePods {
    by_uid: HashMap<Uid, (JobKey, ClusterName)>,
    counts: HashMap<(JobKey, ClusterName), u32>,
}

impl LivePods {
    /// Applies a fact of a member.
    pub(crate) fn note(&mut self, fact: &Event) {
        match fact {
            Event::PodUpserted(pod) => self.pod(pod),
            Event::PodGone(_, uid) => self.gone(uid),
            Event::ClusterGone(cluster) => {
                self.by_uid.retain(|_, (_, of)| of != cluster);
                self.counts.retain(|(_, of), _| of != cluster);
            }
            _ => {}
        }
    }

    fn pod(&mut self, pod: &PodFact) {
        self.gone(&pod.uid);
        if let Some(job) = pod.job.as_ref().filter(|_| !pod.ended()) {
            let place = (job.clone(), pod.cluster.clone());
            *self.counts.entry(place.clone()).or_default() += 1;
            self.by_uid.insert(pod.uid.clone(), place);
        }
    }

    fn gone(&mut self, uid: &Uid) {
        let Some(place) = self.by_uid.remove(uid) else {
            return;
        };
        if let Some(count) = self.counts.get_mut(&place) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&place);
            }
        }
    }

    /// Returns true if the pod was last seen before its end.
    pub(crate) fn has(&self, uid: &Uid) -> bool {
        self.by_uid.contains_key(uid)
    }

    fn count(&self, job: &JobKey, cluster: &ClusterName) -> u32 {
        let place = (job.clone(), cluster.clone());
        self.counts.get(&place).copied().unwrap_or_default()
    }
}

/// Shrinks of one job that are not confirmed, by cluster.
#[derive(Debug, Default)]
pub(crate) struct Shrinks {
    /// Since when the new size has been seen, if it has.
    open: BTreeMap<ClusterName, Option<Time>>,
    checking: bool,
}

impl Shrinks {
    /// Records the clusters in which `after` has fewer pods than `before`.
    pub(crate) fn note(&mut self, before: &[Share], after: &Admission) {
        for share in before {
            if pods_in(&after.shares, &share.cluster) < share.replicas() {
                self.open.insert(share.cluster.clone(), None);
            }
        }
    }

    /// Restores the clusters with leaving pods from a record.
    fn resume(&mut self, leaving: &[Leaving]) {
        for leaving in leaving {
            self.open.entry(leaving.cluster.clone()).or_default();
        }
    }

    /// Records whether a member shows the smaller size. Returns true if that has lasted long enough.
    fn seen(&mut self, cluster: &ClusterName, small: bool, now: Time) -> bool {
        self.checking = false;
        let Some(since) = self.open.get_mut(cluster) else {
            return false;
        };
        *since = since.or(Some(now)).filter(|_| small);
        since.is_some_and(|since| now >= since.after(SETTLE_MS))
    }
}

/// Completes a record, before it is written, with the pods that were asked to end, so that a new process
/// charges them too.
pub(crate) fn keep_leaving(engine: &Engine, key: &JobKey, record: &mut AdmissionRecord) {
    let admission = engine.job(key).and_then(|job| job.admission);
    let same = admission.is_some_and(|admission| admission.attempt == record.attempt);
    record.leaving = match record.state {
        RecordState::Admitted | RecordState::Ending if same => {
            engine.pods_of(key).leaving().to_vec()
        }
        RecordState::Admitted | RecordState::Ending => std::mem::take(&mut record.leaving),
        RecordState::Planned | RecordState::Refused | RecordState::Requeued => Vec::new(),
    };
}

/// Gives the engine the pods that an earlier process has asked to end.
pub(crate) fn apply_leaving(pass: &mut JobPass<'_>, record: &AdmissionRecord) {
    if record.leaving.is_empty() {
        return;
    }
    pass.in_flight.shrinks.resume(&record.leaving);
    pass.apply(Event::JobLeaving {
        key: pass.key.clone(),
        attempt: record.attempt,
        leaving: record.leaving.clone(),
    });
}

/// Writes the record of a job of which fewer pods leave than it says.
pub(crate) fn check_leaving_pods(pass: &mut JobPass<'_>, placed: &Placed) -> CheckResult {
    match placed.record.leaving == pass.engine.pods_of(pass.key).leaving() {
        true => CheckResult::Continue,
        false => placed.written_again(),
    }
}

/// Asks the first member that has not confirmed a shrink of the job, if any.
pub(crate) fn confirm_shrinks(pass: &mut JobPass<'_>, placed: &Placed) {
    let record = &placed.record;
    let shrinks = &mut pass.in_flight.shrinks;
    let Some(cluster) = shrinks.open.keys().next().cloned() else {
        return;
    };
    if std::mem::replace(&mut shrinks.checking, true) {
        return;
    }
    let held = record
        .is_split()
        .then(|| pods_in(&record.admission().shares, &cluster));
    pass.push(Effect::ConfirmSize {
        job: pass.bound_job(),
        attempt: record.attempt,
        cluster,
        held,
    });
}

/// Handles a member's answer about the size of a shrunk job.
pub(crate) fn size_checked(
    pass: &mut JobPass<'_>,
    attempt: Attempt,
    cluster: ClusterName,
    small: Result<bool, String>,
) {
    let key = pass.key;
    let Some(admission) = pass.admission_of(attempt) else {
        return; // that attempt is over, and with it all its shrinks
    };
    let pods = pods_in(&admission.shares, &cluster);
    if let Err(error) = &small {
        tracing::debug!(job = %key, %cluster, error, "cannot read yet whether it has shrunk");
    }
    let gone = pass.jobs.pods.count(key, &cluster) <= pods;
    let small = gone && small == Ok(true);
    if pass.in_flight.shrinks.seen(&cluster, small, pass.now) {
        tracing::info!(job = %key, %cluster, pods, "it has shrunk; the surplus is free");
        pass.in_flight.shrinks.open.remove(&cluster);
        pass.apply(Event::JobResized {
            key: key.clone(),
            attempt,
            cluster,
            pods,
            at: pass.now,
        });
    }
    pass.out.work_queue.add_at(key, pass.now.after(RECHECK_MS));
}

fn pods_in(shares: &[Share], cluster: &ClusterName) -> u32 {
    let in_it = shares.iter().filter(|share| share.cluster == *cluster);
    in_it.map(Share::replicas).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::Resources;
    use engine::facts::PodPhase;

    #[test]
    fn live_pods_are_counted_by_job_and_cluster() {
        let mut pods = LivePods::default();
        let (job, m1) = (JobKey::new("team", "a"), ClusterName::new("m1"));
        let (active, ended) = (PodPhase::Running, PodPhase::Ended);
        let pod = |uid: &str, phase| {
            Event::PodUpserted(PodFact {
                cluster: m1.clone(),
                uid: Uid::new(uid),
                node: None,
                request: Resources::new(),
                job: Some(job.clone()),
                phase,
                symptom: None,
                grace_s: 0,
            })
        };
        for fact in [
            pod("1", active),
            pod("2", active),
            pod("2", active),
            pod("3", ended),
        ] {
            pods.note(&fact);
        }
        assert_eq!(pods.count(&job, &m1), 2);
        pods.note(&pod("2", ended));
        pods.note(&Event::PodGone(m1.clone(), Uid::new("1")));
        pods.note(&Event::PodGone(m1.clone(), Uid::new("unknown")));
        assert_eq!(pods.count(&job, &m1), 0);
        pods.note(&pod("4", active));
        pods.note(&Event::ClusterGone(m1.clone()));
        assert_eq!(pods.count(&job, &m1), 0);
        assert!(pods.by_uid.is_empty() && pods.counts.is_empty());
    }

    #[test]
    fn a_size_has_to_hold_for_a_while() {
        let m1 = ClusterName::new("m1");
        let mut shrinks = Shrinks::default();
        shrinks.open.insert(m1.clone(), None);
        assert!(!shrinks.seen(&m1, true, Time(0)));
        assert!(!shrinks.seen(&m1, false, Time(1_000)), "it grew again");
        assert!(!shrinks.seen(&m1, true, Time(2_500)));
        assert!(shrinks.seen(&m1, true, Time(4_500)));
        assert!(!shrinks.seen(&ClusterName::new("m2"), true, Time(9_000)));
    }
}
