//! Who submitted a template: written into its annotation `muster.io/user` when it is created, and
//! kept as it was ever after, so that limits per user cannot be passed by writing another name.
//!
//! It changes nothing else and refuses nothing. While the webhook is away nothing is written, and
//! a job without the annotation counts as its namespace's.

use crate::review::Request;
use crds::names::{USER_ANNOTATION, is_system_namespace};
use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, PatchOperation, RemoveOperation};
use serde::Deserialize;
use serde_json::json;
use std::collections::BTreeMap;

/// What is looked at of a template.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Template {
    metadata: Metadata,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Metadata {
    annotations: Option<BTreeMap<String, String>>,
}

impl Template {
    fn user(&self) -> Option<&str> {
        let annotations = self.metadata.annotations.as_ref()?;
        annotations.get(USER_ANNOTATION).map(String::as_str)
    }
}

/// What has to be changed of the template that `request` asks to store.
#[must_use]
pub fn stamp(request: &Request<Template>) -> Vec<PatchOperation> {
    let part = request.sub_resource.as_deref().unwrap_or_default();
    if !part.is_empty() || is_system_namespace(&request.namespace) {
        return Vec::new();
    }
    let Some(new) = &request.object else {
        return Vec::new();
    };
    let submitter = request.user_info.username.as_str();
    let right = match (request.operation.as_str(), &request.old_object) {
        ("CREATE", _) if !submitter.is_empty() => Some(submitter),
        ("UPDATE", Some(old)) => old.user(),
        _ => return Vec::new(),
    };
    if new.user() == right {
        return Vec::new();
    }
    let path = PointerBuf::from_tokens(["metadata", "annotations", USER_ANNOTATION]);
    let operation = match (right, &new.metadata.annotations) {
        (None, _) => PatchOperation::Remove(RemoveOperation { path }),
        (Some(user), Some(_)) => PatchOperation::Add(AddOperation {
            path,
            value: json!(user),
        }),
        (Some(user), None) => PatchOperation::Add(AddOperation {
            path: PointerBuf::from_tokens(["metadata", "annotations"]),
            value: json!({ USER_ANNOTATION: user }),
        }),
    };
    vec![operation]
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::Value;

    fn annotated(annotations: &Value) -> Value {
        json!({"metadata": {"name": "train", "annotations": annotations}})
    }

    /// The annotations of what is stored.
    fn stored(operation: &str, old: Option<Value>, new: Value) -> Value {
        let mut object = annotated(&new);
        let request = serde_json::from_value(json!({
            "uid": "u", "operation": operation, "namespace": "team-a", "name": "train",
            "kind": {"group": "batch", "version": "v1", "kind": "Job"},
            "userInfo": {"username": "alice"},
            "object": object, "oldObject": old.map(|old| annotated(&old)),
        }))
        .unwrap();
        json_patch::patch(&mut object, &stamp(&request)).unwrap();
        object["metadata"]["annotations"].take()
    }

    #[test]
    fn the_submitter_is_written_down_whatever_stands_there() {
        let alice = || json!({"muster.io/user": "alice"});
        assert_eq!(stored("CREATE", None, Value::Null), alice());
        assert_eq!(
            stored("CREATE", None, json!({"a": "b"})),
            json!({"a": "b", "muster.io/user": "alice"})
        );
        assert_eq!(
            stored("CREATE", None, json!({"muster.io/user": "bob"})),
            alice()
        );
    }

    #[test]
    fn nobody_changes_it_later() {
        let bob = || json!({"muster.io/user": "bob"});
        assert_eq!(stored("UPDATE", Some(bob()), bob()), bob());
        assert_eq!(
            stored("UPDATE", Some(bob()), json!({"muster.io/user": "alice"})),
            bob()
        );
        assert_eq!(stored("UPDATE", Some(bob()), Value::Null), bob());
        assert_eq!(
            stored(
                "UPDATE",
                Some(Value::Null),
                json!({"muster.io/user": "alice"})
            ),
            json!({})
        );
    }

    #[test]
    fn other_requests_are_left_alone() {
        let request = |change: Value| -> Request<Template> {
            let mut request = json!({
                "uid": "u", "operation": "CREATE", "namespace": "team-a", "name": "train",
                "kind": {"group": "batch", "version": "v1", "kind": "Job"},
                "userInfo": {"username": "alice"}, "object": annotated(&Value::Null),
            });
            request
                .as_object_mut()
                .unwrap()
                .extend(change.as_object().unwrap().clone());
            serde_json::from_value(request).unwrap()
        };
        for change in [
            json!({"namespace": "karmada-system"}),
            json!({"subResource": "status"}),
            json!({"operation": "DELETE", "object": null}),
            json!({"userInfo": {}}),
        ] {
            assert!(stamp(&request(change.clone())).is_empty(), "{change}");
        }
        assert_eq!(stamp(&request(json!({}))).len(), 1);
    }
}
