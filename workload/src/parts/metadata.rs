//! Writes labels and annotations on the pods of a part, and on other objects inside a template.

use serde_json::{Map, Value, json};

/// The part of a pod's metadata.
#[derive(Debug, Clone, Copy)]
pub(crate) enum MetadataField {
    Labels,
    Annotations,
}

impl MetadataField {
    fn field(self) -> &'static str {
        match self {
            Self::Labels => "labels",
            Self::Annotations => "annotations",
        }
    }
}

/// Sets `key` on the pods of a template. A value that is no object does not change: the schemas of many
/// kinds accept it, and the member's operator reports it.
pub(crate) fn write(pods: &mut Map<String, Value>, on: MetadataField, key: &str, value: &str) {
    let written = object(pods, "metadata").and_then(|metadata| object(metadata, on.field()));
    if let Some(written) = written {
        written.insert(key.to_owned(), json!(value));
    }
}

/// Returns the object in a field, which is created if it is absent.
pub(crate) fn object<'a>(
    parent: &'a mut Map<String, Value>,
    field: &str,
) -> Option<&'a mut Map<String, Value>> {
    let value = parent.entry(field).or_insert(Value::Null);
    if value.is_null() {
        *value = json!({});
    }
    value.as_object_mut()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_is_added_to_objects_and_other_values_stay() {
        for (pods, want) in [
            (json!({}), json!({"metadata": {"labels": {"a/b": "c"}}})),
            (
                json!({"metadata": null}),
                json!({"metadata": {"labels": {"a/b": "c"}}}),
            ),
            (
                json!({"metadata": {"labels": null, "name": "x"}}),
                json!({"metadata": {"labels": {"a/b": "c"}, "name": "x"}}),
            ),
            (
                json!({"metadata": {"labels": {"a/b": "other", "d": "e"}}}),
                json!({"metadata": {"labels": {"a/b": "c", "d": "e"}}}),
            ),
            (json!({"metadata": "x"}), json!({"metadata": "x"})),
            (
                json!({"metadata": {"labels": ["x"]}}),
                json!({"metadata": {"labels": ["x"]}}),
            ),
        ] {
            let mut written = pods.as_object().cloned().unwrap_or_default();
            write(&mut written, MetadataField::Labels, "a/b", "c");
            assert_eq!(Value::Object(written), want, "{pods}");
        }
    }
}
