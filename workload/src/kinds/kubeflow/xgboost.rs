//! Parts of an XGBoostJob: ranks, master and addresses of the workers of the whole gang (the operator's own
//! are in its `xgboost.go`). XGBoost's workers meet at the master; LightGBM's pods find all others by a list
//! of addresses, so all of them have to be found.
//!
//! The operator refuses an XGBoostJob without a Master. In the other clusters a stand-in replaces it, which
//! is never scheduled and requests nothing; the workers are created all the same.

use super::parts::{self, Framework};
use super::stand_in::StandIn;
use super::{SplitTrainingJob, TrainingJobKind, known, replica_labels};
use crate::leading;
use crate::parts::{Environment, Fields, Gang};
use crate::rendezvous::Meeting;
use serde_json::{Value, json};

/// training-operator considers it finished when its master is (`UpdateJobStatus`, v1.9).
pub(crate) const XGBOOST_JOB: TrainingJobKind = TrainingJobKind {
    api: known("kubeflow.org", "v1", "XGBoostJob", "xgboostjobs"),
    groups: XGBOOST.groups,
    leaders: &[MASTER],
    default_replicas: |_, _| 1,
    autoscaled: false,
    added_init: |_| None,
    secret: None,
    split: SplitTrainingJob {
        fields,
        unsplittable,
        meeting: Meeting::All,
        first_host: |_, job| Some(format!("{job}-{MASTER}-0")),
        pod_labels: replica_labels,
        stand_in_gate: Some(GATE),
    },
};

/// The group of the master.
const MASTER: &str = "master";
/// The group of the workers.
const WORKER: &str = "worker";
/// The gate that keeps the stand-in of a master from being scheduled.
const GATE: &str = "muster.io/master-is-elsewhere";
/// The stand-in of a master.
const STAND_IN: StandIn = StandIn {
    groups: XGBOOST.groups,
    role: MASTER,
    container: Some(XGBOOST.container),
    gate: GATE,
};

/// `XGBoostJobDefaultContainerName` and similar.
const XGBOOST: Framework = Framework {
    groups: "xgbReplicaSpecs",
    container: "xgboost",
    port: ("xgboostjob-port", 9999),
    script: r#"MASTER_ADDR="$MUSTER_LEADER_ADDRESS"
MASTER_PORT="$MUSTER_LEADER_PORT"
WORLD_SIZE="$MUSTER_GANG_SIZE"
RANK="$((MUSTER_RANK_OFFSET + MUSTER_REPLICA_INDEX))"
WORKER_PORT="$MUSTER_WORKER_PORT"
WORKER_ADDRS="$MUSTER_WORKER_ADDRESSES"
export MASTER_ADDR MASTER_PORT WORLD_SIZE RANK WORKER_PORT WORKER_ADDRS
exec "$@""#,
    overridden: &[
        "MASTER_ADDR",
        "MASTER_PORT",
        "WORLD_SIZE",
        "RANK",
        "WORKER_PORT",
        "WORKER_ADDRS",
    ],
};

/// Returns the fields of the cluster at `index`.
fn fields(template: &Value, gang: &Gang<'_>, index: usize) -> Fields {
    let told: Environment = vec![
        (
            "MUSTER_LEADER_PORT",
            json!(XGBOOST.port(template, MASTER).to_string()),
        ),
        (
            "MUSTER_WORKER_PORT",
            json!(XGBOOST.port(template, WORKER).to_string()),
        ),
        (
            "MUSTER_WORKER_ADDRESSES",
            json!(workers(template, gang, index)),
        ),
    ];
    let mut fields = parts::fields(&XGBOOST, template, gang, index, |_| told.clone());
    if gang.shares.len() > 1 && gang.per_cluster(MASTER)[index] == 0 {
        STAND_IN.replace(template, gang, index, &mut fields);
    }
    fields
}

/// Returns the addresses of all workers in the order of their ranks, with commas between, as pods of the
/// cluster at `index` reach them.
fn workers(template: &Value, gang: &Gang<'_>, index: usize) -> String {
    let job = template.pointer("/metadata/name").and_then(Value::as_str);
    let job = job.unwrap_or_default();
    let mut all = Vec::new();
    for (share, count) in gang.shares.iter().zip(gang.per_cluster(WORKER)) {
        for pod in 0..u32::try_from(count).unwrap_or(u32::MAX) {
            let host = format!("{job}-{WORKER}-{pod}");
            all.push(gang.address(index, share, WORKER, pod, host));
        }
    }
    all.join(",")
}

/// Returns why it cannot be split.
fn unsplittable(template: &Value) -> Option<String> {
    let no_master = || {
        let missing = leading::role(template).is_none();
        missing.then(|| {
            "spec.xgbReplicaSpecs has no single Master, whose end would be that of all parts"
                .to_owned()
        })
    };
    XGBOOST.unsplittable(template).or_else(no_master)
}

#[cfg(test)]
mod tests;
