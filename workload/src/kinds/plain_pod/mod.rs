//! A Pod by itself.

use super::batch::MAIN;
use crate::error::AskError;
use crate::field::Field;
use crate::outcome::{self, Outcome, PodCounts};
use crate::pod::Pod;
use crate::size::{self, PriorityOf, Size};
use serde_json::Value;

/// What a Pod asks for.
pub(crate) fn size(template: &Field<'_>, _: PriorityOf<'_>) -> Result<Size, AskError> {
    let spec = template.get("spec")?;
    let pod = Pod::read(&spec)?;
    let priority_class = pod.priority_class.clone();
    let role = pod.role(MAIN, 1, 1)?;
    Ok(Size {
        priority_class,
        duration_ms: size::deadline(&spec.get("activeDeadlineSeconds")?)?,
        ..Size::gang(&spec, vec![role], 1)?
    })
}

/// It is its own template.
pub(crate) fn pod_templates(template: &Value) -> Vec<&Value> {
    vec![template]
}

/// Where it is.
pub(crate) fn part(status: &Value) -> Outcome {
    match outcome::text(status, "phase") {
        "Succeeded" => Outcome::Succeeded,
        "Failed" => Outcome::failed(&[
            outcome::text(status, "reason"),
            outcome::text(status, "message"),
        ]),
        "Pending" | "Running" => Outcome::Active,
        _ => Outcome::Unknown,
    }
}

/// It, by its phase.
pub(crate) fn counts(status: &Value) -> PodCounts {
    let is = |phase| u32::from(outcome::text(status, "phase") == phase);
    PodCounts {
        pending: is("Pending"),
        running: is("Running"),
        succeeded: is("Succeeded"),
        failed: is("Failed"),
    }
}
