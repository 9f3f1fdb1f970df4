//! The order of the users of a queue (`fairShare.within: User`).

use crate::sharing::order;
use crate::world::{World, capped, key, pods, policy, queue};
use engine::facts::{Ageing, FairShare, FairShareWithin, PolicyFact, QueueOrdering};
use engine::{Engine, EngineConfig, QueueName};
use insta::assert_snapshot;

pub fn by_user(name: &str, half_life_s: Option<i64>) -> PolicyFact {
    PolicyFact {
        fair_share: FairShare {
            weight: None,
            usage_half_life_ms: half_life_s.map(|seconds| seconds * 1000),
            within: Some(FairShareWithin::User),
        },
        ..policy(name)
    }
}

/// Submits a job; its user is the part of its name before the first `-`.
fn submit(world: &mut World, name: &str, request: &str) {
    let (user, _) = name.split_once('-').unwrap();
    let job = world.job(name, "q", pods(1, request));
    world.submit(job.user(user));
}

/// A node with eight GPUs and a queue whose order is by users.
fn world(half_life_s: Option<i64>) -> World {
    let mut world = World::new();
    world.cluster("a", 1, "cpu 64, gpu 8").queue(queue("q"));
    world.policy(by_user("q", half_life_s));
    world
}

fn ends(world: &mut World, name: &str) {
    world.run(name);
    world.finish(name);
}

fn position(world: &World, name: &str) -> Option<usize> {
    world.engine.explain(&key(name)).unwrap().position
}

#[test]
fn many_jobs_of_one_user_delay_anothers_by_one_slot() {
    for half_life in [None, Some(3600)] {
        let mut world = world(half_life);
        for index in 0..500 {
            submit(&mut world, &format!("ann-{index:03}"), "gpu 1");
        }
        submit(&mut world, "bob-0", "gpu 1");
        submit(&mut world, "bob-1", "gpu 1");
        // Of users with the same share, jobs go as without: after that, in turn.
        assert_eq!(order(&mut world), "ann bob ann bob ann ann ann ann");
        submit(&mut world, "carl-0", "gpu 8");
        world.decide();
        assert_eq!(position(&world, "carl-0"), Some(1));
        assert_eq!(position(&world, "ann-006"), Some(2));
        assert_eq!(position(&world, "ann-499"), Some(495));
        let first = world.engine.first_pending(&QueueName::from("q"), 3);
        let first: Vec<String> = first.map(|key| key.name.to_string()).collect();
        assert_eq!(first, ["carl-0", "ann-006", "ann-007"]);
    }
}

#[test]
fn without_it_jobs_go_in_the_order_in_which_they_were_queued() {
    let mut world = world(None);
    world.policy(policy("q"));
    for index in 0..20 {
        submit(&mut world, &format!("ann-{index:02}"), "gpu 1");
    }
    submit(&mut world, "bob-0", "gpu 1");
    assert_snapshot!(order(&mut world), @"ann ann ann ann ann ann ann ann");
    assert_eq!(position(&world, "bob-0"), Some(13));
    // It may be asked for while jobs wait, and not any more.
    world.policy(by_user("q", None));
    world.decide();
    assert_eq!(position(&world, "bob-0"), Some(1));
    world.policy(policy("q"));
    world.decide();
    assert_eq!(position(&world, "bob-0"), Some(13));
}

#[test]
fn past_usage_counts_until_it_has_decayed() {
    let run = |half_life, after: i64| {
        let mut world = world(half_life);
        submit(&mut world, "ann-0", "gpu 8");
        world.decide();
        world.run("ann-0");
        world.wait(600);
        world.finish("ann-0");
        submit(&mut world, "carl-0", "gpu 8");
        world.decide();
        world.run("carl-0");
        submit(&mut world, "ann-1", "gpu 8");
        submit(&mut world, "bob-0", "gpu 8");
        world.wait(after);
        world.finish("carl-0");
        order(&mut world)
    };
    assert_eq!(run(None, 1), "ann");
    assert_eq!(run(Some(600), 1), "bob");
    assert_eq!(run(Some(600), 60 * 600), "ann");
}

#[test]
fn priority_comes_before_users_and_waiting_raises_it() {
    let mut world = world(None);
    submit(&mut world, "ann-0", "gpu 8");
    world.decide();
    for (name, class) in [("ann-1", "low"), ("bob-0", "low"), ("ann-2", "normal")] {
        let (user, _) = name.split_once('-').unwrap();
        let job = world.job(name, "q", pods(1, "gpu 8"));
        world.submit(job.user(user).priority(class));
    }
    world.decide();
    let positions = |world: &World| ["ann-1", "bob-0", "ann-2"].map(|name| position(world, name));
    assert_eq!(positions(&world), [Some(3), Some(2), Some(1)]);
    let mut rules = by_user("q", None);
    rules.ageing = Some(Ageing {
        every_ms: 1000,
        raise: 100,
        classes: None,
    });
    world.policy(rules);
    world.decide();
    assert_eq!(positions(&world), [Some(2), Some(1), Some(3)]);
}

#[test]
fn shares_are_of_what_is_scarce_for_the_queue() {
    let mut world = World::new();
    world
        .cluster("a", 1, "cpu 100, gpu 10")
        .queue(capped("q", "cpu 10, gpu 10"));
    world.policy(by_user("q", None));
    submit(&mut world, "ann-0", "cpu 6");
    submit(&mut world, "bob-0", "gpu 5");
    submit(&mut world, "ann-1", "gpu 3");
    submit(&mut world, "bob-1", "gpu 3");
    submit(&mut world, "ann-2", "gpu 3");
    // 6 of 10 cores is more than 5 of 10 GPUs, and less than 8.
    assert_snapshot!(order(&mut world), @"ann bob bob");
}

/// The reservation is for the first job by users, and moves with their shares.
#[test]
fn the_reservation_is_for_the_first_job_by_users() {
    let mut world = world(None);
    for index in 0..2 {
        submit(&mut world, &format!("ann-{index}"), "gpu 3");
    }
    submit(&mut world, "bob-0", "gpu 1");
    submit(&mut world, "ann-2", "gpu 8");
    world.decide();
    for name in ["ann-0", "ann-1", "bob-0"] {
        world.run(name);
    }
    assert_snapshot!(world.why("ann-2"), @"#1 NextInLine: needs 1 pod × nvidia.com/gpu 8; a has room for 0 of 1; it is next: what becomes free is reserved for it");
    submit(&mut world, "bob-1", "gpu 8");
    world.decide();
    assert_snapshot!(world.why("ann-2"), @"#2 WaitingForRoom: needs 1 pod × nvidia.com/gpu 8; a has room for 0 of 1");
    assert_snapshot!(world.why("bob-1"), @"#1 NextInLine: needs 1 pod × nvidia.com/gpu 8; a has room for 0 of 1; it is next: what becomes free is reserved for it");
    // What is kept for bob's is free for a job of someone who has less.
    submit(&mut world, "carl-0", "gpu 1");
    assert_snapshot!(order(&mut world), @"carl");
    world.run("carl-0");
    for name in ["ann-0", "ann-1", "bob-0", "carl-0"] {
        world.finish(name);
    }
    assert_snapshot!(order(&mut world), @"ann");
}

#[test]
fn short_jobs_go_first_among_those_of_one_user_only() {
    let mut world = world(None);
    let mut rules = by_user("q", None);
    rules.ordering = QueueOrdering::ShortestPredicted;
    world.policy(rules);
    submit(&mut world, "ann-0", "gpu 8");
    world.decide();
    for (name, seconds) in [("ann-1", 900), ("ann-2", 60), ("bob-0", 9000)] {
        let (user, _) = name.split_once('-').unwrap();
        let job = world.job(name, "q", pods(1, "gpu 8"));
        world.submit(job.user(user).lasts(seconds));
    }
    world.decide();
    let positions = ["bob-0", "ann-2", "ann-1"].map(|name| position(&world, name));
    assert_eq!(positions, [Some(1), Some(2), Some(3)]);
}

#[test]
fn a_restored_engine_knows_what_users_have_used() {
    let mut world = world(Some(600));
    submit(&mut world, "ann-0", "gpu 8");
    world.decide();
    world.wait(600);
    ends(&mut world, "ann-0");
    submit(&mut world, "carl-0", "gpu 8");
    world.decide();
    world.run("carl-0");
    submit(&mut world, "ann-1", "gpu 8");
    submit(&mut world, "bob-0", "gpu 8");
    world.decide();
    let text = serde_json::to_string(&world.engine.snapshot()).unwrap();
    world.engine = Engine::restore(
        serde_json::from_str(&text).unwrap(),
        EngineConfig::default(),
    );
    assert_eq!(
        serde_json::to_string(&world.engine.snapshot()).unwrap(),
        text
    );
    world.finish("carl-0");
    assert_eq!(order(&mut world), "bob");
}
