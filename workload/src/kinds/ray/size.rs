//! The size of a RayCluster, of a RayJob with the pod that submits it, and of a RayService with the clusters
//! of an upgrade, by KubeRay's rules.

use super::{HEAD, SUBMITTER, added_init, group_name, keeps_cluster};
use crate::error::SpecError;
use crate::field::{Field, MAX_PODS};
use crate::pod::{self, PodRequirements, cpu_and_memory};
use crate::size::{self, Size};
use facts::{Resources, Role};

/// Label with which KubeRay sets the PriorityClass of a cluster's gang.
const PRIORITY_LABEL: &str = "ray.io/priority-class-name";

/// How long KubeRay keeps the old cluster of a RayService after an upgrade by default
/// (`RayClusterDeletionDelayDuration`).
const KEPT_SECONDS: i64 = 60;

/// Head, workers, and the class that the head's pod names.
struct RayRoles {
    roles: Vec<Role>,
    min_available: u32,
    priority_class: Option<String>,
}

/// Returns the size of a RayCluster.
pub(super) fn of_cluster(template: &Field<'_>) -> Result<Size, SpecError> {
    let spec = template.get("spec")?;
    let cluster = cluster(&spec, None)?;
    let suspended = spec.get("suspend")?.flag()?;
    gang(template, &spec, cluster, suspended, None)
}

/// Returns the size of a RayJob: its cluster, and the pod that submits to it.
pub(super) fn of_job(template: &Field<'_>) -> Result<Size, SpecError> {
    let spec = template.get("spec")?;
    let mode = spec.get("submissionMode")?.name()?.unwrap_or("K8sJobMode");
    let in_head = (mode == "SidecarMode").then(default_submitter);
    let cluster_spec = spec.get("rayClusterSpec")?;
    let mut whole = if cluster_spec.is_set() {
        cluster(&cluster_spec, in_head.as_ref())?
    } else if spec.get("clusterSelector")?.is_set() {
        // It runs in an existing cluster, which is charged separately.
        RayRoles {
            roles: Vec::new(),
            min_available: 0,
            priority_class: None,
        }
    } else {
        return Err(cluster_spec.invalid("the cluster to run in, or a clusterSelector"));
    };
    let submitters = u32::from(mode == "K8sJobMode");
    if submitters > 0 || whole.roles.is_empty() {
        // It starts when the cluster is up, so it is no part of the gang.
        whole
            .roles
            .push(submitter(&spec)?.role(SUBMITTER, submitters, 0)?);
    }
    let suspended = spec.get("suspend")?.flag()?;
    let deadline = size::deadline(&spec.get("activeDeadlineSeconds")?)?;
    let keeps_pods = template.value().is_some_and(keeps_cluster);
    Ok(Size {
        keeps_pods,
        ..gang(template, &spec, whole, suspended, deadline)?
    })
}

/// Returns the size of a RayService, of which `clusters` may run at the same time. It starts with one.
pub(super) fn of_service(template: &Field<'_>, clusters: u32) -> Result<Size, SpecError> {
    let spec = template.get("spec")?;
    let cluster_spec = spec.get("rayClusterConfig")?;
    if !cluster_spec.is_set() {
        return Err(cluster_spec.invalid("the cluster that serves"));
    }
    let mut all = cluster(&cluster_spec, None)?;
    for role in &mut all.roles {
        role.count = size::times(&cluster_spec, role.count, clusters)?;
        if role.request.checked_mul(role.count).is_none() {
            let what = format!("{} pods of {}", role.count, role.request);
            return Err(SpecError::too_large(cluster_spec.path(), what));
        }
    }
    let kept = spec.get("rayClusterDeletionDelaySeconds")?;
    if clusters > 1
        && kept
            .seconds()?
            .is_some_and(|seconds| seconds > KEPT_SECONDS)
    {
        return Err(kept.invalid(format!(
            "at most {KEPT_SECONDS}, unless spec.upgradeStrategy.type is None: a cluster that stays beside those of the next upgrade would not be charged"
        )));
    }
    let suspended = spec.get("suspend")?.flag()? || cluster_spec.get("suspend")?.flag()?;
    gang(template, &spec, all, suspended, None)
}

fn gang(
    template: &Field<'_>,
    spec: &Field<'_>,
    cluster: RayRoles,
    suspended: bool,
    duration_ms: Option<i64>,
) -> Result<Size, SpecError> {
    let label = template
        .get("metadata.labels")?
        .entry(PRIORITY_LABEL)?
        .name()?
        .map(str::to_owned);
    let min_task_member = cluster
        .roles
        .iter()
        .map(|role| (role.name.clone(), role.min))
        .collect();
    Ok(Size {
        min_task_member,
        priority_class: label.or(cluster.priority_class),
        suspended,
        duration_ms,
        ..Size::gang(spec, cluster.roles, cluster.min_available)?
    })
}

/// Returns head and workers of a cluster; `beside` is one more container in its head.
fn cluster(spec: &Field<'_>, beside: Option<&Resources>) -> Result<RayRoles, SpecError> {
    let autoscaling = spec.get("enableInTreeAutoscaling")?.flag()?;
    let mut head = PodRequirements::read(&spec.get("headGroupSpec.template.spec")?)?;
    if let Some(container) = beside {
        head = head.and(container)?;
    }
    if autoscaling {
        head = head.and(&autoscaler(spec)?)?;
    }
    let priority_class = head.priority_class.clone();
    let mut roles = vec![head.role(HEAD, 1, 1)?];
    for (index, group) in spec.get("workerGroupSpecs")?.items()?.iter().enumerate() {
        roles.push(workers(group, index, autoscaling)?);
    }
    let min_available = roles
        .iter()
        .fold(0_u32, |sum, role| sum.saturating_add(role.min));
    Ok(RayRoles {
        roles,
        min_available,
        priority_class,
    })
}

/// Returns a group of workers: its maximum if an autoscaler runs, or else its replicas within its bounds;
/// each replica may have several hosts.
fn workers(group: &Field<'_>, index: usize, autoscaling: bool) -> Result<Role, SpecError> {
    let name = group_name(index, group.get("groupName")?.text()?);
    let min = group.get("minReplicas")?.count()?.unwrap_or(0);
    let most = most_replicas(&group.get("maxReplicas")?, autoscaling)?;
    let replicas = if group.get("suspend")?.flag()? {
        0
    } else if autoscaling {
        most
    } else {
        group
            .get("replicas")?
            .count()?
            .unwrap_or(min)
            .max(min)
            .min(most)
    };
    let hosts = group.get("numOfHosts")?.count()?.unwrap_or(1);
    let pods = size::times(group, replicas, hosts)?;
    let needed = size::times(group, min.min(replicas), hosts)?;
    let added = added_init();
    let spec = group.get("template.spec")?;
    PodRequirements::read_with(&spec, added.in_role(&name))?.role(name, pods, needed)
}

/// Returns the upper bound of a group. Its schema's default is 2147483647, which only limits the replicas;
/// an autoscaler may really start that many.
fn most_replicas(field: &Field<'_>, autoscaling: bool) -> Result<u32, SpecError> {
    let most = match field.value() {
        None => None,
        Some(value) => Some(
            value
                .as_u64()
                .ok_or_else(|| field.invalid("a whole number from 0"))?,
        ),
    };
    match most.and_then(|most| u32::try_from(most).ok()).filter(|most| *most <= MAX_PODS) {
        Some(most) => Ok(most),
        None if !autoscaling => Ok(u32::MAX),
        None => Err(field.invalid(format!(
            "a number up to {MAX_PODS}: with enableInTreeAutoscaling every worker that may be started is charged"
        ))),
    }
}

/// Returns the container that KubeRay adds to the head of a cluster with autoscaling.
fn autoscaler(spec: &Field<'_>) -> Result<Resources, SpecError> {
    let own = spec.get("autoscalerOptions.resources")?;
    if own.is_set() {
        pod::requirements(&own)
    } else {
        Ok(cpu_and_memory(500, 512 << 20))
    }
}

/// Returns the pod that submits, as specified or as KubeRay creates it.
fn submitter(spec: &Field<'_>) -> Result<PodRequirements, SpecError> {
    let own = spec.get("submitterPodTemplate.spec")?;
    if own.is_set() {
        PodRequirements::read(&own)
    } else {
        Ok(PodRequirements::with(
            own.path(),
            default_submitter(),
            Vec::new(),
            Vec::new(),
        ))
    }
}

fn default_submitter() -> Resources {
    cpu_and_memory(500, 200 << 20)
}
