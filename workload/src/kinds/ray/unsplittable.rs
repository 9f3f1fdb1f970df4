//! Fields that keep a RayCluster or a RayJob from being split: what the head does only in its own cluster,
//! what each cluster would do for itself, and what cannot be divided.

use super::is_job;
use crate::outcome::text;
use crate::parts::CONTAINERS;
use serde_json::Value;

/// The value of `managedBy` for KubeRay.
const KUBERAY: &str = "ray.io/kuberay-operator";
/// The variables with the head Service of the pod's own cluster: `FQ_RAY_IP`, and its old name. KubeRay
/// sets them last, so they cannot be overridden.
const HEAD_SERVICE: &str = "RAY_IP";

/// Returns why it cannot be split.
pub(super) fn unsplittable(template: &Value) -> Option<String> {
    let path = if is_job(template) {
        if template
            .pointer("/spec/clusterSelector")
            .is_some_and(|selector| !selector.is_null())
        {
            return Some("spec.clusterSelector makes it run in an existing RayCluster".to_owned());
        }
        "spec.rayClusterSpec"
    } else {
        "spec"
    };
    let cluster = template.pointer(&format!("/{}", path.replace('.', "/")))?;
    managed(template)
        .or_else(|| of_one_cluster(template, path, cluster))
        .or_else(|| {
            let groups = cluster.get("workerGroupSpecs").and_then(Value::as_array);
            let mut groups = groups.into_iter().flatten().enumerate();
            groups.find_map(|(index, group)| {
                indivisible(&format!("{path}.workerGroupSpecs[{index}]"), group)
            })
        })
}

/// Another controller than KubeRay handles the template.
fn managed(template: &Value) -> Option<String> {
    let manager = template.pointer("/spec/managedBy")?.as_str()?;
    (!matches!(manager, "" | KUBERAY)).then(|| {
        format!("spec.managedBy is {manager:?}, which would have to know of its parts; {KUBERAY} does what they say")
    })
}

/// Returns a field that its head handles only in its own cluster, or each cluster for itself.
fn of_one_cluster(template: &Value, path: &str, cluster: &Value) -> Option<String> {
    let set = |path| cluster.pointer(path).filter(|value| !value.is_null());
    let is_on = |path| set(path) == Some(&Value::Bool(true));
    if is_on("/enableInTreeAutoscaling") {
        return Some(format!(
            "{path}.enableInTreeAutoscaling makes the head start and stop workers of its own cluster only"
        ));
    }
    let annotation = template.pointer("/metadata/annotations/ray.io~1ft-enabled");
    if set("/gcsFaultToleranceOptions").is_some() || annotation.is_some_and(|on| on == "true") {
        return Some(format!(
            "{path}.gcsFaultToleranceOptions makes every cluster clean up the head's data in Redis, and the head is in only one of them"
        ));
    }
    let auth = text(set("/authOptions").unwrap_or(&Value::Null), "mode") == "token";
    let shared = set("/authOptions/secretName").is_some_and(|name| name != "");
    (auth && !shared).then(|| {
        format!("{path}.authOptions.mode token makes every cluster create a token of its own; set secretName to use one for all")
    })
}

/// Returns why a group of workers cannot be divided.
fn indivisible(path: &str, group: &Value) -> Option<String> {
    let hosts = group.get("numOfHosts").and_then(Value::as_u64).unwrap_or(1);
    if hosts > 1 {
        return Some(format!(
            "{path}.numOfHosts is {hosts}: the pods of a replica belong together, and pods are divided one by one"
        ));
    }
    if group.get("suspend") == Some(&Value::Bool(true)) {
        return Some(format!(
            "{path}.suspend is true: workers that are started later would have no place in the other clusters"
        ));
    }
    let pods = group.pointer("/template/spec")?;
    let lists = CONTAINERS
        .iter()
        .filter_map(|list| pods.get(list)?.as_array());
    let mut containers = lists.flatten();
    let container =
        containers.find(|container| words(container).any(|word| word.contains(HEAD_SERVICE)))?;
    Some(format!(
        "{path} container {} reads FQ_RAY_IP or RAY_IP, which is the Service of a head in its own cluster; MUSTER_LEADER_ADDRESS is where the head is",
        text(container, "name")
    ))
}

/// Returns the commands of a container, and the values of its variables.
fn words(container: &Value) -> impl Iterator<Item = &str> {
    let list = |key| {
        let list = container.get(key).and_then(Value::as_array);
        list.into_iter().flatten()
    };
    let values = list("env").filter_map(|variable| variable.get("value"));
    let words = list("command").chain(list("args")).chain(values);
    words.filter_map(Value::as_str)
}
