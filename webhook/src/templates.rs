//! Validation of templates, where an early refusal saves the user time.
//!
//! - Growth: Karmada sends template edits straight to the members. An edit is refused if it raises the
//!   requests of the pods of an admitted job, with what to do instead. It is also refused if it raises
//!   their number, also by a `scale` request, and Karmada does not hold that number (Volcano Jobs,
//!   PyTorchJobs, ...) or holds it for ever (jobs in parts).
//! - Values that are certain to fail later, in managed namespaces: a quantity that cannot be parsed, an
//!   invalid name of a queue, a hold that is neither true nor false.
//!
//! It never calls the API server. The controller charges and pins what passes (a missed update, the webhook
//! being away).

use crate::released::{ReleasedIndex, ReleasedJob};
use crate::review::{Denial, ReviewAnswer, ReviewRequest, ReviewResource};
use crds::names::{binding_name, is_system_namespace};
use runtime::ObjectKey;
use serde_json::Value;
use workload::{Growth, SpecError, known_kinds};

/// The subresource that changes the number of replicas.
pub(crate) const SCALE: &str = "scale";

/// The registration that sent the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TemplateRegistration {
    /// For namespaces labelled `muster.io/managed=true`: checks values and growth.
    Managed,
    /// For all others: checks growth only.
    Elsewhere,
}

/// Decides whether `request` may create or change a template.
#[must_use]
pub fn review(
    scope: TemplateRegistration,
    request: &ReviewRequest<Value>,
    released: &ReleasedIndex,
) -> ReviewAnswer {
    let Some(new) = request.object.as_ref().filter(|_| concerns(request)) else {
        return ReviewAnswer::allow();
    };
    if request.sub_resource.as_deref() == Some(SCALE) {
        let raised = scale_of_released(request, new, released);
        return raised.map_or_else(ReviewAnswer::allow, forbidden);
    }
    // The end of a template must not depend on its values.
    if new
        .pointer("/metadata/deletionTimestamp")
        .is_some_and(|time| !time.is_null())
    {
        return ReviewAnswer::allow();
    }
    if let Some(message) = growth_of_released(request, new, released) {
        return forbidden(message);
    }
    match scope {
        TemplateRegistration::Managed => check_values(request, new),
        TemplateRegistration::Elsewhere => ReviewAnswer::allow(),
    }
}

fn forbidden(message: String) -> ReviewAnswer {
    ReviewAnswer::Deny {
        denial: Denial::Forbidden,
        message,
    }
}

fn concerns<T>(request: &ReviewRequest<T>) -> bool {
    matches!(request.operation.as_str(), "CREATE" | "UPDATE")
        && matches!(request.sub_resource.as_deref(), None | Some("" | SCALE))
        && !is_system_namespace(&request.namespace)
}

/// Returns why a `scale` request makes an admitted job larger than what was admitted, if it does.
fn scale_of_released(
    request: &ReviewRequest<Value>,
    new: &Value,
    released: &ReleasedIndex,
) -> Option<String> {
    let ReviewResource { group, resource } = &request.resource;
    let mut kinds = known_kinds();
    let kind = kinds.find(|kind| kind.group == group && kind.plural == resource)?;
    let job = released.get(&key_of(request, kind.kind), text(new, "/metadata/uid"))?;
    if workload::holds_replicas(&kind.api_version(), kind.kind) && !job.in_parts {
        return None; // it grows when that is granted
    }
    let replicas = |scale: &Value| scale.pointer("/spec/replicas").and_then(Value::as_i64);
    let from = request.old_object.as_ref().and_then(replicas).unwrap_or(0);
    let to = replicas(new).unwrap_or(0);
    let growth = format!("replicas: {from} -> {to}");
    (to > from).then(|| refusal(kind.kind, &request.name, &job, &growth))
}

fn key_of<T>(request: &ReviewRequest<T>, kind: &str) -> ObjectKey {
    ObjectKey {
        namespace: Some(request.namespace.clone()),
        name: binding_name(kind, &request.name),
    }
}

/// Returns why an edit makes an admitted job larger than what was admitted, if it does.
fn growth_of_released(
    request: &ReviewRequest<Value>,
    new: &Value,
    released: &ReleasedIndex,
) -> Option<String> {
    let old = request.old_object.as_ref()?;
    let kind = request.kind.kind.as_str();
    let job = released.get(&key_of(request, kind), text(new, "/metadata/uid"))?;
    let held = workload::holds_replicas(text(new, "/apiVersion"), kind);
    // An unreadable value is no growth; in managed namespaces it is refused as a value.
    let growth = match held && !job.in_parts {
        // Replicas grow when that is granted.
        true => workload::growth_beside_replicas(old, new),
        false => workload::growth(old, new),
    };
    let growth = growth.ok().filter(|growth| *growth != Growth::None)?;
    let stops = workload::read_spec(new).is_ok_and(|ask| ask.suspended);
    (!stops).then(|| refusal(kind, &request.name, &job, &growth.to_string()))
}

fn refusal(kind: &str, name: &str, job: &ReleasedJob, growth: &str) -> String {
    let ReleasedJob { attempt, queue, .. } = job;
    let why = match job.in_parts {
        true => "its parts are limited to what was admitted",
        false => "members would get such an edit at once, past the queue",
    };
    format!(
        "{kind} {name} is admitted (attempt {attempt}, queue {queue}) and cannot grow: {growth}; {why}. Delete the job and submit it again \
         with the larger size, or suspend it first where its kind can be suspended",
        attempt = attempt.0,
    )
}

/// Refuses values that are certain to fail later. An update is refused only for what it breaks itself: it
/// must stay possible to label, repair or finish an object that was wrong before.
fn check_values(request: &ReviewRequest<Value>, new: &Value) -> ReviewAnswer {
    let was_wrong = |problem: fn(&Value) -> Option<String>| {
        request
            .old_object
            .as_ref()
            .is_some_and(|old| problem(old).is_some())
    };
    for problem in [
        invalid_value as fn(&Value) -> Option<String>,
        invalid_queue,
        invalid_hold,
    ] {
        if let Some(message) = problem(new).filter(|_| !was_wrong(problem)) {
            return ReviewAnswer::Deny {
                denial: Denial::Invalid,
                message,
            };
        }
    }
    ReviewAnswer::Allow {
        patch: Vec::new(),
        warnings: workload::warnings(new),
    }
}

fn invalid_value(template: &Value) -> Option<String> {
    match workload::read_spec(template) {
        Err(error @ SpecError::Invalid { .. }) => Some(error.to_string()),
        // Of unknown size: its binding may say it, and otherwise the job's status does.
        Ok(_) | Err(SpecError::SizeUnknown { .. } | SpecError::Uncounted { .. }) => None,
    }
}

fn invalid_hold(template: &Value) -> Option<String> {
    let error = workload::is_on_hold(template).err()?;
    Some(error.to_string())
}

/// Returns why the queue that the template names can be no object's name, if so.
fn invalid_queue(template: &Value) -> Option<String> {
    let queue = workload::named_queue(template)?;
    (!is_object_name(&queue)).then(|| {
        format!(
            "queue {queue:?} cannot be the name of a queue; needed: lower-case letters, digits, '-' and '.', \
             at most 253, beginning and ending with a letter or digit"
        )
    })
}

/// Checks for an RFC 1123 subdomain, as the API server does for names of objects.
fn is_object_name(name: &str) -> bool {
    let alphanumeric = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let label = |label: &str| {
        let bytes = label.as_bytes();
        bytes
            .iter()
            .all(|byte| alphanumeric(*byte) || *byte == b'-')
            && bytes.first().copied().is_some_and(alphanumeric)
            && bytes.last().copied().is_some_and(alphanumeric)
    };
    name.len() <= 253 && name.split('.').all(label)
}

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_default()
}

#[cfg(test)]
mod tests;
