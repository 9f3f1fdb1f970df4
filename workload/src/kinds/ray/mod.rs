//! RayCluster, RayJob and RayService (ray.io), by KubeRay's rules (ray-operator/controllers/ray, v1.4).
//!
//! RayJobs and RayServices contain their RayCluster, so the same functions read all: size, pods and status
//! here, and parts in several clusters in `parts` and `unsplittable`. A RayService stays in one (`service`).

mod parts;
mod pods;
mod service;
mod size;
mod status;
mod unsplittable;

pub(crate) use service::RayServiceKind;

use super::{KnownKind, PartFields, WorkloadKind, known};
use crate::error::SpecError;
use crate::field::Field;
use crate::outcome::{self, Outcome, PodCounts};
use crate::parts::Fields;
use crate::pod::cpu_and_memory;
use crate::pod_shape::AddedInit;
use crate::policies::GangPolicies;
use crate::rendezvous::Meeting;
use crate::size::{PriorityOf, Size};
use crate::{cap_to_admitted, services, warnings};
use serde_json::Value;
use std::collections::BTreeMap;

/// Role of the head, as Karmada names its component.
const HEAD: &str = "ray-head";
/// Role of the pod that submits a RayJob's entrypoint.
const SUBMITTER: &str = "ray-submitter";
/// Where the head listens by default (`DefaultGcsServerPort`).
const DEFAULT_PORT: &str = "6379";
/// Warning: a RayJob whose cluster outlives it keeps its pods, and so its quota, until it is deleted.
const KEEPS_CLUSTER: &str = "spec.shutdownAfterJobFinishes: false keeps the cluster, and its quota, when the job has finished; set it to true to have both freed";

/// Warning: nothing places a RayJob beside the RayCluster that it selects.
const CLUSTER_SELECTED: &str = "spec.clusterSelector: the RayCluster that it selects has to run in the cluster where this job is placed; have a PropagationPolicy name that cluster for both";

/// RayClusters.
pub(crate) struct RayClusterKind;

/// RayJobs.
pub(crate) struct RayJobKind;

impl WorkloadKind for RayClusterKind {
    fn api(&self) -> KnownKind {
        known("ray.io", "v1", "RayCluster", "rayclusters")
    }

    fn size(&self, template: &Field<'_>, _: PriorityOf<'_>) -> Result<Size, SpecError> {
        size::of_cluster(template)
    }

    fn pod_templates<'a>(&self, template: &'a Value) -> Vec<&'a Value> {
        template
            .get("spec")
            .map(pods::templates)
            .unwrap_or_default()
    }

    fn pod_specs<'a>(&self, spec: &'a mut Value) -> Vec<(String, &'a mut Value)> {
        pods::specs(spec)
    }

    fn added_init(&self, _: &Value) -> Option<AddedInit> {
        Some(added_init())
    }

    fn part_outcome(&self, status: &Value) -> Outcome {
        status::of_cluster(status)
    }

    fn counts(&self, status: &Value) -> PodCounts {
        status::cluster_counts(status)
    }

    fn warnings(&self, template: &Value) -> Vec<String> {
        warnings::long_names(template, "/spec/workerGroupSpecs", "groupName")
    }

    fn cap_to_admitted(
        &self,
        template: &Value,
        capped: &Value,
        admitted: &BTreeMap<String, u32>,
    ) -> Option<Fields> {
        let workers = pods::worker_groups("/spec/workerGroupSpecs", capped, admitted)?;
        let others = ["/spec/headGroupSpec"];
        Some(cap_to_admitted::with_changed(
            workers, &others, template, capped,
        ))
    }

    fn part_fields(&self) -> Option<PartFields> {
        Some(parts::fields)
    }

    fn unsplittable(&self, template: &Value) -> Option<String> {
        unsplittable::unsplittable(template)
    }

    fn meeting(&self, _: &Field<'_>) -> Result<Meeting, SpecError> {
        Ok(Meeting::First)
    }

    fn first_host(&self, template: &Value) -> Option<String> {
        head_service(template)
    }

    fn pod_labels(&self, _: &Value, _: &str, _: u32) -> Option<BTreeMap<String, String>> {
        Some(head_labels())
    }

    fn stand_in_gate(&self) -> Option<&'static str> {
        Some(parts::GATE)
    }
}

impl WorkloadKind for RayJobKind {
    fn api(&self) -> KnownKind {
        known("ray.io", "v1", "RayJob", "rayjobs")
    }

    fn size(&self, template: &Field<'_>, _: PriorityOf<'_>) -> Result<Size, SpecError> {
        size::of_job(template)
    }

    fn pod_templates<'a>(&self, template: &'a Value) -> Vec<&'a Value> {
        let cluster = template.pointer("/spec/rayClusterSpec");
        let mut templates = cluster.map(pods::templates).unwrap_or_default();
        templates.extend(template.pointer("/spec/submitterPodTemplate"));
        templates
    }

    fn pod_specs<'a>(&self, spec: &'a mut Value) -> Vec<(String, &'a mut Value)> {
        let mut pods = Vec::new();
        for (field, value) in spec.as_object_mut().into_iter().flatten() {
            match field.as_str() {
                "rayClusterSpec" => pods.extend(pods::specs(value)),
                "submitterPodTemplate" => {
                    let spec = value.get_mut("spec");
                    pods.extend(spec.map(|spec| (SUBMITTER.to_owned(), spec)));
                }
                _ => {}
            }
        }
        pods
    }

    fn added_init(&self, _: &Value) -> Option<AddedInit> {
        Some(added_init())
    }

    fn part_outcome(&self, status: &Value) -> Outcome {
        status::of_job(status)
    }

    fn ended_by_rule(&self, status: &Value, _: Option<&GangPolicies>) -> Option<String> {
        let overdue = outcome::text(status, "reason") == "DeadlineExceeded";
        overdue.then(|| "spec.activeDeadlineSeconds".to_owned())
    }

    fn counts(&self, status: &Value) -> PodCounts {
        status::job_counts(status)
    }

    fn warnings(&self, template: &Value) -> Vec<String> {
        let workers = "/spec/rayClusterSpec/workerGroupSpecs";
        let mut warnings = warnings::long_names(template, workers, "groupName");
        warnings.extend(keeps_cluster(template).then(|| KEEPS_CLUSTER.to_owned()));
        let selector = template.pointer("/spec/clusterSelector");
        let selects = selector.is_some_and(|selector| !selector.is_null());
        warnings.extend(selects.then(|| CLUSTER_SELECTED.to_owned()));
        warnings
    }

    fn cap_to_admitted(
        &self,
        template: &Value,
        capped: &Value,
        admitted: &BTreeMap<String, u32>,
    ) -> Option<Fields> {
        let workers = "/spec/rayClusterSpec/workerGroupSpecs";
        let workers = pods::worker_groups(workers, capped, admitted)?;
        let others = [
            "/spec/rayClusterSpec/headGroupSpec",
            "/spec/submitterPodTemplate",
        ];
        Some(cap_to_admitted::with_changed(
            workers, &others, template, capped,
        ))
    }

    fn part_fields(&self) -> Option<PartFields> {
        Some(parts::fields)
    }

    fn unsplittable(&self, template: &Value) -> Option<String> {
        unsplittable::unsplittable(template)
    }

    fn meeting(&self, _: &Field<'_>) -> Result<Meeting, SpecError> {
        Ok(Meeting::First)
    }

    /// A RayJob submits its entrypoint to its head. A RayCluster runs until it is deleted.
    fn leading_role(&self, template: &Value) -> Option<String> {
        template.pointer("/spec/rayClusterSpec")?;
        Some(HEAD.to_owned())
    }

    fn first_host(&self, template: &Value) -> Option<String> {
        head_service(template)
    }

    fn pod_labels(&self, _: &Value, _: &str, _: u32) -> Option<BTreeMap<String, String>> {
        Some(head_labels())
    }

    fn stand_in_gate(&self) -> Option<&'static str> {
        Some(parts::GATE)
    }

    /// The submitter runs in the cluster of the head.
    fn role_started_by(&self, role: &str) -> Option<&'static str> {
        (role == SUBMITTER).then_some(HEAD)
    }
}

/// Each worker waits for the head in an init container, `wait-gcs-ready` (DefaultWorkerPodTemplate in KubeRay's
/// common/pod.go, v1.6). An operator that was started with ENABLE_INIT_CONTAINER_INJECTION=false adds none; that cannot
/// be seen from here, so workers are charged as by its default.
fn added_init() -> AddedInit {
    let amounts = cpu_and_memory(200, 256 << 20);
    AddedInit::new(amounts.clone(), amounts, |role| {
        role != HEAD && role != SUBMITTER
    })
}

/// Each cluster has one head, or a stand-in for it (labelPod).
fn head_labels() -> BTreeMap<String, String> {
    services::labels(&[("ray.io/node-type", "head")])
}

/// Returns the name of a group of workers; Karmada's default name if it has none.
fn group_name(index: usize, name: Option<&str>) -> String {
    match name {
        Some(name) if !name.is_empty() => name.to_owned(),
        _ => format!("worker-{}", index + 1),
    }
}

/// Returns true if the cluster of the RayJob `template`, or its head, stays after the job's end: KubeRay's
/// default.
fn keeps_cluster(template: &Value) -> bool {
    let spec = template.get("spec").unwrap_or(&Value::Null);
    let ends_cluster = spec
        .get("shutdownAfterJobFinishes")
        .and_then(Value::as_bool)
        == Some(true);
    let Some(strategy) = spec.get("deletionStrategy").and_then(Value::as_object) else {
        return !ends_cluster && spec.get("rayClusterSpec").is_some();
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

/// Returns true for a RayJob, which contains its RayCluster.
fn is_job(template: &Value) -> bool {
    template.get("kind").and_then(Value::as_str) == Some("RayJob")
}

/// Returns the port of the head of a RayCluster with this spec at which workers join (`GetHeadPort`).
fn head_port(cluster: &Value) -> &str {
    let port = cluster.pointer("/headGroupSpec/rayStartParams/port");
    port.and_then(Value::as_str).unwrap_or(DEFAULT_PORT)
}

/// Returns the name of the Service of its head, which a template may set (`GenerateHeadServiceName`). For a
/// RayJob it derives from a RayCluster with a random name, so parts of one set another name;
/// `<job>-head-svc` is a second one that KubeRay creates, but only once the job runs.
fn head_service(template: &Value) -> Option<String> {
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

#[cfg(test)]
mod tests;
