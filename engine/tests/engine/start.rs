//! Pods that are bound and do not run: what keeps them is named, and the start deadline ends it.

use crate::world::{World, key, queue};
use engine::facts::{PodFact, PodPhase};
use engine::faults::{FaultClass, FaultRuleSet, PodFaultRule, Symptom};
use engine::{EngineConfig, Event, JobState, Progress};
use insta::assert_snapshot;

/// Two clusters with one node each, and a gang of two pods placed in `a`.
fn placed() -> World {
    let mut world = World::with(EngineConfig {
        recovery_deadline_ms: Some(60_000),
        ..EngineConfig::default()
    });
    world
        .cluster("a", 1, "cpu 64, gpu 8")
        .cluster("b", 1, "cpu 64, gpu 8")
        .queue(queue("q"));
    let rule = |name: &str, reason: &str, class| PodFaultRule {
        name: name.to_owned(),
        reasons: vec![reason.to_owned()],
        class,
        ..PodFaultRule::default()
    };
    world.apply(Event::FaultRulesChanged(FaultRuleSet {
        rules: vec![
            rule("image", "InvalidImageName", FaultClass::User),
            rule("pull", "ErrImagePull", FaultClass::Network),
        ],
        ..FaultRuleSet::default()
    }));
    world.add("gang", "q", 2, "gpu 4");
    assert_eq!(world.decide(), "release gang #1 a(n0×2)");
    world.progress("gang", Progress::Placed);
    world
}

/// Binds the pods of the gang, which wait for `reason`.
fn bind(world: &mut World, phase: PodPhase, reason: Option<&str>) {
    for pod in world.planned_pods(&key("gang")) {
        let symptom = reason.map(|reason| {
            Box::new(Symptom {
                reason: reason.to_owned(),
                message: "it says why".to_owned(),
                exit_code: None,
            })
        });
        let pod = PodFact {
            phase,
            symptom,
            ..pod
        };
        world.apply(Event::PodUpserted(pod.clone()));
        let known = world.pods.entry(key("gang")).or_default();
        known.retain(|known| known.uid != pod.uid);
        known.push(pod);
    }
}

#[test]
fn pods_that_are_bound_and_wait_are_named_and_do_not_meet_the_start_deadline() {
    let mut world = placed();
    bind(&mut world, PodPhase::Starting, None);
    assert_snapshot!(world.decide(), @"");
    assert_snapshot!(world.why("gang"), @"Placed: placed; waits for its pods to run; attempt 1 on a, charged nvidia.com/gpu 8, pods 2 to queue q");
    bind(&mut world, PodPhase::Starting, Some("ErrImagePull"));
    assert_snapshot!(world.decide(), @"");
    assert_snapshot!(world.why("gang"), @"PodsNotStarting: placed; of 2 pods on a, 2 have ErrImagePull (it says why); attempt 1 on a, charged nvidia.com/gpu 8, pods 2 to queue q");
    world.wait(600);
    assert_snapshot!(world.decide(), @"evict gang #1: StartDeadlineExceeded: 0 of the 2 pods it needs on a were running 600 s after its release: 2 have ErrImagePull (it says why)");
    // It is not the fault of the job: it tries again elsewhere.
    world.works_gone("gang");
    world.wait(1);
    assert_snapshot!(world.decide(), @"release gang #2 b(n0×2)");
}

#[test]
fn a_fault_of_the_job_itself_has_a_reason_of_its_own() {
    let mut world = placed();
    bind(&mut world, PodPhase::Starting, Some("InvalidImageName"));
    world.decide();
    world.wait(600);
    assert_snapshot!(world.decide(), @"evict gang #1: PodsCannotStart: 0 of the 2 pods it needs on a were running 600 s after its release: 2 have InvalidImageName (it says why)");
}

#[test]
fn pods_that_their_node_refused_have_not_started() {
    let mut world = placed();
    bind(&mut world, PodPhase::Disrupted, Some("OutOfcpu"));
    world.decide();
    assert_snapshot!(world.why("gang"), @"PodsNotStarting: placed; of 2 pods on a, 2 have OutOfcpu (it says why); attempt 1 on a, charged nvidia.com/gpu 8, pods 2 to queue q");
    world.wait(600);
    assert_snapshot!(world.decide(), @"evict gang #1: StartDeadlineExceeded: 0 of the 2 pods it needs on a were running 600 s after its release: 2 have OutOfcpu (it says why)");
}

#[test]
fn pods_that_run_in_time_have_started_whatever_kept_them() {
    let mut world = placed();
    bind(&mut world, PodPhase::Starting, Some("ErrImagePull"));
    world.decide();
    bind(&mut world, PodPhase::Running, None);
    world.decide();
    assert!(world.why("gang").starts_with("Placed: placed; waits"));
    world.wait(601);
    assert_snapshot!(world.decide(), @"");
    assert_eq!(world.state("gang"), JobState::Placed);
}

#[test]
fn a_restored_engine_names_what_keeps_pods_and_classifies_it() {
    let mut world = placed();
    bind(&mut world, PodPhase::Starting, Some("InvalidImageName"));
    world.decide();
    let snapshot = world.engine.snapshot();
    let why = world.why("gang");
    let config = EngineConfig {
        recovery_deadline_ms: Some(60_000),
        ..EngineConfig::default()
    };
    world.engine = engine::Engine::restore(snapshot, config);
    assert_eq!(world.why("gang"), why);
    world.wait(600);
    assert!(world.decide().contains("PodsCannotStart"));
}
