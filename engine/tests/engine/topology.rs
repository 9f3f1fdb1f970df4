//! Racks and zones: gangs are close together, and racks stay whole.

use crate::preemption::preempting;
use crate::world::{World, cluster, foreign, node, pods, policy, queue, role};
use engine::facts::{Demand, NodeFact, PolicyFact, Topology};
use engine::{ClusterName, Event, Uid};
use insta::assert_snapshot;

/// Cluster `name`, with zones, racks and nodes of 8 devices: `z0/r0/n00`.
fn racked(world: &mut World, name: &str, zones: u32, racks: u32, nodes: u32) {
    world.apply(Event::ClusterUpserted(cluster(name)));
    for zone in 0..zones {
        for rack in 0..racks {
            for at in 0..nodes {
                let node_name = format!("n{zone}{rack}{at}");
                world.apply(Event::NodeUpserted(NodeFact {
                    domains: vec![format!("z{zone}"), format!("r{rack}")],
                    ..node(name, &node_name, "cpu 64, gpu 8")
                }));
            }
        }
    }
}

fn hard(tier: u32, demand: Demand) -> Demand {
    Demand {
        topology: Some(Topology {
            hard: true,
            highest_tier: tier,
        }),
        ..demand
    }
}

fn submit(world: &mut World, name: &str, demand: Demand) {
    let job = world.job(name, "q", demand);
    world.submit(job);
}

fn world() -> World {
    let mut world = World::new();
    world.queue(queue("q"));
    world
}

#[test]
fn a_gang_is_in_the_innermost_domain_that_it_fits_into() {
    let mut world = world();
    racked(&mut world, "a", 2, 2, 2);
    submit(&mut world, "rack", pods(2, "gpu 8"));
    submit(&mut world, "zone", pods(4, "gpu 8"));
    submit(&mut world, "rest", pods(2, "gpu 8"));
    assert_snapshot!(world.decide(), @r"
    release rack #1 a(n000 n001)
    release zone #1 a(n100 n101 n110 n111)
    release rest #1 a(n010 n011)
    ");
}

#[test]
fn the_rack_with_the_least_left_is_used_so_that_others_stay_whole() {
    let mut world = world();
    racked(&mut world, "a", 1, 3, 3);
    world.apply(foreign("a", "n020", "gpu 8"));
    submit(&mut world, "two", pods(2, "gpu 8"));
    submit(&mut world, "three", pods(3, "gpu 8"));
    assert_snapshot!(world.decide(), @r"
    release two #1 a(n021 n022)
    release three #1 a(n000 n001 n002)
    ");
}

#[test]
fn a_hard_topology_is_never_violated() {
    let mut world = world();
    racked(&mut world, "a", 2, 2, 2);
    world.apply(foreign("a", "n000", "gpu 8"));
    world.apply(foreign("a", "n010", "gpu 8"));
    world.apply(foreign("a", "n100", "gpu 8"));
    world.apply(foreign("a", "n110", "gpu 8"));
    submit(&mut world, "rack", hard(1, pods(2, "gpu 8")));
    assert_snapshot!(world.decide(), @"");
    assert_snapshot!(world.why("rack"), @"#1 WaitingForRoom: needs 2 pods × nvidia.com/gpu 8; a in z0/r0 has room for 1 of 2");
    submit(&mut world, "zone", hard(2, pods(2, "gpu 8")));
    assert_snapshot!(world.decide(), @"release zone #1 a(n001 n011)");
    submit(&mut world, "never", hard(2, pods(5, "gpu 8")));
    world.decide();
    assert_snapshot!(world.why("never"), @"#2 ExceedsFleet: needs 5 pods × nvidia.com/gpu 8; a in z1 has room for 2 of 5; it would not fit even if they were empty");
}

#[test]
fn the_cluster_is_the_domain_that_contains_the_outermost() {
    let mut world = world();
    racked(&mut world, "a", 2, 1, 1);
    submit(&mut world, "job", hard(3, pods(2, "gpu 8")));
    assert_snapshot!(world.decide(), @"release job #1 a(n000 n100)");
}

#[test]
fn an_unknown_topology_is_left_to_the_member() {
    let mut world = world();
    world.cluster("a", 3, "cpu 64, gpu 8");
    submit(&mut world, "two-nodes", hard(1, pods(2, "gpu 8")));
    assert_snapshot!(world.decide(), @"release two-nodes #1 a(n0 n1)");
}

#[test]
fn a_rack_of_another_cluster_comes_before_the_preferred_cluster() {
    let mut world = world();
    world.cluster("a", 2, "cpu 64, gpu 8");
    racked(&mut world, "b", 1, 1, 2);
    let mut prefers = policy("q");
    prefers.preferred_clusters = vec![ClusterName::from("a")];
    world.policy(prefers);
    submit(&mut world, "gang", pods(2, "gpu 8"));
    submit(&mut world, "single", pods(1, "gpu 8"));
    assert_snapshot!(world.decide(), @r"
    release gang #1 b(n000 n001)
    release single #1 a(n0)
    ");
}

#[test]
fn all_roles_are_in_the_domain() {
    let mut world = world();
    racked(&mut world, "a", 1, 2, 2);
    world.apply(foreign("a", "n000", "cpu 60"));
    world.apply(foreign("a", "n001", "cpu 60"));
    let demand = crate::world::gang(vec![
        role("launcher", 1, "cpu 8"),
        role("worker", 2, "cpu 4, gpu 8"),
    ]);
    submit(&mut world, "mpi", hard(1, demand));
    assert_snapshot!(world.decide(), @"release mpi #1 a(n010 n011 n010)");
}

#[test]
fn a_role_without_devices_does_not_move_a_gang_out_of_its_rack() {
    let mut world = world();
    racked(&mut world, "a", 1, 2, 2);
    // It is the better fit if racks do not count.
    world.apply(foreign("a", "n000", "gpu 8"));
    let demand = crate::world::gang(vec![
        role("launcher", 1, "cpu 8"),
        role("worker", 2, "cpu 4, gpu 8"),
    ]);
    submit(&mut world, "mpi", demand);
    assert_snapshot!(world.decide(), @"release mpi #1 a(n010 n011 n010)");
}

#[test]
fn a_gang_without_devices_avoids_racks_with_devices() {
    let mut world = world();
    racked(&mut world, "a", 1, 1, 2);
    for name in ["plain0", "plain1"] {
        world.apply(Event::NodeUpserted(NodeFact {
            domains: vec!["z0".to_owned(), "r9".to_owned()],
            ..node("a", name, "cpu 64")
        }));
    }
    submit(&mut world, "gang", pods(2, "cpu 40"));
    assert_snapshot!(world.decide(), @"release gang #1 a(plain0 plain1)");
}

#[test]
fn domains_follow_their_nodes() {
    let mut world = world();
    racked(&mut world, "a", 1, 2, 2);
    world.apply(Event::NodeUpserted(NodeFact {
        domains: vec!["z0".to_owned(), "r0".to_owned()],
        ..node("a", "n010", "cpu 64, gpu 8")
    }));
    world.apply(Event::NodeGone(
        ClusterName::from("a"),
        engine::NodeName::from("n011"),
    ));
    submit(&mut world, "three", hard(1, pods(3, "gpu 8")));
    assert_snapshot!(world.decide(), @"release three #1 a(n000 n001 n010)");
}

#[test]
fn the_only_rack_of_many_that_a_gang_fits_into_is_found() {
    let mut world = world();
    racked(&mut world, "a", 1, 10, 2);
    for rack in 0..9 {
        world.apply(foreign("a", &format!("n0{rack}0"), "gpu 8"));
    }
    submit(&mut world, "two", pods(2, "gpu 8"));
    assert_snapshot!(world.decide(), @"release two #1 a(n090 n091)");
}

#[test]
fn racks_stay_whole_by_their_devices() {
    let mut world = world();
    racked(&mut world, "a", 1, 2, 3);
    world.apply(foreign("a", "n010", "gpu 8"));
    let demand = crate::world::gang(vec![
        role("launcher", 1, "cpu 8"),
        role("worker", 2, "cpu 4, gpu 8"),
    ]);
    submit(&mut world, "mpi", hard(1, demand));
    assert_snapshot!(world.decide(), @"release mpi #1 a(n011 n012 n011)");
}

#[test]
fn a_node_without_a_rack_is_a_domain() {
    let mut world = world();
    racked(&mut world, "a", 1, 2, 2);
    for name in ["n000", "n001", "n010", "n011"] {
        world.apply(foreign("a", name, "gpu 5"));
    }
    world.apply(Event::NodeUpserted(node("a", "lone", "cpu 64, gpu 8")));
    submit(&mut world, "pair", hard(1, pods(2, "gpu 4")));
    assert_snapshot!(world.decide(), @"release pair #1 a(lone×2)");
}

#[test]
fn a_single_pod_is_placed_by_best_fit_whatever_the_racks() {
    let mut world = world();
    racked(&mut world, "a", 1, 2, 2);
    world.apply(foreign("a", "n000", "gpu 4"));
    world.apply(foreign("a", "n010", "gpu 8"));
    submit(&mut world, "single", pods(1, "gpu 4"));
    assert_snapshot!(world.decide(), @"release single #1 a(n000)");
}

#[test]
fn within_a_rack_pods_without_devices_avoid_nodes_with_devices() {
    let mut world = world();
    racked(&mut world, "a", 1, 1, 2);
    world.apply(Event::NodeUpserted(NodeFact {
        domains: vec!["z0".to_owned(), "r0".to_owned()],
        ..node("a", "plain", "cpu 64")
    }));
    submit(&mut world, "gang", hard(1, pods(2, "cpu 2")));
    assert_snapshot!(world.decide(), @"release gang #1 a(plain×2)");
}

#[test]
fn a_preempting_gang_is_placed_in_one_rack() {
    let mut world = world();
    racked(&mut world, "a", 1, 2, 2);
    world.policy(preempting("q", 0));
    // A job in the first rack may be evicted, and one in the second may not.
    for (name, class) in [("n0", "low"), ("n1", "low"), ("n2", "low"), ("n3", "high")] {
        let job = world.job(name, "q", pods(1, "gpu 8")).priority(class);
        world.submit(job);
        world.decide();
        world.run(name);
    }
    let job = world.job("pair", "q", pods(2, "gpu 8")).priority("normal");
    world.submit(job);
    assert_eq!(world.settle(4), ["n0 for pair", "n1 for pair"]);
}

/// Of two racks that a job needs whole, each with a node in use, that of the preferred cluster is reserved.
#[test]
fn the_rack_of_the_preferred_cluster_is_reserved() {
    for (preferred, other) in [("a", "b"), ("b", "a")] {
        let mut world = world();
        for name in ["a", "b"] {
            racked(&mut world, name, 1, 1, 2);
            submit(&mut world, &format!("old-{name}"), pods(1, "gpu 8"));
            world.decide();
            world.run(&format!("old-{name}"));
            // The next one goes to the other cluster.
            world.apply(foreign(name, "n001", "gpu 8"));
        }
        world.policy(PolicyFact {
            preferred_clusters: vec![ClusterName::from(preferred)],
            ..policy("q")
        });
        for name in ["a", "b"] {
            let uid = Uid::from(format!("foreign-{name}-n001").as_str());
            world.apply(Event::PodGone(ClusterName::from(name), uid));
        }
        submit(&mut world, "head", hard(1, pods(2, "gpu 8")));
        submit(&mut world, "small", pods(1, "gpu 8"));
        assert_eq!(world.decide(), format!("release small #1 {other}(n001)"));
    }
}

/// The gang waits for a rack, one node of which goes: it waits for another one, and gets it.
#[test]
fn a_reservation_leaves_a_rack_that_has_lost_a_node() {
    let mut world = world();
    racked(&mut world, "a", 1, 2, 2);
    for (name, seconds) in [("one", 100), ("two", 200), ("three", 300), ("four", 400)] {
        let job = world.job(name, "q", pods(1, "gpu 8")).lasts(seconds);
        world.submit(job);
        world.decide();
        world.run(name);
    }
    let on = |world: &World, nodes: [&str; 2]| {
        let reserved = serde_json::to_value(world.engine.snapshot()).unwrap();
        let reserved = reserved["reservations"][0]["nodes"].to_string();
        nodes.iter().all(|node| reserved.contains(node))
    };
    submit(&mut world, "gang", hard(1, pods(2, "gpu 8")));
    assert_eq!(world.decide(), "");
    assert!(on(&world, ["n000", "n001"]));
    world.apply(Event::NodeUpserted(NodeFact {
        domains: vec!["z0".to_owned(), "r0".to_owned()],
        usable: false,
        ..node("a", "n001", "cpu 64, gpu 8")
    }));
    assert_eq!(world.decide(), "");
    assert!(on(&world, ["n010", "n011"]));
    // What is left of the first rack is for others.
    world.finish("one");
    submit(&mut world, "other", pods(1, "gpu 8"));
    assert_eq!(world.decide(), "release other #1 a(n000)");
    world.finish("three");
    world.finish("four");
    assert_eq!(world.decide(), "release gang #1 a(n010 n011)");
}
