//! Parts that are resized while they run: of what was rendered when the gang was placed only
//! numbers of pods change.
//!
//! A member's Volcano lets nothing else of a Job change (pkg/webhooks/admission/jobs/validate,
//! `validateJobUpdate`, v1.14), and pods that are there have been told their places. So what a
//! new rendering says of replicas and minimums goes into the old one, and a template that was
//! edited meanwhile does not show through.

use super::Part;
use crate::kinds;
use serde_json::{Map, Value};

/// Where the tasks are.
const TASKS: &str = "/spec/tasks";
/// What of a task may change.
const NUMBERS: [&str; 2] = ["replicas", "minAvailable"];

/// Whether objects of this kind can be resized part by part while they run.
pub(crate) fn may_be_resized(template: &Value) -> bool {
    let text = |key| template.get(key).and_then(Value::as_str);
    let group = kinds::group(text("apiVersion").unwrap_or_default());
    (group, text("kind")) == ("batch.volcano.sh", Some("Job"))
}

/// `fresh`, with all that may not change as `placed` has it: the fields of the same cluster's
/// part as it was placed.
#[must_use]
pub fn resized(fresh: Part, placed: &[(String, Value)]) -> Part {
    let fields = fresh.fields.into_iter().map(|(path, value)| {
        let before = placed.iter().find(|(known, _)| *known == path);
        match before {
            Some((_, before)) if path == TASKS => (path, with_numbers(before, &value)),
            _ => (path, value),
        }
    });
    Part {
        fields: fields.collect(),
        ..fresh
    }
}

/// The tasks `before`, with the numbers of the tasks `after` that have their names.
fn with_numbers(before: &Value, after: &Value) -> Value {
    let list = |tasks: &Value| tasks.as_array().cloned().unwrap_or_default();
    let after = list(after);
    let mut tasks = list(before);
    for task in tasks.iter_mut().filter_map(Value::as_object_mut) {
        let same = |other: &&Value| other.get("name") == task.get("name");
        if let Some(numbers) = after.iter().find(same).and_then(Value::as_object) {
            take(task, numbers);
        }
    }
    Value::Array(tasks)
}

fn take(task: &mut Map<String, Value>, numbers: &Map<String, Value>) {
    for name in NUMBERS {
        match numbers.get(name) {
            Some(number) => task.insert(name.to_owned(), number.clone()),
            None => task.remove(name),
        };
    }
}
