//! Guarantees, deserved amounts and what queues borrow; Kueue's words for it; who goes first by
//! it; past use.

use crate::world::{World, below, bound, capped, gang, policy, queue, res, role};
use engine::facts::{FairShare, PolicyFact, PoolBound, QueueFact};
use engine::{ClusterName, Decision, Event, NodeName, QueueName};
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

/// The first letters of the jobs' names in the order of their release.
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
fn what_is_guaranteed_to_one_is_not_for_its_siblings() {
    let mut world = fleet(10);
    world
        .queue(shares("a", "gpu 4", "gpu 4", ""))
        .queue(queue("b"));
    fill(&mut world, "b", 8);
    assert_snapshot!(order(&mut world), @"b b b b b b");
    assert_snapshot!(world.why("b-6"), @"#1 Reserved: needs nvidia.com/gpu 1; queue b may use 6 (4 more is guaranteed to others) and has 6 charged: short by 1; it is next: what frees is kept for it");
    assert_snapshot!(usage(&world, "a"), @"has - deserves 4 may 10 borrows - lends 4");
    assert_snapshot!(usage(&world, "b"), @"has 6 deserves - may 6 borrows 6 lends -");
    world.add("large", "b", 7, "gpu 1");
    world.decide();
    assert_snapshot!(world.why("large"), @"#3 ExceedsCapability: needs nvidia.com/gpu 7; queue b may use 6 (4 more is guaranteed to others): 1 more than it may have while that stands");
    // CPU is guaranteed to nobody, and so bounded for nobody.
    world.add("cpu", "b", 1, "cpu 60");
    assert_snapshot!(order(&mut world), @"cpu");
    fill(&mut world, "a", 4);
    assert_snapshot!(order(&mut world), @"a a a a");
    // The guarantee goes: the others may have it all.
    world.queue(queue("a"));
    world.finish("a-0");
    assert_snapshot!(order(&mut world), @"b");
}

#[test]
fn what_is_guaranteed_below_a_folder_is_kept_from_its_siblings_too() {
    let mut world = fleet(10);
    world
        .queue(queue("dept"))
        .queue(below("dept", shares("team", "gpu 3", "gpu 3", "")))
        .queue(below("dept", queue("other")))
        .queue(queue("lone"));
    fill(&mut world, "lone", 10);
    assert_snapshot!(order(&mut world), @"lone lone lone lone lone lone lone");
    let told: Vec<String> = ["dept", "team", "other", "lone"]
        .iter()
        .map(|name| format!("{name} {}", usage(&world, name)))
        .collect();
    assert_snapshot!(told.join("\n"), @r"
    dept has - deserves 3 may 10 borrows - lends 3
    team has - deserves 3 may 10 borrows - lends 3
    other has - deserves - may 7 borrows - lends -
    lone has 7 deserves - may 7 borrows 7 lends -
    ");
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
fn class_10_guarantees_beyond_a_fleet_that_lost_a_cluster_neither_panic_nor_go_below_zero() {
    let mut world = fleet(4);
    world.cluster("b", 8, "cpu 64, gpu 1");
    world
        .queue(shares("a", "gpu 6", "gpu 6", ""))
        .queue(shares("b", "gpu 6", "gpu 6", ""))
        .queue(queue("c"));
    world.apply(Event::ClusterGone(ClusterName::from("b")));
    fill(&mut world, "c", 1);
    assert_snapshot!(order(&mut world), @"");
    assert_snapshot!(world.why("c-0"), @"#1 ExceedsCapability: needs nvidia.com/gpu 1; queue c may use 0 (4 more is guaranteed to others): 1 more than it may have while that stands");
    assert_snapshot!(usage(&world, "a"), @"has - deserves 6 may 4 borrows - lends -");
    fill(&mut world, "a", 6);
    assert_snapshot!(order(&mut world), @"a a a a");
    for node in 0..4 {
        let node = NodeName::from(format!("n{node}").as_str());
        world.apply(Event::NodeGone(ClusterName::from("a"), node));
    }
    world.decide();
    assert_snapshot!(usage(&world, "c"), @"has - deserves - may 0 borrows - lends -");
    world.cluster("b", 8, "cpu 64, gpu 1");
    world.queue(queue("b"));
    assert_snapshot!(order(&mut world), @"a a c");
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
fn bounds_on_a_class_are_shared_like_those_over_everything() {
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
    assert_snapshot!(world.why("b-6"), @"#1 Reserved: needs nvidia.com/gpu 1; queue b may use 6 of class gpu (4 more is guaranteed to others) and has 6 charged: short by 1; it is next: what frees is kept for it");
    fill(&mut world, "a", 2);
    assert_snapshot!(order(&mut world), @"a a");
    let usage = world.engine.queue_usage(&QueueName::from("a")).unwrap();
    let pool = &usage.pools[0];
    assert_snapshot!(format!("{} of {} up to {}", pool.allocated, pool.deserved, pool.real_capability), @"nvidia.com/gpu 2, pods 2 of nvidia.com/gpu 6 up to nvidia.com/gpu 10");
    assert_snapshot!(usage.borrowed.to_string(), @"");
}

#[test]
fn a_bound_over_some_clusters_names_them() {
    let mut world = fleet(2);
    world.queue(queue("q"));
    let mut bounded = policy("q");
    bounded.pools = vec![bound("gpu", Some(&["a"]), "gpu 1")];
    world.policy(bounded);
    fill(&mut world, "q", 2);
    world.decide();
    assert_snapshot!(world.why("q-1"), @"#1 Reserved: needs nvidia.com/gpu 1; queue q may use 1 of class gpu in a and has 1 charged: short by 1; it is next: what frees is kept for it");
}

/// Kueue: nominalQuota 4, borrowingLimit 2, lendingLimit 1 is deserved 4, capability 6,
/// guarantee 3.
#[test]
fn kueues_model_is_this_one_by_other_names() {
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
    // It borrows two of b's four and no more.
    assert_snapshot!(order(&mut world), @"a a a a a a");
    assert_snapshot!(usage(&world, "a"), @"has 6 deserves 4 may 6 borrows 2 lends -");
    assert_snapshot!(usage(&world, "b"), @"has - deserves 4 may 5 borrows - lends 2");
    let mut world = fleet(8);
    world.queue(kueue("a", 4, 2, 1)).queue(kueue("b", 4, 4, 4));
    fill(&mut world, "b", 8);
    // It borrows the one that a lends and no more.
    assert_snapshot!(order(&mut world), @"b b b b b");
    assert_snapshot!(usage(&world, "a"), @"has - deserves 4 may 6 borrows - lends 1");
    assert_snapshot!(usage(&world, "b"), @"has 5 deserves 4 may 5 borrows 1 lends -");
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
fn every_rule_that_a_queue_breaks_is_told_and_stops_only_what_is_below() {
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
    // What an invalid queue asks for is kept from nobody.
    assert_snapshot!(usage(&world, "good"), @"has 1 deserves - may - borrows 1 lends -");
}

#[test]
fn class_2_what_one_gate_passes_and_the_other_refuses_is_charged_nowhere() {
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
fn class_20_amounts_near_the_end_of_what_can_be_counted_compare_exactly() {
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
