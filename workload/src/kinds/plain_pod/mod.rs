//! A Pod by itself.

use super::batch::MAIN;
use super::{KnownKind, WorkloadKind, known};
use crate::error::SpecError;
use crate::field::Field;
use crate::outcome::{self, Outcome, PodCounts};
use crate::pod::PodRequirements;
use crate::pod_specs;
use crate::size::{self, PriorityOf, Size};
use serde_json::Value;

/// v1 Pods.
pub(crate) struct PlainPodKind;

impl WorkloadKind for PlainPodKind {
    fn api(&self) -> KnownKind {
        known("", "v1", "Pod", "pods")
    }

    fn size(&self, template: &Field<'_>, _: PriorityOf<'_>) -> Result<Size, SpecError> {
        let spec = template.get("spec")?;
        let pod = PodRequirements::read(&spec)?;
        let priority_class = pod.priority_class.clone();
        let role = pod.role(MAIN, 1, 1)?;
        Ok(Size {
            priority_class,
            duration_ms: size::deadline(&spec.get("activeDeadlineSeconds")?)?,
            ..Size::gang(&spec, vec![role], 1)?
        })
    }

    /// The Pod is its own template.
    fn pod_templates<'a>(&self, template: &'a Value) -> Vec<&'a Value> {
        vec![template]
    }

    fn pod_specs<'a>(&self, spec: &'a mut Value) -> Vec<(String, &'a mut Value)> {
        pod_specs::only(Some(spec))
    }

    fn part_outcome(&self, status: &Value) -> Outcome {
        match outcome::text(status, "phase") {
            "Succeeded" => Outcome::Succeeded,
            "Failed" => Outcome::failed(&[
                outcome::text(status, "reason"),
                outcome::text(status, "message"),
            ]),
            "Pending" | "Running" => Outcome::Active,
            _ => Outcome::Unknown,
        }
    }

    fn counts(&self, status: &Value) -> PodCounts {
        let is = |phase| u32::from(outcome::text(status, "phase") == phase);
        PodCounts {
            pending: is("Pending"),
            running: is("Running"),
            succeeded: is("Succeeded"),
            failed: is("Failed"),
        }
    }

    /// It has no replicas to raise.
    fn holds_replicas(&self) -> bool {
        true
    }

    fn is_one_pod(&self) -> bool {
        true
    }

    fn unsplittable(&self, _: &Value) -> Option<String> {
        Some("a Pod cannot be divided".to_owned())
    }
}
