//! A submitted job: its template, and the objects that controllers derive from it.

use e2e::harness::kinds::{JOB_SET, LEADER_WORKER_SET, MPI_JOB, ObjectKind, RAY_JOB, RAY_SERVICE};
use serde_json::Value;

/// A job as it was submitted.
#[derive(Debug, Clone)]
pub(crate) struct Job {
    pub(crate) kind: ObjectKind,
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// The template in the API server's response.
    pub(crate) template: Value,
}

impl Job {
    pub(crate) fn of(kind: ObjectKind, template: Value) -> Self {
        let text = |field: &str| {
            let value = template["metadata"][field].as_str();
            value.unwrap_or_default().to_owned()
        };
        Self {
            kind,
            namespace: text("namespace"),
            name: text("name"),
            template,
        }
    }

    /// Returns the name that Karmada gives its binding; its PodGroup has the same.
    pub(crate) fn binding(&self) -> String {
        format!("{}-{}", self.name, self.kind.name).to_lowercase()
    }

    /// Returns true if a pod in a member belongs to this job: created by the job itself, by a Job
    /// of this JobSet or MPIJob, by a StatefulSet of this LeaderWorkerSet, or by a RayCluster of this RayJob or
    /// RayService.
    pub(crate) fn owns(&self, pod: &Value) -> bool {
        let labels = &pod["metadata"]["labels"];
        if self.kind == JOB_SET {
            return labels["jobset.sigs.k8s.io/jobset-name"] == self.name.as_str();
        }
        if self.kind == LEADER_WORKER_SET {
            return labels["leaderworkerset.sigs.k8s.io/name"] == self.name.as_str();
        }
        if self.kind == MPI_JOB {
            return labels["training.kubeflow.org/operator-name"] == "mpi-operator"
                && labels["training.kubeflow.org/job-name"] == self.name.as_str();
        }
        if self.kind == RAY_JOB {
            let cluster = pod["metadata"]["labels"]["ray.io/cluster"].as_str();
            let cluster = cluster.and_then(|cluster| cluster.rsplit_once('-'));
            return cluster.is_some_and(|(job, _)| job == self.name);
        }
        if self.kind == RAY_SERVICE {
            return labels["ray.io/originated-from-cr-name"] == self.name.as_str();
        }
        let owners = pod["metadata"]["ownerReferences"].as_array();
        let mut owners = owners.into_iter().flatten();
        owners.any(|owner| owner["kind"] == self.kind.name && owner["name"] == self.name.as_str())
    }

    pub(crate) fn uid(&self) -> &str {
        self.template["metadata"]["uid"]
            .as_str()
            .unwrap_or_default()
    }
}

/// Returns the names of a binding's clusters.
pub(crate) fn clusters(binding: &Value) -> Vec<String> {
    let clusters = binding["spec"]["clusters"].as_array().into_iter().flatten();
    clusters
        .filter_map(|cluster| cluster["name"].as_str().map(str::to_owned))
        .collect()
}

/// Returns true if a binding is gated.
pub(crate) fn is_gated(binding: &Value) -> bool {
    binding["spec"]["suspension"]["scheduling"] == true
}

/// Returns true if a binding is not gated and has clusters.
pub(crate) fn is_placed(binding: &Value) -> bool {
    !is_gated(binding) && !clusters(binding).is_empty()
}

/// Returns the admission record on a binding; null if there is none.
pub(crate) fn record(binding: &Value) -> Value {
    let text = binding["metadata"]["annotations"]["muster.io/admission"].as_str();
    text.and_then(|text| serde_json::from_str(text).ok())
        .unwrap_or_default()
}

/// Returns true if a PodGroup gives this reason, with this text in its message.
pub(crate) fn says(group: &Value, reason: &str, text: &str) -> bool {
    let federation = &group["status"]["federation"];
    let message = federation["message"].as_str().unwrap_or_default();
    federation["reason"] == reason && message.contains(text)
}

/// Returns a condition of a PodGroup by its type; null if there is none.
pub(crate) fn condition<'a>(pod_group: &'a Value, type_: &str) -> &'a Value {
    let conditions = pod_group["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    conditions
        .find(|condition| condition["type"] == type_)
        .unwrap_or(&Value::Null)
}
