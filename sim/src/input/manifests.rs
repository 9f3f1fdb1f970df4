//! The Kubernetes objects that configure queues, read from their manifests by the same types as on a control plane.
//! A field that these types do not know, or whose value they cannot read, is an error, so that a misspelt field is
//! noticed. Objects of `muster.io/v1alpha1` are converted.

use crate::error::{InputError, InputLocation};
use crate::scenario::NO_DEADLINE_MS;
use crds::capacity_policy::CapacityPolicy;
use crds::queue::Queue;
use crds::v1alpha1;
use engine::facts::PolicyFact;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

/// Fields of a Queue's spec that Volcano has and Muster does not read.
const UNREAD: [&str; 3] = ["type", "affinity", "extendClusters"];

/// Reads an object of the kind `kind`. `text` is that of the document, in which the error names the line.
pub(super) fn object<T: DeserializeOwned + Serialize>(
    place: &InputLocation<'_>,
    text: &str,
    document: Value,
    kind: &str,
) -> Result<T, InputError> {
    let object: T = serde_json::from_value(document.clone())
        .map_err(|error| invalid(place, &format!("{kind}: {error}")))?;
    let read = serde_json::to_value(&object).unwrap_or_default();
    match unread("spec", &document["spec"], &read["spec"]) {
        Some((field, value)) => {
            let place = InputLocation {
                place: format!("{}, line {}", place.place, line_of(text, &field)),
                ..place.clone()
            };
            let known = "no such field is known, or none with such a value";
            Err(place.refuse(&field, &value, known))
        }
        None => Ok(object),
    }
}

/// Reads a CapacityPolicy. One without an apiVersion may have the words of either version.
pub(super) fn policy(
    place: &InputLocation<'_>,
    text: &str,
    mut document: Value,
) -> Result<CapacityPolicy, InputError> {
    let version = &document["apiVersion"];
    if version.is_null() || version == v1alpha1::API_VERSION {
        convert(place, &mut document)?;
    }
    object(place, text, document, "CapacityPolicy")
}

/// Reads the part of a CapacityPolicy that the short form of a queue has, in the words of either version.
pub(super) fn short_policy(
    place: &InputLocation<'_>,
    queue: &str,
    spec: Map<String, Value>,
) -> Result<CapacityPolicy, InputError> {
    let mut document = json!({
        "apiVersion": v1alpha1::API_VERSION, "kind": "CapacityPolicy", "metadata": {"name": queue}, "spec": spec,
    });
    convert(place, &mut document)?;
    object(place, "", document, "CapacityPolicy")
}

fn convert(place: &InputLocation<'_>, document: &mut Value) -> Result<(), InputError> {
    v1alpha1::convert(document).map_err(|problem| invalid(place, &problem))
}

/// Returns the fact of a policy. `queue` is that of the same name, if its manifest is given. The simulation starts no
/// pods, so no start deadline applies.
pub(super) fn fact(
    place: &InputLocation<'_>,
    policy: &CapacityPolicy,
    queue: Option<&Queue>,
) -> Result<PolicyFact, InputError> {
    let strategy = queue.and_then(|queue| queue.spec.dequeue_strategy.as_deref());
    let fact = policy.to_fact(strategy);
    match &fact.invalid {
        Some(problem) => Err(invalid(place, problem)),
        None => Ok(PolicyFact {
            start_deadline_ms: NO_DEADLINE_MS,
            ..fact
        }),
    }
}

/// Returns the error of a problem that names field and value by itself.
pub(super) fn invalid(place: &InputLocation<'_>, problem: &str) -> InputError {
    InputError::Malformed {
        file: place.file.to_owned(),
        reason: format!("{}: {problem}", place.place),
    }
}

/// Returns the first field of `given`, and its value, that `read` does not have.
fn unread(field: &str, given: &Value, read: &Value) -> Option<(String, String)> {
    match (given, read) {
        (Value::Object(given), _) => given.iter().find_map(|(name, value)| {
            let field = format!("{field}.{name}");
            match UNREAD.iter().any(|known| field == format!("spec.{known}")) {
                true => None,
                false => unread(&field, value, &read[name]),
            }
        }),
        (Value::Array(given), _) => (0..).zip(given).find_map(|(index, value)| {
            let read: &Value = read.get(index).unwrap_or(&Value::Null);
            unread(&format!("{field}[{index}]"), value, read)
        }),
        (Value::Null, _) => None,
        // A quantity may be a number, and is read as text.
        _ => (plain(given) != plain(read)).then(|| (field.to_owned(), plain(given))),
    }
}

/// Returns the line of a field: that of its last part that is found after the parts before it.
fn line_of(text: &str, field: &str) -> usize {
    let mut line = 0;
    for part in field.split(['.', '[', ']']).filter(|part| !part.is_empty()) {
        let key = format!("{part}:");
        let after = text.lines().enumerate().skip(line);
        let mut found = after.filter(|(_, text)| text.contains(&key));
        line = found.next().map_or(line, |(number, _)| number);
    }
    line + 1
}

fn plain(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}
