//! Placement of jobs.

use crate::world::{World, cluster, foreign, gang, key, node, pods, policy, queue, res, role};
use engine::facts::{ClusterFact, ClusterPlacement, Demand, NodeFact, Role};
use engine::matching::{
    ClusterRule, NodeTerm, Operator, Requirement, Taint, TaintEffect, Toleration,
};
use engine::{ClusterName, Event};
use insta::assert_snapshot;
use std::collections::BTreeSet;

pub fn world() -> World {
    let mut world = World::new();
    world.queue(queue("q"));
    world
}

pub fn taint(key: &str) -> Taint {
    Taint {
        key: key.to_owned(),
        value: String::new(),
        effect: TaintEffect::NoSchedule,
    }
}

fn tolerates(key: &str) -> Toleration {
    Toleration {
        key: key.to_owned(),
        value: None,
        effect: None,
    }
}

pub fn on_label(key: &str, value: &str) -> Requirement {
    Requirement {
        key: key.to_owned(),
        operator: Operator::In,
        values: vec![value.to_owned()],
    }
}

fn at(placement: ClusterPlacement, demand: Demand) -> Demand {
    Demand {
        placement,
        ..demand
    }
}

fn named(name: &str) -> ClusterRule {
    ClusterRule {
        names: Some(BTreeSet::from([ClusterName::from(name)])),
        ..ClusterRule::default()
    }
}

fn submit(world: &mut World, name: &str, demand: Demand) {
    let job = world.job(name, "q", demand);
    world.submit(job);
}

#[test]
fn best_fit_leaves_whole_nodes_whole() {
    let mut world = world();
    world.cluster("a", 3, "cpu 64, gpu 8");
    world.apply(foreign("a", "n1", "gpu 5"));
    world.add("small", "q", 3, "gpu 1");
    world.add("one-more", "q", 1, "gpu 1");
    world.add("whole", "q", 1, "gpu 8");
    assert_snapshot!(world.decide(), @r"
    release small #1 a(n1×3)
    release one-more #1 a(n0)
    release whole #1 a(n2)
    ");
}

#[test]
fn a_gang_is_placed_in_one_cluster_or_waits() {
    let mut world = world();
    world
        .cluster("a", 3, "cpu 64, gpu 8")
        .cluster("b", 2, "cpu 64, gpu 8");
    world.add("big", "q", 4, "gpu 8");
    world.add("fits", "q", 3, "gpu 8");
    assert_snapshot!(world.decide(), @"release fits #1 a(n0 n1 n2)");
    assert_snapshot!(world.why("big"), @"#1 ExceedsFleet: needs 4 pods × nvidia.com/gpu 8; b has room for 2 of 4, a has room for 0 of 4; it would not fit even if they were empty");
}

#[test]
fn the_least_fragmented_cluster_is_used_then_the_first_by_name() {
    let mut world = world();
    world
        .cluster("a", 2, "cpu 64, gpu 8")
        .cluster("b", 2, "cpu 64, gpu 8");
    world.apply(foreign("b", "n1", "gpu 4"));
    world.add("four", "q", 1, "gpu 4");
    world.add("eight", "q", 1, "gpu 8");
    assert_snapshot!(world.decide(), @r"
    release four #1 b(n1)
    release eight #1 a(n0)
    ");
}

#[test]
fn preferred_clusters_are_used_first() {
    let mut world = world();
    world
        .cluster("a", 2, "cpu 64, gpu 8")
        .cluster("b", 1, "cpu 64, gpu 8");
    let mut prefers = policy("q");
    prefers.preferred_clusters = vec![ClusterName::from("b")];
    world.policy(prefers);
    world.add("one", "q", 1, "gpu 8");
    world.add("two", "q", 1, "gpu 8");
    assert_snapshot!(world.decide(), @r"
    release one #1 b(n0)
    release two #1 a(n0)
    ");
}

#[test]
fn pods_without_devices_avoid_nodes_with_devices() {
    let mut world = world();
    world.cluster("a", 1, "cpu 64, gpu 8");
    world.apply(Event::NodeUpserted(node("a", "plain", "cpu 4")));
    world.add("one", "q", 2, "cpu 2");
    world.add("two", "q", 2, "cpu 2");
    assert_snapshot!(world.decide(), @r"
    release one #1 a(plain×2)
    release two #1 a(n0×2)
    ");
}

#[test]
fn every_resource_of_every_role_counts() {
    let mut world = world();
    world.cluster("a", 2, "cpu 16, memory 64Gi, gpu 8");
    let demand = |cpu: &str| {
        gang(vec![
            role("ps", 2, cpu),
            role("worker", 2, "cpu 8, memory 60Gi, gpu 8"),
        ])
    };
    submit(&mut world, "too-much", demand("cpu 9"));
    submit(&mut world, "fits", demand("cpu 8"));
    assert_snapshot!(world.decide(), @"release fits #1 a(n0 n1 n0 n1)");
    assert_snapshot!(world.why("too-much"), @"#1 ExceedsFleet: needs 2 ps pods × cpu 9 and 2 worker pods × nvidia.com/gpu 8; a has room for 0 of 2 worker pods; it would not fit even if they were empty");
}

#[test]
fn pod_slots_are_a_resource() {
    let mut world = world();
    world.apply(Event::ClusterUpserted(cluster("a")));
    let mut tiny = node("a", "tiny", "cpu 64");
    tiny.allocatable = res("cpu 64, pods 2");
    world.apply(Event::NodeUpserted(tiny));
    world.add("three", "q", 3, "cpu 1");
    world.add("two", "q", 2, "cpu 1");
    assert_snapshot!(world.decide(), @"release two #1 a(tiny×2)");
}

#[test]
fn picky_roles_are_placed_first() {
    let mut world = world();
    world.cluster("a", 2, "cpu 64, gpu 8");
    let picky = Role {
        node_terms: vec![NodeTerm {
            labels: vec![on_label("host", "n0")],
            fields: Vec::new(),
        }],
        ..role("picky", 1, "gpu 8")
    };
    submit(
        &mut world,
        "job",
        gang(vec![role("any", 1, "gpu 8"), picky]),
    );
    assert_snapshot!(world.decide(), @"release job #1 a(n0 n1)");
}

#[test]
fn taints_cordons_and_terms_keep_pods_out() {
    let mut world = world();
    world.cluster("a", 1, "cpu 64, gpu 8");
    world.apply(Event::NodeUpserted(NodeFact {
        taints: vec![taint("dedicated")],
        domains: Vec::new(),
        ..node("a", "n0", "cpu 64, gpu 8")
    }));
    world.apply(Event::NodeUpserted(NodeFact {
        usable: false,
        ..node("a", "n1", "cpu 64, gpu 8")
    }));
    world.add("plain", "q", 1, "gpu 8");
    world.decide();
    assert_snapshot!(world.why("plain"), @"#1 ExceedsFleet: needs 1 pod × nvidia.com/gpu 8; a has no usable node that its pods may run on; it would not fit even if they were empty");
    let tolerant = Role {
        tolerations: vec![tolerates("dedicated")],
        ..role("worker", 1, "gpu 8")
    };
    submit(&mut world, "tolerant", gang(vec![tolerant]));
    assert_snapshot!(world.decide(), @"release tolerant #1 a(n0)");
    world.apply(Event::NodeUpserted(node("a", "n1", "cpu 64, gpu 8")));
    assert_snapshot!(world.decide(), @"release plain #1 a(n1)");
}

#[test]
fn clusters_are_filtered_by_group_taint_and_api() {
    let mut world = world();
    for name in ["a", "b", "c", "d", "e"] {
        world.cluster(name, 1, "cpu 64, gpu 8");
    }
    let change = |world: &mut World, name: &str, change: fn(&mut ClusterFact)| {
        let mut fact = cluster(name);
        change(&mut fact);
        world.apply(Event::ClusterUpserted(fact));
    };
    change(&mut world, "a", |fact| fact.taints = vec![taint("closed")]);
    change(&mut world, "b", |fact| fact.apis = Some(BTreeSet::new()));
    change(&mut world, "c", |fact| {
        fact.usable = false;
        fact.unusable_because = "not Ready for 40 s".to_owned();
    });
    change(&mut world, "d", |fact| fact.apis = None);
    let placement = ClusterPlacement {
        api: "batch/v1/Job".to_owned(),
        groups: ["a", "b", "c", "d"].into_iter().map(named).collect(),
        ..ClusterPlacement::default()
    };
    submit(
        &mut world,
        "nowhere",
        at(placement.clone(), pods(1, "gpu 8")),
    );
    let tolerant = ClusterPlacement {
        tolerations: vec![tolerates("closed")],
        ..placement.clone()
    };
    submit(&mut world, "tolerant", at(tolerant, pods(1, "gpu 8")));
    let anywhere = ClusterPlacement {
        groups: Vec::new(),
        ..placement
    };
    submit(&mut world, "anywhere", at(anywhere, pods(1, "gpu 8")));
    assert_snapshot!(world.decide(), @r"
    release tolerant #1 a(n0)
    release anywhere #1 e(n0)
    ");
    assert_snapshot!(world.why("nowhere"), @"#1 NoEligibleCluster: has no cluster to go to: a: its taint closed is not tolerated, b: it does not serve batch/v1/Job, c: not Ready for 40 s, d: what it serves is not known yet, and 1 more");
}

#[test]
fn groups_of_clusters_are_tried_in_order() {
    let mut world = world();
    world
        .cluster("a", 1, "cpu 64, gpu 8")
        .cluster("b", 1, "cpu 64, gpu 8");
    let placement = ClusterPlacement {
        groups: vec![named("b"), named("a")],
        ..ClusterPlacement::default()
    };
    for name in ["one", "two"] {
        submit(&mut world, name, at(placement.clone(), pods(1, "gpu 8")));
    }
    assert_snapshot!(world.decide(), @r"
    release one #1 b(n0)
    release two #1 a(n0)
    ");
}

#[test]
fn one_class_is_used_if_it_suffices() {
    let mut world = world();
    world.cluster("a", 2, "cpu 64, gpu 8");
    for index in 2..4 {
        world.apply(Event::NodeUpserted(NodeFact {
            class: engine::PoolClass::from("other"),
            ..node("a", &format!("n{index}"), "cpu 64, gpu 8")
        }));
    }
    world.add("one", "q", 1, "gpu 8");
    world.add("two", "q", 2, "gpu 8");
    world.decide();
    let classes = |name: &str| {
        let job = world.engine.job(&key(name)).unwrap();
        let charge = &job.admission.unwrap().shares[0].charge;
        charge
            .iter()
            .map(|(class, r)| format!("{class}: {r}"))
            .collect::<Vec<_>>()
            .join("; ")
    };
    assert_snapshot!(classes("one"), @"gpu: nvidia.com/gpu 8, pods 1");
    assert_snapshot!(classes("two"), @"other: nvidia.com/gpu 16, pods 2");
}

fn divisible(count: u32, request: &str) -> Demand {
    Demand {
        natively_divisible: true,
        held: engine::facts::Held::ByReplicas,
        elastic: false,
        split: engine::facts::Split::Never,
        topology: None,
        ..pods(count, request)
    }
}

#[test]
fn a_job_that_karmada_divides_is_placed_in_the_fewest_clusters() {
    let mut world = world();
    world
        .cluster("a", 2, "cpu 64, gpu 8")
        .cluster("b", 5, "cpu 64, gpu 8")
        .cluster("c", 3, "cpu 64, gpu 8");
    submit(&mut world, "seven", divisible(7, "gpu 8"));
    assert_snapshot!(world.decide(), @"release seven #1 a(n0 n1) b(n0 n1 n2 n3 n4)");
    submit(&mut world, "nine", divisible(9, "gpu 8"));
    world.decide();
    assert_snapshot!(world.why("nine"), @"#1 NextInLine: needs 9 pods × nvidia.com/gpu 8; c has room for 3 of 9, a has room for 0 of 9, b has room for 0 of 9; it is next: what becomes free is reserved for it");
    world.run("seven");
    world.finish("seven");
    assert_snapshot!(world.decide(), @"release nine #1 a(n0) b(n0 n1 n2 n3 n4) c(n0 n1 n2)");
}

#[test]
fn spread_limits_hold() {
    let mut world = world();
    world
        .cluster("a", 2, "cpu 64, gpu 8")
        .cluster("b", 2, "cpu 64, gpu 8");
    let limits = |least, most| ClusterPlacement {
        min_clusters: least,
        data_clusters: Vec::new(),
        max_clusters: most,
        ..ClusterPlacement::default()
    };
    submit(
        &mut world,
        "one-only",
        at(limits(None, Some(1)), divisible(3, "gpu 8")),
    );
    submit(
        &mut world,
        "both",
        at(limits(Some(2), None), divisible(2, "gpu 8")),
    );
    submit(
        &mut world,
        "gang",
        at(limits(Some(2), None), pods(2, "gpu 1")),
    );
    assert_snapshot!(world.decide(), @"release both #1 a(n0) b(n0)");
    assert_snapshot!(world.why("one-only"), @"#1 ExceedsFleet: needs 3 pods × nvidia.com/gpu 8; a has room for 1 of 3, b has room for 1 of 3; it would not fit even if they were empty");
    assert_snapshot!(world.why("gang"), @"#2 NoEligibleCluster: has no cluster to go to: a: it must go to at least 2 clusters, and cannot be divided, b: it must go to at least 2 clusters, and cannot be divided");
}

fn weighed(world: &mut World, weights: &[(&str, u32)]) {
    let mut fact = policy("q");
    for (score, weight) in weights {
        fact.weights = fact.weights.with(score, *weight).unwrap();
    }
    world.policy(fact);
}

#[test]
fn requests_of_other_jobs_decide_which_capacity_is_unusable() {
    let mut world = world();
    world.cluster("a", 2, "cpu 64, gpu 8");
    world.apply(foreign("a", "n0", "gpu 2"));
    world.apply(foreign("a", "n1", "gpu 3"));
    // Best fit would use n1 and leave 3 devices there, which the requested jobs of 4 cannot use;
    // on n0 4 are left.
    for index in 0..8 {
        world.add(&format!("four-{index}"), "other", 1, "gpu 4");
    }
    world.add("two", "q", 1, "gpu 2");
    assert_snapshot!(world.decide(), @"release two #1 a(n0)");
}

#[test]
fn devices_without_free_cores_are_used_first_by_pods_that_need_none() {
    let mut world = world();
    world.cluster("a", 2, "cpu 16, gpu 8");
    world.apply(foreign("a", "n1", "cpu 14"));
    for index in 0..8 {
        world.add(&format!("usual-{index}"), "other", 1, "cpu 4, gpu 1");
    }
    world.add("lean", "q", 4, "cpu 500m, gpu 2");
    assert_snapshot!(world.decide(), @"release lean #1 a(n1×4)");
}

#[test]
fn price_data_and_spread_count_by_weight() {
    let mut world = world();
    for (name, price) in [("a", 3000), ("b", 1000), ("c", 2000)] {
        world.cluster(name, 2, "cpu 64, gpu 8");
        world.apply(Event::ClusterUpserted(ClusterFact {
            price_milli: Some(price),
            region: if name == "a" { "here" } else { "there" }.to_owned(),
            ..cluster(name)
        }));
    }
    world.add("cheapest", "q", 1, "gpu 8");
    assert_snapshot!(world.decide(), @"release cheapest #1 b(n0)");
    let near = |data: &str| ClusterPlacement {
        data_clusters: vec![ClusterName::from(data)],
        ..ClusterPlacement::default()
    };
    submit(&mut world, "at-data", at(near("a"), pods(1, "gpu 8")));
    submit(&mut world, "near-data", at(near("c"), pods(3, "gpu 4")));
    assert_snapshot!(world.decide(), @r"
    release at-data #1 a(n0)
    release near-data #1 c(n0×2 n1)
    ");
    let evenly = [("price", 0), ("fragmentation", 0), ("spread", 1)];
    weighed(&mut world, &evenly);
    world.add("evenly", "q", 1, "gpu 2");
    assert_snapshot!(world.decide(), @"release evenly #1 a(n1)");
}

#[test]
fn preferred_clusters_come_before_weighted_scores() {
    let mut world = world();
    world
        .cluster("a", 1, "cpu 64, gpu 8")
        .cluster("b", 1, "cpu 64, gpu 8");
    world.apply(Event::ClusterUpserted(ClusterFact {
        price_milli: Some(9000),
        ..cluster("b")
    }));
    world.policy(engine::facts::PolicyFact {
        preferred_clusters: vec![ClusterName::from("b")],
        ..policy("q")
    });
    world.add("job", "q", 1, "gpu 4");
    assert_snapshot!(world.decide(), @"release job #1 b(n0)");
}

#[test]
fn roles_that_compete_for_nodes_are_packed_in_another_way() {
    let mut world = world();
    world.cluster("a", 2, "cpu 16, memory 16Gi");
    // With each role at its best one after the other, the large cores are used on the node that
    // the large memory needs.
    let demand = gang(vec![
        role("cores", 2, "cpu 8, memory 1Gi"),
        role("memory", 2, "cpu 1, memory 8Gi"),
        role("both", 1, "cpu 7, memory 7Gi"),
        role("rest", 1, "cpu 6, memory 6Gi"),
    ]);
    submit(&mut world, "job", demand);
    assert_snapshot!(world.decide(), @"release job #1 a(n0 n1 n0 n1 n0 n1)");
}

#[test]
fn not_only_the_likeliest_clusters_are_tried() {
    let mut world = world();
    // Twenty clusters have devices, but only the last has cores.
    for index in 0..20 {
        let cores = if index == 19 { "cpu 64" } else { "cpu 2" };
        world.cluster(&format!("c{index:02}"), 1, &format!("{cores}, gpu 8"));
    }
    world.add("job", "q", 1, "cpu 32, gpu 8");
    assert_snapshot!(world.decide(), @"release job #1 c19(n0)");
    world.add("another", "q", 1, "cpu 32, gpu 8");
    world.decide();
    assert_snapshot!(world.why("another"), @"#1 NextInLine: needs 1 pod × cpu 32, nvidia.com/gpu 8; c00 has room for 0 of 1 (cpu: at most 2 free on a node), c01 has room for 0 of 1 (cpu: at most 2 free on a node), c02 has room for 0 of 1 (cpu: at most 2 free on a node), c03 has room for 0 of 1 (cpu: at most 2 free on a node), and 16 more; it is next: what becomes free is reserved for it");
}

#[test]
fn broken_devices_in_use_keep_no_job_without_devices_away() {
    let mut world = world();
    world.cluster("a", 1, "cpu 64, gpu 8");
    world.runs("old", "q", 1, "gpu 8");
    world.apply(Event::NodeUpserted(node("a", "n0", "cpu 64, gpu 6")));
    world.add("job", "q", 1, "cpu 8");
    assert_snapshot!(world.decide(), @"release job #1 a(n0)");
}

#[test]
fn recent_requests_survive_a_restart() {
    let mut world = world();
    world.cluster("a", 2, "cpu 64, gpu 8");
    world.apply(foreign("a", "n0", "gpu 2"));
    // The placement of a job if only its own request is remembered.
    world.apply(foreign("a", "n1", "gpu 3"));
    for index in 0..100 {
        world.add(&format!("four-{index}"), "other", 1, "gpu 4");
    }
    let mut restored =
        engine::Engine::restore(world.engine.snapshot(), engine::EngineConfig::default());
    assert_eq!(restored.snapshot(), world.engine.snapshot());
    let job = world.job("two", "q", pods(1, "gpu 2"));
    restored.apply(Event::JobUpserted(job.0.clone()));
    world.submit(job);
    assert_eq!(restored.decide(world.now), world.engine.decide(world.now));
    assert_eq!(restored.snapshot(), world.engine.snapshot());
}
