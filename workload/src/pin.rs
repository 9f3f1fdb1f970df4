//! What pins a job of a kind that Karmada cannot hold to the pods it was admitted with:
//! whole subtrees of its template, rendered with the admitted counts.
//!
//! Subtrees and not single indexes, so that a template that was reordered meanwhile cannot be
//! misapplied. Groups that were not admitted at all are left out.

use crate::{kind, kubeflow, ray, volcano};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Pods by role that were admitted.
type Admitted = BTreeMap<String, u32>;

/// Paths and the values that replace them in every member, or `None` for kinds that are not
/// known to take it.
#[must_use]
pub fn pinned(
    api_version: &str,
    kind: &str,
    template: &Value,
    admitted: &BTreeMap<String, u32>,
) -> Option<Vec<(String, Value)>> {
    match (kind::group(api_version), kind) {
        ("batch.volcano.sh", "Job") => tasks(template, admitted),
        ("kubeflow.org", _) => replica_specs(kubeflow::replica_specs(kind)?, template, admitted),
        ("ray.io", "RayCluster") => worker_groups("/spec/workerGroupSpecs", template, admitted),
        ("ray.io", "RayJob") => {
            worker_groups("/spec/rayClusterSpec/workerGroupSpecs", template, admitted)
        }
        _ => None,
    }
}

/// The tasks with their admitted replicas; minimums never above what is there.
fn tasks(template: &Value, admitted: &Admitted) -> Option<Vec<(String, Value)>> {
    let mut total = 0_u64;
    let tasks: Vec<Value> = template
        .pointer("/spec/tasks")?
        .as_array()?
        .iter()
        .enumerate()
        .filter_map(|(index, task)| {
            let name = volcano::task_name(index, task.get("name").and_then(Value::as_str));
            let count = admitted.get(&name).copied().filter(|count| *count > 0)?;
            total += u64::from(count);
            let mut task = task.as_object()?.clone();
            task.insert("name".into(), name.into());
            task.insert("replicas".into(), count.into());
            clip(&mut task, "minAvailable", u64::from(count));
            Some(Value::Object(task))
        })
        .collect();
    let mut pinned = vec![("/spec/tasks".to_owned(), Value::Array(tasks))];
    if let Some(minimum) = template
        .pointer("/spec/minAvailable")
        .and_then(Value::as_u64)
    {
        pinned.push(("/spec/minAvailable".to_owned(), minimum.min(total).into()));
    }
    Some(pinned)
}

/// The replica specs with their admitted replicas.
fn replica_specs(
    field: &str,
    template: &Value,
    admitted: &Admitted,
) -> Option<Vec<(String, Value)>> {
    let groups: Map<String, Value> = template
        .pointer(&format!("/spec/{field}"))?
        .as_object()?
        .iter()
        .filter_map(|(key, group)| {
            let count = admitted
                .get(&key.to_lowercase())
                .copied()
                .filter(|count| *count > 0)?;
            let mut group = group.as_object()?.clone();
            group.insert("replicas".into(), count.into());
            Some((key.clone(), Value::Object(group)))
        })
        .collect();
    Some(vec![(format!("/spec/{field}"), Value::Object(groups))])
}

/// The groups of workers with their admitted replicas, each of several hosts; a group that was
/// not admitted keeps none. An autoscaler may go no higher.
fn worker_groups(
    path: &str,
    template: &Value,
    admitted: &Admitted,
) -> Option<Vec<(String, Value)>> {
    let groups = template.pointer(path)?.as_array()?.iter().enumerate();
    let pinned = groups.map(|(index, group)| {
        let mut group = group.as_object()?.clone();
        let name = ray::group_name(index, group.get("groupName").and_then(Value::as_str));
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
        Value::Array(pinned.collect::<Option<_>>()?),
    )])
}

/// Lowers a number that is there to at most `most`.
fn clip(object: &mut Map<String, Value>, field: &str, most: u64) {
    if let Some(value) = object.get(field).and_then(Value::as_u64) {
        object.insert(field.to_owned(), value.min(most).into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_volcano_job_keeps_what_was_admitted() {
        let template = json!({"spec": {"minAvailable": 31, "tasks": [
            {"name": "added", "replicas": 4},
            {"name": "master", "replicas": 1, "template": {"spec": {}}},
            {"replicas": 30, "minAvailable": 30},
        ]}});
        let admitted = Admitted::from([("master".into(), 1), ("default2".into(), 3)]);
        let pinned = pinned("batch.volcano.sh/v1alpha1", "Job", &template, &admitted);
        assert_eq!(
            pinned,
            Some(vec![
                (
                    "/spec/tasks".into(),
                    json!([
                        {"name": "master", "replicas": 1, "template": {"spec": {}}},
                        {"name": "default2", "replicas": 3, "minAvailable": 3},
                    ])
                ),
                ("/spec/minAvailable".into(), json!(4)),
            ])
        );
    }

    #[test]
    fn a_pytorch_job_keeps_what_was_admitted() {
        let template = json!({"spec": {"pytorchReplicaSpecs": {
            "Master": {"template": {}}, "Worker": {"replicas": 9, "template": {}},
        }}});
        let admitted = Admitted::from([("master".into(), 1), ("worker".into(), 3)]);
        assert_eq!(
            pinned("kubeflow.org/v1", "PyTorchJob", &template, &admitted),
            Some(vec![(
                "/spec/pytorchReplicaSpecs".into(),
                json!({"Master": {"replicas": 1, "template": {}}, "Worker": {"replicas": 3, "template": {}}}),
            )])
        );
    }

    #[test]
    fn a_ray_cluster_keeps_what_was_admitted() {
        let template = json!({"spec": {"rayClusterSpec": {"workerGroupSpecs": [
            {"groupName": "gpu", "replicas": 9, "minReplicas": 4, "maxReplicas": 10, "numOfHosts": 2},
            {"replicas": 3},
        ]}}});
        let admitted = Admitted::from([("gpu".into(), 6), ("ray-head".into(), 1)]);
        assert_eq!(
            pinned("ray.io/v1", "RayJob", &template, &admitted),
            Some(vec![(
                "/spec/rayClusterSpec/workerGroupSpecs".into(),
                json!([
                    {"groupName": "gpu", "replicas": 3, "minReplicas": 3, "maxReplicas": 3, "numOfHosts": 2},
                    {"replicas": 0},
                ]),
            )])
        );
    }

    #[test]
    fn other_kinds_are_not_pinned() {
        assert_eq!(
            pinned("batch/v1", "Job", &json!({"spec": {}}), &Admitted::new()),
            None
        );
    }
}
