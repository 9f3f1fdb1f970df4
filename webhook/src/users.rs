//! Records in a template, when it is submitted, its user (`muster.io/user`), so that writing another name
//! does not bypass limits for users, and the queue that this user may use (`muster.io/permitted-queue`,
//! [`crate::permits`]). Later updates cannot change either.
//!
//! It changes nothing else and refuses nothing; an admission policy (`muster-claims`) refuses another user and a change
//! of it whether or not the webhook is there. While the webhook is away nothing is recorded: a job
//! without the first annotation counts as its namespace's, and one without the second needs a namespace
//! that may use its queue.

use crate::review::ReviewRequest;
use crds::names::{PERMITTED_QUEUE_ANNOTATION, USER_ANNOTATION, is_system_namespace};
use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, PatchOperation, RemoveOperation};
use serde_json::{Map, Value, json};

/// Returns true if `request` submits or changes a template.
#[must_use]
pub fn concerns(request: &ReviewRequest<Value>) -> bool {
    let part = request.sub_resource.as_deref().unwrap_or_default();
    let changes = matches!(request.operation.as_str(), "CREATE" | "UPDATE");
    changes && part.is_empty() && !is_system_namespace(&request.namespace)
}

/// Returns the patch for the template in `request`; `permitted` is the queue that its user may use.
#[must_use]
pub fn stamp(request: &ReviewRequest<Value>, permitted: Option<&str>) -> Vec<PatchOperation> {
    let Some(new) = request.object.as_ref().filter(|_| concerns(request)) else {
        return Vec::new();
    };
    let submitter = request.user_info.username.as_str();
    let user = match (request.operation.as_str(), &request.old_object) {
        ("CREATE", _) if !submitter.is_empty() => Some(submitter),
        ("UPDATE", Some(old)) => annotation(old, USER_ANNOTATION),
        // The old template had no user: then nothing is known to be wrong.
        _ => annotation(new, USER_ANNOTATION),
    };
    annotate(
        new,
        [
            (USER_ANNOTATION, user),
            (PERMITTED_QUEUE_ANNOTATION, permitted),
        ],
    )
}

fn annotation<'a>(template: &'a Value, key: &str) -> Option<&'a str> {
    template["metadata"]["annotations"][key].as_str()
}

/// Sets these annotations of a template, and removes those that it should not have.
fn annotate<const N: usize>(
    template: &Value,
    desired: [(&'static str, Option<&str>); N],
) -> Vec<PatchOperation> {
    let has = template["metadata"]["annotations"].is_object();
    let wrong = desired
        .into_iter()
        .filter(|(key, value)| annotation(template, key) != *value);
    if !has {
        let all: Map<String, Value> = wrong
            .filter_map(|(key, value)| Some((key.to_owned(), json!(value?))))
            .collect();
        return match all.is_empty() {
            true => Vec::new(),
            false => vec![PatchOperation::Add(AddOperation {
                path: PointerBuf::from_tokens(["metadata", "annotations"]),
                value: Value::Object(all),
            })],
        };
    }
    wrong
        .map(|(key, value)| {
            let path = PointerBuf::from_tokens(["metadata", "annotations", key]);
            match value {
                Some(value) => PatchOperation::Add(AddOperation {
                    path,
                    value: json!(value),
                }),
                None => PatchOperation::Remove(RemoveOperation { path }),
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn annotated(annotations: &Value) -> Value {
        json!({"metadata": {"name": "train", "annotations": annotations}})
    }

    /// Returns the annotations that are stored.
    fn stored(operation: &str, old: Option<Value>, new: Value) -> Value {
        let mut object = annotated(&new);
        let request = serde_json::from_value(json!({
            "uid": "u", "operation": operation, "namespace": "team-a", "name": "train",
            "kind": {"group": "batch", "version": "v1", "kind": "Job"},
            "userInfo": {"username": "alice"},
            "object": object, "oldObject": old.map(|old| annotated(&old)),
        }))
        .unwrap();
        json_patch::patch(&mut object, &stamp(&request, None)).unwrap();
        object["metadata"]["annotations"].take()
    }

    #[test]
    fn the_user_is_recorded_whatever_the_template_says() {
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
    fn a_later_update_cannot_change_the_user() {
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
        let request = |change: Value| -> ReviewRequest<Value> {
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
            assert!(stamp(&request(change.clone()), None).is_empty(), "{change}");
        }
        assert_eq!(stamp(&request(json!({})), None).len(), 1);
    }

    #[test]
    fn only_the_queue_that_the_user_may_use_is_recorded() {
        let request = |annotations: Value| -> ReviewRequest<Value> {
            serde_json::from_value(json!({
                "uid": "u", "operation": "CREATE", "namespace": "team-a", "name": "train",
                "kind": {"group": "batch", "version": "v1", "kind": "Job"},
                "userInfo": {"username": "alice"}, "object": annotated(&annotations),
            }))
            .unwrap()
        };
        let forged = || json!({"muster.io/permitted-queue": "gold", "a": "b"});
        for (annotations, permitted, want) in [
            (Value::Null, None, json!({})),
            (
                Value::Null,
                Some("q"),
                json!({"muster.io/permitted-queue": "q"}),
            ),
            (forged(), None, json!({"a": "b"})),
            (
                forged(),
                Some("q"),
                json!({"a": "b", "muster.io/permitted-queue": "q"}),
            ),
        ] {
            let request = request(annotations);
            let mut object = request.object.clone().unwrap();
            json_patch::patch(&mut object, &stamp(&request, permitted)).unwrap();
            let mut stored = object["metadata"]["annotations"].take();
            assert_eq!(
                stored.as_object_mut().unwrap().remove("muster.io/user"),
                Some(json!("alice"))
            );
            assert_eq!(stored, want);
        }
    }
}
