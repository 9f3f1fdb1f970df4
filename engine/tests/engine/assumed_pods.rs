//! Free capacity of nodes, which pods and assumed pods use.

use crate::placement::world;
use crate::world::{World, foreign, key, node, pod, pods, res};
use engine::facts::{NodeFact, PodFact, PodPhase};
use engine::{ClusterName, Event, JobKey, NodeName, Uid};
use insta::assert_snapshot;

#[test]
fn capacity_is_neither_counted_twice_nor_leaked() {
    let mut world = world();
    world.cluster("a", 2, "cpu 64, gpu 8");
    world.add("job", "q", 2, "gpu 4");
    world.decide();
    let free = |world: &World| {
        let pool = &world.engine.fleet().pools()[0];
        format!(
            "{} free, {} assumed, {} used",
            pool.free, pool.assumed, pool.used
        )
    };
    let gpus = |world: &World| free(world).replace("cpu 128, ", "");
    assert_snapshot!(gpus(&world), @"nvidia.com/gpu 8, pods 218 free, nvidia.com/gpu 8, pods 2 assumed,  used");
    let planned = world.planned_pods(&key("job"));
    let mut unbound = planned[0].clone();
    unbound.node = None;
    world.apply(Event::PodUpserted(unbound));
    assert_snapshot!(gpus(&world), @"nvidia.com/gpu 8, pods 218 free, nvidia.com/gpu 8, pods 2 assumed,  used");
    // The member's scheduler chooses another node than planned.
    let mut moved = planned[0].clone();
    moved.node = Some(NodeName::from("n1"));
    world.apply(Event::PodUpserted(moved.clone()));
    assert_snapshot!(gpus(&world), @"nvidia.com/gpu 8, pods 218 free, nvidia.com/gpu 4, pods 1 assumed, nvidia.com/gpu 4, pods 1 used");
    world.apply(Event::PodUpserted(planned[1].clone()));
    assert_snapshot!(gpus(&world), @"nvidia.com/gpu 8, pods 218 free,  assumed, nvidia.com/gpu 8, pods 2 used");
    world.apply(Event::PodUpserted(PodFact {
        phase: PodPhase::Ended,
        ..moved.clone()
    }));
    world.apply(Event::PodGone(moved.cluster, moved.uid));
    world.wait(5).decide();
    assert_snapshot!(gpus(&world), @"nvidia.com/gpu 12, pods 219 free,  assumed, nvidia.com/gpu 4, pods 1 used");
}

#[test]
fn a_pool_reports_its_nodes_and_its_fragmentation() {
    let mut world = world();
    world.cluster("a", 4, "cpu 64, gpu 8");
    world.apply(foreign("a", "n0", "gpu 6"));
    world.apply(Event::NodeUpserted(NodeFact {
        usable: false,
        ..node("a", "n3", "cpu 64, gpu 8")
    }));
    let pools = world.engine.fleet().pools();
    let pool = &pools[0];
    assert_eq!(pools.len(), 1);
    assert_snapshot!(
        format!(
            "{}/{} {:?} {}/{} nodes, total {}, free {}, {:?}, largest {}, broken {}",
            pool.cluster, pool.class, pool.device.as_ref().map(ToString::to_string),
            pool.usable_nodes, pool.nodes, pool.total, pool.free, pool.histogram,
            pool.largest_free_node, pool.fragmentation_permille
        ), @r#"a/gpu Some("nvidia.com/gpu") 3/4 nodes, total cpu 256, nvidia.com/gpu 32, pods 440, free cpu 192, nvidia.com/gpu 18, pods 329, {2: 1, 8: 2}, largest 8, broken 111"#);
}

#[test]
fn unbound_pods_of_a_plan_are_checked_without_those_of_the_job_itself() {
    let mut room = engine::capacity::Capacity::new();
    for index in 0..2 {
        room.upsert_node(node("a", &format!("n{index}"), "cpu 64, gpu 8"));
    }
    let demand = pods(2, "gpu 8");
    let share = engine::facts::Share {
        cluster: ClusterName::from("a"),
        pods: vec![engine::facts::RolePods {
            role: "worker".to_owned(),
            count: 2,
        }],
        charge: std::collections::BTreeMap::new(),
        slots: Vec::new(),
    };
    let job: JobKey = key("job");
    assert_eq!(room.check(&job, &demand, &share), Ok(()));
    room.assume(&job, &demand, std::slice::from_ref(&share));
    assert_eq!(
        room.check(&job, &demand, &share),
        Ok(()),
        "not against itself"
    );
    let other = room.check(&key("other"), &demand, &share).unwrap_err();
    assert_eq!(
        (other.scope.as_str(), other.needs, other.free),
        ("cluster/a", Some(16), Some(0))
    );
    room.upsert_pod(PodFact {
        cluster: ClusterName::from("a"),
        uid: Uid::from("p0"),
        node: Some(NodeName::from("n0")),
        request: pod("gpu 8"),
        job: Some(job.clone()),
        phase: PodPhase::Running,
        symptom: None,
        grace_s: 0,
    });
    room.remove_node(&ClusterName::from("a"), &NodeName::from("n1"));
    let lost = room.check(&job, &demand, &share).unwrap_err();
    assert_eq!((lost.needs, lost.free), (Some(8), Some(0)));
    room.forget(&job);
    assert_eq!(room.pools()[0].assumed, res(""));
}

#[test]
fn only_the_missing_pods_of_a_running_job_are_assumed() {
    let mut room = engine::capacity::Capacity::new();
    room.upsert_node(node("a", "n0", "cpu 64, gpu 8"));
    room.upsert_node(node("a", "n1", "cpu 64, gpu 8"));
    let job: JobKey = key("job");
    for name in ["p0", "p1"] {
        room.upsert_pod(PodFact {
            cluster: ClusterName::from("a"),
            uid: Uid::from(name),
            node: Some(NodeName::from("n0")),
            request: pod("gpu 4"),
            job: Some(job.clone()),
            phase: PodPhase::Running,
            symptom: None,
            grace_s: 0,
        });
    }
    let share = |on_n1: u32| {
        let slot = |node: &str, count: u32| engine::facts::Slot {
            node: NodeName::from(node),
            role: "worker".to_owned(),
            count,
        };
        engine::facts::Share {
            cluster: ClusterName::from("a"),
            pods: vec![engine::facts::RolePods {
                role: "worker".to_owned(),
                count: 2 + on_n1,
            }],
            charge: std::collections::BTreeMap::new(),
            slots: vec![slot("n0", 2), slot("n1", on_n1)],
        }
    };
    room.assume(&job, &pods(3, "gpu 4"), &[share(1)]);
    assert_eq!(room.pools()[0].assumed, pod("gpu 4"), "it grew by one");
    room.assume(&job, &pods(2, "gpu 4"), &[share(0)]);
    assert_eq!(room.pools()[0].assumed, res(""), "it shrank");
}

#[test]
fn a_pod_replaces_one_assumed_pod_even_if_it_is_reported_twice() {
    let mut world = world();
    world.cluster("a", 1, "cpu 64, gpu 8");
    world.add("job", "q", 2, "gpu 4");
    world.decide();
    let pod = world.planned_pods(&key("job"))[0].clone();
    world.apply(Event::PodUpserted(pod.clone()));
    world.apply(Event::PodUpserted(PodFact {
        phase: PodPhase::Ended,
        ..pod
    }));
    world.wait(5).decide();
    // The first pod has ended; the second is still assumed.
    let pool = &world.engine.fleet().pools()[0];
    assert_eq!(pool.assumed, crate::world::pod("gpu 4"));
    assert_eq!(pool.used, res(""));
}

#[test]
fn a_pool_without_devices_is_counted_in_whole_cores() {
    let mut world = world();
    world.cluster("a", 2, "cpu 64");
    world.apply(foreign("a", "n0", "cpu 59500m"));
    let pool = &world.engine.fleet().pools()[0];
    assert_eq!(pool.largest_free_node, 64);
    assert_eq!(format!("{:?}", pool.histogram), "{4: 1, 64: 1}");
}

#[test]
fn pods_stay_assumed_when_their_cluster_goes_and_returns() {
    let mut world = world();
    world.cluster("a", 1, "cpu 64, gpu 8");
    world.add("first", "q", 1, "gpu 8");
    world.decide();
    world.apply(Event::ClusterGone(ClusterName::from("a")));
    world.cluster("a", 1, "cpu 64, gpu 8");
    world.add("second", "q", 1, "gpu 8");
    assert_snapshot!(world.decide(), @"");
    assert_eq!(world.engine.fleet().pools()[0].assumed, pod("gpu 8"));
}

#[test]
fn a_bound_pod_with_another_request_counts_as_one_of_the_gang() {
    let mut room = engine::capacity::Capacity::new();
    for name in ["n0", "n1"] {
        room.upsert_node(node("a", name, "cpu 64, gpu 8"));
    }
    let job: JobKey = key("job");
    // The member's webhook has added a sidecar.
    room.upsert_pod(PodFact {
        cluster: ClusterName::from("a"),
        uid: Uid::from("p0"),
        node: Some(NodeName::from("n0")),
        request: pod("gpu 8, cpu 1"),
        job: Some(job.clone()),
        phase: PodPhase::Running,
        symptom: None,
        grace_s: 0,
    });
    let share = |count: u32| engine::facts::Share {
        cluster: ClusterName::from("a"),
        pods: vec![engine::facts::RolePods {
            role: "worker".to_owned(),
            count,
        }],
        charge: std::collections::BTreeMap::new(),
        slots: Vec::new(),
    };
    assert_eq!(room.check(&job, &pods(2, "gpu 8"), &share(2)), Ok(()));
    let more = room.check(&job, &pods(3, "gpu 8"), &share(3)).unwrap_err();
    assert_eq!((more.needs, more.free), (Some(16), Some(8)));
    room.assume(&job, &pods(2, "gpu 8"), &[share(2)]);
    assert_eq!(room.pools()[0].assumed, pod("gpu 8"));
}

#[test]
fn a_node_is_counted_in_its_accelerators_before_its_other_devices() {
    let mut world = world();
    world.cluster("a", 1, "cpu 64, acme.com/hca 4, gpu 8");
    let pool = &world.engine.fleet().pools()[0];
    let device = pool.device.as_ref().map(ToString::to_string);
    assert_eq!(device.as_deref(), Some("nvidia.com/gpu"));
    assert_eq!(pool.largest_free_node, 8);
    // Devices are reported by the piece, and only memory in powers of two.
    let told = |name: &str| engine::ResourceName::new(name).format(engine::Amount(2048));
    assert_eq!(told("nvidia.com/gpu"), "2048");
    assert_eq!(told("hugepages-2Mi"), "2Ki");
}

#[test]
fn a_node_that_lost_its_devices_is_counted_in_cores() {
    let mut world = world();
    world.cluster("a", 1, "cpu 64, gpu 0");
    let pool = &world.engine.fleet().pools()[0];
    assert_eq!((&pool.device, pool.largest_free_node), (&None, 64));
}

#[test]
fn a_resource_that_no_node_has_is_reported_if_a_pod_uses_it() {
    let mut world = world();
    world.cluster("a", 1, "cpu 64, gpu 8");
    world.apply(foreign("a", "n0", "acme.com/hca 1"));
    let pool = &world.engine.fleet().pools()[0];
    assert_eq!(pool.used, pod("acme.com/hca 1"));
}

#[test]
fn a_pod_may_use_a_node_that_is_overcommitted_in_another_resource() {
    let mut world = world();
    world.cluster("a", 2, "cpu 64, memory 1Gi, gpu 8");
    let other = |uid: &str, request: &str| PodFact {
        cluster: ClusterName::from("a"),
        uid: Uid::from(uid),
        node: Some(NodeName::from("n0")),
        request: pod(request),
        job: None,
        phase: PodPhase::Running,
        symptom: None,
        grace_s: 0,
    };
    world.apply(Event::PodUpserted(other("large", "memory 2Gi")));
    world.apply(Event::PodUpserted(other("device", "gpu 8")));
    for (name, request) in [
        ("old", "gpu 8, memory 1Gi"),
        ("next", "gpu 8, memory 1Gi"),
        ("lean", "gpu 8, memory 0"),
    ] {
        world.add(name, "q", 1, request);
    }
    assert_snapshot!(world.decide(), @"release old #1 a(n1)");
    world.run("old");
    world.decide();
    // The next job waits for the old one; the lean one starts on any node.
    world.apply(Event::PodGone(ClusterName::from("a"), Uid::from("device")));
    assert_snapshot!(world.decide(), @"release lean #1 a(n0)");
}

#[test]
fn only_the_assumed_pods_of_a_lost_node_move() {
    let mut world = world();
    world.apply(Event::ClusterUpserted(crate::world::cluster("a")));
    world.apply(Event::NodeUpserted(node("a", "n0", "cpu 64, gpu 3")));
    world.apply(Event::NodeUpserted(node("a", "n1", "cpu 64, gpu 5")));
    world.add("job", "q", 2, "gpu 3");
    assert_snapshot!(world.decide(), @"release job #1 a(n0 n1)");
    // Both new nodes would have less left than n1.
    for name in ["n2", "n3"] {
        world.apply(Event::NodeUpserted(node("a", name, "cpu 64, gpu 3")));
    }
    world.apply(Event::NodeUpserted(NodeFact {
        usable: false,
        ..node("a", "n0", "cpu 64, gpu 3")
    }));
    world.add("more", "q", 1, "gpu 5");
    assert_snapshot!(world.decide(), @"");
    world.add("small", "q", 1, "gpu 3");
    assert_snapshot!(world.decide(), @"release small #1 a(n3)");
}
