//! Charges of pods: what runs is charged, whatever a template, a Work or a status says.

use crate::world::{World, capped, key, node, res};
use engine::facts::{PodFact, PodPhase};
use engine::{ClusterName, Event, JobKey, NodeName, Progress, QueueName, Uid};
use insta::assert_snapshot;
use std::sync::Arc;

/// A running job of four GPUs in a queue with a capability of eight, on a cluster of sixteen.
fn four_of_eight() -> World {
    let mut world = World::new();
    world
        .cluster("a", 2, "cpu 64, gpu 8")
        .queue(capped("q", "gpu 8, cpu 64"));
    world.runs("job", "q", 2, "gpu 2, cpu 1");
    world
}

fn pod(uid: &str, job: Option<JobKey>, request: &str) -> PodFact {
    PodFact {
        cluster: ClusterName::from("a"),
        uid: Uid::from(uid),
        node: Some(NodeName::from("n1")),
        request: res(request),
        job,
        phase: PodPhase::Running,
        symptom: None,
        grace_s: 0,
    }
}

fn manage(world: &mut World, queue: Option<&str>) {
    world.apply(Event::Namespace {
        name: Arc::from("ns"),
        queue: queue.map(QueueName::from),
    });
}

fn gone(world: &mut World, uid: &str) {
    world.apply(Event::PodGone(ClusterName::from("a"), Uid::from(uid)));
}

/// Evicts the job, whose pods outlive its Works.
fn works_gone(world: &mut World) {
    world.ending("job", engine::Reason::Evicted);
    world.apply(Event::JobWorksGone {
        key: key("job"),
        at: world.now,
    });
}

/// How a job ends.
type End = fn(&mut World);

/// Returns true if a job of four GPUs starts beside what is charged.
fn starts(world: &mut World) -> bool {
    if world.engine.job(&key("next")).is_none() {
        world.add("next", "q", 1, "gpu 4, cpu 1");
    }
    world.decide().contains("release next")
}

#[test]
fn pods_that_ask_for_more_than_was_admitted_are_charged_as_they_are() {
    let mut world = four_of_eight();
    let mut larger = world.pods[&key("job")][0].clone();
    // What a LimitRange, a RuntimeClass or a sidecar adds.
    larger.request = res("gpu 3, cpu 9, pods 1");
    world.apply(Event::PodUpserted(larger.clone()));
    assert!(!starts(&mut world), "5 of 8 are charged");
    let evidence = world.engine.explain(&key("next")).unwrap().evidence;
    let line = "pods of queue q use cpu 8, nvidia.com/gpu 1 beyond what was admitted; kubectl muster jobs names them";
    assert!(evidence.iter().any(|one| one == line), "{evidence:?}");
    assert_snapshot!(world.allocated("q"), @"cpu 10, nvidia.com/gpu 5, pods 2");
    larger.request = res("gpu 2, cpu 1, pods 1");
    world.apply(Event::PodUpserted(larger));
    assert!(starts(&mut world));
}

#[test]
fn pods_beyond_those_admitted_are_charged_until_they_have_ended() {
    for phase in [PodPhase::Ended, PodPhase::Disrupted] {
        let mut world = four_of_eight();
        let mut third = pod("third", Some(key("job")), "gpu 2, pods 1");
        world.apply(Event::PodUpserted(PodFact {
            node: None,
            ..third.clone()
        }));
        world.decide();
        assert_eq!(world.allocated("q"), "cpu 2, nvidia.com/gpu 4, pods 2");
        world.apply(Event::PodUpserted(third.clone()));
        assert!(
            !starts(&mut world),
            "an old pod ends slowly beside the new ones"
        );
        assert_eq!(world.allocated("q"), "cpu 2, nvidia.com/gpu 6, pods 3");
        third.phase = phase;
        world.apply(Event::PodUpserted(third));
        // A pod that ended by itself keeps its capacity for the completion grace.
        world.wait(10);
        assert!(starts(&mut world), "{phase:?}");
    }
}

#[test]
fn pods_that_outlive_their_job_are_charged_to_its_queue() {
    let ends: [(&str, End); 3] = [
        ("finished", |world| {
            world.progress("job", Progress::Finished);
        }),
        ("evicted", |world| {
            works_gone(world);
        }),
        ("deleted", |world| {
            world.apply(Event::JobGone(key("job")));
        }),
    ];
    for (how, end) in ends {
        let mut world = four_of_eight();
        world.add("next", "q", 1, "gpu 8, cpu 1");
        let left = world.pods[&key("job")].clone();
        end(&mut world);
        assert!(
            !world.decide().contains("next"),
            "{how}: its pods still run"
        );
        assert_eq!(
            world.allocated("q"),
            "cpu 2, nvidia.com/gpu 4, pods 2",
            "{how}"
        );
        for pod in left {
            world.apply(Event::PodGone(pod.cluster, pod.uid));
        }
        assert!(world.decide().contains("release next"), "{how}");
        assert_eq!(world.engine.pod_charges().count(), 0, "{how}");
    }
}

#[test]
fn an_ended_job_says_what_is_charged_for_pods_that_are_left() {
    let mut world = four_of_eight();
    let left = world.pods[&key("job")].clone();
    world.progress("job", Progress::Finished);
    world.decide();
    assert_snapshot!(world.why("job"), @"Finished: ended; 2 pods of it still run: charged cpu 2, nvidia.com/gpu 4, pods 2 to queue q until they are gone; attempt 1 on a");
    world.apply(Event::PodGone(left[0].cluster.clone(), left[0].uid.clone()));
    world.decide();
    assert_snapshot!(world.why("job"), @"Finished: ended; 1 pod of it still runs: charged cpu 1, nvidia.com/gpu 2, pods 1 to queue q until it is gone; attempt 1 on a");
    // Its Works are removed, and the pod outlives them.
    world.ending("job", engine::Reason::Evicted);
    world.decide();
    assert_snapshot!(world.why("job"), @"Evicted: because; it had ended; 1 pod of it still runs: charged cpu 1, nvidia.com/gpu 2, pods 1 to queue q until it is gone");
    world.apply(Event::PodGone(left[1].cluster.clone(), left[1].uid.clone()));
    world.decide();
    assert_snapshot!(world.why("job"), @"Evicted: because; it had ended and is charged nothing");
}

#[test]
fn a_restored_engine_knows_the_queue_of_a_deleted_job() {
    let mut world = four_of_eight();
    manage(&mut world, Some("other"));
    world.apply(Event::JobGone(key("job")));
    world.decide();
    let restored =
        engine::Engine::restore(world.engine.snapshot(), engine::EngineConfig::default());
    let charged = restored
        .pod_charges()
        .map(|(key, queue, _)| format!("{key} {queue}"));
    assert_eq!(charged.collect::<Vec<_>>(), ["ns/job q"]);
    assert_eq!(restored.check_invariants(), Vec::<String>::new());
}

#[test]
fn pods_of_no_known_job_are_charged_to_the_queue_of_their_managed_namespace() {
    for job in [JobKey::of_namespace("ns"), key("no-such-job")] {
        let mut world = four_of_eight();
        world.apply(Event::PodUpserted(pod(
            "own",
            Some(job.clone()),
            "gpu 3, pods 1",
        )));
        world.decide();
        assert_eq!(world.allocated("q"), "cpu 2, nvidia.com/gpu 4, pods 2");
        manage(&mut world, Some("q"));
        assert!(!starts(&mut world), "{job}");
        assert_eq!(world.allocated("q"), "cpu 2, nvidia.com/gpu 7, pods 3");
        manage(&mut world, None);
        assert!(starts(&mut world), "{job}: not managed any more");
        manage(&mut world, Some("q"));
        world.decide();
        assert_eq!(world.allocated("q"), "cpu 3, nvidia.com/gpu 11, pods 4");
        gone(&mut world, "own");
        world.decide();
        assert_eq!(world.allocated("q"), "cpu 3, nvidia.com/gpu 8, pods 3");
    }
}

#[test]
fn pods_that_are_never_charged_and_clusters_that_are_gone_charge_nothing() {
    let mut world = four_of_eight();
    manage(&mut world, Some("q"));
    world.apply(Event::PodUpserted(pod("daemon", None, "gpu 4, pods 1")));
    world.apply(Event::PodUpserted(pod(
        "own",
        Some(JobKey::of_namespace("ns")),
        "gpu 1",
    )));
    world.decide();
    assert_snapshot!(world.allocated("q"), @"cpu 2, nvidia.com/gpu 5, pods 2");
    world.apply(Event::ClusterGone(ClusterName::from("a")));
    world.decide();
    assert_snapshot!(world.allocated("q"), @"cpu 2, nvidia.com/gpu 4, pods 2");
}

#[test]
fn a_charge_of_pods_counts_in_the_class_of_their_nodes() {
    let mut world = four_of_eight();
    let mut other = node("a", "h0", "gpu 8");
    other.class = engine::PoolClass::from("h100");
    world.apply(Event::NodeUpserted(other.clone()));
    manage(&mut world, Some("q"));
    let own = PodFact {
        node: Some(NodeName::from("h0")),
        ..pod("own", Some(key("job")), "gpu 1, pods 1")
    };
    world.apply(Event::PodUpserted(own));
    world.decide();
    let charged = |world: &World| {
        let of_job = world.engine.pod_charges().map(|(_, _, pools)| {
            let pools = pools
                .iter()
                .map(|((_, class), more)| format!("{class}: {more}"));
            pools.collect::<Vec<_>>().join("; ")
        });
        of_job.collect::<Vec<_>>().join("; ")
    };
    assert_eq!(charged(&world), "h100: nvidia.com/gpu 1, pods 1");
    other.class = engine::PoolClass::from("h200");
    world.apply(Event::NodeUpserted(other));
    world.decide();
    assert_eq!(charged(&world), "h200: nvidia.com/gpu 1, pods 1");
}

#[test]
fn a_job_that_starts_again_covers_the_pods_of_its_earlier_attempt() {
    let mut world = four_of_eight();
    let left = world.pods[&key("job")].clone();
    works_gone(&mut world);
    // Eight GPUs in all: four for the pods that are left, four for the job again. The pods are within its charge then,
    // until its new ones are bound too.
    world.wait(3_600);
    assert!(world.decide().contains("release job #2"));
    assert_snapshot!(world.allocated("q"), @"cpu 2, nvidia.com/gpu 4, pods 2");
    world.run("job");
    world.decide();
    assert_snapshot!(world.allocated("q"), @"cpu 4, nvidia.com/gpu 8, pods 4");
    for pod in left {
        world.apply(Event::PodGone(pod.cluster, pod.uid));
    }
    world.decide();
    assert_snapshot!(world.allocated("q"), @"cpu 2, nvidia.com/gpu 4, pods 2");
}

#[test]
fn pods_in_a_cluster_out_of_service_are_not_charged() {
    let mut world = four_of_eight();
    world.apply(Event::JobGone(key("job")));
    world.decide();
    assert_snapshot!(world.allocated("q"), @"cpu 2, nvidia.com/gpu 4, pods 2");
    let mut lost = crate::world::cluster("a");
    lost.usable = false;
    lost.taints.push(engine::matching::Taint {
        key: engine::matching::OUT_OF_SERVICE.to_owned(),
        value: String::new(),
        effect: engine::matching::TaintEffect::NoExecute,
    });
    world.apply(Event::ClusterUpserted(lost));
    world.decide();
    assert_snapshot!(world.allocated("q"), @"");
    world.apply(Event::ClusterUpserted(crate::world::cluster("a")));
    world.decide();
    assert_snapshot!(world.allocated("q"), @"cpu 2, nvidia.com/gpu 4, pods 2");
}

#[test]
fn a_pod_that_turns_out_to_be_of_another_job_is_charged_there_alone() {
    let mut world = four_of_eight();
    manage(&mut world, Some("q"));
    let likely = pod("own", Some(key("likely")), "gpu 3, pods 1");
    world.apply(Event::PodUpserted(likely.clone()));
    world.decide();
    assert_snapshot!(world.allocated("q"), @"cpu 2, nvidia.com/gpu 7, pods 3");
    world.apply(Event::PodUpserted(PodFact {
        job: Some(key("real")),
        ..likely
    }));
    // The invariants are checked with each decision.
    world.decide();
    assert_snapshot!(world.allocated("q"), @"cpu 2, nvidia.com/gpu 7, pods 3");
}
