//! The order of jobs and queues.

use crate::world::{World, below, capped, deserving, policy, queue};
use engine::facts::{Hold, JobFact, PriorityClassFact, QueueFact, QueueOrdering};
use engine::{Event, Reason};
use insta::assert_snapshot;

/// A fleet of eight GPUs, so that jobs of eight run one after the other.
fn eight() -> World {
    let mut world = World::new();
    world.cluster("a", 1, "cpu 64, gpu 8").queue(queue("q"));
    world
}

/// Runs jobs one after the other, and returns their names in that order.
fn drain(world: &mut World, steps: usize) -> String {
    let mut order = Vec::new();
    for _ in 0..steps {
        for decision in world.decided().decisions {
            let engine::Decision::Release { key, .. } = decision else {
                continue;
            };
            world.run(&key.name);
            world.finish(&key.name);
            order.push(key.name.to_string());
        }
    }
    order.join(" ")
}

#[test]
fn priority_then_age_then_name() {
    let mut world = eight();
    for (name, class) in [
        ("c", "normal"),
        ("b", "low"),
        ("z", "high"),
        ("a", "high"),
        ("d", "normal"),
    ] {
        let job = world
            .job(name, "q", crate::world::pods(1, "gpu 8"))
            .priority(class);
        world.submit(job);
    }
    let mut twin = world
        .job("aa", "q", crate::world::pods(1, "gpu 8"))
        .priority("high");
    twin.0.queued_at = engine::Time(3000);
    world.submit(twin);
    assert_snapshot!(drain(&mut world, 6), @"aa z a c d b");
}

#[test]
fn no_class_means_the_global_default() {
    let mut world = eight();
    world.add("unnamed", "q", 1, "gpu 8");
    let job = world
        .job("normal", "q", crate::world::pods(1, "gpu 8"))
        .priority("normal");
    world.submit(job);
    world.apply(Event::PriorityClassUpserted(PriorityClassFact {
        name: "default".to_owned(),
        value: -5,
        global_default: true,
        preempts: true,
    }));
    assert_snapshot!(drain(&mut world, 2), @"normal unnamed");
}

#[test]
fn a_class_that_changes_moves_its_jobs() {
    let mut world = eight();
    world.add("first", "q", 1, "gpu 8");
    let job = world
        .job("second", "q", crate::world::pods(1, "gpu 8"))
        .priority("low");
    world.submit(job);
    world.apply(Event::PriorityClassUpserted(PriorityClassFact {
        name: "low".to_owned(),
        value: 7,
        global_default: false,
        preempts: true,
    }));
    assert_snapshot!(drain(&mut world, 2), @"second first");
}

#[test]
fn a_job_whose_class_is_raised_passes_earlier_ones() {
    let mut world = eight();
    world.runs("runs", "q", 1, "gpu 8");
    for name in ["first", "second"] {
        world.add(name, "q", 1, "gpu 8");
    }
    let raised = world.add("raised", "q", 1, "gpu 8");
    assert_snapshot!(world.decide(), @"");
    world.apply(Event::JobUpserted(JobFact {
        priority_class: Some("high".to_owned()),
        ..raised
    }));
    assert!(world.why("raised").starts_with("#1 "));
    world.finish("runs");
    assert_snapshot!(drain(&mut world, 3), @"raised first second");
}

#[test]
fn a_job_whose_class_is_raised_preempts_at_once() {
    let mut world = eight();
    world.policy(crate::preemption::preempting("q", 0));
    world.runs("runs", "q", 1, "gpu 8");
    let raised = world.add("raised", "q", 1, "gpu 8");
    assert_snapshot!(world.decide(), @"");
    world.apply(Event::JobUpserted(JobFact {
        priority_class: Some("high".to_owned()),
        ..raised
    }));
    assert_snapshot!(world.decide(), @"evict runs #1 for raised: Preempted: preempted for ns/raised, which has priority 100 in its queue; it has 0");
}

#[test]
fn a_job_that_is_released_from_a_hold_has_its_old_place() {
    let mut world = eight();
    world.runs("runs", "q", 1, "gpu 8");
    let held = world.add("held", "q", 1, "gpu 8");
    world.add("later", "q", 1, "gpu 8");
    let hold = Hold {
        reason: Reason::OnHold,
        message: "by its label".to_owned(),
    };
    world.apply(Event::JobUpserted(JobFact {
        hold: Some(hold),
        ..held.clone()
    }));
    assert_snapshot!(world.decide(), @"");
    assert_snapshot!(world.why("held"), @"OnHold: by its label");
    world.apply(Event::JobUpserted(held));
    world.finish("runs");
    assert_snapshot!(drain(&mut world, 2), @"held later");
}

#[test]
fn queues_take_turns_by_share_and_weight() {
    let mut world = World::new();
    world.cluster("a", 6, "cpu 64, gpu 1");
    world.queue(queue("one")).queue(QueueFact {
        weight: 2,
        ..queue("two")
    });
    for index in 0..6 {
        world.add(&format!("one-{index}"), "one", 1, "gpu 1");
        world.add(&format!("two-{index}"), "two", 1, "gpu 1");
    }
    assert_snapshot!(world.decide(), @r"
    release one-0 #1 a(n0)
    release two-0 #1 a(n1)
    release two-1 #1 a(n2)
    release one-1 #1 a(n3)
    release two-2 #1 a(n4)
    release two-3 #1 a(n5)
    ");
}

#[test]
fn queue_priority_goes_before_share() {
    let mut world = World::new();
    world.cluster("a", 3, "cpu 64, gpu 1");
    world.queue(queue("plain")).queue(QueueFact {
        priority: 5,
        ..queue("urgent")
    });
    for index in 0..3 {
        world.add(&format!("plain-{index}"), "plain", 1, "gpu 1");
        world.add(&format!("urgent-{index}"), "urgent", 1, "gpu 1");
    }
    assert_snapshot!(world.decide(), @r"
    release urgent-0 #1 a(n0)
    release urgent-1 #1 a(n1)
    release urgent-2 #1 a(n2)
    ");
}

#[test]
fn the_share_of_a_bounded_queue_is_relative_to_its_capability() {
    let mut world = World::new();
    world.cluster("a", 10, "cpu 64, gpu 1");
    // One GPU is half of the capability of the small queue, and a tenth of the fleet for the
    // other.
    world.queue(capped("small", "gpu 2")).queue(queue("big"));
    for index in 0..3 {
        world.add(&format!("small-{index}"), "small", 1, "gpu 1");
        world.add(&format!("big-{index}"), "big", 1, "gpu 1");
    }
    assert_snapshot!(world.decide(), @r"
    release small-0 #1 a(n0)
    release big-0 #1 a(n1)
    release big-1 #1 a(n2)
    release big-2 #1 a(n3)
    release small-1 #1 a(n4)
    ");
}

#[test]
fn a_deserved_amount_of_zero_is_none() {
    let mut world = eight();
    world.queue(deserving("zero", "gpu 0"));
    world.add("first", "q", 1, "gpu 8");
    world.add("second", "zero", 1, "gpu 8");
    assert_snapshot!(drain(&mut world, 2), @"first second");
}

#[test]
fn siblings_are_compared_below_their_parents() {
    let mut world = World::new();
    world.cluster("a", 6, "cpu 64, gpu 1");
    world.queue(queue("dept")).queue(queue("lone"));
    world
        .queue(below("dept", queue("x")))
        .queue(below("dept", queue("y")));
    for index in 0..4 {
        for name in ["x", "y", "lone"] {
            world.add(&format!("{name}-{index}"), name, 1, "gpu 1");
        }
    }
    assert_snapshot!(world.decide(), @r"
    release x-0 #1 a(n0)
    release lone-0 #1 a(n1)
    release y-0 #1 a(n2)
    release lone-1 #1 a(n3)
    release x-1 #1 a(n4)
    release lone-2 #1 a(n5)
    ");
}

#[test]
fn no_job_passes_the_head_of_a_strict_queue() {
    let mut world = World::new();
    world.cluster("a", 2, "cpu 64, gpu 8").queue(queue("q"));
    let mut strict = policy("q");
    strict.ordering = QueueOrdering::StrictFifo;
    world.policy(strict);
    world.add("never", "q", 9, "gpu 8");
    world.add("runs", "q", 1, "gpu 8");
    world.add("head", "q", 2, "gpu 8");
    world.add("small", "q", 1, "gpu 1");
    assert_snapshot!(world.decide(), @"release runs #1 a(n0)");
    assert_snapshot!(world.why("small"), @"#3 BehindHead: queue q is strictly ordered: ns/head has to start first");
    world.run("runs");
    world.finish("runs");
    assert_snapshot!(world.decide(), @"release head #1 a(n0 n1)");
}

#[test]
fn a_queued_job_changes_its_queue_and_an_admitted_one_does_not() {
    let mut world = eight();
    world.queue(queue("other"));
    let mut first = world.add("first", "q", 1, "gpu 8");
    world.decide();
    let mut second = world.add("second", "q", 1, "gpu 8");
    for fact in [&mut first, &mut second] {
        fact.queue = engine::QueueName::from("other");
        world.apply(Event::JobUpserted(fact.clone()));
    }
    world.decide();
    let at = |world: &World, name: &str| {
        world
            .engine
            .job(&crate::world::key(name))
            .unwrap()
            .queue
            .to_string()
    };
    assert_eq!(at(&world, "first"), "q");
    assert_eq!(at(&world, "second"), "other");
}

#[test]
fn a_job_that_its_strict_queue_never_admits_does_not_block_it() {
    let mut world = World::new();
    world.cluster("a", 2, "cpu 8, gpu 4");
    world.queue(queue("free"));
    world.queue(capped("tight", "gpu 1"));
    let mut strict = policy("tight");
    strict.ordering = QueueOrdering::StrictFifo;
    world.policy(strict);
    world.runs("old", "free", 1, "gpu 4");
    // It does not fit, so that its shape is infeasible for all queues.
    world.add("large", "free", 2, "gpu 4");
    world.decide();
    world.add("never", "tight", 2, "gpu 4");
    world.decide();
    world.add("small", "tight", 1, "cpu 1");
    assert_snapshot!(world.decide(), @"release small #1 a(n0)");
}
