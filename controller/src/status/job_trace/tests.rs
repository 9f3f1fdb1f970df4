#![allow(clippy::unwrap_used)]
use super::*;
use crds::podgroup::Timeline;

fn at(second: i64) -> Option<ApiTime> {
    Some(ApiTime(Timestamp::from_second(second).unwrap()))
}

/// A job that was submitted in second 100, with the seconds in which it was eligible, admitted, placed, seen to run
/// and finished; 0 if it was not yet.
fn shown(attempt: i32, word: StatusWord, seconds: [i64; 5]) -> FederationStatus {
    let [eligible, admitted, placed, running, finished] =
        seconds.map(|second| at(second).filter(|_| second > 0));
    FederationStatus {
        status: Some(word.to_string()),
        attempt: Some(attempt),
        reason: Some("WaitingForQuota".into()),
        placement_summary: placed.as_ref().map(|_| "m1:4".to_owned()),
        timeline: Timeline {
            queued: at(100),
            eligible,
            admitted,
            placed,
            running,
            finished,
            resized: None,
        },
        ..FederationStatus::default()
    }
}

fn evicted(status: FederationStatus, second: i64) -> FederationStatus {
    FederationStatus {
        eviction: Some(Eviction {
            time: at(second),
            reason: "Reclaimed".into(),
            ..Eviction::default()
        }),
        ..status
    }
}

fn job(status: &FederationStatus) -> TracedJob {
    TracedJob {
        trace: ObjectTrace::new("uid", None),
        attributes: vec![("muster.queue", "q".to_owned())],
        status: status.clone(),
        over: false,
    }
}

/// The spans of a job with these statuses, one after the other: `attempt/name start-end`.
fn sent(before: FederationStatus, statuses: &[FederationStatus]) -> Vec<String> {
    let (mut before, mut sent) = (before, Vec::new());
    let mut over = ended(&before).is_some();
    for status in statuses {
        let job = TracedJob {
            over,
            ..job(status)
        };
        let spans = job.spans(&before);
        over |= spans.iter().any(|span| span.key.is_none());
        sent.extend(spans.iter().map(|span| {
            let key = span.key.as_deref().unwrap_or(span.name);
            let (start, end) = (span.start.as_second(), span.end.as_second());
            let error = span.error.as_deref().map(|error| format!(" {error}"));
            format!("{key} {start}-{end}{}", error.unwrap_or_default())
        }));
        before = status.clone();
    }
    sent
}

use StatusWord::{Admitted, Evicting, Failed, Queued, Running, Starting, Succeeded};

#[test]
fn each_phase_is_sent_once_when_it_has_ended() {
    let statuses = [
        shown(0, Queued, [0; 5]),
        shown(0, Queued, [130, 0, 0, 0, 0]),
        shown(1, Admitted, [130, 160, 0, 0, 0]),
        shown(1, Starting, [130, 160, 161, 0, 0]),
        shown(1, Running, [130, 160, 161, 170, 0]),
        shown(1, Running, [130, 160, 161, 170, 0]),
        shown(1, Succeeded, [130, 160, 161, 170, 900]),
        shown(1, Succeeded, [130, 160, 161, 170, 900]),
    ];
    let all = [
        "1/held 100-130",
        "1/queued 130-160",
        "1/dispatch 160-161",
        "1/start 161-170",
        "1/run 170-900",
        "job 100-900",
    ];
    assert_eq!(sent(FederationStatus::default(), &statuses), all);
    // A leader that sees only the end sends the same, and nothing that another has published.
    assert_eq!(sent(FederationStatus::default(), &statuses[7..]), all);
    assert_eq!(sent(statuses[4].clone(), &statuses[6..]), all[4..]);
    assert!(sent(statuses[6].clone(), &statuses[6..]).is_empty());
}

#[test]
fn an_eviction_ends_what_the_job_did_and_the_next_attempt_waits_from_then_on() {
    let runs = shown(1, Running, [100, 160, 161, 170, 0]);
    let ends = evicted(shown(1, Evicting, [100, 160, 161, 170, 0]), 500);
    let waits = evicted(shown(1, Queued, [0, 0, 161, 170, 0]), 500);
    let again = evicted(shown(2, Starting, [510, 600, 601, 0, 0]), 500);
    let over = evicted(shown(2, Failed, [510, 600, 601, 610, 700]), 500);
    let wanted = [
        "1/run 170-500 evicted: Reclaimed",
        "2/held 500-510",
        "2/queued 510-600",
        "2/dispatch 600-601",
        "2/start 601-610",
        "2/run 610-700",
        "job 100-700",
    ];
    let all = [ends, waits.clone(), again.clone(), over];
    assert_eq!(sent(runs, &all), wanted);
    // A leader that begins between the attempts.
    assert_eq!(sent(waits, &all[2..]), wanted[1..]);
    // It was evicted before it ran.
    let starts = shown(1, Starting, [100, 160, 161, 0, 0]);
    let ends = evicted(shown(1, Evicting, [100, 160, 161, 0, 0]), 200);
    let wanted = ["1/start 161-200 evicted: Reclaimed"];
    assert_eq!(sent(starts, &[ends]), wanted);
    // Readmitted in the second of its eviction.
    let at_once = evicted(shown(2, Starting, [500, 500, 500, 0, 0]), 500);
    let wanted = ["2/queued 500-500", "2/dispatch 500-500"];
    assert_eq!(sent(FederationStatus::default(), &[at_once]), wanted);
}

#[test]
fn a_job_whose_parts_were_stopped_at_its_end_ends_with_them() {
    let runs = shown(1, Running, [100, 160, 161, 170, 0]);
    let over = evicted(shown(1, Succeeded, [100, 0, 161, 170, 0]), 300);
    let wanted = ["1/run 170-300 evicted: Reclaimed", "job 100-300"];
    assert_eq!(sent(runs, &[over]), wanted);
}

#[test]
fn a_time_that_nobody_saw_leaves_its_phases_out() {
    let status = shown(1, Succeeded, [0, 160, 0, 0, 200]);
    let wanted = ["1/queued 100-160", "1/run 160-200", "job 100-200"];
    assert_eq!(sent(FederationStatus::default(), &[status]), wanted);
}

#[test]
fn spans_say_why_the_job_waited_and_where_it_ran() {
    let waits = shown(0, Queued, [100, 0, 0, 0, 0]);
    let over = shown(1, Failed, [100, 160, 161, 170, 900]);
    let over = FederationStatus {
        message: Some("failed: 1 pod".into()),
        ..over
    };
    let spans = job(&over).spans(&waits);
    let of = |name: &str, attribute: &str| {
        let span = spans.iter().find(|span| span.name == name).unwrap();
        let mut attributes = span.attributes.iter();
        let found = attributes.find(|(name, _)| *name == attribute);
        found.map(|(_, value)| value.as_str())
    };
    assert_eq!(of("queued", "muster.reason"), Some("WaitingForQuota"));
    assert_eq!(of("run", "muster.placement"), Some("m1:4"));
    assert_eq!(of("run", "muster.attempt"), Some("1"));
    assert_eq!(of("run", "muster.queue"), Some("q"));
    assert_eq!(of("job", "muster.outcome"), Some("Failed"));
    let whole = spans.last().unwrap();
    assert_eq!(whole.error.as_deref(), Some("failed: 1 pod"));
}

#[test]
fn a_deletion_ends_what_the_job_did() {
    let gone = |status: &FederationStatus| {
        let spans = job(status).gone(Timestamp::from_second(400).unwrap());
        let shown = spans.iter().map(|span| {
            let (start, end) = (span.start.as_second(), span.end.as_second());
            format!("{} {start}-{end}", span.name)
        });
        shown.collect::<Vec<_>>()
    };
    let runs = shown(1, Running, [100, 160, 161, 170, 0]);
    assert_eq!(gone(&runs), ["run 170-400", "job 100-400"]);
    let starts = shown(1, Starting, [100, 160, 161, 0, 0]);
    assert_eq!(gone(&starts), ["start 161-400", "job 100-400"]);
    assert_eq!(gone(&shown(0, Queued, [0; 5])), ["job 100-400"]);
    let again = evicted(shown(1, Queued, [0, 0, 161, 170, 0]), 300);
    assert_eq!(gone(&again), ["job 100-400"]);
    let over = TracedJob {
        over: true,
        ..job(&shown(1, Succeeded, [100, 160, 161, 170, 300]))
    };
    assert!(over.gone(Timestamp::from_second(400).unwrap()).is_empty());
}
