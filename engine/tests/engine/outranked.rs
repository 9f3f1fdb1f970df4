//! Who may have nothing kept, for there is nothing or as many keep it as may, is asked again when
//! that is so no more.

use crate::world::{World, cluster, foreign, gang, key, node, on, pods, policy, queue, role};
use engine::Event;
use engine::facts::{Demand, NodeFact, PolicyFact};
use insta::assert_snapshot;

/// Three of this queue may have the same kept; of others two, as it is set for all queues.
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
fn for_whom_nothing_could_be_kept_is_asked_when_a_node_has_grown_that_does_not_take_it_yet() {
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
    // As much is kept of the class as may be, as far as other queues go.
    for name in ["one", "two"] {
        let elsewhere = on("b", pods(1, "gpu 4"));
        submit(&mut world, &format!("head-{name}"), name, elsewhere);
    }
    world.add("last", "last", 1, "gpu 8");
    assert_snapshot!(world.decide(), @"");
    let names = ["head-one", "head-two", "last"];
    // The pod of no job is taken to stay.
    assert_eq!(are_next(&world, names), [true, true, false]);
    world.apply(Event::PodGone("a".into(), "foreign-a-n0".into()));
    assert_snapshot!(world.decide(), @"");
    assert_eq!(are_next(&world, names), [true, true, true]);
}

#[test]
fn who_was_outranked_is_asked_when_a_holder_turns_to_another_class() {
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
    // Three of its class are kept for those who were queued before.
    assert_eq!(are_next(&world, names), [true, true, true, true, false]);
    // On a node of the other class less has to become free for it now.
    world.finish("ends");
    assert_snapshot!(world.decide(), @"");
    assert_eq!(are_next(&world, names), [true; 5]);
}

#[test]
fn who_was_outranked_is_asked_when_one_of_more_than_two_holders_is_gone() {
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
fn who_was_outranked_in_one_class_is_asked_though_as_many_keep_another_as_may() {
    let both = || vec![role("eight", 1, "gpu 8"), role("nine", 1, "gpu 9")];
    let ten = |gpus| vec![role("one", 1, gpus), role("ten", 1, "gpu 10")];
    // Others are of one class each, or everybody is of two.
    let alone = [pods(1, "gpu 8"), pods(1, "gpu 9")];
    for [goes, after] in [alone, [gang(ten("gpu 8")), gang(ten("gpu 9"))]] {
        let mut world = World::new();
        world.cluster("a", 2, "cpu 64, gpu 8");
        world.queue(queue("full"));
        world.runs("old-8", "full", 2, "gpu 8");
        for (class, gpus, names) in [("other", 9, ["n2", "n3"]), ("third", 10, ["n4", "n5"])] {
            for name in names {
                world.apply(Event::NodeUpserted(NodeFact {
                    class: class.into(),
                    ..node("a", name, &format!("cpu 64, gpu {gpus}"))
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
        // Of the other class it has the better claim than one of those who keep it.
        assert_eq!(are_next(&world, names), [true, true, false]);
    }
}
