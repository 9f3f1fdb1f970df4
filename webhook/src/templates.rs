//! Validation of templates, where saying no at once saves the user a wait.
//!
//! - Growth: Karmada hands template edits of some kinds straight to the members (Volcano Jobs,
//!   PyTorchJobs, ...), and of jobs in parts to nobody. An edit that raises pods or requests of
//!   such a job, once it is released, is refused, with what to do instead.
//! - Values that are certain to fail later, in managed namespaces: a quantity that cannot be
//!   read, a queue that cannot be one.
//!
//! It never calls the API server. What slips through (a missed update, a `scale` request, the
//! webhook being away) is charged and pinned by the controller.

use crate::released::{Released, ReleasedJob};
use crate::review::{Answer, Denial, Request};
use crds::names::{binding_name, is_system_namespace};
use runtime::ObjectKey;
use serde_json::Value;
use workload::{AskError, Growth};

/// Which registration called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// For namespaces labelled `muster.io/managed=true`: values are checked, and growth.
    Managed,
    /// For all others: growth alone.
    Elsewhere,
}

/// Whether `request` may create or change a template.
#[must_use]
pub fn judge(scope: Scope, request: &Request<Value>, released: &Released) -> Answer {
    let Some(new) = request.object.as_ref().filter(|_| concerns(request)) else {
        return Answer::allow();
    };
    // Its end must not depend on its values.
    if new
        .pointer("/metadata/deletionTimestamp")
        .is_some_and(|time| !time.is_null())
    {
        return Answer::allow();
    }
    if let Some(message) = growth_of_released(request, new, released) {
        return Answer::Deny {
            denial: Denial::Forbidden,
            message,
        };
    }
    match scope {
        Scope::Managed => check_values(request, new),
        Scope::Elsewhere => Answer::allow(),
    }
}

fn concerns<T>(request: &Request<T>) -> bool {
    matches!(request.operation.as_str(), "CREATE" | "UPDATE")
        && request
            .sub_resource
            .as_deref()
            .unwrap_or_default()
            .is_empty()
        && !is_system_namespace(&request.namespace)
}

/// Why an edit makes a released job larger than what was admitted, if it does.
fn growth_of_released(
    request: &Request<Value>,
    new: &Value,
    released: &Released,
) -> Option<String> {
    let old = request.old_object.as_ref()?;
    let key = ObjectKey {
        namespace: Some(request.namespace.clone()),
        name: binding_name(&request.kind.kind, &request.name),
    };
    let job = released.get(&key, text(new, "/metadata/uid"))?;
    let held = workload::holds_replicas(text(new, "/apiVersion"), &request.kind.kind);
    if held && !job.in_parts {
        return None; // it grows when that is granted
    }
    // A value that cannot be read is not growth; in managed namespaces it is refused as such.
    let growth = workload::growth(old, new).ok()?;
    let stops = workload::ask(new).is_ok_and(|ask| ask.suspended);
    (growth != Growth::None && !stops).then(|| refusal(request, &job, &growth))
}

fn refusal(request: &Request<Value>, job: &ReleasedJob, growth: &Growth) -> String {
    let Request { kind, name, .. } = request;
    let ReleasedJob { attempt, queue, .. } = job;
    let why = match job.in_parts {
        true => "its parts are held to what was admitted",
        false => "members would get such an edit at once, past the queue",
    };
    format!(
        "{kind} {name} is released (attempt {attempt}, queue {queue}) and cannot grow: {growth}; {why}. Delete the job and submit it again \
         with the larger size, or suspend it first where its kind can be suspended",
        kind = kind.kind,
        attempt = attempt.0,
    )
}

/// Refuses what is certain to fail later. An update is held only against what it breaks itself:
/// an object that was wrong before must stay possible to label, repair step by step, or finish.
fn check_values(request: &Request<Value>, new: &Value) -> Answer {
    let was_wrong = |problem: fn(&Value) -> Option<String>| {
        request
            .old_object
            .as_ref()
            .is_some_and(|old| problem(old).is_some())
    };
    for problem in [invalid_value as fn(&Value) -> Option<String>, invalid_queue] {
        if let Some(message) = problem(new).filter(|_| !was_wrong(problem)) {
            return Answer::Deny {
                denial: Denial::Invalid,
                message,
            };
        }
    }
    Answer::Allow {
        patch: Vec::new(),
        warnings: workload::warnings(new),
    }
}

fn invalid_value(template: &Value) -> Option<String> {
    match workload::ask(template) {
        Err(error @ AskError::Invalid { .. }) => Some(error.to_string()),
        // Of unknown size: its binding may tell, and if not the job says so itself.
        Ok(_) | Err(AskError::SizeUnknown { .. } | AskError::Uncounted { .. }) => None,
    }
}

/// The queue that the template names cannot be the name of any object.
fn invalid_queue(template: &Value) -> Option<String> {
    let queue = workload::named_queue(template)?;
    (!is_object_name(&queue)).then(|| {
        format!(
            "queue {queue:?} cannot be the name of a queue; needed: lower-case letters, digits, '-' and '.', \
             at most 253, beginning and ending with a letter or digit"
        )
    })
}

/// RFC 1123 subdomain, as the API server takes names of objects.
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
