#![allow(clippy::unwrap_used)]

use super::*;
use crate::testing::{shown, yaml};
use crate::{AdmittedRequests, Growth, Outcome, counts, growth, outcome, read_spec, warnings};
use insta::assert_snapshot;

/// KubeRay's own example (ray-service.sample.yaml), with a group of workers on GPUs.
const SERVICE: &str = "
apiVersion: ray.io/v1
kind: RayService
metadata: {name: serve, namespace: team}
spec:
  serveConfigV2: 'applications: []'
  rayClusterConfig:
    rayVersion: 2.46.0
    headGroupSpec:
      rayStartParams: {}
      template:
        spec:
          containers: [{name: ray-head, image: ray, resources: {limits: {cpu: 2, memory: 4Gi}, requests: {cpu: 2, memory: 4Gi}}}]
    workerGroupSpecs:
    - replicas: 3
      minReplicas: 1
      maxReplicas: 5
      groupName: gpu
      template: {spec: {containers: [{name: ray-worker, resources: {limits: {nvidia.com/gpu: 1}}}]}}
";

fn with(change: impl Fn(&mut Value)) -> Value {
    let mut template = yaml(SERVICE);
    change(&mut template["spec"]);
    template
}

fn in_place() -> Value {
    with(|spec| spec["upgradeStrategy"] = json!({"type": "None"}))
}

#[test]
fn it_is_charged_the_cluster_of_an_upgrade_and_starts_with_one() {
    assert_snapshot!(shown(read_spec(&yaml(SERVICE))), @r"
    ray-head 2 × (cpu 2, memory 4Gi, pods 1) min 1
    gpu 6 × (cpu 200m, memory 256Mi, nvidia.com/gpu 1, pods 1) min 1
    min 2 (cpu 2200m, memory 4352Mi, nvidia.com/gpu 1, pods 2)
    members gpu 1, ray-head 1
    ");
    assert_snapshot!(shown(read_spec(&in_place())), @r"
    ray-head 1 × (cpu 2, memory 4Gi, pods 1)
    gpu 3 × (cpu 200m, memory 256Mi, nvidia.com/gpu 1, pods 1) min 1
    min 2 (cpu 2200m, memory 4352Mi, nvidia.com/gpu 1, pods 2)
    members gpu 1, ray-head 1
    ");
    assert!(warnings(&yaml(SERVICE))[0].contains("set it to None"));
    assert_eq!(warnings(&in_place()), Vec::<String>::new());
    let grown = growth(&in_place(), &yaml(SERVICE)).unwrap();
    assert!(
        matches!(grown, Growth::Pods { from: 1, to: 2, .. }),
        "{grown}"
    );
}

#[test]
fn an_autoscaler_is_charged_its_bounds() {
    let scaled = with(|spec| {
        spec["upgradeStrategy"] = json!({"type": "None"});
        spec["rayClusterConfig"]["enableInTreeAutoscaling"] = json!(true);
        spec["rayClusterConfig"]["suspend"] = json!(true);
    });
    assert_snapshot!(shown(read_spec(&scaled)), @r"
    ray-head 1 × (cpu 2500m, memory 4608Mi, pods 1)
    gpu 5 × (cpu 200m, memory 256Mi, nvidia.com/gpu 1, pods 1) min 1
    min 2 (cpu 2700m, memory 4864Mi, nvidia.com/gpu 1, pods 2)
    members gpu 1, ray-head 1
    suspended
    ");
}

#[test]
fn what_would_not_be_charged_is_refused() {
    let errors = [
        with(|spec| spec["rayClusterDeletionDelaySeconds"] = json!(3600)),
        with(|spec| _ = spec.as_object_mut().unwrap().remove("rayClusterConfig")),
    ];
    let errors = errors.map(|template| read_spec(&template).unwrap_err().to_string());
    assert_snapshot!(errors.join("\n"), @r"
    spec.rayClusterDeletionDelaySeconds is 3600; needed: at most 60, unless spec.upgradeStrategy.type is None: a cluster that stays beside those of the next upgrade would not be charged
    spec.rayClusterConfig is absent; needed: the cluster that serves
    ");
    let kept = |spec: &mut Value| {
        spec["rayClusterDeletionDelaySeconds"] = json!(3600);
        spec["upgradeStrategy"] = json!({"type": "None"});
    };
    assert!(read_spec(&with(kept)).is_ok());
}

#[test]
fn each_cluster_keeps_its_share_of_what_was_admitted() {
    let cap = |template: &Value, heads: u32, workers: u32| {
        let admitted = BTreeMap::from([(HEAD.to_owned(), heads), ("gpu".to_owned(), workers)]);
        let none = AdmittedRequests::new();
        let fields = crate::cap_to_admitted("ray.io/v1", "RayService", template, &admitted, &none);
        let fields = fields.unwrap();
        let groups = fields.iter().find(|(path, _)| path == WORKERS).unwrap();
        let strategy = fields.iter().find(|(path, _)| path == STRATEGY);
        (
            groups.1[0]["replicas"].clone(),
            strategy.map(|(_, value)| value.clone()),
        )
    };
    assert_eq!(cap(&yaml(SERVICE), 2, 4), (json!(2), None));
    let no_second = Some(json!({"type": "None"}));
    assert_eq!(cap(&yaml(SERVICE), 1, 3), (json!(3), no_second));
    // With one cluster instead of two it does not get the workers of both.
    assert_eq!(cap(&in_place(), 2, 4), (json!(2), None));
}

#[test]
fn it_runs_until_it_is_deleted_and_counts_the_pods_of_both_clusters() {
    let cluster = |name: &str, workers: u32| {
        json!({"rayClusterName": name, "rayClusterStatus": {
            "state": "ready", "availableWorkerReplicas": workers, "desiredWorkerReplicas": 3,
        }})
    };
    let status = json!({
        "serviceStatus": "Running", "numServeEndpoints": 2,
        "conditions": [{"type": "Ready", "status": "True"}],
        "activeServiceStatus": cluster("serve-a", 3),
        "pendingServiceStatus": {"rayClusterStatus": {"head": {}}},
    });
    let statuses = std::slice::from_ref(&status);
    let rules = crate::GangRules::default();
    assert_eq!(
        outcome("ray.io/v1", "RayService", statuses, &rules),
        Outcome::Active
    );
    let pods = counts("ray.io/v1", "RayService", statuses);
    assert_eq!((pods.pending, pods.running), (0, 4));
    let mut starting = status.clone();
    starting["activeServiceStatus"] = cluster("serve-a", 1);
    let pods = |status: &Value| {
        let pods = counts("ray.io/v1", "RayService", std::slice::from_ref(status));
        (pods.pending, pods.running)
    };
    assert_eq!(
        pods(&starting),
        (0, 4),
        "it is ready, and its report is old"
    );
    starting["conditions"][0]["status"] = json!("False");
    assert_eq!(pods(&starting), (2, 2));
    let mut upgrading = status.clone();
    upgrading["pendingServiceStatus"] = cluster("serve-b", 1);
    let pods = counts("ray.io/v1", "RayService", &[upgrading]);
    assert_eq!((pods.pending, pods.running), (2, 6));
}
