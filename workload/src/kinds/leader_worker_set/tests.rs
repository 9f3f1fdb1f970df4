#![allow(clippy::unwrap_used)]

use super::*;
use crate::testing::{shown, yaml};
use crate::{AdmittedRequests, Outcome, counts, outcome, read_spec, split};
use insta::assert_snapshot;

/// The project's own example of vLLM (docs/examples/vllm/GPU), two groups of a leader and a worker.
const SET: &str = "
apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
metadata: {name: vllm, namespace: team, labels: {muster.io/queue: serving}, annotations: {muster.io/split: Allowed}}
spec:
  replicas: 2
  leaderWorkerTemplate:
    size: 3
    restartPolicy: RecreateGroupOnPodRestart
    leaderTemplate:
      metadata: {labels: {role: leader}}
      spec:
        priorityClassName: high
        containers:
        - name: vllm-leader
          resources: {limits: {nvidia.com/gpu: 8, memory: 8Gi}, requests: {cpu: 125m}}
    workerTemplate:
      spec:
        initContainers: [{name: fetch, resources: {requests: {cpu: 2}}}]
        containers:
        - name: vllm-worker
          resources: {limits: {nvidia.com/gpu: 8}, requests: {cpu: 125m}}
";

fn with(change: impl Fn(&mut Value)) -> Value {
    let mut template = yaml(SET);
    change(&mut template["spec"]);
    template
}

fn size_of(change: impl Fn(&mut Value)) -> String {
    shown(read_spec(&with(change)))
}

#[test]
fn all_groups_are_charged_and_one_starts_whole() {
    assert_snapshot!(size_of(|_| ()), @r"
    leader 2 × (cpu 125m, memory 8Gi, nvidia.com/gpu 8, pods 1) min 1
    worker 4 × (cpu 2, nvidia.com/gpu 8, pods 1) min 2
    min 3 (cpu 4125m, memory 8Gi, nvidia.com/gpu 24, pods 3)
    queue serving
    class high
    ");
}

#[test]
fn leaders_have_the_template_of_workers_by_default() {
    let simple = |spec: &mut Value| {
        let group = spec["leaderWorkerTemplate"].as_object_mut().unwrap();
        group.remove("leaderTemplate");
    };
    assert_snapshot!(size_of(simple), @r"
    leader 2 × (cpu 2, nvidia.com/gpu 8, pods 1) min 1
    worker 4 × (cpu 2, nvidia.com/gpu 8, pods 1) min 2
    min 3 (cpu 6, nvidia.com/gpu 24, pods 3)
    queue serving
    ");
    let alone = |spec: &mut Value| {
        simple(spec);
        spec["leaderWorkerTemplate"]["size"].take();
        spec["replicas"].take();
    };
    assert_snapshot!(size_of(alone), @r"
    leader 1 × (cpu 2, nvidia.com/gpu 8, pods 1)
    worker 0 × (cpu 2, nvidia.com/gpu 8, pods 1)
    min 1 (cpu 2, nvidia.com/gpu 8, pods 1)
    queue serving
    ");
    let mut alone = with(alone);
    let pods = LeaderWorkerSetKind.pod_specs(&mut alone["spec"]);
    let roles: Vec<&str> = pods.iter().map(|(role, _)| role.as_str()).collect();
    assert_eq!(roles, ["leader"]);
}

#[test]
fn groups_of_a_rolling_update_are_charged() {
    let updated = |surge: Value| {
        size_of(|spec| {
            spec["rolloutStrategy"] = json!({"rollingUpdateConfiguration": {"maxSurge": surge}});
        })
    };
    let leaders = |surge: Value| updated(surge).lines().next().unwrap().to_owned();
    assert!(leaders(json!(1)).starts_with("leader 3 ×"));
    assert!(leaders(json!("60%")).starts_with("leader 4 ×"));
    assert_snapshot!(updated(json!("many")), @r#"InvalidTemplate: spec.rolloutStrategy.rollingUpdateConfiguration.maxSurge is "many"; needed: a number of groups or a percentage such as 25%"#);
}

#[test]
fn the_annotation_asks_for_whole_groups() {
    let asked = |pods: &str| {
        let mut template = yaml(SET);
        template["metadata"]["annotations"]["muster.io/min-available"] = json!(pods);
        shown(read_spec(&template))
    };
    assert!(asked("6").contains("min 6 ("));
    assert_snapshot!(asked("4"), @r#"InvalidTemplate: metadata.annotations[muster.io/min-available] is "4"; needed: a multiple of 3, the pods of a group"#);
    assert_snapshot!(asked("9"), @r#"InvalidTemplate: metadata.annotations[muster.io/min-available] is "9"; needed: a whole number from 1 to 6, the pods it has"#);
}

#[test]
fn invalid_values_are_named() {
    let errors = [
        size_of(|spec| spec["leaderWorkerTemplate"]["size"] = json!(0)),
        size_of(|spec| spec["replicas"] = json!(-1)),
        size_of(|spec| spec["replicas"] = json!(1_000_000)),
        size_of(|spec| _ = spec["leaderWorkerTemplate"]["workerTemplate"].take()),
    ];
    assert_snapshot!(errors.join("\n"), @r"
    InvalidTemplate: spec.leaderWorkerTemplate.size is 0; needed: at least 1, the leader
    InvalidTemplate: spec.replicas is -1; needed: a whole number from 0 to 1000000
    InvalidTemplate: spec is 1000000 × 3 pods; needed: at most 1000000 pods
    InvalidTemplate: spec.leaderWorkerTemplate.workerTemplate.spec.containers is absent; needed: at least one container
    ");
    let none = read_spec(&with(|spec| spec["replicas"] = json!(0))).unwrap();
    assert_eq!(none.min_available, 0);
}

#[test]
fn it_keeps_the_whole_groups_that_were_admitted() {
    let template = with(|spec| {
        spec["replicas"] = json!(9);
        let update = json!({"maxSurge": 2, "maxUnavailable": 0, "partition": 1});
        spec["rolloutStrategy"] = json!({"rollingUpdateConfiguration": update});
    });
    let admitted = BTreeMap::from([("leader".to_owned(), 3), ("worker".to_owned(), 5)]);
    let none = AdmittedRequests::new();
    let kind = "LeaderWorkerSet";
    let fields = crate::cap_to_admitted(
        "leaderworkerset.x-k8s.io/v1",
        kind,
        &template,
        &admitted,
        &none,
    );
    let fields: BTreeMap<String, Value> = fields.unwrap().into_iter().collect();
    assert_eq!(fields["/spec/replicas"], 2);
    assert_eq!(
        fields["/spec/rolloutStrategy/rollingUpdateConfiguration"],
        json!({"maxSurge": 0, "maxUnavailable": 1, "partition": 1})
    );
    assert_eq!(fields[GROUP], template["spec"]["leaderWorkerTemplate"]);
}

#[test]
fn it_reports_groups_and_never_ends() {
    let status = |size: Option<u32>| {
        let conditions = [json!({"type": "Available", "status": "True"})];
        json!({"replicas": 2, "readyReplicas": 1, "conditions": conditions, "size": size})
    };
    let api_version = "leaderworkerset.x-k8s.io/v1";
    let rules = crate::GangRules::default();
    let ended = outcome(api_version, "LeaderWorkerSet", &[status(None)], &rules);
    assert_eq!(ended, Outcome::Active);
    let pods = |size| {
        let pods = counts(api_version, "LeaderWorkerSet", &[status(size)]);
        (pods.pending, pods.running)
    };
    assert_eq!(pods(Some(3)), (3, 3));
    assert_eq!(pods(None), (1, 1), "without the interpreter");
}

#[test]
fn its_groups_are_not_divided() {
    let why = split::refused(&yaml(SET)).unwrap();
    assert!(
        why.contains("pods of each group of a LeaderWorkerSet (3) belong together"),
        "{why}"
    );
}
