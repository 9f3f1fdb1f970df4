//! The size of a training job: its groups of pods, and the minimum of its scheduling policy.

use super::TrainingJobKind;
use crate::error::SpecError;
use crate::field::Field;
use crate::pod::PodRequirements;
use crate::size::{self, Size};
use facts::Role;

struct ReplicaGroup {
    role: Role,
    /// Its replicas as specified; the role also counts what an autoscaler may add.
    replicas: u32,
    priority_class: Option<String>,
}

/// Returns the size of a training job of `kind`.
pub(super) fn size(kind: &TrainingJobKind, template: &Field<'_>) -> Result<Size, SpecError> {
    let spec = template.get("spec")?;
    let specs = spec.get(kind.groups)?;
    let groups = groups(kind, template, &spec, &specs)?;
    if groups.is_empty() {
        return Err(specs.invalid("at least one group of replicas"));
    }
    let policy = spec.get("runPolicy.schedulingPolicy")?;
    let min_available = min_available(&policy.get("minAvailable")?, &groups)?;
    let priority_class = match policy.get("priorityClass")?.name()? {
        Some(class) => Some(class.to_owned()),
        None => groups.iter().find_map(|group| group.priority_class.clone()),
    };
    let mut size = Size::gang(&specs, roles(groups, min_available), min_available)?;
    if policy.get("minResources")?.is_set() {
        size.min_resources = policy.get("minResources")?.resources()?;
    }
    Ok(Size {
        priority_class,
        suspended: spec.get("runPolicy.suspend")?.flag()?,
        duration_ms: size::deadline(&spec.get("runPolicy.activeDeadlineSeconds")?)?,
        ..size
    })
}

/// Returns its groups of pods, the leading ones first (mpi-operator looks for the priority of the job in
/// this order).
fn groups(
    kind: &TrainingJobKind,
    template: &Field<'_>,
    spec: &Field<'_>,
    specs: &Field<'_>,
) -> Result<Vec<ReplicaGroup>, SpecError> {
    let api_version = template.get("apiVersion")?.text()?.unwrap_or_default();
    let added = template.value().and_then(kind.added_init);
    let mut groups = Vec::new();
    for (key, field) in specs.entries()? {
        let name = key.to_lowercase();
        let replicas = field
            .get("replicas")?
            .count()?
            .unwrap_or_else(|| (kind.default_replicas)(api_version, &name));
        let most = if kind.autoscaled && name == "worker" {
            elastic_most(spec, replicas)?
        } else {
            replicas
        };
        let own = added.as_ref().and_then(|added| added.in_role(&name));
        let pod = PodRequirements::read_with(&field.get("template.spec")?, own)?;
        let priority_class = pod.priority_class.clone();
        groups.push(ReplicaGroup {
            role: pod.role(name, most, 0)?,
            replicas,
            priority_class,
        });
    }
    groups.sort_by(|a, b| order(&a.role.name).cmp(&order(&b.role.name)));
    Ok(groups)
}

fn order(name: &str) -> (usize, &str) {
    const LEADERS: [&str; 5] = ["launcher", "master", "chief", "ps", "scheduler"];
    (
        LEADERS
            .iter()
            .position(|leader| *leader == name)
            .unwrap_or(LEADERS.len()),
        name,
    )
}

/// Returns the workers that the members may start: training-operator creates an autoscaler for a PyTorchJob's
/// elastic policy with metrics (hpa.go, v1.9), and only then.
fn elastic_most(spec: &Field<'_>, replicas: u32) -> Result<u32, SpecError> {
    let policy = spec.get("elasticPolicy")?;
    if policy.get("metrics")?.items()?.is_empty() {
        return Ok(replicas);
    }
    Ok(policy
        .get("maxReplicas")?
        .count()?
        .unwrap_or(replicas)
        .max(replicas))
}

/// Returns the gang's minimum: from the policy, or else all replicas as specified.
fn min_available(field: &Field<'_>, groups: &[ReplicaGroup]) -> Result<u32, SpecError> {
    let stated: u64 = groups.iter().map(|group| u64::from(group.replicas)).sum();
    let most: u64 = groups.iter().map(|group| u64::from(group.role.count)).sum();
    match field.count()? {
        Some(min) if u64::from(min) <= most => Ok(min),
        Some(_) => Err(field.invalid(format!("at most {most}, all its replicas"))),
        // More than a u32 holds is refused together with the total.
        None => Ok(u32::try_from(stated).unwrap_or(u32::MAX)),
    }
}

/// Returns the roles with their minimums: the leading ones first, then workers fill the gang.
fn roles(groups: Vec<ReplicaGroup>, min_available: u32) -> Vec<Role> {
    let mut left = min_available;
    let fill = |group: ReplicaGroup| {
        let min = left.min(group.role.count).min(group.replicas);
        left -= min;
        Role { min, ..group.role }
    };
    groups.into_iter().map(fill).collect()
}
