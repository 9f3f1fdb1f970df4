//! Jobs that a bound would never admit, and bounds that change later.

use crate::elastic::elastic;
use crate::world::{
    World, below, bound, capped, cluster, foreign, key, node, on, pods, policy, queue, res,
};
use engine::facts::{NodeFact, PolicyFact, QueueFact};
use engine::{Event, PoolClass};
use insta::assert_snapshot;

/// One GPU of `x` is lent to queue `c`, and `x` is lost. Queue `a` is below one with a guarantee of
/// two GPUs, which no node is left for.
fn lost() -> World {
    let mut world = World::new();
    world
        .cluster("x", 1, "cpu 64, gpu 8")
        .queue(queue("dept"))
        .queue(below("dept", queue("a")))
        .queue(queue("c"));
    world.apply(Event::ClusterUpserted(cluster("y")));
    world.add("borrows", "c", 1, "gpu 1");
    world.decide();
    let mut sure = queue("dept");
    sure.guarantee = res("gpu 2");
    world.queue(sure);
    let mut lost = cluster("x");
    lost.usable = false;
    world.apply(Event::ClusterUpserted(lost));
    world.add("due", "a", 1, "gpu 2");
    world
}

#[test]
fn an_entitled_job_evicts_as_soon_as_the_fleet_could_admit_it() {
    let mut world = lost();
    assert_snapshot!(world.decide(), @"");
    assert_snapshot!(world.why("due"), @"#1 ExceedsCapability: needs nvidia.com/gpu 2; queue root may use 0: 2 more than it may ever have");
    world.apply(Event::NodeUpserted(node("y", "n0", "cpu 64, gpu 2")));
    // The borrowed GPU in the lost cluster counts: nothing becomes free by itself.
    assert_snapshot!(world.decide(), @"evict borrows #1 for due: Reclaimed: reclaimed for ns/due: queue dept has nvidia.com/gpu 0 of the 2 that it deserves, queue c has 1 and deserves 0");
    world.works_gone("borrows");
    assert_snapshot!(world.decide(), @"release due #1 y(n0)");
}

#[test]
fn a_job_that_a_bound_may_admit_later_has_a_reservation() {
    let mut world = World::new();
    let sure = |gpus: &str| {
        let mut sure = queue("sure");
        sure.guarantee = res(gpus);
        sure
    };
    world
        .cluster("x", 1, "cpu 64, gpu 8")
        .queue(sure("gpu 6"))
        .queue(capped("q", "gpu 8"));
    for name in ["one", "two"] {
        world.add(name, "q", 1, "gpu 1");
    }
    world.decide();
    world.add("large", "q", 1, "gpu 5");
    world.decide();
    assert_snapshot!(world.why("large"), @"#1 ExceedsCapability: needs nvidia.com/gpu 5; queue q may use 2 (6 more is guaranteed to others): 3 more than it may have while that stands");
    // The guarantee of another queue is lower: the bound is five now, of which two are in use.
    world.queue(sure("gpu 3"));
    world.add("small", "q", 1, "gpu 1");
    assert_snapshot!(world.decide(), @"");
    let small = world.engine.explain(&key("small")).unwrap();
    assert_eq!(small.reason, engine::Reason::ReservedForAnother);
    for name in ["one", "two"] {
        world.run(name);
        world.finish(name);
    }
    assert_snapshot!(world.decide(), @"release large #1 x(n0)");
}

fn of_class(queue: &str, capability: &str) -> PolicyFact {
    PolicyFact {
        pools: vec![bound("gpu", None, capability)],
        ..policy(queue)
    }
}

/// A job that lacks headroom now, and that the bound of `dept` on its class would never admit.
fn never_let() -> World {
    let mut world = World::new();
    world
        .cluster("x", 1, "cpu 64, gpu 8")
        .queue(queue("dept"))
        .queue(below("dept", capped("q", "gpu 8")))
        .policy(of_class("dept", "gpu 4"));
    world.runs("old", "q", 1, "gpu 4");
    world.add("large", "q", 1, "gpu 8");
    assert_eq!(world.decide(), "");
    let large = world.engine.explain(&key("large")).unwrap();
    assert_eq!(large.reason, engine::Reason::ExceedsCapability);
    world
}

/// It waits for headroom now.
fn waits_and_goes(world: &mut World) {
    assert_eq!(world.decide(), "");
    let large = world.engine.explain(&key("large")).unwrap();
    assert_eq!(large.reason, engine::Reason::NextInLine);
    world.finish("old");
    assert_eq!(world.decide(), "release large #1 x(n0)");
}

#[test]
fn a_job_that_a_bound_never_admits_starts_when_the_bound_is_raised() {
    let mut world = never_let();
    world.policy(of_class("dept", "gpu 8"));
    waits_and_goes(&mut world);
}

#[test]
fn a_job_that_a_bound_never_admits_starts_when_its_queue_moves() {
    let mut world = never_let();
    world.queue(capped("q", "gpu 8"));
    waits_and_goes(&mut world);
}

#[test]
fn an_elastic_job_that_the_bounds_never_admit_blocks_no_job() {
    // The job has one size, or two.
    for most in [1, 2] {
        let mut world = World::new();
        world
            .cluster("x", 2, "cpu 16, gpu 8")
            .cluster("y", 1, "cpu 16, gpu 4")
            .queue(queue("bounded"))
            .queue(queue("other"))
            .policy(PolicyFact {
                pools: vec![bound("gpu", Some(&["x"]), "gpu 0")],
                ..policy("bounded")
            });
        // Only the nodes of x are large enough.
        let never = world.job("never", "bounded", elastic(1, most, "gpu 5"));
        world.submit(never);
        world.add("both", "other", 2, "gpu 6");
        assert_eq!(world.decide(), "release both #1 x(n0 n1)");
        let bounded = "ExceedsCapability: needs nvidia.com/gpu 5, pods 1; no nodes of the fleet";
        assert!(world.why("never").contains(bounded));
    }
}

#[test]
fn a_job_that_a_bound_never_admits_loses_its_reservation() {
    let mut world = World::new();
    world.queue(QueueFact {
        priority: 1,
        ..queue("first")
    });
    for name in ["q", "other"] {
        world.queue(queue(name));
    }
    for name in ["a", "b"] {
        world.cluster(name, 1, "cpu 64, gpu 8");
    }
    for (name, cluster, gpus) in [("old-a", "a", 6), ("ends", "b", 4), ("old-b", "b", 4)] {
        let old = on(cluster, pods(1, &format!("gpu {gpus}")));
        let old = world.job(name, "other", old);
        world.submit(old);
        world.decide();
        world.run(name);
    }
    let first = world.job("first", "first", on("b", pods(1, "gpu 8")));
    world.submit(first);
    world.add("head", "q", 1, "gpu 8");
    world.add("small", "other", 1, "gpu 2");
    assert_snapshot!(world.decide(), @"");
    // On b less has to become free now, for the first job alone.
    world.queue(capped("q", "gpu 4"));
    world.finish("ends");
    assert_snapshot!(world.decide(), @"release small #1 a(n0)");
}

/// Two nodes of class `gpu`, of which queue `q` may use 8 GPUs, and two of class `big`.
fn mixed() -> World {
    let mut world = World::new();
    world.apply(Event::ClusterUpserted(cluster("x")));
    for (name, class) in [("a0", "gpu"), ("a1", "gpu"), ("b0", "big"), ("b1", "big")] {
        world.apply(Event::NodeUpserted(NodeFact {
            class: PoolClass::from(class),
            ..node("x", name, "cpu 64, gpu 8")
        }));
    }
    world.queue(queue("q")).policy(PolicyFact {
        pools: vec![bound("gpu", None, "gpu 8")],
        ..policy("q")
    });
    world
}

#[test]
fn a_gang_uses_nodes_of_two_classes_within_the_bound_on_one() {
    let mut world = mixed();
    // The first three nodes would be two of the class of which only one is allowed.
    world.add("gang", "q", 3, "gpu 5");
    assert_snapshot!(world.decide(), @"release gang #1 x(a0 b0 b1)");
}

#[test]
fn a_gang_that_a_bound_admits_on_other_nodes_waits_for_those() {
    let mut world = mixed();
    world.apply(foreign("x", "b1", "gpu 8"));
    world.add("gang", "q", 3, "gpu 5");
    assert_snapshot!(world.decide(), @"");
    assert_snapshot!(world.why("gang"), @"#1 WaitingForRoom: needs 3 pods × nvidia.com/gpu 5; x has room for 2 of 3");
    world.apply(Event::PodGone("x".into(), "foreign-x-b1".into()));
    assert_snapshot!(world.decide(), @"release gang #1 x(a0 b0 b1)");
}

#[test]
fn a_gang_that_fits_on_no_mix_of_nodes_within_a_bound_is_reported() {
    let mut world = mixed();
    world.add("gang", "q", 4, "gpu 5");
    assert_snapshot!(world.decide(), @"");
    assert_snapshot!(world.why("gang"), @"#1 ExceedsCapability: needs nvidia.com/gpu 20, pods 4; no nodes of the fleet would take it within what queue q and those above it may use of each class of pools");
}

#[test]
fn a_gang_on_several_classes_is_evaluated_when_a_bound_is_raised() {
    let mut world = mixed();
    // A node of the bounded class that the gang does not fit on.
    world.apply(Event::NodeUpserted(node("x", "small", "cpu 64, gpu 4")));
    world.add("old", "q", 1, "gpu 4");
    assert_snapshot!(world.decide(), @"release old #1 x(small)");
    world.run("old");
    world.add("gang", "q", 3, "gpu 5");
    assert_snapshot!(world.decide(), @"");
    world.finish("old");
    assert_snapshot!(world.decide(), @"release gang #1 x(a0 b0 b1)");
}
