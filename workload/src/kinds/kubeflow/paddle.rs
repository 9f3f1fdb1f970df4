//! Parts of a PaddleJob: the endpoint of rank 0, and the number of pods, of the whole gang (the operator's
//! own are in its `envvar.go`). Paddle's launcher numbers the pods itself, once they have met at this
//! endpoint.
//!
//! Without a Master its pods are equal, and worker 0 is the endpoint. With one they are servers and
//! trainers, and the master is. The operator takes a part without the Master for a job of equal pods: it
//! makes worker 0 of that part an endpoint, and does not say that the others train.

use super::parts::{self, Framework};
use super::{SplitTrainingJob, TrainingJobKind, known, replica_labels};
use crate::leading;
use crate::parts::{Environment, Fields, Gang};
use crate::rendezvous::{Meeting, endpoint};
use serde_json::{Value, json};

/// training-operator considers it finished when its masters are, or all of its workers if it has no master
/// (`UpdateJobStatus`, v1.9).
pub(crate) const PADDLE_JOB: TrainingJobKind = TrainingJobKind {
    api: known("kubeflow.org", "v1", "PaddleJob", "paddlejobs"),
    groups: PADDLE.groups,
    leaders: &["master"],
    default_replicas: |_, _| 1,
    autoscaled: false,
    added_init: |_| None,
    secret: None,
    split: SplitTrainingJob {
        fields,
        unsplittable,
        meeting: Meeting::First,
        first_host: |template, job| Some(format!("{job}-{}-0", first_group(template))),
        pod_labels: replica_labels,
        stand_in_gate: None,
    },
};

/// `PaddleJobDefaultContainerName` and similar. The pod of rank 0 listens on its own address, which the
/// operator tells it.
const PADDLE: Framework = Framework {
    groups: "paddleReplicaSpecs",
    container: "paddle",
    port: ("master", 36543),
    script: r#"[ "$((MUSTER_RANK_OFFSET + MUSTER_REPLICA_INDEX))" -eq 0 ] || PADDLE_MASTER="$MUSTER_LEADER_ENDPOINT"
PADDLE_NNODES="$MUSTER_GANG_SIZE"
export PADDLE_MASTER PADDLE_NNODES
exec "$@""#,
    overridden: &["PADDLE_MASTER", "PADDLE_NNODES"],
};

/// Returns the group with the pod of rank 0.
fn first_group(template: &Value) -> &'static str {
    match PADDLE.group(template, "master") {
        Some(_) => "master",
        None => "worker",
    }
}

/// Returns the fields of the cluster at `index`.
fn fields(template: &Value, gang: &Gang<'_>, index: usize) -> Fields {
    let first = first_group(template);
    let port = PADDLE.port(template, first);
    let leader = endpoint(gang.leader(index).unwrap_or_default(), port);
    parts::fields(&PADDLE, template, gang, index, |name| {
        let mut told: Environment = vec![("MUSTER_LEADER_ENDPOINT", json!(leader))];
        if first == "master" && name == "worker" {
            told.push(("PADDLE_TRAINER_NUM", json!("1")));
        }
        told
    })
}

/// Returns why it cannot be split.
fn unsplittable(template: &Value) -> Option<String> {
    let elastic = template.pointer("/spec/elasticPolicy");
    if elastic.is_some_and(|policy| !policy.is_null()) {
        return Some("spec.elasticPolicy makes its pods meet in one cluster".to_owned());
    }
    let several_masters = || {
        let has_masters = PADDLE.group(template, "master").is_some();
        (has_masters && leading::role(template).is_none()).then(|| {
            "spec.paddleReplicaSpecs has several Masters, whose end together no single cluster knows"
                .to_owned()
        })
    };
    PADDLE.unsplittable(template).or_else(several_masters)
}

#[cfg(test)]
mod tests;
