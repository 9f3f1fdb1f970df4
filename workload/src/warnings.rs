//! Warnings about fields of a template that are valid and cause a later failure.

use crate::kinds;
use crate::pod_rules;
use crate::split;
use serde_json::Value;

/// Most characters of a component's name in a binding (work.karmada.io, `Component.name`).
const COMPONENT_NAME_CHARS: usize = 32;

/// Returns warnings for the owner of `template`, each with a field and its value.
#[must_use]
pub fn warnings(template: &Value) -> Vec<String> {
    let kind = kinds::of_template(template);
    let mut warnings = kind.map_or_else(Vec::new, |kind| kind.warnings(template));
    warnings.extend(split::refused(template));
    let uncounted = pod_rules::uncounted(template).into_iter();
    warnings.extend(uncounted.map(|term| {
        format!("{term}, which Muster does not count: the job is placed where its own pods fit, and goes to another cluster if it has not started by its start deadline")
    }));
    warnings
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
