//! Fields of a Volcano Job that need the whole job in one cluster.

use super::{completing, policies};
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
    if spec.get("minSuccess").is_some_and(|least| !least.is_null()) {
        return Some("spec.minSuccess counts the pods of one cluster only".to_owned());
    }
    if let Some(why) = completing::unsplittable(template) {
        return Some(why);
    }
    if policies::is_ambiguous(template) {
        return Some(
            "its policies have each of RestartJob, TerminateJob and AbortJob: a part can show only two of them"
                .to_owned(),
        );
    }
    let tasks = spec.get("tasks").and_then(Value::as_array)?;
    tasks.iter().enumerate().find_map(|(index, task)| {
        let of_one_cluster = |key: &str, why: &str| {
            let set = task.get(key).is_some_and(|value| !value.is_null());
            set.then(|| format!("spec.tasks[{index}].{key} {why}"))
        };
        of_one_cluster("dependsOn", "waits for pods that may be in another cluster")
            .or_else(|| of_one_cluster("partitionPolicy", "counts partitions over all of its pods"))
    })
}
