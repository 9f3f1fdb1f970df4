//! Jobs that a bound would never let go, and bounds that are others later.

use crate::world::{World, below, capped, cluster, key, node, queue, res};
use engine::Event;
use insta::assert_snapshot;

/// One GPU of `x` is lent to queue `c`, and `x` is lost: nothing is left of which queue `a`, below
/// one to which two GPUs are guaranteed, could have them.
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
fn whoever_is_due_takes_back_as_soon_as_the_fleet_could_let_it_go() {
    let mut world = lost();
    assert_snapshot!(world.decide(), @"");
    assert_snapshot!(world.why("due"), @"#1 ExceedsCapability: needs nvidia.com/gpu 2; queue root may use 0: 2 more than it may ever have");
    world.apply(Event::NodeUpserted(node("y", "n0", "cpu 64, gpu 2")));
    // What is borrowed in the lost cluster counts: nothing will be free by itself.
    assert_snapshot!(world.decide(), @"take back borrows #1 for due: Reclaimed: reclaimed for ns/due: queue dept has nvidia.com/gpu 0 of the 2 that it deserves, queue c has 1 and deserves 0");
    world.works_gone("borrows");
    assert_snapshot!(world.decide(), @"release due #1 y(n0)");
}

#[test]
fn whoever_a_bound_lets_go_some_day_keeps_what_frees_from_those_behind() {
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
    // Less is guaranteed to another: the bound is five now, of which two are in use.
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
