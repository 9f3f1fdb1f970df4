//! The pod whose success is the success of its whole gang.
//!
//! Frameworks have a pod that leads, and consider the job finished when that pod has ended, whatever the
//! other pods do. An operator does that only in its own cluster. In a gang over several clusters the part
//! with that pod ends the gang, so it has to be one pod in one part.

use crate::kinds;
use serde_json::Value;

/// Returns the role of that pod, if a template has one.
pub(crate) fn role(template: &Value) -> Option<String> {
    kinds::of_template(template)?.leading_role(template)
}

/// Returns true if a count is one; a missing count is `unstated`.
pub(crate) fn is_one(count: &Value, unstated: bool) -> bool {
    match count {
        Value::Null => unstated,
        count => count.as_u64() == Some(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::yaml;

    const COMPLETES: &str = "policies: [{event: TaskCompleted, action: CompleteJob}]";

    fn volcano(spec: &str) -> Option<String> {
        let job = "apiVersion: batch.volcano.sh/v1alpha1, kind: Job";
        role(&yaml(&format!("{{{job}, spec: {spec}}}")))
    }

    fn kubeflow(kind: &str, field: &str, groups: &str) -> Option<String> {
        let job = format!("apiVersion: kubeflow.org/v1, kind: {kind}");
        role(&yaml(&format!("{{{job}, spec: {{{field}: {groups}}}}}")))
    }

    #[test]
    fn the_master_of_a_pytorchjob_leads() {
        for (groups, want) in [
            ("{Master: {}, Worker: {replicas: 3}}", Some("master")),
            ("{Master: {replicas: 1}}", Some("master")),
            ("{master: {replicas: 1}}", Some("master")),
            ("{Master: {replicas: 2}}", None),
            ("{Worker: {replicas: 3}}", None),
        ] {
            let role = kubeflow("PyTorchJob", "pytorchReplicaSpecs", groups);
            assert_eq!(role.as_deref(), want, "{groups}");
        }
    }

    #[test]
    fn the_chief_of_a_tfjob_leads() {
        for (groups, want) in [
            ("{Chief: {}, PS: {replicas: 2}, Worker: {}}", Some("chief")),
            ("{Master: {}, Worker: {replicas: 3}}", Some("master")),
            ("{Chief: {}, Master: {}}", None),
            ("{PS: {}, Worker: {}}", None),
        ] {
            let role = kubeflow("TFJob", "tfReplicaSpecs", groups);
            assert_eq!(role.as_deref(), want, "{groups}");
        }
    }

    #[test]
    fn the_launcher_of_an_mpijob_leads() {
        for (groups, want) in [
            ("{Launcher: {}, Worker: {replicas: 3}}", Some("launcher")),
            ("{Launcher: {replicas: 2}, Worker: {}}", None),
            ("{Master: {}, Worker: {}}", None),
        ] {
            let role = kubeflow("MPIJob", "mpiReplicaSpecs", groups);
            assert_eq!(role.as_deref(), want, "{groups}");
        }
    }

    #[test]
    fn a_task_of_one_pod_leads_that_completes_its_job_by_its_end() {
        let one = format!("{{name: a, replicas: 1, {COMPLETES}}}");
        let unnamed = format!("{{replicas: 1, {COMPLETES}}}");
        for (tasks, want) in [
            (format!("[{one}, {{name: b, replicas: 2}}]"), Some("a")),
            (format!("[{{name: b, replicas: 2}}, {unnamed}]"), Some("default1")),
            ("[{name: a, replicas: 1, policies: [{events: [TaskCompleted], action: CompleteJob}, {event: PodFailed, action: RestartJob}]}]".to_owned(), Some("a")),
            (format!("[{{name: a, replicas: 2, {COMPLETES}}}]"), None),
            (format!("[{{name: a, {COMPLETES}}}]"), None),
            (format!("[{one}, {unnamed}]"), None),
            ("[{name: a, replicas: 1}]".to_owned(), None),
            ("[{name: a, replicas: 1, policies: [{event: PodFailed, action: CompleteJob}]}]".to_owned(), None),
            ("[{name: a, replicas: 1, policies: [{events: [TaskCompleted, PodFailed], action: CompleteJob}]}]".to_owned(), None),
            ("[{name: a, replicas: 1, policies: [{exitCode: 3, action: CompleteJob}]}]".to_owned(), None),
        ] {
            assert_eq!(volcano(&format!("{{tasks: {tasks}}}")).as_deref(), want, "{tasks}");
        }
    }

    #[test]
    fn a_replicated_job_of_one_pod_leads_that_alone_has_to_succeed() {
        const DRIVER: &str = "{name: driver, template: {spec: {completions: 1}}}";
        const WORKERS: &str = "{name: workers, replicas: 3}";
        for (jobs, policy, want) in [
            (
                [DRIVER, WORKERS],
                "{operator: All, targetReplicatedJobs: [driver]}",
                Some("driver"),
            ),
            (
                [DRIVER, WORKERS],
                "{operator: Any, targetReplicatedJobs: [driver]}",
                Some("driver"),
            ),
            (
                [DRIVER, WORKERS],
                "{operator: All, targetReplicatedJobs: [workers]}",
                None,
            ),
            (
                [DRIVER, WORKERS],
                "{operator: Any, targetReplicatedJobs: [driver, workers]}",
                None,
            ),
            ([DRIVER, WORKERS], "{operator: Any}", None),
            (
                [DRIVER, WORKERS],
                "{operator: All, targetReplicatedJobs: [other]}",
                None,
            ),
            (
                [
                    "{name: driver, template: {spec: {parallelism: 2}}}",
                    WORKERS,
                ],
                "{operator: All, targetReplicatedJobs: [driver]}",
                None,
            ),
        ] {
            let set = "apiVersion: jobset.x-k8s.io/v1alpha2, kind: JobSet";
            let jobs = jobs.join(", ");
            let set =
                format!("{{{set}, spec: {{replicatedJobs: [{jobs}], successPolicy: {policy}}}}}");
            assert_eq!(role(&yaml(&set)).as_deref(), want, "{set}");
        }
    }

    #[test]
    fn the_head_of_a_rayjob_leads_and_that_of_a_raycluster_ends_nothing() {
        let ray = |kind: &str, spec: &str| {
            role(&yaml(&format!(
                "{{apiVersion: ray.io/v1, kind: {kind}, spec: {spec}}}"
            )))
        };
        let job = ray("RayJob", "{rayClusterSpec: {headGroupSpec: {}}}");
        assert_eq!(job.as_deref(), Some("ray-head"));
        assert_eq!(ray("RayJob", "{clusterSelector: {a: b}}"), None);
        assert_eq!(ray("RayCluster", "{headGroupSpec: {}}"), None);
    }

    #[test]
    fn other_kinds_have_none() {
        assert_eq!(role(&yaml("{apiVersion: batch/v1, kind: Job}")), None);
        assert_eq!(role(&yaml("{}")), None);
    }
}
