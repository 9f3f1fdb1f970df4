//! JobSets (jobset.x-k8s.io): groups of identical batch/v1 Jobs.

use crate::batch;
use crate::error::AskError;
use crate::field::Field;
use crate::outcome::{self, Outcome, PodCounts};
use crate::pod::Pod;
use crate::size::{self, PriorityOf, Size};
use engine::facts::Role;
use serde_json::Value;

/// What a JobSet asks for: every pod of every Job, unless its annotation lowers the minimum.
pub(crate) fn size(template: &Field<'_>, _: PriorityOf<'_>) -> Result<Size, AskError> {
    let spec = template.get("spec")?;
    let jobs = spec.get("replicatedJobs")?;
    let mut roles = Vec::new();
    let mut priority_class = None;
    for job in jobs.items()? {
        let (role, class) = role(&job)?;
        roles.push(role);
        priority_class = priority_class.or(class);
    }
    if roles.is_empty() {
        return Err(jobs.invalid("at least one replicated job"));
    }
    let pods = roles
        .iter()
        .fold(0_u32, |sum, role| sum.saturating_add(role.count));
    let min = size::annotated_minimum(template, pods)?.unwrap_or(pods);
    if min < pods && roles.len() > 1 {
        // The annotation counts pods of any group.
        roles.iter_mut().for_each(|role| role.min = 0);
    } else if let [only] = roles.as_mut_slice() {
        only.min = min;
    }
    Ok(Size {
        priority_class,
        suspended: spec.get("suspend")?.flag()?,
        ..Size::gang(&jobs, roles, min)?
    })
}

fn role(job: &Field<'_>) -> Result<(Role, Option<String>), AskError> {
    let name = job.get("name")?;
    let name = name.name()?.ok_or_else(|| name.invalid("a name"))?;
    let jobs = job.get("replicas")?.count()?.unwrap_or(1);
    let spec = job.get("template.spec")?;
    let pods = size::times(job, jobs, batch::pods_at_once(&spec)?)?;
    let pod = Pod::read(&spec.get("template.spec")?)?;
    let class = pod.priority_class.clone();
    Ok((pod.role(name, pods, pods)?, class))
}

/// The pod templates of its Jobs.
pub(crate) fn pod_templates(template: &Value) -> Vec<&Value> {
    let jobs = template
        .pointer("/spec/replicatedJobs")
        .and_then(Value::as_array);
    jobs.into_iter()
        .flatten()
        .filter_map(|job| job.pointer("/template/spec/template"))
        .collect()
}

/// Where a part of it is.
pub(crate) fn part(status: &Value) -> Outcome {
    if let Some(failed) = outcome::condition(status, "Failed") {
        return outcome::failed_by(failed);
    }
    match outcome::text(status, "terminalState") {
        "Failed" => return Outcome::failed(&["Failed"]),
        "Completed" => return Outcome::Succeeded,
        _ => {}
    }
    if outcome::condition(status, "Completed").is_some() {
        return Outcome::Succeeded;
    }
    if outcome::condition(status, "Suspended").is_some() {
        return Outcome::Suspended;
    }
    outcome::active_if_told(status)
}

/// Its Jobs in one member: a JobSet reports Jobs, not pods. Active Jobs are pending until all
/// their pods are ready.
pub(crate) fn counts(status: &Value) -> PodCounts {
    let groups = status.get("replicatedJobsStatus").and_then(Value::as_array);
    groups
        .into_iter()
        .flatten()
        .fold(PodCounts::default(), |sum, group| {
            let running = outcome::number(group, "ready");
            sum.plus(PodCounts {
                pending: outcome::number(group, "active").saturating_sub(running),
                running,
                succeeded: outcome::number(group, "succeeded"),
                failed: outcome::number(group, "failed"),
            })
        })
}

#[cfg(test)]
mod tests;
