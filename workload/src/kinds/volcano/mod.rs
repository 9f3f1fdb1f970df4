//! Volcano Jobs (batch.volcano.sh), with the defaults of Volcano's webhook, which may be missing on the
//! control plane (pkg/webhooks/admission/jobs/mutate, v1.14).

mod completing;
mod parts;
mod policies;
mod resize;
mod unsplittable;

use super::{KnownKind, PartFields, WorkloadKind, known};
use crate::dependencies::NamedObjects;
use crate::error::SpecError;
use crate::field::Field;
use crate::outcome::{self, Outcome, PodCounts};
use crate::parts::{Fields, PartResizing};
use crate::pod::PodRequirements;
use crate::policies::{GangAction, GangPolicies};
use crate::queued_status::QueuedStatus;
use crate::size::{self, PriorityOf, Size};
use crate::ttl::TtlField;
use crate::{pod_specs, services, warnings};
use facts::{Resources, Role};
use serde_json::Value;
use std::collections::BTreeMap;

struct VolcanoTask {
    role: Role,
    /// Its own minimum, as in `minTaskMember`.
    min: u32,
    /// The value of its pods' PriorityClass; 0 if unknown.
    priority: i32,
}

/// Volcano Jobs.
pub(crate) struct VolcanoJobKind;

impl WorkloadKind for VolcanoJobKind {
    fn api(&self) -> KnownKind {
        known("batch.volcano.sh", "v1alpha1", "Job", "jobs")
    }

    fn size(&self, template: &Field<'_>, priority_of: PriorityOf<'_>) -> Result<Size, SpecError> {
        size(template, priority_of)
    }

    fn pod_templates<'a>(&self, template: &'a Value) -> Vec<&'a Value> {
        let tasks = tasks(template).iter();
        tasks.filter_map(|task| task.get("template")).collect()
    }

    fn pod_specs<'a>(&self, spec: &'a mut Value) -> Vec<(String, &'a mut Value)> {
        pod_specs::listed(spec.get_mut("tasks"), "name", "/template/spec", task_name)
    }

    fn part_outcome(&self, status: &Value) -> Outcome {
        let state = status.get("state").unwrap_or(&Value::Null);
        match outcome::text(state, "phase") {
            "Completed" => Outcome::Succeeded,
            phase @ ("Failed" | "Terminated") => Outcome::failed(&[
                phase,
                outcome::text(state, "reason"),
                outcome::text(state, "message"),
            ]),
            // By a Command or a policy; it can be resumed, and has no pods until then.
            "Aborted" => Outcome::Suspended,
            "" => Outcome::Unknown,
            _ => Outcome::Active,
        }
    }

    fn counts(&self, status: &Value) -> PodCounts {
        PodCounts {
            pending: outcome::number(status, "pending"),
            running: outcome::number(status, "running"),
            succeeded: outcome::number(status, "succeeded"),
            failed: outcome::number(status, "failed"),
        }
    }

    fn ended_at<'a>(&self, status: &'a Value) -> Option<&'a str> {
        let state = status.get("state")?;
        let phase = outcome::text(state, "phase");
        let over = matches!(phase, "Completed" | "Failed" | "Terminated");
        over.then(|| outcome::text(state, "lastTransitionTime"))
    }

    /// `jobCache` of Volcano's controller (v1.14) tries again and again, at times that double, to drop a job that was
    /// deleted. The last try comes when its pods are gone already, and drops the next job of the name.
    fn may_be_forgotten(&self) -> bool {
        true
    }

    fn queued_status(&self) -> Option<QueuedStatus> {
        Some(QueuedStatus::State)
    }

    fn queue_field(&self) -> Option<&'static str> {
        Some("/spec/queue")
    }

    /// Karmada removes the field from every kind named Job, so no member acts on it.
    fn ttl_field(&self) -> Option<TtlField> {
        Some(TtlField {
            path: "/spec/ttlSecondsAfterFinished",
            in_members: false,
            by_control_plane: false,
        })
    }

    /// Claims that it mounts into all its pods. The member's Volcano creates the claims that the Job defines
    /// itself.
    fn add_dependencies<'a>(&self, template: &'a Value, named: &mut NamedObjects<'a>) {
        let volumes = template.pointer("/spec/volumes").and_then(Value::as_array);
        for volume in volumes.into_iter().flatten() {
            if volume.get("volumeClaim").is_none_or(Value::is_null) {
                named.add("PersistentVolumeClaim", volume.get("volumeClaimName"));
            }
        }
    }

    fn warnings(&self, template: &Value) -> Vec<String> {
        let mut warnings = warnings::long_names(template, "/spec/tasks", "name");
        warnings.extend(policies::refused_by_volcano(template));
        warnings
    }

    fn part_resizing(&self) -> Option<PartResizing> {
        Some(resize::RESIZING)
    }

    fn cap_to_admitted(
        &self,
        _: &Value,
        capped: &Value,
        admitted: &BTreeMap<String, u32>,
    ) -> Option<Fields> {
        resize::cap_to_admitted(capped, admitted)
    }

    fn part_fields(&self) -> Option<PartFields> {
        Some(parts::fields)
    }

    fn unsplittable(&self, template: &Value) -> Option<String> {
        unsplittable::unsplittable(template)
    }

    fn leading_role(&self, template: &Value) -> Option<String> {
        completing::leading_role(template)
    }

    fn gang_policies(&self, template: &Value) -> Option<GangPolicies> {
        Some(policies::gang_policies(template))
    }

    fn gang_action(&self, status: &Value, policies: &GangPolicies) -> Option<GangAction> {
        policies::request(status, policies)
    }

    fn ended_by_rule(&self, status: &Value, policies: Option<&GangPolicies>) -> Option<String> {
        policies::ended_by_rule(status, policies)
    }

    fn succeeded(&self, status: &Value, role: &str) -> u32 {
        let counts = status
            .get("taskStatusCount")
            .and_then(|tasks| tasks.get(role));
        let phases = counts.and_then(|counts| counts.get("phase"));
        phases.map_or(0, |phases| outcome::number(phases, "Succeeded"))
    }

    fn retries(&self, status: &Value) -> u32 {
        outcome::number(status, "retryCount")
    }

    fn limit_retries(&self, template: &mut Value, used: u32) {
        policies::limit_retries(template, used);
    }

    /// Its plugin svc creates a headless Service with the job's name, and names each pod (MakePodName in
    /// pkg/controllers/job/helpers).
    fn first_host(&self, template: &Value) -> Option<String> {
        let text = |path| template.pointer(path).and_then(Value::as_str);
        let name = text("/metadata/name")?;
        template.pointer("/spec/plugins/svc")?;
        let task = task_name(0, text("/spec/tasks/0/name"));
        Some(format!("{name}-{task}-0.{name}"))
    }

    /// createJobPod.
    fn gang_labels(&self, template: &Value, role: &str) -> BTreeMap<String, String> {
        let name = template.pointer("/metadata/name").and_then(Value::as_str);
        services::labels(&[
            ("volcano.sh/job-name", name.unwrap_or_default()),
            ("volcano.sh/task-spec", role),
        ])
    }

    /// createJobPod (pkg/controllers/job/job_controller_util.go).
    fn pod_labels(&self, _: &Value, role: &str, index: u32) -> Option<BTreeMap<String, String>> {
        Some(services::labels(&[
            ("volcano.sh/task-spec", role),
            ("volcano.sh/task-index", &index.to_string()),
        ]))
    }
}

fn size(template: &Field<'_>, priority_of: PriorityOf<'_>) -> Result<Size, SpecError> {
    let spec = template.get("spec")?;
    let tasks_field = spec.get("tasks")?;
    let mut tasks = tasks_field
        .items()?
        .iter()
        .enumerate()
        .map(|(index, field)| task(index, field, priority_of))
        .collect::<Result<Vec<_>, _>>()?;
    if tasks.is_empty() {
        return Err(tasks_field.invalid("at least one task"));
    }
    let min_available = min_available(&spec.get("minAvailable")?, &tasks)?;
    // If the job needs fewer pods than the sum of its tasks' minimums, Volcano ignores each task's own
    // minimum (pkg/scheduler/api/job_info.go, CheckTaskMinAvailable).
    if u64::from(min_available) < task_minimum(&tasks) {
        tasks.iter_mut().for_each(|task| task.role.min = 0);
    }
    let roles = tasks.iter().map(|task| task.role.clone()).collect();
    let gang = Size::gang(&tasks_field, roles, min_available)?;
    Ok(Size {
        min_resources: min_resources(&tasks_field, &tasks, min_available)?,
        min_task_member: tasks
            .into_iter()
            .map(|task| (task.role.name, task.min))
            .collect(),
        priority_class: spec.get("priorityClassName")?.name()?.map(str::to_owned),
        duration_ms: crate::duration::millis(&spec.get("runningEstimate")?)?,
        network_topology: spec.get("networkTopology")?.value().cloned(),
        ..gang
    })
}

fn task(
    index: usize,
    task: &Field<'_>,
    priority_of: PriorityOf<'_>,
) -> Result<VolcanoTask, SpecError> {
    let name = task_name(index, task.get("name")?.text()?);
    let replicas = task.get("replicas")?.count()?.unwrap_or(0);
    let min = task_min(task, replicas)?;
    let pod = PodRequirements::read(&task.get("template.spec")?)?;
    let priority = pod
        .priority_class
        .as_deref()
        .and_then(priority_of)
        .unwrap_or(0);
    Ok(VolcanoTask {
        role: pod.role(name, replicas, min)?,
        min,
        priority,
    })
}

/// Returns a task's name; the default of Volcano's webhook if it has none.
pub(crate) fn task_name(index: usize, name: Option<&str>) -> String {
    match name {
        Some(name) if !name.is_empty() => name.to_owned(),
        _ => format!("default{index}"),
    }
}

/// Volcano's getMinTaskMember: the task's own minimum, or that of its partitions, or all pods.
fn task_min(task: &Field<'_>, replicas: u32) -> Result<u32, SpecError> {
    let field = task.get("minAvailable")?;
    if let Some(min) = field.count()? {
        let at_most = || field.invalid(format!("at most {replicas}, the task's replicas"));
        return if min <= replicas {
            Ok(min)
        } else {
            Err(at_most())
        };
    }
    let policy = task.get("partitionPolicy")?;
    let partitions = policy.get("minPartitions")?.count()?.unwrap_or(0);
    let size = policy.get("partitionSize")?.count()?.unwrap_or(0);
    if partitions == 0 || size == 0 {
        return Ok(replicas);
    }
    let min = size::times(&policy, partitions, size)?;
    if min <= replicas {
        return Ok(min);
    }
    let want = format!("minPartitions × partitionSize of at most {replicas}, the task's replicas");
    Err(policy.invalid(want))
}

/// Returns the job's minimum; the sum of its tasks if it has none.
fn min_available(field: &Field<'_>, tasks: &[VolcanoTask]) -> Result<u32, SpecError> {
    let pods: u64 = tasks.iter().map(|task| u64::from(task.role.count)).sum();
    match field.count()?.filter(|min| *min > 0) {
        Some(min) if u64::from(min) <= pods => Ok(min),
        Some(_) => Err(field.invalid(format!("at most {pods}, the replicas of all tasks"))),
        // More than a u32 holds is refused together with the total.
        None => Ok(u32::try_from(task_minimum(tasks)).unwrap_or(u32::MAX)),
    }
}

fn task_minimum(tasks: &[VolcanoTask]) -> u64 {
    tasks.iter().map(|task| u64::from(task.min)).sum()
}

/// Volcano's calcPGMinResources (pkg/controllers/job): in order of priority of the tasks' pods, first the
/// tasks' minimums, then filled up to the job's minimum. The sum was checked before.
fn min_resources(
    from: &Field<'_>,
    tasks: &[VolcanoTask],
    min_available: u32,
) -> Result<Resources, SpecError> {
    let mut order: Vec<&VolcanoTask> = tasks.iter().collect();
    order.sort_by_key(|task| std::cmp::Reverse(task.priority));
    let by_task = u64::from(min_available) >= task_minimum(tasks);
    let own = |task: &VolcanoTask| if by_task { task.min } else { 0 };
    let mut left = min_available.saturating_sub(order.iter().map(|task| own(task)).sum());
    let counts = order.iter().map(|task| {
        let more = left.min(task.role.count - own(task));
        left -= more;
        (&task.role.request, own(task) + more)
    });
    size::sum(from, counts)
}

fn tasks(template: &Value) -> &[Value] {
    let tasks = template.pointer("/spec/tasks").and_then(Value::as_array);
    tasks.map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests;
