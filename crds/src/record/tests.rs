#![allow(clippy::unwrap_used)]
use super::*;

/// A record as the first release wrote it: without a version.
const FIRST: &str = r#"{"templateUID":"u","attempt":2,"state":"Ending","queue":"q","clusters":[{"name":"m1","pods":[{"role":"main","count":3}],"charge":{"cpu":{"cpu":"3"}}}],"time":"2026-11-21T04:00:00Z","reason":"Evicted","message":"room"}"#;

fn read(text: &str) -> Result<AdmissionRecord, RecordError> {
    let annotations = [(ADMISSION_ANNOTATION.to_owned(), text.to_owned())].into();
    AdmissionRecord::read(Some(&annotations)).map(Option::unwrap)
}

/// `FIRST` with `from` replaced.
fn with(from: &str, to: &str) -> String {
    assert!(FIRST.contains(from));
    FIRST.replace(from, to)
}

#[test]
fn a_record_without_a_version_has_the_first() {
    let record = read(FIRST).unwrap();
    assert_eq!(record.version, 1);
    let text = record.to_annotation().unwrap();
    assert!(
        text.starts_with(r#"{"version":1,"templateUID":"u","#),
        "{text}"
    );
    assert_eq!(read(&text).unwrap(), record);
}

#[test]
fn the_run_time_that_was_declared_is_kept() {
    assert_eq!(read(FIRST).unwrap().admission().declared_ms, None);
    let text = with(r#""reason""#, r#""expectedDurationMs":60000,"reason""#);
    let record = read(&text).unwrap();
    assert_eq!(record.admission().declared_ms, Some(60_000));
    assert_eq!(record.resized(&record.admission()), record);
    let ended = record.in_state(RecordState::Requeued, None, "");
    assert_eq!(read(&ended.to_annotation().unwrap()).unwrap(), ended);
}

#[test]
fn retries_and_policies_are_kept_and_older_records_have_none() {
    let first = read(FIRST).unwrap();
    assert_eq!((first.retries, first.policies()), (0, None));
    let text = first.to_annotation().unwrap();
    for field in ["retries", "maxRetry", "restartPhase"] {
        assert!(!text.contains(field), "{text}");
    }
    let text = with(
        r#""reason""#,
        r#""retries":2,"maxRetry":5,"restartPhase":"Terminated","failedAction":"Abort","reason""#,
    );
    let record = read(&text).unwrap();
    let policies = record.policies().unwrap();
    assert_eq!((record.retries, policies.max_retry), (2, 5));
    assert_eq!(policies.restart_phase.as_deref(), Some("Terminated"));
    assert_eq!(policies.failed_action, Some(workload::GangAction::Abort));
    let ended = record.in_state(RecordState::Requeued, None, "");
    assert_eq!(read(&ended.to_annotation().unwrap()).unwrap(), ended);
    let mut again = ended.clone();
    again.set_policies(Some(policies));
    assert_eq!(again, ended);
}

/// The first release can read a record with a version and new fields.
#[test]
fn unknown_fields_are_written_back_byte_for_byte() {
    let odd = r#"{"z":1.50,"a":[12345678901234567890123,  1e2],"é":"\u00e9"}"#;
    let text = with(r#""message""#, &format!(r#""later":{odd},"message""#));
    let text = text.replace(r#""name":"m1""#, r#""name":"m1","lane": 7.0"#);
    let record = read(&text).unwrap();
    let ended = record.in_state(RecordState::Requeued, None, "");
    let written = ended.to_annotation().unwrap();
    assert!(written.contains(&format!(r#""later":{odd}"#)), "{written}");
    assert!(written.contains(r#""lane":7.0"#), "{written}");
    assert_eq!(read(&written).unwrap(), ended);
    // A resized share keeps its unknown fields.
    let resized = record.resized(&record.admission());
    assert_eq!(resized, record);
}

#[test]
fn a_record_of_a_later_version_differs_from_garbage() {
    let later = [
        with(r#"{"templateUID""#, r#"{"version":2,"templateUID""#),
        with(r#""Ending""#, r#""Parked""#),
        with(r#""Evicted""#, r#""Outbid""#),
        with(r#""time":"2026-11-21T04:00:00Z""#, r#""time":{"at":1}"#),
        r#"{"version":7,"jobs":[]}"#.to_owned(),
    ];
    for text in &later {
        let error = read(text).unwrap_err();
        assert!(!error.is_garbage(), "{text}: {error}");
    }
    for text in [
        "",
        "null",
        "[]",
        "{}",
        "hello",
        r#"{"state":"Admitted"}"#,
        r#"{"version":1}"#,
    ] {
        let error = read(text).unwrap_err();
        assert!(error.is_garbage(), "{text}: {error}");
    }
}

#[test]
fn a_later_record_has_readable_fields_for_its_charge() {
    let text = with(r#"{"templateUID""#, r#"{"version":2,"templateUID""#);
    let readable = read(&text).unwrap_err().readable;
    let known = read(FIRST).unwrap();
    assert_eq!(readable.template_uid, Some(known.template_uid));
    assert_eq!(readable.attempt, Some(Attempt(2)));
    assert_eq!(readable.state, Some(RecordState::Ending));
    assert_eq!(readable.queue, Some(known.queue));
    assert_eq!(readable.clusters, known.clusters);
    let parked = read(&with(r#""Ending""#, r#""Parked""#)).unwrap_err();
    assert_eq!(parked.readable.state, None);
    assert_eq!(parked.readable.clusters, known.clusters);
    assert_eq!(
        parked.to_string().split(" (").next().unwrap(),
        "annotation muster.io/admission was written by a later version of Muster"
    );
}
