//! The packing of a gang's pods on the nodes of a cluster: what becomes unusable, and other ways
//! for roles that compete.

use crate::placement::{on_label, taint, world};
use crate::world::{World, cluster, foreign, gang, node, role};
use engine::facts::{NodeFact, Role};
use engine::matching::NodeTerm;
use engine::{Event, PoolClass};
use insta::assert_snapshot;

/// Roles that fill two nodes of 16 cores (or devices) and 16 Gi but for one of each, in one way
/// only.
fn interlocked(unit: &str) -> Vec<Role> {
    let ask = |units: u32, memory: u32| format!("{unit} {units}, memory {memory}Gi");
    vec![
        role("cores", 2, &ask(8, 1)),
        role("memory", 2, &ask(1, 8)),
        role("both", 1, &ask(7, 7)),
        role("rest", 1, &ask(6, 6)),
    ]
}

fn with_node(world: &mut World, name: &str, allocatable: &str) {
    world.apply(Event::NodeUpserted(node("a", name, allocatable)));
}

fn submit(world: &mut World, roles: Vec<Role>) -> String {
    let job = world.job("job", "q", gang(roles));
    world.submit(job);
    world.decide()
}

fn only_on(hosts: &[&str], role: Role) -> Role {
    let terms = hosts.iter().map(|host| NodeTerm {
        labels: vec![on_label("host", host)],
        fields: Vec::new(),
    });
    Role {
        node_terms: terms.collect(),
        ..role
    }
}

#[test]
fn another_packing_is_searched_only_where_each_role_may_run() {
    let mut world = world();
    world.cluster("a", 2, "cpu 16, memory 16Gi");
    with_node(&mut world, "first", "cpu 16, memory 16Gi");
    let roles = interlocked("cpu").into_iter();
    let roles = roles.map(|role| only_on(&["n0", "n1"], role)).collect();
    assert_snapshot!(submit(&mut world, roles), @"release job #1 a(n0 n1 n0 n1 n0 n1)");
}

#[test]
fn another_packing_is_searched_within_one_class_first() {
    let mut world = world();
    world.cluster("a", 2, "gpu 16, memory 16Gi");
    world.apply(Event::NodeUpserted(NodeFact {
        class: PoolClass::from("other"),
        ..node("a", "first", "gpu 16, memory 16Gi")
    }));
    let placed = submit(&mut world, interlocked("gpu"));
    assert_snapshot!(placed, @"release job #1 a(n0 n1 n0 n1 n0 n1)");
}

#[test]
fn the_first_of_different_nodes_need_not_take_the_most_pods() {
    let mut world = world();
    world.apply(Event::ClusterUpserted(cluster("a")));
    with_node(&mut world, "n0", "cpu 16, memory 16Gi");
    with_node(&mut world, "n1", "cpu 24, memory 24Gi");
    let roles = vec![
        role("cores", 3, "cpu 8, memory 1Gi"),
        role("large", 1, "cpu 7, memory 22Gi"),
        role("small", 1, "cpu 7, memory 15Gi"),
    ];
    assert_snapshot!(submit(&mut world, roles), @"release job #1 a(n0 n1×2 n1 n0)");
}

#[test]
fn many_equal_nodes_do_not_hide_other_nodes() {
    let mut world = world();
    world.cluster("a", 2, "cpu 16, memory 16Gi");
    for index in 0..70 {
        with_node(&mut world, &format!("tiny-{index:02}"), "cpu 1, memory 1Gi");
    }
    let mut roles = interlocked("cpu");
    roles.push(role("tiny", 1, "cpu 1, memory 1Gi"));
    assert_snapshot!(submit(&mut world, roles), @"release job #1 a(n0 n1 n0 n1 n0 n1 tiny-00)");
}

#[test]
fn a_role_runs_only_on_nodes_that_its_terms_select() {
    let mut world = world();
    world.cluster("a", 3, "cpu 64, gpu 8");
    let roles = vec![
        role("any", 1, "gpu 8"),
        only_on(&["n1", "n2"], role("picky", 2, "gpu 8")),
    ];
    assert_snapshot!(submit(&mut world, roles), @"release job #1 a(n1 n2 n0)");
}

/// Nodes `n0`, `n1`, … with this many free devices, where pods of four are usual.
fn free(devices: &[u32]) -> World {
    let mut world = world();
    let nodes = u32::try_from(devices.len()).unwrap();
    world.cluster("a", nodes, "cpu 64, gpu 8");
    for (index, free) in devices.iter().enumerate() {
        let used = format!("gpu {}", 8 - free);
        world.apply(foreign("a", &format!("n{index}"), &used));
    }
    for index in 0..8 {
        world.add(&format!("usual-{index}"), "other", 32, "gpu 4");
    }
    world
}

#[test]
fn pods_are_placed_where_each_makes_the_least_unusable() {
    // One pod leaves one device of the node of four; two leave one of the node of seven.
    let mut world = free(&[4, 7]);
    let placed = submit(&mut world, vec![role("worker", 2, "gpu 3")]);
    assert_snapshot!(placed, @"release job #1 a(n1×2)");
}

#[test]
fn the_last_pods_are_placed_where_they_make_the_least_unusable() {
    // Two pods fill a node of six; a single one makes the rest unusable, but not on the node of
    // seven.
    let mut world = free(&[6, 6, 7]);
    let placed = submit(&mut world, vec![role("worker", 3, "gpu 3")]);
    assert_snapshot!(placed, @"release job #1 a(n0×2 n2)");
}

#[test]
fn a_new_node_with_a_taint_takes_only_pods_that_tolerate_it() {
    let mut world = world();
    world.apply(Event::ClusterUpserted(cluster("a")));
    world.apply(Event::NodeUpserted(NodeFact {
        taints: vec![taint("dedicated")],
        ..node("a", "n0", "cpu 64, gpu 8")
    }));
    assert_snapshot!(submit(&mut world, vec![role("worker", 1, "gpu 8")]), @"");
}

#[test]
fn a_single_class_that_suffices_is_used() {
    let mut world = world();
    world.apply(Event::ClusterUpserted(cluster("a")));
    for (name, class) in [("n0", "x"), ("n1", "y"), ("n2", "z"), ("n3", "z")] {
        world.apply(Event::NodeUpserted(NodeFact {
            class: PoolClass::from(class),
            ..node("a", name, "cpu 64, gpu 8")
        }));
    }
    let placed = submit(&mut world, vec![role("worker", 2, "gpu 8")]);
    assert_snapshot!(placed, @"release job #1 a(n2 n3)");
}
