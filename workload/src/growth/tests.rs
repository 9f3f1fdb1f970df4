#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use super::*;
use crate::testing::yaml;

const JOB: &str = r#"
apiVersion: kubeflow.org/v1
kind: PyTorchJob
spec:
  pytorchReplicaSpecs:
    Master: {template: {spec: {containers: [{resources: {requests: {cpu: 1}}}]}}}
    Worker: {replicas: 4, template: {spec: {containers: [{resources: {requests: {cpu: 8, nvidia.com/gpu: 1}}}]}}}
"#;

fn edited(edit: impl Fn(&mut Value)) -> String {
    let old = yaml(JOB);
    let mut new = old.clone();
    edit(&mut new["spec"]["pytorchReplicaSpecs"]);
    growth(&old, &new).map_or_else(|error| error.to_string(), |growth| growth.to_string())
}

#[test]
fn each_kind_of_growth_is_found() {
    let container = |groups: &mut Value, group: &str, list: &str, quantity: Value| {
        groups[group]["template"]["spec"]["containers"][0]["resources"]["requests"][list] =
            quantity;
    };
    assert_eq!(edited(|_| ()), "no growth");
    assert_eq!(
        edited(|groups| groups["Worker"]["replicas"] = 5.into()),
        "pods of worker: 4 -> 5"
    );
    assert_eq!(
        edited(|groups| groups["Master"]["replicas"] = 2.into()),
        "pods of master: 1 -> 2"
    );
    assert_eq!(
        edited(|groups| groups["Extra"] = groups["Worker"].clone()),
        "pods of extra: 0 -> 4"
    );
    assert_eq!(
        edited(|groups| container(groups, "Worker", "nvidia.com/gpu", 2.into())),
        "nvidia.com/gpu of each pod of worker: 1 -> 2"
    );
    assert_eq!(
        edited(|groups| container(groups, "Master", "memory", "1Gi".into())),
        "memory of each pod of master: 0 -> 1Gi"
    );
    assert_eq!(
        edited(
            |groups| groups["Worker"]["template"]["spec"]["initContainers"] =
                serde_json::json!([{"resources": {"limits": {"cpu": 9}}}])
        ),
        "cpu of each pod of worker: 8 -> 9"
    );
}

#[test]
fn a_smaller_role_does_not_compensate_for_growth() {
    assert_eq!(
        edited(|groups| groups["Worker"]["replicas"] = 3.into()),
        "no growth"
    );
    assert_eq!(edited(|groups| groups["Worker"] = Value::Null), "no growth");
    assert_eq!(
        edited(|groups| {
            groups["Worker"]["replicas"] = 1.into();
            groups["Master"]["replicas"] = 2.into();
        }),
        "pods of master: 1 -> 2"
    );
    assert_eq!(
        edited(|groups| groups["Worker"]["replicas"] = (-1).into()),
        "spec.pytorchReplicaSpecs[Worker].replicas is -1; needed: a whole number from 0 to 1000000"
    );
}
