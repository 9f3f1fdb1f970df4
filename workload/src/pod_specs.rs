//! Finds the pod specs of a template, each with the role of its pods.

use crate::kinds::{self, batch};
use serde_json::Value;

/// Returns the pod specs of a template, each with the role of its pods; none for an unknown kind.
pub(crate) fn of(template: &mut Value) -> Vec<(String, &mut Value)> {
    let kind = kinds::of_template(template);
    let spec = template.get_mut("spec");
    kind.zip(spec)
        .map_or_else(Vec::new, |(kind, spec)| kind.pod_specs(spec))
}

/// Returns the one pod spec of a kind with one role.
pub(crate) fn only(spec: Option<&mut Value>) -> Vec<(String, &mut Value)> {
    let only = spec.map(|spec| (batch::MAIN.to_owned(), spec));
    only.into_iter().collect()
}

/// Returns the pod specs at `path` in a list of groups. `role` derives the name of a role from a group's
/// index and its field `name`.
pub(crate) fn listed<'a>(
    groups: Option<&'a mut Value>,
    name: &str,
    path: &str,
    role: impl Fn(usize, Option<&str>) -> String,
) -> Vec<(String, &'a mut Value)> {
    let groups = groups.and_then(Value::as_array_mut).into_iter().flatten();
    let pods = groups.enumerate().filter_map(|(index, group)| {
        let role = role(index, group.get(name).and_then(Value::as_str));
        Some((role, group.pointer_mut(path)?))
    });
    pods.collect()
}
