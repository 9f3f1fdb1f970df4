//! Parts that are resized while they run: of what was rendered when the gang was placed only
//! numbers of pods change.
//!
//! An operator may let nothing else change, and pods that are there have been told their places.
//! So what a new rendering says of replicas and minimums goes into the old one, and a template
//! that was edited meanwhile does not show through.

use super::RenderedPart;
use crate::error::SpecError;
use crate::field::Field;
use crate::kinds::{self, WorkloadKind};
use crate::size::Size;
use serde_json::{Map, Value};

/// How the parts of a kind are resized while they run.
#[derive(Clone, Copy)]
pub(crate) struct PartResizing {
    /// Path of the list with its groups of pods.
    pub(crate) groups: &'static str,
    /// What of a group may change.
    pub(crate) numbers: &'static [&'static str],
    /// Whether a template that asks to be elastic, and has this size, may run with fewer pods
    /// than it has.
    pub(crate) is_elastic: fn(&Field<'_>, &Size) -> Result<bool, SpecError>,
}

/// How parts of this template are resized; `None` where they cannot be.
pub(crate) fn resizing(template: &Value) -> Option<PartResizing> {
    kinds::of_template(template)?.part_resizing()
}

/// `fresh`, with all that may not change as `placed` has it: the fields of the same cluster's
/// part as it was placed.
#[must_use]
pub fn resized(fresh: RenderedPart, placed: &[(String, Value)]) -> RenderedPart {
    let fields = fresh.fields.into_iter().map(|(path, value)| {
        let before = placed.iter().find(|(known, _)| *known == path);
        let mut resizings = kinds::all().filter_map(WorkloadKind::part_resizing);
        let resizing = resizings.find(|resizing| resizing.groups == path);
        match before.zip(resizing) {
            Some(((_, before), resizing)) => {
                let value = with_numbers(before, &value, resizing.numbers);
                (path, value)
            }
            None => (path, value),
        }
    });
    RenderedPart {
        fields: fields.collect(),
        ..fresh
    }
}

/// The groups `before`, with the `numbers` of the groups `after` that have their names.
fn with_numbers(before: &Value, after: &Value, numbers: &[&str]) -> Value {
    let list = |groups: &Value| groups.as_array().cloned().unwrap_or_default();
    let after = list(after);
    let mut groups = list(before);
    for group in groups.iter_mut().filter_map(Value::as_object_mut) {
        let same = |other: &&Value| other.get("name") == group.get("name");
        if let Some(after) = after.iter().find(same).and_then(Value::as_object) {
            take(group, after, numbers);
        }
    }
    Value::Array(groups)
}

fn take(group: &mut Map<String, Value>, after: &Map<String, Value>, numbers: &[&str]) {
    for name in numbers {
        match after.get(*name) {
            Some(number) => group.insert((*name).to_owned(), number.clone()),
            None => group.remove(*name),
        };
    }
}
