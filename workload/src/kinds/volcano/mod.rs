//! Volcano Jobs (batch.volcano.sh), with the defaults of Volcano's webhook, which need not be
//! there on the control plane (pkg/webhooks/admission/jobs/mutate, v1.14).

use crate::error::AskError;
use crate::field::Field;
use crate::outcome::{self, Outcome, PodCounts};
use crate::pod::Pod;
use crate::size::{self, PriorityOf, Size};
use engine::Resources;
use engine::facts::Role;
use serde_json::Value;

/// Longest name of a component in a binding (work.karmada.io, `Component.name`).
pub(crate) const COMPONENT_NAME_CHARS: usize = 32;

struct Task {
    role: Role,
    /// Its own minimum, as it goes into `minTaskMember`.
    min: u32,
    /// The value of its pods' PriorityClass, 0 where that is not known.
    priority: i32,
}

/// What a Volcano Job asks for.
pub(crate) fn size(template: &Field<'_>, priority_of: PriorityOf<'_>) -> Result<Size, AskError> {
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
    // Where the job needs fewer pods than its tasks add up to, Volcano looks at no task's own
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

fn task(index: usize, task: &Field<'_>, priority_of: PriorityOf<'_>) -> Result<Task, AskError> {
    let name = task_name(index, task.get("name")?.text()?);
    let replicas = task.get("replicas")?.count()?.unwrap_or(0);
    let min = task_min(task, replicas)?;
    let pod = Pod::read(&task.get("template.spec")?)?;
    let priority = pod
        .priority_class
        .as_deref()
        .and_then(priority_of)
        .unwrap_or(0);
    Ok(Task {
        role: pod.role(name, replicas, min)?,
        min,
        priority,
    })
}

/// A task's name; what Volcano's webhook gives one that has none.
pub(crate) fn task_name(index: usize, name: Option<&str>) -> String {
    match name {
        Some(name) if !name.is_empty() => name.to_owned(),
        _ => format!("default{index}"),
    }
}

/// Volcano's getMinTaskMember: its own minimum, else that of its partitions, else all.
fn task_min(task: &Field<'_>, replicas: u32) -> Result<u32, AskError> {
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

/// The job's minimum; what its tasks add up to where it names none.
fn min_available(field: &Field<'_>, tasks: &[Task]) -> Result<u32, AskError> {
    let pods: u64 = tasks.iter().map(|task| u64::from(task.role.count)).sum();
    match field.count()?.filter(|min| *min > 0) {
        Some(min) if u64::from(min) <= pods => Ok(min),
        Some(_) => Err(field.invalid(format!("at most {pods}, the replicas of all tasks"))),
        // More than fits a u32 is refused with the total.
        None => Ok(u32::try_from(task_minimum(tasks)).unwrap_or(u32::MAX)),
    }
}

fn task_minimum(tasks: &[Task]) -> u64 {
    tasks.iter().map(|task| u64::from(task.min)).sum()
}

/// Volcano's calcPGMinResources (pkg/controllers/job): by priority of the tasks' pods; what the
/// tasks need first, then filled up to the job's minimum. The tasks add up: they were checked.
fn min_resources(
    from: &Field<'_>,
    tasks: &[Task],
    min_available: u32,
) -> Result<Resources, AskError> {
    let mut order: Vec<&Task> = tasks.iter().collect();
    order.sort_by_key(|task| std::cmp::Reverse(task.priority));
    let by_task = u64::from(min_available) >= task_minimum(tasks);
    let own = |task: &Task| if by_task { task.min } else { 0 };
    let mut left = min_available.saturating_sub(order.iter().map(|task| own(task)).sum());
    let counts = order.iter().map(|task| {
        let more = left.min(task.role.count - own(task));
        left -= more;
        (&task.role.request, own(task) + more)
    });
    size::sum(from, counts)
}

/// The pod templates of its tasks.
pub(crate) fn pod_templates(template: &Value) -> Vec<&Value> {
    tasks(template)
        .iter()
        .filter_map(|task| task.get("template"))
        .collect()
}

fn tasks(template: &Value) -> &[Value] {
    let tasks = template.pointer("/spec/tasks").and_then(Value::as_array);
    tasks.map_or(&[], Vec::as_slice)
}

/// Where a part of it is.
pub(crate) fn part(status: &Value) -> Outcome {
    let state = status.get("state").unwrap_or(&Value::Null);
    match outcome::text(state, "phase") {
        "Completed" => Outcome::Succeeded,
        phase @ ("Failed" | "Terminated") => Outcome::failed(&[
            phase,
            outcome::text(state, "reason"),
            outcome::text(state, "message"),
        ]),
        // By a Command or a policy; it can be resumed, and holds no pods until then.
        "Aborted" => Outcome::Suspended,
        "" => Outcome::Unknown,
        _ => Outcome::Active,
    }
}

/// Its pods in one member.
pub(crate) fn counts(status: &Value) -> PodCounts {
    PodCounts {
        pending: outcome::number(status, "pending"),
        running: outcome::number(status, "running"),
        succeeded: outcome::number(status, "succeeded"),
        failed: outcome::number(status, "failed"),
    }
}

#[cfg(test)]
mod tests;
