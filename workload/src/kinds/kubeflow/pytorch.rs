//! Parts of a PyTorchJob: ranks, world size and master of the whole gang (the operator's own are in its
//! `envvar.go` and `master.go`). For the operator a part without the master is a job of workers that does
//! not wait for one: it succeeds when all of them have.

use super::parts::{self, Framework};
use super::{SplitTrainingJob, TrainingJobKind, known, replica_labels};
use crate::parts::{Environment, Fields, Gang};
use crate::pod::cpu_and_memory;
use crate::pod_shape::AddedInit;
use crate::rendezvous::Meeting;
use serde_json::{Value, json};

/// training-operator considers it finished when its master is (`UpdateJobStatus`, v1.9), and creates a
/// Service with the name of each pod (replicaName in its envvar.go).
pub(crate) const PYTORCH_JOB: TrainingJobKind = TrainingJobKind {
    api: known("kubeflow.org", "v1", "PyTorchJob", "pytorchjobs"),
    groups: TORCH.groups,
    leaders: &["master"],
    default_replicas: |_, _| 1,
    autoscaled: true,
    added_init,
    secret: None,
    split: SplitTrainingJob {
        fields,
        unsplittable,
        meeting: Meeting::First,
        first_host: |_, job| Some(format!("{job}-master-0")),
        pod_labels: replica_labels,
        stand_in_gate: None,
    },
};

/// `PyTorchJobDefaultContainerName` and similar. Kubernetes expands the variables that it knows in
/// `$(NAME)`, and leaves the arithmetic expression unchanged: no variable has such a name.
const TORCH: Framework = Framework {
    groups: "pytorchReplicaSpecs",
    container: "pytorch",
    port: ("pytorchjob-port", 23456),
    script: r#"MASTER_ADDR="$MUSTER_LEADER_ADDRESS"
MASTER_PORT="$MUSTER_LEADER_PORT"
WORLD_SIZE="$MUSTER_WORLD_SIZE"
RANK="$((MUSTER_RANK_OFFSET + MUSTER_REPLICA_INDEX))"
PET_MASTER_ADDR="$MASTER_ADDR" PET_MASTER_PORT="$MASTER_PORT"
PET_NNODES="$MUSTER_GANG_SIZE" PET_NODE_RANK="$RANK"
export MASTER_ADDR MASTER_PORT WORLD_SIZE RANK PET_MASTER_ADDR PET_MASTER_PORT PET_NNODES PET_NODE_RANK
exec "$@""#,
    overridden: &[
        "MASTER_ADDR",
        "MASTER_PORT",
        "WORLD_SIZE",
        "RANK",
        "PET_MASTER_ADDR",
        "PET_MASTER_PORT",
        "PET_NNODES",
        "PET_NODE_RANK",
    ],
};

/// Workers wait for the name of the master in an init container (setInitContainer in the operator's initcontainer.go,
/// v1.9), unless there is no master. A part without the master has workers without it; they are charged for it all the
/// same, since each worker may be in either. An operator with a template of its own in `/etc/config/initContainer.yaml`
/// may add another one, which is not known here.
fn added_init(template: &Value) -> Option<AddedInit> {
    TORCH
        .group(template, "master")
        .filter(|master| !master.is_null())?;
    let requests = cpu_and_memory(50, 10 << 20);
    let limits = cpu_and_memory(100, 20 << 20);
    Some(AddedInit::new(requests, limits, |role| role == "worker"))
}

/// Returns the fields of the cluster at `index`.
fn fields(template: &Value, gang: &Gang<'_>, index: usize) -> Fields {
    parts::fields(&TORCH, template, gang, index, |_| {
        rendezvous(template, gang)
    })
}

/// Returns what the script needs besides what every part receives.
fn rendezvous(template: &Value, gang: &Gang<'_>) -> Environment {
    let processes = template.pointer("/spec/nprocPerNode");
    // "auto" and similar: the operator counts one, and torchrun finds the number itself.
    let processes = processes.and_then(|text| text.as_str()?.parse::<u64>().ok());
    let world = gang.size().saturating_mul(processes.unwrap_or(1));
    let port = TORCH.port(template, "master");
    vec![
        ("MUSTER_LEADER_PORT", json!(port.to_string())),
        ("MUSTER_WORLD_SIZE", json!(world.to_string())),
    ]
}

/// Returns why it cannot be split.
fn unsplittable(template: &Value) -> Option<String> {
    let elastic = template.pointer("/spec/elasticPolicy");
    if elastic.is_some_and(|policy| !policy.is_null()) {
        return Some("spec.elasticPolicy makes its pods meet in one cluster".to_owned());
    }
    let no_master = || {
        let missing = TORCH.group(template, "master").is_none();
        missing.then(|| {
            "spec.pytorchReplicaSpecs has no Master that the pods of all clusters could find"
                .to_owned()
        })
    };
    TORCH.unsplittable(template).or_else(no_master)
}
