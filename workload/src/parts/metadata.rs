//! What is written on the pods of a part, besides what their containers receive, and on other
//! objects inside a template.

use serde_json::{Map, Value, json};

/// Which of a pod's metadata.
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

/// Writes `key` on the pods of a template. What is no object there stays as it is: schemas of many
/// kinds let it pass, and it is the member's operator that says so.
pub(crate) fn write(pods: &mut Map<String, Value>, on: MetadataField, key: &str, value: &str) {
    let written = object(pods, "metadata").and_then(|metadata| object(metadata, on.field()));
    if let Some(written) = written {
        written.insert(key.to_owned(), json!(value));
    }
}

/// The object in a field, which is made where there is nothing.
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
    fn it_is_added_to_what_is_there_and_what_is_no_object_stays() {
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
