#![allow(clippy::unwrap_used)]

use super::*;
use crds::record::{AdmissionRecord, RecordState};

const NOW: Time = Time(1_000_000);

fn at(version: &str) -> ResourceBinding {
    let mut binding = ResourceBinding::default();
    binding.metadata.resource_version = Some(version.to_owned());
    binding
}

fn place() -> Write {
    let record = serde_json::json!({
        "templateUID": "u", "attempt": 1, "state": "Admitted", "queue": "q",
        "time": "2026-11-21T00:00:00Z",
    });
    let record: AdmissionRecord = serde_json::from_value(record).unwrap();
    assert_eq!(record.state, RecordState::Admitted);
    Write::Place {
        record,
        clusters: Vec::new(),
        affinity_name: None,
    }
}

#[test]
fn a_job_stays_busy_until_the_watch_shows_its_write() {
    let mut in_flight = InFlight::default();
    assert!(!in_flight.is_busy(&at("5"), NOW));
    in_flight.begin_write(&at("5"), &Write::Hold);
    assert!(in_flight.is_busy(&at("5"), NOW));
    // The watch may be faster than the answer.
    assert!(in_flight.is_busy(&at("7"), NOW));
    in_flight.written("7");
    assert!(in_flight.is_busy(&at("6"), NOW));
    assert!(!in_flight.is_busy(&at("7"), NOW));
    // Versions are numbers: 10 comes after 7.
    in_flight.written("7");
    assert!(!in_flight.is_busy(&at("10"), NOW));
}

#[test]
fn after_a_failure_a_job_backs_off() {
    let mut in_flight = InFlight::default();
    in_flight.begin_write(&at("5"), &Write::Hold);
    let until = in_flight.failed(NOW);
    assert_eq!(until, NOW.after(RETRY_MS));
    assert!(in_flight.is_busy(&at("9"), until.after(-1)));
    assert!(!in_flight.is_busy(&at("9"), until));
}

#[test]
fn after_a_conflict_a_job_waits_for_the_next_version_for_a_limited_time() {
    let mut in_flight = InFlight::default();
    in_flight.begin_write(&at("5"), &Write::Hold);
    let until = in_flight.conflicted(NOW);
    assert!(in_flight.is_busy(&at("5"), NOW));
    assert!(!in_flight.is_busy(&at("6"), NOW));
    in_flight.begin_write(&at("6"), &Write::Hold);
    assert_eq!(in_flight.conflicted(NOW), until);
    assert!(in_flight.is_busy(&at("6"), until.after(-1)));
    assert!(!in_flight.is_busy(&at("6"), until));
}

#[test]
fn preparation_belongs_to_one_attempt() {
    let mut in_flight = InFlight::default();
    in_flight.begin_preparing(Attempt(2));
    assert!(in_flight.is_open() && in_flight.is_preparing(Attempt(2)));
    assert!(!in_flight.is_preparing(Attempt(1)));
    in_flight.closed();
    assert!(!in_flight.is_open());
}

#[test]
fn works_that_were_never_seen_get_time_to_appear() {
    let mut in_flight = InFlight::default();
    let settled = NOW.after(SETTLE_MS);
    assert_eq!(in_flight.has_settled(NOW), Err(settled));
    // The time counts from the first call, however many follow.
    assert_eq!(in_flight.has_settled(NOW.after(10)), Err(settled));
    assert_eq!(in_flight.has_settled(settled), Ok(()));
    in_flight.ended();
    assert_eq!(
        in_flight.has_settled(settled),
        Err(settled.after(SETTLE_MS))
    );
    in_flight.works_seen = true;
    assert_eq!(in_flight.has_settled(settled), Ok(()));
    // What was seen of one placement says nothing about the next.
    in_flight.begin_write(&at("5"), &place());
    assert!(!in_flight.works_seen);
}

#[test]
fn one_check_runs_at_a_time() {
    let mut in_flight = InFlight::default();
    assert!(in_flight.begin_check());
    assert!(!in_flight.begin_check());
    in_flight.end_check();
    assert!(in_flight.begin_check());
}

#[test]
fn a_pin_is_new_only_once() {
    let mut in_flight = InFlight::default();
    let (grown, more) = (["a 1 -> 2".to_owned()], ["a 1 -> 3".to_owned()]);
    let mut pin = |growth: &[String], version: &str| in_flight.pin(growth, version.to_owned());
    assert_eq!(pin(&grown, "1"), (true, true));
    assert_eq!(pin(&grown, "1"), (false, false));
    assert_eq!(pin(&grown, "2"), (false, true), "its template is another");
    assert_eq!(pin(&more, "2"), (true, true));
    assert!(in_flight.unpin());
    assert!(!in_flight.unpin());
}
