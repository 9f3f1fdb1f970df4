//! A call ends after a number of evaluations, and the next one goes on.

use crate::world::{World, deserving, foreign, key, pods, policy, queue};
use engine::Event;
use engine::facts::QueueOrdering;
use std::collections::BTreeSet;

#[test]
fn a_call_ends_after_the_most_evaluations_and_the_next_ones_do_the_rest() {
    for (jobs, calls) in [(1, 1), (2, 2), (3, 2), (5, 3)] {
        let mut world = World::with(engine::EngineConfig {
            evaluation_budget: 2,
            ..engine::EngineConfig::default()
        });
        world.cluster("a", 1, "cpu 64, gpu 8").queue(queue("q"));
        // To plan a reservation would count, too.
        let mut best_effort = policy("q");
        best_effort.ordering = QueueOrdering::BestEffort;
        world.policy(best_effort);
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

/// A policy of the root that concerns all jobs, after as many were queued.
fn limited_at_the_root(jobs: usize, budget: usize) -> World {
    let mut world = World::with(engine::EngineConfig {
        resync_budget: budget,
        ..engine::EngineConfig::default()
    });
    world.cluster("a", 1, "cpu 64, gpu 8").queue(queue("q"));
    for index in 0..jobs {
        let job = world.job(&format!("job-{index}"), "q", pods(1, "gpu 1"));
        world.submit(job.user("ann"));
    }
    let mut limited = policy("root");
    limited.limits.jobs_per_user = Some(2);
    world.policy(limited);
    world
}

#[test]
fn rules_that_concern_many_jobs_apply_to_all_before_any_is_admitted() {
    let mut world = limited_at_the_root(10, 3);
    // The event brings three in step, and each call three more.
    for _ in 0..2 {
        let decided = world.decided();
        assert!(decided.more && decided.decisions.is_empty());
    }
    let decided = world.decided();
    assert_eq!((decided.decisions.len(), decided.more), (2, false));
    assert_eq!(world.engine.check_invariants(), Vec::<String>::new());
}

#[test]
fn jobs_that_join_and_leave_while_others_are_brought_in_step_are_in_step() {
    let mut world = limited_at_the_root(10, 3);
    for name in ["job-9", "job-4"] {
        world.apply(Event::JobGone(key(name)));
    }
    let late = world.job("job-late", "q", pods(1, "gpu 1"));
    world.submit(late.user("bob"));
    let mut decided = world.decided();
    while decided.more {
        decided = world.decided();
    }
    assert_eq!(decided.decisions.len(), 3, "{decided:?}");
    assert_eq!(world.engine.check_invariants(), Vec::<String>::new());
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
    apart.ordering = QueueOrdering::BestEffort;
    world.policy(apart);
    for index in 0..150 {
        let job = world.job(&format!("job-{index}"), "q", pods(1, "gpu 8"));
        world.submit(job.user(&format!("user-{index}")));
    }
    // They fit nowhere, which one evaluation shows of all; each is asked whether it may reclaim, 65 in a call.
    let more: Vec<bool> = (0..5).map(|_| world.decided().more).collect();
    assert_eq!(more, [true, true, true, true, false]);
}
