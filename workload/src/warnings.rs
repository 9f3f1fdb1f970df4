//! What is legal in a template and still goes wrong further on.

use crate::kinds;
use crate::kinds::ray;
use crate::kinds::volcano::COMPONENT_NAME_CHARS;
use crate::split;
use serde_json::Value;

/// Sentences for the owner of `template`, each naming field and value; none where all is well.
#[must_use]
pub fn warnings(template: &Value) -> Vec<String> {
    let text = |key| {
        template
            .get(key)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    let mut warnings = Vec::new();
    match (kinds::group(text("apiVersion")), text("kind")) {
        ("batch.volcano.sh", "Job") => long_names(template, "/spec/tasks", "name", &mut warnings),
        ("ray.io", "RayCluster") => long_names(
            template,
            "/spec/workerGroupSpecs",
            "groupName",
            &mut warnings,
        ),
        ("ray.io", "RayJob") => {
            long_names(
                template,
                "/spec/rayClusterSpec/workerGroupSpecs",
                "groupName",
                &mut warnings,
            );
            warnings.extend(ray::keeps_cluster(template).then(|| KEEPS_CLUSTER.to_owned()));
        }
        _ => {}
    }
    warnings.extend(split::refused(template));
    warnings
}

/// Names of groups of pods that do not fit the name of a component in a binding.
fn long_names(template: &Value, list: &str, key: &str, warnings: &mut Vec<String>) {
    let groups = template.pointer(list).and_then(Value::as_array);
    for (index, group) in groups.into_iter().flatten().enumerate() {
        let name = group.get(key).and_then(Value::as_str).unwrap_or_default();
        let length = name.chars().count();
        if length > COMPONENT_NAME_CHARS {
            let path = list.trim_start_matches('/').replace('/', ".");
            warnings.push(format!(
                "{path}[{index}].{key}: {name:?} has {length} characters; Karmada refuses the binding of a job with more than {COMPONENT_NAME_CHARS} where its gate MultiplePodTemplatesScheduling is on; use a shorter name"
            ));
        }
    }
}

/// A RayJob whose cluster outlives it holds its pods, and so its quota, until it is deleted.
const KEEPS_CLUSTER: &str = "spec.shutdownAfterJobFinishes: false keeps the cluster, and its quota, when the job has finished; set it to true to have both freed";
