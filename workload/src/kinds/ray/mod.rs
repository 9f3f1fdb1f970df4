//! RayCluster and RayJob (ray.io), by KubeRay's rules (ray-operator/controllers/ray, v1.4).

pub(crate) mod parts;
pub(crate) mod unsplittable;

use crate::error::AskError;
use crate::field::{Field, MAX_PODS};
use crate::outcome::{self, Outcome, PodCounts};
use crate::pod::{self, Pod};
use crate::size::{self, PriorityOf, Size};
use engine::Resources;
use engine::facts::Role;
use engine::quantity::Amount;
use engine::resources::ResourceName;
use serde_json::Value;

/// Role of the head, as Karmada names its component.
pub(crate) const HEAD: &str = "ray-head";
/// Role of the pod that submits a RayJob's entrypoint.
pub(crate) const SUBMITTER: &str = "ray-submitter";
/// Where the head listens unless it is told otherwise (`DefaultGcsServerPort`).
const DEFAULT_PORT: &str = "6379";
/// What deploy/interpreter-raycluster.yaml and deploy/interpreter-rayjob.yaml add to the status of a
/// part whose head is in another cluster: the pod that stands for it here counts as none.
const HEAD_ELSEWHERE: &str = "headElsewhere";
/// Label by which KubeRay takes the PriorityClass of a cluster's gang.
const PRIORITY_LABEL: &str = "ray.io/priority-class-name";

/// Head, workers, and the class that the head's pod names.
struct Cluster {
    roles: Vec<Role>,
    min_available: u32,
    priority_class: Option<String>,
}

/// What a RayCluster asks for.
pub(crate) fn cluster_size(template: &Field<'_>, _: PriorityOf<'_>) -> Result<Size, AskError> {
    let spec = template.get("spec")?;
    let cluster = cluster(&spec, None)?;
    let suspended = spec.get("suspend")?.flag()?;
    gang(template, &spec, cluster, suspended, None)
}

/// What a RayJob asks for: its cluster, and the pod that submits to it.
pub(crate) fn job_size(template: &Field<'_>, _: PriorityOf<'_>) -> Result<Size, AskError> {
    let spec = template.get("spec")?;
    let mode = spec.get("submissionMode")?.name()?.unwrap_or("K8sJobMode");
    let in_head = (mode == "SidecarMode").then(default_submitter);
    let cluster_spec = spec.get("rayClusterSpec")?;
    let mut whole = if cluster_spec.is_set() {
        cluster(&cluster_spec, in_head.as_ref())?
    } else if spec.get("clusterSelector")?.is_set() {
        // It runs in a cluster that is there already and charged by itself.
        Cluster {
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

fn gang(
    template: &Field<'_>,
    spec: &Field<'_>,
    cluster: Cluster,
    suspended: bool,
    duration_ms: Option<i64>,
) -> Result<Size, AskError> {
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

/// Head and workers of a cluster; `beside` is one more container in its head.
fn cluster(spec: &Field<'_>, beside: Option<&Resources>) -> Result<Cluster, AskError> {
    let autoscaling = spec.get("enableInTreeAutoscaling")?.flag()?;
    let mut head = Pod::read(&spec.get("headGroupSpec.template.spec")?)?;
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
    Ok(Cluster {
        roles,
        min_available,
        priority_class,
    })
}

/// A group of workers: all that its bounds allow where an autoscaler runs, else its replicas
/// within its bounds; each replica may span several hosts.
fn workers(group: &Field<'_>, index: usize, autoscaling: bool) -> Result<Role, AskError> {
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
    Pod::read(&group.get("template.spec")?)?.role(name, pods, needed)
}

/// The name of a group of workers; Karmada's for one that has none.
pub(crate) fn group_name(index: usize, name: Option<&str>) -> String {
    match name {
        Some(name) if !name.is_empty() => name.to_owned(),
        _ => format!("worker-{}", index + 1),
    }
}

/// The upper bound of a group. Its schema's default is 2147483647, which only bounds what is
/// asked for; an autoscaler may really start that many.
fn most_replicas(field: &Field<'_>, autoscaling: bool) -> Result<u32, AskError> {
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

/// The container that KubeRay adds to the head of a cluster that scales itself.
fn autoscaler(spec: &Field<'_>) -> Result<Resources, AskError> {
    let own = spec.get("autoscalerOptions.resources")?;
    if own.is_set() {
        pod::requirements(&own)
    } else {
        Ok(cpu_and_memory(500, 512 << 20))
    }
}

/// The pod that submits, as stated or as KubeRay makes it.
fn submitter(spec: &Field<'_>) -> Result<Pod, AskError> {
    let own = spec.get("submitterPodTemplate.spec")?;
    if own.is_set() {
        Pod::read(&own)
    } else {
        Ok(Pod::with(
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

fn cpu_and_memory(milli: i64, bytes: i64) -> Resources {
    [(ResourceName::CPU, milli), (ResourceName::MEMORY, bytes)]
        .map(|(name, amount)| (ResourceName::new(name), Amount(amount)))
        .into_iter()
        .collect()
}

/// Whether the cluster of the RayJob `template`, or its head, stays up when the job is over:
/// KubeRay's default.
pub(crate) fn keeps_cluster(template: &Value) -> bool {
    let spec = template.get("spec").unwrap_or(&Value::Null);
    let shuts_down = spec
        .get("shutdownAfterJobFinishes")
        .and_then(Value::as_bool)
        == Some(true);
    let Some(strategy) = spec.get("deletionStrategy").and_then(Value::as_object) else {
        return !shuts_down && spec.get("rayClusterSpec").is_some();
    };
    let rules = strategy
        .get("deletionRules")
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    let mut ends = rules
        .chain(strategy.get("onSuccess"))
        .chain(strategy.get("onFailure"));
    let deletes =
        |end: &Value| matches!(outcome::text(end, "policy"), "DeleteCluster" | "DeleteSelf");
    !ends.any(deletes)
}

/// The pod templates of a RayCluster.
pub(crate) fn cluster_pod_templates(template: &Value) -> Vec<&Value> {
    template.get("spec").map(pod_templates).unwrap_or_default()
}

/// The pod templates of a RayJob.
pub(crate) fn job_pod_templates(template: &Value) -> Vec<&Value> {
    let mut templates = template
        .pointer("/spec/rayClusterSpec")
        .map(pod_templates)
        .unwrap_or_default();
    templates.extend(template.pointer("/spec/submitterPodTemplate"));
    templates
}

fn pod_templates(cluster: &Value) -> Vec<&Value> {
    let groups = cluster.get("workerGroupSpecs").and_then(Value::as_array);
    let workers = groups
        .into_iter()
        .flatten()
        .filter_map(|group| group.get("template"));
    cluster
        .pointer("/headGroupSpec/template")
        .into_iter()
        .chain(workers)
        .collect()
}

/// Whether it is a RayJob, which has its RayCluster within.
pub(crate) fn is_job(template: &Value) -> bool {
    template.get("kind").and_then(Value::as_str) == Some("RayJob")
}

/// The port of the head of a RayCluster with this spec at which workers join (`GetHeadPort`).
pub(crate) fn head_port(cluster: &Value) -> &str {
    let port = cluster.pointer("/headGroupSpec/rayStartParams/port");
    port.and_then(Value::as_str).unwrap_or(DEFAULT_PORT)
}

/// The name of the Service of its head, which a template may name (`GenerateHeadServiceName`). That
/// of a RayJob is named after a RayCluster whose name is by chance, so parts of one name it
/// otherwise; `<job>-head-svc` is one more that KubeRay makes, but only once the job runs.
pub(crate) fn head_service(template: &Value) -> Option<String> {
    let text = |path| template.pointer(path).and_then(Value::as_str);
    let (own, ending) = match is_job(template) {
        true => (
            "/spec/rayClusterSpec/headGroupSpec/headService/metadata/name",
            "head",
        ),
        false => ("/spec/headGroupSpec/headService/metadata/name", "head-svc"),
    };
    let own = text(own).filter(|name| !name.is_empty()).map(str::to_owned);
    own.or_else(|| Some(format!("{}-{ending}", text("/metadata/name")?)))
}

/// Where a part of a RayCluster is: it never finishes by itself.
pub(crate) fn cluster_part(status: &Value) -> Outcome {
    let suspended = outcome::condition(status, "RayClusterSuspended").is_some();
    if suspended || outcome::text(status, "state") == "suspended" {
        return Outcome::Suspended;
    }
    outcome::active_if_told(status)
}

/// Where a part of a RayJob is.
pub(crate) fn job_part(status: &Value) -> Outcome {
    let job = outcome::text(status, "jobStatus");
    let failed = || {
        Outcome::failed(&[
            job,
            outcome::text(status, "reason"),
            outcome::text(status, "message"),
        ])
    };
    match outcome::text(status, "jobDeploymentStatus") {
        "Complete" if matches!(job, "FAILED" | "STOPPED") => failed(),
        "Complete" => Outcome::Succeeded,
        "Failed" | "ValidationFailed" => failed(),
        "Suspended" => Outcome::Suspended,
        "" => Outcome::Unknown,
        _ => Outcome::Active,
    }
}

/// Workers and head of a RayCluster in one member.
pub(crate) fn cluster_counts(status: &Value) -> PodCounts {
    counts(status, head_is_elsewhere(status))
}

fn head_is_elsewhere(status: &Value) -> bool {
    status.get(HEAD_ELSEWHERE).and_then(Value::as_bool) == Some(true)
}

fn counts(status: &Value, head_is_elsewhere: bool) -> PodCounts {
    let is_ready = outcome::text(status, "state") == "ready"
        || outcome::condition(status, "HeadPodReady").is_some();
    let workers = outcome::number(status, "availableWorkerReplicas");
    let wanted = outcome::number(status, "desiredWorkerReplicas");
    let heads = u32::from(!head_is_elsewhere);
    let head = u32::from(is_ready).min(heads);
    PodCounts {
        pending: wanted.saturating_sub(workers) + (heads - head),
        running: workers.saturating_add(head),
        ..PodCounts::default()
    }
}

/// The pods of a RayJob's cluster in one member.
pub(crate) fn job_counts(status: &Value) -> PodCounts {
    status
        .get("rayClusterStatus")
        .map(|cluster| counts(cluster, head_is_elsewhere(status)))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests;
