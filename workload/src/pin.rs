//! What pins a job to what it was admitted with: whole subtrees of its template, rendered with
//! the admitted requests, and with the admitted counts where Karmada does not hold these.
//!
//! Subtrees and not single indexes, so that a template that was reordered meanwhile cannot be
//! misapplied. Groups that were not admitted at all are left out.

use crate::capped::{AdmittedRequests, capped};
use crate::field::Field;
use crate::kinds::{self, batch, kubeflow, ray, volcano};
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
    requests: &AdmittedRequests,
) -> Option<Vec<(String, Value)>> {
    let held = &capped(template, requests);
    match (kinds::group(api_version), kind) {
        ("apps", _) | ("batch", "Job") => {
            subtree(held, "/spec/template/spec").map(|pods| vec![pods])
        }
        ("batch.volcano.sh", "Job") => tasks(held, admitted),
        ("kubeflow.org", _) => replica_specs(kubeflow::replica_specs(kind)?, held, admitted),
        ("jobset.x-k8s.io", "JobSet") => replicated_jobs(held, admitted),
        ("ray.io", "RayCluster") => {
            let workers = worker_groups("/spec/workerGroupSpecs", held, admitted)?;
            let others = ["/spec/headGroupSpec"];
            Some(with_changed(workers, &others, template, held))
        }
        ("ray.io", "RayJob") => {
            let workers = worker_groups("/spec/rayClusterSpec/workerGroupSpecs", held, admitted)?;
            let others = [
                "/spec/rayClusterSpec/headGroupSpec",
                "/spec/submitterPodTemplate",
            ];
            Some(with_changed(workers, &others, template, held))
        }
        _ => None,
    }
}

fn subtree(template: &Value, path: &str) -> Option<(String, Value)> {
    Some((path.to_owned(), template.pointer(path)?.clone()))
}

/// `pinned` with those of `paths` at which `held` is another than `template`.
fn with_changed(
    mut pinned: Vec<(String, Value)>,
    paths: &[&str],
    template: &Value,
    held: &Value,
) -> Vec<(String, Value)> {
    let changed = paths
        .iter()
        .filter(|path| template.pointer(path) != held.pointer(path));
    pinned.extend(changed.filter_map(|path| subtree(held, path)));
    pinned
}

/// The replicated jobs with as many Jobs as were admitted.
fn replicated_jobs(template: &Value, admitted: &Admitted) -> Option<Vec<(String, Value)>> {
    let jobs = template.pointer("/spec/replicatedJobs")?.as_array()?.iter();
    let jobs = jobs.filter_map(|job| {
        let name = job.get("name")?.as_str()?;
        let pods = admitted.get(name).copied().filter(|pods| *pods > 0)?;
        let spec = Field::at("spec", job.pointer("/template/spec")?);
        let each = batch::pods_at_once(&spec).ok()?.max(1);
        let mut job = job.as_object()?.clone();
        job.insert("replicas".into(), (pods / each).into());
        Some(Value::Object(job))
    });
    Some(vec![(
        "/spec/replicatedJobs".to_owned(),
        Value::Array(jobs.collect()),
    )])
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
        let none = AdmittedRequests::new();
        let pinned = pinned(
            "batch.volcano.sh/v1alpha1",
            "Job",
            &template,
            &admitted,
            &none,
        );
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
            pinned(
                "kubeflow.org/v1",
                "PyTorchJob",
                &template,
                &admitted,
                &AdmittedRequests::new()
            ),
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
            pinned(
                "ray.io/v1",
                "RayJob",
                &template,
                &admitted,
                &AdmittedRequests::new()
            ),
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
    fn requests_are_pinned_beside_counts() {
        let pods = |gpus: &str| json!({"spec": {"containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": gpus}}}]}});
        let one = engine::Resources::parse([("nvidia.com/gpu", "1"), ("pods", "1")]);
        let one = one.unwrap_or_default();
        let of = |roles: &[&str]| -> AdmittedRequests {
            roles
                .iter()
                .map(|role| ((*role).to_owned(), one.clone()))
                .collect()
        };
        let pin = |api: &str, kind: &str, spec: Value, roles: &[(&str, u32)]| {
            let template =
                json!({"apiVersion": api, "kind": kind, "metadata": {"name": "a"}, "spec": spec});
            let names: Vec<&str> = roles.iter().map(|(role, _)| *role).collect();
            let admitted = roles
                .iter()
                .map(|(role, count)| ((*role).to_owned(), *count));
            pinned(api, kind, &template, &admitted.collect(), &of(&names))
        };
        let deployment = json!({"replicas": 9, "template": pods("4")});
        assert_eq!(
            pin("apps/v1", "Deployment", deployment, &[("main", 2)]),
            Some(vec![(
                "/spec/template/spec".into(),
                pods("1")["spec"].clone()
            )])
        );
        let ray = json!({"headGroupSpec": {"template": pods("4")}, "workerGroupSpecs": []});
        assert_eq!(
            pin("ray.io/v1", "RayCluster", ray, &[("ray-head", 1)]),
            Some(vec![
                ("/spec/workerGroupSpecs".into(), json!([])),
                ("/spec/headGroupSpec".into(), json!({"template": pods("1")})),
            ])
        );
        let job = |gpus: &str| json!({"spec": {"parallelism": 2, "template": pods(gpus)}});
        let set = json!({"replicatedJobs": [{"name": "j", "replicas": 9, "template": job("4")}]});
        assert_eq!(
            pin("jobset.x-k8s.io/v1alpha2", "JobSet", set, &[("j", 6)]),
            Some(vec![(
                "/spec/replicatedJobs".into(),
                json!([{"name": "j", "replicas": 3, "template": job("1")}])
            )])
        );
    }

    #[test]
    fn other_kinds_are_not_pinned() {
        assert_eq!(
            pinned(
                "v1",
                "Pod",
                &json!({"spec": {}}),
                &Admitted::new(),
                &AdmittedRequests::new()
            ),
            None
        );
    }
}
