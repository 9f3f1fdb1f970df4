//! Queues that move in the tree, are created or deleted, or become invalid: their quota moves with
//! them, overall and in pools.

use crate::sharing::{fleet, usage};
use crate::world::{World, below, bound, policy, queue, res};
use engine::facts::{PolicyFact, PoolBound, QueueFact};
use engine::{Event, QueueName};
use insta::assert_snapshot;

/// The queue that moves, with a guarantee of four overall and of two of class gpu.
fn guaranteed() -> QueueFact {
    QueueFact {
        guarantee: res("gpu 4"),
        deserved: res("gpu 4"),
        ..queue("team")
    }
}

fn in_pool(name: &str) -> PolicyFact {
    PolicyFact {
        pools: vec![PoolBound {
            guarantee: res("gpu 2"),
            deserved: res("gpu 2"),
            ..bound("gpu", None, "")
        }],
        ..policy(name)
    }
}

/// The real capability of each queue, overall and of class gpu if that is bounded.
fn may(world: &World, names: &[&str]) -> String {
    let told = names.iter().map(|name| {
        let of_all = usage(world, name);
        let usage = world.engine.queue_usage(&QueueName::from(*name)).unwrap();
        let pools = usage.pools.iter().map(|pool| {
            let (deserved, real) = (&pool.deserved, &pool.real_capability);
            format!("; of {} deserves {deserved} may {real}", pool.class)
        });
        format!("{name} {of_all}{}", pools.collect::<String>())
    });
    told.collect::<Vec<_>>().join("\n")
}

#[test]
fn the_quota_of_a_queue_moves_with_it_to_its_new_parent() {
    let mut world = fleet(10);
    world.queue(queue("left")).queue(queue("right"));
    world
        .queue(below("left", guaranteed()))
        .policy(in_pool("team"))
        .queue(below("left", queue("of-left")))
        .queue(below("right", queue("of-right")));
    let look = PolicyFact {
        pools: vec![bound("gpu", None, "")],
        ..policy("left")
    };
    for name in ["left", "right", "of-left", "of-right"] {
        world.policy(PolicyFact {
            queue: QueueName::from(name),
            ..look.clone()
        });
    }
    let all = ["left", "of-left", "right", "of-right", "team"];
    world.decide();
    assert_snapshot!(may(&world, &all), @r"
    left has - deserves 4 may 10 borrows - lends -; of gpu deserves nvidia.com/gpu 2 may nvidia.com/gpu 10
    of-left has - deserves - may 6 borrows - lends -; of gpu deserves  may nvidia.com/gpu 8
    right has - deserves - may 6 borrows - lends -; of gpu deserves  may nvidia.com/gpu 8
    of-right has - deserves - may 6 borrows - lends -; of gpu deserves  may nvidia.com/gpu 8
    team has - deserves 4 may 10 borrows - lends -; of gpu deserves nvidia.com/gpu 2 may nvidia.com/gpu 10
    ");
    world.queue(below("right", guaranteed()));
    world.decide();
    assert_snapshot!(may(&world, &all), @r"
    left has - deserves - may 6 borrows - lends -; of gpu deserves  may nvidia.com/gpu 8
    of-left has - deserves - may 6 borrows - lends -; of gpu deserves  may nvidia.com/gpu 8
    right has - deserves 4 may 10 borrows - lends -; of gpu deserves nvidia.com/gpu 2 may nvidia.com/gpu 10
    of-right has - deserves - may 6 borrows - lends -; of gpu deserves  may nvidia.com/gpu 8
    team has - deserves 4 may 10 borrows - lends -; of gpu deserves nvidia.com/gpu 2 may nvidia.com/gpu 10
    ");
}

/// Ten GPUs, and a queue with an empty bound on class gpu, so that its usage is reported.
fn with_other() -> World {
    let mut world = fleet(10);
    world.queue(queue("other")).policy(PolicyFact {
        pools: vec![bound("gpu", None, "")],
        ..policy("other")
    });
    world.decide();
    world
}

/// The real capability of the other queue in class gpu: bounded only while there is a guarantee.
fn other(world: &World) -> String {
    let usage = world.engine.queue_usage(&QueueName::from("other")).unwrap();
    usage.pools[0].real_capability.to_string()
}

#[test]
fn a_guarantee_of_a_pool_is_withheld_while_the_queue_exists_and_is_valid() {
    let mut world = with_other();
    world.policy(in_pool("team"));
    assert_eq!(other(&world), "", "the queue is not there yet");
    world.queue(queue("team"));
    assert_eq!(other(&world), "nvidia.com/gpu 8");
    world.queue(QueueFact {
        invalid: Some("broken".to_owned()),
        ..queue("team")
    });
    assert_eq!(other(&world), "", "it is invalid");
    world.queue(queue("team"));
    assert_eq!(other(&world), "nvidia.com/gpu 8");
    world.apply(Event::QueueGone(QueueName::from("team")));
    assert_eq!(other(&world), "", "it is gone");
}

#[test]
fn a_queue_with_an_invalid_overall_quota_has_none_in_pools() {
    let mut world = with_other();
    let claims = |guarantee: &str| QueueFact {
        guarantee: res(guarantee),
        deserved: res(guarantee),
        ..queue("team")
    };
    world
        .queue(QueueFact {
            guarantee: res("gpu 3"),
            deserved: res("gpu 3"),
            ..queue("dept")
        })
        .policy(in_pool("dept"))
        .queue(below("dept", claims("gpu 3")));
    assert_eq!(other(&world), "nvidia.com/gpu 8");
    world.queue(below("dept", claims("gpu 4")));
    assert_eq!(other(&world), "", "more is guaranteed below than it has");
    world.queue(below("dept", claims("gpu 2")));
    assert_eq!(other(&world), "nvidia.com/gpu 8");
}

#[test]
fn the_quota_of_a_queue_counts_in_a_parent_that_is_created_later() {
    let mut world = with_other();
    world
        .queue(below("late", guaranteed()))
        .policy(in_pool("team"));
    assert_eq!(other(&world), "", "it names a parent that is not there");
    world.queue(queue("late"));
    assert_eq!(other(&world), "nvidia.com/gpu 8");
    let told = ["late", "other"].map(|name| format!("{name} {}", usage(&world, name)));
    assert_snapshot!(told.join("\n"), @r"
    late has - deserves 4 may 10 borrows - lends -
    other has - deserves - may 6 borrows - lends -
    ");
}

#[test]
fn a_moved_queue_cannot_use_the_guarantees_of_its_new_siblings() {
    for (pods, fits) in [(8, true), (9, false)] {
        let mut world = fleet(10);
        world.queue(queue("dept")).queue(queue("other"));
        world
            .queue(below("dept", queue("team")))
            .policy(in_pool("team"))
            .queue(below("other", queue("plain")));
        world.decide();
        world.queue(below("dept", queue("plain")));
        world.add("job", "plain", pods, "gpu 1");
        assert_eq!(!world.decide().is_empty(), fits, "{pods}");
    }
}

#[test]
fn a_moved_queue_is_bounded_by_the_parent_of_its_new_parent() {
    let mut world = fleet(10);
    let may = |name, amount| PolicyFact {
        pools: vec![bound("gpu", None, amount)],
        ..policy(name)
    };
    world
        .queue(queue("dept"))
        .policy(may("dept", "gpu 4"))
        .queue(below("dept", queue("between")))
        .queue(queue("team"))
        .policy(may("team", "gpu 8"));
    world.decide();
    world.queue(below("between", queue("team")));
    let usage = world.engine.queue_usage(&QueueName::from("team")).unwrap();
    assert_snapshot!(usage.pools[0].real_capability, @"nvidia.com/gpu 4");
}

#[test]
fn a_job_that_bounds_never_admit_starts_when_its_queue_moves() {
    let mut world = fleet(10);
    let bounded = PolicyFact {
        pools: vec![bound("gpu", None, "gpu 4")],
        ..policy("dept")
    };
    world
        .queue(queue("dept"))
        .policy(bounded)
        .queue(below("dept", queue("team")))
        .queue(below("dept", queue("stays")));
    for queue in ["team", "stays"] {
        world.add(&format!("of-{queue}"), queue, 6, "gpu 1");
    }
    assert_eq!(world.decide(), "");
    world.queue(queue("team"));
    assert!(world.decide().starts_with("release of-team"));
}

#[test]
fn a_queue_that_moves_leaves_its_old_siblings() {
    let mut world = fleet(1);
    let of = |name, priority| QueueFact {
        priority,
        ..queue(name)
    };
    world
        .queue(of("high", 10))
        .queue(of("middle", 5))
        .queue(of("low", 0))
        .queue(below("high", queue("team")));
    world.runs("there", "middle", 1, "gpu 1");
    world.add("of-team", "team", 1, "gpu 1");
    world.add("of-middle", "middle", 1, "gpu 1");
    world.decide();
    world.queue(below("low", queue("team")));
    world.finish("there");
    assert_snapshot!(world.decide(), @"release of-middle #1 a(n0)");
}

#[test]
fn jobs_in_the_old_parent_start_when_a_queue_moves() {
    let mut world = fleet(8);
    world
        .queue(crate::world::capped("top", "gpu 4"))
        .queue(below("top", queue("x")))
        .queue(below("top", queue("y")));
    let holder = world.job("holder", "x", crate::world::pods(4, "gpu 1"));
    world.submit(holder);
    let waiter = world.job("waiter", "y", crate::world::pods(2, "gpu 1"));
    world.submit(waiter);
    world.decide();
    assert!(world.why("waiter").contains("queue top may use 4"));
    world.queue(queue("x"));
    assert!(world.decide().contains("release waiter"));
}
