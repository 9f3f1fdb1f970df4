#![allow(clippy::unwrap_used)]
use super::*;
use JobState::{Assumed, Ending, Finished, Placed, Queued, Running};

/// A job that was submitted in second 100 and, if admitted, admitted in second `admitted`.
fn stage(second: i64, attempt: u32, state: JobState, admitted: Option<i64>) -> StageNow {
    StageNow {
        attempt,
        state,
        competes: state == Queued,
        pods: 4,
        queued_at: Time(100_000),
        admitted_at: admitted.map(|second| Time(second * 1_000)),
        now: Time(second * 1_000 + 7),
    }
}

fn held(second: i64) -> StageNow {
    StageNow {
        competes: false,
        ..stage(second, 0, Queued, None)
    }
}

/// Eligible, admitted, placed, running, finished in seconds.
fn shown(times: &Timeline) -> [Option<i64>; 5] {
    [
        &times.eligible,
        &times.admitted,
        &times.placed,
        &times.running,
        &times.finished,
    ]
    .map(|time| time.as_ref().map(|time| time.0.as_second()))
}

fn after(published: Option<&FederationStatus>, stages: &[StageNow]) -> Timeline {
    let (mut log, key) = (StageLog::default(), JobKey::new("team", "a"));
    for stage in stages {
        log.observe(&key, published, *stage);
    }
    log.times(&key)
}

/// Returns what an earlier process has published.
fn published(status: StatusWord, attempt: i32, times: Timeline) -> FederationStatus {
    FederationStatus {
        status: Some(status.to_string()),
        attempt: Some(attempt),
        timeline: times,
        ..FederationStatus::default()
    }
}

#[test]
fn each_stage_has_the_time_at_which_the_job_is_seen_to_reach_it() {
    let stages = [
        held(101),
        held(110),
        stage(160, 0, Queued, None),
        stage(170, 0, Queued, None),
        stage(200, 1, Assumed, Some(200)),
        stage(201, 1, Placed, Some(200)),
        stage(230, 1, Running, Some(200)),
        stage(900, 1, Finished, Some(200)),
    ];
    let times = after(None, &stages);
    assert_eq!(times.queued, Some(at(Time(100_000))));
    let wanted = [Some(160), Some(200), Some(201), Some(230), Some(900)];
    assert_eq!(shown(&times), wanted);
    // A job that may go at once is eligible from the start.
    let quick = [
        stage(101, 1, Assumed, Some(101)),
        stage(102, 1, Placed, Some(101)),
    ];
    let wanted = [Some(100), Some(101), Some(102), None, None];
    assert_eq!(shown(&after(None, &quick)), wanted);
    // It was held, and was released and admitted in one pass.
    let stages = [held(101), stage(150, 1, Assumed, Some(150))];
    assert_eq!(shown(&after(None, &stages))[0], Some(150));
}

#[test]
fn a_hold_ends_eligibility_and_each_attempt_has_times_of_its_own() {
    let stages = [stage(101, 0, Queued, None), held(120)];
    assert_eq!(shown(&after(None, &stages))[0], None);
    let stages = [
        stage(101, 1, Placed, Some(101)),
        stage(110, 1, Running, Some(101)),
        stage(150, 1, Ending, Some(101)),
        stage(160, 1, Queued, None),
        stage(300, 2, Assumed, Some(300)),
        stage(301, 2, Placed, Some(300)),
    ];
    let wanted = [Some(160), Some(300), Some(301), None, None];
    assert_eq!(shown(&after(None, &stages)), wanted);
}

#[test]
fn what_nobody_saw_is_absent() {
    // The process started long after the job, and nothing was published.
    assert_eq!(
        shown(&after(None, &[stage(500, 0, Queued, None)])),
        [None; 5]
    );
    let runs = after(None, &[stage(500, 1, Running, Some(300))]);
    assert_eq!(shown(&runs), [None, Some(300), None, None, None]);
    // It reached the stage while no process ran.
    let times = after(None, &[stage(101, 0, Queued, None)]);
    let was = published(StatusWord::Queued, 0, times);
    let runs = after(Some(&was), &[stage(500, 1, Running, Some(300))]);
    assert_eq!(shown(&runs), [Some(100), Some(300), None, None, None]);
    // It may have been held meanwhile, and have had another attempt.
    let runs = after(Some(&was), &[stage(500, 2, Running, Some(300))]);
    assert_eq!(shown(&runs), [None, Some(300), None, None, None]);
    // Another job of this name.
    let mut other = was;
    other.timeline.queued = Some(at(Time(50_000)));
    let runs = after(Some(&other), &[stage(500, 0, Queued, None)]);
    assert_eq!(shown(&runs), [None; 5]);
}

#[test]
fn a_restart_keeps_what_was_published() {
    let stages = [
        held(101),
        stage(160, 0, Queued, None),
        stage(200, 1, Placed, Some(200)),
        stage(230, 1, Running, Some(200)),
    ];
    for until in 1..=stages.len() {
        let times = after(None, &stages[..until]);
        let state = match stages[until - 1].state {
            Queued => StatusWord::Queued,
            Placed => StatusWord::Starting,
            _ => StatusWord::Running,
        };
        let attempt = i32::try_from(stages[until - 1].attempt).unwrap();
        let was = published(state, attempt, times.clone());
        let restarted = after(Some(&was), &stages[until - 1..until]);
        assert_eq!(restarted, times, "{until}");
    }
}

#[test]
fn a_resize_is_dated() {
    let small = stage(110, 1, Running, Some(101));
    let large = StageNow {
        pods: 8,
        ..stage(150, 1, Running, Some(101))
    };
    assert_eq!(after(None, &[small, small]).resized, None);
    let resized = after(None, &[small, large, large]).resized;
    assert_eq!(resized.unwrap().0.as_second(), 150);
}
