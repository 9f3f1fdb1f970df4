//! What the API server of a member makes of the pods of a job before it stores them: what it adds to their requests
//! (the overhead of a RuntimeClass, the defaults of a LimitRange), and which pods it refuses (LimitRange,
//! ResourceQuota, RuntimeClass).
//!
//! The rules are those of Kubernetes' admission plugins RuntimeClass, LimitRanger and ResourceQuota, in that order.
//! What webhooks of a member add is not known before pods exist.

mod limit_range;
mod quota;

pub use limit_range::LimitRangeRules;
pub use quota::QuotaRules;

use crate::error::SpecError;
use crate::pod_shape::PodShape;
use facts::{Amount, Resources, Role};
use std::collections::BTreeMap;

/// The LimitRanges and ResourceQuotas of one namespace in one member, by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NamespaceRules {
    /// Its LimitRanges.
    pub limit_ranges: BTreeMap<String, LimitRangeRules>,
    /// Its ResourceQuotas.
    pub quotas: BTreeMap<String, QuotaRules>,
}

/// What a member applies to the pods of a job.
#[derive(Debug, Clone, Copy)]
pub struct MemberRules<'a> {
    /// What pods of each RuntimeClass need besides their containers; `None` if it is not known which it has.
    pub runtime_classes: Option<&'a BTreeMap<String, Resources>>,
    /// The rules of the job's namespace.
    pub namespace: &'a NamespaceRules,
    /// The `apiVersion` and kind of the job.
    pub kind: (&'a str, &'a str),
    /// True if all of its pods go to one cluster.
    pub whole: bool,
}

impl MemberRules<'_> {
    /// Returns true if they may change anything for pods of `shapes`: for nearly all jobs they do not.
    #[must_use]
    pub fn concern(&self, shapes: &[PodShape]) -> bool {
        let has_class = |shape: &PodShape| shape.runtime_class.is_some();
        *self.namespace != NamespaceRules::default()
            || (self.runtime_classes.is_some() && shapes.iter().any(has_class))
    }
}

/// What a member makes of the pods of a job.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InMember {
    /// The request of one pod of each role that has another there than by its template.
    pub requests: BTreeMap<String, Resources>,
    /// Why it refuses its pods, if it does.
    pub refused: Option<String>,
}

/// Returns what a member makes of pods of `shapes`, which are those of `roles`. Roles whose pods have no shape (of
/// kinds that are known by their binding only) keep their requests.
#[must_use]
pub fn in_member(roles: &[Role], shapes: &[PodShape], rules: MemberRules<'_>) -> InMember {
    let mut found = InMember::default();
    let mut pods = Vec::new();
    for role in roles.iter().filter(|role| role.count > 0) {
        let Some(shape) = shapes.iter().find(|shape| shape.role == role.name) else {
            continue;
        };
        match admitted(role, shape, rules) {
            Ok((shape, request)) => {
                if request != role.request {
                    found.requests.insert(role.name.clone(), request.clone());
                }
                pods.push((role, shape, request));
            }
            Err(why) => found.refused = found.refused.or(Some(why)),
        }
    }
    let quotas = rules.namespace.quotas.iter();
    let mut refusals = quotas.filter_map(|(name, quota)| {
        quota
            .refusal(&pods, rules)
            .map(|why| format!("its ResourceQuota {name} refuses the pods: {why}"))
    });
    found.refused = found.refused.or_else(|| refusals.next());
    found
}

/// Returns a pod of `role` as the member stores it, with what it requests then, or why it is refused.
fn admitted(
    role: &Role,
    shape: &PodShape,
    rules: MemberRules<'_>,
) -> Result<(PodShape, Resources), String> {
    let overflows = |error: SpecError| error.to_string();
    let stored = stored(shape, rules)?;
    let before = shape.request().map_err(overflows)?;
    let after = stored.request().map_err(overflows)?;
    for (name, limits) in &rules.namespace.limit_ranges {
        let refusal = limits.refusal(&stored).map_err(overflows)?;
        if let Some(why) = refusal {
            let role = &role.name;
            return Err(format!(
                "its LimitRange {name} refuses pods of {role}: {why}"
            ));
        }
    }
    let mut request = role.request.clone();
    for (name, amount) in after.iter() {
        // A role may request more than its template: its operator adds containers.
        let added = amount.0.saturating_sub(before.amount_of(name).0);
        if added > 0 {
            let sum = request.amount_of(name).0.saturating_add(added);
            request.set(name.clone(), Amount(sum));
        }
    }
    Ok((stored, request))
}

/// Returns a pod with the overhead of its RuntimeClass and the defaults of LimitRanges.
fn stored(shape: &PodShape, rules: MemberRules<'_>) -> Result<PodShape, String> {
    let mut stored = shape.clone();
    if let (Some(name), Some(classes)) = (&shape.runtime_class, rules.runtime_classes) {
        match classes.get(name) {
            Some(overhead) => stored.overhead.clone_from(overhead),
            None => return Err(format!("it has no RuntimeClass {name}")),
        }
    }
    for limits in rules.namespace.limit_ranges.values() {
        limits.default(&mut stored);
    }
    Ok(stored)
}

#[cfg(test)]
mod tests;
