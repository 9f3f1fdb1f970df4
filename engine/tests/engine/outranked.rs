//! Jobs that cannot get a reservation, because nothing can be reserved or all slots are taken, are
//! evaluated again when that changes.

use crate::world::{
    World, capped, cluster, deserving, foreign, gang, key, node, on, pods, policy, queue, role,
};
use engine::Event;
use engine::facts::{Demand, NodeFact, PolicyFact, QueueFact};
use insta::assert_snapshot;

/// This queue may have three reservations of the class; others have the default of two.
fn keeps_for_three(name: &str) -> PolicyFact {
    let mut several = policy(name);
    several.backfill.reservations = Some(3);
    several
}

fn submit(world: &mut World, name: &str, queue: &str, demand: Demand) {
    let job = world.job(name, queue, demand);
    world.submit(job);
}

fn are_next<const N: usize>(world: &World, names: [&str; N]) -> [bool; N] {
    names.map(|name| world.why(name).contains("it is next"))
}

#[test]
fn an_unreservable_job_is_evaluated_when_a_node_grows() {
    let mut world = World::new();
    world
        .cluster("a", 1, "cpu 64, gpu 8")
        .cluster("b", 2, "cpu 64, gpu 4");
    for name in ["full", "one", "two", "last"] {
        world.queue(queue(name));
    }
    world.policy(keeps_for_three("last"));
    world.apply(foreign("a", "n0", "gpu 1"));
    world.runs("old", "full", 1, "gpu 7");
    world.runs("old-b", "full", 2, "gpu 4");
    // For other queues, all slots of the class are taken.
    for name in ["one", "two"] {
        let elsewhere = on("b", pods(1, "gpu 4"));
        submit(&mut world, &format!("head-{name}"), name, elsewhere);
    }
    world.add("last", "last", 1, "gpu 8");
    assert_snapshot!(world.decide(), @"");
    let names = ["head-one", "head-two", "last"];
    // The pod of no job is assumed to stay.
    assert_eq!(are_next(&world, names), [true, true, false]);
    world.apply(Event::PodGone("a".into(), "foreign-a-n0".into()));
    assert_snapshot!(world.decide(), @"");
    assert_eq!(are_next(&world, names), [true, true, true]);
}

#[test]
fn an_owner_takes_the_slots_of_its_shape_wherever_its_nodes_are() {
    let mut world = World::new();
    world.cluster("a", 3, "cpu 64, gpu 8");
    world.apply(Event::ClusterUpserted(cluster("b")));
    for (name, gpus) in [("n0", 8), ("n1", 9)] {
        world.apply(Event::NodeUpserted(NodeFact {
            class: "other".into(),
            ..node("b", name, &format!("cpu 64, gpu {gpus}"))
        }));
    }
    for name in ["full", "many", "beside", "last"] {
        world.queue(queue(name));
    }
    world
        .policy(keeps_for_three("many"))
        .policy(keeps_for_three("last"));
    for (name, demand) in [
        ("old-a", on("a", pods(3, "gpu 8"))),
        ("old-9", on("b", pods(1, "gpu 9"))),
        ("ends", on("b", pods(1, "gpu 4"))),
        ("old-4", on("b", pods(1, "gpu 4"))),
    ] {
        submit(&mut world, name, "full", demand);
        world.decide();
        world.run(name);
    }
    for (name, queue, demand) in [
        ("turns", "many", pods(1, "gpu 8")),
        ("stays-1", "many", on("a", pods(1, "gpu 8"))),
        ("stays-2", "many", on("a", pods(1, "gpu 8"))),
        ("beside", "beside", on("b", pods(1, "gpu 9"))),
        ("last", "last", on("a", pods(1, "gpu 8"))),
    ] {
        submit(&mut world, name, queue, demand);
    }
    assert_snapshot!(world.decide(), @"");
    let names = ["turns", "stays-1", "stays-2", "beside", "last"];
    // Three jobs that were queued before have reservations of its class.
    assert_eq!(are_next(&world, names), [true, true, true, true, false]);
    // On a node of the other class less has to become free for it now. It would go to this one in the empty fleet.
    world.finish("ends");
    assert_snapshot!(world.decide(), @"");
    assert_eq!(are_next(&world, names), [true, true, true, true, false]);
}

#[test]
fn an_outranked_job_is_evaluated_when_one_of_several_owners_is_gone() {
    let mut world = World::new();
    world.cluster("a", 3, "cpu 64, gpu 8");
    for name in ["full", "many", "last"] {
        world.queue(queue(name));
    }
    world
        .policy(keeps_for_three("many"))
        .policy(keeps_for_three("last"));
    world.runs("old", "full", 3, "gpu 8");
    for name in ["goes", "stays-1", "stays-2"] {
        world.add(name, "many", 1, "gpu 8");
    }
    world.add("last", "last", 1, "gpu 8");
    assert_snapshot!(world.decide(), @"");
    let names = ["stays-1", "stays-2", "last"];
    assert_eq!(are_next(&world, names), [true, true, false]);
    world.apply(Event::JobGone(key("goes")));
    assert_snapshot!(world.decide(), @"");
    assert_eq!(are_next(&world, names), [true; 3]);
}

#[test]
fn a_job_outranked_in_one_class_is_evaluated_though_the_slots_of_another_are_taken() {
    // Only the nodes of the first class have so many CPUs, and only those of the second have memory.
    let (eight, nine) = ("cpu 16, gpu 8", "memory 1, gpu 9");
    let both = || vec![role("eight", 1, eight), role("nine", 1, nine)];
    let ten = |gpus| vec![role("one", 1, gpus), role("ten", 1, "gpu 10")];
    // The other jobs use one class each, or all use two.
    let alone = [pods(1, eight), pods(1, nine)];
    for [goes, after] in [alone, [gang(ten(eight)), gang(ten(nine))]] {
        let mut world = World::new();
        world.cluster("a", 2, "cpu 64, gpu 8");
        world.queue(queue("full"));
        world.runs("old-8", "full", 2, "gpu 8");
        for (class, memory, gpus, names) in [
            ("other", 8, 9, ["n2", "n3"]),
            ("third", 0, 10, ["n4", "n5"]),
        ] {
            for name in names {
                world.apply(Event::NodeUpserted(NodeFact {
                    class: class.into(),
                    ..node("a", name, &format!("cpu 8, memory {memory}, gpu {gpus}"))
                }));
            }
            world.runs(&format!("old-{gpus}"), "full", 2, &format!("gpu {gpus}"));
        }
        for (name, demand) in [
            ("goes", goes),
            ("before", gang(both())),
            ("outranked", gang(both())),
            ("after", after),
        ] {
            world.queue(queue(name));
            submit(&mut world, name, name, demand);
        }
        assert_eq!(world.decide(), "");
        let names = ["before", "outranked", "after"];
        assert_eq!(are_next(&world, names), [true, false, true]);
        world.apply(Event::JobGone(key("goes")));
        assert_eq!(world.decide(), "");
        // In the other class it has a higher reservation priority than one of the owners.
        assert_eq!(are_next(&world, names), [true, true, false]);
    }
}

#[test]
fn how_deep_a_queue_is_gives_it_no_priority_for_a_reservation() {
    let mut world = World::new();
    world.cluster("a", 3, "cpu 64, gpu 8");
    for name in ["full", "aged", "shallow", "dept"] {
        world.queue(queue(name));
    }
    world.queue(QueueFact {
        parent: Some("dept".into()),
        ..deserving("deep", "gpu 8")
    });
    let mut old = world.job("old", "full", pods(3, "gpu 8"));
    old.0.preemptible = false;
    world.submit(old);
    world.decide();
    world.run("old");
    for name in ["aged", "shallow", "deep"] {
        world.add(name, name, 1, "gpu 8");
    }
    assert_snapshot!(world.decide(), @"");
    // Of two slots one is for the queue below its deserved amounts, and one for the job that waits longest.
    assert_eq!(
        are_next(&world, ["aged", "shallow", "deep"]),
        [true, false, true]
    );
}

/// A node is reserved for `small`. Another that became free is reserved for `wide`, which came later and is ahead of
/// it: the queue of `small` has more.
fn behind_an_owner() -> World {
    let mut world = World::new();
    world
        .cluster("a", 3, "cpu 64, gpu 8")
        .cluster("b", 3, "cpu 64")
        .cluster("c", 1, "cpu 64, gpu 8");
    for name in ["v", "w", "x", "lab"] {
        world.queue(queue(name));
    }
    for child in ["y", "z"] {
        world.queue(QueueFact {
            parent: Some("lab".into()),
            ..queue(child)
        });
    }
    for (name, queue, demand) in [
        ("old-x", "x", on("b", pods(3, "cpu 64"))),
        ("old-y", "y", on("a", pods(1, "gpu 8"))),
        ("old-w", "w", on("a", pods(1, "gpu 8"))),
        ("old-v", "v", on("a", pods(1, "gpu 8"))),
    ] {
        submit(&mut world, name, queue, demand);
        world.decide();
        world.run(name);
    }
    submit(&mut world, "small", "x", on("a", pods(1, "gpu 8")));
    assert_eq!(world.decide(), "");
    world.finish("old-v");
    submit(&mut world, "wide", "y", on("a", pods(2, "gpu 8")));
    assert_eq!(world.decide(), "");
    let why = world.why("small");
    assert!(why.contains("is kept for ns/wide, further ahead"), "{why}");
    world
}

#[test]
fn a_job_is_evaluated_when_an_end_elsewhere_moves_its_queue_forward() {
    let mut world = behind_an_owner();
    world.finish("old-x");
    assert_snapshot!(world.decide(), @"release small #1 a(n2)");
}

#[test]
fn a_job_is_evaluated_when_an_adopted_one_moves_the_owner_back() {
    let mut world = behind_an_owner();
    let mut before = World::new();
    before.cluster("c", 1, "cpu 64, gpu 8").queue(queue("z"));
    submit(&mut before, "adopted", "z", pods(1, "gpu 8"));
    before.decide();
    let view = before.engine.job(&key("adopted")).unwrap();
    let mut admission = view.admission.unwrap().clone();
    admission.shares[0].slots.clear();
    world.apply(Event::JobAdmitted {
        key: key("adopted"),
        admission,
        progress: engine::Progress::Running,
    });
    assert_snapshot!(world.decide(), @"release small #1 a(n2)");
}

#[test]
fn a_job_is_evaluated_when_past_usage_fades_and_its_queue_moves_forward() {
    let mut world = World::new();
    world.cluster("a", 3, "cpu 64, gpu 8");
    world.queue(capped("lab", "gpu 8"));
    for name in ["x", "y", "z"] {
        let mut fades = policy(name);
        fades.fair_share.usage_half_life_ms = Some(3_600_000);
        world.policy(fades).queue(QueueFact {
            parent: Some("lab".into()),
            ..queue(name)
        });
    }
    world.runs("past", "x", 1, "gpu 8");
    world.wait(36_000).finish("past");
    world.runs("old", "z", 1, "gpu 4");
    world.add("small", "x", 1, "gpu 4");
    world.add("wide", "y", 1, "gpu 8");
    assert_snapshot!(world.decide(), @"");
    let why = world.why("small");
    assert!(why.contains("is kept for ns/wide, further ahead"), "{why}");
    // Nothing else happens.
    world.wait(360_000);
    assert_snapshot!(world.decide(), @"release small #1 a(n0)");
}
