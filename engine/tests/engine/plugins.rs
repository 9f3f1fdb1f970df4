//! Filters and scores that a queue's policy chooses.

use crate::world::{World, cluster, pods, policy, queue};
use engine::facts::{ClusterFact, ClusterPlacement, Demand, Filters, PlacementWeights, Split};
use engine::{ClusterName, Event};
use insta::assert_snapshot;

/// Clusters of two nodes with eight GPUs each, and what else is told of each.
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
fn data_that_may_not_leave_its_region() {
    let mut world = world(regions);
    let here = |filters: &[&str]| at(near("c", filters), pods(1, "gpu 8"));
    for job in ["first", "second", "third"] {
        submit(&mut world, job, here(&["DataRegion"]));
    }
    // A score would have sent the third one elsewhere.
    submit(&mut world, "free", here(&[]));
    assert_snapshot!(world.decide(), @r"
    release first #1 c(n0)
    release second #1 c(n1)
    release free #1 a(n0)
    ");
    assert_snapshot!(world.why("third"), @"#1 Reserved: needs 1 pod × nvidia.com/gpu 8; c has room for 0 of 1; it is next: what frees is kept for it");
}

#[test]
fn what_is_served_counts_unless_the_policy_names_other_filters() {
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
fn parts_go_where_the_time_between_clusters_is_short() {
    let mut world = world(|name, fact| {
        // The zones say that a and b are near each other, what is measured that a and c are.
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
fn the_way_to_the_data_is_what_is_measured() {
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
