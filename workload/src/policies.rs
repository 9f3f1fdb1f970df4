//! What the policies of a job mean for the whole gang once it is in parts.
//!
//! The operator of a member applies a job's policies to the object in its own cluster. In a gang over several
//! clusters it would restart, abort or complete one part, while the pods of the others wait for it. So the
//! policies of a part never restart it: they only stop it, and the way in which it stops says what the whole
//! gang has to do.
//!
//! ```text
//! RestartJob in the template ──► TerminateJob in each part ──► phase Terminated ──► GangAction::Restart
//! ```

use crate::kinds;
use facts::Share;
use serde_json::Value;
use std::collections::BTreeMap;

/// The policies of a job in several parts, as far as they concern the whole gang.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GangPolicies {
    /// The phase in which a part asks for a restart of the whole gang; `None` if no policy restarts it.
    pub restart_phase: Option<String>,
    /// What a part asks for whose pods have all ended before its operator executed their policy; `None` if it
    /// has failed then.
    pub failed_action: Option<GangAction>,
    /// The number of retries at which the gang has failed. Restarts of single tasks and pods count too.
    pub max_retry: u32,
    /// The tasks that complete the gang once all of their pods have succeeded, and the pods of each in all
    /// clusters. No part completes by them.
    pub completing: BTreeMap<String, u32>,
}

impl GangPolicies {
    /// Returns true if the gang may be restarted once more after this number of retries.
    #[must_use]
    pub fn may_restart(&self, retries: u32) -> bool {
        retries.saturating_add(1) < self.max_retry
    }
}

/// What a part asks of the whole gang by the way in which it stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GangAction {
    /// To end: the gang has succeeded.
    Complete,
    /// To stop until a user resumes it.
    Abort,
    /// To end: the gang has failed.
    Terminate,
    /// To start again from the beginning, as the next attempt.
    Restart,
}

impl GangAction {
    const ALL: [Self; 4] = [Self::Complete, Self::Abort, Self::Terminate, Self::Restart];

    /// Returns its name, as records have it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Complete => "Complete",
            Self::Abort => "Abort",
            Self::Terminate => "Terminate",
            Self::Restart => "Restart",
        }
    }

    /// Returns the action with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|action| action.as_str() == name)
    }
}

/// Returns what a part with this `status` asks of its gang; `None` if it goes on, or has just ended by itself.
#[must_use]
pub fn gang_action(
    api_version: &str,
    kind: &str,
    status: &Value,
    policies: &GangPolicies,
) -> Option<GangAction> {
    kinds::of(api_version, kind)?.gang_action(status, policies)
}

/// Returns the task that completes a gang, if all of its pods have succeeded by the `statuses` of the parts.
#[must_use]
pub fn completed_task(
    api_version: &str,
    kind: &str,
    statuses: &[Value],
    policies: &GangPolicies,
) -> Option<String> {
    let kind = kinds::of(api_version, kind)?;
    let succeeded = |task: &str| {
        let counts = statuses.iter().map(|status| kind.succeeded(status, task));
        counts.fold(0, u32::saturating_add)
    };
    let mut tasks = policies.completing.iter();
    let completed = tasks.find(|(task, pods)| **pods > 0 && succeeded(task) >= **pods);
    completed.map(|(task, _)| task.clone())
}

/// Returns how often the operators of the members have restarted a job or pods of it, summed over its parts.
#[must_use]
pub fn retries(api_version: &str, kind: &str, statuses: &[Value]) -> u32 {
    let Some(kind) = kinds::of(api_version, kind) else {
        return 0;
    };
    let counts = statuses.iter().map(|status| kind.retries(status));
    counts.fold(0, u32::saturating_add)
}

/// Returns which rule of its own template has ended a failed job: it says by itself that it must not be tried
/// again. `None` if it failed for another reason.
#[must_use]
pub fn ended_by_rule(
    api_version: &str,
    kind: &str,
    statuses: &[Value],
    policies: Option<&GangPolicies>,
) -> Option<String> {
    let kind = kinds::of(api_version, kind)?;
    let mut parts = statuses.iter();
    parts.find_map(|status| kind.ended_by_rule(status, policies))
}

/// Returns true if `template` says that a pod with an exit code below 128 must not be tried again.
#[must_use]
pub fn has_permanent_exit_codes(template: &Value) -> bool {
    kinds::of_template(template).is_some_and(|kind| kind.has_permanent_exit_codes(template))
}

/// Lowers the retries that `template` allows by those that were `used` in earlier attempts.
pub fn limit_retries(template: &mut Value, used: u32) {
    if used > 0
        && let Some(kind) = kinds::of_template(template)
    {
        kind.limit_retries(template, used);
    }
}

/// Returns the policies of `template` that concern a whole gang.
pub(crate) fn of(template: &Value) -> Option<GangPolicies> {
    kinds::of_template(template)?.gang_policies(template)
}

/// Returns the policies of a job over the clusters of `shares`. With one cluster, the job is whole there, and
/// its operator applies them.
pub(crate) fn over(policies: Option<&GangPolicies>, shares: &[Share]) -> Option<GangPolicies> {
    let mut policies = policies.filter(|_| shares.len() > 1)?.clone();
    for (task, pods) in &mut policies.completing {
        *pods = pods_of(task, shares);
    }
    Some(policies)
}

fn pods_of(task: &str, shares: &[Share]) -> u32 {
    let roles = shares.iter().flat_map(|share| &share.pods);
    let counts = roles
        .filter(|role| role.role == task)
        .map(|role| role.count);
    counts.fold(0, u32::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_job_that_its_own_template_ended_differs_from_one_that_failed() {
        let failed = |reason: &str| json!({"conditions": [{"type": "Failed", "status": "True", "reason": reason}]});
        let phase = |phase: &str| json!({"state": {"phase": phase}});
        let (batch, volcano) = (("batch/v1", "Job"), ("batch.volcano.sh/v1alpha1", "Job"));
        let job_set = ("jobset.x-k8s.io/v1alpha2", "JobSet");
        for ((api_version, kind), status, rule) in [
            (batch, failed("BackoffLimitExceeded"), None),
            (
                batch,
                failed("PodFailurePolicy"),
                Some("spec.podFailurePolicy (FailJob)"),
            ),
            (
                batch,
                failed("DeadlineExceeded"),
                Some("spec.activeDeadlineSeconds"),
            ),
            (job_set, failed("ReachedMaxRestarts"), None),
            (
                job_set,
                failed("FailJobSetFailurePolicyAction"),
                Some("spec.failurePolicy (FailJobSet)"),
            ),
            (volcano, phase("Failed"), None),
            (
                volcano,
                phase("Terminated"),
                Some("spec.policies (TerminateJob)"),
            ),
            (
                ("ray.io/v1", "RayJob"),
                json!({"jobDeploymentStatus": "Failed", "reason": "DeadlineExceeded"}),
                Some("spec.activeDeadlineSeconds"),
            ),
            (
                ("kubeflow.org/v1", "PyTorchJob"),
                failed("PyTorchJobFailed"),
                None,
            ),
            (
                ("example.com/v1", "Unknown"),
                failed("PodFailurePolicy"),
                None,
            ),
        ] {
            let statuses = [json!(null), status];
            let ended = ended_by_rule(api_version, kind, &statuses, None);
            assert_eq!(ended.as_deref(), rule, "{kind} {statuses:?}");
        }
        // In a gang over several clusters it asks for a restart, by Muster.
        let restarts = GangPolicies {
            restart_phase: Some("Terminated".to_owned()),
            failed_action: None,
            max_retry: 3,
            completing: BTreeMap::new(),
        };
        let (api_version, kind) = volcano;
        let statuses = [phase("Terminated")];
        let ended = |policies| ended_by_rule(api_version, kind, &statuses, policies);
        assert_eq!(ended(Some(&restarts)), None);
    }

    #[test]
    fn a_task_completes_its_gang_once_its_pods_have_succeeded_in_all_clusters() {
        let policies = GangPolicies {
            restart_phase: None,
            failed_action: None,
            max_retry: 3,
            completing: BTreeMap::from([("worker".to_owned(), 5), ("none".to_owned(), 0)]),
        };
        let done = |succeeded: u32| {
            let counts =
                json!({"worker": {"phase": {"Succeeded": succeeded, "Running": 5 - succeeded}}});
            json!({"state": {"phase": "Running"}, "taskStatusCount": counts})
        };
        let completed = |statuses: &[Value]| {
            completed_task("batch.volcano.sh/v1alpha1", "Job", statuses, &policies)
        };
        assert_eq!(completed(&[done(3), done(1)]), None);
        assert_eq!(completed(&[done(3), json!(null)]), None);
        assert_eq!(completed(&[done(3), done(2)]).as_deref(), Some("worker"));
    }

    #[test]
    fn exit_codes_are_permanent_where_the_template_says_so() {
        let of = |policy: &str| {
            let worker = json!({"replicas": 2, "restartPolicy": policy});
            json!({
                "apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob",
                "spec": {"pytorchReplicaSpecs": {"Master": {"replicas": 1}, "Worker": worker}},
            })
        };
        assert!(has_permanent_exit_codes(&of("ExitCode")));
        assert!(!has_permanent_exit_codes(&of("OnFailure")));
    }
}
