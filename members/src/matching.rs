//! Finds the job of a member's pod.
//!
//! Karmada writes the binding's name and namespace as annotations on the object that it applies
//! (pkg/controllers/binding/common.go `mergeAnnotations`, v1.18), and on nothing below it. So a pod is
//! matched by climbing from its controller to that object. A template of pods may carry these annotations
//! too, if its user wrote them: they count only on an object without a controller, and only if they name
//! the binding of that object. The climb needs requests (`owners.rs` makes and
//! caches them); until it has ended, the names are used: Karmada derives a binding's name from the kind and
//! name of the object, so the direct owner usually determines it. Pure.

use crds::names;
use facts::JobKey;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use std::collections::BTreeMap;

/// Label of pods of a Deployment's ReplicaSet: the end of the ReplicaSet's name.
const POD_TEMPLATE_HASH: &str = "pod-template-hash";
/// Label of pods below a JobSet.
const JOBSET_NAME: &str = "jobset.sigs.k8s.io/jobset-name";
/// Label of pods below a LeaderWorkerSet.
const LEADER_WORKER_SET: &str = "leaderworkerset.sigs.k8s.io/name";
/// Labels of pods below a RayCluster, and of the object that created the cluster.
const RAY_CLUSTER: &str = "ray.io/cluster";
const RAY_ORIGIN_KIND: &str = "ray.io/originated-from-crd";
const RAY_ORIGIN_NAME: &str = "ray.io/originated-from-cr-name";
/// Labels of pods below the training operator's kinds and mpi-operator's.
const TRAINING_JOB: &str = "training.kubeflow.org/job-name";
const TRAINING_OPERATOR: &str = "training.kubeflow.org/operator-name";

/// Annotation of the mirror of a static pod.
const MIRROR: &str = "kubernetes.io/config.mirror";

/// The object that controls a pod.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Owner {
    /// `batch/v1`.
    pub(crate) api_version: String,
    /// `Job`.
    pub(crate) kind: String,
    /// The namespace of the owner and its pods.
    pub(crate) namespace: String,
    /// Its name.
    pub(crate) name: String,
    /// Its UID, the key of the cached answer.
    pub(crate) uid: String,
}

/// What a pod itself says about its job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Belongs {
    /// Karmada applied the pod itself.
    Applied(JobKey),
    /// It has a controller, which determines the job; until that is known, this is the likely one.
    Owned { owner: Owner, likely: JobKey },
    /// It has no controller, so it belongs to no job: it is charged for its namespace.
    Namespace(JobKey),
    /// It is never charged: a pod of a DaemonSet, or the mirror of a static pod, which run on each node whatever
    /// jobs there are.
    Nobody,
}

/// Returns what `pod` itself says about its job.
pub(crate) fn belongs(pod: &ObjectMeta) -> Belongs {
    if let Some(key) = applied_by("Pod", pod) {
        return Belongs::Applied(key);
    }
    match controller(pod) {
        // A static pod has no API object behind it.
        Some(owner) if runs_on_each_node(pod, &owner) => Belongs::Nobody,
        Some(owner) => Belongs::Owned {
            likely: likely(pod, &owner),
            owner,
        },
        None => Belongs::Namespace(of_namespace(pod)),
    }
}

/// Returns the key of the pods in the namespace of `pod` that belong to no job.
fn of_namespace(pod: &ObjectMeta) -> JobKey {
    JobKey::of_namespace(pod.namespace.as_deref().unwrap_or_default())
}

/// Returns true if `pod` is of a DaemonSet, or the mirror of a static pod. A kubelet deletes a mirror that is of none
/// of its static pods, so that nobody can pass off another pod as one.
fn runs_on_each_node(pod: &ObjectMeta, owner: &Owner) -> bool {
    let annotations = pod.annotations.as_ref();
    let is_mirror = || annotations.is_some_and(|all| all.contains_key(MIRROR));
    match owner.kind.as_str() {
        "DaemonSet" => owner.api_version.starts_with("apps/"),
        "Node" => owner.api_version == "v1" && is_mirror(),
        _ => false,
    }
}

/// Returns the job that a pod of a member likely belongs to, by the names that it has. For words only: it may be
/// another, or none.
#[must_use]
pub fn likely_job(pod: &ObjectMeta) -> Option<JobKey> {
    match belongs(pod) {
        Belongs::Applied(key) => Some(key),
        Belongs::Owned { likely, .. } => Some(likely),
        Belongs::Namespace(_) | Belongs::Nobody => None,
    }
}

/// Returns the binding that Karmada applied `object`, of this kind, for, as its annotations say. Who may create objects
/// in a member, or pods by a template, may write these too. So they count only if they name the object's own binding,
/// and on no object that a controller has made.
pub(crate) fn applied_by(kind: &str, object: &ObjectMeta) -> Option<JobKey> {
    let annotations = object.annotations.as_ref()?;
    let namespace = annotations.get(names::BINDING_NAMESPACE_ANNOTATION)?;
    let name = annotations.get(names::BINDING_NAME_ANNOTATION)?;
    let own = names::binding_name(kind, object.name.as_deref()?);
    let is_own = object.namespace.as_ref() == Some(namespace) && *name == own;
    (is_own && controller(object).is_none()).then(|| JobKey::new(namespace, name))
}

/// Returns the controller among the owners of `object`.
pub(crate) fn controller(object: &ObjectMeta) -> Option<Owner> {
    let is_controller = |owner: &&OwnerReference| owner.controller == Some(true);
    let owner = object
        .owner_references
        .as_ref()?
        .iter()
        .find(is_controller)?;
    Some(Owner {
        api_version: owner.api_version.clone(),
        kind: owner.kind.clone(),
        namespace: object.namespace.clone().unwrap_or_default(),
        name: owner.name.clone(),
        uid: owner.uid.clone(),
    })
}

/// Returns the likely job by names: the topmost object in its labels and direct owner.
fn likely(pod: &ObjectMeta, owner: &Owner) -> JobKey {
    let none = BTreeMap::new();
    let labels = pod.labels.as_ref().unwrap_or(&none);
    let (kind, name) = by_labels(labels).unwrap_or_else(|| by_owner(labels, owner));
    JobKey::new(&owner.namespace, &names::binding_name(kind, name))
}

fn by_labels(labels: &BTreeMap<String, String>) -> Option<(&str, &str)> {
    let label = |key| labels.get(key).map(String::as_str);
    if let Some(jobset) = label(JOBSET_NAME) {
        return Some(("JobSet", jobset));
    }
    if let Some(set) = label(LEADER_WORKER_SET) {
        return Some(("LeaderWorkerSet", set));
    }
    if let (Some(kind), Some(name)) = (label(RAY_ORIGIN_KIND), label(RAY_ORIGIN_NAME)) {
        return Some((kind, name));
    }
    if let Some(cluster) = label(RAY_CLUSTER) {
        return Some(("RayCluster", cluster));
    }
    Some((
        training_kind(label(TRAINING_OPERATOR)?)?,
        label(TRAINING_JOB)?,
    ))
}

/// Returns the kind of the jobs for which an operator creates pods.
fn training_kind(operator: &str) -> Option<&'static str> {
    match operator {
        "pytorchjob-controller" => Some("PyTorchJob"),
        "tfjob-controller" => Some("TFJob"),
        "xgboostjob-controller" => Some("XGBoostJob"),
        "paddlejob-controller" => Some("PaddleJob"),
        "jaxjob-controller" => Some("JAXJob"),
        "mpijob-controller" | "mpi-operator" => Some("MPIJob"),
        _ => None,
    }
}

fn by_owner<'a>(labels: &BTreeMap<String, String>, owner: &'a Owner) -> (&'a str, &'a str) {
    let deployment = || {
        let hash = labels.get(POD_TEMPLATE_HASH)?;
        owner.name.strip_suffix(hash.as_str())?.strip_suffix('-')
    };
    match owner.kind.as_str() {
        "ReplicaSet" => {
            deployment().map_or(("ReplicaSet", &owner.name), |name| ("Deployment", name))
        }
        kind => (kind, &owner.name),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;
    use serde_json::{Value, json};

    fn pod(annotations: Value, labels: Value, owner: Option<(&str, &str)>) -> ObjectMeta {
        let owners = owner.map(|(kind, name)| {
            json!([
                {"apiVersion": "v1", "kind": "Other", "name": "not-its-controller", "uid": "o"},
                {"apiVersion": "g/v1", "kind": kind, "name": name, "uid": "u", "controller": true},
            ])
        });
        serde_json::from_value(json!({
            "namespace": "team", "name": "p", "annotations": annotations,
            "labels": labels, "ownerReferences": owners,
        }))
        .unwrap()
    }

    fn likely_of(labels: Value, kind: &str, name: &str) -> String {
        match belongs(&pod(json!({}), labels, Some((kind, name)))) {
            Belongs::Owned { owner, likely } => {
                assert_eq!((owner.kind.as_str(), owner.uid.as_str()), (kind, "u"));
                likely.to_string()
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_topmost_object_in_labels_and_owners_is_the_job() {
        let rows = [
            (json!({}), "Job", "train", "team/train-job"),
            (
                json!({POD_TEMPLATE_HASH: "7d4f"}),
                "ReplicaSet",
                "web-7d4f",
                "team/web-deployment",
            ),
            (
                json!({POD_TEMPLATE_HASH: "7d4f"}),
                "ReplicaSet",
                "own",
                "team/own-replicaset",
            ),
            (json!({}), "StatefulSet", "db", "team/db-statefulset"),
            (
                json!({JOBSET_NAME: "set"}),
                "Job",
                "set-workers-0",
                "team/set-jobset",
            ),
            (
                json!({RAY_CLUSTER: "rj-x7k"}),
                "RayCluster",
                "rj-x7k",
                "team/rj-x7k-raycluster",
            ),
            (
                json!({RAY_CLUSTER: "rj-x7k", RAY_ORIGIN_KIND: "RayJob", RAY_ORIGIN_NAME: "rj"}),
                "RayCluster",
                "rj-x7k",
                "team/rj-rayjob",
            ),
            (
                json!({RAY_CLUSTER: "s-x7k", RAY_ORIGIN_KIND: "RayService", RAY_ORIGIN_NAME: "s"}),
                "RayCluster",
                "s-x7k",
                "team/s-rayservice",
            ),
            (
                json!({LEADER_WORKER_SET: "vllm"}),
                "StatefulSet",
                "vllm-0",
                "team/vllm-leaderworkerset",
            ),
            (
                json!({TRAINING_OPERATOR: "jaxjob-controller", TRAINING_JOB: "jax"}),
                "JAXJob",
                "jax",
                "team/jax-jaxjob",
            ),
            (
                json!({TRAINING_OPERATOR: "mpi-operator", TRAINING_JOB: "mpi"}),
                "Job",
                "mpi-launcher",
                "team/mpi-mpijob",
            ),
            (
                json!({TRAINING_OPERATOR: "new", TRAINING_JOB: "x"}),
                "NewJob",
                "x",
                "team/x-newjob",
            ),
        ];
        for (labels, kind, name, want) in rows {
            assert_eq!(likely_of(labels.clone(), kind, name), want, "{labels}");
        }
    }

    #[test]
    fn a_pod_that_karmada_applied_is_its_own_job() {
        let own = json!({
            names::BINDING_NAMESPACE_ANNOTATION: "team", names::BINDING_NAME_ANNOTATION: "p-pod",
        });
        let applied = Belongs::Applied(JobKey::new("team", "p-pod"));
        assert_eq!(belongs(&pod(own.clone(), json!({}), None)), applied);
        // A template of pods may say so, whatever the pods are of.
        let owned = pod(own, json!({}), Some(("StatefulSet", "p")));
        assert!(
            matches!(belongs(&owned), Belongs::Owned { likely, .. } if likely == JobKey::new("team", "p-statefulset"))
        );
        let of_no_job = Belongs::Namespace(JobKey::of_namespace("team"));
        assert_eq!(belongs(&pod(json!({}), json!({}), None)), of_no_job);
        let half = json!({names::BINDING_NAME_ANNOTATION: "p-pod"});
        assert_eq!(belongs(&pod(half, json!({}), None)), of_no_job);
        let of_another_tenant = json!({
            names::BINDING_NAMESPACE_ANNOTATION: "other", names::BINDING_NAME_ANNOTATION: "p-pod",
        });
        assert_eq!(belongs(&pod(of_another_tenant, json!({}), None)), of_no_job);
        let of_another_job = json!({
            names::BINDING_NAMESPACE_ANNOTATION: "team", names::BINDING_NAME_ANNOTATION: "train-job",
        });
        assert_eq!(belongs(&pod(of_another_job, json!({}), None)), of_no_job);
    }

    #[test]
    fn pods_that_run_on_each_node_belong_to_nobody() {
        let owned = |annotations: Value, api: &str, kind: &str| {
            let mut pod = pod(annotations, json!({}), Some((kind, "x")));
            let owners = pod.owner_references.as_mut().unwrap();
            owners
                .iter_mut()
                .for_each(|owner| owner.api_version = api.to_owned());
            belongs(&pod)
        };
        let mirror = json!({MIRROR: "7f"});
        for (annotations, api, kind, exempt) in [
            (json!({}), "apps/v1", "DaemonSet", true),
            (json!({}), "mine.example/v1", "DaemonSet", false),
            (mirror, "v1", "Node", true),
            (json!({}), "v1", "Node", false),
        ] {
            let found = owned(annotations, api, kind) == Belongs::Nobody;
            assert_eq!(found, exempt, "{api} {kind}");
        }
    }
}
