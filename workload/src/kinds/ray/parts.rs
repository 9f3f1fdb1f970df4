//! Parts of a RayCluster and of a RayJob: the head is in one cluster, workers are in all of them.
//!
//! KubeRay creates a head and its Service in every RayCluster, and passes the name of that Service to
//! workers (`controllers/ray/common/pod.go`, v1.4 to v1.6). So in the other clusters a stand-in replaces
//! the head, which is never scheduled and requests nothing, and workers get the real head's address by all
//! settings that a template has: `rayStartParams.address` and `RAY_ADDRESS`.
//!
//! An ExternalName Service could lead to the head, but KubeRay writes no status of a RayCluster whose head
//! Service has no cluster IP (`getHeadServiceIPAndName`), and its pods would be unknown.
//!
//! A RayJob submits nothing if its RayCluster is not ready, which it never is without its head: there it
//! waits, until the end of the leading part evicts it.

use super::{HEAD, SUBMITTER, group_name, head_port, head_service, is_job};
use crate::apportion::apportion;
use crate::parts::metadata::object;
use crate::parts::{Environment, Fields, Gang, add_environment};
use crate::rendezvous::endpoint;
use serde_json::{Map, Value, json};

/// The gate that keeps the stand-in of a head from being scheduled. The interpreters of RayCluster and
/// RayJob recognize a part without the head by it.
pub(super) const GATE: &str = "muster.io/head-is-elsewhere";
/// The label in which KubeRay writes a worker's index within its group, from v1.6 on; in earlier versions
/// the variable is empty.
const INDEX_LABEL: &str = "ray.io/worker-group-replica-index";
/// Fields that a part without the head does not have: the head's Service, and deadlines of a RayJob to
/// start or end, which a part that waits for the others cannot meet.
const OF_THE_HEAD: [&str; 4] = [
    "/spec/headServiceAnnotations",
    "/spec/rayClusterSpec/headServiceAnnotations",
    "/spec/activeDeadlineSeconds",
    "/spec/preRunningDeadlineSeconds",
];

/// Returns the fields of the cluster at `index`.
pub(super) fn fields(template: &Value, gang: &Gang<'_>, index: usize) -> Fields {
    let path = if is_job(template) {
        "/spec/rayClusterSpec"
    } else {
        "/spec"
    };
    let Some(cluster) = template.pointer(path) else {
        return Fields::new();
    };
    let elsewhere = elsewhere(cluster, gang, index);
    let head = match &elsewhere {
        Some(there) => Some(stand_in(cluster, there)),
        None => own_head(template, cluster, gang, index),
    };
    let groups = cluster.get("workerGroupSpecs").and_then(Value::as_array);
    let groups = groups.into_iter().flatten().enumerate();
    let workers = groups
        .filter_map(|(position, group)| workers(position, group, gang, index, elsewhere.as_ref()));
    let workers = Value::Array(workers.collect());
    let mut fields = vec![(format!("{path}/workerGroupSpecs"), workers)];
    fields.extend(head.map(|head| (format!("{path}/headGroupSpec"), head)));
    if elsewhere.is_some() {
        let set = |path: &&str| template.pointer(path).is_some_and(|field| !field.is_null());
        let gone = OF_THE_HEAD.into_iter().filter(set);
        fields.extend(gone.map(|path| (path.to_owned(), Value::Null)));
    }
    fields
}

/// The address of a head in another cluster.
struct Elsewhere {
    /// Its address with its port.
    endpoint: String,
    /// Its port.
    port: String,
}

/// Returns the address of the head for the cluster at `index`; `None` if the head is there.
fn elsewhere(cluster: &Value, gang: &Gang<'_>, index: usize) -> Option<Elsewhere> {
    if gang.per_cluster(HEAD)[index] > 0 {
        return None;
    }
    let port = head_port(cluster).to_owned();
    let endpoint = endpoint(gang.leader(index).unwrap_or_default(), &port);
    Some(Elsewhere { endpoint, port })
}

/// Returns the head, with a Service of a known name: the name of a RayJob's cluster is random.
fn own_head(template: &Value, cluster: &Value, gang: &Gang<'_>, index: usize) -> Option<Value> {
    let mut head = cluster.get("headGroupSpec")?.as_object()?.clone();
    let pods = head.get_mut("template")?.as_object_mut()?;
    let mut told = environment(gang, index, HEAD);
    told.push(("MUSTER_REPLICA_INDEX", json!("0")));
    add_environment(pods, &told);
    gang.label(index, pods);
    if is_job(template) {
        let own = head
            .get("headService")
            .filter(|service| service.is_object());
        let mut service = own.cloned().unwrap_or_else(|| default_service(&head));
        let metadata = service.as_object_mut();
        if let Some(metadata) = metadata.and_then(|service| object(service, "metadata")) {
            metadata.insert("name".to_owned(), json!(head_service(template)?));
        }
        head.insert("headService".to_owned(), service);
    }
    Some(Value::Object(head))
}

/// Returns the Service that KubeRay creates by default: headless, unless a type is set
/// (`BuildServiceForHeadPod`).
fn default_service(head: &Map<String, Value>) -> Value {
    let kind = head.get("serviceType").and_then(Value::as_str);
    match kind.unwrap_or_default() {
        "" | "ClusterIP" => {
            json!({"spec": {"clusterIP": "None", "publishNotReadyAddresses": true}})
        }
        _ => json!({"spec": {}}),
    }
}

/// Returns the stand-in of a head in another cluster. Of its pod only the fields stay that a namespace may
/// enforce: the user it runs as, and that it states its requests, which are zero.
///
/// KubeRay's init container that makes workers wait (`wait-gcs-ready`) takes the address only from the name
/// of the head's Service here. But it copies the head's port from the template into its command: `ray
/// health-check --address <service>:<port>`. Of two addresses Ray uses the last one.
fn stand_in(cluster: &Value, there: &Elsewhere) -> Value {
    let Elsewhere { endpoint, port } = there;
    let template = cluster.pointer("/headGroupSpec/template");
    let of = |path| template.and_then(|template| template.pointer(path));
    let containers = of("/spec/containers").and_then(Value::as_array);
    let first = containers.and_then(|containers| containers.first());
    let mut container = picked(
        first,
        &[
            "name",
            "image",
            "imagePullPolicy",
            "ports",
            "securityContext",
        ],
    );
    if let Some(resources) = first.and_then(|container| container.get("resources")) {
        container.insert("resources".to_owned(), none_of(resources));
    }
    let mut spec = picked(of("/spec"), &["securityContext"]);
    spec.insert("containers".to_owned(), json!([container]));
    spec.insert("schedulingGates".to_owned(), json!([{"name": GATE}]));
    let mut pods = picked(template, &["metadata"]);
    pods.insert("spec".to_owned(), Value::Object(spec));
    json!({
        "rayStartParams": {"port": format!("{port} --address '{endpoint}'")},
        "template": pods,
    })
}

/// Returns the fields of an object that have these names.
fn picked(object: Option<&Value>, names: &[&str]) -> Map<String, Value> {
    let object = object.and_then(Value::as_object).into_iter().flatten();
    let named = object.filter(|(name, _)| names.contains(&name.as_str()));
    named
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

/// Returns the same resources with zero amounts.
fn none_of(resources: &Value) -> Value {
    let mut lists = picked(Some(resources), &["limits", "requests"]);
    let amounts = lists
        .values_mut()
        .filter_map(Value::as_object_mut)
        .flatten();
    amounts.for_each(|(_, amount)| *amount = json!("0"));
    Value::Object(lists)
}

/// Returns a group of workers with the replicas of the cluster at `index`; `None` if it has none there.
fn workers(
    position: usize,
    group: &Value,
    gang: &Gang<'_>,
    index: usize,
    elsewhere: Option<&Elsewhere>,
) -> Option<Value> {
    let name = group_name(position, group.get("groupName").and_then(Value::as_str));
    let each = gang.per_cluster(&name);
    let mut group = group.as_object().filter(|_| each[index] > 0)?.clone();
    group.insert("replicas".to_owned(), each[index].into());
    for bound in ["minReplicas", "maxReplicas"] {
        if let Some(whole) = group.get(bound).and_then(Value::as_u64) {
            group.insert(bound.to_owned(), apportion(whole, &each)[index].into());
        }
    }
    let mut environment = environment(gang, index, &name);
    let own_index = json!({"fieldRef": {"fieldPath": format!("metadata.labels['{INDEX_LABEL}']")}});
    environment.push(("MUSTER_REPLICA_INDEX", own_index));
    if let Some(there) = elsewhere {
        let mut params = group
            .get("rayStartParams")
            .and_then(Value::as_object)
            .cloned()
            .unwrap_or_default();
        params.insert("address".to_owned(), json!(there.endpoint));
        group.insert("rayStartParams".to_owned(), Value::Object(params));
        environment.push(("RAY_ADDRESS", json!(there.endpoint)));
        environment.push(("RAY_PORT", json!(there.port)));
    }
    let pods = group.get_mut("template")?.as_object_mut()?;
    add_environment(pods, &environment);
    gang.label(index, pods);
    Some(Value::Object(group))
}

/// Returns what pods of a role receive. The pod that submits a RayJob is no node of its cluster.
fn environment(gang: &Gang<'_>, index: usize, role: &str) -> Environment {
    let offset = gang.rank_offset(role, &gang.per_cluster(role), index);
    let submitters: u64 = gang.per_cluster(SUBMITTER).iter().sum();
    let nodes = gang.size().saturating_sub(submitters).to_string();
    let mut environment = gang.environment(index, offset);
    let size = environment
        .iter_mut()
        .find(|(name, _)| *name == "MUSTER_GANG_SIZE");
    if let Some((_, size)) = size {
        *size = json!(nodes);
    }
    environment
}

#[cfg(test)]
mod tests;
