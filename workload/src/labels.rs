//! The labels by which users steer a job that waits, with a plain `kubectl label`: `muster.io/hold` and
//! `muster.io/priority-class`. They apply to every kind, and change neither its pods nor its size.

use crate::error::SpecError;
use crate::field::Field;
use serde_json::Value;

/// Label: `true` keeps the job from being admitted.
pub const HOLD_LABEL: &str = "muster.io/hold";
/// Label: the PriorityClass of the job in its queue, in place of the one that its template names.
pub const PRIORITY_CLASS_LABEL: &str = "muster.io/priority-class";

/// Returns true if the label of `template` puts the job on hold.
///
/// # Errors
/// Returns an error if the label is neither true nor false. Such a job must not be admitted either: its user
/// may have meant to hold it.
pub fn is_on_hold(template: &Value) -> Result<bool, SpecError> {
    let label = labels(template)?.entry(HOLD_LABEL)?;
    match label.text()? {
        // An empty label is as likely meant to hold the job as not to.
        Some("") => Err(label.invalid("true or false")),
        _ => Ok(label.truth()?.unwrap_or(false)),
    }
}

/// Returns the PriorityClass that the label of `template` names, if any.
#[must_use]
pub fn labelled_class(template: &Value) -> Option<String> {
    let label = labels(template).and_then(|labels| labels.entry(PRIORITY_CLASS_LABEL));
    let name = label.ok()?.name().ok()??;
    Some(name.to_owned())
}

fn labels(template: &Value) -> Result<Field<'_>, SpecError> {
    Field::root(template).get("metadata.labels")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    fn labelled(key: &str, value: Value) -> Value {
        json!({"kind": "Anything", "metadata": {"labels": {key: value}}})
    }

    #[test]
    fn a_job_is_on_hold_by_its_label() {
        for (value, want) in [
            (json!("true"), true),
            (json!("1"), true),
            (json!("false"), false),
            (json!(null), false),
        ] {
            let template = labelled(HOLD_LABEL, value.clone());
            assert_eq!(is_on_hold(&template), Ok(want), "{value}");
        }
        assert_eq!(is_on_hold(&json!({})), Ok(false));
        for value in [json!("later"), json!("")] {
            let error = is_on_hold(&labelled(HOLD_LABEL, value.clone())).unwrap_err();
            let text = format!("metadata.labels[muster.io/hold] is {value}; needed: true or false");
            assert_eq!(error.to_string(), text);
        }
        assert!(is_on_hold(&json!({"metadata": 7})).is_err());
    }

    #[test]
    fn a_label_names_the_class() {
        let class = |value| labelled_class(&labelled(PRIORITY_CLASS_LABEL, value));
        assert_eq!(class(json!("urgent")).as_deref(), Some("urgent"));
        assert_eq!(class(json!("")), None);
        assert_eq!(class(json!(7)), None);
        assert_eq!(labelled_class(&json!({"metadata": 7})), None);
    }
}
