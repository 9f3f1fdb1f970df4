//! Parts of a TFJob: each pod has the addresses of all others in `TF_CONFIG`.
//!
//! Pods of its own cluster have the names that the operator gives them there (`genClusterSpec`, v1.9), the
//! others the addresses of the queue. For the operator a part without a chief has succeeded when its first
//! worker has, so it must wait for all of them; the part with the chief leads.

use super::parts::{self, Framework};
use super::{SplitTrainingJob, TrainingJobKind, known, replica_labels};
use crate::leading;
use crate::parts::{Environment, Fields, Gang};
use crate::rendezvous::{Meeting, endpoint};
use serde_json::{Map, Value, json};

/// training-operator considers it finished when its chief is, which may be called its master
/// (`UpdateJobStatus`, v1.9).
pub(crate) const TF_JOB: TrainingJobKind = TrainingJobKind {
    api: known("kubeflow.org", "v1", "TFJob", "tfjobs"),
    groups: TENSORFLOW.groups,
    leaders: &["master", "chief"],
    default_replicas: |_, _| 1,
    autoscaled: false,
    added_init: |_| None,
    secret: None,
    split: SplitTrainingJob {
        fields,
        unsplittable,
        meeting: Meeting::All,
        first_host: |_, _| None,
        pod_labels: replica_labels,
        stand_in_gate: None,
    },
};

/// `TFJobDefaultContainerName` and similar.
const TENSORFLOW: Framework = Framework {
    groups: "tfReplicaSpecs",
    container: "tensorflow",
    port: ("tfjob-port", 2222),
    script: r#"TF_CONFIG="{\"cluster\":$MUSTER_TF_CLUSTER,\"task\":{\"type\":\"$MUSTER_TASK_TYPE\",\"index\":$((MUSTER_TASK_OFFSET + MUSTER_REPLICA_INDEX))},\"environment\":\"cloud\"}"
export TF_CONFIG
exec "$@""#,
    overridden: &["TF_CONFIG"],
};

/// Returns the fields of the cluster at `index`.
fn fields(template: &Value, gang: &Gang<'_>, index: usize) -> Fields {
    let pods = cluster(template, gang, index).to_string();
    let told = |name: &str| task(gang, index, name, &pods);
    let mut fields = parts::fields(&TENSORFLOW, template, gang, index, told);
    let leads = leading::role(template).is_some_and(|role| gang.per_cluster(&role)[index] > 0);
    if gang.shares.len() > 1 && !leads {
        fields.push(("/spec/successPolicy".to_owned(), json!("AllWorkers")));
    }
    fields
}

/// Returns what the script needs in the pods of a group.
fn task(gang: &Gang<'_>, index: usize, name: &str, pods: &str) -> Environment {
    let before: u64 = gang.per_cluster(name)[..index].iter().sum();
    vec![
        ("MUSTER_TF_CLUSTER", json!(pods)),
        ("MUSTER_TASK_TYPE", json!(name)),
        ("MUSTER_TASK_OFFSET", json!(before.to_string())),
    ]
}

/// Returns the addresses of all pods of the gang for pods of the cluster at `index`, by group.
fn cluster(template: &Value, gang: &Gang<'_>, index: usize) -> Value {
    let text = |path| template.pointer(path).and_then(Value::as_str);
    let job = text("/metadata/name").unwrap_or_default();
    let mut groups = Map::new();
    for group in gang.tasks.iter().map(|task| task.role.as_str()) {
        let port = TENSORFLOW.port(template, group);
        let mut all = Vec::new();
        for (share, count) in gang.shares.iter().zip(gang.per_cluster(group)) {
            for pod in 0..u32::try_from(count).unwrap_or(u32::MAX) {
                let host = format!("{job}-{group}-{pod}");
                all.push(endpoint(
                    &gang.address(index, share, group, pod, host),
                    port,
                ));
            }
        }
        groups.insert(group.to_owned(), json!(all));
    }
    Value::Object(groups)
}

/// Returns why it cannot be split.
fn unsplittable(template: &Value) -> Option<String> {
    if template.pointer("/spec/enableDynamicWorker") == Some(&json!(true)) {
        return Some("spec.enableDynamicWorker adds and removes workers in one cluster".to_owned());
    }
    let no_chief = || {
        let missing = leading::role(template).is_none();
        missing.then(|| {
            "spec.tfReplicaSpecs has no single Chief, whose end would be that of all parts"
                .to_owned()
        })
    };
    TENSORFLOW.unsplittable(template).or_else(no_chief)
}
