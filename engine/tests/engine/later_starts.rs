//! Reservations that begin later than now: whom they leave room for, and what moves them before they begin.

use crate::world::{World, capped, pods, policy, queue};
use engine::facts::{Backfill, PolicyFact};
use serde_json::Value;

/// A reservation for each waiting job.
fn conservative(name: &str) -> PolicyFact {
    PolicyFact {
        backfill: Backfill {
            conservative: true,
            ..Backfill::default()
        },
        ..policy(name)
    }
}

/// Three nodes of eight GPUs in a queue with many reservations.
fn world() -> World {
    let mut world = World::new();
    world
        .cluster("a", 3, "cpu 64, gpu 8")
        .queue(queue("q"))
        .policy(conservative("q"));
    world
}

/// A job of one pod that runs since now and declares how long.
fn running(world: &mut World, name: &str, request: &str, seconds: i64) {
    running_in("q", world, name, request, seconds);
}

/// The same in any queue.
fn running_in(queue: &str, world: &mut World, name: &str, request: &str, seconds: i64) {
    let job = world.job(name, queue, pods(1, request)).lasts(seconds);
    world.submit(job);
    world.decide();
    world.run(name);
}

/// The reservation of a job.
fn reservation(world: &World, name: &str) -> Option<Value> {
    let snapshot = serde_json::to_value(world.engine.snapshot()).unwrap();
    let all = snapshot["reservations"].as_array().unwrap();
    let own = |one: &&Value| {
        one["rank"]["key"]
            .to_string()
            .contains(&format!("{name}\""))
    };
    all.iter().find(own).cloned()
}

/// The reserved nodes of a job, and its start in seconds from the beginning.
fn reserved(world: &World, name: &str) -> String {
    let Some(own) = reservation(world, name) else {
        return "none".to_owned();
    };
    let nodes = own["nodes"].as_array().unwrap().iter();
    let nodes: Vec<&str> = nodes.map(|node| node["node"].as_str().unwrap()).collect();
    let start = own["start"].as_i64().map(|at| (at - 1_000_000) / 1_000);
    format!("{} {start:?}", nodes.join(" "))
}

/// The cluster of the first reserved node of a job.
fn reserved_in(world: &World, name: &str) -> Option<String> {
    let own = reservation(world, name)?;
    Some(own["nodes"][0]["cluster"].as_str()?.to_owned())
}

#[test]
fn a_job_that_would_end_after_an_owner_ahead_begins_reserves_none_of_its_nodes() {
    for (seconds, wanted) in [
        // It begins where least has to become free, and is gone when the owner begins.
        (300, "n1 Some(600)"),
        // Counted from now it is gone by then too, and counted from its own start it is not.
        (500, "n2 Some(2000)"),
    ] {
        let mut world = world();
        running(&mut world, "long", "gpu 8", 1_000);
        running(&mut world, "half", "gpu 4", 600);
        running(&mut world, "last", "gpu 8", 2_000);
        world.add("owner", "q", 2, "gpu 8");
        let short = world.job("short", "q", pods(1, "gpu 8")).lasts(seconds);
        world.submit(short);
        assert_eq!(world.decide(), "");
        assert_eq!(reserved(&world, "owner"), "n0 n1 Some(1000)");
        assert_eq!(reserved(&world, "short"), wanted, "{seconds} s");
    }
}

/// Returns what is reserved for `owner` as time goes by, while jobs that declared 100 s and 1,000 s run on for ever.
fn as_ends_slip(mut world: World) -> [String; 5] {
    running(&mut world, "first", "gpu 8", 100);
    running(&mut world, "second", "gpu 8", 1_000);
    world.add("owner", "q", 2, "gpu 8");
    let begin = world.now;
    [0, 100, 200, 400, 800].map(|seconds| {
        world.now = begin.after(seconds * 1_000);
        assert_eq!(world.decide(), "");
        reserved(&world, "owner")
    })
}

#[test]
fn a_start_that_is_yet_to_come_moves_with_an_end_that_slips() {
    // A job that has run longer than it declared is expected to run half as long again as it has.
    let starts = [1000, 1000, 1000, 1000, 1200].map(|start| format!("Some({start})"));
    let mut on_nodes = World::new();
    on_nodes
        .cluster("a", 2, "cpu 64, gpu 8")
        .queue(queue("q"))
        .policy(conservative("q"));
    assert_eq!(
        as_ends_slip(on_nodes),
        starts.each_ref().map(|start| format!("n0 n1 {start}"))
    );
    let mut of_quota = World::new();
    of_quota
        .cluster("a", 4, "cpu 64, gpu 8")
        .queue(capped("q", "gpu 16"))
        .policy(conservative("q"));
    assert_eq!(
        as_ends_slip(of_quota),
        starts.map(|start| format!(" {start}"))
    );
}

#[test]
fn a_start_follows_the_first_end_as_it_slips() {
    let mut world = World::new();
    world
        .cluster("a", 4, "cpu 64, gpu 8")
        .queue(capped("q", "gpu 16"))
        .policy(conservative("q"));
    running(&mut world, "first", "gpu 8", 100);
    running(&mut world, "second", "gpu 8", 1_000);
    world.add("owner", "q", 1, "gpu 8");
    let begin = world.now;
    for (seconds, start) in [(0, 100), (100, 150), (200, 300), (400, 600), (700, 1000)] {
        world.now = begin.after(seconds * 1_000);
        assert_eq!(world.decide(), "");
        assert_eq!(reserved(&world, "owner"), format!(" Some({start})"));
    }
}

#[test]
fn a_start_moves_with_a_job_that_begins_to_run_later_than_it_was_admitted() {
    for (fleet, quota, nodes) in [(1, "gpu 16", "n0"), (2, "gpu 8", "")] {
        let mut world = World::new();
        world
            .cluster("a", fleet, "cpu 64, gpu 8")
            .queue(capped("q", quota))
            .policy(conservative("q"));
        let first = world.job("first", "q", pods(1, "gpu 8")).lasts(1_000);
        world.submit(first);
        world.decide();
        world.add("owner", "q", 1, "gpu 8");
        world.decide();
        assert_eq!(reserved(&world, "owner"), format!("{nodes} Some(1000)"));
        world.now = world.now.after(300_000);
        world.run("first");
        assert_eq!(world.decide(), "");
        assert_eq!(reserved(&world, "owner"), format!("{nodes} Some(1300)"));
    }
}

#[test]
fn a_reservation_does_not_move_to_nodes_where_no_less_has_to_become_free() {
    let mut world = World::new();
    world
        .cluster("a", 3, "cpu 6, gpu 8")
        .queue(queue("q"))
        .policy(conservative("q"));
    let on_all = world.job("on-all", "q", pods(3, "gpu 1, cpu 4")).lasts(100);
    world.submit(on_all);
    world.decide();
    world.run("on-all");
    world.add("owner", "q", 2, "gpu 3, cpu 4");
    world.decide();
    assert_eq!(reserved(&world, "owner"), "n0 n1 Some(100)");
    // It leaves the fewest GPUs on the third node. Pods would go there first, and would have to wait as long.
    world.add("other", "q", 1, "gpu 3, cpu 2");
    let other = world.decide();
    assert!(other.contains("n2"), "{other}");
    world.now = world.now.after(100_000);
    assert_eq!(world.decide(), "");
    assert_eq!(reserved(&world, "owner"), "n0 n1 Some(150)");
}

#[test]
fn an_owner_that_lacks_headroom_reserves_other_nodes_once_those_it_counted_on_are_anothers() {
    let mut world = World::new();
    world
        .cluster("a", 3, "cpu 64, gpu 8")
        .queue(queue("first"))
        .queue(capped("capped", "gpu 8"))
        .queue(queue("long"));
    running_in("capped", &mut world, "old", "gpu 8", 100);
    running_in("long", &mut world, "late", "gpu 8", 200);
    world.add("next", "capped", 1, "gpu 8");
    world.decide();
    // A node is free sooner than the headroom.
    assert_eq!(reserved(&world, "next"), " Some(100)");
    world.add("wide", "first", 2, "gpu 8");
    world.decide();
    assert_eq!(reserved(&world, "wide"), "n0 n2 Some(100)");
    assert_eq!(reserved(&world, "next"), "n1 Some(200)");
}

#[test]
fn an_owner_moves_to_the_nodes_of_one_ahead_that_starts_and_says_how_long() {
    let mut world = World::new();
    world.cluster("a", 2, "cpu 64, gpu 8");
    for name in ["full", "one", "two"] {
        world.queue(queue(name));
    }
    for name in ["ends", "stays"] {
        world.runs(name, "full", 1, "gpu 8");
    }
    let short = world.job("short", "one", pods(1, "gpu 8")).lasts(100);
    world.submit(short);
    world.add("next", "two", 1, "gpu 8");
    world.decide();
    assert_eq!(reserved(&world, "short"), "n0 None");
    assert_eq!(reserved(&world, "next"), "n1 None");
    world.finish("ends");
    world.decide();
    assert_eq!(reserved(&world, "next"), "n0 Some(100)");
}

#[test]
fn an_owner_moves_where_it_starts_sooner_since_others_took_a_node_there() {
    let mut world = World::new();
    world
        .queue(queue("q"))
        .queue(queue("later"))
        .cluster("b", 2, "cpu 64, gpu 8");
    running(&mut world, "six", "gpu 6", 200);
    world.runs("four", "q", 1, "gpu 4");
    running(&mut world, "three", "gpu 3", 100);
    world.cluster("a", 2, "cpu 64, gpu 8");
    world.runs("five", "q", 1, "gpu 5");
    world.runs("half", "q", 1, "gpu 6");
    world.add("owner", "q", 3, "gpu 4");
    world.decide();
    // In `b`, most pods would wait for `four`.
    assert_eq!(reserved_in(&world, "owner").unwrap(), "a");
    let short = world.job("short", "later", pods(1, "gpu 1")).lasts(50);
    world.submit(short);
    assert_eq!(world.decide(), "release short #1 b(n1)");
    assert_eq!(reserved_in(&world, "owner").unwrap(), "b");
    assert_eq!(reserved(&world, "owner"), "n0 n1 Some(200)");
}
