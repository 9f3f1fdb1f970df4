//! batch/v1 Jobs.

use crate::error::AskError;
use crate::field::Field;
use crate::outcome::{self, Outcome, PodCounts};
use crate::pod::Pod;
use crate::size::{self, PriorityOf, Size};
use serde_json::Value;

/// Name of the only role of a kind with one pod template.
pub(crate) const MAIN: &str = "main";

/// What a Job asks for: all that run at once, unless its annotation lowers the minimum.
pub(crate) fn size(template: &Field<'_>, _: PriorityOf<'_>) -> Result<Size, AskError> {
    let spec = template.get("spec")?;
    let pods = pods_at_once(&spec)?;
    let min = size::annotated_minimum(template, pods)?.unwrap_or(pods);
    let pod = Pod::read(&spec.get("template.spec")?)?;
    let priority_class = pod.priority_class.clone();
    let role = pod.role(MAIN, pods, min)?;
    Ok(Size {
        priority_class,
        suspended: spec.get("suspend")?.flag()?,
        duration_ms: size::deadline(&spec.get("activeDeadlineSeconds")?)?,
        ..Size::gang(&spec, vec![role], min)?
    })
}

/// Pods that a Job runs at the same time: its parallelism, never more than its completions.
pub(crate) fn pods_at_once(spec: &Field<'_>) -> Result<u32, AskError> {
    let parallelism = spec.get("parallelism")?.count()?.unwrap_or(1);
    // Not bounded like a count of pods: millions of completions may run a few at a time.
    let field = spec.get("completions")?;
    let completions = match field.value() {
        None => None,
        Some(value) => Some(
            value
                .as_u64()
                .ok_or_else(|| field.invalid("a whole number from 0"))?,
        ),
    };
    Ok(completions
        .and_then(|bound| u32::try_from(bound).ok())
        .map_or(parallelism, |bound| parallelism.min(bound)))
}

/// Whether its pods have identities of their own.
pub(crate) fn is_indexed(template: &Value) -> bool {
    template
        .pointer("/spec/completionMode")
        .and_then(Value::as_str)
        == Some("Indexed")
}

/// Its pod template.
pub(crate) fn pod_templates(template: &Value) -> Vec<&Value> {
    template.pointer("/spec/template").into_iter().collect()
}

/// Where a part of it is. `SuccessCriteriaMet` and `FailureTarget` come before the end: its
/// pods are still being stopped.
pub(crate) fn part(status: &Value) -> Outcome {
    if let Some(failed) = outcome::condition(status, "Failed") {
        return outcome::failed_by(failed);
    }
    if outcome::condition(status, "Complete").is_some() {
        return Outcome::Succeeded;
    }
    if outcome::condition(status, "Suspended").is_some() {
        return Outcome::Suspended;
    }
    outcome::active_if_told(status)
}

/// Its pods in one member. `active` counts pending pods too; `ready`, where it is told, tells
/// them apart.
pub(crate) fn counts(status: &Value) -> PodCounts {
    let active = outcome::number(status, "active");
    let running = match status.get("ready") {
        Some(_) => outcome::number(status, "ready").min(active),
        None => active,
    };
    PodCounts {
        pending: active - running,
        running,
        succeeded: outcome::number(status, "succeeded"),
        failed: outcome::number(status, "failed"),
    }
}

#[cfg(test)]
mod tests;
