//! A call ends after a number of evaluations, and the next one goes on.

use crate::world::{World, deserving, foreign, key, pods, policy, queue};
use std::collections::BTreeSet;

#[test]
fn a_call_ends_after_the_most_evaluations_and_the_next_ones_do_the_rest() {
    for (jobs, calls) in [(1, 1), (2, 2), (3, 2), (5, 3)] {
        let mut world = World::with(engine::EngineConfig {
            evaluation_budget: 2,
            ..engine::EngineConfig::default()
        });
        world.cluster("a", 1, "cpu 64, gpu 8").queue(queue("q"));
        world.apply(foreign("a", "n0", "gpu 8"));
        for index in 0..jobs {
            world.add(
                &format!("job-{index}"),
                "q",
                1,
                &format!("gpu {}", 8 - index),
            );
        }
        world.engine.take_changed();
        let mut named = BTreeSet::new();
        let mut made = Vec::new();
        for call in 1..=calls {
            let decided = world.decided();
            assert!(!decided.cut);
            made.push(decided.more);
            // Two evaluations name at most two jobs.
            named.append(&mut world.engine.take_changed().jobs);
            assert!(named.len() <= 2 * call, "{named:?}");
        }
        // A call that ends with the last evaluation does not know that none is left.
        let more: Vec<bool> = (1..=calls).map(|call| call < calls).collect();
        assert_eq!(made, more, "{jobs}");
        let all = (0..jobs).map(|index| key(&format!("job-{index}")));
        assert_eq!(named, all.collect());
    }
}

#[test]
fn a_call_that_asks_many_classes_for_what_they_are_entitled_to_ends_too() {
    let mut world = World::with(engine::EngineConfig {
        evaluation_budget: 2,
        ..engine::EngineConfig::default()
    });
    world
        .cluster("a", 1, "cpu 64, gpu 8")
        .queue(deserving("q", "gpu 1"));
    world.runs("old", "q", 1, "gpu 8");
    let mut apart = policy("q");
    apart.limits.jobs_per_user = Some(10);
    apart.preemption.reclaim = true;
    world.policy(apart);
    for index in 0..150 {
        let job = world.job(&format!("job-{index}"), "q", pods(1, "gpu 8"));
        world.submit(job.user(&format!("user-{index}")));
    }
    // They fit nowhere, which one evaluation shows; each is asked whether it may reclaim, 65 in a call.
    let more: Vec<bool> = (0..4).map(|_| world.decided().more).collect();
    assert_eq!(more, [true, true, true, false]);
}
