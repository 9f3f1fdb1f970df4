//! The size that a kind reads from a template, before the fields that all kinds share.

use crate::error::SpecError;
use crate::field::{Field, MAX_PODS};
use facts::{Resources, Role};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Annotation: the number of pods that must run together, if it is less than all of them (or, for a
/// service, more than one).
pub(crate) const MIN_AVAILABLE: &str = "muster.io/min-available";

/// Looks up the value of a PriorityClass by its name.
pub(crate) type PriorityOf<'a> = &'a dyn Fn(&str) -> Option<i32>;

/// Roles, minimum, and other fields that only the kind knows.
#[derive(Debug, Clone)]
pub(crate) struct Size {
    pub(crate) roles: Vec<Role>,
    pub(crate) min_available: u32,
    pub(crate) min_task_member: BTreeMap<String, u32>,
    pub(crate) min_resources: Resources,
    pub(crate) priority_class: Option<String>,
    pub(crate) suspended: bool,
    /// Milliseconds until its deadline, or its owner's estimate.
    pub(crate) duration_ms: Option<i64>,
    pub(crate) network_topology: Option<Value>,
    pub(crate) surge: u32,
    pub(crate) keeps_pods: bool,
}

impl Size {
    /// Returns a gang of `roles` that starts with `min_available` pods. `from` is the field of the roles in
    /// the template.
    ///
    /// # Errors
    /// Returns an error if two roles have the same name, or the sum of all pods overflows.
    pub(crate) fn gang(
        from: &Field<'_>,
        roles: Vec<Role>,
        min_available: u32,
    ) -> Result<Self, SpecError> {
        check_names(from, &roles)?;
        check_total(from, &roles)?;
        Ok(Self {
            min_resources: smallest(from, &roles, min_available)?,
            roles,
            min_available,
            min_task_member: BTreeMap::new(),
            priority_class: None,
            suspended: false,
            duration_ms: None,
            network_topology: None,
            surge: 0,
            keeps_pods: false,
        })
    }
}

fn check_names(from: &Field<'_>, roles: &[Role]) -> Result<(), SpecError> {
    let mut seen = BTreeSet::new();
    match roles.iter().find(|role| !seen.insert(&role.name)) {
        None => Ok(()),
        Some(twice) => Err(SpecError::Invalid {
            field: from.path().to_owned(),
            value: format!("{:?} twice", twice.name),
            want: "a name of its own for each group of pods".to_owned(),
        }),
    }
}

pub(crate) fn check_total(from: &Field<'_>, roles: &[Role]) -> Result<(), SpecError> {
    let pods: u64 = roles.iter().map(|role| u64::from(role.count)).sum();
    if pods > u64::from(MAX_PODS) {
        return Err(SpecError::Invalid {
            field: from.path().to_owned(),
            value: format!("{pods} pods in all"),
            want: format!("at most {MAX_PODS} pods"),
        });
    }
    let each = roles.iter().map(|role| (&role.request, role.count));
    sum(from, each).map(|_| ())
}

/// Returns the requests of the smallest gang: every role's own minimum, then filled in the roles' order.
fn smallest(from: &Field<'_>, roles: &[Role], min_available: u32) -> Result<Resources, SpecError> {
    let own: u32 = roles.iter().map(|role| role.min).sum();
    let mut left = min_available.saturating_sub(own);
    let counts = roles.iter().map(|role| {
        let more = left.min(role.count.saturating_sub(role.min));
        left -= more;
        (&role.request, role.min + more)
    });
    sum(from, counts)
}

/// Returns the sum of `requests`, each multiplied by its number.
pub(crate) fn sum<'a>(
    from: &Field<'_>,
    requests: impl IntoIterator<Item = (&'a Resources, u32)>,
) -> Result<Resources, SpecError> {
    requests
        .into_iter()
        .filter(|(_, count)| *count > 0)
        .try_fold(Resources::new(), |sum, (request, count)| {
            sum.checked_add(&request.checked_mul(count)?)
        })
        .ok_or_else(|| SpecError::too_large(from.path(), "the requests of all its pods"))
}

/// Returns the product of two counts, as a number of pods.
pub(crate) fn times(from: &Field<'_>, left: u32, right: u32) -> Result<u32, SpecError> {
    left.checked_mul(right)
        .filter(|pods| *pods <= MAX_PODS)
        .ok_or_else(|| SpecError::Invalid {
            field: from.path().to_owned(),
            value: format!("{left} × {right} pods"),
            want: format!("at most {MAX_PODS} pods"),
        })
}

/// Returns the minimum in the annotation `muster.io/min-available` for a job of `pods` pods.
pub(crate) fn annotated_minimum(template: &Field<'_>, pods: u32) -> Result<Option<u32>, SpecError> {
    let annotations = template.get("metadata.annotations")?;
    number_of_pods(&annotations.entry(MIN_AVAILABLE)?, pods)
}

/// Reads a number of pods that is written as text, from 1 to `pods`.
pub(crate) fn number_of_pods(field: &Field<'_>, pods: u32) -> Result<Option<u32>, SpecError> {
    let Some(text) = field.text()? else {
        return Ok(None);
    };
    match text.parse::<u32>() {
        Ok(min) if (1..=pods).contains(&min) => Ok(Some(min)),
        _ if pods == 0 => Ok(None),
        _ => Err(field.invalid(format!("a whole number from 1 to {pods}, the pods it has"))),
    }
}

/// Reads a number of `what`, or a percentage of `whole` that is rounded up; `unstated` percent if it is
/// absent.
pub(crate) fn number_or_percent(
    field: &Field<'_>,
    whole: u32,
    unstated: u32,
    what: &str,
) -> Result<u32, SpecError> {
    let percent = match field.value() {
        None => unstated,
        Some(Value::String(text)) => text
            .strip_suffix('%')
            .and_then(|percent| percent.parse::<u32>().ok())
            .ok_or_else(|| {
                field.invalid(format!("a number of {what} or a percentage such as 25%"))
            })?,
        Some(_) => return Ok(field.count()?.unwrap_or(0)),
    };
    let number = (u64::from(whole) * u64::from(percent)).div_ceil(100);
    u32::try_from(number)
        .ok()
        .filter(|number| *number <= MAX_PODS)
        .ok_or_else(|| field.invalid(format!("at most {MAX_PODS} {what}")))
}

/// Returns `seconds` in milliseconds.
pub(crate) fn deadline(seconds: &Field<'_>) -> Result<Option<i64>, SpecError> {
    Ok(seconds
        .seconds()?
        .map(|seconds| seconds.saturating_mul(1000)))
}
