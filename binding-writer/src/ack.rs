//! The status that Karmada's components expect a scheduler to update after a placement. Pure.
//!
//! Karmada's detector changes a binding's spec whenever the template changes, and
//! `status.schedulerObservedGeneration` then lags behind; graceful eviction waits until it has caught up. A
//! request to reschedule (`spec.rescheduleTriggeredAt`, later than the last scheduling) is answered by
//! confirming the placement: a running gang is never moved because of such a request (karmada.md §1,
//! "recommended external sequence").

use crate::commit::Write;
use crds::karmada::ResourceBinding;
use crds::record::{AdmissionRecord, Parts, RecordState};
use facts::Time;

/// Milliseconds after an admission in which the status that follows every placement (see [`crate::commit`])
/// may still be on its way; it has the same content.
const SETTLE_MS: i64 = 60_000;

/// Returns the acknowledgement that `binding` needs at `now`, if Muster placed it and it needs one.
#[must_use]
pub fn ack(binding: &ResourceBinding, now: Time) -> Option<Write> {
    let record = placed_by_us(binding)?;
    let status = &binding.status;
    let scheduled = status.last_scheduled_time;
    // No status follows the write that dispatches parts. The status of the placement before it was written by
    // then, or lost to Karmada's own writes.
    let dispatched = record.parts == Some(Parts::Dispatched);
    let placed_at = Time(record.time.as_millisecond());
    if now.millis_since(placed_at) < SETTLE_MS && !dispatched {
        return None;
    }
    let asked_again = match (binding.spec.reschedule_triggered_at, scheduled) {
        (Some(asked), Some(scheduled)) => asked > scheduled,
        // Karmada's binding status controller waits until this time is set at all.
        (_, None) => true,
        (None, Some(_)) => false,
    };
    let behind = status.scheduler_observed_generation != binding.metadata.generation;
    (asked_again || behind).then_some(Write::Ack {
        reschedule: asked_again,
    })
}

/// Returns the record of `binding`, if it is placed as admitted.
fn placed_by_us(binding: &ResourceBinding) -> Option<AdmissionRecord> {
    let record = AdmissionRecord::read(binding.metadata.annotations.as_ref())
        .ok()
        .flatten()?;
    let stands = record.state == RecordState::Admitted
        && record.template_uid == *binding.spec.resource.uid
        && !binding.spec.clusters.is_empty()
        && binding.metadata.deletion_timestamp.is_none();
    stands.then_some(record)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::{Value, json};

    fn binding(state: &str, change: Value) -> ResourceBinding {
        let record = json!({
            "templateUID": "u", "attempt": 1, "state": state, "queue": "q", "clusters": [],
            "time": "2026-11-21T00:00:00Z",
        });
        let mut object = json!({
            "metadata": {"generation": 3, "annotations": {crds::names::ADMISSION_ANNOTATION: record.to_string()}},
            "spec": {"resource": {"uid": "u"}, "clusters": [{"name": "m1"}]},
            "status": {"schedulerObservedGeneration": 3, "lastScheduledTime": "2026-11-21T00:00:01Z"},
        });
        merge(&mut object, change);
        serde_json::from_value(object).unwrap()
    }

    /// Long after all of these bindings were placed.
    fn later() -> Time {
        Time(
            "2026-11-21T01:00:00Z"
                .parse::<jiff::Timestamp>()
                .unwrap()
                .as_millisecond(),
        )
    }

    fn merge(into: &mut Value, change: Value) {
        match (into, change) {
            (Value::Object(into), Value::Object(change)) => {
                for (key, value) in change {
                    merge(into.entry(key).or_insert(Value::Null), value);
                }
            }
            (into, change) => *into = change,
        }
    }

    #[test]
    fn a_placed_binding_is_acknowledged_until_its_status_says_so() {
        let need = |change| {
            ack(&binding("Admitted", change), later()).map(|write| match write {
                Write::Ack { reschedule } => reschedule,
                _ => unreachable!("ack gives nothing else"),
            })
        };
        assert_eq!(need(json!({})), None);
        assert_eq!(need(json!({"metadata": {"generation": 4}})), Some(false));
        assert_eq!(
            need(json!({"status": {"lastScheduledTime": null}})),
            Some(true)
        );
        let asked = |time: &str| json!({"spec": {"rescheduleTriggeredAt": time}});
        assert_eq!(need(asked("2026-11-21T00:00:00Z")), None);
        assert_eq!(need(asked("2026-11-21T00:00:02Z")), Some(true));
    }

    #[test]
    fn the_status_that_follows_a_placement_gets_its_time() {
        let never = json!({"schedulerObservedGeneration": null, "lastScheduledTime": null});
        let just_placed = binding("Admitted", json!({"status": never}));
        let admitted = Time(
            "2026-11-21T00:00:00Z"
                .parse::<jiff::Timestamp>()
                .unwrap()
                .as_millisecond(),
        );
        assert!(ack(&just_placed, admitted.after(SETTLE_MS - 1)).is_none());
        assert!(ack(&just_placed, admitted.after(SETTLE_MS)).is_some());
    }

    #[test]
    fn a_dispatch_is_acknowledged_at_once() {
        let at_once = Time(
            "2026-11-21T00:00:02Z"
                .parse::<jiff::Timestamp>()
                .unwrap()
                .as_millisecond(),
        );
        let with = |parts: Value| {
            let record = json!({
                "templateUID": "u", "attempt": 1, "state": "Admitted", "queue": "q", "clusters": [],
                "time": "2026-11-21T00:00:00Z", "parts": parts,
            });
            let name = crds::names::ADMISSION_ANNOTATION;
            let annotations = json!({name: record.to_string()});
            binding(
                "Admitted",
                json!({"metadata": {"generation": 4, "annotations": annotations}}),
            )
        };
        assert!(ack(&with(json!("Dispatched")), at_once).is_some());
        // Also if the status of the placement was lost.
        let mut lost = with(json!("Dispatched"));
        lost.status.last_scheduled_time = None;
        assert!(ack(&lost, at_once).is_some());
        for other in [json!("Held"), Value::Null] {
            assert!(ack(&with(other), at_once).is_none());
        }
    }

    #[test]
    fn a_binding_placed_by_others_is_not_acknowledged() {
        let behind = || json!({"metadata": {"generation": 4}});
        for state in ["Planned", "Refused", "Ending", "Requeued"] {
            assert!(ack(&binding(state, behind()), later()).is_none(), "{state}");
        }
        for change in [
            json!({"spec": {"clusters": []}}),
            json!({"spec": {"resource": {"uid": "another"}}}),
            json!({"metadata": {"deletionTimestamp": "2026-11-21T00:00:00Z"}}),
            json!({"metadata": {"annotations": {crds::names::ADMISSION_ANNOTATION: "{"}}}),
        ] {
            let mut object = behind();
            merge(&mut object, change.clone());
            assert!(
                ack(&binding("Admitted", object), later()).is_none(),
                "{change}"
            );
        }
    }
}
