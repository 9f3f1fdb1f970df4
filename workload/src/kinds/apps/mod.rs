//! Deployments, StatefulSets and ReplicaSets: services. They start with one pod and are
//! charged in full; a gang only where the annotation says so.

use super::batch::MAIN;
use crate::error::AskError;
use crate::field::{Field, MAX_PODS};
use crate::outcome::{self, Outcome, PodCounts};
use crate::pod::Pod;
use crate::size::{self, PriorityOf, Size};
use serde_json::Value;

/// What a StatefulSet or ReplicaSet asks for.
pub(crate) fn size(template: &Field<'_>, _: PriorityOf<'_>) -> Result<Size, AskError> {
    with_surge(template, 0)
}

/// What a Deployment asks for: its replicas, and what a rolling update starts besides.
pub(crate) fn deployment(template: &Field<'_>, _: PriorityOf<'_>) -> Result<Size, AskError> {
    with_surge(template, surge(&template.get("spec")?)?)
}

fn with_surge(template: &Field<'_>, surge: u32) -> Result<Size, AskError> {
    let spec = template.get("spec")?;
    let replicas = replicas(&spec)?;
    let min = size::annotated_minimum(template, replicas)?
        .unwrap_or(1)
        .min(replicas);
    let pod = Pod::read(&spec.get("template.spec")?)?;
    let priority_class = pod.priority_class.clone();
    let role = pod.role(MAIN, replicas.saturating_add(surge), min)?;
    Ok(Size {
        priority_class,
        surge,
        ..Size::gang(&spec, vec![role], min)?
    })
}

fn replicas(spec: &Field<'_>) -> Result<u32, AskError> {
    Ok(spec.get("replicas")?.count()?.unwrap_or(1))
}

/// Pods above its replicas during a rolling update: `maxSurge`, 25% where it is absent,
/// percentages rounded up (k8s.io/kubernetes pkg/controller/deployment/util).
fn surge(spec: &Field<'_>) -> Result<u32, AskError> {
    let replicas = replicas(spec)?;
    if replicas == 0 || spec.get("strategy.type")?.text()? == Some("Recreate") {
        return Ok(0);
    }
    let field = spec.get("strategy.rollingUpdate.maxSurge")?;
    let percent = match field.value() {
        None => 25,
        Some(Value::String(text)) => text
            .strip_suffix('%')
            .and_then(|percent| percent.parse::<u32>().ok())
            .ok_or_else(|| field.invalid("a number of pods or a percentage such as 25%"))?,
        Some(_) => return Ok(field.count()?.unwrap_or(0)),
    };
    let pods = (u64::from(replicas) * u64::from(percent)).div_ceil(100);
    u32::try_from(pods)
        .ok()
        .filter(|pods| *pods <= MAX_PODS)
        .ok_or_else(|| field.invalid(format!("at most {MAX_PODS} pods")))
}

/// Whether an update of the Deployment `template` may start more pods than its replicas.
pub(crate) fn surges(template: &Value) -> bool {
    let spec = Field::root(template).get("spec");
    spec.and_then(|spec| surge(&spec))
        .is_ok_and(|pods| pods > 0)
}

/// Where a part of it is: a service never finishes.
pub(crate) fn part(status: &Value) -> Outcome {
    outcome::active_if_told(status)
}

/// Its pods in one member: those that are ready run.
pub(crate) fn counts(status: &Value) -> PodCounts {
    let running = outcome::number(status, "readyReplicas");
    let pending = outcome::number(status, "replicas").saturating_sub(running);
    PodCounts {
        pending,
        running,
        ..PodCounts::default()
    }
}

#[cfg(test)]
mod tests;
