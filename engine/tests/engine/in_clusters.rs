//! Jobs whose pods request more in some clusters than by their template, or are refused in some.

use crate::elastic::elastic;
use crate::placement::world;
use crate::world::{World, key, pod, pods, res};
use engine::facts::{Demand, Split};
use engine::{ClusterName, Event};
use insta::assert_snapshot;

/// The demand with `request` for each pod in `cluster`.
fn more_in(cluster: &str, request: &str, mut demand: Demand) -> Demand {
    let cluster = ClusterName::from(cluster);
    demand.roles[0].requests_in.insert(cluster, pod(request));
    demand
}

fn submit(world: &mut World, name: &str, demand: Demand) {
    let job = world.job(name, "q", demand);
    world.submit(job);
}

/// Returns what is charged, by cluster.
fn charges(world: &World, name: &str) -> Vec<String> {
    let view = world.engine.job(&key(name)).unwrap();
    let shares = view.admission.unwrap().shares.iter();
    let shares = shares.map(|share| {
        let charge: Vec<String> = share.charge.values().map(ToString::to_string).collect();
        format!("{}: {}", share.cluster, charge.join(" + "))
    });
    shares.collect()
}

#[test]
fn a_cluster_that_adds_to_requests_holds_fewer_pods() {
    let mut world = world();
    world.cluster("a", 1, "cpu 8").cluster("b", 1, "cpu 8");
    // In `a` four fit, in `b` eight.
    submit(&mut world, "five", more_in("a", "cpu 2", pods(5, "cpu 1")));
    assert_snapshot!(world.decide(), @"release five #1 b(n0×5)");
    assert_eq!(charges(&world, "five"), ["b: cpu 5, pods 5"]);
    submit(&mut world, "four", more_in("a", "cpu 2", pods(4, "cpu 1")));
    assert_snapshot!(world.decide(), @"release four #1 a(n0×4)");
    assert_eq!(charges(&world, "four"), ["a: cpu 8, pods 4"]);
    // Nothing is left in `a`, and `b` has three.
    submit(&mut world, "more", more_in("a", "cpu 2", pods(1, "cpu 1")));
    assert_snapshot!(world.decide(), @"release more #1 b(n0)");
}

#[test]
fn a_quota_is_checked_with_the_largest_requests() {
    let mut world = World::new();
    world
        .queue(crate::world::capped("q", "cpu 8"))
        .cluster("a", 2, "cpu 16");
    for name in ["one", "two", "three"] {
        submit(&mut world, name, more_in("a", "cpu 4", pods(1, "cpu 1")));
    }
    world.settle(4);
    assert_eq!(world.allocated("q"), "cpu 8, pods 2");
    world.finish("one");
    world.settle(4);
    assert_eq!(world.allocated("q"), "cpu 8, pods 2");
}

#[test]
fn a_split_gang_is_charged_in_each_cluster_what_it_requests_there() {
    let mut world = world();
    world.cluster("a", 1, "cpu 8").cluster("b", 1, "cpu 8");
    let mut gang = more_in("a", "cpu 2", pods(12, "cpu 1"));
    gang.split = Split::Allowed;
    submit(&mut world, "gang", gang);
    assert_snapshot!(world.decide(), @"release gang #1 a(n0×4) b(n0×8)");
    let mut charges = charges(&world, "gang");
    charges.sort();
    assert_eq!(charges, ["a: cpu 8, pods 4", "b: cpu 8, pods 8"]);
}

#[test]
fn pods_take_what_was_assumed_for_them_and_shrinking_gives_it_back() {
    let mut world = world();
    world.cluster("a", 1, "cpu 8");
    let gang = |most: u32| more_in("a", "cpu 2", elastic(1, most, "cpu 1"));
    let job = world.job("gang", "q", gang(4));
    let fact = world.submit(job);
    world.decide();
    world.run("gang");
    assert_eq!(world.allocated("q"), "cpu 8, pods 4");
    world.apply(Event::JobUpserted(engine::facts::JobFact {
        demand: gang(2),
        ..fact
    }));
    world.decide();
    world.resized("gang");
    assert_eq!(world.allocated("q"), "cpu 4, pods 2");
    submit(&mut world, "next", more_in("a", "cpu 2", pods(2, "cpu 1")));
    assert_snapshot!(world.decide(), @"release next #1 a(n0×2)");
}

#[test]
fn what_a_cluster_adds_later_is_no_growth_of_a_running_job() {
    let mut world = world();
    world.cluster("a", 1, "cpu 8");
    let with = |request: &str, own: &str| more_in("a", request, pods(1, own));
    let job = world.job("job", "q", with("cpu 2", "cpu 1"));
    let fact = world.submit(job);
    world.decide();
    world.run("job");
    let edited = |world: &mut World, demand: Demand| {
        let fact = engine::facts::JobFact {
            demand,
            ..fact.clone()
        };
        world.apply(Event::JobUpserted(fact));
        let grant = world.engine.job(&key("job")).unwrap().exceeds_grant;
        (world.allocated("q"), grant)
    };
    let same = ("cpu 2, pods 1".to_owned(), false);
    assert_eq!(edited(&mut world, with("cpu 4", "cpu 1")), same);
    assert_eq!(edited(&mut world, pods(1, "cpu 1")), same);
    // An edit of the template is, by all that it adds there.
    let more = ("cpu 5, pods 1".to_owned(), true);
    assert_eq!(edited(&mut world, with("cpu 5", "cpu 4")), more);
}

#[test]
fn a_cluster_that_refuses_the_pods_is_left_out_with_its_reason() {
    let mut world = world();
    world.cluster("a", 1, "cpu 8").cluster("b", 1, "cpu 8");
    let refused = |clusters: &[&str]| {
        let mut demand = pods(1, "cpu 1");
        for cluster in clusters {
            let why = "its ResourceQuota small refuses the pods".to_owned();
            let cluster = ClusterName::from(*cluster);
            demand.placement.refused_in.insert(cluster, why);
        }
        demand
    };
    submit(&mut world, "one", refused(&["a"]));
    assert_snapshot!(world.decide(), @"release one #1 b(n0)");
    submit(&mut world, "none", refused(&["a", "b"]));
    assert_snapshot!(world.decide(), @"");
    assert_snapshot!(world.why("none"), @"#1 NoEligibleCluster: has no cluster to go to: a: its ResourceQuota small refuses the pods, b: its ResourceQuota small refuses the pods");
    assert_eq!(world.allocated("q"), res("cpu 1, pods 1").to_string());
}
