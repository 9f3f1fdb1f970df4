//! Preemptors, from their search for victims until they start.

use crate::preemption::{add, preempting, runs, world};
use crate::world::{World, bound, capped, deserving, foreign, key, on, pods, queue};
use engine::facts::{JobFact, PolicyFact};
use engine::{Event, QueueName, Reason};
use insta::assert_snapshot;

fn waits_for_evictions(world: &World, name: &str) -> bool {
    let explanation = world.engine.explain(&key(name)).unwrap();
    explanation.reason == Reason::AwaitingEviction
}

#[test]
fn the_quota_of_a_class_of_pools_is_freed_too() {
    let mut world = world(2);
    world.policy(PolicyFact {
        pools: vec![bound("gpu", None, "gpu 4")],
        ..preempting("q", 0)
    });
    runs(&mut world, "low", "low", pods(1, "gpu 4"));
    add(&mut world, "high", "high", pods(1, "gpu 4"));
    assert_snapshot!(world.decide(), @"evict low #1 for high: Preempted: preempted for ns/high, which has priority 100 in its queue; it has -100");
}

#[test]
fn a_protected_job_is_evicted_at_any_later_evaluation() {
    let mut world = world(1);
    world.policy(preempting("q", 60_000));
    runs(&mut world, "low", "low", pods(1, "gpu 4"));
    add(&mut world, "high", "high", pods(1, "gpu 4"));
    assert_snapshot!(world.decide(), @"");
    world.wait(100);
    assert!(world.decide().starts_with("evict low #1 for high"));
}

#[test]
fn a_job_that_does_not_run_yet_is_evicted_if_not_protected() {
    let mut world = world(1);
    add(&mut world, "low", "low", pods(1, "gpu 4"));
    assert_snapshot!(world.decide(), @"release low #1 a(n0)");
    add(&mut world, "high", "high", pods(1, "gpu 4"));
    assert!(world.decide().starts_with("evict low #1 for high"));
}

#[test]
fn a_job_that_found_no_victims_tries_again_when_a_priority_changes() {
    let mut world = world(1);
    let fact = runs(&mut world, "runs", "normal", pods(1, "gpu 4"));
    add(&mut world, "waits", "normal", pods(1, "gpu 4"));
    assert_snapshot!(world.decide(), @"");
    world.apply(Event::JobUpserted(JobFact {
        priority_class: Some("low".to_owned()),
        ..fact
    }));
    world.decide();
    world.wait(2);
    assert!(world.decide().starts_with("evict runs #1 for waits"));
}

#[test]
fn a_preemptor_is_reported_as_changed_when_its_last_victim_is_gone() {
    let mut world = world(2);
    for name in ["one", "two"] {
        runs(&mut world, name, "low", pods(1, "gpu 4"));
    }
    add(&mut world, "high", "high", pods(2, "gpu 4"));
    world.decide();
    for (victim, is_last) in [("one", false), ("two", true)] {
        world.engine.take_changed();
        world.works_gone(victim);
        let changed = world.engine.take_changed().jobs;
        assert_eq!(changed.contains(&key("high")), is_last, "{victim}");
    }
}

#[test]
fn another_report_on_a_victim_does_not_count_as_gone() {
    let mut world = world(1);
    let fact = runs(&mut world, "low", "low", pods(1, "gpu 4"));
    add(&mut world, "high", "high", pods(1, "gpu 4"));
    world.decide();
    world.apply(Event::JobUpserted(JobFact {
        priority_class: Some("normal".to_owned()),
        checkpointed_at: Some(world.now),
        ..fact
    }));
    assert!(waits_for_evictions(&world, "high"), "{}", world.why("high"));
    assert_snapshot!(world.decide(), @"");
    assert!(waits_for_evictions(&world, "high"), "{}", world.why("high"));
}

#[test]
fn a_preemptor_that_changes_its_queue_loses_its_reservation() {
    let mut world = World::new();
    world
        .cluster("x", 1, "cpu 64, gpu 4")
        .queue(queue("a"))
        .queue(deserving("b", "gpu 4"));
    world.runs("a1", "a", 1, "gpu 4");
    let preemptor = world.add("b1", "b", 1, "gpu 4");
    assert!(world.decide().starts_with("evict a1 #1 for b1"));
    world.apply(Event::JobUpserted(JobFact {
        queue: QueueName::from("a"),
        ..preemptor
    }));
    world.add("b2", "b", 1, "gpu 4");
    assert_snapshot!(world.decide(), @"");
    assert!(waits_for_evictions(&world, "b2"), "{}", world.why("b2"));
    world.works_gone("a1");
    assert_snapshot!(world.decide(), @"release b2 #1 x(n0)");
}

#[test]
fn an_owner_whose_node_becomes_a_preemptors_is_replanned() {
    let mut world = World::new();
    world
        .cluster("a", 2, "cpu 64, gpu 8")
        .queue(deserving("due", "gpu 7"))
        .queue(queue("lent"))
        .queue(queue("q"));
    for (name, queue, gpus) in [("borrows", "lent", 7), ("old", "q", 2)] {
        let job = world.job(name, queue, pods(1, &format!("gpu {gpus}")));
        world.submit(job.lasts(1000));
        world.decide();
        world.run(name);
    }
    world.add("head", "q", 2, "gpu 6");
    world.add("small", "q", 1, "gpu 4");
    assert_snapshot!(world.decide(), @"");
    assert_snapshot!(world.why("small"), @"#2 ReservedForAnother: what is free is kept for ns/head, further ahead; beside that it needs 1 pod × nvidia.com/gpu 4; a has room for 0 of 1");
    world.add("preemptor", "due", 1, "gpu 7");
    // One of the two planned nodes of the head is the preemptor's now, for an unknown time.
    assert_snapshot!(world.decide(), @r"
    evict borrows #1 for preemptor: Reclaimed: reclaimed for ns/preemptor: queue due has nvidia.com/gpu 0 of the 7 that it deserves, queue lent has 7 and deserves 0
    release small #1 a(n1)
    ");
    assert_eq!(world.engine.check_invariants(), Vec::<String>::new());
}

#[test]
fn a_preemptor_with_a_node_waits_for_headroom_from_elsewhere() {
    let mut world = World::new();
    world
        .cluster("a", 2, "cpu 64, gpu 8")
        .queue(capped("q", "gpu 10"))
        .policy(preempting("q", 0))
        .queue(queue("other"));
    let low = world.job("low", "q", pods(1, "gpu 6")).priority("low");
    world.submit(low);
    world.decide();
    world.run("low");
    let ends = world.job("ends", "q", pods(1, "gpu 4")).priority("high");
    world.submit(ends);
    assert_snapshot!(world.decide(), @"release ends #1 a(n1)");
    world.run("ends");
    world.apply(foreign("a", "n1", "gpu 4"));
    world.ending("ends", Reason::Evicted);
    let preemptor = world
        .job("preemptor", "q", pods(1, "gpu 8"))
        .priority("high");
    world.submit(preemptor);
    assert_snapshot!(world.decide(), @"evict low #1 for preemptor: Preempted: preempted for ns/preemptor, which has priority 100 in its queue; it has -100");
    world.works_gone("low");
    world.add("small", "other", 1, "gpu 8");
    assert_snapshot!(world.decide(), @"");
    world.works_gone("ends");
    assert_snapshot!(world.decide(), @"release preemptor #1 a(n0)");
}

#[test]
fn a_preemptor_does_not_use_headroom_reserved_for_a_job_ahead() {
    let mut world = World::new();
    world
        .cluster("a", 2, "cpu 64, gpu 8")
        .cluster("b", 1, "cpu 64, gpu 2")
        .queue(capped("q", "gpu 12"))
        .policy(preempting("q", 0))
        .queue(queue("other"));
    let long = world.job("long", "other", on("b", pods(1, "gpu 2")));
    world.submit(long);
    world.decide();
    world.run("long");
    let low = on("a", pods(1, "gpu 6"));
    runs(&mut world, "low", "low", low);
    let ends = on("a", pods(1, "gpu 4"));
    runs(&mut world, "ends", "high", ends);
    world.apply(foreign("a", "n1", "gpu 4"));
    world.ending("ends", Reason::Evicted);
    add(&mut world, "ahead", "high", on("b", pods(1, "gpu 2")));
    add(&mut world, "preemptor", "high", on("a", pods(1, "gpu 8")));
    assert_snapshot!(world.decide(), @"evict low #1 for preemptor: Preempted: preempted for ns/preemptor, which has priority 100 in its queue; it has -100");
    world.works_gone("low");
    assert_snapshot!(world.decide(), @"");
    world.works_gone("ends");
    assert_snapshot!(world.decide(), @"release preemptor #1 a(n0)");
}

#[test]
fn a_new_job_with_the_shape_of_a_preemptor_preempts_too() {
    let mut world = World::new();
    world
        .cluster("a", 1, "cpu 64, gpu 16")
        .queue(capped("q", "gpu 8"))
        .policy(preempting("q", 0));
    for name in ["low-1", "low-2"] {
        runs(&mut world, name, "low", pods(1, "gpu 4"));
    }
    add(&mut world, "first", "high", pods(1, "gpu 4"));
    assert_snapshot!(world.decide(), @"evict low-1 #1 for first: Preempted: preempted for ns/first, which has priority 100 in its queue; it has -100");
    add(&mut world, "joins", "high", pods(1, "gpu 4"));
    assert_snapshot!(world.decide(), @"evict low-2 #1 for joins: Preempted: preempted for ns/joins, which has priority 100 in its queue; it has -100");
}

#[test]
fn a_preemptor_does_not_wait_for_ends_that_do_not_help() {
    let mut world = World::new();
    world
        .cluster("a", 2, "cpu 64, gpu 8")
        .cluster("b", 2, "cpu 64, gpu 8")
        .queue(capped("q", "gpu 10"))
        .policy(preempting("q", 0))
        .queue(queue("other"));
    runs(&mut world, "low", "low", on("a", pods(1, "gpu 6")));
    runs(&mut world, "ends", "high", on("b", pods(1, "gpu 4")));
    runs(&mut world, "cpus", "high", on("b", pods(1, "cpu 4")));
    let beside = world.job("beside", "other", on("b", pods(1, "gpu 8")));
    world.submit(beside);
    world.decide();
    world.run("beside");
    for name in ["ends", "cpus", "beside"] {
        world.ending(name, Reason::Evicted);
    }
    add(&mut world, "preemptor", "high", on("a", pods(1, "gpu 8")));
    assert!(world.decide().starts_with("evict low #1 for preemptor"));
    // It waits neither for a job of another queue nor for one that uses nothing of the short
    // resource.
    assert_snapshot!(world.why("preemptor"), @"#1 AwaitingEviction: needs nvidia.com/gpu 8; queue q may use 10 and has 10 charged: short by 8; it is next: ns/ends and ns/low are evicted for it, and what becomes free is reserved for it");
    world.works_gone("low");
    world.works_gone("ends");
    assert_snapshot!(world.decide(), @"release preemptor #1 a(n0)");
}
