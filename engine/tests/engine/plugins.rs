//! Filters and scores that a queue's policy chooses.

use crate::world::{World, cluster, foreign, pods, policy, queue};
use engine::facts::{ClusterFact, ClusterPlacement, Demand, Filters, PlacementWeights, Split};
use engine::{ClusterName, Event};
use insta::assert_snapshot;

/// Clusters of two nodes with eight GPUs each, and other facts of each.
fn world(tell: impl Fn(&str, &mut ClusterFact)) -> World {
    let mut world = World::new();
    world.queue(queue("q"));
    for name in ["a", "b", "c"] {
        world.cluster(name, 2, "cpu 64, gpu 8");
        let mut fact = cluster(name);
        tell(name, &mut fact);
        world.apply(Event::ClusterUpserted(fact));
    }
    world
}

fn at(placement: ClusterPlacement, demand: Demand) -> Demand {
    Demand {
        placement,
        ..demand
    }
}

fn submit(world: &mut World, name: &str, demand: Demand) {
    let job = world.job(name, "q", demand);
    world.submit(job);
}

fn near(data: &str, filters: &[&str]) -> ClusterPlacement {
    ClusterPlacement {
        api: "batch/v1/Job".to_owned(),
        data_clusters: vec![ClusterName::from(data)],
        filters: Filters::named(filters.iter().copied()).unwrap(),
        ..ClusterPlacement::default()
    }
}

fn regions(name: &str, fact: &mut ClusterFact) {
    let region = if name == "c" { "south" } else { "north" };
    fact.region = region.to_owned();
}

#[test]
fn the_data_region_filter_keeps_jobs_in_the_region_of_their_data() {
    let mut world = world(regions);
    let here = |filters: &[&str]| at(near("c", filters), pods(1, "gpu 8"));
    for job in ["first", "second", "third"] {
        submit(&mut world, job, here(&["DataRegion"]));
    }
    // A score would have chosen another cluster for the third one.
    submit(&mut world, "free", here(&[]));
    assert_snapshot!(world.decide(), @r"
    release first #1 c(n0)
    release second #1 c(n1)
    release free #1 a(n0)
    ");
    assert_snapshot!(world.why("third"), @"#1 NextInLine: needs 1 pod × nvidia.com/gpu 8; c has room for 0 of 1; it is next: what becomes free is reserved for it");
}

#[test]
fn the_api_filter_applies_unless_the_policy_names_other_filters() {
    let mut world = world(|_, fact| fact.apis = Some(["apps/v1/Deployment".to_owned()].into()));
    let unset = ClusterPlacement {
        filters: Filters::default(),
        ..near("a", &[])
    };
    submit(&mut world, "unset", at(unset, pods(1, "gpu 8")));
    submit(&mut world, "none", at(near("a", &[]), pods(1, "gpu 8")));
    assert_snapshot!(world.decide(), @"release none #1 a(n0)");
    assert_snapshot!(world.why("unset"), @"#1 NoEligibleCluster: has no cluster to go to: a: it does not serve batch/v1/Job, b: it does not serve batch/v1/Job, c: it does not serve batch/v1/Job");
}

#[test]
fn parts_are_placed_in_near_clusters() {
    let mut world = world(|name, fact| {
        // By their zones a and b are near each other, by the stated times a and c are.
        fact.zones = vec![if name == "c" { "z2" } else { "z1" }.to_owned()];
        let times: &[(&str, u64)] = match name {
            "a" => &[("b", 40_000), ("c", 400)],
            "c" => &[("b", 60_000)],
            _ => &[],
        };
        let times = times.iter();
        fact.network = times
            .map(|(to, time)| (ClusterName::from(*to), *time))
            .collect();
    });
    let demand = Demand {
        split: Split::Allowed,
        ..pods(4, "gpu 8")
    };
    submit(&mut world, "near", demand);
    assert_snapshot!(world.decide(), @"release near #1 a(n0 n1) c(n0 n1)");
}

#[test]
fn the_distance_to_the_data_is_the_stated_time() {
    let mut world = world(|name, fact| {
        if name == "a" {
            fact.network = [("b", 90_000), ("c", 900)]
                .map(|(to, time)| (ClusterName::from(to), time))
                .into();
        }
    });
    world.policy(engine::facts::PolicyFact {
        weights: PlacementWeights::default().with("spread", 1).unwrap(),
        ..policy("q")
    });
    let data = |name| ClusterPlacement {
        data_clusters: vec![ClusterName::from(name)],
        ..ClusterPlacement::default()
    };
    for job in ["one", "two", "three"] {
        submit(&mut world, job, at(data("a"), pods(1, "gpu 8")));
    }
    assert_snapshot!(world.decide(), @r"
    release one #1 a(n0)
    release two #1 c(n0)
    release three #1 a(n1)
    ");
}

#[test]
fn data_in_a_cluster_without_a_region_stays_in_the_cluster() {
    let mut world = world(|name, fact| {
        if name == "b" {
            fact.region = "north".to_owned();
        }
    });
    world.apply(foreign("c", "n0", "gpu 8"));
    for job in ["first", "second"] {
        submit(
            &mut world,
            job,
            at(near("c", &["DataRegion"]), pods(1, "gpu 8")),
        );
    }
    assert_snapshot!(world.decide(), @"release first #1 c(n1)");
    submit(
        &mut world,
        "elsewhere",
        at(near("gone", &["DataRegion"]), pods(1, "gpu 8")),
    );
    world.apply(Event::ClusterGone(ClusterName::from("c")));
    world.decide();
    let unknown = "#1 NoEligibleCluster: has no cluster to go to: a: no cluster that holds the job's data is known with its region, b: no cluster that holds the job's data is known with its region";
    for job in ["second", "elsewhere"] {
        assert_eq!(world.why(job)[2..], unknown[2..], "{job}");
    }
}

#[test]
fn the_data_region_filter_reports_the_regions_of_the_data() {
    let mut world = world(|name, fact| {
        let region = ["", "north", "south"][usize::from(name.as_bytes()[0] - b'a')];
        region.clone_into(&mut fact.region);
        fact.usable = name == "b";
        "not Ready".clone_into(&mut fact.unusable_because);
    });
    let placement = ClusterPlacement {
        data_clusters: ["a", "c"].map(ClusterName::from).into(),
        ..near("a", &["DataRegion"])
    };
    submit(&mut world, "job", at(placement, pods(1, "gpu 8")));
    world.decide();
    assert_snapshot!(world.why("job"), @r#"#1 NoEligibleCluster: has no cluster to go to: a: not Ready, b: it is in region "north", and the job's data in south, c: not Ready"#);
}

#[test]
fn the_spread_score_compares_the_used_part_of_clusters() {
    let mut world = world(|_, _| ());
    world.cluster("b", 4, "cpu 64, gpu 8");
    weighed(&mut world, &[("fragmentation", 0), ("spread", 1)]);
    // Half of a and of c is in use, and a quarter of b.
    world.apply(foreign("a", "n0", "gpu 8"));
    world.apply(foreign("b", "n0", "gpu 8"));
    world.apply(foreign("c", "n0", "gpu 8"));
    submit(&mut world, "job", pods(1, "gpu 8"));
    assert_snapshot!(world.decide(), @"release job #1 b(n1)");
}

fn weighed(world: &mut World, weights: &[(&str, u32)]) {
    let weights = weights.iter();
    let weights = weights.fold(PlacementWeights::default(), |all, (name, weight)| {
        all.with(name, *weight).unwrap()
    });
    world.policy(engine::facts::PolicyFact {
        weights,
        ..policy("q")
    });
}

#[test]
fn a_score_counts_by_its_weight() {
    // a has the data and is twice as expensive as the others.
    let mut world = world(|name, fact| {
        fact.price_milli = Some(if name == "a" { 1000 } else { 500 });
    });
    for (job, price, data, to) in [("dear", 10, 1, "b"), ("far", 1, 10, "a")] {
        weighed(&mut world, &[("price", price), ("data", data)]);
        submit(&mut world, job, at(near("a", &[]), pods(1, "gpu 8")));
        assert_eq!(world.decide(), format!("release {job} #1 {to}(n0)"));
    }
}

#[test]
fn of_equal_clusters_the_one_with_the_least_left_is_used() {
    for (of_b, request) in [("gpu 2", "gpu 4"), ("cpu 32", "gpu 8")] {
        let mut world = world(|_, _| ());
        weighed(&mut world, &[("fragmentation", 0)]);
        world.apply(foreign("b", "n0", "gpu 8"));
        world.apply(foreign("b", "n1", of_b));
        submit(&mut world, "job", pods(1, request));
        assert_eq!(world.decide(), "release job #1 b(n1)", "{of_b}");
    }
}

#[test]
fn the_distance_of_clusters_counts_by_its_weight() {
    // c is near a, and ten times as expensive as the others.
    let mut world = world(|name, fact| {
        fact.price_milli = Some(if name == "c" { 1000 } else { 100 });
        let times: &[(&str, u64)] = match name {
            "a" => &[("b", 800), ("c", 400)],
            "b" => &[("c", 1000)],
            _ => &[],
        };
        let times = times.iter();
        fact.network = times
            .map(|(to, time)| (ClusterName::from(*to), *time))
            .collect();
    });
    for (job, network, to) in [("far", 1, "b"), ("near", 10, "c")] {
        weighed(&mut world, &[("network", network), ("price", 5)]);
        let demand = Demand {
            split: Split::Allowed,
            ..pods(4, "gpu 8")
        };
        submit(&mut world, job, demand);
        let decided = world.decide();
        assert_eq!(decided, format!("release {job} #1 a(n0 n1) {to}(n0 n1)"));
        world.finish(job);
    }
}
