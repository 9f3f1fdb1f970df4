//! Finds the pods of a RayCluster: in its head and its groups of workers.

use super::{HEAD, group_name};
use crate::cap_to_admitted::clip;
use crate::parts::Fields;
use crate::pod_specs;
use serde_json::Value;
use std::collections::BTreeMap;

/// Returns the pod templates of the RayCluster with this spec.
pub(super) fn templates(cluster: &Value) -> Vec<&Value> {
    let groups = cluster.get("workerGroupSpecs").and_then(Value::as_array);
    let workers = groups
        .into_iter()
        .flatten()
        .filter_map(|group| group.get("template"));
    cluster
        .pointer("/headGroupSpec/template")
        .into_iter()
        .chain(workers)
        .collect()
}

/// Returns the pod specs of the RayCluster with this spec, each with the role of its pods.
pub(super) fn specs(cluster: &mut Value) -> Vec<(String, &mut Value)> {
    let mut pods = Vec::new();
    for (field, value) in cluster.as_object_mut().into_iter().flatten() {
        match field.as_str() {
            "headGroupSpec" => {
                let spec = value.pointer_mut("/template/spec");
                pods.extend(spec.map(|spec| (HEAD.to_owned(), spec)));
            }
            "workerGroupSpecs" => {
                let path = "/template/spec";
                pods.extend(pod_specs::listed(
                    Some(value),
                    "groupName",
                    path,
                    group_name,
                ));
            }
            _ => {}
        }
    }
    pods
}

/// Returns the groups of workers with their admitted replicas, each of several hosts; a group that was not
/// admitted has none. An autoscaler may not exceed them.
pub(super) fn worker_groups(
    path: &str,
    template: &Value,
    admitted: &BTreeMap<String, u32>,
) -> Option<Fields> {
    let groups = template.pointer(path)?.as_array()?.iter().enumerate();
    let capped = groups.map(|(index, group)| {
        let mut group = group.as_object()?.clone();
        let name = group_name(index, group.get("groupName").and_then(Value::as_str));
        let hosts = group
            .get("numOfHosts")
            .and_then(Value::as_u64)
            .unwrap_or(1)
            .max(1);
        let replicas = u64::from(admitted.get(&name).copied().unwrap_or(0)) / hosts;
        group.insert("replicas".into(), replicas.into());
        clip(&mut group, "minReplicas", replicas);
        clip(&mut group, "maxReplicas", replicas);
        Some(Value::Object(group))
    });
    Some(vec![(
        path.to_owned(),
        Value::Array(capped.collect::<Option<_>>()?),
    )])
}
