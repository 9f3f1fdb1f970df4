//! batch/v1 Jobs.

mod parts;

use super::{KnownKind, PartFields, WorkloadKind, known};
use crate::cap_to_admitted;
use crate::error::SpecError;
use crate::field::Field;
use crate::outcome::{self, Outcome, PodCounts};
use crate::parts::Fields;
use crate::pod::PodRequirements;
use crate::pod_specs;
use crate::policies::GangPolicies;
use crate::queued_status::QueuedStatus;
use crate::services;
use crate::size::{self, PriorityOf, Size};
use crate::ttl::TtlField;
use serde_json::Value;
use std::collections::BTreeMap;

/// Name of the only role of a kind with one pod template.
pub(crate) const MAIN: &str = "main";

/// Path of the pod spec of a kind with one pod template.
pub(crate) const POD_SPEC: &str = "/spec/template/spec";

/// batch/v1 Jobs.
pub(crate) struct BatchJobKind;

impl WorkloadKind for BatchJobKind {
    fn api(&self) -> KnownKind {
        known("batch", "v1", "Job", "jobs")
    }

    /// All pods that run at the same time, unless its annotation lowers the minimum.
    fn size(&self, template: &Field<'_>, _: PriorityOf<'_>) -> Result<Size, SpecError> {
        let spec = template.get("spec")?;
        let pods = pods_at_once(&spec)?;
        let min = size::annotated_minimum(template, pods)?.unwrap_or(pods);
        let pod = PodRequirements::read(&spec.get("template.spec")?)?;
        let priority_class = pod.priority_class.clone();
        let role = pod.role(MAIN, pods, min)?;
        Ok(Size {
            priority_class,
            suspended: spec.get("suspend")?.flag()?,
            duration_ms: size::deadline(&spec.get("activeDeadlineSeconds")?)?,
            ..Size::gang(&spec, vec![role], min)?
        })
    }

    fn pod_templates<'a>(&self, template: &'a Value) -> Vec<&'a Value> {
        template.pointer("/spec/template").into_iter().collect()
    }

    fn pod_specs<'a>(&self, spec: &'a mut Value) -> Vec<(String, &'a mut Value)> {
        pod_specs::only(spec.pointer_mut("/template/spec"))
    }

    /// `SuccessCriteriaMet` and `FailureTarget` come before the end: pods are still being stopped.
    fn part_outcome(&self, status: &Value) -> Outcome {
        if let Some(failed) = outcome::condition(status, "Failed") {
            return outcome::failed_by(failed);
        }
        if outcome::condition(status, "Complete").is_some() {
            return Outcome::Succeeded;
        }
        if outcome::condition(status, "Suspended").is_some() {
            return Outcome::Suspended;
        }
        outcome::active_if_reported(status)
    }

    /// `active` includes pending pods; `ready`, if reported, gives the running ones.
    fn counts(&self, status: &Value) -> PodCounts {
        let active = outcome::number(status, "active");
        let running = match status.get("ready") {
            Some(_) => outcome::number(status, "ready").min(active),
            None => active,
        };
        PodCounts {
            pending: active - running,
            running,
            succeeded: outcome::number(status, "succeeded"),
            failed: outcome::number(status, "failed"),
        }
    }

    /// `kubectl get` would otherwise say that it runs.
    fn queued_status(&self) -> Option<QueuedStatus> {
        Some(QueuedStatus::Condition)
    }

    /// Kubernetes' own controller on the control plane acts on it.
    fn ttl_field(&self) -> Option<TtlField> {
        Some(TtlField {
            path: "/spec/ttlSecondsAfterFinished",
            in_members: false,
            by_control_plane: true,
        })
    }

    fn holds_replicas(&self) -> bool {
        true
    }

    /// A Job without parallelism is paused; one without completions is complete at once.
    fn is_scaled_to_zero(&self, template: &Value) -> bool {
        let parallelism = template.pointer("/spec/parallelism");
        parallelism.and_then(Value::as_u64) == Some(0)
    }

    fn is_divisible(&self, template: &Value) -> bool {
        !is_indexed(template)
    }

    /// Karmada divides its completions with its replicas, and they cannot change while it runs.
    fn is_fixed_once_divided(&self) -> bool {
        true
    }

    fn cap_to_admitted(
        &self,
        _: &Value,
        capped: &Value,
        _: &BTreeMap<String, u32>,
    ) -> Option<Fields> {
        cap_to_admitted::subtree(capped, POD_SPEC).map(|pods| vec![pods])
    }

    fn part_fields(&self) -> Option<PartFields> {
        Some(parts::fields)
    }

    fn unsplittable(&self, template: &Value) -> Option<String> {
        unsplittable(template)
    }

    /// A `podFailurePolicy` with `FailJob`, or its `activeDeadlineSeconds`.
    fn ended_by_rule(&self, status: &Value, _: Option<&GangPolicies>) -> Option<String> {
        let failed = outcome::condition(status, "Failed")?;
        match outcome::text(failed, "reason") {
            "PodFailurePolicy" => Some("spec.podFailurePolicy (FailJob)".to_owned()),
            "DeadlineExceeded" => Some("spec.activeDeadlineSeconds".to_owned()),
            _ => None,
        }
    }

    /// Pods of an indexed Job have their index in their hostname; the Service belongs to the user.
    fn first_host(&self, template: &Value) -> Option<String> {
        let text = |path| template.pointer(path).and_then(Value::as_str);
        let name = text("/metadata/name")?;
        let service = text("/spec/template/spec/subdomain").filter(|_| is_indexed(template))?;
        Some(format!("{name}-0.{service}"))
    }

    /// setPodLabels of the Job controller.
    fn gang_labels(&self, template: &Value, _: &str) -> BTreeMap<String, String> {
        let name = template.pointer("/metadata/name").and_then(Value::as_str);
        let name = name.unwrap_or_default();
        services::labels(&[("batch.kubernetes.io/job-name", name), ("job-name", name)])
    }

    fn pod_labels(
        &self,
        template: &Value,
        _: &str,
        index: u32,
    ) -> Option<BTreeMap<String, String>> {
        let labels = [(
            "batch.kubernetes.io/job-completion-index",
            &*index.to_string(),
        )];
        is_indexed(template).then(|| services::labels(&labels))
    }
}

/// Returns how many pods a Job runs at the same time: its parallelism, at most its completions.
pub(crate) fn pods_at_once(spec: &Field<'_>) -> Result<u32, SpecError> {
    let parallelism = spec.get("parallelism")?.count()?.unwrap_or(1);
    // Not limited like a number of pods: a Job of millions of completions may run a few at a time.
    let field = spec.get("completions")?;
    let completions = match field.value() {
        None => None,
        Some(value) => Some(
            value
                .as_u64()
                .ok_or_else(|| field.invalid("a whole number from 0"))?,
        ),
    };
    Ok(completions
        .and_then(|bound| u32::try_from(bound).ok())
        .map_or(parallelism, |bound| parallelism.min(bound)))
}

/// Returns true if its pods have identities of their own.
fn is_indexed(template: &Value) -> bool {
    template
        .pointer("/spec/completionMode")
        .and_then(Value::as_str)
        == Some("Indexed")
}

/// Returns which field of a batch/v1 Job needs the whole job in one cluster.
pub(crate) fn unsplittable(template: &Value) -> Option<String> {
    let set = |key: &str| {
        let value = template.pointer(&format!("/spec/{key}"));
        value.is_some_and(|value| !value.is_null())
    };
    let of_all = [
        ("successPolicy", "names indexes of the whole job"),
        ("maxFailedIndexes", "counts indexes of the whole job"),
    ];
    let found = of_all.iter().find(|(key, _)| set(key));
    found.map(|(key, why)| format!("spec.{key} {why}"))
}

#[cfg(test)]
mod tests;
