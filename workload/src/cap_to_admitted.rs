//! Caps a job to what it was admitted with: whole subtrees of its template, with the admitted requests, and
//! with the admitted counts if Karmada does not set these.
//!
//! Subtrees replace single indexes, so that they cannot be misapplied to a template that was reordered
//! meanwhile. Groups that were not admitted at all are left out.

use crate::cap_requests::{AdmittedRequests, cap_requests};
use crate::kinds;
use crate::parts::Fields;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Returns paths and the values that replace them in every member, or `None` for kinds that do not support
/// it.
#[must_use]
pub fn cap_to_admitted(
    api_version: &str,
    kind: &str,
    template: &Value,
    admitted: &BTreeMap<String, u32>,
    requests: &AdmittedRequests,
) -> Option<Fields> {
    let kind = kinds::of_group(api_version, kind)?;
    kind.cap_to_admitted(template, &cap_requests(template, requests), admitted)
}

/// Returns the field at `path`, with its path.
pub(crate) fn subtree(template: &Value, path: &str) -> Option<(String, Value)> {
    Some((path.to_owned(), template.pointer(path)?.clone()))
}

/// Adds to `fields` those of `paths` at which `held` differs from `template`.
pub(crate) fn with_changed(
    mut fields: Fields,
    paths: &[&str],
    template: &Value,
    held: &Value,
) -> Fields {
    let changed = paths
        .iter()
        .filter(|path| template.pointer(path) != held.pointer(path));
    fields.extend(changed.filter_map(|path| subtree(held, path)));
    fields
}

/// Lowers a number that is set to at most `most`.
pub(crate) fn clip(object: &mut Map<String, Value>, field: &str, most: u64) {
    if let Some(value) = object.get(field).and_then(Value::as_u64) {
        object.insert(field.to_owned(), value.min(most).into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    type Admitted = BTreeMap<String, u32>;
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
        let capped = cap_to_admitted(
            "batch.volcano.sh/v1alpha1",
            "Job",
            &template,
            &admitted,
            &none,
        );
        assert_eq!(
            capped,
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
            cap_to_admitted(
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
            cap_to_admitted(
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
    fn requests_are_capped_beside_counts() {
        let pods = |gpus: &str| json!({"spec": {"containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": gpus}}}]}});
        let one = facts::Resources::parse([("nvidia.com/gpu", "1"), ("pods", "1")]);
        let one = one.unwrap_or_default();
        let of = |roles: &[&str]| -> AdmittedRequests {
            roles
                .iter()
                .map(|role| ((*role).to_owned(), one.clone()))
                .collect()
        };
        let cap = |api: &str, kind: &str, spec: Value, roles: &[(&str, u32)]| {
            let template =
                json!({"apiVersion": api, "kind": kind, "metadata": {"name": "a"}, "spec": spec});
            let names: Vec<&str> = roles.iter().map(|(role, _)| *role).collect();
            let admitted = roles
                .iter()
                .map(|(role, count)| ((*role).to_owned(), *count));
            cap_to_admitted(api, kind, &template, &admitted.collect(), &of(&names))
        };
        let deployment = json!({"replicas": 9, "template": pods("4")});
        assert_eq!(
            cap("apps/v1", "Deployment", deployment, &[("main", 2)]),
            Some(vec![(
                "/spec/template/spec".into(),
                pods("1")["spec"].clone()
            )])
        );
        let ray = json!({"headGroupSpec": {"template": pods("4")}, "workerGroupSpecs": []});
        assert_eq!(
            cap("ray.io/v1", "RayCluster", ray, &[("ray-head", 1)]),
            Some(vec![
                ("/spec/workerGroupSpecs".into(), json!([])),
                ("/spec/headGroupSpec".into(), json!({"template": pods("1")})),
            ])
        );
        let job = |gpus: &str| json!({"spec": {"parallelism": 2, "template": pods(gpus)}});
        let set = json!({"replicatedJobs": [{"name": "j", "replicas": 9, "template": job("4")}]});
        assert_eq!(
            cap("jobset.x-k8s.io/v1alpha2", "JobSet", set, &[("j", 6)]),
            Some(vec![(
                "/spec/replicatedJobs".into(),
                json!([{"name": "j", "replicas": 3, "template": job("1")}])
            )])
        );
    }

    #[test]
    fn other_kinds_are_not_capped() {
        assert_eq!(
            cap_to_admitted(
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
