#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use crate::testing::{asked, shown, yaml};
use crate::{read_spec, warnings};
use insta::assert_snapshot;
use serde_json::{Value, json};

const CLUSTER: &str = r#"
headGroupSpec:
  template: {spec: {priorityClassName: low, containers: [{resources: {requests: {cpu: 4, memory: 8Gi}}}]}}
workerGroupSpecs:
- groupName: gpu
  replicas: 4
  minReplicas: 2
  maxReplicas: 10
  numOfHosts: 2
  template: {spec: {containers: [{resources: {limits: {nvidia.com/gpu: 8}}}]}}
- groupName: cpu
  minReplicas: 1
  maxReplicas: 2147483647
  template: {spec: {containers: [{resources: {requests: {cpu: 16}}}]}}
"#;

fn cluster(change: impl Fn(&mut Value)) -> String {
    let mut template =
        json!({"apiVersion": "ray.io/v1", "kind": "RayCluster", "spec": yaml(CLUSTER)});
    change(&mut template["spec"]);
    shown(read_spec(&template))
}

fn job(spec: Value) -> Value {
    let mut spec = spec;
    if spec.get("clusterSelector").is_none() {
        spec["rayClusterSpec"] = yaml(CLUSTER);
    }
    json!({"apiVersion": "ray.io/v1", "kind": "RayJob", "spec": spec})
}

#[test]
fn a_rayjob_that_waits_for_its_user_has_all_of_its_pods() {
    let status = |phase: &str| json!({"jobDeploymentStatus": phase, "rayClusterStatus": {"state": "", "desiredWorkerReplicas": 3, "availableWorkerReplicas": 1}});
    let counts = |status: Value| {
        let counts = crate::counts("ray.io/v1", "RayJob", &[status]);
        (counts.running, counts.pending)
    };
    assert_eq!(counts(status("Initializing")), (1, 3));
    assert_eq!(counts(status("Waiting")), (4, 0));
    assert_eq!(counts(json!({"jobDeploymentStatus": "Waiting"})), (1, 0));
    let selects = job(json!({"clusterSelector": {"ray.io/cluster": "shared"}}));
    assert_snapshot!(warnings(&selects).join("\n"), @"spec.clusterSelector: the RayCluster that it selects has to run in the cluster where this job is placed; have a PropagationPolicy name that cluster for both");
}

#[test]
fn replicas_within_bounds_times_hosts() {
    assert_snapshot!(cluster(|_| ()), @r"
    ray-head 1 × (cpu 4, memory 8Gi, pods 1)
    gpu 8 × (cpu 200m, memory 256Mi, nvidia.com/gpu 8, pods 1) min 4
    cpu 1 × (cpu 16, memory 256Mi, pods 1)
    min 6 (cpu 20800m, memory 9472Mi, nvidia.com/gpu 32, pods 6)
    members cpu 1, gpu 4, ray-head 1
    class low
    ");
    assert_snapshot!(cluster(|spec| {
        spec["workerGroupSpecs"][0]["replicas"] = 12.into();
        spec["workerGroupSpecs"][1]["suspend"] = true.into();
        spec["suspend"] = true.into();
    }), @r"
    ray-head 1 × (cpu 4, memory 8Gi, pods 1)
    gpu 20 × (cpu 200m, memory 256Mi, nvidia.com/gpu 8, pods 1) min 4
    cpu 0 × (cpu 16, memory 256Mi, pods 1)
    min 5 (cpu 4800m, memory 9Gi, nvidia.com/gpu 32, pods 5)
    members cpu 0, gpu 4, ray-head 1
    class low
    suspended
    ");
}

#[test]
fn an_autoscaler_is_charged_its_bounds_and_itself() {
    assert_snapshot!(cluster(|spec| {
        spec["enableInTreeAutoscaling"] = true.into();
        spec["workerGroupSpecs"][1]["maxReplicas"] = 3.into();
    }), @r"
    ray-head 1 × (cpu 4500m, memory 8704Mi, pods 1)
    gpu 20 × (cpu 200m, memory 256Mi, nvidia.com/gpu 8, pods 1) min 4
    cpu 3 × (cpu 16, memory 256Mi, pods 1) min 1
    min 6 (cpu 21300m, memory 9984Mi, nvidia.com/gpu 32, pods 6)
    members cpu 1, gpu 4, ray-head 1
    class low
    ");
    assert_snapshot!(cluster(|spec| spec["enableInTreeAutoscaling"] = true.into()), @"InvalidTemplate: spec.workerGroupSpecs[1].maxReplicas is 2147483647; needed: a number up to 1000000: with enableInTreeAutoscaling every worker that may be started is charged");
    assert_snapshot!(cluster(|spec| {
        spec["enableInTreeAutoscaling"] = true.into();
        spec["autoscalerOptions"] = json!({"resources": {"limits": {"cpu": "1"}}});
        spec["workerGroupSpecs"] = json!([]);
    }), @r"
    ray-head 1 × (cpu 5, memory 8Gi, pods 1)
    min 1 (cpu 5, memory 8Gi, pods 1)
    members ray-head 1
    class low
    ");
}

#[test]
fn a_job_brings_its_submitter() {
    assert_snapshot!(shown(read_spec(&job(json!({"activeDeadlineSeconds": 60, "shutdownAfterJobFinishes": true})))), @r"
    ray-head 1 × (cpu 4, memory 8Gi, pods 1)
    gpu 8 × (cpu 200m, memory 256Mi, nvidia.com/gpu 8, pods 1) min 4
    cpu 1 × (cpu 16, memory 256Mi, pods 1)
    ray-submitter 1 × (cpu 500m, memory 200Mi, pods 1) min 0
    min 6 (cpu 20800m, memory 9472Mi, nvidia.com/gpu 32, pods 6)
    members cpu 1, gpu 4, ray-head 1, ray-submitter 0
    class low
    runs 60000 ms
    ");
    let roles = |spec| {
        let spec = read_spec(&job(spec)).unwrap();
        spec.roles
            .iter()
            .map(|role| format!("{} {} ({})", role.name, role.count, role.request))
            .collect::<Vec<_>>()
            .join("; ")
    };
    assert_snapshot!(roles(json!({"submissionMode": "HTTPMode"})), @"ray-head 1 (cpu 4, memory 8Gi, pods 1); gpu 8 (cpu 200m, memory 256Mi, nvidia.com/gpu 8, pods 1); cpu 1 (cpu 16, memory 256Mi, pods 1)");
    assert_snapshot!(roles(json!({"submissionMode": "SidecarMode"})), @"ray-head 1 (cpu 4500m, memory 8392Mi, pods 1); gpu 8 (cpu 200m, memory 256Mi, nvidia.com/gpu 8, pods 1); cpu 1 (cpu 16, memory 256Mi, pods 1)");
    assert_snapshot!(roles(json!({"submitterPodTemplate": {"spec": {"containers": [{"resources": {"requests": {"cpu": "100m"}}}]}}})), @"ray-head 1 (cpu 4, memory 8Gi, pods 1); gpu 8 (cpu 200m, memory 256Mi, nvidia.com/gpu 8, pods 1); cpu 1 (cpu 16, memory 256Mi, pods 1); ray-submitter 1 (cpu 100m, pods 1)");
    assert_snapshot!(roles(json!({"clusterSelector": {"ray.io/cluster": "shared"}})), @"ray-submitter 1 (cpu 500m, memory 200Mi, pods 1)");
    assert_snapshot!(roles(json!({"clusterSelector": {"ray.io/cluster": "shared"}, "submissionMode": "HTTPMode"})), @"ray-submitter 0 (cpu 500m, memory 200Mi, pods 1)");
}

/// KubeRay's `wait-gcs-ready` runs before the containers of a worker, so the larger request counts; the head has none.
#[test]
fn workers_wait_for_the_head_in_a_container_of_their_own() {
    let worker = |containers: &str| {
        let text = cluster(|spec| {
            spec["workerGroupSpecs"][0]["template"]["spec"] = yaml(containers);
        });
        text.lines().nth(1).unwrap().to_owned()
    };
    assert_snapshot!(worker("{containers: [{resources: {requests: {cpu: 100m, memory: 1Gi}}}]}"), @"gpu 8 × (cpu 200m, memory 1Gi, pods 1) min 4");
    assert_snapshot!(worker("{containers: [{resources: {requests: {cpu: 150m}}}, {resources: {requests: {cpu: 150m}}}]}"), @"gpu 8 × (cpu 300m, memory 256Mi, pods 1) min 4");
    // A sidecar runs while it waits.
    assert_snapshot!(worker("{initContainers: [{restartPolicy: Always, resources: {requests: {cpu: 1}}}], containers: [{}]}"), @"gpu 8 × (cpu 1200m, memory 256Mi, pods 1) min 4");
}

#[test]
fn a_job_that_keeps_its_cluster_gets_a_warning() {
    let kept = |spec| {
        let template = job(spec);
        (
            read_spec(&template).unwrap().keeps_pods,
            warnings(&template).len(),
        )
    };
    assert_eq!(kept(json!({})), (true, 1));
    assert_eq!(kept(json!({"shutdownAfterJobFinishes": false})), (true, 1));
    assert_eq!(kept(json!({"shutdownAfterJobFinishes": true})), (false, 0));
    assert_eq!(
        kept(json!({"deletionStrategy": {"onSuccess": {"policy": "DeleteWorkers"}}})),
        (true, 1)
    );
    assert_eq!(
        kept(json!({"deletionStrategy": {"onSuccess": {"policy": "DeleteCluster"}}})),
        (false, 0)
    );
    // The warning is about the cluster that it names.
    assert_eq!(kept(json!({"clusterSelector": {"a": "b"}})), (false, 1));
}

#[test]
fn the_label_names_the_priority() {
    let text = "{apiVersion: ray.io/v1, kind: RayCluster, metadata: {labels: {ray.io/priority-class-name: high, volcano.sh/queue-name: q}}, spec: {headGroupSpec: {template: {spec: {priorityClassName: low, containers: [{}]}}}}}";
    assert_snapshot!(asked(text), @r"
    ray-head 1 × (pods 1)
    min 1 (pods 1)
    members ray-head 1
    queue q
    class high
    ");
}
