//! Jobs that do not start: deadlines, lost capacity, back-off, avoided clusters.

use crate::elastic::elastic;
use crate::world::{World, gang, key, node, pods, policy, queue, role};
use engine::facts::{ClusterFact, NodeFact, Role};
use engine::{Attempt, ClusterName, Event, JobState, Progress, Reason, Time};
use insta::assert_snapshot;

fn two_clusters() -> World {
    let mut world = World::new();
    world
        .cluster("a", 1, "cpu 64, gpu 8")
        .cluster("b", 1, "cpu 64, gpu 8")
        .queue(queue("q"));
    world
}

fn refuse(world: &mut World, name: &str, avoid: Option<&str>) {
    let attempt = world.engine.job(&key(name)).unwrap().attempts;
    world.apply(Event::JobRefused {
        key: key(name),
        attempt,
        reason: Reason::PlanRefused,
        message: "the node is full".to_owned(),
        avoid: avoid.map(ClusterName::from),
        at: world.now,
    });
}

#[test]
fn a_gang_that_does_not_start_in_time_starts_in_another_cluster() {
    let mut world = two_clusters();
    let mut quick = policy("q");
    quick.start_deadline_ms = 60_000;
    world.policy(quick);
    world.add("job", "q", 2, "gpu 4");
    world.decide();
    let first = world.planned_pods(&key("job"))[0].clone();
    world.apply(Event::PodUpserted(first.clone()));
    world.progress("job", Progress::Placed);
    let wake = world.decided().wake_at;
    assert_eq!(wake, Some(world.now.after(60_000)));
    world.wait(59);
    assert_snapshot!(world.decide(), @"");
    world.wait(1);
    assert_snapshot!(world.decide(), @"evict job #1: StartDeadlineExceeded: 1 of the 2 pods it needs on a were running 60 s after its release");
    assert_snapshot!(world.why("job"), @"StartDeadlineExceeded: 1 of the 2 pods it needs on a were running 60 s after its release; charged until its Works are gone; its former pods in cluster a still end (1 is left)");
    assert_snapshot!(world.allocated("q"), @"nvidia.com/gpu 8, pods 2");
    world.apply(Event::PodGone(first.cluster, first.uid));
    world.works_gone("job");
    assert_snapshot!(world.decide(), @"");
    assert_snapshot!(world.why("job"), @"BackingOff: attempt 1 was evicted (StartDeadlineExceeded: 1 of the 2 pods it needs on a were running 60 s after its release); it competes again in 1 s");
    world.wait(2);
    assert_snapshot!(world.decide(), @"release job #2 b(n0×2)");
}

#[test]
fn the_minimum_of_running_pods_meets_the_deadline() {
    let mut world = two_clusters();
    let worker = Role {
        min: 1,
        ..role("worker", 2, "gpu 4")
    };
    let job = world.job("job", "q", gang(vec![worker]));
    world.submit(job);
    world.decide();
    let first = world.planned_pods(&key("job"))[0].clone();
    world.apply(Event::PodUpserted(first));
    world.progress("job", Progress::Placed);
    world.wait(601);
    assert_snapshot!(world.decide(), @"");
    // Pods that are missing then are not assumed any longer.
    world.add("next", "q", 1, "gpu 4");
    let job = world.job("big", "q", pods(1, "gpu 8"));
    world.submit(job);
    assert_snapshot!(world.decide(), @r"
    release next #1 a(n0)
    release big #1 b(n0)
    ");
}

/// A job was admitted to the node of `a`, which is not usable any more.
fn released_to_a_lost_node() -> World {
    let mut world = two_clusters();
    world.add("job", "q", 1, "gpu 8");
    world.decide();
    world.apply(Event::NodeUpserted(NodeFact {
        usable: false,
        ..node("a", "n0", "cpu 64, gpu 8")
    }));
    world
}

#[test]
fn a_job_without_capacity_is_evicted_before_its_deadline() {
    let mut world = released_to_a_lost_node();
    assert_snapshot!(world.decide(), @"");
    world.wait(10);
    assert_snapshot!(world.decide(), @"evict job #1: RoomLost: for 10 s its pods that are not bound yet have fitted on no nodes of a");
}

#[test]
fn capacity_that_returns_or_is_on_another_node_is_not_lost() {
    let mut world = two_clusters();
    world.add("job", "q", 1, "gpu 8");
    world.decide();
    let broken = NodeFact {
        usable: false,
        ..node("a", "n0", "cpu 64, gpu 8")
    };
    world.apply(Event::NodeUpserted(broken));
    world.decide();
    world.wait(5);
    world.apply(Event::NodeUpserted(node("a", "n1", "cpu 64, gpu 8")));
    world.decide();
    world.wait(60);
    assert_snapshot!(world.decide(), @"");
    assert_eq!(world.state("job"), JobState::Assumed);
}

#[test]
fn an_unusable_cluster_has_not_lost_capacity() {
    let mut world = two_clusters();
    world.add("job", "q", 1, "gpu 8");
    world.decide();
    world.apply(Event::ClusterUpserted(ClusterFact {
        usable: false,
        ..crate::world::cluster("a")
    }));
    world.apply(Event::NodeUpserted(NodeFact {
        usable: false,
        ..node("a", "n0", "cpu 64, gpu 8")
    }));
    world.decide();
    world.wait(60);
    assert_snapshot!(world.decide(), @"");
}

#[test]
fn refusals_free_at_once_and_back_off_longer_each_time() {
    let mut world = World::new();
    world.cluster("a", 1, "cpu 64, gpu 8").queue(queue("q"));
    world.add("job", "q", 1, "gpu 8");
    let mut waits = Vec::new();
    for _ in 0..5 {
        world.decide();
        assert_eq!(world.state("job"), JobState::Assumed);
        refuse(&mut world, "job", Some("a"));
        assert_eq!(world.allocated("q"), "");
        let Time(until) = world
            .engine
            .job(&key("job"))
            .unwrap()
            .back_off_until
            .unwrap();
        waits.push(((until - world.now.0) / 1000).to_string());
        world.now = Time(until);
    }
    assert_snapshot!(waits.join(" "), @"1 2 4 8 16");
    assert_eq!(world.engine.job(&key("job")).unwrap().attempts, Attempt(5));
}

#[test]
fn a_refused_cluster_is_avoided_while_another_could_take_the_job() {
    let mut world = two_clusters();
    world.add("job", "q", 1, "gpu 8");
    world.add("blocker", "q", 1, "gpu 8");
    world.decide();
    refuse(&mut world, "job", Some("a"));
    world.wait(2);
    assert_snapshot!(world.decide(), @"");
    assert_snapshot!(world.why("job"), @"#1 NextInLine: needs 1 pod × nvidia.com/gpu 8; b has room for 0 of 1; it is next: what becomes free is reserved for it");
    let ends = world.decided().wake_at.unwrap();
    world.now = Time(ends.0 - 1);
    assert_snapshot!(world.decide(), @"");
    world.now = ends;
    assert_snapshot!(world.decide(), @"release job #2 a(n0)");
}

#[test]
fn a_job_in_back_off_neither_competes_nor_has_a_reservation() {
    let mut world = World::new();
    world.cluster("a", 1, "cpu 64, gpu 8").queue(queue("q"));
    world.add("job", "q", 1, "gpu 8");
    world.decide();
    refuse(&mut world, "job", None);
    world.add("next", "q", 1, "gpu 8");
    assert_snapshot!(world.decide(), @"release next #1 a(n0)");
}

#[test]
fn a_job_that_ran_starts_its_back_off_again() {
    let mut world = World::new();
    world.cluster("a", 1, "cpu 64, gpu 8").queue(queue("q"));
    world.add("job", "q", 1, "gpu 8");
    for _ in 0..4 {
        world.decide();
        refuse(&mut world, "job", None);
        world.wait(10);
    }
    world.decide();
    world.run("job");
    world.ending("job", Reason::MemberRefused);
    world.works_gone("job");
    let until = world.engine.job(&key("job")).unwrap().back_off_until;
    assert_eq!(until, Some(world.now.after(1000)));
}

#[test]
fn a_running_job_cannot_lose_its_capacity() {
    let mut world = two_clusters();
    world.add("job", "q", 2, "gpu 4");
    world.decide();
    let first = world.planned_pods(&key("job"))[0].clone();
    world.apply(Event::PodUpserted(first));
    world.apply(Event::NodeUpserted(NodeFact {
        usable: false,
        ..node("a", "n0", "cpu 64, gpu 8")
    }));
    world.decide();
    world.progress("job", Progress::Running);
    world.wait(60);
    assert_eq!(world.decide(), "");
    assert_eq!(world.state("job"), JobState::Running);
}

#[test]
fn pods_that_are_bound_in_time_are_counted_one_by_one() {
    let mut world = two_clusters();
    world.policy(engine::facts::PolicyFact {
        start_deadline_ms: 60_000,
        recovery_deadline_ms: None,
        ..policy("q")
    });
    world.add("job", "q", 4, "gpu 2");
    world.decide();
    for pod in world.planned_pods(&key("job")).into_iter().skip(1) {
        world.apply(Event::PodUpserted(pod));
    }
    world.wait(60);
    assert_snapshot!(world.decide(), @"evict job #1: StartDeadlineExceeded: 3 of the 4 pods it needs on a were running 60 s after its release");
}

#[test]
fn an_elastic_gang_at_its_minimum_needs_all_its_pods() {
    let mut world = World::new();
    world.cluster("a", 1, "cpu 64, gpu 8").queue(queue("q"));
    let job = world.job("job", "q", elastic(2, 4, "gpu 4"));
    world.submit(job);
    assert_snapshot!(world.decide(), @"release job #1 a(n0×2)");
    let first = world.planned_pods(&key("job"))[0].clone();
    world.apply(Event::PodUpserted(first));
    world.progress("job", Progress::Placed);
    world.wait(601);
    assert_snapshot!(world.decide(), @"evict job #1: StartDeadlineExceeded: 1 of the 2 pods it needs on a were running 601 s after its release");
}

#[test]
fn capacity_that_is_free_when_the_job_is_placed_is_not_lost() {
    let mut world = released_to_a_lost_node();
    world.decide();
    world.wait(5);
    // Between two checks of assumed pods: the job still counts as stranded.
    world.progress("job", Progress::Placed);
    world.apply(Event::NodeUpserted(node("a", "n1", "cpu 64, gpu 8")));
    world.decide();
    world.wait(60);
    assert_snapshot!(world.decide(), @"");
    assert_eq!(world.state("job"), JobState::Placed);
}

#[test]
fn an_attempt_that_is_withdrawn_did_not_happen() {
    let mut world = two_clusters();
    world.add("job", "q", 1, "gpu 8");
    assert_snapshot!(world.decide(), @"release job #1 a(n0)");
    let withdrawn = Event::JobWithdrawn {
        key: key("job"),
        attempt: Attempt(1),
        at: world.now,
    };
    world.apply(withdrawn.clone());
    assert_snapshot!(world.decide(), @"");
    assert_snapshot!(world.allocated("q"), @"");
    world.wait(1);
    assert_snapshot!(world.decide(), @"release job #1 a(n0)");
    // Once it is placed, something of it was written.
    world.run("job");
    world.apply(withdrawn);
    world.decide();
    assert_eq!(world.state("job"), JobState::Running);
}
