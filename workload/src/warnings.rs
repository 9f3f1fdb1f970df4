//! Warnings about fields of a template that are valid and cause a later failure.

use crate::kinds;
use crate::pod_rules;
use crate::split;
use serde_json::Value;

/// Most characters of a component's name in a binding (work.karmada.io, `Component.name`).
const COMPONENT_NAME_CHARS: usize = 32;

/// The controllers that run jobs of their kind by themselves, as `managedBy` names them.
const OWN_CONTROLLERS: [&str; 5] = [
    "kubernetes.io/job-controller",
    "jobset.sigs.k8s.io/jobset-controller",
    "kubeflow.org/training-operator",
    "kubeflow.org/mpi-operator",
    "ray.io/kuberay-operator",
];

/// Returns warnings for the owner of `template`, each with a field and its value.
#[must_use]
pub fn warnings(template: &Value) -> Vec<String> {
    let kind = kinds::of_template(template);
    let mut warnings = kind.map_or_else(Vec::new, |kind| kind.warnings(template));
    warnings.extend(split::refused(template));
    warnings.extend(managed_by(template));
    let uncounted = pod_rules::uncounted(template).into_iter();
    warnings.extend(uncounted.map(|term| {
        format!("{term}, which Muster does not count: the job is placed where its own pods fit, and goes to another cluster if it has not started by its start deadline")
    }));
    warnings
}

/// Returns a warning about a job that no controller of a member may run. These fields are those of the kinds
/// (KEP-4368 for Jobs); Kueue's MultiKueue sets them.
fn managed_by(template: &Value) -> Option<String> {
    ["/spec/managedBy", "/spec/runPolicy/managedBy"].into_iter().find_map(|path| {
        let controller = template.pointer(path)?.as_str()?;
        let field = path.trim_start_matches('/').replace('/', ".");
        (!OWN_CONTROLLERS.contains(&controller)).then(|| {
            format!(
                "{field}: {controller:?}: the operator of the kind leaves such a job alone, so it gets no pods in a member without a controller of this name; leave the field out"
            )
        })
    })
}

/// Returns warnings about names of groups of pods that are too long for a component in a binding.
pub(crate) fn long_names(template: &Value, list: &str, key: &str) -> Vec<String> {
    let mut warnings = Vec::new();
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
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_job_that_no_operator_runs_is_named() {
        let job = |managed_by: &str| json!({"apiVersion": "batch/v1", "kind": "Job", "spec": {"managedBy": managed_by}});
        assert_eq!(managed_by(&job("kubernetes.io/job-controller")), None);
        let told = managed_by(&job("example.com/x")).unwrap_or_default();
        assert!(
            told.starts_with("spec.managedBy: \"example.com/x\": "),
            "{told}"
        );
        let train = json!({"spec": {"runPolicy": {"managedBy": "kueue.x-k8s.io/multikueue"}}});
        let told = managed_by(&train).unwrap_or_default();
        assert!(told.starts_with("spec.runPolicy.managedBy: "), "{told}");
    }
}
