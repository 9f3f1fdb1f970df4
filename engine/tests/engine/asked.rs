//! Queries on clusters and demands besides decisions.

use crate::world::{World, cluster, node, pods};
use engine::facts::{ClusterFact, ClusterPlacement, Demand, Held, Split};
use engine::matching::{ClusterRule, Taint, TaintEffect};
use engine::{ClusterName, Event};

fn tainted(name: &str) -> ClusterFact {
    let taint = Taint {
        key: "out".to_owned(),
        value: String::new(),
        effect: TaintEffect::NoSchedule,
    };
    ClusterFact {
        taints: vec![taint],
        ..cluster(name)
    }
}

fn group(names: &[&str]) -> ClusterRule {
    let names = names.iter().map(|name| ClusterName::from(*name));
    ClusterRule {
        names: Some(names.collect()),
        ..ClusterRule::default()
    }
}

#[test]
fn objects_go_to_the_first_group_that_has_clusters_also_where_no_job_may_go() {
    let mut world = World::new();
    for name in ["a", "b", "c"] {
        world.apply(Event::ClusterUpserted(cluster(name)));
    }
    world.apply(Event::ClusterUpserted(tainted("d")));
    let eligible = |world: &World, groups: Vec<ClusterRule>| {
        let placement = ClusterPlacement {
            groups,
            ..ClusterPlacement::default()
        };
        let clusters = world.engine.fleet().clusters_for_objects(&placement);
        let names: Vec<String> = clusters.iter().map(ToString::to_string).collect();
        names.join(" ")
    };
    assert_eq!(
        eligible(&world, vec![group(&["d"]), group(&["b", "c"])]),
        "b c"
    );
    assert_eq!(eligible(&world, vec![group(&["a"]), group(&["b"])]), "a");
    assert_eq!(eligible(&world, vec![group(&["d"])]), "");
    // Muster has no view of b, which Karmada reaches.
    world.apply(Event::ClusterUpserted(ClusterFact {
        usable: false,
        unusable_because: "its nodes cannot be listed".to_owned(),
        ..cluster("b")
    }));
    assert_eq!(eligible(&world, vec![group(&["b", "c"])]), "b c");
}

#[test]
fn a_cluster_is_known_until_it_is_gone() {
    let mut world = World::new();
    let names = |world: &World| -> Vec<String> {
        world
            .engine
            .fleet()
            .cluster_names()
            .map(ToString::to_string)
            .collect()
    };
    world.apply(Event::ClusterUpserted(tainted("b")));
    world.apply(Event::ClusterUpserted(cluster("a")));
    world.apply(Event::NodeUpserted(node("c", "n0", "cpu 1")));
    assert_eq!(names(&world), ["a", "b"]);
    let known = |name: &str| world.engine.fleet().cluster(&ClusterName::from(name));
    assert!(known("b").unwrap().has_taint("out"));
    assert!(!known("b").unwrap().has_taint("in"));
    assert!(!known("a").unwrap().has_taint("out"));
    assert_eq!(known("c"), None);
    world.apply(Event::ClusterGone(ClusterName::from("b")));
    assert_eq!(names(&world), ["a"]);
}

#[test]
fn split_jobs_and_jobs_held_by_overrides_are_in_parts() {
    let asks = |split, held| {
        let demand = Demand {
            split,
            held,
            ..pods(1, "cpu 1")
        };
        (demand.in_parts(), demand.is_held())
    };
    assert_eq!(asks(Split::Never, Held::Not), (false, false));
    assert_eq!(asks(Split::Never, Held::ByReplicas), (false, true));
    assert_eq!(asks(Split::Allowed, Held::Not), (true, false));
    assert_eq!(asks(Split::Preferred, Held::Not), (true, false));
    assert_eq!(asks(Split::Never, Held::ByOverride), (true, true));
    let divisible = Demand {
        natively_divisible: true,
        ..pods(1, "cpu 1")
    };
    assert_eq!((divisible.in_parts(), divisible.is_held()), (false, true));
}

#[test]
fn queues_are_listed_by_name_with_those_that_only_have_jobs() {
    let mut world = World::new();
    for name in ["b", "a"] {
        world.queue(crate::world::queue(name));
    }
    world.add("job", "unknown", 1, "cpu 1");
    let names: Vec<String> = world.engine.queues().map(ToString::to_string).collect();
    assert_eq!(names, ["a", "b", "unknown"]);
}
