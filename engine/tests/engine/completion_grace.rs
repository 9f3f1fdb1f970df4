//! Pods that have ended before their job is seen to have: their room waits for the charge.

use crate::world::{World, deserving, key};
use engine::Event;
use engine::facts::{PodFact, PodPhase};
use insta::assert_snapshot;

/// Two nodes of eight GPUs; `a` and `b` deserve half each, hold it, and have more to run. What
/// waits in `a` has waited longer.
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

/// Whether anything is still known of the pod of a job.
fn is_known(world: &World, name: &str) -> bool {
    let snapshot = serde_json::to_value(world.engine.snapshot()).unwrap();
    let uid = world.planned_pods(&key(name))[0].uid.to_string();
    // A list that is empty is left out.
    let lists = ["pods", "completion_grace"].into_iter();
    let mut pods = lists.flat_map(|list| snapshot[list].as_array().into_iter().flatten());
    pods.any(|pod| pod.to_string().contains(&uid))
}

#[test]
fn room_is_not_given_to_who_would_have_to_give_it_back_at_once() {
    let mut world = contended();
    // The member shows that the pod of b1 has ended, and nobody yet that b1 has.
    let pod = ended(&world, "b1");
    world.apply(Event::PodUpserted(pod));
    assert_snapshot!(world.decide(), @"");
    world.wait(1);
    world.finish("b1");
    // It is b that has less than it deserves now. Nobody is evicted.
    assert_snapshot!(world.decide(), @"release b3 #1 x(n0)");
}

#[test]
fn room_does_not_wait_for_long() {
    let mut world = contended();
    let pod = ended(&world, "b1");
    world.apply(Event::PodUpserted(pod));
    let wake = world.decided().wake_at.unwrap();
    assert_eq!(wake.millis_since(world.now), 5_000);
    // Another pod of b1 may run on for hours: what this one had is of use meanwhile.
    world.wait(5);
    assert_snapshot!(world.decide(), @"release a3 #1 x(n0)");
}

#[test]
fn room_is_for_a_new_pod_of_the_same_job() {
    let mut world = contended();
    let pod = ended(&world, "b1");
    world.apply(Event::PodUpserted(pod.clone()));
    let again = PodFact {
        uid: "again".into(),
        phase: PodPhase::Active,
        ..pod
    };
    world.apply(Event::PodUpserted(again));
    let used = &world.engine.pools()[0].used;
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
fn what_is_gone_is_no_more_in_the_end() {
    let mut world = contended();
    let pod = ended(&world, "b1");
    world.apply(Event::PodUpserted(pod.clone()));
    world.apply(Event::PodGone(pod.cluster, pod.uid));
    assert_snapshot!(world.decide(), @"");
    world.wait(5);
    assert_snapshot!(world.decide(), @"release a3 #1 x(n0)");
    let used = &world.engine.pools()[0].used;
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
    let used = |world: &World| world.engine.pools()[0].used.to_string();
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
fn what_has_kept_its_room_for_long_does_not_linger_again_when_it_is_gone() {
    let mut world = contended();
    let pod = ended(&world, "b1");
    world.apply(Event::PodUpserted(pod.clone()));
    world.wait(5).decide();
    world.apply(Event::PodGone(pod.cluster, pod.uid));
    world.decide();
    assert!(!is_known(&world, "b1"));
}
