//! Decides what a binding needs from the scheduler process. Pure.

use binding_writer::{Write, ack};
use crds::karmada::ResourceBinding;
use crds::names;
use crds::record::{AdmissionRecord, RecordState};
use engine::Time;

/// What to do about a binding.
#[derive(Debug)]
pub(super) enum BindingTask {
    /// Nothing; its record says whether its pods may be assumed.
    Nothing { released: bool },
    /// Carry out the plan of this record.
    CarryOut(AdmissionRecord),
    /// Submit this write.
    Write(Write),
    /// It is open without an admission: it is not placed.
    Unadmitted,
}

/// Returns what `binding` needs at `now`.
pub(super) fn due(binding: &ResourceBinding, now: Time) -> BindingTask {
    let ours = binding.spec.scheduler_name.as_deref() == Some(names::SCHEDULER_NAME);
    if binding.metadata.deletion_timestamp.is_some() {
        return BindingTask::Nothing { released: false };
    }
    let closed = is_gated(binding) && binding.spec.clusters.is_empty();
    match own_record(binding) {
        Some(record) if record.state == RecordState::Planned && closed => {
            BindingTask::CarryOut(record)
        }
        Some(record) if record.state == RecordState::Admitted => match ack(binding, now) {
            Some(write) => BindingTask::Write(write),
            None => BindingTask::Nothing { released: true },
        },
        Some(_) => BindingTask::Nothing { released: false },
        None if ours && is_open(binding) => BindingTask::Unadmitted,
        None => BindingTask::Nothing { released: false },
    }
}

/// Returns the record if it is readable and belongs to the template that is bound now.
fn own_record(binding: &ResourceBinding) -> Option<AdmissionRecord> {
    AdmissionRecord::read(binding.metadata.annotations.as_ref())
        .ok()
        .flatten()
        .filter(|record| record.template_uid == *binding.spec.resource.uid)
}

/// Returns true if a policy claims it and it is neither gated nor placed: a scheduler would place it.
fn is_open(binding: &ResourceBinding) -> bool {
    let claims = [
        names::POLICY_PERMANENT_ID,
        names::CLUSTER_POLICY_PERMANENT_ID,
    ];
    let labels = binding.metadata.labels.as_ref();
    let is_claimed =
        labels.is_some_and(|labels| claims.iter().any(|claim| labels.contains_key(*claim)));
    is_claimed && !is_gated(binding) && binding.spec.clusters.is_empty()
}

fn is_gated(binding: &ResourceBinding) -> bool {
    binding
        .spec
        .suspension
        .as_ref()
        .and_then(|suspension| suspension.scheduling)
        .unwrap_or(false)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    fn shown(
        record: Option<&str>,
        gated: bool,
        placed: bool,
        scheduler: &str,
        uid: &str,
    ) -> String {
        let annotations = record.map(|state| {
            let record = json!({
                "templateUID": uid, "attempt": 2, "state": state, "queue": "q",
                "time": "2026-11-21T00:00:00Z",
            });
            json!({names::ADMISSION_ANNOTATION: record.to_string()})
        });
        let clusters = if placed {
            json!([{"name": "m1"}])
        } else {
            json!([])
        };
        let binding: ResourceBinding = serde_json::from_value(json!({
            "metadata": {"annotations": annotations, "labels": {names::POLICY_PERMANENT_ID: "p"}, "generation": 2},
            "spec": {
                "resource": {"uid": "u"}, "schedulerName": scheduler, "clusters": clusters,
                "suspension": {"scheduling": gated},
            },
            "status": {"schedulerObservedGeneration": 1, "lastScheduledTime": "2026-11-21T00:00:00Z"},
        }))
        .unwrap();
        let now = "2026-11-21T01:00:00Z".parse::<jiff::Timestamp>().unwrap();
        match due(&binding, Time(now.as_millisecond())) {
            BindingTask::Nothing { released } => format!("nothing, released: {released}"),
            BindingTask::CarryOut(record) => format!("carry out {}", record.attempt.0),
            BindingTask::Write(write) => format!("write {}", write.kind()),
            BindingTask::Unadmitted => "unadmitted".to_owned(),
        }
    }

    #[test]
    fn only_a_plan_on_a_closed_binding_is_carried_out() {
        let ours = |record, gated, placed| shown(record, gated, placed, "muster", "u");
        assert_eq!(ours(Some("Planned"), true, false), "carry out 2");
        assert_eq!(
            ours(Some("Planned"), false, false),
            "nothing, released: false"
        );
        assert_eq!(
            ours(Some("Planned"), true, true),
            "nothing, released: false"
        );
        assert_eq!(
            shown(Some("Planned"), true, false, "muster", "other"),
            "nothing, released: false"
        );
        assert_eq!(ours(Some("Admitted"), false, true), "write Ack");
        assert_eq!(
            ours(Some("Refused"), true, false),
            "nothing, released: false"
        );
        assert_eq!(ours(None, true, false), "nothing, released: false");
        assert_eq!(ours(None, false, false), "unadmitted");
        assert_eq!(ours(None, false, true), "nothing, released: false");
        assert_eq!(
            shown(None, false, false, "default-scheduler", "u"),
            "nothing, released: false"
        );
    }
}
