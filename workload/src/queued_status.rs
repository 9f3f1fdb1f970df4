//! How the status of a template says that its job is queued, for the kinds whose own tools would otherwise
//! say that it runs, or nothing.
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
    /// admitted one until its members report.
    #[must_use]
    pub fn no_longer_queued(self, at: &str) -> Option<Value> {
        match self {
            Self::Condition => {
                let message = "its job is no longer queued";
                Some(suspended("False", "NotQueued", message, at))
            }
            Self::State => None,
        }
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

/// Returns what the status of `template` says of why its job is queued, if it says that it is.
#[must_use]
pub fn shown_as_queued(template: &Value) -> Option<&str> {
    let (api_version, kind) = (text(template, "apiVersion"), text(template, "kind"));
    let status = template.get("status")?;
    let place = match QueuedStatus::of(api_version, kind)? {
        QueuedStatus::Condition => condition(status, "Suspended")?,
        QueuedStatus::State => status.get("state")?,
    };
    (text(place, "reason") == QUEUED).then(|| text(place, "message"))
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
                shown_as_queued(&patch).map(str::to_owned)
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
        assert_eq!(shown_as_queued(&job), None);
        let state = json!({"state": {"phase": "Pending"}});
        let job =
            json!({"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "status": state});
        assert_eq!(shown_as_queued(&job), None);
        assert_eq!(shown_as_queued(&json!({})), None);
    }

    #[test]
    fn kinds_without_a_place_are_left_alone() {
        for (api_version, kind) in [("kubeflow.org/v1", "PyTorchJob"), ("apps/v1", "Deployment")] {
            assert_eq!(QueuedStatus::of(api_version, kind), None);
        }
    }
}
