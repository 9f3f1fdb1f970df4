#![allow(clippy::unwrap_used)]
use super::*;
use serde_json::json;

fn yaml(text: &str) -> Value {
    serde_saphyr::from_str(text).unwrap()
}

/// Returns a pod of the cluster at this place with these labels and this offset.
fn pod(name: &str, labels: &Value, offset: Option<u64>) -> Pod {
    let env = offset.map(|offset| json!([{"name": RANK_OFFSET, "value": offset.to_string()}]));
    serde_json::from_value(json!({
        "metadata": {"name": name, "labels": labels, "creationTimestamp": "2026-11-30T10:00:00Z"},
        "spec": {"containers": [{"name": "main", "env": env}]},
    }))
    .unwrap()
}

/// Returns `rank task` of each of these pods: cluster, name, labels, offset.
fn ranked(template: &str, pods: &[(usize, &str, Value, Option<u64>)]) -> Vec<String> {
    let template = yaml(template);
    let all: Vec<(usize, Pod)> = pods
        .iter()
        .map(|(cluster, name, labels, offset)| (*cluster, pod(name, labels, *offset)))
        .collect();
    let all: Vec<(usize, &Pod)> = all.iter().map(|(cluster, pod)| (*cluster, pod)).collect();
    let ranks = ranks(&all, &tasks(&template));
    ranks
        .iter()
        .map(|pod| format!("{} {}", pod.rank, pod.task))
        .collect()
}

#[test]
fn an_indexed_job_has_the_rank_of_its_completion_index_and_of_its_part() {
    let index = |index: &str| json!({(COMPLETION_INDEX): index});
    let template = "{apiVersion: batch/v1, kind: Job, spec: {completions: 4, parallelism: 4,
        template: {spec: {containers: [{}]}}}}";
    let found = ranked(
        template,
        &[
            (0, "j-1-a", index("1"), None),
            (0, "j-0-b", index("0"), None),
            // It replaces one that failed.
            (0, "j-1-c", index("1"), None),
        ],
    );
    assert_eq!(found, ["1 main", "0 main", "1 main"]);
    let split = ranked(
        template,
        &[
            (0, "j-0", index("0"), Some(0)),
            (1, "j-0", index("0"), Some(2)),
            (1, "j-1", index("1"), Some(2)),
        ],
    );
    assert_eq!(split, ["0 main", "2 main", "3 main"]);
}

#[test]
fn tasks_count_in_the_order_of_the_template() {
    let volcano = "{apiVersion: batch.volcano.sh/v1alpha1, kind: Job, spec: {tasks: [
        {name: ps, replicas: 2, template: {spec: {containers: [{}]}}},
        {name: chief, replicas: 1, template: {spec: {containers: [{}]}}}]}}";
    let of = |task: &str, index: &str| json!({(VOLCANO_TASK): task, (VOLCANO_INDEX): index});
    let found = ranked(
        volcano,
        &[
            (0, "j-chief-0", of("chief", "0"), None),
            (0, "j-ps-1", of("ps", "1"), None),
            (0, "j-ps-0", json!({(VOLCANO_TASK): "ps"}), None),
        ],
    );
    assert_eq!(found, ["2 chief", "1 ps", "0 ps"]);

    let torch = "{apiVersion: kubeflow.org/v1, kind: PyTorchJob, spec: {pytorchReplicaSpecs: {
        Worker: {replicas: 3, template: {spec: {containers: [{}]}}},
        Master: {replicas: 1, template: {spec: {containers: [{}]}}}}}}";
    let of = |task: &str, index: &str| json!({(REPLICA_TYPE): task, (REPLICA_INDEX): index});
    let found = ranked(
        torch,
        &[
            (0, "j-worker-0", of("worker", "0"), None),
            (0, "j-master-0", of("master", "0"), None),
            // In the second cluster of a split job.
            (1, "j-worker-0", of("worker", "0"), Some(2)),
        ],
    );
    assert_eq!(found, ["1 worker", "0 master", "2 worker"]);

    let mpi = "{apiVersion: kubeflow.org/v2beta1, kind: MPIJob, spec: {mpiReplicaSpecs: {
        Launcher: {replicas: 1, template: {spec: {containers: [{}]}}},
        Worker: {replicas: 2, template: {spec: {containers: [{}]}}}}}}";
    let found = ranked(
        mpi,
        &[
            (0, "j-launcher-x7", json!({(MPI_ROLE): "launcher"}), None),
            (
                0,
                "j-worker-1",
                json!({(MPI_ROLE): "worker", (REPLICA_INDEX): "1"}),
                None,
            ),
        ],
    );
    assert_eq!(found, ["0 launcher", "2 worker"]);
}

#[test]
fn a_job_set_counts_through_the_pods_of_its_jobs() {
    let set = "{apiVersion: jobset.x-k8s.io/v1alpha2, kind: JobSet, spec: {replicatedJobs: [
        {name: driver, template: {spec: {template: {spec: {containers: [{}]}}}}},
        {name: workers, replicas: 2, template: {spec: {parallelism: 2, completions: 2,
          template: {spec: {containers: [{}]}}}}}]}}";
    let of = |job: &str, pod: &str| json!({(JOBSET_TASK): "workers", (JOBSET_INDEX): job, (COMPLETION_INDEX): pod});
    let found = ranked(
        set,
        &[
            (
                0,
                "s-driver-0-0",
                json!({(JOBSET_TASK): "driver", (JOBSET_INDEX): "0"}),
                None,
            ),
            (0, "s-workers-0-1", of("0", "1"), None),
            (0, "s-workers-1-0", of("1", "0"), None),
        ],
    );
    assert_eq!(found, ["0 driver", "2 workers", "3 workers"]);
}

#[test]
fn groups_heads_and_submitters_have_their_tasks() {
    let of = |group: &str, worker: &str| json!({(GROUP_INDEX): group, (WORKER_INDEX): worker, (GROUP_SIZE): "2"});
    let set = "{apiVersion: leaderworkerset.x-k8s.io/v1, kind: LeaderWorkerSet, spec: {replicas: 2,
        leaderWorkerTemplate: {size: 2, workerTemplate: {spec: {containers: [{}]}}}}}";
    let found = ranked(
        set,
        &[
            (0, "s-1", of("1", "0"), None),
            (0, "s-0-1", of("0", "1"), None),
        ],
    );
    assert_eq!(found, ["2 leader", "1 worker"]);

    let ray = "{apiVersion: ray.io/v1, kind: RayJob, spec: {rayClusterSpec: {
        headGroupSpec: {template: {spec: {containers: [{}]}}},
        workerGroupSpecs: [{groupName: gpu, replicas: 2, template: {spec: {containers: [{}]}}}]}}}";
    let worker = json!({(RAY_NODE): "worker", (RAY_GROUP): "gpu"});
    let found = ranked(
        ray,
        &[
            (
                0,
                "r-head",
                json!({(RAY_NODE): "head", (RAY_GROUP): "headgroup"}),
                None,
            ),
            (0, "r-gpu-b", worker.clone(), None),
            (0, "r-gpu-a", worker, None),
            (0, "r-x7k", json!({}), None),
        ],
    );
    assert_eq!(found[..3], ["0 ray-head", "2 gpu", "1 gpu"]);
    assert_eq!(found[3], "3 ray-submitter");
}

#[test]
fn pods_without_an_index_are_numbered_through_the_clusters() {
    let template = "{apiVersion: apps/v1, kind: Deployment, spec: {replicas: 3,
        template: {spec: {containers: [{}]}}}}";
    let found = ranked(
        template,
        &[
            (1, "web-a", json!({}), None),
            (0, "web-c", json!({}), None),
            (0, "web-b", json!({}), None),
        ],
    );
    assert_eq!(found, ["2 main", "1 main", "0 main"]);
    // A split batch Job without indexes: in each part from its offset on.
    let split = ranked(
        "{apiVersion: batch/v1, kind: Job, spec: {parallelism: 3, template: {spec: {containers: [{}]}}}}",
        &[
            (0, "j-a", json!({}), Some(0)),
            (1, "j-c", json!({}), Some(1)),
            (1, "j-b", json!({}), Some(1)),
        ],
    );
    assert_eq!(split, ["0 main", "2 main", "1 main"]);
    // Without a template all that is known is the pod itself.
    let unknown = ranked("{}", &[(0, "p", json!({}), None)]);
    assert_eq!(unknown, ["0 main"]);
}
