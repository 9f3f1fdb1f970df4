//! The limit of run time of a queue.

use crate::world::{World, below, key, policy, queue};
use engine::facts::{Limits, PolicyFact};
use engine::{Engine, EngineConfig, Event, JobState, Progress, Uid};
use insta::assert_snapshot;

fn limited(name: &str, seconds: Option<i64>) -> PolicyFact {
    PolicyFact {
        limits: Limits {
            runtime_ms: seconds.map(|seconds| seconds * 1000),
            ..Limits::default()
        },
        ..policy(name)
    }
}

/// A job that runs since a second after its admission, in a queue below `dept`.
fn running() -> World {
    let mut world = World::new();
    world
        .cluster("a", 1, "cpu 64, gpu 4")
        .queue(queue("dept"))
        .queue(below("dept", queue("q")));
    world.add("job", "q", 1, "gpu 1");
    world.decide();
    world.wait(1).run("job");
    world
}

#[test]
fn a_job_is_stopped_and_does_not_compete_until_the_limit_is_raised() {
    let mut world = running();
    world.policy(limited("q", Some(60)));
    let wakes = world.decided().wake_at.unwrap();
    assert_eq!(wakes.millis_since(world.now), 60_000);
    world.wait(59);
    assert_snapshot!(world.decide(), @"");
    world.wait(1);
    assert_snapshot!(world.decide(), @"evict job #1: RuntimeLimitExceeded: it ran 60 s, and queue q lets a job run 60 s");
    world.works_gone("job");
    assert_snapshot!(world.decide(), @"");
    assert_snapshot!(world.why("job"), @"RuntimeLimitExceeded: it was stopped after 60 s, and queue q lets a job run 60 s; it competes again once it is submitted again, or that limit is higher");
    world.policy(limited("q", Some(60)));
    world.wait(1000);
    assert_snapshot!(world.decide(), @"");
    world.policy(limited("q", Some(61)));
    assert_snapshot!(world.decide(), @"release job #2 a(n0)");
}

#[test]
fn the_lowest_limit_on_its_path_counts() {
    let mut world = running();
    world
        .policy(limited("q", Some(60)))
        .policy(limited("dept", Some(10)));
    world.decide();
    world.wait(10);
    assert_snapshot!(world.decide(), @"evict job #1: RuntimeLimitExceeded: it ran 10 s, and queue dept lets a job run 10 s");
    world.works_gone("job");
    world.policy(limited("dept", None));
    assert_snapshot!(world.decide(), @"release job #2 a(n0)");
}

#[test]
fn a_new_object_competes_and_so_does_one_in_another_queue() {
    let mut world = running();
    world.policy(limited("q", Some(60)));
    world.wait(60);
    world.decide();
    world.works_gone("job");
    assert_snapshot!(world.decide(), @"");
    let job = world
        .job("job", "q", crate::world::pods(1, "gpu 1"))
        .uid("new");
    world.submit(job);
    assert_snapshot!(world.decide(), @"release job #1 a(n0)");
}

#[test]
fn the_record_of_a_stopped_job_counts_after_a_restart() {
    let mut world = running();
    world.policy(limited("q", Some(60)));
    world.wait(60);
    world.decide();
    world.works_gone("job");
    let snapshot = world.engine.snapshot();
    let mut restored = Engine::restore(snapshot, EngineConfig::default());
    assert_eq!(restored.decide(world.now).decisions, Vec::new());

    let mut fresh = World::new();
    fresh
        .cluster("a", 1, "cpu 64, gpu 4")
        .queue(queue("q"))
        .policy(limited("q", Some(60)));
    fresh.add("job", "q", 1, "gpu 1");
    fresh.apply(Event::JobStopped {
        key: key("job"),
        uid: Uid::from("uid-job"),
        ran_ms: 60_000,
    });
    assert_snapshot!(fresh.decide(), @"");
    fresh.policy(limited("q", None));
    assert_snapshot!(fresh.decide(), @"release job #1 a(n0)");
}

#[test]
fn a_job_that_ended_in_time_is_not_stopped() {
    let mut world = running();
    world.policy(limited("q", Some(60)));
    world.decide();
    world.progress("job", Progress::Finished);
    world.wait(100);
    assert_snapshot!(world.decide(), @"");
    assert_eq!(world.state("job"), JobState::Finished);
}

#[test]
fn a_moved_queue_has_the_limits_of_its_new_parent() {
    let mut world = running();
    world.queue(queue("lab")).policy(limited("lab", Some(60)));
    assert_eq!(world.decided().wake_at, Some(world.now.after(599_000)));
    world.queue(below("lab", queue("q")));
    world.decide();
    world.wait(60);
    assert_snapshot!(world.decide(), @"evict job #1: RuntimeLimitExceeded: it ran 60 s, and queue lab lets a job run 60 s");
    world.works_gone("job");
    assert_snapshot!(world.decide(), @"");
    world.queue(queue("q"));
    assert_snapshot!(world.decide(), @"release job #2 a(n0)");
}

#[test]
fn a_recreated_parent_limits_running_jobs_below_it() {
    let mut world = running();
    world.policy(limited("dept", Some(60)));
    world.apply(Event::QueueGone(engine::QueueName::from("dept")));
    world.decide();
    world.wait(60);
    assert_snapshot!(world.decide(), @"");
    world.queue(queue("dept"));
    assert_snapshot!(world.decide(), @"evict job #1: RuntimeLimitExceeded: it ran 60 s, and queue dept lets a job run 60 s");
}
