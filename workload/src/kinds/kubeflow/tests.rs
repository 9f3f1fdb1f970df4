#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use crate::testing::{asked, yaml};
use insta::assert_snapshot;

const PYTORCH: &str = r#"
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: llm, annotations: {scheduling.volcano.sh/queue-name: speech}}
spec:
  runPolicy: {activeDeadlineSeconds: 3600, schedulingPolicy: {}}
  pytorchReplicaSpecs:
    Worker:
      replicas: 3
      template: {spec: {priorityClassName: low, containers: [{resources: {limits: {nvidia.com/gpu: 8}}}]}}
    Master:
      template: {spec: {priorityClassName: high, containers: [{resources: {limits: {nvidia.com/gpu: 8}}}]}}
"#;

fn with(path: &str, value: serde_json::Value) -> String {
    let mut template = yaml(PYTORCH);
    *path.split('.').fold(&mut template, |at, key| &mut at[key]) = value;
    crate::testing::shown(crate::read_spec(&template))
}

#[test]
fn every_replica_is_in_the_gang_and_the_master_comes_first() {
    assert_snapshot!(asked(PYTORCH), @r"
    master 1 × (nvidia.com/gpu 8, pods 1)
    worker 3 × (cpu 50m, memory 10Mi, nvidia.com/gpu 8, pods 1)
    min 4 (cpu 150m, memory 30Mi, nvidia.com/gpu 32, pods 4)
    queue speech
    class high
    runs 3600000 ms
    ");
}

#[test]
fn the_scheduling_policy_rules() {
    let policy = serde_json::json!({
        "minAvailable": 2, "queue": "vision", "priorityClass": "urgent",
        "minResources": {"nvidia.com/gpu": 16},
    });
    assert_snapshot!(with("spec.runPolicy.schedulingPolicy", policy), @r"
    master 1 × (nvidia.com/gpu 8, pods 1)
    worker 3 × (cpu 50m, memory 10Mi, nvidia.com/gpu 8, pods 1) min 1
    min 2 (nvidia.com/gpu 16)
    queue vision
    class urgent
    runs 3600000 ms
    ");
    assert_snapshot!(with("spec.runPolicy.schedulingPolicy.minAvailable", 5.into()), @"InvalidTemplate: spec.runPolicy.schedulingPolicy.minAvailable is 5; needed: at most 4, all its replicas");
    assert!(with("spec.runPolicy.suspend", true.into()).ends_with("suspended"));
}

#[test]
fn an_autoscaler_may_start_all_that_the_elastic_policy_allows() {
    let elastic = serde_json::json!({"minReplicas": 1, "maxReplicas": 6});
    let workers = |text: String| text.lines().nth(1).unwrap_or_default().to_owned();
    assert_snapshot!(workers(with("spec.elasticPolicy", elastic.clone())), @"worker 3 × (cpu 50m, memory 10Mi, nvidia.com/gpu 8, pods 1)");
    let mut scaled = elastic;
    scaled["metrics"] = serde_json::json!([{"type": "Resource"}]);
    assert_snapshot!(workers(with("spec.elasticPolicy", scaled)), @"worker 6 × (cpu 50m, memory 10Mi, nvidia.com/gpu 8, pods 1) min 3");
}

/// training-operator's `init-pytorch` runs before the containers of a worker, so the larger request counts.
#[test]
fn workers_wait_for_the_master_in_a_container_of_their_own() {
    let worker = |containers: &str| {
        let text = with(
            "spec.pytorchReplicaSpecs.Worker.template.spec",
            yaml(containers),
        );
        text.lines().nth(1).unwrap_or_default().to_owned()
    };
    assert_snapshot!(worker("{containers: [{}]}"), @"worker 3 × (cpu 50m, memory 10Mi, pods 1)");
    assert_snapshot!(worker("{containers: [{resources: {requests: {cpu: 8, memory: 1Mi}}}]}"), @"worker 3 × (cpu 8, memory 10Mi, pods 1)");
    // A limit of the whole pod is no request where a container requests the resource.
    assert_snapshot!(worker("{resources: {limits: {cpu: 4}}, containers: [{}]}"), @"worker 3 × (cpu 50m, memory 10Mi, pods 1)");
    let alone = with(
        "spec.pytorchReplicaSpecs",
        serde_json::json!({"Worker": {"template": {"spec": {"containers": [{}]}}}}),
    );
    assert!(alone.starts_with("worker 1 × (pods 1)"), "{alone}");
}

#[test]
fn mpi_jobs_without_replicas_have_a_launcher_only() {
    let mpi = |version: &str| {
        let text = format!(
            "{{apiVersion: kubeflow.org/{version}, kind: MPIJob, spec: {{mpiReplicaSpecs: {{Worker: {{template: {{spec: {{containers: [{{}}]}}}}}}, Launcher: {{template: {{spec: {{containers: [{{}}]}}}}}}}}}}}}"
        );
        asked(&text)
    };
    assert_snapshot!(mpi("v2beta1"), @r"
    launcher 1 × (pods 1)
    worker 0 × (pods 1)
    min 1 (pods 1)
    ");
    assert_snapshot!(mpi("v1"), @r"
    launcher 1 × (cpu 100m, ephemeral-storage 5Gi, memory 512Mi, pods 1)
    worker 1 × (pods 1)
    min 2 (cpu 100m, ephemeral-storage 5Gi, memory 512Mi, pods 2)
    ");
}

#[test]
fn similar_training_jobs_are_read_alike() {
    let pod = "{spec: {containers: [{resources: {requests: {cpu: 1}}}]}}";
    assert_snapshot!(asked(&format!(
        "{{apiVersion: kubeflow.org/v1, kind: TFJob, spec: {{tfReplicaSpecs: {{Evaluator: {{template: {pod}}}, Worker: {{replicas: 4, template: {pod}}}, PS: {{replicas: 2, template: {pod}}}, Chief: {{template: {pod}}}}}}}}}"
    )), @r"
    chief 1 × (cpu 1, pods 1)
    ps 2 × (cpu 1, pods 1)
    evaluator 1 × (cpu 1, pods 1)
    worker 4 × (cpu 1, pods 1)
    min 8 (cpu 8, pods 8)
    ");
    for (kind, field) in [
        ("XGBoostJob", "xgb"),
        ("PaddleJob", "paddle"),
        ("JAXJob", "jax"),
    ] {
        let text = format!(
            "{{apiVersion: kubeflow.org/v1, kind: {kind}, spec: {{{field}ReplicaSpecs: {{Worker: {{template: {pod}}}}}}}}}"
        );
        assert!(
            asked(&text).starts_with("worker 1 × (cpu 1, pods 1)"),
            "{kind}"
        );
    }
}

#[test]
fn invalid_values_are_named() {
    let pods = "spec.pytorchReplicaSpecs";
    let errors = [
        with(pods, serde_json::json!({})),
        with(pods, serde_json::json!({"Worker": {"replicas": -1}})),
        with(pods, serde_json::json!({"Worker": {"template": {}}})),
        with(
            pods,
            serde_json::json!({"Worker": {"template": {"spec": {"containers": [{}]}}}, "worker": {"template": {"spec": {"containers": [{}]}}}}),
        ),
        with("spec.runPolicy.suspend", "yes".into()),
    ];
    assert_snapshot!(errors.join("\n"), @r#"
    InvalidTemplate: spec.pytorchReplicaSpecs is {}; needed: at least one group of replicas
    InvalidTemplate: spec.pytorchReplicaSpecs[Worker].replicas is -1; needed: a whole number from 0 to 1000000
    InvalidTemplate: spec.pytorchReplicaSpecs[Worker].template.spec.containers is absent; needed: at least one container
    InvalidTemplate: spec.pytorchReplicaSpecs is "worker" twice; needed: a name of its own for each group of pods
    InvalidTemplate: spec.runPolicy.suspend is "yes"; needed: true or false
    "#);
}
