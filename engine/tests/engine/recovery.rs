//! Running gangs that lose pods: they recover where they are, or are evicted and start again.

use crate::elastic::elastic;
use crate::world::{World, cluster, key, node, policy, queue};
use engine::facts::{ClusterFact, NodeFact, PodFact, PodPhase};
use engine::{EngineConfig, Event, JobState, NodeName, Progress, Reason};
use insta::assert_snapshot;

/// Two nodes in cluster `a` and two in `b`, with a gang of two whole nodes running in `a`.
fn running() -> World {
    let mut world = World::with(EngineConfig {
        recovery_deadline_ms: Some(60_000),
        ..EngineConfig::default()
    });
    world
        .cluster("a", 2, "cpu 64, gpu 8")
        .cluster("b", 2, "cpu 64, gpu 8")
        .queue(queue("q"));
    world.add("gang", "q", 2, "gpu 8");
    assert_eq!(world.decide(), "release gang #1 a(n0 n1)");
    world.run("gang");
    assert_eq!(world.decide(), "");
    world
}

fn a_node(name: &str) -> NodeFact {
    node("a", name, "cpu 64, gpu 8")
}

/// The pod of the gang on a node of cluster `a`.
fn pod_on(world: &World, name: &str) -> PodFact {
    let mut pods = world.pods[&key("gang")].iter();
    let on = |pod: &&PodFact| pod.node == Some(NodeName::from(name));
    pods.find(on).unwrap().clone()
}

fn node_deleted(world: &mut World, name: &str) {
    world.apply(Event::NodeGone("a".into(), name.into()));
}

/// The controller of the gang has started a pod in the place of the one that was lost.
fn replaced_on(world: &mut World, lost: &PodFact, name: &str) {
    world.apply(Event::PodGone(lost.cluster.clone(), lost.uid.clone()));
    world.apply(Event::PodUpserted(PodFact {
        uid: "replaced".into(),
        node: Some(name.into()),
        ..lost.clone()
    }));
}

#[test]
fn a_gang_whose_node_is_deleted_starts_again_elsewhere_if_its_cluster_has_no_other() {
    let mut world = running();
    node_deleted(&mut world, "n1");
    assert_snapshot!(world.decide(), @"");
    assert_snapshot!(world.why("gang"), @"PodsLost: runs with 1 of the 2 pods it needs on a; if others do not take the place of those that are lost, it is evicted and queued again; attempt 1 on a, charged nvidia.com/gpu 16, pods 2 to queue q");
    world.wait(9);
    assert_snapshot!(world.decide(), @"");
    world.wait(1);
    assert_snapshot!(world.decide(), @"evict gang #1: PodsLost: for 10 s 1 of the 2 pods it needs on a have been running, and others fit on no nodes there");
    assert_snapshot!(world.allocated("q"), @"nvidia.com/gpu 16, pods 2");
    // It is no failure of the job's own: it does not back off.
    world.works_gone("gang");
    assert_snapshot!(world.decide(), @"release gang #2 b(n0 n1)");
}

#[test]
fn a_gang_recovers_where_it_is_if_its_pods_are_replaced_in_time() {
    let mut world = running();
    let lost = pod_on(&world, "n1");
    node_deleted(&mut world, "n1");
    world.apply(Event::NodeUpserted(a_node("n2")));
    world.decide();
    // Capacity for the pod is assumed: another job does not get it.
    world.add("other", "q", 1, "gpu 8");
    assert_snapshot!(world.decide(), @"release other #1 b(n0)");
    world.run("other");
    world.wait(59);
    assert_snapshot!(world.decide(), @"");
    replaced_on(&mut world, &lost, "n2");
    assert_snapshot!(world.decide(), @"");
    assert_snapshot!(world.why("gang"), @"Running: runs; attempt 1 on a, charged nvidia.com/gpu 16, pods 2 to queue q");
    world.wait(600);
    assert_snapshot!(world.decide(), @"");
}

#[test]
fn a_gang_whose_pods_are_not_replaced_is_evicted_at_its_deadline() {
    let mut world = running();
    let mut slow = policy("q");
    slow.recovery_deadline_ms = Some(120_000);
    world.policy(slow);
    let lost = pod_on(&world, "n1");
    world.apply(Event::NodeUpserted(a_node("n2")));
    world.apply(Event::PodGone(lost.cluster, lost.uid));
    // A pod that is gone keeps its capacity for the completion grace: its job may have ended.
    assert_eq!(world.decided().wake_at, Some(world.now.after(5_000)));
    world.wait(5);
    assert_eq!(world.decided().wake_at, Some(world.now.after(120_000)));
    world.wait(119);
    assert_snapshot!(world.decide(), @"");
    world.wait(1);
    assert_snapshot!(world.decide(), @"evict gang #1: PodsLost: for 120 s 1 of the 2 pods it needs on a have been running, and no others took their place");
}

#[test]
fn a_node_that_is_ready_again_in_time_has_lost_nothing() {
    let mut world = running();
    let not_ready = NodeFact {
        usable: false,
        lost: true,
        ..a_node("n1")
    };
    world.apply(Event::NodeUpserted(not_ready));
    assert_snapshot!(world.decide(), @"");
    assert!(world.why("gang").starts_with("PodsLost"));
    world.wait(9);
    world.apply(Event::NodeUpserted(a_node("n1")));
    world.decide();
    assert!(world.why("gang").starts_with("Running"));
    world.wait(600);
    assert_snapshot!(world.decide(), @"");
    // A cordoned node keeps its pods.
    world.apply(Event::NodeUpserted(NodeFact {
        usable: false,
        ..a_node("n1")
    }));
    world.wait(600);
    assert_snapshot!(world.decide(), @"");
}

#[test]
fn a_node_that_is_lost_already_has_no_jobs_to_lose() {
    let mut world = running();
    let jobs = |world: &World| world.engine.fleet().jobs_on(&"a".into(), &"n1".into());
    assert_eq!(jobs(&world), [key("gang")].into());
    world.apply(Event::NodeUpserted(NodeFact {
        usable: false,
        lost: true,
        ..a_node("n1")
    }));
    assert_eq!(jobs(&world), [].into());
    world.apply(Event::NodeUpserted(a_node("n1")));
    assert_eq!(jobs(&world), [key("gang")].into());
    node_deleted(&mut world, "n1");
    assert_eq!(jobs(&world), [].into());
}

#[test]
fn pods_that_their_node_refused_or_evicted_are_lost_and_those_that_ended_by_themselves_are_not() {
    for (phase, reason) in [
        (PodPhase::Disrupted, "PodsLost"),
        (PodPhase::Evicting, "PodsLost"),
        (PodPhase::Ended, "Running"),
    ] {
        let mut world = running();
        let pod = pod_on(&world, "n1");
        world.apply(Event::PodUpserted(PodFact { phase, ..pod }));
        world.decide();
        assert!(world.why("gang").starts_with(reason), "{phase:?}");
    }
}

#[test]
fn what_a_cluster_lost_is_evaluated_when_it_can_be_seen_again() {
    let mut world = running();
    world.apply(Event::ClusterUpserted(ClusterFact {
        usable: false,
        ..cluster("a")
    }));
    let lost = pod_on(&world, "n1");
    world.apply(Event::PodGone(lost.cluster, lost.uid));
    world.wait(600);
    assert_snapshot!(world.decide(), @"");
    world.apply(Event::ClusterUpserted(cluster("a")));
    assert_snapshot!(world.decide(), @"");
    world.wait(60);
    assert_snapshot!(world.decide(), @"evict gang #1: PodsLost: for 60 s 1 of the 2 pods it needs on a have been running, and no others took their place");
}

#[test]
fn a_gang_above_its_minimum_goes_on_with_fewer_pods() {
    let mut world = running();
    world.apply(Event::ClusterUpserted(cluster("c")));
    world.apply(Event::NodeUpserted(node("c", "n0", "cpu 64, gpu 8")));
    let job = world.job("elastic", "q", elastic(1, 4, "gpu 2"));
    world.submit(job);
    world.decide();
    world.run("elastic");
    let pods = world.pods[&key("elastic")].clone();
    for pod in &pods[..3] {
        world.apply(Event::PodGone(pod.cluster.clone(), pod.uid.clone()));
    }
    world.wait(600);
    world.decide();
    assert_eq!(world.state("elastic"), JobState::Running);
    world.apply(Event::PodGone(pods[3].cluster.clone(), pods[3].uid.clone()));
    world.wait(5).decide();
    assert!(world.why("elastic").starts_with("PodsLost"));
}

/// A batch Job of more completions than pods: one pod has succeeded, and another of the two was started in its place.
#[test]
fn a_pod_that_has_succeeded_hides_no_lost_pod_of_a_job_that_wants_all_of_its_pods() {
    for counted in [false, true] {
        let mut world = running();
        let lost = pod_on(&world, "n1");
        let done = PodFact {
            uid: "done".into(),
            node: Some("n0".into()),
            phase: PodPhase::Ended,
            ..lost.clone()
        };
        world.apply(match counted {
            false => Event::PodUpserted(done),
            true => Event::PodsEnded {
                cluster: lost.cluster.clone(),
                owner: "job".into(),
                job: lost.job.clone(),
                pods: 250,
            },
        });
        world.wait(1).decide();
        assert!(world.why("gang").starts_with("Running"));
        // Few completions are left: no pod takes the place of this one.
        world.apply(Event::PodGone(lost.cluster.clone(), lost.uid.clone()));
        world.wait(10).decide();
        assert!(
            world.why("gang").starts_with("Running"),
            "{}",
            world.why("gang")
        );
        // One does.
        world.apply(Event::PodUpserted(lost));
        world.wait(1).decide();
        assert!(
            world.why("gang").starts_with("Running"),
            "{}",
            world.why("gang")
        );
        node_deleted(&mut world, "n1");
        world.wait(1).decide();
        let why = world.why("gang");
        assert!(
            why.starts_with("PodsLost: runs with 1 of the 2 pods"),
            "{why}"
        );
    }
}

#[test]
fn the_number_of_ended_pods_survives_a_restart_and_goes_with_its_cluster() {
    let mut world = running();
    let lost = pod_on(&world, "n1");
    world.apply(Event::PodsEnded {
        cluster: lost.cluster.clone(),
        owner: "job".into(),
        job: lost.job.clone(),
        pods: 1,
    });
    world.apply(Event::PodGone(lost.cluster.clone(), lost.uid.clone()));
    world.wait(10).decide();
    let bound = |world: &World| {
        world
            .engine
            .pods_of(&key("gang"))
            .bound_in(&lost.cluster, 2)
    };
    assert_eq!(bound(&world), 2);
    let config = EngineConfig::default();
    let restored = engine::Engine::restore(world.engine.snapshot(), config);
    assert_eq!(restored.pods_of(&key("gang")).bound_in(&lost.cluster, 2), 2);
    world.apply(Event::ClusterGone(lost.cluster.clone()));
    assert_eq!(bound(&world), 0);
}

#[test]
fn an_elastic_gang_that_runs_small_has_lost_too_many_pods_below_the_same_minimum() {
    let mut world = running();
    world.cluster("c", 4, "cpu 64, gpu 4");
    let job = world.job("elastic", "q", elastic(2, 8, "gpu 4"));
    world.submit(job);
    assert_eq!(world.decide(), "release elastic #1 c(n0 n1 n2 n3)");
    world.run("elastic");
    world.decide();
    for name in ["n1", "n2"] {
        world.apply(Event::NodeGone("c".into(), name.into()));
    }
    world.wait(600);
    assert_snapshot!(world.decide(), @"");
    world.apply(Event::NodeGone("c".into(), "n3".into()));
    world.wait(1);
    world.decide();
    assert_snapshot!(world.why("elastic"), @"PodsLost: runs with 1 of the 2 pods it needs on c; if others do not take the place of those that are lost, it is evicted and queued again; attempt 1 on c, charged nvidia.com/gpu 16, pods 4 to queue q");
    world.wait(10);
    assert_snapshot!(world.decide(), @"evict elastic #1: PodsLost: for 10 s 1 of the 2 pods it needs on c have been running, and others fit on no nodes there");
}

#[test]
fn a_restarted_engine_evaluates_what_was_lost_before() {
    let mut world = running();
    let lost = pod_on(&world, "n1");
    let admission = world.engine.job(&key("gang")).unwrap().admission.cloned();
    let fact = world.job("gang", "q", crate::world::pods(2, "gpu 8"));
    let mut restarted = World::with(EngineConfig {
        recovery_deadline_ms: Some(60_000),
        ..EngineConfig::default()
    });
    restarted.now = world.now;
    restarted.cluster("a", 1, "cpu 64, gpu 8").queue(queue("q"));
    restarted.apply(Event::JobAdmitted {
        key: key("gang"),
        admission: admission.unwrap(),
        progress: Progress::Running,
    });
    restarted.submit(fact);
    for pod in &world.pods[&key("gang")] {
        if pod.uid != lost.uid {
            restarted.apply(Event::PodUpserted(pod.clone()));
        }
    }
    restarted.decide();
    assert!(restarted.why("gang").starts_with("PodsLost"));
    restarted.wait(60);
    restarted.decide();
    assert_eq!(restarted.state("gang"), JobState::Ending);
}

#[test]
fn a_job_that_is_evicted_or_ends_has_lost_nothing() {
    let mut world = running();
    node_deleted(&mut world, "n1");
    world.decide();
    world.ending("gang", Reason::Suspended);
    world.wait(600);
    assert_snapshot!(world.decide(), @"");
    let mut world = running();
    node_deleted(&mut world, "n1");
    world.decide();
    world.finish("gang");
    world.wait(600);
    assert_snapshot!(world.decide(), @"");
    assert_eq!(world.state("gang"), JobState::Finished);
}

/// The node of the gang's second pod offers `gpus` GPUs.
fn offers(world: &mut World, gpus: u32) {
    let resources = format!("cpu 64, gpu {gpus}");
    world.apply(Event::NodeUpserted(node("a", "n1", &resources)));
}

#[test]
fn a_gang_whose_devices_fail_is_evicted_unless_they_come_back() {
    let mut world = running();
    offers(&mut world, 7);
    assert_snapshot!(world.decide(), @"");
    assert_snapshot!(world.why("gang"), @"PodsLost: 1 of the 2 pods it needs on a work: devices of the others have failed, or they are not Ready; if that does not change, it is evicted and queued again; attempt 1 on a, charged nvidia.com/gpu 16, pods 2 to queue q");
    // A device plugin that restarts offers no devices for a while.
    offers(&mut world, 0);
    world.wait(299);
    assert_snapshot!(world.decide(), @"");
    offers(&mut world, 8);
    world.decide();
    assert!(world.why("gang").starts_with("Running"));
    offers(&mut world, 7);
    world.decide();
    world.wait(300);
    assert_snapshot!(world.decide(), @"evict gang #1: PodsLost: for 300 s 1 of the 2 pods it needs on a have worked: devices of the others have failed, or they are not Ready");
    world.works_gone("gang");
    assert_snapshot!(world.decide(), @"release gang #2 b(n0 n1)");
}

#[test]
fn the_deadline_of_a_queue_holds_for_devices_too() {
    let mut world = running();
    let mut quick = policy("q");
    quick.recovery_deadline_ms = Some(20_000);
    world.policy(quick);
    offers(&mut world, 7);
    world.decide();
    world.wait(20);
    assert!(world.decide().starts_with("evict gang #1: PodsLost"));
}

#[test]
fn a_pod_whose_kubelet_reports_an_unhealthy_device_does_not_count() {
    let mut world = running();
    let pod = pod_on(&world, "n1");
    let symptom = engine::faults::Symptom {
        reason: "DeviceUnhealthy".to_owned(),
        message: "nvidia.com/gpu GPU-1".to_owned(),
        exit_code: None,
    };
    world.apply(Event::PodUpserted(PodFact {
        symptom: Some(Box::new(symptom)),
        ..pod.clone()
    }));
    world.decide();
    assert!(
        world
            .why("gang")
            .starts_with("PodsLost: 1 of the 2 pods it needs on a work")
    );
    world.apply(Event::PodUpserted(pod));
    world.decide();
    assert!(world.why("gang").starts_with("Running"));
}

#[test]
fn a_device_that_pods_of_two_jobs_may_have_is_no_loss() {
    let mut world = running();
    world.apply(Event::NodeUpserted(node("c", "n0", "cpu 64, gpu 8")));
    world.apply(Event::ClusterUpserted(cluster("c")));
    for name in ["one", "other"] {
        world.add(name, "q", 1, "gpu 4");
        world.decide();
        world.run(name);
    }
    let on = |world: &World, name: &str| {
        let pod = &world.pods[&key(name)][0];
        (pod.cluster.clone(), pod.node.clone())
    };
    assert_eq!(on(&world, "one"), on(&world, "other"));
    let (cluster, name) = on(&world, "one");
    let name = name.unwrap();
    world.apply(Event::NodeUpserted(node(
        cluster.as_str(),
        name.as_str(),
        "cpu 64, gpu 7",
    )));
    world.wait(600);
    world.decide();
    assert!(world.why("one").starts_with("Running") && world.why("other").starts_with("Running"));
}
