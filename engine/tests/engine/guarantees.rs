//! Idle guarantees: withheld from all other queues together, for admission and eviction; and the
//! subtree quota of folders.

use crate::sharing::{fill, fleet, order, shares, usage};
use crate::world::{World, below, bound, deserving, pods, policy, queue, res};
use engine::facts::{PolicyFact, PoolBound, QueueFact};
use engine::{ClusterName, Event, NodeName};
use insta::assert_snapshot;

/// The bound of each queue is the parent's less the guarantees of the others; the sum of these
/// bounds is more.
#[test]
fn siblings_together_cannot_use_a_guarantee() {
    let mut world = fleet(4);
    world
        .queue(shares("g", "gpu 2", "gpu 2", ""))
        .queue(QueueFact {
            reclaimable: false,
            ..queue("a")
        })
        .queue(QueueFact {
            reclaimable: false,
            ..queue("b")
        });
    fill(&mut world, "a", 2);
    fill(&mut world, "b", 2);
    assert_snapshot!(order(&mut world), @"a b");
    assert_snapshot!(world.why("a-1"), @"#1 NextInLine: needs nvidia.com/gpu 1; queue root may use 4 and has 2 charged and 2 kept for what queue g is guaranteed: short by 1; it is next: what becomes free is reserved for it");
    // The guaranteed queue gets it at once, and the others get it without a guarantee.
    world.add("g-0", "g", 2, "gpu 1");
    assert_snapshot!(order(&mut world), @"g");
    world.finish("g-0");
    assert_snapshot!(order(&mut world), @"");
    world.queue(shares("g", "gpu 1", "gpu 2", ""));
    assert_snapshot!(order(&mut world), @"a");
    world.queue(queue("g"));
    assert_snapshot!(order(&mut world), @"b");
}

/// Usage that ends within a guarantee frees nothing for others; beyond it, it does.
#[test]
fn a_job_blocked_by_idle_guarantees_starts_when_its_siblings_use_less() {
    let mut world = fleet(8);
    world
        .queue(shares("g", "gpu 3", "gpu 3", ""))
        .queue(queue("a"))
        .queue(queue("b"));
    fill(&mut world, "g", 4);
    fill(&mut world, "a", 4);
    world.decide();
    fill(&mut world, "b", 2);
    assert_snapshot!(order(&mut world), @"");
    world.finish("g-0");
    assert_snapshot!(order(&mut world), @"b");
    world.finish("g-1");
    assert_snapshot!(order(&mut world), @"");
    assert_snapshot!(world.why("b-1"), @"#1 NextInLine: needs nvidia.com/gpu 1; queue root may use 8 and has 7 charged and 1 kept for what queue g is guaranteed: short by 1; it is next: what becomes free is reserved for it");
    world.finish("a-0");
    assert_snapshot!(order(&mut world), @"b");
}

/// A queue of a folder may borrow from a guarantee neither inside the folder nor outside.
#[test]
fn a_guarantee_below_a_folder_is_withheld_when_its_siblings_use_the_folders_guarantee() {
    let mut world = fleet(8);
    world
        .queue(shares("dept", "gpu 3", "gpu 3", ""))
        .queue(below("dept", shares("team", "gpu 3", "gpu 3", "")))
        .queue(below("dept", queue("other")))
        .queue(queue("lone"));
    fill(&mut world, "other", 3);
    world.decide();
    fill(&mut world, "lone", 5);
    assert_snapshot!(order(&mut world), @"lone lone");
    assert_snapshot!(world.why("lone-2"), @"#1 NextInLine: needs nvidia.com/gpu 1; queue root may use 8 and has 5 charged and 3 kept for what queue dept is guaranteed: short by 1; it is next: what becomes free is reserved for it");
    fill(&mut world, "team", 3);
    assert_snapshot!(order(&mut world), @"team team team");
}

/// It comes first, but cannot reserve what is guaranteed to another queue.
#[test]
fn a_job_ahead_cannot_reserve_a_guarantee() {
    let mut world = fleet(4);
    world
        .queue(shares("g", "gpu 2", "gpu 2", ""))
        .queue(QueueFact {
            priority: 9,
            ..queue("first")
        });
    world.add("running", "first", 2, "gpu 1");
    world.decide();
    world.add("waits", "first", 2, "gpu 1");
    world.decide();
    fill(&mut world, "g", 2);
    assert_snapshot!(order(&mut world), @"g g");
}

#[test]
fn siblings_together_cannot_use_a_guarantee_of_a_class() {
    let mut world = fleet(4);
    world.queue(queue("g")).queue(queue("a")).queue(queue("b"));
    world.policy(PolicyFact {
        pools: vec![PoolBound {
            guarantee: res("gpu 2"),
            deserved: res("gpu 2"),
            ..bound("gpu", None, "")
        }],
        ..policy("g")
    });
    fill(&mut world, "a", 2);
    fill(&mut world, "b", 2);
    assert_snapshot!(order(&mut world), @"a b");
    assert_snapshot!(world.why("b-1"), @"#1 NextInLine: needs nvidia.com/gpu 1; queue root may use 4 of class gpu and has 2 charged and 2 kept for what queue g is guaranteed: short by 1; it is next: what becomes free is reserved for it");
    fill(&mut world, "g", 2);
    assert_snapshot!(order(&mut world), @"g g");
}

/// With four GPUs it would start; two of them are guaranteed to another queue.
#[test]
fn advice_heeds_idle_guarantees() {
    let mut world = fleet(4);
    world
        .queue(shares("g", "gpu 2", "gpu 2", ""))
        .queue(queue("a"))
        .queue(queue("b"));
    world.runs("a-0", "a", 1, "gpu 1");
    world.add("b-0", "b", 2, "gpu 1");
    world.decide();
    let helps = world.engine.advise(&crate::world::key("b-0"), &|_| true);
    assert_snapshot!(format!("{helps:?}"), @r#"[FewerPods { role: "worker", count: 1 }, OtherQueue(QueueName("g"))]"#);
}

#[test]
fn a_folder_has_the_quota_of_the_queues_below_it() {
    let mut world = fleet(8);
    world
        .queue(queue("dept"))
        .queue(below("dept", shares("x", "gpu 1", "gpu 2", "")))
        .queue(below("dept", shares("y", "gpu 1", "gpu 3", "")))
        .queue(below("dept", queue("z")))
        .queue(queue("lone"));
    world.decide();
    assert_snapshot!(usage(&world, "dept"), @"has - deserves 5 may 8 borrows - lends -");
    // It comes before a queue that deserves nothing, for any queue below it.
    fill(&mut world, "lone", 8);
    fill(&mut world, "z", 8);
    assert_snapshot!(order(&mut world), @"z z z z z z");
    // An inner queue whose guarantee is below those of its children together is invalid.
    world.queue(shares("dept", "gpu 1", "gpu 5", ""));
    world.decide();
    assert_snapshot!(world.why("z-7"), @"#2 QueueInvalid: queue dept: guarantee.nvidia.com/gpu 1 is less than the 2 that the queues below it are guaranteed together; raise it to 2 or lower theirs");
}

/// Volcano's webhook refuses that; here it is a way to oversubscribe.
#[test]
fn children_may_deserve_more_together_than_their_parent() {
    let mut world = fleet(8);
    world
        .queue(shares("dept", "", "gpu 4", ""))
        .queue(below("dept", shares("x", "", "gpu 4", "")))
        .queue(below("dept", shares("y", "", "gpu 4", "")))
        .queue(shares("lone", "", "gpu 4", ""));
    fill(&mut world, "x", 3);
    world.decide();
    fill(&mut world, "y", 3);
    fill(&mut world, "lone", 8);
    assert_snapshot!(order(&mut world), @"lone lone lone y lone");
    assert_snapshot!(usage(&world, "dept"), @"has 4 deserves 4 may - borrows - lends -");
}

/// A small guarantee does not protect a gang that exceeds it, and stays withheld.
#[test]
fn a_gang_beyond_its_queues_guarantee_is_evicted() {
    let mut world = World::new();
    world
        .cluster("x", 4, "cpu 64, gpu 1")
        .queue(QueueFact {
            guarantee: res("gpu 1"),
            ..deserving("g", "gpu 1")
        })
        .queue(deserving("b", "gpu 3"));
    world.runs("gang", "g", 4, "gpu 1");
    for index in 0..4 {
        world.add(&format!("b{index}"), "b", 1, "gpu 1");
    }
    assert_snapshot!(world.settle(1000).join("\n"), @"gang for b0");
    let states = ["gang", "b0", "b1", "b2", "b3"].map(|name| format!("{:?}", world.state(name)));
    assert_snapshot!(states.join(" "), @"Queued Running Running Running Queued");
    // The guarantee of g is free for it, in its own order.
    let small = world.job("small", "g", pods(1, "gpu 1")).priority("high");
    world.submit(small);
    assert_snapshot!(world.settle(1000).join("\n"), @"");
    assert_eq!(world.state("small"), engine::JobState::Running);
}

/// An eviction within a guarantee would free nothing, since the guarantee stays withheld.
#[test]
fn a_job_within_a_guarantee_is_never_evicted() {
    let mut world = World::new();
    world
        .cluster("x", 4, "cpu 64, gpu 4")
        .queue(deserving("dept", "gpu 4"))
        .queue(below(
            "dept",
            QueueFact {
                guarantee: res("gpu 4"),
                ..deserving("kept", "gpu 4")
            },
        ))
        .queue(below("dept", queue("other")))
        .queue(deserving("b", "gpu 10"));
    world.runs("o1", "other", 2, "gpu 2");
    world.wait(100);
    world.runs("k1", "kept", 1, "gpu 4");
    world.runs("b0", "b", 2, "gpu 3");
    world.add("b1", "b", 1, "gpu 2");
    // dept uses more than it deserves, but not through the queue that stays within its guarantee,
    // though its job would suffice and costs less.
    assert_snapshot!(world.settle(100).join("\n"), @"o1 for b1");
}

/// They could not start again, and the mistake may be in another object.
#[test]
fn the_guarantee_of_an_invalid_queue_protects_its_jobs_only() {
    let mut world = World::new();
    world
        .cluster("x", 4, "cpu 64, gpu 2")
        .queue(shares("kept", "gpu 4", "gpu 4", ""))
        .queue(deserving("b", "gpu 8"));
    for name in ["k1", "k2", "k3"] {
        world.runs(name, "kept", 1, "gpu 2");
        world.wait(10);
    }
    world.queue(shares("kept", "gpu 4", "gpu 0", ""));
    for name in ["b1", "b2", "b3"] {
        world.add(name, "b", 1, "gpu 2");
    }
    assert_snapshot!(world.settle(100).join("\n"), @"k3 for b2");
    assert_snapshot!(world.why("k3"), @"#1 QueueInvalid: queue kept: guarantee.nvidia.com/gpu 4 is more than deserved.nvidia.com/gpu 0; lower the one to 0 or raise the other to 4");
    // What is idle of its guarantee is not kept free.
    world.finish("k2");
    world.decide();
    assert_eq!(world.state("b3"), engine::JobState::Assumed);
}

/// a uses one GPU more than it deserves, in its only job; its guarantee stays withheld.
#[test]
fn a_queue_may_fall_below_its_guarantee_by_the_size_of_a_victim() {
    let mut world = World::new();
    world
        .cluster("x", 2, "cpu 64, gpu 4")
        .queue(QueueFact {
            guarantee: res("gpu 3"),
            ..deserving("a", "gpu 3")
        })
        .queue(deserving("b", "gpu 5"));
    world.runs("a1", "a", 1, "gpu 4");
    world.runs("b1", "b", 1, "gpu 2");
    world.add("b2", "b", 1, "gpu 3");
    assert_snapshot!(world.settle(100).join("\n"), @"a1 for b2");
    world.add("b3", "b", 1, "gpu 1");
    assert_snapshot!(world.settle(100).join("\n"), @"");
}

#[test]
fn siblings_cannot_use_a_guarantee() {
    let mut world = fleet(10);
    world
        .queue(shares("a", "gpu 4", "gpu 4", ""))
        .queue(queue("b"));
    fill(&mut world, "b", 8);
    assert_snapshot!(order(&mut world), @"b b b b b b");
    assert_snapshot!(world.why("b-6"), @"#1 NextInLine: needs nvidia.com/gpu 1; queue b may use 6 (4 more is guaranteed to others) and has 6 charged: short by 1; it is next: what becomes free is reserved for it");
    assert_snapshot!(usage(&world, "a"), @"has - deserves 4 may 10 borrows - lends 4");
    assert_snapshot!(usage(&world, "b"), @"has 6 deserves - may 6 borrows 6 lends -");
    world.add("large", "b", 7, "gpu 1");
    world.decide();
    assert_snapshot!(world.why("large"), @"#3 ExceedsCapability: needs nvidia.com/gpu 7; queue b may use 6 (4 more is guaranteed to others): 1 more than it may have while that stands");
    // CPU is guaranteed to no queue, and so not bounded.
    world.add("cpu", "b", 1, "cpu 60");
    assert_snapshot!(order(&mut world), @"cpu");
    fill(&mut world, "a", 4);
    assert_snapshot!(order(&mut world), @"a a a a");
    // Without the guarantee, the others may use all.
    world.queue(queue("a"));
    world.finish("a-0");
    assert_snapshot!(order(&mut world), @"b");
}

#[test]
fn siblings_of_a_folder_cannot_use_a_guarantee_below_it() {
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
