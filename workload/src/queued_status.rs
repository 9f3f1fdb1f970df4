//! How the status of a template says that its job is queued, for the kinds whose own tools would otherwise
//! say that it runs, or nothing; and that it has failed for good, where that is final.
//!
//! A batch/v1 Job that has failed can never say anything else: the API server refuses it (`ValidateJobStatusUpdate`,
//! Kubernetes 1.31). Only the controller knows whether a job is queued again, so `deploy/interpreter-job.yaml`
//! leaves the end of a failed job that is queued by Muster to it.
//!
//! Karmada writes the status of a template from what members report, and overwrites this once they report.
//! Kinds whose conditions no merge patch can change one by one are left out: another writer's condition
//! would be lost.

use crate::kinds;
use crate::outcome::{condition, text};
use serde_json::{Value, json};

/// The reason that a status shows while its job is queued.
const QUEUED: &str = "Queued";

/// How the status of a kind shows that it is queued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueuedStatus {
    /// A condition of type `Suspended`, in a list that is merged by the type (built-in kinds).
    Condition,
    /// `status.state` with the phase `Pending`.
    State,
}

impl QueuedStatus {
    /// Returns how this kind shows it; `None` if its status has no place for it.
    #[must_use]
    pub fn of(api_version: &str, kind: &str) -> Option<Self> {
        kinds::of(api_version, kind)?.queued_status()
    }

    /// Returns the patch of an object after which it says since `at` (RFC 3339) that it is queued, and why.
    #[must_use]
    pub fn queued(self, why: &str, at: &str) -> Value {
        match self {
            Self::Condition => suspended("True", QUEUED, why, at),
            Self::State => json!({"status": {"state": {
                "phase": "Pending", "reason": QUEUED, "message": why, "lastTransitionTime": at,
            }}}),
        }
    }

    /// Returns the patch after which it no longer says so; `None` if what it says of a queued job holds for an
    /// admitted one until its members report. A Job that starts again has another start, which the API server
    /// takes from one that is no longer suspended.
    #[must_use]
    pub fn no_longer_queued(self, at: &str) -> Option<Value> {
        match self {
            Self::Condition => {
                let message = "its job is no longer queued";
                let mut patch = suspended("False", "NotQueued", message, at);
                patch["status"]["startTime"] = Value::Null;
                Some(patch)
            }
            Self::State => None,
        }
    }

    /// Returns the patch after which it says since `at` that its job has failed for good: as the first of `parts`
    /// that has failed says, else with `message`. `None` for kinds that say so by themselves. `shown` is what it
    /// says now.
    #[must_use]
    pub fn failed(
        self,
        shown: &ShownStatus,
        parts: &[Value],
        message: &str,
        at: &str,
    ) -> Option<Value> {
        let Self::Condition = self else {
            return None;
        };
        let told = parts.iter().find_map(|part| condition(part, "Failed"));
        let told = |field, unset| match told.map_or("", |failed| text(failed, field)) {
            "" => unset,
            told => told,
        };
        let (reason, since) = (told("reason", "JobFailed"), told("lastTransitionTime", at));
        let message = told("message", message);
        let ended = |type_| {
            json!({
                "type": type_, "status": "True", "reason": reason, "message": message,
                "lastProbeTime": since, "lastTransitionTime": since,
            })
        };
        // A finished Job has a start and no pods.
        let mut patch = json!({"status": {
            "active": null, "ready": 0, "terminating": 0,
            "conditions": [ended("FailureTarget"), ended("Failed")],
        }});
        if !shown.started {
            let starts = parts.iter().map(|part| text(part, "startTime"));
            let first = starts.filter(|start| !start.is_empty()).min();
            patch["status"]["startTime"] = first.unwrap_or(since).into();
        }
        Some(patch)
    }

    /// Returns true if the patches merge lists by their keys (strategic merge patches).
    #[must_use]
    pub fn is_strategic(self) -> bool {
        matches!(self, Self::Condition)
    }
}

fn suspended(status: &str, reason: &str, message: &str, at: &str) -> Value {
    json!({"status": {"conditions": [{
        "type": "Suspended", "status": status, "reason": reason, "message": message,
        "lastProbeTime": at, "lastTransitionTime": at,
    }]}})
}

/// What the status of a template says, as far as Muster writes it too.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ShownStatus {
    /// Why its job is queued, if it says that it is.
    pub queued: Option<String>,
    /// True if it says when its job started.
    pub started: bool,
    /// True if it says that its job has ended, which is final.
    pub ended: bool,
}

/// Returns what the status of `template` says.
#[must_use]
pub fn shown_status(template: &Value) -> ShownStatus {
    let (api_version, kind) = (text(template, "apiVersion"), text(template, "kind"));
    let shown = QueuedStatus::of(api_version, kind).zip(template.get("status"));
    let Some((how, status)) = shown else {
        return ShownStatus::default();
    };
    let is_of_job = how == QueuedStatus::Condition;
    let place = match how {
        QueuedStatus::Condition => condition(status, "Suspended"),
        QueuedStatus::State => status.get("state"),
    };
    let queued = place.filter(|place| text(place, "reason") == QUEUED);
    let holds = |type_| condition(status, type_).is_some();
    ShownStatus {
        queued: queued.map(|place| text(place, "message").to_owned()),
        started: is_of_job && !text(status, "startTime").is_empty(),
        ended: is_of_job && (holds("Complete") || holds("Failed")),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const AT: &str = "2026-11-25T14:00:00Z";

    #[test]
    fn a_status_says_that_its_job_is_queued_and_that_it_no_longer_is() {
        for (api_version, kind) in [("batch/v1", "Job"), ("batch.volcano.sh/v1alpha1", "Job")] {
            // A patch of an object without a status is its status.
            let shown = |mut patch: Value| {
                patch["apiVersion"] = api_version.into();
                patch["kind"] = kind.into();
                shown_status(&patch).queued
            };
            let status = QueuedStatus::of(api_version, kind).unwrap();
            let why = "WaitingForQuota: short by 2";
            assert_eq!(shown(status.queued(why, AT)).as_deref(), Some(why));
            let over = status.no_longer_queued(AT);
            assert_eq!(over.and_then(shown), None);
        }
    }

    #[test]
    fn a_job_that_its_user_or_its_member_suspended_is_not_shown_as_queued() {
        let condition = json!({"type": "Suspended", "status": "True", "reason": "JobSuspended"});
        let status = json!({"conditions": [condition]});
        let job = json!({"apiVersion": "batch/v1", "kind": "Job", "status": status});
        assert_eq!(shown_status(&job).queued, None);
        let state = json!({"state": {"phase": "Pending"}});
        let job =
            json!({"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "status": state});
        assert_eq!(shown_status(&job).queued, None);
        assert_eq!(shown_status(&json!({})), ShownStatus::default());
    }

    #[test]
    fn a_job_that_has_failed_for_good_says_so_as_the_api_server_takes_it() {
        let part = json!({"startTime": "2026-11-25T13:00:00Z", "failed": 1, "conditions": [
            {"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded", "message": "no more",
             "lastTransitionTime": "2026-11-25T13:59:00Z"}]});
        let running = json!({"startTime": "2026-11-25T13:01:00Z", "active": 2});
        let started = ShownStatus {
            started: true,
            ..ShownStatus::default()
        };
        let unknown = ShownStatus::default();
        for (shown, parts, reason, message, start) in [
            (
                &started,
                vec![running.clone(), part.clone()],
                "BackoffLimitExceeded",
                "no more",
                None,
            ),
            (
                &unknown,
                vec![running, part],
                "BackoffLimitExceeded",
                "no more",
                Some("2026-11-25T13:00:00Z"),
            ),
            (
                &unknown,
                vec![],
                "JobFailed",
                "in member2: no more",
                Some(AT),
            ),
        ] {
            let patch = QueuedStatus::Condition.failed(shown, &parts, "in member2: no more", AT);
            let status = patch.unwrap()["status"].take();
            for type_ in ["FailureTarget", "Failed"] {
                let said = condition(&status, type_).unwrap();
                assert_eq!(
                    (text(said, "reason"), text(said, "message")),
                    (reason, message)
                );
            }
            assert_eq!(status.get("startTime").and_then(Value::as_str), start);
            assert_eq!(
                (&status["active"], &status["ready"]),
                (&Value::Null, &json!(0))
            );
            let job = json!({"apiVersion": "batch/v1", "kind": "Job", "status": status});
            assert!(shown_status(&job).ended);
        }
        assert_eq!(QueuedStatus::State.failed(&unknown, &[], "", AT), None);
    }

    #[test]
    fn kinds_without_a_place_are_left_alone() {
        for (api_version, kind) in [("kubeflow.org/v1", "PyTorchJob"), ("apps/v1", "Deployment")] {
            assert_eq!(QueuedStatus::of(api_version, kind), None);
        }
    }
}
