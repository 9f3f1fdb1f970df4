//! Warnings about what is not queued although it looks as if it should be: labels of namespaces that Muster does not
//! know, jobs that name a queue in a namespace that is not managed, and objects of kinds that Muster does not queue.
//!
//! It refuses nothing.

use crate::outlook::short;
use crate::queues::QueueIndex;
use crate::review::ReviewRequest;
use crate::users;
use crds::names::{DEFAULT_QUEUE_KEY, GROUP, MANAGED_LABEL, is_system_namespace};
use serde_json::{Map, Value};

/// The labels of a namespace that Muster reads.
const READ: [&str; 2] = [MANAGED_LABEL, DEFAULT_QUEUE_KEY];

/// Returns the warnings about the labels that `request` gives to a namespace.
#[must_use]
pub fn of_namespace(request: &ReviewRequest<Value>) -> Vec<String> {
    let Some(new) = &request.object else {
        return Vec::new();
    };
    let name = &request.name;
    if is_system_namespace(name) {
        return Vec::new();
    }
    let before = request.old_object.as_ref().and_then(labels);
    let is_new = |key: &str, value: &Value| before.and_then(|all| all.get(key)) != Some(value);
    let new = labels(new).into_iter().flatten();
    new.filter(|(key, value)| is_new(key, value))
        .filter_map(|(key, value)| wrong_label(name, key, value.as_str().unwrap_or_default()))
        .map(short)
        .collect()
}

fn labels(object: &Value) -> Option<&Map<String, Value>> {
    object["metadata"]["labels"].as_object()
}

/// Returns what is wrong with a label of a namespace, if it is meant for Muster and has no effect.
fn wrong_label(namespace: &str, key: &str, value: &str) -> Option<String> {
    let manage = format!("kubectl label namespace {namespace} {MANAGED_LABEL}=true --overwrite");
    if key == MANAGED_LABEL {
        return (!matches!(value, "true" | "false")).then(|| {
            format!(
                "label {key} is {value:?}, and only \"true\" has jobs queued: Muster does not manage namespace \
                 {namespace}; run {manage}"
            )
        });
    }
    let (domain, word) = key.split_once('/').unwrap_or(("", key));
    let is_ours = domain == GROUP && !READ.contains(&key);
    let resembles = domain.contains("muster") && domain != GROUP && word.starts_with("managed");
    (is_ours || resembles).then(|| {
        format!(
            "label {key} is none that Muster reads of a namespace; those are {}; to have its jobs queued, run {manage}",
            READ.join(" and ")
        )
    })
}

/// Returns the warnings about an object that names a queue, or is in a namespace whose label has no effect.
#[must_use]
pub fn of_object(request: &ReviewRequest<Value>, queues: &QueueIndex) -> Vec<String> {
    let Some(new) = request.object.as_ref().filter(|_| users::concerns(request)) else {
        return Vec::new();
    };
    let (namespace, kind) = (&request.namespace, &request.kind.kind);
    let Some(labels) = queues.labels_of(namespace) else {
        return Vec::new();
    };
    let is_job = workload::is_known_kind(text(new, "apiVersion"), kind);
    let advice = workload::unqueued_advice(new);
    let object = format!("{kind} {}", name_of(request, new));
    let warning = match (labels.get(MANAGED_LABEL).map(String::as_str), advice) {
        (Some("true"), advice) => advice.map(|advice| format!("{object}: {advice}")),
        (_, None) if !is_job => None,
        (label, _) => {
            let label = label.map_or_else(String::new, |value| {
                format!(" (its label {MANAGED_LABEL} is {value:?})")
            });
            Some(format!(
                "namespace {namespace} is not managed{label}: {object} is queued only if its policy names the \
                 scheduler muster; else run kubectl label namespace {namespace} {MANAGED_LABEL}=true --overwrite"
            ))
        }
    };
    warning.map(short).into_iter().collect()
}

fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object[field].as_str().unwrap_or_default()
}

fn name_of<'a>(request: &'a ReviewRequest<Value>, object: &'a Value) -> &'a str {
    match request.name.as_str() {
        "" => text(&object["metadata"], "generateName"),
        name => name,
    }
}

#[cfg(test)]
mod tests;
