//! A stand-in for a leading pod that is in another cluster, for operators that refuse a job without one. It
//! is gated, so that it is never scheduled, and it requests nothing.

use super::parts::containers;
use crate::parts::{Fields, Gang};
use serde_json::{Value, json};

const POLICY: &str = "/spec/runPolicy/schedulingPolicy";
const DEADLINE: &str = "/spec/runPolicy/activeDeadlineSeconds";

/// The stand-in of a kind.
pub(super) struct StandIn {
    /// The field of the spec with the groups of pods.
    pub(super) groups: &'static str,
    /// The group of the leading pod.
    pub(super) role: &'static str,
    /// The container that the operator asks for; `None` for the first.
    pub(super) container: Option<&'static str>,
    /// The gate that keeps it from being scheduled.
    pub(super) gate: &'static str,
}

impl StandIn {
    /// Puts it into the part of the cluster at `index`. `fields` begins with the groups of that part. No
    /// gang waits for it, and the part has no deadline.
    pub(super) fn replace(
        &self,
        template: &Value,
        gang: &Gang<'_>,
        index: usize,
        fields: &mut Fields,
    ) {
        let all = template.pointer(&format!("/spec/{}", self.groups));
        let mut all = all.and_then(Value::as_object).into_iter().flatten();
        let real = all.find(|(key, _)| key.to_lowercase() == self.role);
        if let (Some((key, real)), Some((_, own))) = (real, fields.first_mut()) {
            own[key] = self.for_group(real);
        }
        if template.pointer(DEADLINE).is_some() {
            fields.push((DEADLINE.to_owned(), Value::Null));
        }
        // The operators' own number includes it (mpi-operator: calculateMinAvailable in podgroup.go).
        let policy = template.pointer(POLICY).filter(|policy| policy.is_object());
        if policy.is_none_or(|policy| policy.get("minAvailable").is_none()) {
            let minimum = gang.replicas()[index];
            fields.push(match policy {
                Some(_) => (format!("{POLICY}/minAvailable"), json!(minimum)),
                None => with_policy(template, json!({ "minAvailable": minimum })),
            });
        }
    }

    /// Returns a gated group with only the required fields of the real one.
    fn for_group(&self, real: &Value) -> Value {
        let asked =
            |container: &&Value| self.container.is_none_or(|name| container["name"] == name);
        let used = containers(real).find(asked);
        let mut container = json!({ "name": self.role });
        for field in ["name", "image"] {
            if let Some(value) = used.and_then(|used| used.get(field)) {
                container[field] = value.clone();
            }
        }
        let mut group = real.clone();
        group["template"] = json!({"spec": {
            "schedulingGates": [{"name": self.gate}],
            "containers": [container],
        }});
        group
    }
}

/// Returns a scheduling policy, in the smallest possible field.
fn with_policy(template: &Value, policy: Value) -> (String, Value) {
    let path = "/spec/runPolicy";
    match template.pointer(path).is_some_and(Value::is_object) {
        true => (POLICY.to_owned(), policy),
        false => (path.to_owned(), json!({ "schedulingPolicy": policy })),
    }
}
