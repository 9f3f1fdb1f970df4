//! Gangs that lack quota and nodes: both become free at the same time, not one after the other.

use crate::world::{World, bound, capped, on, pods, policy, queue};
use engine::facts::{PolicyFact, QueueFact};
use engine::{NodeName, PoolClass};

/// A job of one node that declares its run time, running.
fn runs(world: &mut World, name: &str, of: &str, (cluster, request): (&str, &str), seconds: i64) {
    let job = world
        .job(name, of, on(cluster, pods(1, request)))
        .lasts(seconds);
    world.submit(job);
    world.decide();
    world.run(name);
}

/// A queue with a bound that goes before the others.
fn first(name: &str, capability: &str) -> QueueFact {
    QueueFact {
        priority: 1,
        ..capped(name, capability)
    }
}

/// Decides `seconds` after the beginning.
fn at(world: &mut World, begin: engine::Time, seconds: i64) -> String {
    world.now = begin.after(seconds * 1000);
    world.decide()
}

/// Nodes with GPUs in `a`, one without in `b`; queue `q` may use 16 CPUs and goes before `o`.
fn fleet(nodes: u32) -> World {
    let mut world = World::new();
    world
        .cluster("a", nodes, "cpu 64, gpu 8")
        .cluster("b", 1, "cpu 64")
        .queue(first("q", "cpu 16"))
        .queue(queue("o"));
    world
}

/// Submits a gang that needs two nodes.
fn gang(world: &mut World) {
    let gang = world.job("gang", "q", pods(2, "gpu 8, cpu 4"));
    world.submit(gang);
}

/// Queue `q` may use 16 CPUs, which a job has for 1,000 s; jobs of `o` have the GPUs for 900 s and `last` s.
fn quota_and_nodes(last: i64) -> World {
    let mut world = fleet(2);
    runs(&mut world, "holds", "q", ("b", "cpu 16"), 1000);
    runs(&mut world, "one", "o", ("a", "gpu 8"), 900);
    runs(&mut world, "two", "o", ("a", "gpu 8"), last);
    gang(&mut world);
    assert_eq!(world.decide(), "");
    world
}

fn long(world: &mut World, name: &str) {
    let job = world.job(name, "o", pods(1, "gpu 8")).lasts(2000);
    world.submit(job);
}

#[test]
fn nodes_are_reserved_for_a_gang_before_its_quota_is_free() {
    let mut world = quota_and_nodes(1100);
    let begin = world.now;
    long(&mut world, "long");
    world.now = begin.after(900_000);
    world.finish("one");
    // Once it took this node, and the gang waited for it for 2,000 s more.
    assert_eq!(world.decide(), "");
    world.now = begin.after(1_000_000);
    world.finish("holds");
    assert_eq!(world.decide(), "");
    world.now = begin.after(1_100_000);
    world.finish("two");
    assert_eq!(world.decide(), "release gang #1 a(n0 n1)");
}

#[test]
fn no_node_is_kept_for_quota_that_becomes_free_later() {
    let mut world = quota_and_nodes(950);
    let begin = world.now;
    long(&mut world, "long");
    world.now = begin.after(900_000);
    world.finish("one");
    // Its nodes would be free 50 s before its quota is.
    assert_eq!(world.decide(), "release long #1 a(n0)");
}

#[test]
fn no_node_is_kept_for_quota_that_may_never_become_free() {
    let mut world = fleet(2);
    world.runs("holds", "q", 1, "cpu 16");
    runs(&mut world, "one", "o", ("a", "gpu 8"), 900);
    gang(&mut world);
    long(&mut world, "long");
    assert_eq!(world.decide(), "release long #1 a(n1)");
}

/// Another queue's reservations have the slots of the class: the gang reserves headroom all the same.
#[test]
fn headroom_is_reserved_where_the_slots_of_the_nodes_are_taken() {
    let mut world = fleet(4);
    world.queue(queue("p"));
    runs(&mut world, "holds", "q", ("b", "cpu 12"), 1000);
    for name in ["one", "two", "three", "four"] {
        runs(&mut world, name, "p", ("a", "gpu 5"), 2000);
    }
    for (name, of) in [("first", "o"), ("second", "p")] {
        world.add(name, of, 1, "gpu 8");
    }
    assert_eq!(world.decide(), "");
    let gang = world.job("gang", "q", on("a", pods(1, "gpu 8, cpu 16")));
    world.submit(gang);
    let next = world
        .job("next", "q", on("b", pods(1, "cpu 4")))
        .lasts(3000);
    world.submit(next);
    assert_eq!(
        world.decide(),
        "",
        "the quota that is left is kept for the gang"
    );
}

/// A bound on one class is short: the nodes of the other class that the gang needs are kept.
#[test]
fn nodes_of_other_classes_are_kept_while_the_bound_on_one_is_short() {
    let mut world = World::new();
    world
        .cluster("a", 4, "cpu 64, gpu 8")
        .queue(queue("q"))
        .queue(queue("o"));
    let mut node = crate::world::node("a", "n3", "cpu 64, gpu 8");
    node.class = PoolClass::from("other");
    assert_eq!(node.name, NodeName::from("n3"));
    world.apply(engine::Event::NodeUpserted(node));
    world.policy(PolicyFact {
        pools: vec![bound("gpu", None, "gpu 8")],
        ..policy("q")
    });
    world.policy(PolicyFact {
        pools: vec![bound("gpu", None, "gpu 0")],
        ..policy("o")
    });
    runs(&mut world, "holds", "q", ("a", "gpu 8"), 1000);
    runs(&mut world, "two", "o", ("a", "gpu 8"), 1100);
    let begin = world.now;
    world.add("gang", "q", 2, "gpu 8");
    assert_eq!(world.decide(), "");
    long(&mut world, "long");
    assert_eq!(at(&mut world, begin, 1000), "");
    world.finish("holds");
    assert_eq!(world.decide(), "");
    world.now = begin.after(1_100_000);
    world.finish("two");
    let released = world.decide();
    assert!(released.starts_with("release gang #1"), "{released}");
}
