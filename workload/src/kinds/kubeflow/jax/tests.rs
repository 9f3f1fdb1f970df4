#![allow(clippy::unwrap_used)]

use super::*;
use crate::parts::tests::{field, leader, shares, variable};
use crate::parts::{RenderedPart, parts};
use crate::rendezvous::Reach;
use crate::testing::{asked, yaml};
use crate::{GangRules, Outcome, outcome, split};
use facts::Attempt;
use insta::assert_snapshot;

/// The operator's own example (examples/jax/jax-dist-spmd-mnist), with devices and a sidecar.
const JOB: &str = "
apiVersion: kubeflow.org/v1
kind: JAXJob
metadata: {name: simple, namespace: team, annotations: {muster.io/split: Allowed}}
spec:
  runPolicy: {suspend: false, activeDeadlineSeconds: 60, schedulingPolicy: {queue: vision, minAvailable: 4}}
  jaxReplicaSpecs:
    Worker:
      replicas: 4
      restartPolicy: OnFailure
      template:
        spec:
          initContainers: [{name: proxy, restartPolicy: Always, resources: {requests: {cpu: 500m}}}]
          containers:
            - name: jax
              image: docker.io/kubeflow/jaxjob-simple:latest
              command: [python3, train.py]
              ports: [{containerPort: 6667, name: jaxjob-port}]
              resources: {limits: {nvidia.com/gpu: 8}}
";

const ADDRESS: &str = "simple-worker-0.team.svc.a.example";

fn over_two() -> Vec<RenderedPart> {
    let shares = shares(&[("a", &[("worker", 1)]), ("b", &[("worker", 3)])]);
    parts(
        &yaml(JOB),
        Attempt(1),
        &shares,
        &leader(Some(ADDRESS)),
        false,
    )
    .unwrap()
}

fn container(part: &RenderedPart) -> &Value {
    &field(part, "/spec/jaxReplicaSpecs")["Worker"]["template"]["spec"]["containers"][0]
}

#[test]
fn all_workers_are_the_gang() {
    assert_snapshot!(asked(JOB), @r"
    worker 4 × (cpu 500m, nvidia.com/gpu 8, pods 1)
    min 4 (cpu 2, nvidia.com/gpu 32, pods 4)
    queue vision
    runs 60000 ms
    ");
}

#[test]
fn its_processes_are_numbered_over_all_clusters_and_meet_at_the_first() {
    let parts = over_two();
    let told = |part| {
        [
            "MUSTER_LEADER_ADDRESS",
            "MUSTER_LEADER_PORT",
            "MUSTER_GANG_SIZE",
            "MUSTER_RANK_OFFSET",
        ]
        .map(|name| variable(container(part), name).unwrap())
    };
    assert_eq!(told(&parts[0]), ["simple-worker-0", "6667", "4", "0"]);
    assert_eq!(told(&parts[1]), [ADDRESS, "6667", "4", "1"]);
    let command = container(&parts[1])["command"].as_array().unwrap();
    assert_eq!(command[0], "/bin/sh");
    assert_eq!(command[4..], [json!("python3"), json!("train.py")]);
    let minimum = "/spec/runPolicy/schedulingPolicy/minAvailable";
    assert_eq!(
        [&parts[0], &parts[1]].map(|part| field(part, minimum)),
        [1, 3]
    );
}

#[test]
fn in_one_cluster_it_is_left_to_its_operator() {
    let shares = shares(&[("a", &[("worker", 4)])]);
    let parts = parts(&yaml(JOB), Attempt(1), &shares, &Reach::default(), false).unwrap();
    assert_eq!(
        container(&parts[0])["command"],
        json!(["python3", "train.py"])
    );
}

#[test]
fn it_ends_when_all_parts_have() {
    let ended = |kind: &str| json!({"conditions": [{"type": kind, "status": "True"}]});
    let whole =
        |parts: &[Value]| outcome("kubeflow.org/v1", "JAXJob", parts, &GangRules::default());
    assert_eq!(
        whole(&[ended("Succeeded"), ended("Running")]),
        Outcome::Active
    );
    assert_eq!(
        whole(&[ended("Succeeded"), ended("Succeeded")]),
        Outcome::Succeeded
    );
    assert_eq!(whole(&[ended("Suspended")]), Outcome::Suspended);
    assert!(matches!(
        whole(&[ended("Succeeded"), ended("Failed")]),
        Outcome::Failed { .. }
    ));
    assert_eq!(crate::leading::role(&yaml(JOB)), None);
}

#[test]
fn without_a_command_it_is_not_split() {
    let without = JOB.replace("              command: [python3, train.py]\n", "");
    let told = split::refused(&yaml(&without)).unwrap();
    assert!(
        told.contains("spec.jaxReplicaSpecs[Worker] container jax has no command"),
        "{told}"
    );
    assert_eq!(split::refused(&yaml(JOB)), None);
}
