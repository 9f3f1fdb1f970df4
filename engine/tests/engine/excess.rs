//! Excess: what members run beyond an admission is charged, and no job is admitted into it.

use crate::world::{World, capped, key, pods, res};
use engine::{Attempt, ClusterName, Event, Reason};
use insta::assert_snapshot;

fn exceeds(world: &mut World, attempt: u32, cluster: &str, more: &str) {
    let excess = [(ClusterName::from(cluster), res(more))];
    world.apply(Event::JobExceeds {
        key: key("job"),
        attempt: Attempt(attempt),
        excess: excess.into(),
    });
}

/// A running job of two GPUs in a queue with a capability of four, and a pending one of two.
fn two_of_four() -> World {
    let mut world = World::new();
    world
        .cluster("a", 2, "cpu 64, gpu 4")
        .queue(capped("q", "gpu 4"));
    let job = world.job("job", "q", pods(2, "gpu 1"));
    world.submit(job);
    world.decide();
    world.run("job");
    world
}

#[test]
fn an_excess_is_charged_while_it_is_reported_even_beyond_the_bound() {
    let mut world = two_of_four();
    exceeds(&mut world, 1, "a", "gpu 6");
    assert_snapshot!(world.allocated("q"), @"nvidia.com/gpu 8, pods 2");
    let next = world.job("next", "q", pods(1, "gpu 1"));
    world.submit(next);
    assert_snapshot!(world.decide(), @"");
    assert_snapshot!(world.engine.bound_passed_by(&key("job")).unwrap(), @"queue q may use nvidia.com/gpu 4 and has 8 charged");
    // An excess of another attempt, and a known one, change nothing.
    exceeds(&mut world, 2, "a", "gpu 1");
    exceeds(&mut world, 1, "a", "gpu 6");
    assert_snapshot!(world.allocated("q"), @"nvidia.com/gpu 8, pods 2");
    exceeds(&mut world, 1, "a", "");
    assert_snapshot!(world.allocated("q"), @"nvidia.com/gpu 2, pods 2");
    assert_snapshot!(world.decide(), @"release next #1 a(n0)");
}

#[test]
fn the_excess_of_an_evicted_job_ends_with_its_works() {
    let mut world = two_of_four();
    // In a cluster where it has no share.
    exceeds(&mut world, 1, "b", "gpu 1");
    assert_snapshot!(world.allocated("q"), @"nvidia.com/gpu 3, pods 2");
    let next = world.job("next", "q", pods(2, "gpu 1"));
    world.submit(next);
    world.apply(Event::JobEnding {
        key: key("job"),
        reason: Reason::OverrideExceeds,
        message: "an override".to_owned(),
        avoid: None,
        at: world.now,
    });
    assert_snapshot!(world.decide(), @"");
    assert_snapshot!(world.allocated("q"), @"nvidia.com/gpu 3, pods 2");
    world.works_gone("job");
    assert_snapshot!(world.decide(), @"release next #1 a(n0×2)");
    assert_snapshot!(world.allocated("q"), @"nvidia.com/gpu 2, pods 2");
}
