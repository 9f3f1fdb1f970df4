//! The queue that a template names.

use crate::kinds;
use serde_json::{Map, Value, json};

/// The queue of jobs that name none, in namespaces that name none.
pub const DEFAULT_QUEUE: &str = "default";

const QUEUE: &str = "muster.io/queue";
const SCHEDULING_QUEUE: &str = "scheduling.volcano.sh/queue-name";
const VOLCANO_QUEUE: &str = "volcano.sh/queue-name";
/// The longest value of a label.
const LONGEST_LABEL: usize = 63;

/// Returns the queue that `template` itself names. The first that is set counts: the field of its kind
/// (Volcano Job `spec.queue`, Kubeflow `schedulingPolicy.queue`), label or annotation `muster.io/queue`,
/// annotation or label `scheduling.volcano.sh/queue-name`, label `volcano.sh/queue-name`, and last the
/// annotation on its pod template by which Volcano finds the queue of plain pods.
///
/// A Volcano Job's `default` does not count: Volcano's schema writes it into every Job.
#[must_use]
pub fn named_queue(template: &Value) -> Option<String> {
    let metadata = template.get("metadata");
    let label = |key| entry(metadata, "labels", key);
    let annotation = |key| entry(metadata, "annotations", key);
    own_field(template)
        .or_else(|| label(QUEUE))
        .or_else(|| annotation(QUEUE))
        .or_else(|| annotation(SCHEDULING_QUEUE))
        .or_else(|| label(SCHEDULING_QUEUE))
        .or_else(|| label(VOLCANO_QUEUE))
        .or_else(|| of_pods(template))
        .map(str::to_owned)
}

/// Returns the queue of `template`: the one it names, or its namespace's, or `default`.
#[must_use]
pub fn queue_of(template: &Value, namespace_default: Option<&str>) -> String {
    named_queue(template)
        .or_else(|| {
            namespace_default
                .filter(|name| !name.is_empty())
                .map(str::to_owned)
        })
        .unwrap_or_else(|| DEFAULT_QUEUE.to_owned())
}

/// Returns the JSON merge patch after which `template` names `queue`. It writes the label `muster.io/queue`
/// (the annotation, if the name is too long for a label), and the field of the kind if that names a queue.
#[must_use]
pub fn to_queue(template: &Value, queue: &str) -> Value {
    let mut patch = match queue.len() <= LONGEST_LABEL {
        true => json!({"metadata": {"labels": {QUEUE: queue}}}),
        false => json!({"metadata": {"annotations": {QUEUE: queue}}}),
    };
    let label = entry(template.get("metadata"), "labels", QUEUE);
    if label.is_some() && queue.len() > LONGEST_LABEL {
        patch["metadata"]["labels"] = json!({QUEUE: null});
    }
    if let (Some(path), Some(_)) = (field_path(template), own_field(template)) {
        let names = path.trim_start_matches('/').rsplit('/');
        let field = names.fold(json!(queue), |inner, name| {
            Value::Object(Map::from_iter([(name.to_owned(), inner)]))
        });
        if let (Some(patch), Value::Object(field)) = (patch.as_object_mut(), field) {
            patch.extend(field);
        }
    }
    patch
}

/// Returns the path of the field of its kind that names its queue.
fn field_path(template: &Value) -> Option<&'static str> {
    let api_version = text(template.get("apiVersion"))?;
    let kind = text(template.get("kind")).unwrap_or_default();
    kinds::of_group(api_version, kind)?.queue_field()
}

fn own_field(template: &Value) -> Option<&str> {
    text(template.pointer(field_path(template)?)).filter(|name| *name != DEFAULT_QUEUE)
}

fn of_pods(template: &Value) -> Option<&str> {
    kinds::of_template(template)?
        .pod_templates(template)
        .into_iter()
        .find_map(|pods| entry(pods.get("metadata"), "annotations", SCHEDULING_QUEUE))
}

fn entry<'a>(metadata: Option<&'a Value>, map: &str, key: &str) -> Option<&'a str> {
    text(metadata?.get(map)?.get(key))
}

/// Returns a string that is set and not empty.
fn text(value: Option<&Value>) -> Option<&str> {
    value?.as_str().filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests;
