#![allow(clippy::unwrap_used)]
use super::*;

fn wait(what: &str, took_ms: u64) -> RecordLine {
    RecordLine::Wait {
        story: "a".into(),
        what: what.into(),
        took_ms,
        met: true,
    }
}

fn idle() -> Idle {
    Idle::parse(r#"{"a": {"placed": 1000, "ended": 30000}}"#).unwrap()
}

/// A story that passed in so many seconds.
fn passed(name: &str, seconds: u64) -> RecordLine {
    let took = Duration::from_secs(seconds);
    story(name, Duration::ZERO, took, StoryEnd::Passed)
}

#[test]
fn a_wait_of_one_second_that_takes_170_fails_a_run_in_which_all_stories_passed() {
    let lines = [
        passed("a", 171),
        wait("placed", 1_100),
        wait("placed", 1_200),
        wait("placed", 170_000),
    ];
    let report = RunReport::of(&lines, &idle());
    assert!(report.verdict().unwrap().contains("165 s longer"));
    assert!(report.to_string().contains("a: placed"));
}

#[test]
fn a_machine_that_slows_all_waits_down_excuses_them_to_a_degree() {
    let waits = |slowdown: u64, slowest: u64| {
        let mut lines = vec![wait("placed", slowdown * 1_100); 9];
        lines.push(wait("ended", slowest * 30_000));
        RunReport::of(&lines, &idle())
    };
    assert_eq!(waits(1, 8).excess(), Duration::from_secs(90));
    assert_eq!(waits(3, 8).excess(), Duration::ZERO);
    // Beyond ten times its idle time nothing excuses a wait.
    assert_eq!(waits(9, 11).excess(), Duration::from_secs(30));
}

#[test]
fn waits_as_long_as_usual_and_some_slow_ones_are_no_failure() {
    let lines = [
        passed("a", 171),
        wait("placed", 900),
        wait("ended", 100_000),
        wait("placed", 60_000),
    ];
    let report = RunReport::of(&lines, &idle());
    assert_eq!(report.slow.len(), 1, "{report}");
    assert_eq!(report.verdict(), None);
}

#[test]
fn many_waits_that_are_slow_by_half_a_minute_each_fail_the_run() {
    let lines: Vec<RecordLine> = (0..5).map(|_| wait("placed", 30_000)).collect();
    assert!(RunReport::of(&lines, &idle()).verdict().is_some());
}

#[test]
fn the_slowest_stories_are_repeated_and_fail_the_run_only_if_they_are_slow_again() {
    let of = |name: &str, slowest_ms: u64| {
        let wait = RecordLine::Wait {
            story: name.into(),
            what: "placed".into(),
            took_ms: slowest_ms,
            met: true,
        };
        [passed(name, slowest_ms / 1_000), wait]
    };
    let lines = [of("a", 55_000), of("b", 125_000), of("c", 2_000)].concat();
    let report = RunReport::of(&lines, &idle());
    assert_eq!(report.slowest_stories(), ["b"]);
    let verdict_with = |repeats: &[RecordLine]| {
        let lines = with_repeats(lines.clone(), repeats.to_vec());
        RunReport::of(&lines, &idle()).verdict()
    };
    assert_eq!(verdict_with(&of("b", 3_000)), None);
    assert!(verdict_with(&of("b", 110_000)).is_some());
    let failed = StoryEnd::Failed("not placed".to_owned());
    let failed = [story("b", Duration::ZERO, Duration::ZERO, failed)];
    assert_eq!(verdict_with(&failed).unwrap(), "1 stories failed");
}

#[test]
fn a_run_that_fails_by_its_stories_repeats_none() {
    let failed = StoryEnd::Failed("not placed".to_owned());
    let lines = [
        story("a", Duration::ZERO, Duration::ZERO, failed),
        wait("placed", 300_000),
    ];
    assert!(RunReport::of(&lines, &idle()).slowest_stories().is_empty());
}

#[test]
fn a_run_without_a_story_has_not_passed() {
    let verdict = RunReport::of(&[], &idle()).stories_verdict();
    assert_eq!(verdict.unwrap(), "no story was run");
}

#[test]
fn a_story_that_failed_is_shown_with_its_reason() {
    let failed = StoryEnd::Failed("job placed: not within 180s".to_owned());
    let lines = [story("a", Duration::ZERO, Duration::from_secs(1), failed)];
    let report = RunReport::of(&lines, &idle());
    assert_eq!(report.verdict().unwrap(), "1 stories failed");
    assert!(report.to_string().contains("FAILED a: job placed"));
}

#[test]
fn a_story_that_was_cut_off_fails_a_run_but_is_no_failure_of_the_story() {
    let lines = [story(
        "a",
        Duration::ZERO,
        Duration::from_secs(1),
        StoryEnd::Cut,
    )];
    let report = RunReport::of(&lines, &idle());
    assert_eq!(report.stories_verdict(), None);
    assert!(report.verdict().unwrap().contains("time of the run"));
    assert!(report.to_string().contains("CUT a"));
}

#[test]
fn idle_times_are_the_shortest_of_the_longest_of_each_run() {
    let mut idle = Idle::default();
    idle.learn(&[wait("placed", 700), wait("placed", 900)]);
    idle.learn(&[wait("placed", 800), wait("placed", 200)]);
    idle.learn(&[wait("placed", 5_000)]);
    assert_eq!(idle.of("a", "placed"), Duration::from_millis(800));
    assert_eq!(Idle::parse(&idle.text().unwrap()).unwrap(), idle);
}
