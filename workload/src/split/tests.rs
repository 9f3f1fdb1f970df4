#![allow(clippy::unwrap_used)]

use super::*;
use crate::testing::yaml;

fn requested(template: &str) -> String {
    let template = yaml(template);
    match request(&Field::root(&template)) {
        Ok(SplitRequest {
            split: Some(split),
            max_clusters,
        }) => match max_clusters {
            Some(most) => format!("{split:?} {most}"),
            None => format!("{split:?}"),
        },
        Ok(_) => "as its queue says".to_owned(),
        Err(error) => error.to_string(),
    }
}

fn volcano(split: &str, spec: &str) -> String {
    format!(
        "{{apiVersion: batch.volcano.sh/v1alpha1, kind: Job, metadata: {{annotations: {{muster.io/split: {split}}}}}, spec: {spec}}}"
    )
}

fn torch(spec: &str) -> String {
    format!(
        "{{apiVersion: kubeflow.org/v1, kind: PyTorchJob, metadata: {{annotations: {{muster.io/split: Allowed}}}}, spec: {{{spec}}}}}"
    )
}

fn tensorflow(spec: &str) -> String {
    torch(spec).replacen("PyTorchJob", "TFJob", 1)
}

const TASKS: &str = "{tasks: [{name: w, replicas: 4}]}";

#[test]
fn what_is_asked_for() {
    for (asked, want) in [
        ("Never", "Never"),
        ("Allowed", "Allowed"),
        ("Preferred", "Preferred"),
        ("\"1\"", "Never"),
        ("\"3\"", "Allowed 3"),
    ] {
        assert_eq!(requested(&volcano(asked, TASKS)), want, "{asked}");
    }
    let unsaid = "{apiVersion: batch/v1, kind: Job, metadata: {name: a}}";
    assert_eq!(requested(unsaid), "as its queue says");
    // Its queue's default does not apply to a job that cannot be split.
    let unsaid = "{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: a}}";
    assert_eq!(requested(unsaid), "Never");
    for wrong in ["allowed", "\"0\"", "\"-1\"", "two"] {
        let told = requested(&volcano(wrong, TASKS));
        assert!(
            told.contains("metadata.annotations[muster.io/split]") && told.contains("Preferred"),
            "{told}"
        );
    }
}

#[test]
fn an_unsplittable_job_says_why_and_runs_in_one_cluster() {
    let kind = |api: &str, kind: &str| {
        format!(
            "{{apiVersion: {api}, kind: {kind}, metadata: {{annotations: {{muster.io/split: Allowed}}}}, spec: {{}}}}"
        )
    };
    let policy = "policies: [{event: '*', action: CompleteJob}]";
    let cases = [
        (volcano("Allowed", "{plugins: {svc: [], mpi: []}, tasks: []}"), "spec.plugins.mpi"),
        (volcano("Allowed", "{plugins: {svc: [], ssh: []}, tasks: []}"), "spec.plugins.ssh creates other keys"),
        (volcano("Allowed", &format!("{{{policy}, tasks: []}}")), "spec.policies: CompleteJob by *"),
        (volcano("Allowed", &format!("{{tasks: [{{replicas: 1}}, {{replicas: 2, {policy}}}]}}")), "spec.tasks[1].policies: CompleteJob"),
        (volcano("Allowed", "{minSuccess: 1, tasks: [{replicas: 2}]}"), "spec.minSuccess counts the pods of one cluster"),
        (volcano("Allowed", "{tasks: [{replicas: 1, dependsOn: {name: [a]}}]}"), "spec.tasks[0].dependsOn"),
        (volcano("Allowed", "{tasks: [{partitionPolicy: {totalPartitions: 2}}]}"), "spec.tasks[0].partitionPolicy"),
        ("{apiVersion: batch/v1, kind: Job, metadata: {annotations: {muster.io/split: '2'}}, spec: {successPolicy: {rules: []}}}".to_owned(), "spec.successPolicy"),
        (kind("kubeflow.org/v1", "TFJob"), "spec.tfReplicaSpecs has no single Chief"),
        (tensorflow("enableDynamicWorker: true"), "spec.enableDynamicWorker"),
        (tensorflow("tfReplicaSpecs: {PS: {}, Worker: {}}"), "has no single Chief"),
        (tensorflow("tfReplicaSpecs: {Chief: {template: {spec: {containers: [{name: tensorflow}]}}}}"), "spec.tfReplicaSpecs[Chief] container tensorflow has no command"),
        (tensorflow("tfReplicaSpecs: {Chief: {template: {spec: {containers: [{name: tensorflow, command: [a, $(TF_CONFIG)]}]}}}}"), "$(TF_CONFIG)"),
        (torch("elasticPolicy: {}"), "spec.elasticPolicy"),
        (torch("runPolicy: {schedulingPolicy: {minResources: {cpu: 1}}}"), "minResources is of the whole"),
        (torch("pytorchReplicaSpecs: {Worker: {template: {spec: {containers: [{name: pytorch, command: [a]}]}}}}"), "has no Master"),
        (torch("pytorchReplicaSpecs: {Master: {template: {spec: {containers: [{name: pytorch}]}}}}"), "spec.pytorchReplicaSpecs[Master] container pytorch has no command"),
        (torch("pytorchReplicaSpecs: {Master: {template: {spec: {containers: [{name: pytorch, command: [a], args: [--rank=$(RANK)]}]}}}}"), "$(RANK)"),
        ("{apiVersion: jobset.x-k8s.io/v1alpha2, kind: JobSet, metadata: {annotations: {muster.io/split: Allowed}}, spec: {failurePolicy: {maxRestarts: 1}}}".to_owned(), "spec.failurePolicy.maxRestarts"),
        (kind("ray.io/v1", "RayCluster").replace("spec: {}", "spec: {enableInTreeAutoscaling: true}"), "spec.enableInTreeAutoscaling makes the head"),
        (kind("ray.io/v1", "RayJob").replace("spec: {}", "spec: {clusterSelector: {a: b}}"), "spec.clusterSelector makes it run"),
        (kind("apps/v1", "StatefulSet"), "a StatefulSet find each other by names"),
        (kind("apps/v1", "Deployment"), "replicaSchedulingType Divided"),
        (kind("v1", "Pod"), "a Pod cannot be divided"),
        ("{apiVersion: batch/v1, kind: Job, metadata: {annotations: {muster.io/split: Allowed, muster.io/elastic: 'true'}}, spec: {}}".to_owned(), "an elastic Job"),
    ];
    let fine = torch(
        "pytorchReplicaSpecs: {Master: {template: {spec: {containers: [{name: pytorch, command: [a]}]}}}}",
    );
    assert_eq!(
        (requested(&fine), refused(&yaml(&fine))),
        ("Allowed".to_owned(), None)
    );
    let fine = tensorflow(
        "tfReplicaSpecs: {Chief: {template: {spec: {containers: [{name: tensorflow, command: [a]}]}}}}",
    );
    assert_eq!(
        (requested(&fine), refused(&yaml(&fine))),
        ("Allowed".to_owned(), None)
    );
    for (template, why) in cases {
        assert_eq!(requested(&template), "Never", "{template}");
        let told = refused(&yaml(&template)).unwrap();
        assert!(
            told.contains(why) && told.contains("runs in one cluster"),
            "{told}"
        );
    }
}

#[test]
fn a_job_that_can_be_split_gets_no_reason() {
    let restarts = "{policies: [{event: PodEvicted, action: RestartJob}], plugins: {svc: [], env: []}, tasks: [{replicas: 4}]}";
    let job = "{apiVersion: batch/v1, kind: Job, metadata: {annotations: {muster.io/split: Preferred}}, spec: {completionMode: Indexed, completions: 4}}";
    let led = "{tasks: [{replicas: 4}, {replicas: 1, policies: [{event: TaskCompleted, action: CompleteJob}]}]}";
    let set = "{apiVersion: jobset.x-k8s.io/v1alpha2, kind: JobSet, metadata: {annotations: {muster.io/split: Preferred}}, spec: {replicatedJobs: [{name: w, replicas: 4}]}}";
    let ray = "{apiVersion: ray.io/v1, kind: RayCluster, metadata: {annotations: {muster.io/split: Preferred}}, spec: {headGroupSpec: {}, workerGroupSpecs: [{groupName: w, replicas: 4}]}}";
    for template in [
        ray.to_owned(),
        volcano("Preferred", restarts),
        volcano("Preferred", led),
        job.to_owned(),
        set.to_owned(),
    ] {
        assert_eq!(requested(&template), "Preferred");
        assert_eq!(refused(&yaml(&template)), None);
    }
    // A job that does not ask gets no reason.
    let unasked = "{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: a}}";
    assert_eq!(refused(&yaml(unasked)), None);
}
