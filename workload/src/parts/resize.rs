//! Parts that are resized while they run: only numbers of pods change in what was rendered at the
//! placement.
//!
//! An operator may accept no other change, and existing pods have received their places. So the replicas
//! and minimums of a new rendering go into the old one, and later edits of the template have no effect.

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
    /// The fields of a group that may change.
    pub(crate) numbers: &'static [&'static str],
    /// Returns true if a template that asks to be elastic, with this size, may run with fewer pods than it
    /// has.
    pub(crate) is_elastic: fn(&Field<'_>, &Size) -> Result<bool, SpecError>,
}

/// Returns how parts of this template are resized; `None` if they cannot be.
pub(crate) fn resizing(template: &Value) -> Option<PartResizing> {
    kinds::of_template(template)?.part_resizing()
}

/// Returns `fresh` with the sizes only; all other fields are those of `placed`, the same cluster's part as
/// it was placed. Sizes are numbers: of groups of pods, or fields of their own.
#[must_use]
pub fn resized(fresh: RenderedPart, placed: &[(String, Value)]) -> RenderedPart {
    let fields = fresh.fields.into_iter().filter_map(|(path, value)| {
        let before = placed.iter().find(|(known, _)| *known == path);
        let mut resizings = kinds::all().filter_map(WorkloadKind::part_resizing);
        let resizing = resizings.find(|resizing| resizing.groups == path);
        let value = match (before, resizing) {
            (Some((_, before)), Some(resizing)) => with_numbers(before, &value, resizing.numbers),
            (Some((_, before)), None) if !value.is_number() => before.clone(),
            (None, None) if !value.is_number() => return None,
            _ => value,
        };
        Some((path, value))
    });
    RenderedPart {
        fields: fields.collect(),
        ..fresh
    }
}

/// Returns the groups `before` with the `numbers` of the groups `after` of the same name.
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
