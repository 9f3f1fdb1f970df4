//! Clusters that are scored, if there are more than can be: the likely ones, by what is known
//! without a look at their nodes.

use crate::world::{World, cluster, foreign, node, pods, policy, queue};
use engine::facts::{ClusterFact, ClusterPlacement, Demand, PolicyFact};
use engine::{ClusterName, Event};

fn world(clusters: u32) -> World {
    let mut world = World::new();
    world.queue(queue("q"));
    for index in 0..clusters {
        world.cluster(&format!("c{index:02}"), 2, "cpu 64, gpu 8");
    }
    world
}

#[test]
fn the_preferred_cluster_is_found_among_many() {
    for index in 0..12 {
        let mut world = world(12);
        let preferred = format!("c{index:02}");
        world.policy(PolicyFact {
            preferred_clusters: vec![ClusterName::from(preferred.as_str())],
            ..policy("q")
        });
        world.add("job", "q", 1, "gpu 8");
        assert_eq!(world.decide(), format!("release job #1 {preferred}(n0)"));
    }
}

#[test]
fn each_of_eight_clusters_is_scored() {
    let mut world = world(8);
    for index in 0..8 {
        // In all of them a partly used node seems to suffice, but only the last has cores on it.
        let used = if index == 7 { "gpu 6" } else { "gpu 7, cpu 62" };
        world.apply(foreign(&format!("c{index:02}"), "n0", used));
    }
    world.add("job", "q", 1, "cpu 4, gpu 1");
    assert_eq!(world.decide(), "release job #1 c07(n0)");
}

/// The index of the one of twenty clusters that differs: neither among the first by name, nor with
/// the fewest assumed pods.
const OTHER: &str = "c15";

/// What makes that cluster the best, for the cluster, the job and its queue.
struct Case {
    what: &'static str,
    tell: fn(&mut World, &str),
    weights: &'static [(&'static str, u32)],
    of_queue: fn(&mut PolicyFact),
    of_job: fn(&mut ClusterPlacement),
    request: &'static str,
}

impl Case {
    /// The placement of the job in twenty clusters of two nodes with eight devices.
    fn place(&self) -> String {
        let mut world = World::new();
        for index in 0..20 {
            let name = format!("c{index:02}");
            world.cluster(&name, 2, "cpu 64, gpu 8");
            (self.tell)(&mut world, &name);
        }
        let mut fact = policy("q");
        for (score, weight) in self.weights {
            fact.weights = fact.weights.with(score, *weight).unwrap();
        }
        (self.of_queue)(&mut fact);
        world.queue(queue("q")).policy(fact);
        let mut placement = ClusterPlacement::default();
        (self.of_job)(&mut placement);
        let demand = Demand {
            placement,
            ..pods(1, self.request)
        };
        let job = world.job("job", "q", demand);
        world.submit(job);
        world.decide()
    }
}

fn priced(world: &mut World, name: &str) {
    world.apply(Event::ClusterUpserted(ClusterFact {
        price_milli: Some(if name == OTHER { 1000 } else { 2000 }),
        ..cluster(name)
    }));
}

/// A node that the job fills, in a cluster with more empty nodes than the others.
fn half_used(world: &mut World, name: &str) {
    if name == OTHER {
        world.apply(foreign(name, "n0", "gpu 4"));
        world.apply(Event::NodeUpserted(node(name, "n2", "cpu 64, gpu 8")));
    }
}

fn empty(world: &mut World, name: &str) {
    if name != OTHER {
        world.apply(foreign(name, "n1", "gpu 8"));
    }
}

#[test]
fn the_best_of_many_clusters_is_scored() {
    let plain = Case {
        what: "the cheapest",
        tell: priced,
        weights: &[],
        of_queue: |_| (),
        of_job: |_| (),
        request: "gpu 8",
    };
    let cases = [
        Case {
            what: "the one that the queue prefers",
            tell: |_, _| (),
            of_queue: |policy| policy.preferred_clusters = vec![ClusterName::from(OTHER)],
            ..plain
        },
        Case {
            what: "the one that has its data",
            tell: |_, _| (),
            of_job: |placement| placement.data_clusters = vec![ClusterName::from(OTHER)],
            ..plain
        },
        Case {
            what: "the emptiest",
            tell: empty,
            weights: &[("fragmentation", 0), ("spread", 1)],
            ..plain
        },
        Case {
            what: "the one with a node that it fills",
            tell: half_used,
            request: "gpu 4",
            ..plain
        },
        Case {
            what: "the same, whatever that weighs",
            tell: half_used,
            weights: &[("fragmentation", 0)],
            request: "gpu 4",
            ..plain
        },
        plain,
    ];
    for case in cases {
        let at = format!("release job #1 {OTHER}(n0)");
        assert_eq!(case.place(), at, "{}", case.what);
    }
}
