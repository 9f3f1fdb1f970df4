//! Fields of a Volcano Job that need the whole job in one cluster, and the task that may complete it from
//! one cluster.

use super::task_name;
use crate::leading::is_one;
use serde_json::Value;

/// Volcano's plugins that pass the names of pods to each other, for a rendezvous inside one cluster
/// (pkg/controllers/job/plugins, v1.14).
const RENDEZVOUS_PLUGINS: [&str; 5] = ["hcclrank", "mpi", "pytorch", "ray", "tensorflow"];

/// Volcano's plugin that creates an SSH key for each Job object: the parts of a split job are objects of
/// their own, so that pods of one cluster could not log in to those of another.
const SSH_PLUGIN: &str = "ssh";

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
    if completes(spec) {
        return Some(
            "spec.policies: CompleteJob would end the part of one cluster and not the others"
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
        if completes(task) && leads.as_ref() != Some(&name) {
            return Some(format!(
                "spec.tasks[{index}].policies: CompleteJob would end the part of one cluster and not the others, unless it is by TaskCompleted of a single task of one pod"
            ));
        }
        of_one_cluster("dependsOn", "waits for pods that may be in another cluster")
            .or_else(|| of_one_cluster("partitionPolicy", "counts partitions over all of its pods"))
    })
}

/// Returns the only task of a Volcano Job that completes it.
pub(super) fn leading_role(template: &Value) -> Option<String> {
    let tasks = template.pointer("/spec/tasks")?.as_array()?;
    let mut completing = tasks.iter().enumerate().filter(|(_, task)| completes(task));
    let (index, task) = completing.next().filter(|_| completing.next().is_none())?;
    let name = task.get("name").and_then(Value::as_str);
    leads(task).then(|| task_name(index, name))
}

/// Returns true if a policy of `object`, a Volcano Job's spec or a task, completes the whole job.
fn completes(object: &Value) -> bool {
    policies(object).any(|policy| action(policy) == Some("CompleteJob"))
}

/// Returns true if a task completes its job only by the completion of its one pod. Other events that
/// complete a job (a failed pod, an exit code) do not say how the task ended.
fn leads(task: &Value) -> bool {
    let mut completing = policies(task).filter(|policy| action(policy) == Some("CompleteJob"));
    let by_its_end = completing.all(|policy| {
        let one = policy.get("event").filter(|event| !event.is_null());
        let many = policy.get("events").and_then(Value::as_array);
        let mut events = one.into_iter().chain(many.into_iter().flatten()).peekable();
        let names_one = events.peek().is_some();
        names_one && events.all(|event| event == "TaskCompleted")
    });
    by_its_end && is_one(task.get("replicas").unwrap_or(&Value::Null), false)
}

fn policies(object: &Value) -> impl Iterator<Item = &Value> {
    let policies = object.get("policies").and_then(Value::as_array);
    policies.into_iter().flatten()
}

fn action(policy: &Value) -> Option<&str> {
    policy.get("action").and_then(Value::as_str)
}
