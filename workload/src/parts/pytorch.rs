//! Parts of a PyTorchJob.
//!
//! training-operator tells each pod rank, world size and master as far as its own cluster goes,
//! after everything that the template says (`setPodEnv`, v1.9: of two variables with one name
//! the last counts). So what holds for the whole gang is set where nothing comes after it: a
//! shell sets it and becomes the container's own command. A part without the master is no
//! job of workers to the operator that would wait for one: it succeeds when they all have.

use super::{Fields, Gang, tell};
use crate::apportion::apportion;
use crate::kubeflow;
use serde_json::{Map, Value, json};

/// The container that the operator looks at (`PyTorchJobDefaultContainerName`).
pub(crate) const CONTAINER: &str = "pytorch";
/// The port that it looks for there, and the one that it adds where there is none.
const PORT_NAME: &str = "pytorchjob-port";
const DEFAULT_PORT: u64 = 23456;
/// The label in which it writes a pod's index within its group.
const INDEX_LABEL: &str = "training.kubeflow.org/replica-index";

/// What the operator would tell (its envvar.go and master.go), for the whole gang. Kubernetes
/// puts in what it knows for `$(NAME)`, and leaves the sum as it is: no variable has such a name.
const SCRIPT: &str = r#"MASTER_ADDR="$MUSTER_LEADER_ADDRESS"
MASTER_PORT="$MUSTER_LEADER_PORT"
WORLD_SIZE="$MUSTER_WORLD_SIZE"
RANK="$((MUSTER_RANK_OFFSET + MUSTER_REPLICA_INDEX))"
PET_MASTER_ADDR="$MASTER_ADDR" PET_MASTER_PORT="$MASTER_PORT"
PET_NNODES="$MUSTER_GANG_SIZE" PET_NODE_RANK="$RANK"
export MASTER_ADDR MASTER_PORT WORLD_SIZE RANK PET_MASTER_ADDR PET_MASTER_PORT PET_NNODES PET_NODE_RANK
exec "$@""#;

/// Variables that differ from what the operator says of them, or that it does not set at all.
const RETOLD: [&str; 8] = [
    "MASTER_ADDR",
    "MASTER_PORT",
    "WORLD_SIZE",
    "RANK",
    "PET_MASTER_ADDR",
    "PET_MASTER_PORT",
    "PET_NNODES",
    "PET_NODE_RANK",
];

/// Its groups of pods with the replicas that the cluster at `index` gets; a group with none is
/// left out.
pub(super) fn fields(template: &Value, gang: &Gang<'_>, index: usize) -> Fields {
    let groups = template.pointer("/spec/pytorchReplicaSpecs");
    let mut own = Map::new();
    for (key, group) in groups.and_then(Value::as_object).into_iter().flatten() {
        let name = key.to_lowercase();
        let each = gang.per_cluster(&name);
        let (count, Some(group)) = (each[index], group.as_object()) else {
            continue;
        };
        if count == 0 {
            continue;
        }
        let mut group = group.clone();
        group.insert("replicas".to_owned(), count.into());
        if let Some(pods) = group.get_mut("template").and_then(Value::as_object_mut) {
            let mut environment = gang.environment(index, gang.rank_offset(&name, &each, index));
            if gang.shares.len() > 1 {
                environment.extend(rendezvous(template, gang));
                lead(pods);
            }
            tell(pods, &environment);
        }
        own.insert(key.clone(), Value::Object(group));
    }
    let mut fields = vec![("/spec/pytorchReplicaSpecs".to_owned(), Value::Object(own))];
    let stated = template.pointer(MIN_AVAILABLE).and_then(Value::as_u64);
    if let Some(stated) = stated {
        let all = gang.replicas();
        let minimum = apportion(stated, &all)[index].max(1);
        fields.push((MIN_AVAILABLE.to_owned(), minimum.into()));
    }
    fields
}

const MIN_AVAILABLE: &str = "/spec/runPolicy/schedulingPolicy/minAvailable";

/// What the script needs beside what every part is told.
fn rendezvous(template: &Value, gang: &Gang<'_>) -> Vec<(&'static str, Value)> {
    let processes = template.pointer("/spec/nprocPerNode");
    // "auto" and kin: the operator counts one, and torchrun finds out itself.
    let processes = processes.and_then(|text| text.as_str()?.parse::<u64>().ok());
    let world = gang.size().saturating_mul(processes.unwrap_or(1));
    let field = format!("metadata.labels['{INDEX_LABEL}']");
    vec![
        ("MUSTER_LEADER_PORT", json!(port(template).to_string())),
        ("MUSTER_WORLD_SIZE", json!(world.to_string())),
        (
            "MUSTER_REPLICA_INDEX",
            json!({"fieldRef": {"fieldPath": field}}),
        ),
    ]
}

/// The port of the master.
fn port(template: &Value) -> u64 {
    let master = group(template, "master");
    let container = master.and_then(|group| containers(group).find(|c| c["name"] == CONTAINER));
    let ports = container.and_then(|container| container.get("ports")?.as_array());
    let mut ports = ports.into_iter().flatten();
    let port = ports.find(|port| port["name"] == PORT_NAME);
    port.and_then(|port| port.get("containerPort")?.as_u64())
        .unwrap_or(DEFAULT_PORT)
}

/// Has the shell come first in the container that trains.
fn lead(pods: &mut Map<String, Value>) {
    let containers = pods
        .get_mut("spec")
        .and_then(|spec| spec.get_mut("containers"))
        .and_then(Value::as_array_mut);
    let mut containers = containers.into_iter().flatten();
    let container = containers.find(|container| container["name"] == CONTAINER);
    let Some(Value::Array(command)) = container.and_then(|c| c.get_mut("command")) else {
        return;
    };
    let shell = ["/bin/sh", "-c", SCRIPT, "muster"].map(|word| json!(word));
    command.splice(0..0, shell);
}

/// What keeps one from being split.
pub(crate) fn cannot(template: &Value) -> Option<String> {
    let set = |path| template.pointer(path).is_some_and(|value| !value.is_null());
    if set("/spec/elasticPolicy") {
        return Some("spec.elasticPolicy has its pods meet in one cluster".to_owned());
    }
    if set("/spec/runPolicy/schedulingPolicy/minResources") {
        return Some("spec.runPolicy.schedulingPolicy.minResources is of the whole job".to_owned());
    }
    let groups = template.pointer("/spec/pytorchReplicaSpecs")?.as_object()?;
    if group(template, "master").is_none() {
        return Some(
            "spec.pytorchReplicaSpecs has no Master, whom the pods of all clusters could find"
                .to_owned(),
        );
    }
    groups.iter().find_map(|(key, group)| {
        let container = containers(group).find(|container| container["name"] == CONTAINER)?;
        let path = format!("spec.pytorchReplicaSpecs[{key}] container {CONTAINER}");
        let words = |field| {
            let words = container.get(field).and_then(Value::as_array);
            words.into_iter().flatten().filter_map(Value::as_str)
        };
        if words("command").next().is_none() {
            return Some(format!(
                "{path} has no command: ranks over clusters are set by a shell that starts it, and that of its image is not known"
            ));
        }
        let retold = words("command").chain(words("args")).find_map(|word| {
            let names = RETOLD.iter();
            let mut named = names.filter(|name| word.contains(&format!("$({name})")));
            named.next()
        })?;
        Some(format!(
            "{path} has $({retold}) put in before ranks over clusters are set; let it read the variable {retold} itself"
        ))
    })
}

fn group<'a>(template: &'a Value, name: &str) -> Option<&'a Value> {
    let field = kubeflow::replica_specs("PyTorchJob")?;
    let groups = template.get("spec")?.get(field)?.as_object()?;
    let mut groups = groups.iter();
    groups
        .find(|(key, _)| key.to_lowercase() == name)
        .map(|(_, group)| group)
}

fn containers(group: &Value) -> impl Iterator<Item = &Value> {
    let containers = group.pointer("/template/spec/containers");
    containers.and_then(Value::as_array).into_iter().flatten()
}
