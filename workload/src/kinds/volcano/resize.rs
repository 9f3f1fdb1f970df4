//! Volcano Jobs with fewer pods than their templates specify: elastic ones, and those that are capped to
//! what was admitted.

use super::task_name;
use crate::annotations::{ELASTIC, MIN_REPLICAS};
use crate::cap_to_admitted::clip;
use crate::error::SpecError;
use crate::field::Field;
use crate::parts::{Fields, PartResizing};
use crate::size::Size;
use serde_json::Value;
use std::collections::BTreeMap;

/// The only fields of a running Job that a member's Volcano lets change
/// (pkg/webhooks/admission/jobs/validate, `validateJobUpdate`, v1.14).
pub(super) const RESIZING: PartResizing = PartResizing {
    groups: "/spec/tasks",
    numbers: &["replicas", "minAvailable"],
    is_elastic,
};

/// Returns true if it may run with fewer pods than it has; `spec.minAvailable` is its minimum.
fn is_elastic(template: &Field<'_>, size: &Size) -> Result<bool, SpecError> {
    let field = template.get("metadata.annotations")?.entry(MIN_REPLICAS)?;
    if field.is_set() {
        return Err(field.invalid("no value: this kind has its minimum in spec.minAvailable"));
    }
    let minimum = template.get("spec.minAvailable")?;
    let pods: u64 = size.roles.iter().map(|role| u64::from(role.count)).sum();
    if minimum.count()?.unwrap_or(0) == 0 {
        return Err(minimum.invalid(format!(
            "with how few of its {pods} pods it may run, since {ELASTIC} is true"
        )));
    }
    for task in template.get("spec.tasks")?.items()? {
        let partitions = task.get("partitionPolicy")?;
        if partitions.is_set() {
            return Err(partitions.invalid(format!(
                "nothing, since {ELASTIC} is true: all of its partitions have to be there"
            )));
        }
    }
    Ok(u64::from(size.min_available) < pods)
}

/// Returns the tasks with their admitted replicas; minimums never exceed these.
pub(super) fn cap_to_admitted(
    template: &Value,
    admitted: &BTreeMap<String, u32>,
) -> Option<Fields> {
    let mut total = 0_u64;
    let tasks: Vec<Value> = template
        .pointer("/spec/tasks")?
        .as_array()?
        .iter()
        .enumerate()
        .filter_map(|(index, task)| {
            let name = task_name(index, task.get("name").and_then(Value::as_str));
            let count = admitted.get(&name).copied().filter(|count| *count > 0)?;
            total += u64::from(count);
            let mut task = task.as_object()?.clone();
            task.insert("name".into(), name.into());
            task.insert("replicas".into(), count.into());
            clip(&mut task, "minAvailable", u64::from(count));
            Some(Value::Object(task))
        })
        .collect();
    let mut fields = vec![("/spec/tasks".to_owned(), Value::Array(tasks))];
    if let Some(minimum) = template
        .pointer("/spec/minAvailable")
        .and_then(Value::as_u64)
    {
        fields.push(("/spec/minAvailable".to_owned(), minimum.min(total).into()));
    }
    Some(fields)
}
