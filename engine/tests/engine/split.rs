//! Gangs over several clusters.

use crate::preemption::preempting;
use crate::world::{World, bound, cluster, foreign, gang, node, on, pods, policy, queue, role};
use engine::facts::{ClusterFact, Demand, PlacementWeights, PolicyFact, Split};
use engine::{ClusterName, Event};
use insta::assert_snapshot;

fn world(clusters: &[(&str, u32)]) -> World {
    let mut world = World::new();
    world.queue(queue("q"));
    for (name, nodes) in clusters {
        world.cluster(name, *nodes, "cpu 64, gpu 8");
    }
    world
}

fn split(split: Split, demand: Demand) -> Demand {
    Demand { split, ..demand }
}

fn submit(world: &mut World, name: &str, demand: Demand) {
    let job = world.job(name, "q", demand);
    world.submit(job);
}

fn told(world: &mut World, name: &str, change: impl Fn(&mut ClusterFact)) {
    let mut fact = cluster(name);
    change(&mut fact);
    world.apply(Event::ClusterUpserted(fact));
}

#[test]
fn one_cluster_is_used_if_it_suffices_else_the_fewest() {
    let mut world = world(&[("a", 2), ("b", 4), ("c", 3)]);
    submit(&mut world, "four", split(Split::Allowed, pods(4, "gpu 8")));
    submit(&mut world, "five", split(Split::Allowed, pods(5, "gpu 8")));
    submit(&mut world, "never", split(Split::Never, pods(5, "gpu 8")));
    assert_snapshot!(world.decide(), @r"
    release four #1 b(n0 n1 n2 n3)
    release five #1 a(n0 n1) c(n0 n1 n2)
    ");
    assert_snapshot!(world.why("never"), @"#1 ExceedsFleet: needs 5 pods × nvidia.com/gpu 8; a has room for 0 of 5, b has room for 0 of 5, c has room for 0 of 5; it would not fit even if they were empty");
}

#[test]
fn the_last_part_is_placed_in_the_smaller_cluster() {
    let mut world = world(&[("a", 4), ("b", 3), ("c", 1)]);
    submit(&mut world, "five", split(Split::Allowed, pods(5, "gpu 8")));
    assert_snapshot!(world.decide(), @"release five #1 a(n0 n1 n2 n3) c(n0)");
}

#[test]
fn a_launcher_goes_alone_where_workers_have_no_node() {
    let mut world = World::new();
    world
        .queue(queue("q"))
        .cluster("a", 2, "cpu 6, gpu 8")
        .cluster("b", 1, "cpu 6");
    let roles = vec![
        role("worker", 2, "cpu 4, gpu 5"),
        role("launcher", 1, "cpu 4"),
    ];
    submit(&mut world, "gang", split(Split::Allowed, gang(roles)));
    // Packing found nothing, and all three nodes were reserved for the gang for ever.
    assert_snapshot!(world.decide(), @"release gang #1 a(n0 n1) b(n0)");
}

#[test]
fn roles_go_to_clusters_that_have_something_free_not_to_those_that_are_large() {
    let mut world = World::new();
    world.queue(queue("q")).cluster("full", 2, "cpu 6, gpu 8");
    submit(&mut world, "old", pods(2, "cpu 4, gpu 4"));
    world.decide();
    world
        .cluster("a", 1, "cpu 6")
        .cluster("z", 1, "cpu 6, gpu 5");
    let roles = vec![
        role("worker", 1, "cpu 4, gpu 5"),
        role("launcher", 1, "cpu 4"),
    ];
    let mut demand = split(Split::Allowed, gang(roles));
    demand.placement.max_clusters = Some(2);
    submit(&mut world, "gang", demand);
    // Once `old` is gone, `full` takes most pods: so it was tried beside `a` only.
    assert_snapshot!(world.decide(), @"release gang #1 a(n0) z(n0)");
}

#[test]
fn roles_with_one_pod_are_in_the_first_part() {
    let mut world = world(&[("a", 2), ("b", 3)]);
    let demand = gang(vec![
        role("launcher", 1, "cpu 8"),
        role("worker", 5, "cpu 8, gpu 8"),
    ]);
    submit(&mut world, "mpi", split(Split::Allowed, demand));
    assert_snapshot!(world.decide(), @"release mpi #1 a(n0 n1) b(n0 n0 n1 n2)");
    let job = world.engine.job(&crate::world::key("mpi")).unwrap();
    let shares = job.admission.unwrap().shares.iter().map(|share| {
        let pods: Vec<String> = share
            .pods
            .iter()
            .map(|pods| format!("{} {}", pods.count, pods.role))
            .collect();
        format!("{}: {}", share.cluster, pods.join(", "))
    });
    assert_snapshot!(shares.collect::<Vec<_>>().join("; "), @"a: 2 worker; b: 1 launcher, 3 worker");
}

#[test]
fn placement_and_policy_limit_the_clusters() {
    let mut world = world(&[("a", 2), ("b", 2), ("c", 2)]);
    let mut few = policy("q");
    few.max_clusters = Some(2);
    world.policy(few);
    submit(&mut world, "five", split(Split::Allowed, pods(5, "gpu 8")));
    submit(&mut world, "four", split(Split::Allowed, pods(4, "gpu 8")));
    assert_snapshot!(world.decide(), @"release four #1 a(n0 n1) b(n0 n1)");
    assert_snapshot!(world.why("five"), @"#1 WaitingForRoom: needs 5 pods × nvidia.com/gpu 8; c has room for 2 of 5, a has room for 0 of 5, b has room for 0 of 5");
}

#[test]
fn parts_stay_within_the_bounds_of_each_cluster() {
    let mut world = world(&[("a", 4), ("b", 4), ("c", 4)]);
    let mut bounded = policy("q");
    bounded.pools = vec![
        bound("gpu", Some(&["a"]), "gpu 16"),
        bound("gpu", Some(&["b"]), "gpu 8"),
    ];
    world.policy(bounded);
    submit(&mut world, "six", split(Split::Allowed, pods(6, "gpu 8")));
    submit(&mut world, "more", split(Split::Allowed, pods(2, "gpu 8")));
    assert_snapshot!(world.decide(), @"release six #1 a(n0 n1) c(n0 n1 n2 n3)");
    assert_snapshot!(world.why("more"), @"#1 NextInLine: needs nvidia.com/gpu 16; queue q may use 16 of class gpu in a and has 16 charged: short by 16; it is next: what becomes free is reserved for it");
}

#[test]
fn parts_within_bounds_come_before_more_clusters() {
    let mut world = world(&[("a", 4), ("b", 6), ("c", 2)]);
    let mut bounded = policy("q");
    bounded.pools = vec![
        bound("gpu", Some(&["a"]), "gpu 16"),
        bound("gpu", Some(&["b"]), "gpu 16"),
    ];
    world.policy(bounded);
    // Two clusters filled as far as they can be exceed a bound, and three would not.
    submit(&mut world, "six", split(Split::Allowed, pods(6, "gpu 4")));
    let decided = world.decide();
    assert_eq!(decided.matches('(').count(), 2, "{decided}");
}

#[test]
fn parts_are_near_each_other_by_weight() {
    let mut world = world(&[("a", 2), ("b", 2), ("c", 2)]);
    told(&mut world, "a", |fact| fact.region = "north".to_owned());
    told(&mut world, "b", |fact| fact.region = "south".to_owned());
    told(&mut world, "c", |fact| fact.region = "south".to_owned());
    submit(&mut world, "near", split(Split::Allowed, pods(4, "gpu 8")));
    assert_snapshot!(world.decide(), @"release near #1 b(n0 n1) c(n0 n1)");
}

#[test]
fn a_job_that_prefers_a_split_is_split_if_less_becomes_unusable() {
    let mut world = world(&[("a", 1), ("b", 1), ("c", 2)]);
    world.policy(engine::facts::PolicyFact {
        weights: PlacementWeights::default().with("network", 0).unwrap(),
        ..policy("q")
    });
    // On a and b four devices are free that jobs of eight cannot use.
    world.apply(foreign("a", "n0", "gpu 4"));
    world.apply(foreign("b", "n0", "gpu 4"));
    world.apply(foreign("c", "n0", "gpu 2"));
    for name in ["e1", "e2", "e3"] {
        submit(&mut world, name, pods(9, "gpu 8"));
    }
    world.decide();
    submit(
        &mut world,
        "likes",
        split(Split::Preferred, pods(2, "gpu 4")),
    );
    assert_snapshot!(world.decide(), @"release likes #1 a(n0) b(n0)");
}

#[test]
fn a_large_gang_over_many_small_clusters() {
    let mut world = World::new();
    world.queue(queue("q"));
    for index in 0..40 {
        let name = format!("c{index:02}");
        world.apply(Event::ClusterUpserted(cluster(&name)));
        for at in 0..2 {
            world.apply(Event::NodeUpserted(node(
                &name,
                &format!("n{at}"),
                "gpu 8, cpu 8",
            )));
        }
    }
    submit(
        &mut world,
        "large",
        split(Split::Allowed, pods(75, "gpu 8")),
    );
    let decided = world.decided();
    let [engine::Decision::Release { admission, .. }] = decided.decisions.as_slice() else {
        panic!("{decided:?}");
    };
    assert_eq!(admission.shares.len(), 38);
    let names: Vec<&ClusterName> = admission.shares.iter().map(|s| &s.cluster).collect();
    assert!(names.is_sorted());
}

/// Clusters with two racks in each of two zones, with one node per rack and one more in the last.
fn racked(names: &[&str]) -> World {
    let mut world = world(&[]);
    for name in names {
        world.apply(Event::ClusterUpserted(cluster(name)));
        for (at, (zone, rack)) in [(0, 0), (0, 1), (1, 0), (1, 1), (1, 1)]
            .into_iter()
            .enumerate()
        {
            let mut fact = node(name, &format!("n{at}"), "cpu 64, gpu 8");
            fact.domains = vec![format!("z{zone}"), format!("r{rack}")];
            world.apply(Event::NodeUpserted(fact));
        }
    }
    world
}

fn within(tier: u32, count: u32) -> Demand {
    Demand {
        topology: Some(engine::facts::Topology {
            hard: true,
            highest_tier: tier,
        }),
        ..split(Split::Allowed, pods(count, "gpu 8"))
    }
}

#[test]
fn each_part_is_in_the_domain_with_the_most_capacity() {
    let mut world = racked(&["a", "b"]);
    submit(&mut world, "five", within(1, 5));
    submit(&mut world, "four", within(1, 4));
    assert_snapshot!(world.decide(), @"release four #1 a(n3 n4) b(n3 n4)");
    assert!(world.why("five").contains("ExceedsFleet"));
    let mut world = racked(&["a", "b"]);
    submit(&mut world, "seven", within(2, 7));
    submit(&mut world, "six", within(2, 6));
    assert_snapshot!(world.decide(), @"release six #1 a(n2 n3 n4) b(n2 n3 n4)");
    assert!(world.why("seven").contains("ExceedsFleet"));
    // Beyond the outermost tier a part may be anywhere in its cluster.
    let mut world = racked(&["a", "b"]);
    submit(&mut world, "ten", within(3, 10));
    assert_snapshot!(world.decide(), @"release ten #1 a(n0 n1 n2 n3 n4) b(n0 n1 n2 n3 n4)");
}

#[test]
fn of_equal_domains_the_first_is_used() {
    let mut world = World::new();
    world.queue(queue("q"));
    for name in ["a", "b"] {
        world.apply(Event::ClusterUpserted(cluster(name)));
        for at in 0..4 {
            let mut fact = node(name, &format!("n{at}"), "cpu 64, gpu 8");
            fact.domains = vec![format!("r{}", at / 2)];
            world.apply(Event::NodeUpserted(fact));
        }
    }
    submit(&mut world, "four", within(1, 4));
    assert_snapshot!(world.decide(), @"release four #1 a(n0 n1) b(n0 n1)");
}

#[test]
fn a_job_that_prefers_a_split_stays_whole_without_a_gain() {
    let mut world = world(&[("a", 2), ("b", 2)]);
    world.policy(engine::facts::PolicyFact {
        weights: PlacementWeights::default().with("network", 0).unwrap(),
        ..policy("q")
    });
    submit(&mut world, "job", split(Split::Preferred, pods(2, "gpu 8")));
    assert_snapshot!(world.decide(), @"release job #1 a(n0 n1)");
}

#[test]
fn scores_of_a_part_count_by_its_pods() {
    // The prices of the clusters, which of them are near each other, and the placement of four
    // pods.
    let cases: [([u64; 4], &[&str], &str); 2] = [
        // Three expensive pods and a cheap one cost more than two and two.
        (
            [1000, 100, 600, 600],
            &[],
            "release four #1 c(n0 n1) d(n0 n1)",
        ),
        // Much cheaper clusters are not worth the distance.
        (
            [100, 100, 575, 1000],
            &["c", "d"],
            "release four #1 c(n0 n1) d(n0 n1)",
        ),
    ];
    for (prices, near, placed) in cases {
        let mut world = world(&[("a", 3), ("b", 1), ("c", 2), ("d", 2)]);
        for (name, price) in ["a", "b", "c", "d"].into_iter().zip(prices) {
            told(&mut world, name, |fact| {
                fact.price_milli = Some(price);
                if near.contains(&name) {
                    fact.zones = vec!["z".to_owned()];
                }
            });
        }
        submit(&mut world, "four", split(Split::Allowed, pods(4, "gpu 8")));
        assert_eq!(world.decide(), placed, "{prices:?}");
    }
}

#[test]
fn the_free_capacity_of_each_cluster_is_reported_for_a_gang_that_must_be_split() {
    let mut world = world(&[("a", 2), ("b", 1)]);
    let mut demand = split(Split::Allowed, pods(4, "gpu 8"));
    demand.placement.min_clusters = Some(2);
    submit(&mut world, "four", demand);
    world.decide();
    assert_snapshot!(world.why("four"), @"#1 ExceedsFleet: needs 4 pods × nvidia.com/gpu 8; a has room for 2 of 4, b has room for 1 of 4; it would not fit even if they were empty");
}

#[test]
fn preferred_clusters_count_by_the_pods_in_them() {
    let mut world = world(&[("a", 3), ("b", 4), ("c", 1), ("d", 2)]);
    world.policy(engine::facts::PolicyFact {
        preferred_clusters: ["c", "a"].map(ClusterName::from).into(),
        ..policy("q")
    });
    // Three pods in the second cluster of the list and two in the last come before four in the
    // last and one in the first.
    submit(&mut world, "five", split(Split::Allowed, pods(5, "gpu 8")));
    assert_snapshot!(world.decide(), @"release five #1 a(n0 n1 n2) d(n0 n1)");
}

#[test]
fn a_gang_in_parts_preempts_in_each_of_its_clusters() {
    let mut world = world(&[("a", 1), ("b", 1)]);
    world.policy(preempting("q", 0));
    for name in ["old-a", "old-b"] {
        let job = world.job(name, "q", pods(1, "gpu 8")).priority("low");
        world.submit(job);
        world.decide();
        world.run(name);
    }
    let wide = split(Split::Allowed, pods(2, "gpu 8"));
    let job = world.job("wide", "q", wide).priority("high");
    world.submit(job);
    assert_eq!(world.settle(4), ["old-a for wide", "old-b for wide"]);
    assert_eq!(world.charged(&["wide"]), ["wide"]);
}

#[test]
fn the_reason_against_a_split_is_reported() {
    let mut world = world(&[("a", 2), ("b", 1)]);
    world.apply(crate::world::foreign("b", "n0", "gpu 8"));
    let mut demand = split(Split::Allowed, pods(2, "gpu 8"));
    demand.placement.min_clusters = Some(2);
    submit(&mut world, "both", demand);
    world.decide();
    assert_snapshot!(world.why("both"), @"#1 WaitingForRoom: needs 2 pods × nvidia.com/gpu 8; no 2 clusters have room for it together");
}

#[test]
fn a_gang_fits_into_more_clusters_than_are_searched_first() {
    let names: Vec<String> = (0..70).map(|index| format!("c{index:02}")).collect();
    let clusters: Vec<(&str, u32)> = names.iter().map(|name| (name.as_str(), 1)).collect();
    let mut world = world(&clusters);
    // It needs all clusters of the search: there are too many subsets to try.
    submit(&mut world, "wide", split(Split::Allowed, pods(66, "gpu 8")));
    world.decide();
    let job = world.engine.job(&crate::world::key("wide")).unwrap();
    assert_eq!(job.admission.unwrap().shares.len(), 66);
}

#[test]
fn a_role_with_one_pod_is_placed_where_it_fits() {
    let mut world = World::new();
    world.queue(queue("q"));
    // The launcher fits into b only, and a has the most capacity for workers.
    world.cluster("a", 3, "cpu 16, gpu 8");
    world.cluster("b", 2, "cpu 64, gpu 8");
    submit(&mut world, "old", on("b", pods(1, "gpu 8")));
    world.decide();
    let launcher = || role("launcher", 1, "cpu 32");
    let demand = gang(vec![launcher(), role("worker", 8, "cpu 1, gpu 4")]);
    submit(&mut world, "mpi", split(Split::Allowed, demand));
    assert_snapshot!(world.decide(), @"release mpi #1 a(n0×2 n1×2 n2×2) b(n0 n1×2)");
    // If it fits nowhere, there is no leading cluster.
    let demand = gang(vec![launcher(), role("worker", 2, "cpu 8, gpu 4")]);
    submit(&mut world, "none", split(Split::Allowed, demand));
    assert_snapshot!(world.decide(), @"");
}

/// More clusters than pairs can be scored: pairs with the first clusters are.
#[test]
fn a_blocked_job_is_evaluated_when_its_queue_prefers_other_clusters() {
    let mut world = World::new();
    world.queue(queue("q"));
    world.cluster("a", 1, "cpu 128, gpu 8");
    for name in ["b", "c", "d", "e", "f", "g", "h", "i", "j"] {
        world.cluster(name, 1, "cpu 16, gpu 8");
    }
    world.cluster("k", 1, "cpu 64, gpu 8");
    world.cluster("l", 1, "cpu 128, gpu 8");
    submit(&mut world, "old", on("a", pods(1, "cpu 100")));
    world.decide();
    let demand = gang(vec![
        role("launcher", 1, "cpu 48"),
        role("reader", 2, "cpu 48"),
        role("worker", 4, "cpu 1, gpu 4"),
    ]);
    let wanted = Demand {
        placement: engine::facts::ClusterPlacement {
            max_clusters: Some(2),
            ..demand.placement.clone()
        },
        ..demand
    };
    submit(&mut world, "mpi", split(Split::Allowed, wanted));
    // Only k and l together have the capacity now, and a is in all pairs that are scored.
    assert_snapshot!(world.decide(), @"");
    world.policy(PolicyFact {
        preferred_clusters: vec![ClusterName::from("k")],
        ..policy("q")
    });
    assert_snapshot!(world.decide(), @"release mpi #1 k(n0 n0×2) l(n0×2 n0×2)");
}
