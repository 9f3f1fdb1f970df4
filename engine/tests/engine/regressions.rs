//! The classes of bugs of other schedulers (volcano-global A1 to B2, Volcano).

use crate::world::{World, capped, gang, key, pods, queue, role};
use engine::facts::{Admission, Demand, Hold, QueueFact, QueueState, RolePods, Share};
use engine::{
    Attempt, ClusterName, Engine, EngineConfig, Event, JobState, PoolClass, Progress, QueueName,
    Reason, Time, Uid,
};
use insta::assert_snapshot;
use std::collections::BTreeMap;

fn ten() -> World {
    let mut world = World::new();
    world.cluster("a", 1, "cpu 10");
    world
}

fn record(cpu: &str, attempt: u32) -> Admission {
    Admission {
        uid: Uid::from("uid-job"),
        attempt: Attempt(attempt),
        queue: QueueName::from("q"),
        admitted_at: Time(500_000),
        declared_ms: None,
        shares: vec![Share {
            cluster: ClusterName::from("a"),
            pods: vec![RolePods {
                role: "worker".to_owned(),
                count: 1,
            }],
            charge: BTreeMap::from([(PoolClass::from("cpu"), crate::world::pod(cpu))]),
            slots: Vec::new(),
        }],
    }
}

fn admitted(cpu: &str, attempt: u32, progress: Progress) -> Event {
    Event::JobAdmitted {
        key: key("job"),
        admission: record(cpu, attempt),
        progress,
    }
}

#[test]
fn a1_queues_share_one_fleet() {
    let mut world = ten();
    world.queue(queue("a")).queue(queue("b"));
    world.add("ja", "a", 1, "cpu 10");
    world.add("jb", "b", 1, "cpu 10");
    assert_snapshot!(world.decide(), @"release ja #1 a(n0)");
}

#[test]
fn a2_a_finished_job_frees_its_quota_though_its_object_stays() {
    let mut world = ten();
    world.queue(capped("q", "cpu 10"));
    world.runs("old", "q", 1, "cpu 10");
    world.add("new", "q", 1, "cpu 1");
    assert_eq!(world.decide(), "");
    world.finish("old");
    assert_snapshot!(world.decide(), @"release new #1 a(n0)");
    world.progress("old", Progress::Running);
    assert_snapshot!(world.allocated("q"), @"cpu 11, pods 2");
}

#[test]
fn a3_all_roles_are_charged() {
    let mut world = World::new();
    world.cluster("a", 9, "cpu 64, gpu 8").queue(queue("q"));
    let job = world.job(
        "job",
        "q",
        gang(vec![
            role("ps", 1, "cpu 1"),
            role("worker", 8, "cpu 4, gpu 8"),
        ]),
    );
    world.submit(job);
    world.decide();
    assert_snapshot!(world.allocated("q"), @"cpu 33, nvidia.com/gpu 64, pods 9");
}

#[test]
fn a5_a_job_pinned_to_a_full_cluster_waits() {
    let mut world = ten();
    world.cluster("b", 1, "cpu 10").queue(queue("q"));
    world.add("old", "q", 1, "cpu 10");
    world.decide();
    let mut demand = pods(1, "cpu 10");
    demand.placement.groups = vec![engine::matching::ClusterRule {
        exclude: std::iter::once(ClusterName::from("b")).collect(),
        ..Default::default()
    }];
    let job = world.job("pinned", "q", demand);
    world.submit(job);
    assert_snapshot!(world.decide(), @"");
    assert_snapshot!(world.why("pinned"), @"#1 NextInLine: needs 1 pod × cpu 10; a has room for 0 of 1; it is next: what becomes free is reserved for it");
}

#[test]
fn a6_a_recreated_job_starts_again_and_the_first_object_stays_charged() {
    let mut world = ten();
    world.queue(queue("q"));
    world.runs("job", "q", 1, "cpu 10");
    let again = world.job("job", "q", pods(1, "cpu 5")).uid("second");
    world.submit(again);
    assert_eq!(world.decide(), "");
    assert_snapshot!(world.why("job"), @"Deleting: another object of this name took its place; charged until its Works are gone; its former pods in cluster a still end (1 is left)");
    assert_snapshot!(world.allocated("q"), @"cpu 10, pods 1");
    world.works_gone("job");
    assert_snapshot!(world.decide(), @"release job #1 a(n0)");
    // A late event of the first object's attempt does not affect the second object.
    world.apply(Event::JobAdmitted {
        key: key("job"),
        admission: world
            .engine
            .job(&key("job"))
            .unwrap()
            .admission
            .unwrap()
            .clone(),
        progress: Progress::Placed,
    });
    assert_eq!(world.state("job"), JobState::Placed);
}

#[test]
fn a_job_that_is_recreated_on_hold_waits() {
    let mut world = ten();
    world.queue(queue("q"));
    world.add("job", "q", 1, "cpu 5");
    let mut again = world.job("job", "q", pods(1, "cpu 5")).uid("second");
    again.0.hold = Some(Hold {
        reason: Reason::Suspended,
        message: "by its owner".to_owned(),
    });
    let mut fact = world.submit(again);
    assert_snapshot!(world.decide(), @"");
    assert_snapshot!(world.why("job"), @"Suspended: by its owner");
    fact.hold = None;
    world.apply(Event::JobUpserted(fact));
    assert_snapshot!(world.decide(), @"release job #1 a(n0)");
}

#[test]
fn a6_a_recreated_job_that_waited_is_evaluated_again() {
    let mut world = ten();
    world.queue(queue("q"));
    world.add("job", "q", 1, "cpu 11");
    assert_eq!(world.decide(), "");
    world.apply(Event::JobGone(key("job")));
    let again = world.job("job", "q", pods(1, "cpu 10")).uid("second");
    world.submit(again);
    assert_snapshot!(world.decide(), @"release job #1 a(n0)");
}

#[test]
fn a8_running_jobs_are_charged_before_the_first_decision_after_a_restart() {
    for job_first in [true, false] {
        let mut world = ten();
        world.queue(capped("q", "cpu 10"));
        // The template requests one CPU now; the record has nine.
        let fact = world.job("job", "q", pods(1, "cpu 1"));
        if job_first {
            world.apply(Event::JobUpserted(fact.0));
            world.apply(admitted("cpu 9", 1, Progress::Running));
        } else {
            world.apply(admitted("cpu 9", 1, Progress::Running));
            world.apply(Event::JobUpserted(fact.0));
        }
        world.add("two", "q", 1, "cpu 2");
        world.add("one", "q", 1, "cpu 1");
        assert_eq!(
            world.decide(),
            "",
            "the head lacks headroom, and it is kept for it"
        );
        assert_eq!(world.allocated("q"), "cpu 9, pods 1");
        assert_eq!(world.engine.job(&key("job")).unwrap().attempts, Attempt(1));
    }
}

#[test]
fn a8_the_pods_of_a_placed_record_are_assumed() {
    let mut world = ten();
    world.queue(queue("q"));
    world.apply(Event::JobUpserted(JobFactOf::cpu(9)));
    let mut fresh = record("cpu 9", 1);
    fresh.admitted_at = world.now;
    world.apply(Event::JobAdmitted {
        key: key("job"),
        admission: fresh,
        progress: Progress::Placed,
    });
    world.add("two", "q", 1, "cpu 2");
    assert_snapshot!(world.decide(), @"");
    assert_snapshot!(world.why("two"), @"#1 NextInLine: needs 1 pod × cpu 2; a has room for 0 of 1; it is next: what becomes free is reserved for it");
}

struct JobFactOf;

impl JobFactOf {
    fn cpu(cpu: u32) -> engine::facts::JobFact {
        let mut world = World::new();
        world.job("job", "q", pods(1, &format!("cpu {cpu}"))).0
    }
}

#[test]
fn a8_a_record_of_an_unknown_queue_is_charged_to_it() {
    let mut world = ten();
    world.apply(admitted("cpu 9", 1, Progress::Running));
    assert_snapshot!(world.allocated("q"), @"cpu 9, pods 1");
    world.queue(capped("q", "cpu 10"));
    world.add("two", "q", 1, "cpu 2");
    world.decide();
    assert_snapshot!(world.why("two"), @"#1 NextInLine: needs cpu 2; queue q may use 10 and has 9 charged: short by 1; it is next: what becomes free is reserved for it");
}

#[test]
fn a10_a_running_job_whose_class_is_gone_stays_charged() {
    let mut world = ten();
    world.queue(queue("q"));
    let job = world.job("job", "q", pods(1, "cpu 10")).priority("high");
    world.submit(job);
    world.decide();
    world.run("job");
    let waits = world.job("waits", "q", pods(1, "cpu 1")).priority("high");
    world.submit(waits);
    world.apply(Event::PriorityClassGone("high".to_owned()));
    world.decide();
    assert_snapshot!(world.allocated("q"), @"cpu 10, pods 1");
    assert_snapshot!(world.why("waits"), @"PriorityClassNotFound: priority class high does not exist; create it or name another");
}

#[test]
fn a12_an_explicit_zero_is_none() {
    let mut world = ten();
    world.queue(capped("q", "cpu 0"));
    world.add("job", "q", 1, "cpu 1");
    assert_eq!(world.decide(), "");
    assert_snapshot!(world.why("job"), @"#1 ExceedsCapability: needs cpu 1; queue q may use 0: 1 more than it may ever have");
}

#[test]
fn a16_a_closed_queue_admits_no_job_and_running_jobs_stay() {
    let mut world = ten();
    world.queue(queue("q"));
    world.add("old", "q", 1, "cpu 1");
    world.decide();
    world.queue(QueueFact {
        state: QueueState::Closed,
        ..queue("q")
    });
    world.add("new", "q", 1, "cpu 1");
    assert_eq!(world.decide(), "");
    assert_eq!(world.state("old"), JobState::Assumed);
}

#[test]
fn a18_events_of_an_earlier_attempt_are_ignored() {
    let mut world = ten();
    world.queue(queue("q"));
    world.add("job", "q", 1, "cpu 10");
    world.decide();
    world.ending("job", Reason::MemberRefused);
    world.works_gone("job");
    world.wait(1);
    world.decide();
    for event in [
        admitted("cpu 10", 1, Progress::Finished),
        Event::JobProgressed {
            key: key("job"),
            attempt: Attempt(1),
            progress: Progress::Finished,
            at: world.now,
        },
        Event::JobRefused {
            key: key("job"),
            attempt: Attempt(1),
            reason: Reason::PlanRefused,
            message: String::new(),
            avoid: None,
            at: world.now,
        },
        Event::JobWorksGone {
            key: key("job"),
            at: world.now,
        },
    ] {
        world.apply(event);
    }
    assert_eq!(world.state("job"), JobState::Assumed);
    assert_eq!(world.allocated("q"), "cpu 10, pods 1");
}

#[test]
fn b2_small_jobs_do_not_starve_a_large_one() {
    let mut world = ten();
    world.queue(queue("q"));
    world.runs("old", "q", 1, "cpu 5");
    let big = world.job("big", "q", pods(1, "cpu 8")).priority("high");
    world.submit(big);
    for index in 0..3 {
        world.add(&format!("small-{index}"), "q", 1, "cpu 2");
    }
    // Two of ten CPUs are free beside the eight reserved ones, but not while five are in use.
    assert_eq!(world.decide(), "");
    world.finish("old");
    assert_snapshot!(world.decide(), @r"
    release big #1 a(n0)
    release small-0 #1 a(n0)
    ");
}

#[test]
fn an_ending_job_stays_charged_until_its_works_are_gone() {
    let mut world = ten();
    world.queue(queue("q"));
    world.add("job", "q", 1, "cpu 10");
    world.add("next", "q", 1, "cpu 10");
    world.decide();
    world.run("job");
    world.ending("job", Reason::Suspended);
    // Its pods are gone, its Works are not.
    world.drop_pods("job");
    world.progress("job", Progress::Finished);
    assert_eq!(world.state("job"), JobState::Ending);
    assert_eq!(world.allocated("q"), "cpu 10, pods 1");
}

#[test]
fn two_gangs_of_the_whole_fleet_do_not_run_together() {
    let mut world = World::new();
    world.cluster("a", 100, "cpu 8, gpu 8").queue(queue("q"));
    world.add("one", "q", 100, "gpu 8");
    world.add("two", "q", 100, "gpu 8");
    let decided = world.decided();
    assert_eq!(decided.decisions.len(), 1);
}

#[test]
fn a_restored_engine_makes_the_same_decisions() {
    let mut world = ten();
    world.queue(capped("q", "cpu 8"));
    for index in 0..4 {
        world.add(&format!("job-{index}"), "q", 1, "cpu 3");
    }
    world.decide();
    world.run("job-0");
    let text = serde_json::to_string(&world.engine.snapshot()).unwrap();
    let snapshot = serde_json::from_str(&text).unwrap();
    let mut restored = Engine::restore(snapshot, EngineConfig::default());
    assert_eq!(restored.snapshot(), world.engine.snapshot());
    let pods = world.pods.remove(&key("job-0")).unwrap();
    for engine in [&mut world.engine, &mut restored] {
        for pod in &pods {
            engine.apply(Event::PodGone(pod.cluster.clone(), pod.uid.clone()));
        }
        engine.apply(Event::JobProgressed {
            key: key("job-0"),
            attempt: Attempt(1),
            progress: Progress::Finished,
            at: world.now,
        });
    }
    assert_eq!(world.engine.decide(world.now), restored.decide(world.now));
    assert_eq!(world.state("job-2"), JobState::Assumed);
}

#[test]
fn a_job_that_ended_and_is_removed_is_not_charged_again_and_may_be_queued_again() {
    let mut world = ten();
    world.queue(queue("q"));
    world.runs("job", "q", 1, "cpu 10");
    world.finish("job");
    world.ending("job", Reason::Suspended);
    assert_eq!(world.state("job"), JobState::Ending);
    assert_eq!(world.allocated("q"), "");
    world.works_gone("job");
    world.wait(1);
    assert_snapshot!(world.decide(), @"release job #2 a(n0)");
}

/// An owner that is ahead gets a node that another one has reserved: that one is replanned, and
/// jobs behind it get what it leaves.
#[test]
fn an_owner_is_replanned_when_one_ahead_needs_its_node() {
    let mut world = World::new();
    world.cluster("a", 2, "cpu 10").cluster("b", 1, "cpu 10");
    let mut first = queue("first");
    first.priority = 1;
    world.queue(first).queue(queue("q"));
    // 8 and 1 are free on a, 5 on b.
    for (name, cluster, cpu) in [
        ("x", "a", "cpu 9"),
        ("y", "a", "cpu 2"),
        ("z", "b", "cpu 5"),
    ] {
        let job = world.job(name, "q", only_on(cluster, pods(1, cpu)));
        world.submit(job);
        world.decide();
    }
    world.add("holder", "q", 1, "cpu 9");
    let job = world.job("small", "q", only_on("a", pods(1, "cpu 2")));
    world.submit(job);
    assert_snapshot!(world.decide(), @"");
    assert_snapshot!(world.why("small"), @"#2 ReservedForAnother: what is free is kept for ns/holder, further ahead; beside that it needs 1 pod × cpu 2; a has room for 0 of 1");
    world.add("ahead", "first", 2, "cpu 6");
    assert_snapshot!(world.decide(), @"release small #1 a(n1)");
}

fn only_on(cluster: &str, mut demand: Demand) -> Demand {
    demand.placement.groups = vec![engine::matching::ClusterRule {
        names: Some(std::iter::once(ClusterName::from(cluster)).collect()),
        ..Default::default()
    }];
    demand
}
