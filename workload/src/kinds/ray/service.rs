//! RayServices (ray.io), by KubeRay's rules (`rayservice_controller.go`, v1.4 to v1.6).
//!
//! An upgrade, which any edit of the cluster's spec causes, makes a second RayCluster beside the first, and
//! removes the first when the second serves. KubeRay does that in the member at once, past every queue. A
//! RayService is therefore charged both clusters, as a Deployment is charged its surge, unless
//! `spec.upgradeStrategy.type` is None. It starts with one of them.

use super::{HEAD, added_init, pods, size, status};
use crate::error::SpecError;
use crate::field::Field;
use crate::kinds::{KnownKind, WorkloadKind, known};
use crate::outcome::{Outcome, PodCounts};
use crate::parts::Fields;
use crate::pod_shape::AddedInit;
use crate::size::{PriorityOf, Size};
use crate::{cap_to_admitted, warnings};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The spec of its RayClusters.
const CLUSTER: &str = "/spec/rayClusterConfig";
const WORKERS: &str = "/spec/rayClusterConfig/workerGroupSpecs";
const STRATEGY: &str = "/spec/upgradeStrategy";
/// Warning: half of the charge is for upgrades.
const CHARGED_TWICE: &str = "spec.upgradeStrategy.type is not None, so an upgrade starts a second cluster beside the first: the queue is charged both from the start; set it to None to be charged one";

/// RayServices.
pub(crate) struct RayServiceKind;

impl WorkloadKind for RayServiceKind {
    fn api(&self) -> KnownKind {
        known("ray.io", "v1", "RayService", "rayservices")
    }

    fn size(&self, template: &Field<'_>, _: PriorityOf<'_>) -> Result<Size, SpecError> {
        let clusters = clusters(template.value().unwrap_or(&Value::Null));
        size::of_service(template, clusters)
    }

    fn pod_templates<'a>(&self, template: &'a Value) -> Vec<&'a Value> {
        template
            .pointer(CLUSTER)
            .map(pods::templates)
            .unwrap_or_default()
    }

    fn pod_specs<'a>(&self, spec: &'a mut Value) -> Vec<(String, &'a mut Value)> {
        let cluster = spec.get_mut("rayClusterConfig");
        cluster.map(pods::specs).unwrap_or_default()
    }

    fn added_init(&self, _: &Value) -> Option<AddedInit> {
        Some(added_init())
    }

    fn part_outcome(&self, status: &Value) -> Outcome {
        status::of_service(status)
    }

    fn counts(&self, status: &Value) -> PodCounts {
        status::service_counts(status)
    }

    fn warnings(&self, template: &Value) -> Vec<String> {
        let mut warnings = warnings::long_names(template, WORKERS, "groupName");
        warnings.extend((clusters(template) > 1).then(|| CHARGED_TWICE.to_owned()));
        warnings
    }

    /// A cluster has its share of the admitted pods. A RayService that was admitted with one cluster gets no
    /// second one.
    fn cap_to_admitted(
        &self,
        template: &Value,
        capped: &Value,
        admitted: &BTreeMap<String, u32>,
    ) -> Option<Fields> {
        let clusters = admitted.get(HEAD).copied().unwrap_or(0).clamp(1, 2);
        let of_one: BTreeMap<String, u32> = admitted
            .iter()
            .map(|(role, count)| (role.clone(), count / clusters))
            .collect();
        let mut fields = pods::worker_groups(WORKERS, capped, &of_one)?;
        if clusters < self::clusters(template) {
            fields.push((STRATEGY.to_owned(), json!({"type": "None"})));
        }
        let others = ["/spec/rayClusterConfig/headGroupSpec"];
        Some(cap_to_admitted::with_changed(
            fields, &others, template, capped,
        ))
    }

    fn unsplittable(&self, _: &Value) -> Option<String> {
        Some("the Service of a RayService serves from the RayClusters of one cluster".to_owned())
    }
}

/// Returns the RayClusters that may run at the same time.
fn clusters(template: &Value) -> u32 {
    let strategy = template.pointer(STRATEGY);
    let kind = strategy.and_then(|strategy| strategy.get("type")?.as_str());
    if kind == Some("None") { 1 } else { 2 }
}

#[cfg(test)]
mod tests;
