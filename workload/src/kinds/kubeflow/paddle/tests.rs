#![allow(clippy::unwrap_used)]

use super::*;
use crate::parts::tests::{field, leader, shares, variable};
use crate::parts::{RenderedPart, parts};
use crate::split;
use crate::testing::{asked, yaml};
use facts::{Attempt, Share};
use insta::assert_snapshot;

/// The operator's own examples (examples/paddlepaddle): with equal pods, and with servers and trainers.
const EQUAL: &str = "
apiVersion: kubeflow.org/v1
kind: PaddleJob
metadata: {name: simple, namespace: team, annotations: {muster.io/split: Allowed}}
spec:
  paddleReplicaSpecs:
    Worker:
      replicas: 4
      restartPolicy: OnFailure
      template:
        spec:
          containers:
            - name: paddle
              image: paddle:2.4.0
              command: [python]
              args: [-m, paddle.distributed.launch, run_check]
              ports: [{containerPort: 37777, name: master}]
              resources: {limits: {nvidia.com/gpu: 1}}
";
const SERVERS: &str = "
apiVersion: kubeflow.org/v1
kind: PaddleJob
metadata: {name: simple, namespace: team, annotations: {muster.io/split: Allowed}}
spec:
  paddleReplicaSpecs:
    Worker:
      replicas: 2
      template: {spec: {containers: [{name: paddle, command: [python, train.py], resources: {requests: {cpu: 2}}}]}}
    Master:
      replicas: 1
      template: {spec: {containers: [{name: paddle, command: [python, train.py], resources: {requests: {cpu: 1}}}]}}
";

fn of(template: &str, shares: &[Share]) -> Vec<RenderedPart> {
    let reach = leader(Some("fd00::7"));
    parts(&yaml(template), Attempt(1), shares, &reach, false).unwrap()
}

fn told(part: &RenderedPart, group: &str, name: &str) -> Option<Value> {
    let groups = field(part, "/spec/paddleReplicaSpecs");
    variable(&groups[group]["template"]["spec"]["containers"][0], name)
}

#[test]
fn masters_come_first() {
    assert_snapshot!(asked(SERVERS), @r"
    master 1 × (cpu 1, pods 1)
    worker 2 × (cpu 2, pods 1)
    min 3 (cpu 5, pods 3)
    ");
    assert_snapshot!(asked(EQUAL), @r"
    worker 4 × (nvidia.com/gpu 1, pods 1)
    min 4 (nvidia.com/gpu 4, pods 4)
    ");
}

#[test]
fn its_elastic_policy_starts_no_autoscaler() {
    let elastic = EQUAL.replace(
        "\nspec:\n",
        "\nspec:\n  elasticPolicy: {maxReplicas: 8, metrics: [{type: Resource}]}\n",
    );
    assert!(asked(&elastic).starts_with("worker 4 ×"));
}

#[test]
fn equal_pods_meet_at_the_first_worker_of_all() {
    let parts = of(
        EQUAL,
        &shares(&[("a", &[("worker", 1)]), ("b", &[("worker", 3)])]),
    );
    let endpoint = "MUSTER_LEADER_ENDPOINT";
    assert_eq!(
        told(&parts[0], "Worker", endpoint),
        Some(json!("simple-worker-0:37777"))
    );
    assert_eq!(
        told(&parts[1], "Worker", endpoint),
        Some(json!("[fd00::7]:37777"))
    );
    assert_eq!(
        told(&parts[1], "Worker", "MUSTER_RANK_OFFSET"),
        Some(json!("1"))
    );
    assert_eq!(told(&parts[1], "Worker", "PADDLE_TRAINER_NUM"), None);
    assert_eq!(leading::role(&yaml(EQUAL)), None);
}

#[test]
fn servers_and_trainers_meet_at_the_master() {
    let shares = shares(&[("a", &[("worker", 2)]), ("b", &[("master", 1)])]);
    let parts = of(SERVERS, &shares);
    let endpoint = "MUSTER_LEADER_ENDPOINT";
    assert_eq!(
        told(&parts[0], "Worker", endpoint),
        Some(json!("[fd00::7]:36543"))
    );
    assert_eq!(
        told(&parts[1], "Master", endpoint),
        Some(json!("simple-master-0:36543"))
    );
    assert_eq!(
        told(&parts[0], "Worker", "PADDLE_TRAINER_NUM"),
        Some(json!("1"))
    );
    assert_eq!(told(&parts[1], "Master", "PADDLE_TRAINER_NUM"), None);
    assert_eq!(leading::role(&yaml(SERVERS)).as_deref(), Some("master"));
}

#[test]
fn it_is_not_split_where_no_cluster_could_know_its_end() {
    let why = |template: String| split::refused(&yaml(&template)).unwrap();
    let several = why(SERVERS.replace("replicas: 1", "replicas: 2"));
    assert!(
        several.contains("spec.paddleReplicaSpecs has several Masters"),
        "{several}"
    );
    let elastic = why(EQUAL.replace("\nspec:\n", "\nspec:\n  elasticPolicy: {maxReplicas: 8}\n"));
    assert!(elastic.contains("spec.elasticPolicy"), "{elastic}");
    assert_eq!(split::refused(&yaml(EQUAL)), None);
    assert_eq!(split::refused(&yaml(SERVERS)), None);
}
