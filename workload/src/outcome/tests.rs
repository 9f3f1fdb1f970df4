#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use super::*;
use serde_json::json;

fn condition(kind: &str) -> Value {
    json!({"conditions": [
        {"type": "Running", "status": "False"},
        {"type": kind, "status": "True", "reason": "Because", "message": "of this"},
    ]})
}

fn name(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Failed { message } => format!("Failed: {message}"),
        other => format!("{other:?}"),
    }
}

#[test]
fn each_kind_ends_by_its_own_rules() {
    let failed = "Failed: Because: of this";
    let cases: &[(&str, &str, Value, &str)] = &[
        ("batch/v1", "Job", condition("Complete"), "Succeeded"),
        ("batch/v1", "Job", condition("Failed"), failed),
        ("batch/v1", "Job", condition("SuccessCriteriaMet"), "Active"),
        ("batch/v1", "Job", condition("FailureTarget"), "Active"),
        ("batch/v1", "Job", condition("Suspended"), "Suspended"),
        ("batch/v1", "Job", json!({"active": 3}), "Active"),
        ("batch/v1", "Job", json!({}), "Unknown"),
        ("batch/v1", "Job", Value::Null, "Unknown"),
        (
            "batch.volcano.sh/v1alpha1",
            "Job",
            json!({"state": {"phase": "Completed"}}),
            "Succeeded",
        ),
        (
            "batch.volcano.sh/v1alpha1",
            "Job",
            json!({"state": {"phase": "Failed", "message": "of this"}}),
            "Failed: Failed: of this",
        ),
        (
            "batch.volcano.sh/v1alpha1",
            "Job",
            json!({"state": {"phase": "Terminated"}}),
            "Failed: Terminated",
        ),
        (
            "batch.volcano.sh/v1alpha1",
            "Job",
            json!({"state": {"phase": "Terminating"}}),
            "Active",
        ),
        (
            "batch.volcano.sh/v1alpha1",
            "Job",
            json!({"state": {"phase": "Completing"}}),
            "Active",
        ),
        (
            "batch.volcano.sh/v1alpha1",
            "Job",
            json!({"state": {"phase": "Restarting"}}),
            "Active",
        ),
        (
            "batch.volcano.sh/v1alpha1",
            "Job",
            json!({"state": {"phase": "Aborted"}}),
            "Suspended",
        ),
        (
            "batch.volcano.sh/v1alpha1",
            "Job",
            json!({"state": {"phase": "Aborting"}}),
            "Active",
        ),
        (
            "batch.volcano.sh/v1alpha1",
            "Job",
            json!({"running": 3}),
            "Unknown",
        ),
        (
            "kubeflow.org/v1",
            "PyTorchJob",
            condition("Succeeded"),
            "Succeeded",
        ),
        ("kubeflow.org/v1", "TFJob", condition("Failed"), failed),
        (
            "kubeflow.org/v2beta1",
            "MPIJob",
            condition("Suspended"),
            "Suspended",
        ),
        (
            "kubeflow.org/v1",
            "PyTorchJob",
            condition("Restarting"),
            "Active",
        ),
        (
            "ray.io/v1",
            "RayJob",
            json!({"jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED"}),
            "Succeeded",
        ),
        (
            "ray.io/v1",
            "RayJob",
            json!({"jobDeploymentStatus": "Complete", "jobStatus": "FAILED"}),
            "Failed: FAILED",
        ),
        (
            "ray.io/v1",
            "RayJob",
            json!({"jobDeploymentStatus": "Failed", "jobStatus": "FAILED", "reason": "AppFailed"}),
            "Failed: FAILED: AppFailed",
        ),
        (
            "ray.io/v1",
            "RayJob",
            json!({"jobDeploymentStatus": "Retrying", "jobStatus": "FAILED"}),
            "Active",
        ),
        (
            "ray.io/v1",
            "RayJob",
            json!({"jobDeploymentStatus": "Suspended"}),
            "Suspended",
        ),
        (
            "ray.io/v1",
            "RayCluster",
            json!({"state": "ready"}),
            "Active",
        ),
        (
            "ray.io/v1",
            "RayCluster",
            json!({"state": "suspended"}),
            "Suspended",
        ),
        (
            "jobset.x-k8s.io/v1alpha2",
            "JobSet",
            json!({"terminalState": "Completed"}),
            "Succeeded",
        ),
        (
            "jobset.x-k8s.io/v1alpha2",
            "JobSet",
            condition("Failed"),
            failed,
        ),
        (
            "jobset.x-k8s.io/v1alpha2",
            "JobSet",
            condition("Completed"),
            "Succeeded",
        ),
        (
            "jobset.x-k8s.io/v1alpha2",
            "JobSet",
            condition("StartupPolicyInProgress"),
            "Active",
        ),
        ("v1", "Pod", json!({"phase": "Succeeded"}), "Succeeded"),
        (
            "v1",
            "Pod",
            json!({"phase": "Failed", "reason": "OOMKilled"}),
            "Failed: OOMKilled",
        ),
        ("v1", "Pod", json!({"phase": "Pending"}), "Active"),
        ("v1", "Pod", json!({"phase": "Unknown"}), "Unknown"),
        ("apps/v1", "Deployment", condition("Failed"), "Active"),
        ("apps/v1", "StatefulSet", json!({"replicas": 0}), "Active"),
        ("example.com/v1", "Thing", condition("Failed"), "Active"),
    ];
    for (api_version, kind, status, want) in cases {
        let got = outcome(
            api_version,
            kind,
            std::slice::from_ref(status),
            &GangRules::default(),
        );
        assert_eq!(name(&got), *want, "{api_version} {kind} {status}");
    }
}

#[test]
fn a_job_is_over_only_when_every_part_is() {
    let phase = |phase: &str| json!({"state": {"phase": phase, "message": phase.to_lowercase()}});
    let cases: &[(&[Value], &str)] = &[
        (&[], "Unknown"),
        (&[phase("Completed"), phase("Running")], "Active"),
        (&[phase("Failed"), phase("Running")], "Active"),
        (&[phase("Failed"), Value::Null], "Unknown"),
        (&[phase("Completed"), phase("Completed")], "Succeeded"),
        (
            &[phase("Completed"), phase("Failed")],
            "Failed: Failed: failed",
        ),
        (
            &[phase("Failed"), phase("Failed")],
            "Failed: Failed: failed",
        ),
        (
            &[phase("Failed"), phase("Terminated")],
            "Failed: Failed: failed; Terminated: terminated",
        ),
        (&[phase("Aborted"), phase("Completed")], "Suspended"),
        (&[phase("Aborted"), phase("Running")], "Active"),
    ];
    for (statuses, want) in cases {
        let got = outcome(
            "batch.volcano.sh/v1alpha1",
            "Job",
            statuses,
            &GangRules::default(),
        );
        assert_eq!(name(&got), *want, "{statuses:?}");
    }
}

#[test]
fn a_gang_is_not_over_while_a_part_asks_it_to_go_on_or_to_stop() {
    let phase = |phase: &str| json!({"state": {"phase": phase}});
    let completed = json!({
        "state": {"phase": "Completed"}, "conditions": [{"status": "Completing"}],
    });
    let last = "Failed: RestartJob, and its maxRetry of 3 is reached";
    let cases = [
        ([phase("Terminated"), phase("Terminated")], 0, "Active"),
        ([phase("Terminated"), phase("Completed")], 1, "Active"),
        ([phase("Terminated"), phase("Completed")], 2, last),
        ([phase("Terminated"), phase("Running")], 2, "Active"),
        ([phase("Failed"), phase("Completed")], 0, "Failed: Failed"),
        ([phase("Aborted"), phase("Aborted")], 0, "Active"),
        ([completed.clone(), phase("Failed")], 0, "Succeeded"),
        ([completed, phase("Running")], 0, "Active"),
    ];
    let policies = GangPolicies {
        restart_phase: Some("Terminated".to_owned()),
        failed_action: None,
        max_retry: 3,
        completing: Default::default(),
    };
    for (statuses, retries, want) in cases {
        let rules = GangRules {
            policies: Some(&policies),
            retries,
            ..GangRules::default()
        };
        let got = outcome("batch.volcano.sh/v1alpha1", "Job", &statuses, &rules);
        assert_eq!(name(&got), want, "{statuses:?} {retries}");
    }
}

#[test]
fn the_leading_part_decides_once_all_have_ended() {
    let ended = |type_: &str| json!({"conditions": [{"type": type_, "status": "True"}]});
    let runs = json!({"startTime": "t"});
    let (well, badly, held) = (ended("Succeeded"), ended("Failed"), ended("Suspended"));
    let cases: &[([&Value; 2], &str)] = &[
        ([&well, &runs], "Active"),
        ([&well, &Value::Null], "Unknown"),
        ([&well, &well], "Succeeded"),
        ([&well, &badly], "Succeeded"),
        ([&well, &held], "Succeeded"),
        ([&badly, &well], "Failed: failed"),
        ([&held, &well], "Suspended"),
    ];
    for (statuses, want) in cases {
        let statuses = statuses.map(Value::clone);
        let rules = |leading| GangRules {
            leading,
            ..GangRules::default()
        };
        let led = |leading| outcome("kubeflow.org/v1", "PyTorchJob", &statuses, &rules(leading));
        assert_eq!(name(&led(Some(0))), *want, "{statuses:?}");
        let reversed = [statuses[1].clone(), statuses[0].clone()];
        let got = outcome("kubeflow.org/v1", "PyTorchJob", &reversed, &rules(Some(1)));
        assert_eq!(name(&got), *want, "{reversed:?}");
    }
    // Without a leading part, every part counts.
    let got = outcome(
        "kubeflow.org/v1",
        "PyTorchJob",
        &[well, badly],
        &GangRules::default(),
    );
    assert_eq!(name(&got), "Failed: failed");
}

#[test]
fn pods_are_summed_over_parts() {
    let counted = |api_version, kind, statuses: &[Value]| {
        let PodCounts {
            pending,
            running,
            succeeded,
            failed,
        } = counts(api_version, kind, statuses);
        [pending, running, succeeded, failed]
    };
    let volcano = json!({"pending": 1, "running": 5, "succeeded": 2, "failed": 3});
    assert_eq!(
        counted(
            "batch.volcano.sh/v1alpha1",
            "Job",
            &[volcano.clone(), Value::Null, volcano]
        ),
        [2, 10, 4, 6]
    );
    assert_eq!(
        counted(
            "batch/v1",
            "Job",
            &[
                json!({"active": 4, "failed": 1}),
                json!({"active": 4, "ready": 1})
            ]
        ),
        [3, 5, 0, 1]
    );
    let training =
        json!({"replicaStatuses": {"Master": {"active": 1}, "Worker": {"active": 3, "failed": 1}}});
    assert_eq!(
        counted("kubeflow.org/v1", "PyTorchJob", &[training]),
        [0, 4, 0, 1]
    );
    assert_eq!(
        counted(
            "apps/v1",
            "Deployment",
            &[json!({"replicas": 5, "readyReplicas": 3})]
        ),
        [2, 3, 0, 0]
    );
    let ray = json!({"state": "ready", "availableWorkerReplicas": 3, "desiredWorkerReplicas": 4});
    assert_eq!(
        counted("ray.io/v1", "RayCluster", std::slice::from_ref(&ray)),
        [1, 4, 0, 0]
    );
    // The stand-in of a head in another part is no pod of its job.
    let workers =
        json!({"headElsewhere": true, "availableWorkerReplicas": 2, "desiredWorkerReplicas": 3});
    assert_eq!(
        counted("ray.io/v1", "RayCluster", &[ray.clone(), workers]),
        [2, 6, 0, 0]
    );
    let apart = json!({"headElsewhere": true, "rayClusterStatus": {"availableWorkerReplicas": 2, "desiredWorkerReplicas": 2}});
    assert_eq!(
        counted(
            "ray.io/v1",
            "RayJob",
            &[json!({"rayClusterStatus": ray}), apart]
        ),
        [1, 6, 0, 0]
    );
    let set =
        json!({"replicatedJobsStatus": [{"name": "a", "ready": 1, "active": 2, "succeeded": 3}]});
    assert_eq!(
        counted("jobset.x-k8s.io/v1alpha2", "JobSet", &[set]),
        [1, 1, 3, 0]
    );
    let set = json!({"replicatedJobsStatus": [
        {"name": "a", "ready": 1, "active": 2, "pods": 4}, {"name": "b", "succeeded": 1, "failed": 1},
    ]});
    assert_eq!(
        counted("jobset.x-k8s.io/v1alpha2", "JobSet", &[set]),
        [4, 4, 1, 1]
    );
    assert_eq!(
        counted("v1", "Pod", &[json!({"phase": "Running"})]),
        [0, 1, 0, 0]
    );
    assert_eq!(
        counted("example.com/v1", "Thing", &[json!({"running": 3})]),
        [0, 0, 0, 0]
    );
}
