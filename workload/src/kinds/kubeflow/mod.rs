//! Training jobs of Kubeflow: PyTorchJob, TFJob, MPIJob and kin (training-operator v1,
//! mpi-operator v2beta1). They differ in the name of one field and a few defaults.

pub(crate) mod mpi;
mod parts;
pub(crate) mod pytorch;
pub(crate) mod tensorflow;

use crate::error::AskError;
use crate::field::Field;
use crate::outcome::{self, Outcome, PodCounts};
use crate::pod::Pod;
use crate::size::{self, PriorityOf, Size};
use engine::facts::Role;
use serde_json::Value;

/// The field of `kind` that holds its groups of pods.
pub(crate) fn replica_specs(kind: &str) -> Option<&'static str> {
    Some(match kind {
        "PyTorchJob" => "pytorchReplicaSpecs",
        "TFJob" => "tfReplicaSpecs",
        "MPIJob" => "mpiReplicaSpecs",
        "XGBoostJob" => "xgbReplicaSpecs",
        "PaddleJob" => "paddleReplicaSpecs",
        "JAXJob" => "jaxReplicaSpecs",
        _ => return None,
    })
}

struct Group {
    role: Role,
    /// Its replicas as stated; the role counts what an autoscaler may add, too.
    replicas: u32,
    priority_class: Option<String>,
}

/// What a training job asks for.
pub(crate) fn size(template: &Field<'_>, _: PriorityOf<'_>) -> Result<Size, AskError> {
    let kind = template.get("kind")?;
    let field = kind
        .text()?
        .and_then(replica_specs)
        .ok_or_else(|| kind.invalid("a kind of Kubeflow"))?;
    let spec = template.get("spec")?;
    let specs = spec.get(field)?;
    let groups = groups(template, &spec, &specs)?;
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

/// Its groups of pods, those that lead first (the order in which mpi-operator looks for the
/// priority of the whole).
fn groups(
    template: &Field<'_>,
    spec: &Field<'_>,
    specs: &Field<'_>,
) -> Result<Vec<Group>, AskError> {
    let mut groups = Vec::new();
    for (key, field) in specs.entries()? {
        let name = key.to_lowercase();
        let replicas = field
            .get("replicas")?
            .count()?
            .unwrap_or(default_replicas(template, &name)?);
        let most = if name == "worker" {
            elastic_most(spec, replicas)?
        } else {
            replicas
        };
        let pod = Pod::read(&field.get("template.spec")?)?;
        let priority_class = pod.priority_class.clone();
        groups.push(Group {
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

/// Replicas of a group that names none: one; mpi-operator starts no worker then.
fn default_replicas(template: &Field<'_>, name: &str) -> Result<u32, AskError> {
    let is_mpi_operator = template.get("kind")?.text()? == Some("MPIJob")
        && template.get("apiVersion")?.text()? != Some("kubeflow.org/v1");
    Ok(u32::from(!(is_mpi_operator && name == "worker")))
}

/// Workers that the members may start: training-operator makes an autoscaler for an elastic
/// policy that names metrics, and only then.
fn elastic_most(spec: &Field<'_>, replicas: u32) -> Result<u32, AskError> {
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

/// The gang's minimum: what the policy says, else all replicas as stated.
fn min_available(field: &Field<'_>, groups: &[Group]) -> Result<u32, AskError> {
    let stated: u64 = groups.iter().map(|group| u64::from(group.replicas)).sum();
    let most: u64 = groups.iter().map(|group| u64::from(group.role.count)).sum();
    match field.count()? {
        Some(min) if u64::from(min) <= most => Ok(min),
        Some(_) => Err(field.invalid(format!("at most {most}, all its replicas"))),
        // More than fits a u32 is refused with the total.
        None => Ok(u32::try_from(stated).unwrap_or(u32::MAX)),
    }
}

/// The roles with their minimums: those that lead come first, workers fill the gang.
fn roles(groups: Vec<Group>, min_available: u32) -> Vec<Role> {
    let mut left = min_available;
    let fill = |group: Group| {
        let min = left.min(group.role.count).min(group.replicas);
        left -= min;
        Role { min, ..group.role }
    };
    groups.into_iter().map(fill).collect()
}

/// The pod templates of its groups.
pub(crate) fn pod_templates(template: &Value) -> Vec<&Value> {
    let kind = template
        .get("kind")
        .and_then(Value::as_str)
        .unwrap_or_default();
    replica_specs(kind)
        .and_then(|field| template.get("spec")?.get(field)?.as_object())
        .map(|groups| {
            groups
                .values()
                .filter_map(|group| group.get("template"))
                .collect()
        })
        .unwrap_or_default()
}

/// Where a part of it is.
pub(crate) fn part(status: &Value) -> Outcome {
    if let Some(failed) = outcome::condition(status, "Failed") {
        return outcome::failed_by(failed);
    }
    if outcome::condition(status, "Succeeded").is_some() {
        return Outcome::Succeeded;
    }
    if outcome::condition(status, "Suspended").is_some() {
        return Outcome::Suspended;
    }
    outcome::active_if_told(status)
}

/// Its pods in one member, over all groups; the operators tell nothing of pending pods.
pub(crate) fn counts(status: &Value) -> PodCounts {
    let groups = status.get("replicaStatuses").and_then(Value::as_object);
    let each = groups.into_iter().flat_map(|groups| groups.values());
    each.fold(PodCounts::default(), |sum, group| {
        sum.plus(PodCounts {
            pending: 0,
            running: outcome::number(group, "active"),
            succeeded: outcome::number(group, "succeeded"),
            failed: outcome::number(group, "failed"),
        })
    })
}

#[cfg(test)]
mod tests;
