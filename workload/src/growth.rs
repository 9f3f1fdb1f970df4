//! Whether an edit of a template makes its job larger.

use crate::error::SpecError;
use crate::spec::{WorkloadSpec, read_spec};
use facts::{ResourceName, Role};
use serde_json::Value;
use std::fmt;

/// How an edit makes a job larger; the first way that is found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Growth {
    /// It does not make it larger.
    None,
    /// More pods of a role.
    Pods {
        /// The role.
        role: String,
        /// Its pods before.
        from: u32,
        /// Its pods after.
        to: u32,
    },
    /// Each pod of a role requests more.
    Request {
        /// The role.
        role: String,
        /// The resource.
        resource: String,
        /// What a pod requested before.
        from: String,
        /// What a pod requests after.
        to: String,
    },
}

impl fmt::Display for Growth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("no growth"),
            Self::Pods { role, from, to } => write!(f, "pods of {role}: {from} -> {to}"),
            Self::Request {
                role,
                resource,
                from,
                to,
            } => {
                write!(f, "{resource} of each pod of {role}: {from} -> {to}")
            }
        }
    }
}

/// Returns whether the edit from `old` to `new` adds pods or raises the request of one. A role that shrinks
/// does not compensate for one that grows: they run on different nodes.
///
/// # Errors
/// Returns an error if either has no size; an unreadable `new` is reported before `old`.
pub fn growth(old: &Value, new: &Value) -> Result<Growth, SpecError> {
    let new = read_spec(new)?;
    let old = read_spec(old)?;
    let grown = new
        .roles
        .iter()
        .map(|role| of_role(&old, role))
        .find(|growth| *growth != Growth::None);
    Ok(grown.unwrap_or(Growth::None))
}

/// Does the same for kinds whose replicas Karmada sets ([`crate::holds_replicas`]): only other growth goes
/// to the members, so `new` is taken with the replicas of `old`.
///
/// # Errors
/// As [`growth`].
pub fn growth_beside_replicas(old: &Value, new: &Value) -> Result<Growth, SpecError> {
    let mut at_old_size = new.clone();
    if let Some(spec) = at_old_size.get_mut("spec").and_then(Value::as_object_mut) {
        for field in ["replicas", "parallelism", "completions"] {
            match old.get("spec").and_then(|spec| spec.get(field)) {
                Some(count) => _ = spec.insert(field.to_owned(), count.clone()),
                None => _ = spec.remove(field),
            }
        }
    }
    growth(old, &at_old_size)
}

fn of_role(old: &WorkloadSpec, new: &Role) -> Growth {
    let before = old.roles.iter().find(|role| role.name == new.name);
    let from = before.map_or(0, |role| role.count);
    if new.count > from {
        return Growth::Pods {
            role: new.name.clone(),
            from,
            to: new.count,
        };
    }
    let Some(before) = before.filter(|_| new.count > 0) else {
        return Growth::None;
    };
    let raised = new
        .request
        .iter()
        .find(|(name, to)| *to > before.request.amount_of(name));
    raised.map_or(Growth::None, |(name, to)| {
        let shown = |amount| ResourceName::format(name, amount);
        Growth::Request {
            role: new.name.clone(),
            resource: name.to_string(),
            from: shown(before.request.amount_of(name)),
            to: shown(to),
        }
    })
}

#[cfg(test)]
mod tests;
