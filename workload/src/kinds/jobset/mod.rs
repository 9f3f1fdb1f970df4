//! JobSets (jobset.x-k8s.io): groups of identical batch/v1 Jobs.

mod parts;
mod unsplittable;

use super::batch;
use super::{KnownKind, PartFields, WorkloadKind, known};
use crate::error::SpecError;
use crate::field::Field;
use crate::outcome::{self, Outcome, PodCounts};
use crate::parts::Fields;
use crate::pod::PodRequirements;
use crate::policies::GangPolicies;
use crate::rendezvous::Meeting;
use crate::size::{self, PriorityOf, Size};
use crate::ttl::TtlField;
use crate::{pod_specs, services};
use facts::Role;
use serde_json::Value;
use std::collections::BTreeMap;

/// JobSets.
pub(crate) struct JobSetKind;

impl WorkloadKind for JobSetKind {
    fn api(&self) -> KnownKind {
        known("jobset.x-k8s.io", "v1alpha2", "JobSet", "jobsets")
    }

    fn size(&self, template: &Field<'_>, _: PriorityOf<'_>) -> Result<Size, SpecError> {
        size(template)
    }

    /// The pod templates of its Jobs.
    fn pod_templates<'a>(&self, template: &'a Value) -> Vec<&'a Value> {
        let jobs = replicated_jobs(template).iter();
        jobs.filter_map(|job| job.pointer("/template/spec/template"))
            .collect()
    }

    fn pod_specs<'a>(&self, spec: &'a mut Value) -> Vec<(String, &'a mut Value)> {
        pod_specs::listed(
            spec.get_mut("replicatedJobs"),
            "name",
            "/template/spec/template/spec",
            |_, name| name.unwrap_or_default().to_owned(),
        )
    }

    fn part_outcome(&self, status: &Value) -> Outcome {
        part_outcome(status)
    }

    fn counts(&self, status: &Value) -> PodCounts {
        counts(status)
    }

    fn ended_at<'a>(&self, status: &'a Value) -> Option<&'a str> {
        let over = outcome::condition(status, "Completed")
            .or_else(|| outcome::condition(status, "Failed"))?;
        Some(outcome::text(over, "lastTransitionTime"))
    }

    fn ttl_field(&self) -> Option<TtlField> {
        Some(TtlField {
            path: "/spec/ttlSecondsAfterFinished",
            in_members: true,
            by_control_plane: false,
        })
    }

    fn cap_to_admitted(
        &self,
        _: &Value,
        capped: &Value,
        admitted: &BTreeMap<String, u32>,
    ) -> Option<Fields> {
        cap_to_admitted(capped, admitted)
    }

    fn part_fields(&self) -> Option<PartFields> {
        Some(parts::fields)
    }

    fn unsplittable(&self, template: &Value) -> Option<String> {
        unsplittable::unsplittable(template)
    }

    /// Each of its pods knows the address of the coordinator.
    fn meeting(&self, template: &Field<'_>) -> Result<Meeting, SpecError> {
        Ok(match template.get("spec.coordinator")?.is_set() {
            true => Meeting::First,
            false => Meeting::Nobody,
        })
    }

    /// The only replicated job that the success policy names, if other replicated jobs exist. If it is the
    /// only one, every part has to succeed.
    fn leading_role(&self, template: &Value) -> Option<String> {
        let target = match *targets(template) {
            [target] => target,
            _ => return None,
        };
        let mut jobs = replicated_jobs(template).iter();
        let job = jobs.find(|job| name(job) == target)?;
        ReplicatedJobSize::of(job)
            .is_one_pod()
            .then(|| target.to_owned())
    }

    fn ended_by_rule(&self, status: &Value, _: Option<&GangPolicies>) -> Option<String> {
        let failed = outcome::condition(status, "Failed")?;
        let by_rule = outcome::text(failed, "reason") == "FailJobSetFailurePolicyAction";
        by_rule.then(|| "spec.failurePolicy (FailJobSet)".to_owned())
    }

    fn first_host(&self, template: &Value) -> Option<String> {
        first_host(template)
    }

    /// labelAndAnnotateObject of the JobSet controller.
    fn gang_labels(&self, template: &Value, role: &str) -> BTreeMap<String, String> {
        let name = template.pointer("/metadata/name").and_then(Value::as_str);
        services::labels(&[
            ("jobset.sigs.k8s.io/jobset-name", name.unwrap_or_default()),
            ("jobset.sigs.k8s.io/replicatedjob-name", role),
        ])
    }

    /// Without hostnames of their Jobs, pods have no index that other clusters can use.
    fn pod_labels(
        &self,
        template: &Value,
        role: &str,
        index: u32,
    ) -> Option<BTreeMap<String, String>> {
        first_host(template)?;
        Some(services::labels(&[
            ("jobset.sigs.k8s.io/replicatedjob-name", role),
            ("jobset.sigs.k8s.io/job-index", &index.to_string()),
            ("batch.kubernetes.io/job-completion-index", "0"),
        ]))
    }
}

/// All pods of all Jobs, unless its annotation lowers the minimum.
fn size(template: &Field<'_>) -> Result<Size, SpecError> {
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

fn role(job: &Field<'_>) -> Result<(Role, Option<String>), SpecError> {
    let name = job.get("name")?;
    let name = name.name()?.ok_or_else(|| name.invalid("a name"))?;
    let jobs = job.get("replicas")?.count()?.unwrap_or(1);
    let spec = job.get("template.spec")?;
    let pods = size::times(job, jobs, batch::pods_at_once(&spec)?)?;
    let pod = PodRequirements::read(&spec.get("template.spec")?)?;
    let class = pod.priority_class.clone();
    Ok((pod.role(name, pods, pods)?, class))
}

/// Returns the outcome of a part.
fn part_outcome(status: &Value) -> Outcome {
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
    outcome::active_if_reported(status)
}

/// Returns its pods in one member. A JobSet reports Jobs; the number of pods of each is `pods`, which
/// `deploy/interpreter-jobset.yaml` adds. Active Jobs are pending until all their pods are ready.
fn counts(status: &Value) -> PodCounts {
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

/// Returns the replicated jobs with the admitted number of Jobs.
fn cap_to_admitted(template: &Value, admitted: &BTreeMap<String, u32>) -> Option<Fields> {
    let jobs = template.pointer("/spec/replicatedJobs")?.as_array()?.iter();
    let jobs = jobs.filter_map(|job| {
        let name = job.get("name")?.as_str()?;
        let pods = admitted.get(name).copied().filter(|pods| *pods > 0)?;
        let spec = Field::at("spec", job.pointer("/template/spec")?);
        let each = batch::pods_at_once(&spec).ok()?.max(1);
        let mut job = job.as_object()?.clone();
        job.insert("replicas".into(), (pods / each).into());
        Some(Value::Object(job))
    });
    Some(vec![(
        "/spec/replicatedJobs".to_owned(),
        Value::Array(jobs.collect()),
    )])
}

/// The number of Jobs of a replicated job, and the pods of each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ReplicatedJobSize {
    /// Number of its Jobs.
    jobs: u64,
    /// Pods of one Job that run at the same time.
    at_once: u64,
    /// Pods of one Job that have to succeed, if set.
    completions: Option<u64>,
}

impl ReplicatedJobSize {
    /// Returns the shape of a replicated job that [`size()`] has read.
    fn of(replicated: &Value) -> Self {
        let number = |path| replicated.pointer(path).and_then(Value::as_u64);
        let completions = number("/template/spec/completions");
        let parallelism = number("/template/spec/parallelism").unwrap_or(1);
        Self {
            jobs: number("/replicas").unwrap_or(1),
            at_once: completions.map_or(parallelism, |bound| parallelism.min(bound)),
            completions,
        }
    }

    /// Returns true if it has only one pod at a time, which goes to one cluster.
    fn is_one_pod(self) -> bool {
        self.jobs == 1 && self.at_once == 1
    }
}

/// Returns its replicated jobs.
fn replicated_jobs(template: &Value) -> &[Value] {
    let jobs = template
        .pointer("/spec/replicatedJobs")
        .and_then(Value::as_array);
    jobs.map_or(&[], Vec::as_slice)
}

/// Returns the replicated jobs that its success policy names.
fn targets(template: &Value) -> Vec<&str> {
    let names = template.pointer("/spec/successPolicy/targetReplicatedJobs");
    let names = names.and_then(Value::as_array).into_iter().flatten();
    names.filter_map(Value::as_str).collect()
}

/// Returns the name of a replicated job.
fn name(replicated: &Value) -> &str {
    outcome::text(replicated, "name")
}

/// Returns the name by which pods of the same cluster reach the first pod of its first replicated job:
/// `<jobset>-<replicated job>-<job>-<pod>.<subdomain>` (`GenPodName` and `GetSubdomain`, v0.11). JobSet's
/// webhook makes Jobs indexed and enables hostnames by default.
fn first_host(template: &Value) -> Option<String> {
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

/// Returns true if pods of a Job of a replicated job have indexes, which is the default.
fn is_indexed(replicated: &Value) -> bool {
    let mode = replicated.pointer("/template/spec/completionMode");
    mode.and_then(Value::as_str)
        .is_none_or(|mode| mode == "Indexed")
}

#[cfg(test)]
mod tests;
