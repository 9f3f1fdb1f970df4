//! Which assumed pod a bound pod replaces, and which pods remain assumed.

use crate::world::{World, gang, key, node, pod, pods, queue, res, role};
use engine::capacity::Capacity;
use engine::facts::{Demand, NodeFact, PodFact, PodPhase, RolePods, Share, Slot};
use engine::{ClusterName, Event, NodeName, Resources, Uid};
use std::collections::BTreeMap;

/// A share in cluster `a` with these numbers of pods by role, on these nodes if any are named.
fn share(pods: &[(&str, u32)], slots: &[(&str, &str, u32)]) -> Share {
    Share {
        cluster: ClusterName::from("a"),
        pods: Vec::from_iter(pods.iter().map(|(role, count)| RolePods {
            role: (*role).to_owned(),
            count: *count,
        })),
        charge: BTreeMap::new(),
        slots: Vec::from_iter(slots.iter().map(|(node, role, count)| Slot {
            node: NodeName::from(*node),
            role: (*role).to_owned(),
            count: *count,
        })),
    }
}

fn room() -> Capacity {
    let mut room = Capacity::new();
    for name in ["n0", "n1"] {
        room.upsert_node(node("a", name, "cpu 64, gpu 8"));
    }
    room
}

/// A pod of the job `job`, bound to a node or not.
fn comes(room: &mut Capacity, uid: &str, at: Option<&str>, request: &str) {
    room.upsert_pod(PodFact {
        cluster: ClusterName::from("a"),
        uid: Uid::from(uid),
        node: at.map(NodeName::from),
        request: pod(request),
        job: Some(key("job")),
        phase: PodPhase::Running,
        symptom: None,
        grace_s: 0,
    });
}

fn assumed(room: &Capacity) -> Resources {
    room.pools()[0].assumed.clone()
}

fn takes(room: &Capacity, demand: &Demand, pods: u32) -> bool {
    let share = share(&[("worker", pods)], &[]);
    room.check(&key("other"), demand, &share).is_ok()
}

fn server_and_workers() -> Demand {
    gang(vec![role("server", 1, "cpu 4"), role("worker", 2, "gpu 4")])
}

#[test]
fn a_bound_pod_replaces_one_of_the_role_with_its_request_else_any() {
    for (bound, left) in [
        (&[][..], "cpu 4, gpu 8, pods 3"),
        (&["cpu 4"], "gpu 8, pods 2"),
        (&["gpu 4"], "cpu 4, gpu 4, pods 2"),
        (&["gpu 4", "gpu 4"], "cpu 4, pods 1"),
        (&["gpu 4", "gpu 4", "gpu 4"], ""),
        (&["cpu 5"], "gpu 8, pods 2"),
        (&["cpu 4", "cpu 5"], "gpu 4, pods 1"),
        (&["cpu 4", "cpu 4", "cpu 4", "cpu 4"], ""),
    ] {
        let mut room = room();
        for (index, request) in bound.iter().enumerate() {
            comes(&mut room, &format!("p{index}"), Some("n0"), request);
        }
        comes(&mut room, "unbound", None, "gpu 4");
        let all = share(&[("server", 1), ("worker", 2)], &[]);
        room.assume(&key("job"), &server_and_workers(), &[all]);
        assert_eq!(assumed(&room), res(left), "{bound:?}");
    }
}

#[test]
fn a_pod_binds_the_assumed_pod_on_its_node_before_another_of_its_role() {
    let mut room = room();
    let plan = share(
        &[("worker", 2)],
        &[("n0", "worker", 1), ("n1", "worker", 1)],
    );
    room.assume(&key("job"), &pods(2, "gpu 8"), &[plan]);
    comes(&mut room, "p", Some("n1"), "gpu 8");
    // The remaining pods are assumed on the other node.
    assert_eq!(assumed(&room), pod("gpu 8"));
    assert!(!takes(&room, &pods(1, "gpu 1"), 1));
}

#[test]
fn a_pod_binds_the_assumed_pod_of_its_request_before_another_on_its_node() {
    let mut room = room();
    let plan = share(
        &[("server", 1), ("worker", 2)],
        &[("n0", "server", 1), ("n1", "worker", 2)],
    );
    room.assume(&key("job"), &server_and_workers(), &[plan]);
    comes(&mut room, "p", Some("n0"), "gpu 4");
    assert_eq!(assumed(&room), res("cpu 4, gpu 4, pods 2"));
}

#[test]
fn running_pods_leave_no_assumed_pod() {
    let mut room = room();
    comes(&mut room, "p0", Some("n0"), "gpu 2");
    let plan = share(
        &[("worker", 2)],
        &[("n0", "worker", 1), ("n1", "worker", 1)],
    );
    room.assume(&key("job"), &pods(2, "gpu 2"), &[plan]);
    // One more pod is missing, on any node.
    assert_eq!(assumed(&room), pod("gpu 2"));
    comes(&mut room, "p1", Some("n1"), "gpu 2");
    assert_eq!(assumed(&room), res(""));
    assert!(takes(&room, &pods(2, "gpu 6"), 2));
}

#[test]
fn an_assumed_pod_leaves_a_cordoned_node_on_which_another_was_bound() {
    let mut world = World::new();
    world.cluster("a", 2, "cpu 64, gpu 8").queue(queue("q"));
    world.add("job", "q", 2, "gpu 4");
    world.decide();
    let first = world.planned_pods(&key("job"))[0].clone();
    world.apply(Event::PodUpserted(first));
    world.apply(Event::NodeUpserted(NodeFact {
        usable: false,
        ..node("a", "n0", "cpu 64, gpu 8")
    }));
    world.decide();
    let pool = &world.engine.fleet().pools()[0];
    assert_eq!((&pool.assumed, &pool.used), (&pod("gpu 4"), &res("")));
}
