//! Deployments, StatefulSets and ReplicaSets: services. They start with one pod and are charged in full;
//! they are a gang only with the annotation.

use super::batch::{MAIN, POD_SPEC};
use super::{KnownKind, WorkloadKind, known, only_one_cluster_resolves};
use crate::cap_to_admitted;
use crate::error::SpecError;
use crate::field::Field;
use crate::outcome::{self, Outcome, PodCounts};
use crate::parts::Fields;
use crate::pod::PodRequirements;
use crate::pod_specs;
use crate::size::{self, PriorityOf, Size};
use serde_json::Value;
use std::collections::BTreeMap;

pub(crate) const DEPLOYMENT: AppsKind = AppsKind {
    is_deployment: true,
    ..service(known("apps", "v1", "Deployment", "deployments"))
};
pub(crate) const STATEFUL_SET: AppsKind =
    service(known("apps", "v1", "StatefulSet", "statefulsets"));
pub(crate) const REPLICA_SET: AppsKind = service(known("apps", "v1", "ReplicaSet", "replicasets"));

/// A kind of the group `apps` with replicas.
pub(crate) struct AppsKind {
    api: KnownKind,
    /// True for Deployments: rolling updates start more pods than the replicas, and Karmada divides them.
    is_deployment: bool,
}

const fn service(api: KnownKind) -> AppsKind {
    AppsKind {
        api,
        is_deployment: false,
    }
}

impl WorkloadKind for AppsKind {
    fn api(&self) -> KnownKind {
        self.api
    }

    /// Its replicas, and the pods that a rolling update starts in addition.
    fn size(&self, template: &Field<'_>, _: PriorityOf<'_>) -> Result<Size, SpecError> {
        let surge = match self.is_deployment {
            true => surge(&template.get("spec")?)?,
            false => 0,
        };
        with_surge(template, surge)
    }

    fn pod_templates<'a>(&self, template: &'a Value) -> Vec<&'a Value> {
        template.pointer("/spec/template").into_iter().collect()
    }

    /// The hash that a Deployment adds is the same for all pods of its template.
    fn gang_labels(&self, _: &Value, _: &str) -> BTreeMap<String, String> {
        match self.is_deployment {
            true => crate::services::labels(&[("pod-template-hash", "of this template")]),
            false => BTreeMap::new(),
        }
    }

    fn pod_specs<'a>(&self, spec: &'a mut Value) -> Vec<(String, &'a mut Value)> {
        pod_specs::only(spec.pointer_mut("/template/spec"))
    }

    /// A service never finishes.
    fn part_outcome(&self, status: &Value) -> Outcome {
        outcome::active_if_reported(status)
    }

    /// Ready pods count as running.
    fn counts(&self, status: &Value) -> PodCounts {
        let running = outcome::number(status, "readyReplicas");
        let pending = outcome::number(status, "replicas").saturating_sub(running);
        PodCounts {
            pending,
            running,
            ..PodCounts::default()
        }
    }

    /// The claims of a StatefulSet's `volumeClaimTemplates`.
    fn own_claims<'a>(&self, template: &'a Value) -> Vec<&'a str> {
        let claims = template.pointer("/spec/volumeClaimTemplates");
        let claims = claims.and_then(Value::as_array).into_iter().flatten();
        claims
            .filter_map(|claim| claim.pointer("/metadata/name")?.as_str())
            .collect()
    }

    fn holds_replicas(&self) -> bool {
        true
    }

    fn is_scaled_to_zero(&self, _: &Value) -> bool {
        true
    }

    /// A Deployment whose update starts more pods than its replicas cannot be divided exactly, because each
    /// part rounds its surge up.
    fn is_divisible(&self, template: &Value) -> bool {
        self.is_deployment && !surges(template)
    }

    fn cap_to_admitted(
        &self,
        _: &Value,
        capped: &Value,
        _: &BTreeMap<String, u32>,
    ) -> Option<Fields> {
        cap_to_admitted::subtree(capped, POD_SPEC).map(|pods| vec![pods])
    }

    fn unsplittable(&self, _: &Value) -> Option<String> {
        Some(match self.is_deployment {
            true => "Karmada divides a Deployment itself, where its policy says replicaSchedulingType Divided"
                .to_owned(),
            false => only_one_cluster_resolves(self.api.kind),
        })
    }
}

fn with_surge(template: &Field<'_>, surge: u32) -> Result<Size, SpecError> {
    let spec = template.get("spec")?;
    let replicas = replicas(&spec)?;
    let min = size::annotated_minimum(template, replicas)?
        .unwrap_or(1)
        .min(replicas);
    let pod = PodRequirements::read(&spec.get("template.spec")?)?;
    let priority_class = pod.priority_class.clone();
    let role = pod.role(MAIN, replicas.saturating_add(surge), min)?;
    Ok(Size {
        priority_class,
        surge,
        ..Size::gang(&spec, vec![role], min)?
    })
}

fn replicas(spec: &Field<'_>) -> Result<u32, SpecError> {
    Ok(spec.get("replicas")?.count()?.unwrap_or(1))
}

/// Returns the pods above its replicas during a rolling update: `maxSurge`, by default 25%; percentages are
/// rounded up (k8s.io/kubernetes pkg/controller/deployment/util).
fn surge(spec: &Field<'_>) -> Result<u32, SpecError> {
    let replicas = replicas(spec)?;
    if replicas == 0 || spec.get("strategy.type")?.text()? == Some("Recreate") {
        return Ok(0);
    }
    let field = spec.get("strategy.rollingUpdate.maxSurge")?;
    size::number_or_percent(&field, replicas, 25, "pods")
}

/// Returns true if an update of the Deployment `template` may start more pods than its replicas.
fn surges(template: &Value) -> bool {
    let spec = Field::root(template).get("spec");
    spec.and_then(|spec| surge(&spec))
        .is_ok_and(|pods| pods > 0)
}

#[cfg(test)]
mod tests;
