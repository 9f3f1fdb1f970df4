//! Images that are pulled on reserved nodes before a job starts: a Work with a Job for each job and cluster.
//!
//! ```text
//! reservations of queues with `placement.prePull` ─┬─► due ─► PrePullChange ─► effects ─► Work ─► Job in the member
//! Works that are there ────────────────────────────┘
//! ```
//!
//! The Works are the state, also for the next leader. A Work is written once and never changed, whichever nodes are
//! reserved later, so that a job causes few pulls; and it goes when the job runs or its reservation is gone. Nothing
//! waits for a pull. Pure.

use crate::mirror::seen_work::ReadWork;
use crds::names::{EXECUTION_FINALIZER, EXECUTION_NAMESPACE_PREFIX, PRE_PULL_LABEL};
use engine::decision::PrePull;
use engine::{ClusterName, JobKey, Time, Uid};
use runtime::watch::{Delta, ObjectKey};
use std::collections::BTreeMap;

/// Milliseconds after which a write that has shown no effect is requested again.
const RETRY_MS: i64 = 30_000;
/// Milliseconds for which a Work stays that nothing wants: a reservation may be made again.
const UNWANTED_MS: i64 = 15_000;
/// Milliseconds between two comparisons.
const EVERY_MS: i64 = 1_000;

/// What the names of the Works and Jobs begin with; the UID of the template follows.
const PREFIX: &str = "muster-pre-pull-";

/// Seconds that a pull may take after the expected start of the job, and at least.
const SPARE_S: i64 = 600;
/// Seconds until the start of a job of which nothing is known.
const UNKNOWN_S: i64 = 3_600;

/// A change of the Works that pull.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PrePullChange {
    /// There is one for this pull, given up after so many seconds.
    Make(PrePull, i64),
    /// There is none in this cluster for the template with this UID.
    End(ClusterName, Uid),
}

/// A pull: its cluster, and the UID of its template.
type PullKey = (ClusterName, Uid);

/// The Works that are there, and what was requested.
#[derive(Debug, Default)]
pub(crate) struct PrePulls {
    /// Each with whether it is being deleted.
    there: BTreeMap<PullKey, bool>,
    /// The job of each, and when it was last wanted. After a restart it is not known whose a Work is.
    wanted: BTreeMap<PullKey, (Option<JobKey>, Time)>,
    /// When a change was last requested, until the Work shows it.
    requested: BTreeMap<PullKey, Time>,
    compared_at: Option<Time>,
}

impl PrePulls {
    /// Applies a change of a Work, if it is one that pulls.
    pub(crate) fn work(&mut self, delta: &Delta<ReadWork>, now: Time) {
        let (object, deleting) = match delta {
            Delta::Upserted(work) => (&work.object, Some(work.seen.deleting)),
            Delta::Gone(object) => (object, None),
            Delta::Listed => return,
        };
        let Some(key) = key_of(object) else {
            return;
        };
        self.requested.remove(&key);
        match deleting {
            Some(deleting) => {
                self.wanted.entry(key.clone()).or_insert((None, now));
                self.there.insert(key, deleting);
            }
            None => {
                self.there.remove(&key);
            }
        }
    }

    /// Returns true if it is time to compare again.
    pub(crate) fn is_due(&self, now: Time) -> bool {
        self.compared_at
            .is_none_or(|at| now.millis_since(at) >= EVERY_MS)
    }

    /// Returns true if a comparison changes nothing as long as no pull is wanted.
    pub(crate) fn is_empty(&self) -> bool {
        self.there.is_empty() && self.wanted.is_empty()
    }

    /// Returns the changes that are due. `starts` says whether a job is admitted and does not run yet: its pods may
    /// still wait for an image.
    pub(crate) fn due(
        &mut self,
        pulls: Vec<PrePull>,
        starts: impl Fn(&JobKey, &Uid) -> bool,
        now: Time,
    ) -> Vec<PrePullChange> {
        self.compared_at = Some(now);
        let mut changes = BTreeMap::new();
        for pull in pulls {
            let key = (pull.cluster.clone(), pull.uid.clone());
            self.wanted
                .insert(key.clone(), (Some(pull.job.clone()), now));
            if !self.there.contains_key(&key) {
                let seconds = seconds_of(&pull, now);
                changes.insert(key, PrePullChange::Make(pull, seconds));
            }
        }
        for (key, (job, at)) in &mut self.wanted {
            if job.as_ref().is_some_and(|job| starts(job, &key.1)) && self.there.contains_key(key) {
                *at = now;
            }
        }
        self.wanted
            .retain(|_, (_, at)| now.millis_since(*at) < UNWANTED_MS);
        for (key, deleting) in &self.there {
            if !deleting && !self.wanted.contains_key(key) {
                let end = PrePullChange::End(key.0.clone(), key.1.clone());
                changes.insert(key.clone(), end);
            }
        }
        self.requested
            .retain(|_, at| now.millis_since(*at) < RETRY_MS);
        changes.retain(|key, _| !self.requested.contains_key(key));
        let keys = changes.keys().cloned();
        self.requested.extend(keys.map(|key| (key, now)));
        changes.into_values().collect()
    }
}

/// Returns the name of the Work and of the Job that pull for the template with this UID.
pub(crate) fn name(uid: &Uid) -> String {
    format!("{PREFIX}{uid}")
}

/// Returns the namespace of the Work for a cluster.
pub(crate) fn namespace(cluster: &ClusterName) -> String {
    format!("{EXECUTION_NAMESPACE_PREFIX}{cluster}")
}

/// Returns the Work that has `job`, a Job, applied in a cluster. With the finalizer Karmada deletes the Job there
/// before the Work goes; without it the Job would stay.
pub(crate) fn work(cluster: &ClusterName, uid: &Uid, job: &serde_json::Value) -> serde_json::Value {
    let mut job = job.clone();
    // Karmada deletes in members only what has its label.
    job["metadata"]["labels"]["karmada.io/managed"] = "true".into();
    serde_json::json!({
        "apiVersion": "work.karmada.io/v1alpha1", "kind": "Work",
        "metadata": {
            "name": name(uid), "namespace": namespace(cluster), "labels": {PRE_PULL_LABEL: uid.to_string()},
            "finalizers": [EXECUTION_FINALIZER],
        },
        "spec": {"workload": {"manifests": [job]}},
    })
}

fn key_of(object: &ObjectKey) -> Option<PullKey> {
    let cluster = object.namespace.as_deref()?;
    let cluster = cluster.strip_prefix(EXECUTION_NAMESPACE_PREFIX)?;
    let uid = object.name.strip_prefix(PREFIX)?;
    Some((ClusterName::new(cluster), Uid::new(uid)))
}

fn seconds_of(pull: &PrePull, now: Time) -> i64 {
    let until = pull.start.map(|start| start.millis_since(now) / 1000);
    until.unwrap_or(UNKNOWN_S).max(0) + SPARE_S
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use engine::NodeName;

    fn pull(start: Option<i64>) -> PrePull {
        PrePull {
            job: JobKey::new("team", "train-job"),
            uid: Uid::from("u1"),
            role: "worker".to_owned(),
            cluster: ClusterName::from("m1"),
            nodes: vec![NodeName::from("n1")],
            start: start.map(Time),
        }
    }

    fn seen(deleting: bool) -> Delta<ReadWork> {
        let job = serde_json::json!({"apiVersion": "batch/v1", "kind": "Job"});
        let mut work = work(&ClusterName::from("m1"), &Uid::from("u1"), &job);
        if deleting {
            work["metadata"]["deletionTimestamp"] = "2026-11-26T00:00:00Z".into();
        }
        let read = ReadWork::of(serde_json::from_value(work).unwrap());
        assert_eq!(read.owner, None, "it belongs to no binding");
        Delta::Upserted(read)
    }

    fn gone() -> Delta<ReadWork> {
        Delta::Gone(ObjectKey {
            namespace: Some("karmada-es-m1".to_owned()),
            name: "muster-pre-pull-u1".to_owned(),
        })
    }

    fn end() -> PrePullChange {
        PrePullChange::End(ClusterName::from("m1"), Uid::from("u1"))
    }

    #[test]
    fn a_work_is_requested_once_until_it_is_there() {
        let mut pulls = PrePulls::default();
        let mut wanted = |at: i64, there: Option<&Delta<ReadWork>>| {
            if let Some(delta) = there {
                pulls.work(delta, Time(at));
            }
            pulls.due(vec![pull(Some(120_000))], |_, _| false, Time(at))
        };
        let made = |seconds| [PrePullChange::Make(pull(Some(120_000)), seconds)];
        assert_eq!(wanted(0, None), made(720));
        assert_eq!(wanted(1_000, None), []);
        // It was not written, or its template could not be read.
        assert_eq!(wanted(30_000, None), made(690));
        assert_eq!(wanted(31_000, Some(&seen(false))), []);
        assert_eq!(wanted(90_000, None), [], "whatever becomes of the pull");
        assert_eq!(wanted(91_000, Some(&gone())), made(629));
    }

    #[test]
    fn a_work_goes_once_its_job_runs_or_nothing_is_reserved() {
        let mut pulls = PrePulls::default();
        pulls.due(vec![pull(None)], |_, _| false, Time(0));
        pulls.work(&seen(false), Time(1_000));
        let mut unwanted = |at: i64, starts: bool| pulls.due(Vec::new(), |_, _| starts, Time(at));
        assert_eq!(unwanted(2_000, false), []);
        // It is admitted, and waits for its images.
        assert_eq!(unwanted(100_000, true), []);
        assert_eq!(unwanted(114_000, false), []);
        assert_eq!(unwanted(115_000, false), [end()]);
        assert_eq!(unwanted(116_000, false), []);
        assert_eq!(unwanted(145_000, false), [end()]);
        pulls.work(&seen(true), Time(146_000));
        assert_eq!(pulls.due(Vec::new(), |_, _| false, Time(180_000)), []);
        pulls.work(&gone(), Time(181_000));
        assert_eq!(pulls.due(Vec::new(), |_, _| false, Time(200_000)), []);
        assert!(pulls.is_empty());
    }

    #[test]
    fn the_next_leader_finds_what_is_there() {
        let mut pulls = PrePulls::default();
        pulls.work(&seen(false), Time(0));
        assert_eq!(pulls.due(vec![pull(None)], |_, _| false, Time(1_000)), []);
        assert_eq!(pulls.due(Vec::new(), |_, _| false, Time(16_000)), [end()]);
        let mut of_nobody = PrePulls::default();
        of_nobody.work(&seen(false), Time(0));
        assert_eq!(of_nobody.due(Vec::new(), |_, _| true, Time(14_000)), []);
        assert_eq!(
            of_nobody.due(Vec::new(), |_, _| true, Time(15_000)),
            [end()]
        );
    }

    #[test]
    fn other_works_are_left_alone() {
        let mut pulls = PrePulls::default();
        for (namespace, name) in [
            ("karmada-es-m1", "team-train"),
            ("team", "muster-pre-pull-u1"),
        ] {
            let object = ObjectKey {
                namespace: Some(namespace.to_owned()),
                name: name.to_owned(),
            };
            assert_eq!(key_of(&object), None, "{namespace}/{name}");
            pulls.work(&Delta::Gone(object), Time(0));
        }
        assert!(pulls.is_empty());
    }
}
