//! Gangs that lack quota and nodes: both become free at the same time, not one after the other.

use crate::world::{World, bound, capped, foreign, on, pods, policy, queue};
use engine::facts::{PolicyFact, QueueFact};
use engine::{Event, NodeName, PoolClass};

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
    world.apply(Event::NodeUpserted(node));
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

/// Two nodes of class `gpu` in `a` and one of class `other`, `n2`. A queue goes before the others.
fn two_classes(first: &str) -> World {
    let mut world = World::new();
    world
        .cluster("a", 3, "cpu 64, gpu 8")
        .queue(QueueFact {
            priority: 1,
            ..queue(first)
        })
        .queue(queue("o"));
    other_class(&mut world, "n2");
    world
}

/// A node of class `other` in `a`.
fn other_class(world: &mut World, name: &str) {
    world.apply(Event::NodeUpserted(engine::facts::NodeFact {
        class: PoolClass::from("other"),
        ..crate::world::node("a", name, "cpu 64, gpu 8")
    }));
}

/// Bounds a queue on the GPUs of each of these classes.
fn may_use(world: &mut World, name: &str, most: &[(&str, &str)]) {
    let pools = most.iter().map(|(class, most)| bound(class, None, most));
    world.policy(PolicyFact {
        pools: pools.collect(),
        ..policy(name)
    });
}

/// Two classes of nodes. Queue `dept` goes before `o` and may use 8 GPUs of the
/// first class: a job of its queue `p` has them for 1,000 s. A gang waits in its queue `q`, which alone may use the
/// second class: a job of `o` has that for 6,000 s.
fn bound_above() -> World {
    let mut world = two_classes("dept");
    for name in ["q", "p"] {
        world.queue(QueueFact {
            parent: Some("dept".into()),
            ..queue(name)
        });
    }
    may_use(&mut world, "o", &[("gpu", "gpu 0")]);
    runs(&mut world, "late", "o", ("a", "gpu 8"), 6000);
    for name in ["p", "o"] {
        may_use(&mut world, name, &[("other", "gpu 0")]);
    }
    may_use(&mut world, "dept", &[("gpu", "gpu 8")]);
    runs(&mut world, "holds", "p", ("a", "gpu 8"), 1000);
    world.add("gang", "q", 1, "gpu 8");
    assert_eq!(world.decide(), "");
    world
}

/// A bound of a queue above is given back by a job of another queue: the gang waits for it on nodes that are free, and
/// a job that would take these for longer waits too.
#[test]
fn nodes_are_kept_until_another_queue_gives_a_bound_back() {
    let mut world = bound_above();
    let begin = world.now;
    let short = world.job("short", "o", pods(1, "gpu 8")).lasts(500);
    world.submit(short);
    long(&mut world, "long");
    assert_eq!(world.decide(), "release short #1 a(n1)");
    world.run("short");
    assert_eq!(at(&mut world, begin, 500), "");
    world.finish("short");
    assert_eq!(world.decide(), "");
    world.now = begin.after(1_000_000);
    world.finish("holds");
    let released = world.decide();
    assert!(released.contains("release gang #1 a(n"), "{released}");
}

/// It waits for a bound. Then a pod ends that belonged to no job, on a node that no bound keeps it from.
#[test]
fn a_gang_that_waits_for_a_bound_starts_where_a_node_is_free_before() {
    let mut world = bound_above();
    let begin = world.now;
    let full = foreign("a", "n3", "gpu 8");
    let Event::PodUpserted(pod) = &full else {
        unreachable!()
    };
    let gone = Event::PodGone(pod.cluster.clone(), pod.uid.clone());
    world.apply(full);
    other_class(&mut world, "n3");
    assert_eq!(world.decide(), "");
    world.now = begin.after(300_000);
    world.apply(gone);
    assert_eq!(world.decide(), "release gang #1 a(n3)");
}

/// The bounds on both classes are short. A node is free of the first one, whose bound has room late; the gang reserves
/// the node of the other class, which is free when the bound on that one has room.
#[test]
fn of_two_bounds_that_are_short_a_gang_waits_for_the_one_that_has_room_first() {
    let mut world = two_classes("q");
    may_use(&mut world, "o", &[("gpu", "gpu 0")]);
    may_use(&mut world, "q", &[("other", "gpu 0")]);
    runs(&mut world, "late", "q", ("a", "gpu 8"), 6000);
    may_use(&mut world, "q", &[("gpu", "gpu 0")]);
    runs(&mut world, "soon", "q", ("a", "gpu 4"), 1000);
    may_use(&mut world, "q", &[("gpu", "gpu 8"), ("other", "gpu 8")]);
    let begin = world.now;
    world.add("gang", "q", 1, "gpu 8");
    assert_eq!(world.decide(), "");
    let long = world.job("long", "o", pods(1, "gpu 4")).lasts(2000);
    world.submit(long);
    assert_eq!(world.decide(), "");
    world.now = begin.after(1_000_000);
    world.finish("soon");
    assert_eq!(world.decide(), "release gang #1 a(n2)");
}
