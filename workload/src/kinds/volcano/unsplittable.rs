//! Fields of a Volcano Job that need the whole job in one cluster, and the task that may complete it from
//! one cluster.

use super::policies::{self, action, events, policies};
use super::task_name;
use crate::leading::is_one;
use serde_json::Value;

/// Volcano's plugins that pass the names of pods to each other, for a rendezvous inside one cluster
/// (pkg/controllers/job/plugins, v1.14).
const RENDEZVOUS_PLUGINS: [&str; 5] = ["hcclrank", "mpi", "pytorch", "ray", "tensorflow"];

/// Volcano's plugin that creates an SSH key for each Job object: the parts of a split job are objects of
/// their own, so that pods of one cluster could not log in to those of another.
const SSH_PLUGIN: &str = "ssh";

/// Why a completed task is not seen in one cluster.
const BY_TASK: &str = "CompleteJob by TaskCompleted would end the part of one cluster and not the others, unless it is of a single task of one pod";

/// Returns which field of a Volcano Job needs the whole job in one cluster.
pub(super) fn unsplittable(template: &Value) -> Option<String> {
    let spec = template.get("spec")?;
    let plugins = spec.get("plugins").and_then(Value::as_object);
    let named = |name: &&&str| plugins.is_some_and(|plugins| plugins.contains_key(**name));
    if let Some(plugin) = RENDEZVOUS_PLUGINS.iter().find(named) {
        return Some(format!(
            "spec.plugins.{plugin} gives its pods names that only one cluster resolves"
        ));
    }
    if named(&&SSH_PLUGIN) {
        return Some(format!(
            "spec.plugins.{SSH_PLUGIN} creates other keys in each cluster: pods could not log in to those of another"
        ));
    }
    if completes_by_task(spec) {
        return Some(format!("spec.policies: {BY_TASK}"));
    }
    if policies::is_ambiguous(template) {
        return Some(
            "its policies have each of RestartJob, TerminateJob and AbortJob: a part can show only two of them"
                .to_owned(),
        );
    }
    let tasks = spec.get("tasks").and_then(Value::as_array)?;
    let leads = leading_role(template);
    tasks.iter().enumerate().find_map(|(index, task)| {
        let of_one_cluster = |key: &str, why: &str| {
            let set = task.get(key).is_some_and(|value| !value.is_null());
            set.then(|| format!("spec.tasks[{index}].{key} {why}"))
        };
        let name = task_name(index, task.get("name").and_then(Value::as_str));
        if completes_by_task(task) && leads.as_ref() != Some(&name) {
            return Some(format!("spec.tasks[{index}].policies: {BY_TASK}"));
        }
        of_one_cluster("dependsOn", "waits for pods that may be in another cluster")
            .or_else(|| of_one_cluster("partitionPolicy", "counts partitions over all of its pods"))
    })
}

/// Returns the only task of a Volcano Job whose completion completes it.
pub(super) fn leading_role(template: &Value) -> Option<String> {
    let tasks = template.pointer("/spec/tasks")?.as_array()?;
    let completing = tasks.iter().enumerate();
    let mut completing = completing.filter(|(_, task)| completes_by_task(task));
    let (index, task) = completing.next().filter(|_| completing.next().is_none())?;
    let name = task.get("name").and_then(Value::as_str);
    leads(task).then(|| task_name(index, name))
}

/// Returns true if a policy of `object`, a Volcano Job's spec or a task, completes the whole job when all pods
/// of a task have succeeded. The operator of a member counts only those of its own cluster.
fn completes_by_task(object: &Value) -> bool {
    policies(object).any(by_task)
}

fn by_task(policy: &Value) -> bool {
    let of_task = |event: &str| matches!(event, "TaskCompleted" | "*");
    action(policy) == Some("CompleteJob") && events(policy).any(of_task)
}

/// Returns true if a task is one pod, and a policy completes its job by nothing but that pod's success.
fn leads(task: &Value) -> bool {
    let mut completing = policies(task).filter(|policy| by_task(policy));
    let by_its_end = completing.all(|policy| events(policy).all(|event| event == "TaskCompleted"));
    by_its_end && is_one(task.get("replicas").unwrap_or(&Value::Null), false)
}
