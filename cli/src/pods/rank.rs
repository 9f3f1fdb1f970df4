//! The rank and the task of a job's pods: the numbers that their programs see. Pure.
//!
//! ```text
//! pod ──► task and index in it (labels of its operator, its variables)
//! template ──► tasks in their order, with their pods ──► rank = pods before + index
//! ```
//!
//! A pod of a split job has the rank of its first pod in its variables (`MUSTER_RANK_OFFSET`), which the controller
//! counted when it admitted the job. Of other jobs ranks count through the tasks in the template's order, as
//! `workload`'s parts do, and as training-operator does. Pods without an index (a Deployment, a batch Job without
//! completion indexes, a Ray worker before KubeRay 1.6) are numbered by age.

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use serde_json::Value;
use std::collections::BTreeMap;

/// The rank of the first pod of a task in a part (`workload`'s parts).
const RANK_OFFSET: &str = "MUSTER_RANK_OFFSET";
const COMPLETION_INDEX: &str = "batch.kubernetes.io/job-completion-index";
const JOBSET_TASK: &str = "jobset.sigs.k8s.io/replicatedjob-name";
const JOBSET_INDEX: &str = "jobset.sigs.k8s.io/job-index";
const GROUP_INDEX: &str = "leaderworkerset.sigs.k8s.io/group-index";
const WORKER_INDEX: &str = "leaderworkerset.sigs.k8s.io/worker-index";
const GROUP_SIZE: &str = "leaderworkerset.sigs.k8s.io/size";
const RAY_NODE: &str = "ray.io/node-type";
const RAY_GROUP: &str = "ray.io/group";
const RAY_INDEX: &str = "ray.io/worker-group-replica-index";
const REPLICA_TYPE: &str = "training.kubeflow.org/replica-type";
const MPI_ROLE: &str = "training.kubeflow.org/job-role";
const REPLICA_INDEX: &str = "training.kubeflow.org/replica-index";
const VOLCANO_TASK: &str = "volcano.sh/task-spec";
const VOLCANO_INDEX: &str = "volcano.sh/task-index";
const STATEFUL_INDEX: &str = "apps.kubernetes.io/pod-index";

/// The names of tasks that a pod does not say itself, as `workload` calls them.
const MAIN: &str = "main";
const RAY_HEAD: &str = "ray-head";
const RAY_SUBMITTER: &str = "ray-submitter";

/// A task of a template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TaskRanks {
    name: String,
    /// Its ranks.
    ranks: u64,
    /// The ranks of each Job of a replicated job of a JobSet; else all.
    each: u64,
}

/// Returns the tasks of a template in their order; none if it cannot be read.
pub(super) fn tasks(template: &Value) -> Vec<TaskRanks> {
    if let Some(jobs) = template
        .pointer("/spec/replicatedJobs")
        .and_then(Value::as_array)
    {
        return jobs.iter().map(replicated).collect();
    }
    let spec = workload::read_spec(template).ok();
    let roles = spec.into_iter().flat_map(|spec| spec.roles);
    let tasks = roles.map(|role| TaskRanks {
        name: role.name,
        ranks: role.count.into(),
        each: role.count.into(),
    });
    tasks.collect()
}

fn replicated(job: &Value) -> TaskRanks {
    let number = |path| job.pointer(path).and_then(Value::as_u64);
    let each = number("/template/spec/completions")
        .or_else(|| number("/template/spec/parallelism"))
        .unwrap_or(1);
    TaskRanks {
        name: job["name"].as_str().unwrap_or_default().to_owned(),
        ranks: each.saturating_mul(number("/replicas").unwrap_or(1)),
        each,
    }
}

/// The rank and the task of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PodRank {
    pub(super) rank: u64,
    pub(super) task: String,
}

/// Where a pod is in its job, as far as the pod says.
struct PodSpot {
    task: String,
    index: Option<u64>,
    /// True if the index counts through the job, not through the task.
    of_job: bool,
}

impl PodSpot {
    fn in_task(task: &str, index: Option<u64>) -> Self {
        Self {
            task: task.to_owned(),
            index,
            of_job: false,
        }
    }
}

/// Returns the rank and the task of each of `pods`, which come with the place of their cluster in the job. A pod and
/// the one that replaces it have the same rank if they have the same index.
pub(super) fn ranks(pods: &[(usize, &Pod)], tasks: &[TaskRanks]) -> Vec<PodRank> {
    let spots: Vec<PodSpot> = pods.iter().map(|(_, pod)| spot(pod, tasks)).collect();
    let positions = positions(pods, &spots);
    let one = |((_, pod), (spot, position)): (&(usize, &Pod), (&PodSpot, u64))| {
        let index = spot.index.unwrap_or(position);
        let before = match offset(pod) {
            Some(offset) => offset,
            None if spot.of_job => 0,
            None => before(&spot.task, tasks),
        };
        PodRank {
            rank: before.saturating_add(index),
            task: spot.task.clone(),
        }
    };
    pods.iter()
        .zip(spots.iter().zip(positions))
        .map(one)
        .collect()
}

/// Returns the ranks before the first one of a task. A task that the template does not have comes last.
fn before(task: &str, tasks: &[TaskRanks]) -> u64 {
    let before = tasks.iter().take_while(|other| other.name != task);
    before.map(|task| task.ranks).sum()
}

/// Returns the position of each pod among those of its task without an index: by cluster, age and name. Where the
/// pods say the rank of their first one, they are counted in their cluster.
fn positions(pods: &[(usize, &Pod)], spots: &[PodSpot]) -> Vec<u64> {
    let mut order: Vec<usize> = (0..pods.len()).collect();
    order.sort_by_key(|at| {
        let (cluster, pod) = pods[*at];
        let created = pod.creation_timestamp().map(|time| time.0);
        (cluster, created, pod.name_any())
    });
    let mut next = BTreeMap::<(&str, Option<usize>), u64>::new();
    let mut positions = vec![0; pods.len()];
    for at in order {
        let (cluster, pod) = pods[at];
        if spots[at].index.is_none() {
            let own = offset(pod).map(|_| cluster);
            let next = next.entry((&spots[at].task, own)).or_default();
            positions[at] = *next;
            *next += 1;
        }
    }
    positions
}

/// Returns the rank of the first pod of its task in its cluster, if the pod is of a split job.
fn offset(pod: &Pod) -> Option<u64> {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let mut variables = containers.flat_map(|container| container.env.iter().flatten());
    let variable = variables.find(|variable| variable.name == RANK_OFFSET)?;
    variable.value.as_ref()?.parse().ok()
}

fn spot(pod: &Pod, tasks: &[TaskRanks]) -> PodSpot {
    let text = |key: &str| {
        let label = pod.labels().get(key);
        label
            .or_else(|| pod.annotations().get(key))
            .map(String::as_str)
    };
    let number = |key: &str| text(key)?.parse::<u64>().ok();
    if let Some(task) = text(JOBSET_TASK) {
        return PodSpot::in_task(
            task,
            jobset_index(task, number(JOBSET_INDEX), number(COMPLETION_INDEX), tasks),
        );
    }
    if let Some(worker) = number(WORKER_INDEX) {
        let size = number(GROUP_SIZE).unwrap_or(1);
        let group = number(GROUP_INDEX);
        return PodSpot {
            task: if worker == 0 { "leader" } else { "worker" }.to_owned(),
            index: group.map(|group| group.saturating_mul(size).saturating_add(worker)),
            of_job: true,
        };
    }
    match text(RAY_NODE) {
        Some("head") => return PodSpot::in_task(RAY_HEAD, Some(0)),
        Some(_) => return PodSpot::in_task(text(RAY_GROUP).unwrap_or("worker"), number(RAY_INDEX)),
        None => {}
    }
    if let Some(task) = text(REPLICA_TYPE).or_else(|| text(MPI_ROLE)) {
        // The launcher of an MPIJob has no index: there is one.
        let index = number(REPLICA_INDEX).or((task == "launcher").then_some(0));
        return PodSpot::in_task(&task.to_lowercase(), index);
    }
    if let Some(task) = text(VOLCANO_TASK) {
        return PodSpot::in_task(task, number(VOLCANO_INDEX).or_else(|| last_number(pod)));
    }
    if tasks.iter().any(|task| task.name == RAY_SUBMITTER) {
        return PodSpot::in_task(RAY_SUBMITTER, None);
    }
    PodSpot::in_task(
        MAIN,
        number(COMPLETION_INDEX).or_else(|| number(STATEFUL_INDEX)),
    )
}

/// Returns the index of a pod within its replicated job.
fn jobset_index(
    task: &str,
    job: Option<u64>,
    pod: Option<u64>,
    tasks: &[TaskRanks],
) -> Option<u64> {
    let known = tasks.iter().find(|known| known.name == task);
    let each = known.map_or(1, |task| task.each);
    let pod = pod.or((each == 1).then_some(0))?;
    Some(job?.saturating_mul(each).saturating_add(pod))
}

/// Returns the number at the end of a pod's name.
fn last_number(pod: &Pod) -> Option<u64> {
    pod.metadata.name.as_ref()?.rsplit_once('-')?.1.parse().ok()
}

#[cfg(test)]
mod tests;
