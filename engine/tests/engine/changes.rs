//! What each change wakes: jobs that wait for just that, and elastic gangs that may grow by it.

use crate::elastic::elastic;
use crate::spare::{running, stays};
use crate::wake::{is_next, waiting_heads};
use crate::world::{
    World, below, capped, deserving, foreign, gang, key, node, policy, queue, res, role,
};
use engine::facts::{NodeFact, QueueFact};
use engine::{EngineConfig, Event, Reason};
use insta::assert_snapshot;

/// An elastic gang of 1 to 4 pods of one GPU in queue `q`, beside which 2 of 4 GPUs of a node are used.
fn half_grown(beside: impl FnOnce(&mut World)) -> World {
    let mut world = World::new();
    world
        .cluster("a", 1, "cpu 64, gpu 4")
        .queue(queue("q"))
        .queue(queue("other"));
    beside(&mut world);
    let job = world.job("gang", "q", elastic(1, 4, "gpu 1"));
    world.submit(job);
    world.decide();
    world.run("gang");
    assert_eq!(world.decide(), "");
    world
}

#[test]
fn a_gang_grows_when_a_pod_that_belongs_to_no_job_is_gone() {
    let mut world = half_grown(|world| world.apply(foreign("a", "n0", "gpu 2")));
    world.apply(Event::PodGone("a".into(), "foreign-a-n0".into()));
    assert_snapshot!(world.decide(), @"resize gang #1 a(n0×2 n0×2)");
}

#[test]
fn a_gang_grows_when_quota_is_freed_and_no_capacity() {
    let mut world = half_grown(|world| {
        world.queue(capped("q", "gpu 4"));
        world.runs("beside", "q", 1, "gpu 2");
    });
    world.ending("beside", Reason::Evicted);
    world.drop_pods("beside");
    world.wait(10);
    assert_snapshot!(world.decide(), @"");
    world.works_gone("beside");
    assert_snapshot!(world.decide(), @"resize gang #1 a(n0×2 n0×2)");
}

#[test]
fn a_gang_grows_into_what_was_reserved_for_a_job_that_is_deleted() {
    let mut world = half_grown(|world| {
        world.apply(foreign("a", "n0", "gpu 2"));
        world.apply(Event::NodeUpserted(node("a", "n1", "cpu 64, gpu 4")));
        world.runs("beside", "other", 1, "gpu 4");
    });
    let roles = vec![role("small", 1, "gpu 2"), role("large", 1, "gpu 4")];
    let head = world.job("head", "other", gang(roles));
    world.submit(head);
    assert_snapshot!(world.decide(), @"");
    world.apply(Event::PodGone("a".into(), "foreign-a-n0".into()));
    assert_snapshot!(world.decide(), @"");
    world.apply(Event::JobGone(key("head")));
    assert_snapshot!(world.decide(), @"resize gang #1 a(n0×2 n0×2)");
}

#[test]
fn a_queue_has_changed_with_its_fact_or_with_what_the_fleet_lets_it_use() {
    let mut world = World::new();
    world
        .cluster("a", 2, "cpu 64, gpu 4")
        .queue(queue("q"))
        .queue(QueueFact {
            guarantee: res("gpu 4"),
            ..queue("other")
        });
    world.decide();
    world.engine.take_changed();
    world.apply(Event::NodeUpserted(node("a", "n2", "cpu 64, gpu 4")));
    world.decide();
    let changed = world.engine.take_changed().queues;
    assert!(changed.contains(&"q".into()), "{changed:?}");
    world.queue(QueueFact {
        priority: 1,
        ..queue("q")
    });
    let changed = world.engine.take_changed().queues;
    assert_eq!(changed, ["q".into()].into());
}

#[test]
fn a_job_stopped_by_reserved_headroom_starts_when_the_owner_is_deleted() {
    let mut world = World::new();
    world
        .cluster("a", 2, "cpu 64, gpu 8")
        .queue(capped("dept", "gpu 8"));
    for name in ["full", "one", "two"] {
        world.queue(below("dept", queue(name)));
    }
    world.runs("old", "full", 1, "gpu 4");
    world.add("head", "one", 1, "gpu 8");
    assert_snapshot!(world.decide(), @"");
    world.add("small", "two", 1, "gpu 4");
    assert_snapshot!(world.decide(), @"");
    world.engine.take_changed();
    world.apply(Event::JobGone(key("head")));
    assert_snapshot!(world.decide(), @"release small #1 a(n0)");
}

#[test]
fn jobs_that_win_or_lose_a_reservation_are_reported_as_changed() {
    let names = ["one", "two", "three"];
    let mut world = waiting_heads(&names, policy);
    let next = |world: &World| names.map(|name| is_next(world, name));
    assert_eq!(next(&world), [true, true, false]);
    world.engine.take_changed();
    world.queue(QueueFact {
        priority: 1,
        ..below("dept", queue("three"))
    });
    world.engine.take_changed();
    world.decide();
    assert_eq!(next(&world), [true, false, true]);
    let changed = world.engine.take_changed().jobs;
    assert_eq!(changed, [key("head-three"), key("head-two")].into());
    world.apply(Event::JobGone(key("head-three")));
    world.decide();
    assert!(world.why("head-two").contains("it is next"));
    let changed = world.engine.take_changed().jobs;
    assert!(changed.contains(&key("head-two")), "{changed:?}");
}

#[test]
fn a_queue_that_has_what_it_deserves_gives_its_slot_to_an_older_job() {
    let mut world = World::with(EngineConfig {
        reservations_per_class: 1,
        ..EngineConfig::default()
    });
    world
        .cluster("a", 4, "cpu 64, gpu 8")
        .cluster("c", 1, "cpu 2000")
        .queue(deserving("poor", "cpu 100"))
        .queue(queue("rich"))
        .queue(queue("full"));
    world.runs("old", "full", 4, "gpu 8");
    world.add("older", "rich", 2, "gpu 8");
    world.add("younger", "poor", 2, "gpu 8");
    world.decide();
    let next = |world: &World, name: &str| world.why(name).contains("it is next");
    assert_eq!(
        ["older", "younger"].map(|name| next(&world, name)),
        [false, true]
    );
    world.add("grabs", "poor", 1, "cpu 100");
    assert_snapshot!(world.decide(), @"release grabs #1 c(n0)");
    assert_eq!(
        ["older", "younger"].map(|name| next(&world, name)),
        [true, false]
    );
}

/// The gang of queue `q` ends on nodes that take no pods any more, so that only its spare node is left.
fn gang_ends_on_cordoned_nodes(world: &mut World) {
    for name in ["n0", "n1"] {
        world.apply(Event::NodeUpserted(NodeFact {
            usable: false,
            ..node("a", name, "cpu 64, gpu 8")
        }));
    }
    world.decide();
    world.finish("gang");
    world.wait(6);
}

#[test]
fn a_job_that_was_kept_from_a_spare_node_starts_when_it_is_none_any_more() {
    let mut world = running(3);
    stays(&mut world, "stays", "p", 1, "gpu 8");
    assert_snapshot!(world.decide(), @"");
    gang_ends_on_cordoned_nodes(&mut world);
    assert_snapshot!(world.decide(), @"release stays #1 a(n2)");
}
