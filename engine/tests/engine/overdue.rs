//! Policies on what jobs declare: that they are never evicted, and their run time.

use crate::preemption::{add, preempting, runs};
use crate::shrinking::restarted;
use crate::world::{World, pods, policy, queue};
use engine::facts::{JobFact, PolicyFact, Preemption};
use engine::{Event, JobState};
use insta::assert_snapshot;

/// One node of four GPUs, and queue `q` with these rules.
fn world(preemption: Preemption) -> World {
    let mut world = World::new();
    world
        .cluster("a", 1, "cpu 64, gpu 4")
        .queue(queue("q"))
        .policy(PolicyFact {
            preemption,
            ..policy("q")
        });
    world
}

/// A job of four GPUs that runs since now and declares a run time of a minute.
fn declared(world: &mut World, name: &str, class: &str) -> JobFact {
    let job = world.job(name, "q", pods(1, "gpu 4"));
    let fact = world.submit(job.priority(class).lasts(60));
    world.decide();
    world.run(name);
    fact
}

fn overdue() -> Preemption {
    Preemption {
        evict_overdue: true,
        ..Preemption::default()
    }
}

#[test]
fn a_queue_may_ignore_that_its_jobs_are_not_preemptible() {
    let mut world = world(preempting("q", 0).preemption);
    let mut job = world.job("low", "q", pods(1, "gpu 4")).priority("low");
    job.0.preemptible = false;
    world.submit(job);
    world.decide();
    world.run("low");
    add(&mut world, "high", "high", pods(1, "gpu 4"));
    assert_snapshot!(world.decide(), @"");
    let mut rules = preempting("q", 0);
    rules.preemption.allow_non_preemptible = false;
    world.policy(rules);
    assert_snapshot!(world.decide(), @"evict low #1 for high: Preempted: preempted for ns/high, which has priority 100 in its queue; it has -100");
}

#[test]
fn an_overdue_job_is_evicted_for_one_of_the_same_priority() {
    let mut world = world(overdue());
    declared(&mut world, "first", "normal");
    add(&mut world, "second", "normal", pods(1, "gpu 4"));
    world.wait(2);
    let decided = world.decided();
    assert_eq!(decided.decisions, Vec::new());
    let pause = decided.wake_at.map(|at| at.millis_since(world.now));
    assert_eq!(pause, Some(58_000), "it is asked again when that is over");
    world.wait(57);
    assert_snapshot!(world.decide(), @"");
    world.wait(1);
    assert_snapshot!(world.decide(), @"evict first #1 for second: Preempted: preempted for ns/second: it declared to run 60s and has run 0s longer");
    world.works_gone("first");
    assert_snapshot!(world.decide(), @"release second #1 a(n0)");
    // It is queued again at its old position, and preempts no job without a declared run time.
    world.run("second");
    world.wait(600);
    assert_snapshot!(world.decide(), @"");
    assert_eq!(world.state("first"), JobState::Queued);
}

#[test]
fn an_overdue_job_is_not_evicted_for_lower_priority_or_without_the_rule() {
    for (rules, class, goes) in [
        (overdue(), "low", false),
        (overdue(), "normal", true),
        (overdue(), "high", true),
        (Preemption::default(), "high", false),
    ] {
        let mut world = world(rules);
        declared(&mut world, "first", "normal");
        add(&mut world, "second", class, pods(1, "gpu 4"));
        world.wait(61);
        assert_eq!(!world.decide().is_empty(), goes, "{rules:?} {class}");
    }
}

#[test]
fn an_overdue_job_is_not_evicted_for_a_job_that_it_does_not_delay() {
    let mut world = world(overdue());
    declared(&mut world, "first", "normal");
    // It exceeds the fleet: without the first job it would not fit either.
    add(&mut world, "second", "high", pods(2, "gpu 4"));
    world.wait(61);
    assert_snapshot!(world.decide(), @"");
}

#[test]
fn a_later_declaration_applies_to_the_next_attempt() {
    let mut world = world(overdue());
    let fact = declared(&mut world, "first", "normal");
    add(&mut world, "second", "normal", pods(1, "gpu 4"));
    world.wait(30);
    for later in [None, Some(3_600_000)] {
        world.apply(Event::JobUpserted(JobFact {
            expected_duration_ms: later,
            ..fact.clone()
        }));
    }
    world.wait(31);
    assert_snapshot!(world.decide(), @"evict first #1 for second: Preempted: preempted for ns/second: it declared to run 60s and has run 1s longer");
}

#[test]
fn a_declaration_applies_after_a_restart_too() {
    let mut before = world(overdue());
    let fact = declared(&mut before, "first", "normal");
    let later = JobFact {
        expected_duration_ms: Some(3_600_000),
        ..fact
    };
    let mut world = restarted(&before, world(overdue()), later);
    add(&mut world, "second", "normal", pods(1, "gpu 4"));
    world.wait(59);
    assert_snapshot!(world.decide(), @"");
    world.wait(2);
    assert_snapshot!(world.decide(), @"evict first #1 for second: Preempted: preempted for ns/second: it declared to run 60s and has run 1s longer");
}

#[test]
fn an_overdue_job_is_preemptible_whatever_it_declares() {
    let mut world = world(overdue());
    let fact = declared(&mut world, "first", "normal");
    world.apply(Event::JobUpserted(JobFact {
        preemptible: false,
        ..fact
    }));
    add(&mut world, "second", "normal", pods(1, "gpu 4"));
    world.wait(59);
    assert_snapshot!(world.decide(), @"");
    world.wait(2);
    assert_snapshot!(world.decide(), @"evict first #1 for second: Preempted: preempted for ns/second: it declared to run 60s and has run 1s longer");
    // A job that declares no run time stays not preemptible.
    let mut world = self::world(overdue());
    runs(&mut world, "first", "normal", pods(1, "gpu 4"));
    add(&mut world, "second", "normal", pods(1, "gpu 4"));
    world.wait(100_000);
    assert_snapshot!(world.decide(), @"");
}
