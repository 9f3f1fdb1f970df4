//! JobSets (jobset.x-k8s.io): groups of identical batch/v1 Jobs.

pub(crate) mod parts;
pub(crate) mod unsplittable;

use super::batch;
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
    replicated_jobs(template)
        .iter()
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

/// Its pods in one member. A JobSet reports Jobs; how many pods each runs at once is `pods`, which
/// `deploy/interpreter-jobset.yaml` adds. Active Jobs are pending until all their pods are ready.
pub(crate) fn counts(status: &Value) -> PodCounts {
    let groups = status.get("replicatedJobsStatus").and_then(Value::as_array);
    groups
        .into_iter()
        .flatten()
        .fold(PodCounts::default(), |sum, group| {
            let each = outcome::number(group, "pods").max(1);
            let pods = |key| outcome::number(group, key).saturating_mul(each);
            let running = pods("ready");
            sum.plus(PodCounts {
                pending: pods("active").saturating_sub(running),
                running,
                succeeded: pods("succeeded"),
                failed: pods("failed"),
            })
        })
}

/// How many Jobs a replicated job makes, and what each of them runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape {
    /// Its Jobs.
    pub(crate) jobs: u64,
    /// Pods of one Job that run at once.
    pub(crate) at_once: u64,
    /// Pods of one Job that have to end well, where that is said.
    pub(crate) completions: Option<u64>,
}

impl Shape {
    /// That of a replicated job that [`size()`] has read.
    pub(crate) fn of(replicated: &Value) -> Self {
        let number = |path| replicated.pointer(path).and_then(Value::as_u64);
        let completions = number("/template/spec/completions");
        let parallelism = number("/template/spec/parallelism").unwrap_or(1);
        Self {
            jobs: number("/replicas").unwrap_or(1),
            at_once: completions.map_or(parallelism, |bound| parallelism.min(bound)),
            completions,
        }
    }

    /// Whether there is never more than one pod of it, so that one cluster gets it.
    pub(crate) fn is_one_pod(self) -> bool {
        self.jobs == 1 && self.at_once == 1
    }
}

/// Its replicated jobs.
pub(crate) fn replicated_jobs(template: &Value) -> &[Value] {
    let jobs = template
        .pointer("/spec/replicatedJobs")
        .and_then(Value::as_array);
    jobs.map_or(&[], Vec::as_slice)
}

/// The replicated jobs that its success policy names.
pub(crate) fn targets(template: &Value) -> Vec<&str> {
    let names = template.pointer("/spec/successPolicy/targetReplicatedJobs");
    let names = names.and_then(Value::as_array).into_iter().flatten();
    names.filter_map(Value::as_str).collect()
}

/// The name of a replicated job.
pub(crate) fn name(replicated: &Value) -> &str {
    outcome::text(replicated, "name")
}

/// The name by which pods of the same cluster reach the first pod of its first replicated job:
/// `<jobset>-<replicated job>-<job>-<pod>.<subdomain>` (`GenPodName` and `GetSubdomain`, v0.11).
/// Its webhook has Jobs indexed and their pods named unless the template says otherwise.
pub(crate) fn first_host(template: &Value) -> Option<String> {
    let text = |path| template.pointer(path).and_then(Value::as_str);
    let first = replicated_jobs(template).first()?;
    let named = template.pointer("/spec/network/enableDNSHostnames");
    if !is_indexed(first) || named.and_then(Value::as_bool) == Some(false) {
        return None;
    }
    let set = text("/metadata/name")?;
    let subdomain = text("/spec/network/subdomain").filter(|subdomain| !subdomain.is_empty());
    let subdomain = subdomain.unwrap_or(set);
    Some(format!("{set}-{}-0-0.{subdomain}", name(first)))
}

/// Whether pods of a Job of a replicated job have indexes: they do unless it says otherwise.
pub(crate) fn is_indexed(replicated: &Value) -> bool {
    let mode = replicated.pointer("/template/spec/completionMode");
    mode.and_then(Value::as_str)
        .is_none_or(|mode| mode == "Indexed")
}

#[cfg(test)]
mod tests;
