//! Pods that are observed ended before their job: their capacity stays in use for a grace period.

use crate::world::{World, deserving, key};
use engine::facts::{PodFact, PodPhase};
use engine::{Event, Reason};
use insta::assert_snapshot;

/// Two nodes of eight GPUs. `a` and `b` deserve half each, use it, and have pending jobs; those of
/// `a` were queued first.
fn contended() -> World {
    let mut world = World::new();
    world
        .cluster("x", 2, "cpu 64, gpu 8")
        .queue(deserving("a", "gpu 8"))
        .queue(deserving("b", "gpu 8"));
    for (name, queue) in [("a1", "a"), ("b1", "b"), ("a2", "a"), ("b2", "b")] {
        world.add(name, queue, 1, "gpu 4");
        world.decide();
        world.run(name);
    }
    world.add("a3", "a", 1, "gpu 4");
    world.wait(1);
    world.add("b3", "b", 1, "gpu 4");
    assert_eq!(world.decide(), "");
    world
}

fn ended(world: &World, name: &str) -> PodFact {
    let pod = world.planned_pods(&key(name))[0].clone();
    PodFact {
        phase: PodPhase::Ended,
        ..pod
    }
}

/// Returns true if the pod of a job is still known.
fn is_known(world: &World, name: &str) -> bool {
    let snapshot = serde_json::to_value(world.engine.snapshot()).unwrap();
    let uid = world.planned_pods(&key(name))[0].uid.to_string();
    // An empty list is omitted.
    let lists = ["pods", "completion_grace"].into_iter();
    let mut pods = lists.flat_map(|list| snapshot[list].as_array().into_iter().flatten());
    pods.any(|pod| pod.to_string().contains(&uid))
}

#[test]
fn capacity_of_an_ended_pod_is_not_used_before_its_charge_ends() {
    let mut world = contended();
    // The pod of b1 is observed ended, but b1 is not yet.
    let pod = ended(&world, "b1");
    world.apply(Event::PodUpserted(pod));
    assert_snapshot!(world.decide(), @"");
    world.wait(1);
    world.finish("b1");
    // Now b is below its deserved amounts, and no job is evicted.
    assert_snapshot!(world.decide(), @"release b3 #1 x(n0)");
}

#[test]
fn the_completion_grace_is_short() {
    let mut world = contended();
    let pod = ended(&world, "b1");
    world.apply(Event::PodUpserted(pod));
    let wake = world.decided().wake_at.unwrap();
    assert_eq!(wake.millis_since(world.now), 5_000);
    // Another pod of b1 may run for hours; the capacity of this one is free meanwhile.
    world.wait(5);
    assert_snapshot!(world.decide(), @"release a3 #1 x(n0)");
}

#[test]
fn a_new_pod_of_the_same_job_may_use_capacity_in_grace() {
    let mut world = contended();
    let pod = ended(&world, "b1");
    world.apply(Event::PodUpserted(pod.clone()));
    let again = PodFact {
        uid: "again".into(),
        phase: PodPhase::Running,
        ..pod
    };
    world.apply(Event::PodUpserted(again));
    let used = &world.engine.fleet().pools()[0].used;
    assert_eq!(used.to_string(), "nvidia.com/gpu 16, pods 4");
    assert_snapshot!(world.decide(), @"");
}

#[test]
fn a_pod_may_be_gone_before_its_end_is_reported() {
    let mut world = contended();
    let pod = ended(&world, "b1");
    world.apply(Event::PodGone(pod.cluster, pod.uid));
    assert_snapshot!(world.decide(), @"");
    world.finish("b1");
    assert_snapshot!(world.decide(), @"release b3 #1 x(n0)");
}

#[test]
fn the_grace_of_a_pod_that_is_gone_ends() {
    let mut world = contended();
    let pod = ended(&world, "b1");
    world.apply(Event::PodUpserted(pod.clone()));
    world.apply(Event::PodGone(pod.cluster, pod.uid));
    assert_snapshot!(world.decide(), @"");
    world.wait(5);
    assert_snapshot!(world.decide(), @"release a3 #1 x(n0)");
    let used = &world.engine.fleet().pools()[0].used;
    assert_eq!(used.to_string(), "nvidia.com/gpu 12, pods 3");
    assert!(!is_known(&world, "b1"));
}

#[test]
fn capacity_in_grace_elsewhere_stays_so_when_a_cluster_goes() {
    let mut world = contended();
    world.cluster("y", 1, "cpu 64, gpu 8");
    world.decide();
    world.run("a3");
    let pod = ended(&world, "a3");
    world.apply(Event::PodUpserted(pod));
    world.apply(Event::ClusterGone(engine::ClusterName::from("x")));
    let used = |world: &World| world.engine.fleet().pools()[0].used.to_string();
    world.decide();
    assert_eq!(used(&world), "nvidia.com/gpu 4, pods 1");
    world.wait(5).decide();
    assert_eq!(used(&world), "");
}

#[test]
fn capacity_in_grace_stays_so_after_a_restart() {
    let mut world = contended();
    let pod = ended(&world, "b1");
    world.apply(Event::PodUpserted(pod));
    let snapshot = world.engine.snapshot();
    world.engine = engine::Engine::restore(snapshot, engine::EngineConfig::default());
    assert_snapshot!(world.decide(), @"");
    world.wait(4);
    assert_snapshot!(world.decide(), @"");
    world.wait(1);
    assert_snapshot!(world.decide(), @"release a3 #1 x(n0)");
}

#[test]
fn capacity_in_grace_in_a_cluster_goes_with_it() {
    let mut world = contended();
    let pod = ended(&world, "b1");
    world.apply(Event::PodUpserted(pod));
    world.decide();
    assert!(is_known(&world, "b1"));
    world.apply(Event::ClusterGone(engine::ClusterName::from("x")));
    assert!(!is_known(&world, "b1"));
    world.wait(5).decide();
    assert!(!is_known(&world, "b1"));
}

#[test]
fn a_pod_gets_one_grace_period_only() {
    let mut world = contended();
    let pod = ended(&world, "b1");
    world.apply(Event::PodUpserted(pod.clone()));
    world.wait(5).decide();
    world.apply(Event::PodGone(pod.cluster, pod.uid));
    world.decide();
    assert!(!is_known(&world, "b1"));
}

#[test]
fn once_its_job_is_evicted_a_pod_in_grace_is_as_it_is_observed() {
    let mut world = contended();
    let pod = ended(&world, "b1");
    world.apply(Event::PodUpserted(pod.clone()));
    assert_snapshot!(world.decide(), @"");
    world.ending("b1", Reason::FailureRetried);
    // It is being deleted; then it is gone, and stays so when its grace would have ended.
    world.apply(Event::PodUpserted(pod.clone()));
    world.decide();
    world.apply(Event::PodGone(pod.cluster, pod.uid));
    world.decide();
    world.wait(5);
    world.decide();
    assert!(!is_known(&world, "b1"));
}
