//! How far a queue is over its deserved amounts, and what it could evict in turn.

use crate::world::{World, bound, deserving, policy, queue, res};
use engine::Resources;
use engine::facts::{PolicyFact, PoolBound};
use insta::assert_snapshot;

#[test]
fn no_job_is_evicted_that_could_evict_in_turn() {
    // b uses and requests this many of the deserved CPUs, beside four GPUs. a is over its deserved
    // GPUs, and would be entitled to CPUs if it lost a job.
    for (a_deserves, b_deserves, b_holds, b_asks, is_taken) in [
        (8, 2, 0, 2, true),
        // b would use more than it deserves, and a, without the job, less.
        (8, 1, 0, 2, false),
        // With the job again, a would use more than it deserves.
        (7, 1, 0, 2, true),
        // b does not reclaim the resource of which it uses too much already.
        (8, 1, 3, 0, true),
    ] {
        let mut world = World::new();
        world
            .cluster("x", 2, "cpu 64, gpu 4")
            .queue(deserving("a", &format!("cpu {a_deserves}, gpu 4")))
            .queue(deserving("b", &format!("cpu {b_deserves}, gpu 4")));
        for name in ["a1", "a2"] {
            world.runs(name, "a", 1, "cpu 4, gpu 4");
        }
        if b_holds > 0 {
            world.runs("b0", "b", 1, &format!("cpu {b_holds}"));
        }
        let cpus = if b_asks > 0 {
            format!("cpu {b_asks}, ")
        } else {
            String::new()
        };
        world.add("b1", "b", 1, &format!("{cpus}gpu 4"));
        let decided = world.decide();
        let case = format!("{a_deserves} {b_deserves} {b_holds} {b_asks}: {decided}");
        assert_eq!(
            decided.starts_with("evict a1 #1 for b1"),
            is_taken,
            "{case}"
        );
        assert_eq!(decided.is_empty(), !is_taken, "{case}");
    }
}

#[test]
fn only_requested_resources_entitle_a_job_and_pod_slots_do_not() {
    for (deserves, asks, is_taken) in [
        ("gpu 4", "cpu 4, gpu 4", true),
        ("gpu 4", "cpu 4, gpu 0", false),
        ("pods 4", "cpu 4, gpu 4", false),
    ] {
        let mut world = World::new();
        world
            .cluster("x", 1, "cpu 4, gpu 4")
            .queue(queue("a"))
            .queue(deserving("b", deserves));
        world.runs("a1", "a", 1, "cpu 4, gpu 4");
        world.add("b1", "b", 1, asks);
        assert_eq!(!world.decide().is_empty(), is_taken, "{deserves}: {asks}");
    }
}

#[test]
fn a_preemptor_counts_its_own_usage_while_it_waits() {
    let mut world = World::new();
    world
        .cluster("x", 2, "cpu 16, gpu 4")
        .queue(queue("rich"))
        .queue(deserving("middle", "cpu 8"))
        .queue(queue("poor"));
    // It deserves GPUs of that class, in which the others have no account.
    world.policy(PolicyFact {
        pools: vec![PoolBound {
            deserved: res("gpu 4"),
            capability: Resources::new(),
            ..bound("gpu", None, "")
        }],
        ..policy("poor")
    });
    world.runs("middle-1", "middle", 1, "cpu 1, gpu 4");
    world.runs("rich-1", "rich", 1, "cpu 8, gpu 4");
    world.add("middle-2", "middle", 1, "cpu 4, gpu 4");
    assert_snapshot!(world.decide(), @"evict rich-1 #1 for middle-2: Reclaimed: reclaimed for ns/middle-2: queue middle has cpu 1 of the 8 that it deserves, queue rich has 8 and deserves 0");
    world.add("poor-1", "poor", 1, "gpu 4");
    assert_snapshot!(world.decide(), @"evict middle-1 #1 for poor-1: Reclaimed: reclaimed for ns/poor-1 of queue poor, which has less than it deserves");
}

#[test]
fn a_job_without_entitlement_is_evaluated_when_its_queue_uses_enough_less() {
    let mut world = World::new();
    world
        .cluster("x", 1, "cpu 64, gpu 8")
        .cluster("y", 1, "cpu 64, gpu 4")
        .queue(queue("a"))
        .queue(deserving("b", "gpu 8"));
    world.runs("a1", "a", 1, "gpu 8");
    for name in ["b1", "b2"] {
        world.runs(name, "b", 1, "gpu 2");
    }
    world.add("b3", "b", 1, "gpu 8");
    assert_snapshot!(world.decide(), @"");
    world.wait(10).finish("b1");
    assert_snapshot!(world.decide(), @"");
    world.wait(10).finish("b2");
    assert!(world.decide().starts_with("evict a1 #1 for b3"));
}
