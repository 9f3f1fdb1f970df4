//! Objects as the control plane and members have them, and their paths.

use super::*;
use engine::facts::{PodFact, PodPhase};
use engine::faults::Symptom;

/// The kinds that members serve.
const KINDS: [&str; 5] = [
    "batch/v1/Job",
    "apps/v1/Deployment",
    "apps/v1/ReplicaSet",
    "apps/v1/StatefulSet",
    "leaderworkerset.x-k8s.io/v1/LeaderWorkerSet",
];

pub(super) fn last(requests: &[Recorded]) -> &[Recorded] {
    &requests[requests.len().saturating_sub(6)..]
}

pub(super) fn member_facts() -> [Event; 2] {
    let cluster = ClusterFact {
        name: ClusterName::new("m1"),
        labels: Default::default(),
        provider: String::new(),
        region: String::new(),
        zones: Vec::new(),
        taints: Vec::new(),
        price_milli: None,
        network: std::collections::BTreeMap::new(),
        apis: Some(KINDS.map(str::to_owned).into()),
        usable: true,
        unusable_because: String::new(),
        paused: None,
    };
    let node = NodeFact {
        cluster: ClusterName::new("m1"),
        name: NodeName::new("n1"),
        class: PoolClass::new("cpu"),
        labels: Default::default(),
        taints: Vec::new(),
        domains: Vec::new(),
        allocatable: Resources::parse([("cpu", "8"), ("pods", "110")]).unwrap(),
        usable: true,
        lost: false,
    };
    [Event::ClusterUpserted(cluster), Event::NodeUpserted(node)]
}

pub(super) fn job_kind() -> TemplateKind {
    TemplateKind {
        api_version: "batch/v1".into(),
        kind: "Job".into(),
    }
}

pub(super) fn path(name: &str) -> String {
    format!("/apis/work.karmada.io/v1alpha2/namespaces/team/resourcebindings/{name}")
}

pub(super) fn work_path(name: &str) -> String {
    format!("/apis/work.karmada.io/v1alpha1/namespaces/karmada-es-m1/works/{name}")
}

/// Returns what Karmada notes on a Work of a job of namespace `team` whose binding has the permanent id `id`.
pub(super) fn work_metadata(job: &str, id: &str) -> Value {
    json!({
        "labels": {names::BINDING_PERMANENT_ID: id},
        "annotations": {
            names::BINDING_NAMESPACE_ANNOTATION: "team", names::BINDING_NAME_ANNOTATION: job,
        },
    })
}

/// The Work `name` of member `m1` as the watch shows it.
pub(super) fn in_m1(name: &str, mut work: Value) -> Value {
    work["metadata"]["name"] = json!(name);
    work["metadata"]["namespace"] = json!("karmada-es-m1");
    work
}

pub(super) fn object_key(namespace: &str, name: &str) -> ObjectKey {
    ObjectKey {
        namespace: Some(namespace.to_owned()),
        name: name.to_owned(),
    }
}

pub(super) fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

pub(super) fn merge(into: &mut Value, change: Value) {
    match (into, change) {
        (Value::Object(into), Value::Object(change)) => {
            for (name, value) in change {
                merge(into.entry(name).or_insert(Value::Null), value);
            }
        }
        (into, change) => *into = change,
    }
}

/// The owner of the binding of a job: its object.
pub(super) fn owner_of(name: &str) -> Value {
    let uid = format!("{name}-uid");
    json!({"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid, "controller": true})
}

/// Returns what a member reports of a job, for `status.aggregatedStatus`.
pub(super) fn reported(status: Value) -> Value {
    json!({"status": {"aggregatedStatus": [{"clusterName": "m1", "status": status}]}})
}

/// Returns what Karmada reports of a job without Works.
pub(super) fn forgotten() -> Value {
    json!({"status": {"aggregatedStatus": []}})
}

/// The annotation of a record as an earlier process left it.
pub(super) fn left(name: &str, state: RecordState, attempt: u32, cpus: u32) -> Value {
    let record = json!({
        "templateUID": format!("{name}-uid"), "attempt": attempt, "state": state, "queue": "q",
        "clusters": [{
            "name": "m1", "pods": [{"role": "main", "count": cpus}],
            "charge": {"cpu": {"cpu": cpus.to_string(), "pods": cpus.to_string()}},
        }],
        "time": jiff::Timestamp::now().to_string(),
    });
    json!({ names::ADMISSION_ANNOTATION: record.to_string() })
}

/// A pod of job `a` with one CPU on the node of `m1`, with what its member says of it: reason and message.
pub(super) fn pod(uid: &str, phase: PodPhase, said: Option<(&str, &str)>) -> PodFact {
    PodFact {
        cluster: ClusterName::new("m1"),
        uid: engine::Uid::new(uid),
        node: Some(NodeName::new("n1")),
        request: Resources::parse([("cpu", "1"), ("pods", "1")]).unwrap(),
        job: Some(JobKey::new("team", "a")),
        phase,
        symptom: said.map(|(reason, message)| {
            Box::new(Symptom {
                reason: reason.to_owned(),
                message: message.to_owned(),
                exit_code: None,
            })
        }),
        grace_s: 0,
    }
}
