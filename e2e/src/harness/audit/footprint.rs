//! How many GPUs a template asks for, and of which queue: added up by hand, kind by kind.
//!
//! This is on purpose a second, much simpler reading of templates than Muster's own: GPUs are only in
//! plain containers here, and whole, as in all templates that the tests and the demo submit.

use serde_json::Value;

const GPU: &str = "nvidia.com/gpu";

/// What a template takes of a queue while it runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Footprint {
    /// The queue that it names; `default` if none.
    pub queue: String,
    /// GPUs of all its pods.
    pub gpus: u64,
}

impl Footprint {
    /// Reads a template; none for kinds that are not known here.
    pub fn of(template: &Value) -> Option<Self> {
        let spec = &template["spec"];
        let group = template["apiVersion"].as_str()?.split('/').next()?;
        let gpus = match (group, template["kind"].as_str()?) {
            ("batch.volcano.sh", "Job") => sum(spec["tasks"].as_array()?),
            ("kubeflow.org", "PyTorchJob") => {
                sum(spec["pytorchReplicaSpecs"].as_object()?.values())
            }
            ("kubeflow.org", "MPIJob") => sum(spec["mpiReplicaSpecs"].as_object()?.values()),
            ("jobset.x-k8s.io", "JobSet") => jobs(spec["replicatedJobs"].as_array()?),
            ("ray.io", "RayCluster") => ray(spec),
            ("ray.io", "RayJob") => ray(&spec["rayClusterSpec"]),
            ("batch", "Job") => count(&spec["parallelism"]) * pod(&spec["template"]["spec"]),
            ("apps", "Deployment") => count(&spec["replicas"]) * pod(&spec["template"]["spec"]),
            ("v1", "Pod") => pod(spec),
            _ => return None,
        };
        let labelled = &template["metadata"]["labels"]["muster.io/queue"];
        let queue = spec["queue"].as_str().or(labelled.as_str());
        Some(Self {
            queue: queue.unwrap_or("default").to_owned(),
            gpus,
        })
    }
}

fn sum<'a>(roles: impl IntoIterator<Item = &'a Value>) -> u64 {
    let role = |role: &Value| count(&role["replicas"]) * pod(&role["template"]["spec"]);
    roles.into_iter().map(role).sum()
}

fn jobs(replicated: &[Value]) -> u64 {
    let job = |job: &Value| {
        let spec = &job["template"]["spec"];
        count(&job["replicas"]) * count(&spec["parallelism"]) * pod(&spec["template"]["spec"])
    };
    replicated.iter().map(job).sum()
}

fn ray(cluster: &Value) -> u64 {
    let groups = cluster["workerGroupSpecs"].as_array();
    pod(&cluster["headGroupSpec"]["template"]["spec"]) + sum(groups.into_iter().flatten())
}

/// A replica count, 1 where it is left out.
fn count(value: &Value) -> u64 {
    value.as_u64().unwrap_or(1)
}

fn pod(spec: &Value) -> u64 {
    let containers = spec["containers"].as_array();
    containers.into_iter().flatten().map(container).sum()
}

fn container(container: &Value) -> u64 {
    let value = &container["resources"]["limits"][GPU];
    value
        .as_u64()
        .or_else(|| value.as_str()?.parse().ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::jobs::Gang;

    #[test]
    fn every_kind_asks_for_pods_times_gpus() {
        let gang = Gang {
            namespace: "n".into(),
            name: "j".into(),
            queue: Some("q".into()),
            pods: 3,
            gpus: 8,
            product: None,
            run_for: None,
            fail: false,
            priority_class: None,
        };
        let expected = |gpus| {
            Some(Footprint {
                queue: "q".into(),
                gpus,
            })
        };
        assert_eq!(Footprint::of(&gang.volcano()), expected(24));
        assert_eq!(Footprint::of(&gang.batch()), expected(24));
        assert_eq!(Footprint::of(&gang.pytorch()), expected(24));
        assert_eq!(Footprint::of(&gang.mpi()), expected(24));
        assert_eq!(Footprint::of(&gang.job_set()), expected(24));
        assert_eq!(Footprint::of(&gang.ray_cluster()), expected(24));
        assert_eq!(Footprint::of(&gang.ray_job()), expected(24));
        assert_eq!(Footprint::of(&gang.deployment()), expected(24));
        assert_eq!(Footprint::of(&gang.pod()), expected(8));
    }
}
