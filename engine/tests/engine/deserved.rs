//! Who goes first by what queues deserve, borrowed and used before.

use crate::sharing::{fill, fleet, order, shares};
use crate::world::{World, below, capped, deserving, policy, queue};
use engine::QueueName;
use engine::facts::{FairShare, PolicyFact, QueueFact};
use insta::assert_snapshot;

#[test]
fn a_resource_of_which_nothing_is_deserved_is_not_reached_by_holding_none() {
    let mut world = fleet(4);
    world
        .queue(deserving("a", "gpu 4, cpu 0"))
        .queue(deserving("b", "gpu 4"));
    fill(&mut world, "b", 4);
    fill(&mut world, "a", 4);
    assert_snapshot!(order(&mut world), @"b a b a");
}

#[test]
fn a_resource_of_which_nothing_is_deserved_is_reached_by_holding_any() {
    let mut world = fleet(4);
    world
        .queue(deserving("a", "gpu 4, cpu 0"))
        .queue(queue("c"));
    for name in ["c-0", "c-1", "a-0", "a-1", "a-2", "a-3"] {
        world.add(name, &name[..1], 1, "cpu 1, gpu 1");
    }
    // Then it borrows, and who borrows less goes first.
    assert_snapshot!(order(&mut world), @"a c a a");
}

#[test]
fn what_was_held_counts_towards_what_is_deserved_until_it_has_faded() {
    let mut world = with_fading_past();
    world
        .queue(deserving("x", "gpu 4"))
        .queue(deserving("y", "gpu 4"));
    world.runs("x-old", "x", 2, "gpu 1");
    world.wait(3_600).finish("x-old");
    fill(&mut world, "x", 4);
    fill(&mut world, "y", 4);
    // Two GPUs held for a half-life count as one; so much it may use again before it has more.
    assert_snapshot!(order(&mut world), @"y x x y");
}

/// Running pods hold CPU, of which nobody deserves anything: a queue at what it deserves of GPUs
/// is not behind an empty one that deserves nothing for that.
#[test]
fn a_queue_at_its_due_goes_before_an_empty_one_that_deserves_nothing() {
    let mut world = fleet(8);
    world
        .queue(shares("some", "", "gpu 2", ""))
        .queue(queue("none"));
    for index in 0..4 {
        world.add(&format!("none-{index}"), "none", 1, "cpu 1, gpu 1");
        world.add(&format!("some-{index}"), "some", 1, "cpu 1, gpu 1");
    }
    assert_snapshot!(order(&mut world), @"some some some none some none none none");
}

/// Where none of the siblings deserves anything they are compared by all that they hold.
#[test]
fn queues_that_deserve_nothing_are_compared_by_all_that_they_hold() {
    let mut world = fleet(4);
    world.queue(queue("x")).queue(queue("y"));
    world.runs("x-0", "x", 1, "cpu 8");
    world.add("x-1", "x", 1, "cpu 1");
    world.add("y-0", "y", 1, "cpu 1");
    assert_snapshot!(order(&mut world), @"y x");
    // From now on by GPUs, of which neither holds more; who asked first goes first.
    let mut world = fleet(4);
    world
        .queue(queue("x"))
        .queue(queue("y"))
        .queue(shares("z", "", "gpu 1", ""));
    world.runs("x-0", "x", 1, "cpu 8");
    world.add("x-1", "x", 1, "cpu 1");
    world.add("y-0", "y", 1, "cpu 1");
    assert_snapshot!(order(&mut world), @"x y");
}

#[test]
fn below_what_is_deserved_goes_first_then_who_borrows_least() {
    let mut world = fleet(12);
    world
        .queue(shares("a", "", "gpu 2", ""))
        .queue(shares("b", "", "gpu 4", ""))
        .queue(queue("c"));
    for name in ["c", "a", "b"] {
        fill(&mut world, name, 12);
    }
    // By halves and quarters up to what is deserved; then one each borrowed in turn.
    assert_snapshot!(order(&mut world), @"a b b a b b a b c a b c");
}

#[test]
fn class_15_a_queue_that_deserves_nothing_comes_after_those_below_their_due() {
    let mut world = fleet(4);
    world
        .queue(queue("none"))
        .queue(shares("some", "", "gpu 3", ""));
    fill(&mut world, "none", 4);
    fill(&mut world, "some", 4);
    assert_snapshot!(order(&mut world), @"some some some some");
}

#[test]
fn the_policy_may_weigh_a_queue_otherwise() {
    let mut world = fleet(6);
    world.queue(queue("x")).queue(queue("y"));
    world.policy(PolicyFact {
        fair_share: FairShare {
            weight: Some(2),
            usage_half_life_ms: None,
        },
        ..policy("y")
    });
    fill(&mut world, "x", 6);
    fill(&mut world, "y", 6);
    assert_snapshot!(order(&mut world), @"x y y x y y");
}

#[test]
fn a_blocked_queue_does_not_hold_up_its_siblings() {
    let mut world = fleet(6);
    world
        .queue(capped("dept", "gpu 1"))
        .queue(below("dept", queue("x")))
        .queue(QueueFact {
            priority: 9,
            ..below("dept", queue("y"))
        })
        .queue(queue("lone"));
    for name in ["x", "y", "lone"] {
        fill(&mut world, name, 4);
    }
    assert_snapshot!(order(&mut world), @"y lone lone lone lone");
    world.finish("y-0");
    assert_snapshot!(order(&mut world), @"y");
}

#[test]
fn class_19_names_decide_where_nothing_else_does_whatever_came_first() {
    let decided: Vec<String> = [["p", "q", "r"], ["r", "q", "p"], ["q", "r", "p"]]
        .iter()
        .map(|names| {
            let mut world = fleet(2);
            names.iter().for_each(|name| {
                world.queue(queue(name));
            });
            for name in names {
                let mut job = world.job(&format!("{name}-0"), name, crate::world::pods(1, "gpu 1"));
                job.0.queued_at = engine::Time(1);
                world.submit(job);
            }
            order(&mut world)
        })
        .collect();
    assert_eq!(decided, ["p q", "p q", "p q"]);
}

/// Four GPUs, and two queues whose past use counts half after an hour.
pub fn with_fading_past() -> World {
    let mut world = fleet(4);
    for name in ["x", "y"] {
        world.queue(queue(name)).policy(PolicyFact {
            fair_share: FairShare {
                weight: None,
                usage_half_life_ms: Some(3_600_000),
            },
            ..policy(name)
        });
    }
    world
}

#[test]
fn past_use_counts_until_it_has_faded() {
    let mut world = with_fading_past();
    fill(&mut world, "x", 4);
    world.decide();
    (0..4).for_each(|index| world.run(&format!("x-{index}")));
    world.wait(36_000).decide();
    (0..4).for_each(|index| world.finish(&format!("x-{index}")));
    let decayed = |world: &World, name: &str| {
        let usage = world.engine.queue_usage(&QueueName::from(name)).unwrap();
        usage.decayed_usage.unwrap().to_string()
    };
    // Four GPUs for ten half-lives: nearly 4 / ln 2 GPU-hours, in thousandths.
    assert_snapshot!(decayed(&world, "x"), @"nvidia.com/gpu 5765");
    assert_snapshot!(decayed(&world, "y"), @"");
    for index in 4..8 {
        world.add(&format!("x-{index}"), "x", 1, "gpu 1");
    }
    fill(&mut world, "y", 4);
    // Only those of y, though x asked first and holds nothing now.
    assert_snapshot!(order(&mut world), @"y y y y");
    (0..4).for_each(|index| world.finish(&format!("y-{index}")));
    for index in 4..8 {
        world.add(&format!("y-{index}"), "y", 1, "gpu 1");
    }
    world.wait(36_000);
    // Ten half-lives later it has faded to less than one GPU, and who asked first goes first.
    assert_snapshot!(order(&mut world), @"x y x y");
    assert_snapshot!(decayed(&world, "x"), @"nvidia.com/gpu 5");
}

#[test]
fn past_use_counts_and_fades_after_a_restart_as_before_it() {
    let mut world = with_fading_past();
    world.runs("large", "x", 4, "gpu 1");
    world.wait(36_000).finish("large");
    let snapshot = world.engine.snapshot();
    world.engine = engine::Engine::restore(snapshot, engine::EngineConfig::default());
    fill(&mut world, "x", 4);
    fill(&mut world, "y", 4);
    let copy = world.engine.clone();
    assert_snapshot!(order(&mut world), @"y y y y");
    world.engine = copy;
    world.wait(36_000);
    assert_snapshot!(order(&mut world), @"x y x y");
}

#[test]
fn what_was_given_back_all_at_once_fades_too() {
    let mut world = with_fading_past();
    world.runs("large", "x", 4, "gpu 1");
    world.wait(36_000).finish("large");
    // Nothing happens to x for ten half-lives.
    world.wait(36_000).decide();
    fill(&mut world, "x", 4);
    fill(&mut world, "y", 4);
    assert_snapshot!(order(&mut world), @"x y x y");
}

#[test]
fn of_two_equal_queues_goes_first_where_the_best_job_below_stands() {
    let mut world = fleet(4);
    world
        .queue(capped("q0", "gpu 1"))
        .queue(below("q0", queue("q1")))
        .queue(below("q1", shares("q5", "", "cpu 1", "")))
        .queue(below("q0", queue("q4")))
        .queue(shares("q2", "", "cpu 1", ""));
    for (name, queue, class, request) in [
        ("j2", "q2", "normal", "cpu 1"),
        ("j3", "q5", "low", "gpu 2"),
        ("j4", "q4", "high", "cpu 1"),
    ] {
        let job = world.job(name, queue, crate::world::pods(1, request));
        world.submit(job.priority(class));
    }
    // Below q0 the low one stands before the high one, and can never go.
    assert_snapshot!(order(&mut world), @"j4 j2");
}
