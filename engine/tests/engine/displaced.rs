//! Who loses a reservation to whom: jobs cannot displace each other in a circle.

use crate::world::{World, below, capped, key, node, on, pods, policy, queue};
use engine::facts::{Demand, PolicyFact};
use engine::{ClusterName, Event, PoolClass, Time};

/// A job that runs since now, and declares for how long if it does.
fn runs(world: &mut World, name: &str, of: &str, demand: Demand, seconds: Option<i64>) {
    let mut job = world.job(name, of, demand);
    job.0.expected_duration_ms = seconds.map(|seconds| seconds * 1000);
    world.submit(job);
    world.decide();
    world.run(name);
}

/// Decides until nothing is left to do: jobs in a circle would be evaluated again and again. Nothing is admitted.
fn decide(world: &mut World) {
    loop {
        let decided = world.decided();
        assert!(decided.decisions.is_empty());
        if !decided.more {
            break;
        }
    }
}

/// The jobs with a reservation, each with the clusters of its nodes.
fn reserved(world: &World) -> Vec<String> {
    let snapshot = serde_json::to_value(world.engine.snapshot()).unwrap();
    let all = snapshot["reservations"].as_array().unwrap().iter();
    let mut told: Vec<String> = all
        .map(|one| {
            let nodes = one["nodes"].as_array().unwrap().iter();
            let clusters: Vec<&str> = nodes
                .map(|node| node["cluster"].as_str().unwrap())
                .collect();
            let name = one["rank"]["key"]["name"].as_str().unwrap();
            format!("{name} {}", clusters.join(" ")).trim().to_owned()
        })
        .collect();
    told.sort();
    told
}

/// `low` is before `high` for the nodes, since it waits longer, and `high` before `old` for the headroom, and `old`
/// before `low`: each displaced another when it had been displaced itself.
#[test]
fn jobs_that_need_headroom_and_nodes_take_no_slots_from_each_other_by_turns() {
    let mut world = World::new();
    world
        .cluster("a", 4, "cpu 64, gpu 8")
        .queue(capped("dept", "gpu 12"))
        .queue(queue("o"))
        .queue(queue("p"));
    for name in ["oldest", "old", "low", "high"] {
        world.queue(below("dept", queue(name)));
    }
    runs(&mut world, "holds", "high", pods(1, "gpu 8"), Some(1000));
    for name in ["one", "two", "three"] {
        runs(&mut world, name, "o", pods(1, "gpu 5"), None);
    }
    // The nodes for these two are free: they lack headroom only.
    world.add("oldest", "oldest", 2, "gpu 3");
    world.add("old", "old", 2, "gpu 3");
    for (name, of, gpus, class) in [
        ("nodes", "p", 8, "high"),
        ("low", "low", 7, "low"),
        ("high", "high", 8, "high"),
    ] {
        let job = world.job(name, of, pods(1, &format!("gpu {gpus}")));
        world.submit(job.priority(class));
    }
    decide(&mut world);
    assert_eq!(reserved(&world), ["high a", "nodes a", "oldest"]);
    // It keeps its headroom when another takes its slot of the nodes.
    let mut job = world.job("others", "o", pods(1, "gpu 8"));
    job.0.queued_at = Time(0);
    world.submit(job);
    decide(&mut world);
    assert_eq!(reserved(&world), ["high", "nodes a", "oldest", "others a"]);
    // It has nodes again as soon as a slot is free.
    world.apply(Event::JobGone(key("others")));
    decide(&mut world);
    assert_eq!(reserved(&world), ["high a", "nodes a", "oldest"]);
}

/// `whole` is before `both`, and `both` before `waits` in the order of queues. Of the slots of the class, `waits` would
/// have the one of `whole`, since it waits longer; but then `both` would have the nodes of the two.
#[test]
fn a_job_displaces_none_without_whom_others_would_take_its_nodes() {
    let mut world = World::new();
    for (name, nodes) in [("x", 2), ("y", 1), ("z", 2)] {
        world.cluster(name, nodes, "cpu 64, gpu 8");
    }
    for name in ["n0", "n1"] {
        let mut fact = node("x", name, "cpu 64, gpu 8");
        fact.class = PoolClass::from("big");
        world.apply(Event::NodeUpserted(fact));
    }
    for name in ["first", "whole", "both", "waits", "o"] {
        world.queue(queue(name));
    }
    // In the empty fleet it would go there, so that it takes no slot of the other class.
    world.policy(PolicyFact {
        preferred_clusters: vec![ClusterName::from("x")],
        ..policy("both")
    });
    for (name, of, cluster, ends) in [
        ("x-0", "both", "x", None),
        ("x-1", "o", "x", None),
        ("y-0", "o", "y", None),
        ("z-0", "waits", "z", Some(1200)),
        ("z-1", "waits", "z", Some(1200)),
    ] {
        runs(&mut world, name, of, on(cluster, pods(1, "gpu 8")), ends);
    }
    for (name, demand) in [
        ("first", on("y", pods(1, "gpu 8"))),
        ("waits", on("z", pods(1, "gpu 7"))),
        ("whole", on("z", pods(1, "gpu 8"))),
        ("both", pods(2, "gpu 5")),
    ] {
        let job = world.job(name, name, demand);
        world.submit(job);
    }
    decide(&mut world);
    assert_eq!(reserved(&world), ["both x x", "first y", "whole z"]);
    // Where the two cannot be had together, it has the slot.
    let gone = Event::JobGone(key("both"));
    world.apply(gone);
    decide(&mut world);
    assert_eq!(reserved(&world), ["first y", "waits z"]);
}

/// `all` needs all nodes, of which `small` has reserved a part: no reservation is possible for it. Of the slots of the
/// class, `waits` would have the one of `small`, since it waits longer; but then one would be possible for `all`.
#[test]
fn a_job_displaces_none_without_whom_others_would_reserve_its_nodes() {
    let mut world = World::new();
    world.cluster("a", 3, "cpu 64, gpu 4");
    for (name, of) in [("old-1", "x"), ("old-2", "z"), ("old-3", "z")] {
        world.queue(queue(of));
        runs(&mut world, name, of, pods(1, "gpu 4"), None);
    }
    world.queue(queue("y"));
    world.add("all", "x", 3, "gpu 4");
    world.add("waits", "z", 1, "gpu 4");
    world.add("behind", "x", 1, "gpu 1");
    world.add("small", "y", 1, "gpu 1");
    decide(&mut world);
    assert_eq!(reserved(&world), ["behind a", "small a"]);
    world.apply(Event::JobGone(key("small")));
    decide(&mut world);
    assert_eq!(reserved(&world), ["all a a a"]);
}
