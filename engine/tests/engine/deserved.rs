//! The order of queues by deserved amounts, borrowing and past usage.

use crate::sharing::{fill, fleet, order, shares};
use crate::world::{World, below, capped, deserving, policy, queue};
use engine::QueueName;
use engine::facts::{FairShare, PolicyFact, QueueFact};
use insta::assert_snapshot;

#[test]
fn a_deserved_amount_of_zero_is_not_reached_without_usage() {
    let mut world = fleet(4);
    world
        .queue(deserving("a", "gpu 4, cpu 0"))
        .queue(deserving("b", "gpu 4"));
    fill(&mut world, "b", 4);
    fill(&mut world, "a", 4);
    assert_snapshot!(order(&mut world), @"b a b a");
}

#[test]
fn a_deserved_amount_of_zero_is_reached_by_any_usage() {
    let mut world = fleet(4);
    world
        .queue(deserving("a", "gpu 4, cpu 0"))
        .queue(queue("c"));
    for name in ["c-0", "c-1", "a-0", "a-1", "a-2", "a-3"] {
        world.add(name, &name[..1], 1, "cpu 1, gpu 1");
    }
    // Then it borrows, and the queue that borrows less comes first.
    assert_snapshot!(order(&mut world), @"a c a a");
}

#[test]
fn past_usage_counts_towards_deserved_until_it_has_decayed() {
    let mut world = with_fading_past();
    world
        .queue(deserving("x", "gpu 4"))
        .queue(deserving("y", "gpu 4"));
    world.runs("x-old", "x", 2, "gpu 1");
    world.wait(3_600).finish("x-old");
    fill(&mut world, "x", 4);
    fill(&mut world, "y", 4);
    // Two GPUs in use for a half-life count as one.
    assert_snapshot!(order(&mut world), @"y x x y");
}

/// Running pods use CPU, which no queue deserves. A queue at its deserved GPUs is not behind an
/// empty one for that.
#[test]
fn a_queue_at_its_deserved_comes_before_an_empty_one_that_deserves_nothing() {
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

/// If no sibling deserves anything, they are compared by all their usage.
#[test]
fn queues_that_deserve_nothing_are_compared_by_all_usage() {
    let mut world = fleet(4);
    world.queue(queue("x")).queue(queue("y"));
    world.runs("x-0", "x", 1, "cpu 8");
    world.add("x-1", "x", 1, "cpu 1");
    world.add("y-0", "y", 1, "cpu 1");
    assert_snapshot!(order(&mut world), @"y x");
    // From now on they are compared by GPUs, of which both use the same; the older job comes
    // first.
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
fn queues_below_deserved_come_first_then_those_that_borrow_least() {
    let mut world = fleet(12);
    world
        .queue(shares("a", "", "gpu 2", ""))
        .queue(shares("b", "", "gpu 4", ""))
        .queue(queue("c"));
    for name in ["c", "a", "b"] {
        fill(&mut world, name, 12);
    }
    // First by parts of the deserved amounts, then one borrowed GPU each in turn.
    assert_snapshot!(order(&mut world), @"a b b a b b a b c a b c");
}

#[test]
fn class_15_a_queue_that_deserves_nothing_comes_after_those_below_their_deserved() {
    let mut world = fleet(4);
    world
        .queue(queue("none"))
        .queue(shares("some", "", "gpu 3", ""));
    fill(&mut world, "none", 4);
    fill(&mut world, "some", 4);
    assert_snapshot!(order(&mut world), @"some some some some");
}

#[test]
fn the_policy_may_set_another_weight() {
    let mut world = fleet(6);
    world.queue(queue("x")).queue(queue("y"));
    world.policy(PolicyFact {
        fair_share: FairShare {
            weight: Some(2),
            usage_half_life_ms: None,
            within: None,
        },
        ..policy("y")
    });
    fill(&mut world, "x", 6);
    fill(&mut world, "y", 6);
    assert_snapshot!(order(&mut world), @"x y y x y y");
}

#[test]
fn a_blocked_queue_does_not_block_its_siblings() {
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
fn class_19_names_decide_between_equal_queues() {
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

/// Four GPUs, and two queues with a half-life of an hour.
pub fn with_fading_past() -> World {
    let mut world = fleet(4);
    for name in ["x", "y"] {
        world.queue(queue(name)).policy(PolicyFact {
            fair_share: FairShare {
                weight: None,
                usage_half_life_ms: Some(3_600_000),
                within: None,
            },
            ..policy(name)
        });
    }
    world
}

#[test]
fn past_usage_counts_until_it_has_decayed() {
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
    // Only jobs of y start, though that of x is older and x uses nothing now.
    assert_snapshot!(order(&mut world), @"y y y y");
    (0..4).for_each(|index| world.finish(&format!("y-{index}")));
    for index in 4..8 {
        world.add(&format!("y-{index}"), "y", 1, "gpu 1");
    }
    world.wait(36_000);
    // Ten half-lives later it has decayed to less than one GPU, and the older job comes first.
    assert_snapshot!(order(&mut world), @"x y x y");
    assert_snapshot!(decayed(&world, "x"), @"nvidia.com/gpu 5");
}

#[test]
fn past_usage_decays_after_a_restart_as_before() {
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
fn usage_that_ended_at_once_decays_too() {
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
fn the_best_job_below_decides_between_equal_queues() {
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
    // Below q0 the job of low priority comes before the high one, which can never start.
    assert_snapshot!(order(&mut world), @"j4 j2");
}
