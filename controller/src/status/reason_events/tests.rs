#![allow(clippy::unwrap_used)]
use super::*;

fn key(index: usize) -> JobKey {
    JobKey::new("team", &format!("job-{index:05}"))
}

fn shown(reason: Reason) -> Option<QueuedReason> {
    let queue = QueueName::new("q");
    Some(QueuedReason { reason, queue })
}

/// Takes what is due and notes it as recorded, for the reason that `now_shown` gives.
fn record(
    events: &mut ReasonEvents,
    now: Time,
    now_shown: impl Fn(&JobKey) -> Option<QueuedReason>,
) -> Vec<JobKey> {
    let due = events.take_due(now);
    for key in &due {
        events.recorded(key, now_shown(key).unwrap(), now);
    }
    due
}

#[test]
fn a_reason_that_lasts_gets_one_event() {
    let mut events = ReasonEvents::new();
    let reason = || shown(Reason::WaitingForQuota);
    events.observe(&key(1), reason(), Some(1), Time(0));
    assert_eq!(events.next_due(), Some(Time(SETTLE_MS)));
    assert_eq!(events.take_due(Time(SETTLE_MS - 1)), Vec::new());
    // Its message and its position change, its reason does not.
    events.observe(&key(1), reason(), Some(3), Time(1_000));
    let due = record(&mut events, Time(SETTLE_MS), |_| reason());
    assert_eq!(due, [key(1)]);
    for second in 3..2_000 {
        events.observe(&key(1), reason(), Some(2), Time(second * 1_000));
        assert_eq!(events.next_due(), None);
    }
    // In another queue it is news.
    let elsewhere = Some(QueuedReason {
        reason: Reason::WaitingForQuota,
        queue: QueueName::new("other"),
    });
    events.observe(&key(1), elsewhere, Some(1), Time(2_000_000));
    assert_eq!(events.next_due(), Some(Time(2_000_000 + SETTLE_MS)));
}

#[test]
fn a_new_leader_repeats_no_event_of_the_last_one() {
    let mut events = ReasonEvents::new();
    events.remember(&key(1), || shown(Reason::WaitingForRoom), Time(0));
    // A new leader evaluates the job again.
    events.observe(&key(1), shown(Reason::NotEvaluated), None, Time(0));
    events.observe(&key(1), shown(Reason::WaitingForRoom), Some(1), Time(500));
    assert_eq!(events.take_due(Time(60_000)), Vec::new());
    // What the PodGroup shows later, this leader has written itself.
    events.remember(&key(1), || shown(Reason::NextInLine), Time(60_000));
    events.observe(&key(1), shown(Reason::NextInLine), Some(1), Time(60_000));
    assert_eq!(events.take_due(Time(62_000)), [key(1)]);
}

#[test]
fn a_reason_that_passes_gets_none() {
    let mut events = ReasonEvents::new();
    events.observe(&key(1), shown(Reason::WaitingForRoom), Some(1), Time(0));
    events.observe(&key(1), shown(Reason::NextInLine), Some(1), Time(1_500));
    assert_eq!(events.take_due(Time(3_000)), Vec::new());
    events.observe(&key(1), None, None, Time(3_100));
    assert_eq!(events.take_due(Time(60_000)), Vec::new());
    assert_eq!(events.next_due(), None);
    events.observe(&key(1), shown(Reason::NotEvaluated), None, Time(60_000));
    assert_eq!(events.take_due(Time(89_999)), Vec::new());
    assert_eq!(events.take_due(Time(90_000)), [key(1)]);
}

#[test]
fn a_job_between_two_reasons_gets_an_event_for_each_in_ten_minutes() {
    let mut events = ReasonEvents::new();
    let mut count = 0;
    for step in 0..7_200 {
        // It changes every five seconds, for two hours.
        let now = Time(step * 1_000);
        let reason = match step / 5 % 2 {
            0 => Reason::WaitingForQuota,
            _ => Reason::WaitingForRoom,
        };
        events.observe(&key(1), shown(reason), Some(1), now);
        count += record(&mut events, now, |_| shown(reason)).len();
    }
    assert!((24..=26).contains(&count), "{count} events in two hours");
    // The reason that stays is said in the end.
    events.observe(&key(1), shown(Reason::NextInLine), Some(1), Time(7_300_000));
    assert_eq!(events.take_due(Time(7_302_000)), [key(1)]);
}

#[test]
fn ten_thousand_jobs_that_change_together_stay_within_the_rate_and_heads_come_first() {
    const JOBS: usize = 10_000;
    let mut events = ReasonEvents::new();
    let mut posted: Vec<(Time, JobKey)> = Vec::new();
    // Every ten seconds all of them wait for something else.
    let reasons = [
        Reason::WaitingForQuota,
        Reason::WaitingForRoom,
        Reason::ReservedForAnother,
    ];
    for tick in 0..6_000_i64 {
        let now = Time(tick * 100);
        let reason = reasons[usize::try_from(tick / 100 % 3).unwrap()];
        if tick % 100 == 0 {
            for index in 0..JOBS {
                events.observe(&key(index), shown(reason), Some(JOBS - index), now);
            }
        }
        let due = record(&mut events, now, |_| shown(reason));
        posted.extend(due.into_iter().map(|key| (now, key)));
    }
    let most = usize::try_from(600_000 / INTERVAL_MS + BURST).unwrap();
    assert!(
        posted.len() <= most,
        "{} events in ten minutes",
        posted.len()
    );
    // The last ten names are the first of the queue.
    for index in JOBS - 10..JOBS {
        let (at, _) = posted.iter().find(|(_, of)| *of == key(index)).unwrap();
        assert!(*at <= Time(5_000), "job {index} at {at:?}");
    }
    let of_head = posted.iter().filter(|(_, of)| *of == key(JOBS - 1));
    assert_eq!(of_head.count(), 3);
    for index in 0..JOBS {
        events.forget(&key(index));
    }
    assert_eq!(events.next_due(), None);
    assert!(events.jobs.is_empty());
}

#[test]
fn a_job_that_comes_to_the_head_comes_first() {
    let mut events = ReasonEvents::new();
    for index in 0..100 {
        let position = Some(index + 1);
        events.observe(
            &key(index),
            shown(Reason::WaitingForRoom),
            position,
            Time(0),
        );
    }
    let first = events.take_due(Time(2_000));
    assert_eq!(first.len(), usize::try_from(BURST).unwrap());
    assert_eq!(first[0], key(0));
    events.observe(
        &key(99),
        shown(Reason::WaitingForRoom),
        Some(1),
        Time(2_100),
    );
    assert_eq!(events.take_due(Time(2_500)), [key(99)]);
}

#[test]
fn the_event_names_queue_and_command_within_the_limit_of_kubernetes() {
    let object = ObjectReference {
        api_version: "batch/v1".into(),
        kind: "Job".into(),
        namespace: "team".into(),
        name: "train".into(),
        uid: "u".into(),
        resource_version: String::new(),
    };
    let note = |reason, message: &str| event(&object, &shown(reason).unwrap(), message).message;
    assert_eq!(
        note(Reason::WaitingForQuota, "needs cpu 3; queue q may use 4"),
        "needs cpu 3; queue q may use 4; see kubectl muster explain job/train -n team"
    );
    assert_eq!(
        note(Reason::BackingOff, "attempt 1 was evicted"),
        "queue q: attempt 1 was evicted; see kubectl muster explain job/train -n team"
    );
    let long = note(Reason::WaitingForRoom, &"é".repeat(2_000));
    assert!(long.len() <= LONGEST_NOTE, "{}", long.len());
    assert!(long.ends_with("...; see kubectl muster explain job/train -n team"));
}

#[test]
fn only_what_lasts_gets_an_event() {
    use JobState::{Finished, Placed, Queued};
    for (state, reason, needs) in [
        (Queued, Reason::WaitingForQuota, true),
        (Queued, Reason::Suspended, true),
        (Queued, Reason::Failed, false),
        (Placed, Reason::PodsNotStarting, true),
        (Placed, Reason::PodsRefused, true),
        (Placed, Reason::PodsNotScheduled, true),
        (Placed, Reason::Placed, false),
        (Finished, Reason::Succeeded, false),
    ] {
        assert_eq!(needs_event(state, reason), needs, "{state:?} {reason}");
    }
    assert!(Reason::QueueNotFound.needs_change() && Reason::ExceedsFleet.needs_change());
    assert!(!Reason::WaitingForQuota.needs_change() && !Reason::Suspended.needs_change());
}
