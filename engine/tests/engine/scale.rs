//! The cost of a decision does not depend on the number of pending jobs. The tests compare ratios
//! within one run, not absolute times.

use crate::users;
use crate::world::{World, pods, queue};
use std::time::{Duration, Instant};

/// The least time of a decision after a completion, with this many blocked jobs of about thirty
/// shapes, of twenty users in turn or not.
fn after_completion(waiting: u32, by_user: bool) -> Duration {
    let mut world = World::new();
    world.cluster("a", 12, "cpu 64, gpu 8").queue(queue("q"));
    if by_user {
        world.policy(users::by_user("q", Some(3600)));
    }
    for index in 0..8 {
        world.add(&format!("runs-{index}"), "q", 1, "gpu 8");
    }
    world.decide();
    (0..8).for_each(|index| world.run(&format!("runs-{index}")));
    for index in 0..waiting {
        let demand = pods(12, &format!("gpu 8, cpu {}", 1 + index % 30));
        let job = world.job(&format!("waits-{index}"), "q", demand);
        world.submit(job.user(&format!("user-{}", index % 20)));
    }
    world.engine.decide(world.now);
    let cost = |index: u32| {
        world.finish(&format!("runs-{index}"));
        let begin = Instant::now();
        assert!(world.engine.decide(world.now).decisions.is_empty());
        begin.elapsed()
    };
    (0..7).map(cost).min().unwrap()
}

#[test]
fn the_cost_of_a_completion_does_not_depend_on_pending_jobs() {
    for by_user in [false, true] {
        let few = after_completion(300, by_user);
        let many = after_completion(12_000, by_user);
        assert!(many < few * 8, "40 times the jobs: {few:?} became {many:?}");
    }
}
