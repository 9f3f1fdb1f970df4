//! What a job's policy wishes: groups of clusters to spread over, and weights of clusters.

use crate::world::{World, cluster, pods, queue};
use engine::facts::{
    ClusterFact, ClusterPlacement, ClusterWeight, Demand, Division, GroupBy, GroupSpread,
};
use engine::matching::ClusterRule;
use engine::{ClusterName, Event};
use insta::assert_snapshot;
use std::collections::BTreeSet;

/// Clusters with so many nodes of eight GPUs, each in a region.
fn world(clusters: &[(&str, u32, &str)]) -> World {
    let mut world = World::new();
    world.queue(queue("q"));
    for (name, nodes, region) in clusters {
        world.cluster(name, *nodes, "cpu 64, gpu 8");
        world.apply(Event::ClusterUpserted(ClusterFact {
            region: (*region).to_owned(),
            ..cluster(name)
        }));
    }
    world
}

/// So many pods of a whole node each, which Karmada may divide.
fn divided(count: u32, placement: ClusterPlacement) -> Demand {
    Demand {
        natively_divisible: true,
        placement,
        ..pods(count, "gpu 8")
    }
}

fn regions(min: u32, max: Option<u32>) -> ClusterPlacement {
    ClusterPlacement {
        min_clusters: Some(min),
        spread: vec![GroupSpread {
            by: GroupBy::Region,
            min,
            max,
        }],
        ..ClusterPlacement::default()
    }
}

fn weighed(weights: &[(&str, u64)]) -> ClusterPlacement {
    let weights = weights.iter().map(|(name, weight)| ClusterWeight {
        clusters: ClusterRule {
            names: Some(BTreeSet::from([ClusterName::from(*name)])),
            ..ClusterRule::default()
        },
        weight: *weight,
    });
    ClusterPlacement {
        division: Division::ByWeight(weights.collect()),
        ..ClusterPlacement::default()
    }
}

fn submit(world: &mut World, name: &str, demand: Demand) {
    let job = world.job(name, "q", demand);
    world.submit(job);
}

#[test]
fn so_many_regions_are_used_though_fewer_have_the_capacity() {
    let mut world = world(&[("a", 3, "eu"), ("b", 3, "eu"), ("c", 1, "us")]);
    submit(&mut world, "two", divided(2, regions(2, None)));
    submit(&mut world, "three", divided(3, regions(3, None)));
    assert_snapshot!(world.decide(), @"release two #1 a(n0) c(n0)");
    assert_snapshot!(world.why("three"), @"#1 ExceedsFleet: needs 3 pods × nvidia.com/gpu 8; a has room for 2 of 3; its policy spreads it over at least 3 by region; it would not fit even if they were empty");
}

#[test]
fn clusters_of_one_region_take_what_none_of_them_does() {
    let mut world = world(&[("a", 3, "eu"), ("b", 2, "us"), ("c", 2, "us"), ("d", 9, "")]);
    submit(&mut world, "four", divided(4, regions(1, Some(1))));
    submit(&mut world, "five", divided(5, regions(1, Some(1))));
    assert_snapshot!(world.decide(), @"release four #1 b(n0 n1) c(n0 n1)");
    assert_snapshot!(world.why("five"), @"#1 ExceedsFleet: needs 5 pods × nvidia.com/gpu 8; a has room for 3 of 5, b has room for 0 of 5, c has room for 0 of 5; its policy spreads it over 1 by region; it would not fit even if they were empty");
}

#[test]
fn weights_are_followed_as_far_as_there_is_capacity() {
    let mut world = world(&[("a", 4, ""), ("b", 4, ""), ("c", 4, "")]);
    submit(
        &mut world,
        "even",
        divided(3, weighed(&[("a", 1), ("b", 2)])),
    );
    assert_snapshot!(world.decide(), @"release even #1 a(n0) b(n0 n1)");
    // b has two nodes left: the others share the rest.
    submit(
        &mut world,
        "full",
        divided(6, weighed(&[("a", 1), ("b", 3), ("c", 1)])),
    );
    assert_snapshot!(world.decide(), @"release full #1 a(n1 n2) b(n2 n3) c(n0 n1)");
    // The clusters with weights have too little capacity: it goes where it fits.
    submit(
        &mut world,
        "wish",
        divided(2, weighed(&[("a", 1), ("b", 1)])),
    );
    assert_snapshot!(world.decide(), @"release wish #1 c(n2 n3)");
}

#[test]
fn capacity_is_a_weight() {
    let mut world = world(&[("a", 2, ""), ("b", 4, ""), ("c", 6, "")]);
    let placement = ClusterPlacement {
        division: Division::ByCapacity,
        ..ClusterPlacement::default()
    };
    submit(&mut world, "six", divided(6, placement.clone()));
    assert_snapshot!(world.decide(), @"release six #1 a(n0) b(n0 n1) c(n0 n1 n2)");
    // A gang that Karmada does not divide goes whole.
    let whole = Demand {
        natively_divisible: false,
        ..divided(2, placement)
    };
    submit(&mut world, "whole", whole);
    assert_snapshot!(world.decide(), @"release whole #1 b(n2 n3)");
}
