//! Parts of a JAXJob: process numbers and coordinator of the whole gang (the operator's own are in its
//! `envvar.go`). All of its pods are workers, and the one of rank 0 coordinates the others.

use super::parts::{self, Framework};
use super::{SplitTrainingJob, TrainingJobKind, known, replica_labels};
use crate::parts::{Fields, Gang};
use crate::rendezvous::Meeting;
use serde_json::{Value, json};

/// training-operator considers it finished when all of its workers are (`UpdateJobStatus`, v1.9), so no pod
/// leads: every part has to succeed.
pub(crate) const JAX_JOB: TrainingJobKind = TrainingJobKind {
    api: known("kubeflow.org", "v1", "JAXJob", "jaxjobs"),
    groups: JAX.groups,
    leaders: &[],
    default_replicas: |_, _| 1,
    autoscaled: false,
    added_init: |_| None,
    secret: None,
    split: SplitTrainingJob {
        fields,
        unsplittable,
        meeting: Meeting::First,
        first_host: |_, job| Some(format!("{job}-worker-0")),
        pod_labels: replica_labels,
        stand_in_gate: None,
    },
};

/// `JAXJobDefaultContainerName` and similar.
const JAX: Framework = Framework {
    groups: "jaxReplicaSpecs",
    container: "jax",
    port: ("jaxjob-port", 6666),
    script: r#"COORDINATOR_ADDRESS="$MUSTER_LEADER_ADDRESS"
COORDINATOR_PORT="$MUSTER_LEADER_PORT"
NUM_PROCESSES="$MUSTER_GANG_SIZE"
PROCESS_ID="$((MUSTER_RANK_OFFSET + MUSTER_REPLICA_INDEX))"
export COORDINATOR_ADDRESS COORDINATOR_PORT NUM_PROCESSES PROCESS_ID
exec "$@""#,
    overridden: &[
        "COORDINATOR_ADDRESS",
        "COORDINATOR_PORT",
        "NUM_PROCESSES",
        "PROCESS_ID",
    ],
};

/// Returns the fields of the cluster at `index`.
fn fields(template: &Value, gang: &Gang<'_>, index: usize) -> Fields {
    let port = JAX.port(template, "worker");
    parts::fields(&JAX, template, gang, index, |_| {
        vec![("MUSTER_LEADER_PORT", json!(port.to_string()))]
    })
}

/// Returns why it cannot be split.
fn unsplittable(template: &Value) -> Option<String> {
    JAX.unsplittable(template)
}

#[cfg(test)]
mod tests;
