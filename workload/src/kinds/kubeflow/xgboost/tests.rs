#![allow(clippy::unwrap_used)]

use super::*;
use crate::parts::tests::{field, shares, variable};
use crate::parts::{RenderedPart, parts};
use crate::rendezvous::Reach;
use crate::testing::{asked, yaml};
use crate::{rendered, split};
use facts::{Attempt, ClusterName};
use insta::assert_snapshot;

/// The operator's own example (examples/xgboost/lightgbm-dist), with requests and a command.
const JOB: &str = "
apiVersion: kubeflow.org/v1
kind: XGBoostJob
metadata: {name: light, namespace: team, annotations: {muster.io/split: Allowed}}
spec:
  runPolicy: {activeDeadlineSeconds: 60}
  xgbReplicaSpecs:
    Master:
      replicas: 1
      restartPolicy: Never
      template:
        spec:
          priorityClassName: high
          containers:
            - {name: log}
            - name: xgboost
              image: lightgbm:1.0
              ports: [{containerPort: 9991, name: xgboostjob-port}]
              command: [python3, main.py]
              resources: {requests: {cpu: 2}}
    Worker:
      replicas: 3
      restartPolicy: ExitCode
      template:
        spec:
          containers:
            - name: xgboost
              image: lightgbm:1.0
              ports: [{containerPort: 9992, name: xgboostjob-port}]
              command: [python3, main.py]
              resources: {requests: {cpu: 1}}
";

/// The master is in the cluster with fewer workers.
fn over_two() -> Vec<RenderedPart> {
    let shares = shares(&[
        ("a", &[("worker", 2)]),
        ("b", &[("master", 1), ("worker", 1)]),
    ]);
    let open = |cluster| {
        (
            ClusterName::new(cluster),
            format!("{{host}}.{cluster}.example"),
        )
    };
    let reach = Reach {
        leader: Some("light-master-0.b.example".to_owned()),
        hosts: ["a", "b"].map(open).into(),
    };
    parts(&yaml(JOB), Attempt(1), &shares, &reach, false).unwrap()
}

fn groups(part: &RenderedPart) -> &Value {
    field(part, "/spec/xgbReplicaSpecs")
}

fn told(part: &RenderedPart, group: &str, container: usize) -> Vec<Value> {
    let container = &groups(part)[group]["template"]["spec"]["containers"][container];
    let names = [
        "MUSTER_LEADER_ADDRESS",
        "MUSTER_LEADER_PORT",
        "MUSTER_RANK_OFFSET",
        "MUSTER_WORKER_PORT",
        "MUSTER_WORKER_ADDRESSES",
    ];
    names.map(|name| variable(container, name).unwrap()).into()
}

#[test]
fn the_master_comes_first_and_all_are_the_gang() {
    assert_snapshot!(asked(JOB), @r"
    master 1 × (cpu 2, pods 1)
    worker 3 × (cpu 1, pods 1)
    min 4 (cpu 5, pods 4)
    class high
    runs 60000 ms
    ");
    assert_eq!(leading::role(&yaml(JOB)).as_deref(), Some("master"));
}

#[test]
fn all_find_the_master_and_all_workers() {
    let parts = over_two();
    let workers = "light-worker-0.team.svc,light-worker-1.team.svc,light-worker-0.b.example";
    assert_eq!(
        told(&parts[0], "Worker", 0),
        [
            json!("light-master-0.b.example"),
            json!("9991"),
            json!("1"),
            json!("9992"),
            json!(workers)
        ]
    );
    let workers = "light-worker-0.a.example,light-worker-1.a.example,light-worker-0.team.svc";
    assert_eq!(
        told(&parts[1], "Master", 1),
        [
            json!("light-master-0"),
            json!("9991"),
            json!("0"),
            json!("9992"),
            json!(workers)
        ]
    );
    assert_eq!(told(&parts[1], "Worker", 0)[2], "3");
}

#[test]
fn a_stand_in_for_the_master_satisfies_the_operator_of_the_other_cluster() {
    let parts = over_two();
    assert_eq!(
        groups(&parts[0])["Master"],
        json!({
            "replicas": 1,
            "restartPolicy": "Never",
            "template": {"spec": {
                "schedulingGates": [{"name": "muster.io/master-is-elsewhere"}],
                "containers": [{"name": "xgboost", "image": "lightgbm:1.0"}],
            }},
        })
    );
    assert_eq!(
        *field(&parts[0], "/spec/runPolicy/activeDeadlineSeconds"),
        Value::Null
    );
    assert_eq!(
        *field(&parts[0], "/spec/runPolicy/schedulingPolicy"),
        json!({"minAvailable": 2})
    );
    // It is charged nowhere.
    let mut manifest = yaml(JOB);
    manifest["spec"]["xgbReplicaSpecs"] = groups(&parts[0]).clone();
    assert_eq!(
        rendered(manifest).unwrap().total().to_string(),
        "cpu 2, pods 2"
    );
}

#[test]
fn it_needs_one_master_and_a_command_to_be_split() {
    let why = |template: String| split::refused(&yaml(&template)).unwrap();
    let led = why(JOB.replace("replicas: 1", "replicas: 2"));
    assert!(
        led.contains("spec.xgbReplicaSpecs has no single Master"),
        "{led}"
    );
    let told = why(JOB.replacen("command: [python3, main.py]", "args: [main.py]", 1));
    assert!(
        told.contains("spec.xgbReplicaSpecs[Master] container xgboost has no command"),
        "{told}"
    );
    let read = why(JOB.replacen("main.py]", "$(WORKER_ADDRS)]", 1));
    assert!(read.contains("uses $(WORKER_ADDRS)"), "{read}");
    assert_eq!(split::refused(&yaml(JOB)), None);
}
