//! Capability and borrowing; bounds on a class; Kueue's terms; invalid queues.

use crate::world::{World, below, bound, capped, gang, policy, queue, res, role};
use engine::facts::{PolicyFact, PoolBound, QueueFact};
use engine::{Decision, QueueName};
use insta::assert_snapshot;

pub fn fleet(gpus: u32) -> World {
    let mut world = World::new();
    world.cluster("a", gpus, "cpu 64, gpu 1");
    world
}

pub fn shares(name: &str, guarantee: &str, deserved: &str, capability: &str) -> QueueFact {
    QueueFact {
        guarantee: res(guarantee),
        deserved: res(deserved),
        capability: res(capability),
        ..queue(name)
    }
}

pub fn usage(world: &World, name: &str) -> String {
    let usage = world.engine.queue_usage(&QueueName::from(name)).unwrap();
    let of = |resources: &engine::Resources| {
        let gpu = resources.get(&engine::ResourceName::new("nvidia.com/gpu"));
        gpu.map_or("-".to_owned(), |amount| amount.0.to_string())
    };
    format!(
        "has {} deserves {} may {} borrows {} lends {}",
        of(&usage.allocated),
        of(&usage.deserved),
        of(&usage.real_capability),
        of(&usage.borrowed),
        of(&usage.lent),
    )
}

/// The first letters of the jobs' names, in the order of their admission.
pub fn order(world: &mut World) -> String {
    let decided = world.decided().decisions;
    let released = decided.iter().filter_map(|decision| match decision {
        Decision::Release { key, .. } => key.name.split('-').next().map(ToOwned::to_owned),
        _ => None,
    });
    released.collect::<Vec<_>>().join(" ")
}

pub fn fill(world: &mut World, queue: &str, jobs: u32) {
    for index in 0..jobs {
        world.add(&format!("{queue}-{index}"), queue, 1, "gpu 1");
    }
}

#[test]
fn class_14_an_explicit_zero_is_none_and_absence_is_no_bound() {
    let mut world = fleet(4);
    world
        .queue(shares("zero", "", "gpu 0", "cpu 64"))
        .queue(shares("none", "", "", "gpu 0"))
        .queue(shares("free", "", "", ""));
    for name in ["zero", "none", "free"] {
        fill(&mut world, name, 1);
    }
    assert_snapshot!(order(&mut world), @"zero free");
    assert_snapshot!(usage(&world, "zero"), @"has 1 deserves 0 may - borrows 1 lends -");
    assert_snapshot!(usage(&world, "free"), @"has 1 deserves - may - borrows 1 lends -");
    assert_snapshot!(world.why("none-0"), @"#1 ExceedsCapability: needs nvidia.com/gpu 1; queue none may use 0: 1 more than it may ever have");
}

#[test]
fn bounds_on_a_class_are_shared_as_overall_bounds() {
    let mut world = fleet(10);
    world.queue(queue("a")).queue(queue("b"));
    let shares = |name: &str, guarantee: &str, deserved: &str| PolicyFact {
        pools: vec![PoolBound {
            guarantee: res(guarantee),
            deserved: res(deserved),
            ..bound("gpu", None, "")
        }],
        ..policy(name)
    };
    world.policy(shares("a", "gpu 4", "gpu 6"));
    fill(&mut world, "b", 8);
    assert_snapshot!(order(&mut world), @"b b b b b b");
    assert_snapshot!(world.why("b-6"), @"#1 NextInLine: needs nvidia.com/gpu 1; queue b may use 6 of class gpu (4 more is guaranteed to others) and has 6 charged: short by 1; it is next: what becomes free is reserved for it");
    fill(&mut world, "a", 2);
    assert_snapshot!(order(&mut world), @"a a");
    let usage = world.engine.queue_usage(&QueueName::from("a")).unwrap();
    let pool = &usage.pools[0];
    assert_snapshot!(format!("{} of {} up to {}", pool.allocated, pool.deserved, pool.real_capability), @"nvidia.com/gpu 2, pods 2 of nvidia.com/gpu 6 up to nvidia.com/gpu 10");
    assert_snapshot!(usage.borrowed.to_string(), @"");
}

#[test]
fn the_message_on_a_bound_on_some_clusters_names_them() {
    let mut world = fleet(2);
    world.queue(queue("q"));
    let mut bounded = policy("q");
    bounded.pools = vec![bound("gpu", Some(&["a"]), "gpu 1")];
    world.policy(bounded);
    fill(&mut world, "q", 2);
    world.decide();
    assert_snapshot!(world.why("q-1"), @"#1 NextInLine: needs nvidia.com/gpu 1; queue q may use 1 of class gpu in a and has 1 charged: short by 1; it is next: what becomes free is reserved for it");
}

/// Kueue: nominalQuota 4, borrowingLimit 2, lendingLimit 1 is deserved 4, capability 6,
/// guarantee 3.
#[test]
fn kueues_model_in_volcanos_terms() {
    let kueue = |name: &str, nominal: u32, borrowing: u32, lending: u32| {
        shares(
            name,
            &format!("gpu {}", nominal - lending),
            &format!("gpu {nominal}"),
            &format!("gpu {}", nominal + borrowing),
        )
    };
    let mut world = fleet(8);
    world.queue(kueue("a", 4, 2, 1)).queue(kueue("b", 4, 4, 4));
    fill(&mut world, "a", 8);
    // It borrows two of b's four, and no more.
    assert_snapshot!(order(&mut world), @"a a a a a a");
    assert_snapshot!(usage(&world, "a"), @"has 6 deserves 4 may 6 borrows 2 lends -");
    assert_snapshot!(usage(&world, "b"), @"has - deserves 4 may 5 borrows - lends 2");
    let mut world = fleet(8);
    world.queue(kueue("a", 4, 2, 1)).queue(kueue("b", 4, 4, 4));
    fill(&mut world, "b", 8);
    // It borrows the one that a lends, and no more.
    assert_snapshot!(order(&mut world), @"b b b b b");
    assert_snapshot!(usage(&world, "a"), @"has - deserves 4 may 6 borrows - lends 1");
    assert_snapshot!(usage(&world, "b"), @"has 5 deserves 4 may 5 borrows 1 lends -");
}

#[test]
fn every_broken_rule_is_reported_and_blocks_only_the_subtree() {
    let mut world = fleet(20);
    world
        .queue(shares("own-1", "gpu 3", "gpu 2", ""))
        .queue(shares("own-2", "gpu 3", "", "gpu 2"))
        .queue(shares("own-3", "", "gpu 3", "gpu 2"))
        .queue(shares("dept", "", "", "gpu 4"))
        .queue(below("dept", capped("high-1", "gpu 5")))
        .queue(below("dept", shares("high-2", "", "gpu 5", "")))
        .queue(below("dept", shares("high-3", "gpu 5", "", "")))
        .queue(below("dept", queue("fine")))
        .queue(shares("sum", "gpu 3", "gpu 3", ""))
        .queue(below("sum", shares("sum-1", "gpu 2", "gpu 2", "")))
        .queue(below("sum", shares("sum-2", "gpu 2", "gpu 2", "")))
        .queue(below("self", queue("self")))
        .queue(queue("pool"))
        .queue(queue("good"));
    world.policy(PolicyFact {
        pools: vec![PoolBound {
            deserved: res("gpu 3"),
            ..bound("gpu", Some(&["a"]), "gpu 2")
        }],
        ..policy("pool")
    });
    let queues = [
        "own-1", "own-2", "own-3", "high-1", "high-2", "high-3", "fine", "sum-1", "self", "pool",
        "good",
    ];
    for name in queues {
        world.add(&format!("{name}-job"), name, 1, "gpu 1");
    }
    world.decide();
    let why: Vec<String> = queues
        .iter()
        .map(|name| world.why(&format!("{name}-job")))
        .collect();
    assert_snapshot!(why.join("\n"), @r"
    #1 QueueInvalid: queue own-1: guarantee.nvidia.com/gpu 3 is more than deserved.nvidia.com/gpu 2; lower the one to 2 or raise the other to 3
    #1 QueueInvalid: queue own-2: guarantee.nvidia.com/gpu 3 is more than capability.nvidia.com/gpu 2; lower the one to 2 or raise the other to 3
    #1 QueueInvalid: queue own-3: deserved.nvidia.com/gpu 3 is more than capability.nvidia.com/gpu 2; lower the one to 2 or raise the other to 3
    #1 QueueInvalid: queue high-1: capability.nvidia.com/gpu 5 is more than the capability.nvidia.com/gpu 4 of its parent dept; lower it to 4 or raise the parent's to 5
    #1 QueueInvalid: queue high-2: deserved.nvidia.com/gpu 5 is more than the capability.nvidia.com/gpu 4 of its parent dept; lower it to 4 or raise the parent's to 5
    #1 QueueInvalid: queue high-3: guarantee.nvidia.com/gpu 5 is more than the capability.nvidia.com/gpu 4 of its parent dept; lower it to 4 or raise the parent's to 5
    Admitted: released; its placement is being written; attempt 1 on a, charged nvidia.com/gpu 1, pods 1 to queue fine
    #1 QueueInvalid: queue sum: guarantee.nvidia.com/gpu 3 is less than the 4 that the queues below it are guaranteed together; raise it to 4 or lower theirs
    #1 QueueInvalid: queue self is below itself: the parent of self is self
    #1 QueueInvalid: queue pool: pools[gpu in a].deserved.nvidia.com/gpu 3 is more than pools[gpu in a].capability.nvidia.com/gpu 2; lower the one to 2 or raise the other to 3
    Admitted: released; its placement is being written; attempt 1 on a, charged nvidia.com/gpu 1, pods 1 to queue good
    ");
    // The quota of an invalid queue is not withheld from others.
    assert_snapshot!(usage(&world, "good"), @"has 1 deserves - may - borrows 1 lends -");
}

#[test]
fn class_2_a_job_that_one_check_refuses_is_not_charged() {
    let mut world = fleet(4);
    world.queue(capped("q", "gpu 4"));
    let job = world.job("wide-0", "q", gang(vec![role("w", 1, "gpu 4")]));
    world.submit(job);
    world.add("fits-0", "q", 4, "gpu 1");
    assert_snapshot!(order(&mut world), @"fits");
    assert_snapshot!(world.why("wide-0"), @"#1 ExceedsFleet: needs 1 pod × nvidia.com/gpu 4; a has room for 0 of 1; it would not fit even if they were empty");
}

#[test]
fn class_13_quota_may_be_edited_while_a_queue_closes() {
    let mut world = fleet(4);
    world.queue(capped("q", "gpu 1"));
    fill(&mut world, "q", 2);
    world.decide();
    let closing = |capability| QueueFact {
        state: engine::facts::QueueState::Closing,
        ..capped("q", capability)
    };
    world.queue(closing("gpu 2"));
    assert_snapshot!(order(&mut world), @"");
    assert_snapshot!(usage(&world, "q"), @"has 1 deserves - may 2 borrows 1 lends -");
    world.queue(capped("q", "gpu 2"));
    assert_snapshot!(order(&mut world), @"q");
}

#[test]
fn class_20_amounts_near_the_limit_compare_exactly() {
    let mut world = fleet(2);
    let huge = i64::MAX.to_string();
    world
        .queue(shares(
            "x",
            "",
            &format!("memory {huge}"),
            &format!("memory {huge}, gpu {huge}"),
        ))
        .queue(shares("y", "", &format!("gpu {huge}"), ""))
        .queue(capped("z", &format!("gpu {huge}")));
    for name in ["x", "y", "z"] {
        fill(&mut world, name, 1);
    }
    assert_snapshot!(order(&mut world), @"x y");
    assert_snapshot!(usage(&world, "y"), @"has 1 deserves 9223372036854775807 may - borrows - lends 1");
}
