//! Preemption of jobs of lower priority in the same queue.

use crate::elastic::elastic;
use crate::world::{World, capped, cluster, foreign, key, line, pods, policy, queue};
use engine::facts::{ClusterFact, Demand, JobFact, PolicyFact, Preemption, PriorityClassFact};
use engine::matching::{Taint, TaintEffect};
use engine::{Event, JobState, Reason};
use insta::assert_snapshot;

pub fn preempting(name: &str, min_runtime_ms: i64) -> PolicyFact {
    PolicyFact {
        preemption: Preemption {
            within_queue: true,
            min_runtime_ms,
            ..Preemption::default()
        },
        ..policy(name)
    }
}

/// Nodes of four GPUs and a queue that allows preemption.
pub fn world(nodes: u32) -> World {
    let mut world = World::new();
    world
        .cluster("a", nodes, "cpu 64, gpu 4")
        .queue(queue("q"))
        .policy(preempting("q", 0));
    world
}

pub fn add(world: &mut World, name: &str, class: &str, demand: Demand) -> JobFact {
    let job = world.job(name, "q", demand).priority(class);
    world.submit(job)
}

/// An admitted job that runs since now.
pub fn runs(world: &mut World, name: &str, class: &str, demand: Demand) -> JobFact {
    let fact = add(world, name, class, demand);
    world.decide();
    world.run(name);
    fact
}

fn shrinks(world: &World, name: &str) -> u32 {
    let view = world.engine.job(&key(name)).unwrap();
    view.admission.unwrap().shares[0].replicas()
}

#[test]
fn a_job_of_lower_priority_is_evicted_for_one_of_higher() {
    let mut world = world(1);
    runs(&mut world, "low", "low", pods(1, "gpu 4"));
    add(&mut world, "high", "high", pods(1, "gpu 4"));
    assert_snapshot!(world.decide(), @"evict low #1 for high: Preempted: preempted for ns/high, which has priority 100 in its queue; it has -100");
    assert_snapshot!(world.why("high"), @"#1 AwaitingEviction: needs 1 pod × nvidia.com/gpu 4; a has room for 0 of 1; it is next: ns/low is evicted for it, and what becomes free is reserved for it");
    assert_snapshot!(world.why("low"), @"Preempted: preempted for ns/high, which has priority 100 in its queue; it has -100; charged until its Works are gone; its former pods in cluster a still end (1 is left)");
    // It is decided once.
    assert_snapshot!(world.decide(), @"");
    world.works_gone("low");
    assert_snapshot!(world.decide(), @"release high #1 a(n0)");
    // It is queued at its old position, without a back-off and a failure.
    assert_snapshot!(world.why("low"), @"#1 NextInLine: needs 1 pod × nvidia.com/gpu 4; a has room for 0 of 1; it is next: what becomes free is reserved for it");
    world.run("high");
    world.finish("high");
    assert_snapshot!(world.decide(), @"release low #2 a(n0)");
}

#[test]
fn a_cheaper_candidate_that_does_not_help_is_not_evicted() {
    let mut world = world(17);
    for name in ["old-a", "old-b"] {
        runs(&mut world, name, "low", pods(1, "gpu 2"));
    }
    world.wait(100);
    // Each shares its node with a job that may not be evicted, so that the pod would still not
    // fit.
    for index in 0..16 {
        runs(
            &mut world,
            &format!("stays-{index}"),
            "high",
            pods(1, "gpu 2"),
        );
        runs(&mut world, &format!("new-{index}"), "low", pods(1, "gpu 2"));
    }
    world.wait(10);
    add(&mut world, "late", "high", pods(1, "gpu 4"));
    let taken = world.decide();
    let taken: Vec<&str> = taken
        .lines()
        .filter_map(|line| line.strip_prefix("evict ")?.split(' ').next())
        .collect();
    assert_eq!(taken, ["old-a", "old-b"]);
}

#[test]
fn no_job_of_the_same_priority_is_preempted_and_none_without_the_policy() {
    let mut world = world(1);
    runs(&mut world, "first", "normal", pods(1, "gpu 4"));
    add(&mut world, "second", "normal", pods(1, "gpu 4"));
    assert_snapshot!(world.decide(), @"");
    world.policy(policy("q"));
    add(&mut world, "high", "high", pods(1, "gpu 4"));
    assert_snapshot!(world.decide(), @"");
    world.policy(preempting("q", 0));
    assert_snapshot!(world.decide(), @"evict first #1 for high: Preempted: preempted for ns/high, which has priority 100 in its queue; it has 0");
}

#[test]
fn a_class_that_never_preempts_waits() {
    let mut world = world(1);
    let polite = PriorityClassFact {
        name: "polite".to_owned(),
        value: 1000,
        global_default: false,
        preempts: false,
    };
    world.apply(Event::PriorityClassUpserted(polite.clone()));
    runs(&mut world, "low", "low", pods(1, "gpu 4"));
    add(&mut world, "high", "polite", pods(1, "gpu 4"));
    assert_snapshot!(world.decide(), @"");
    world.apply(Event::PriorityClassUpserted(PriorityClassFact {
        preempts: true,
        ..polite
    }));
    assert_snapshot!(world.decide(), @"evict low #1 for high: Preempted: preempted for ns/high, which has priority 1000 in its queue; it has -100");
}

#[test]
fn a_job_that_is_not_preemptible_is_not_evicted() {
    let mut world = world(1);
    let mut job = world.job("low", "q", pods(1, "gpu 4")).priority("low");
    job.0.preemptible = false;
    let fact = world.submit(job);
    world.decide();
    world.run("low");
    add(&mut world, "high", "high", pods(1, "gpu 4"));
    assert_snapshot!(world.decide(), @"");
    world.apply(Event::JobUpserted(JobFact {
        preemptible: true,
        ..fact
    }));
    world.wait(2);
    assert_snapshot!(world.decide(), @"evict low #1 for high: Preempted: preempted for ns/high, which has priority 100 in its queue; it has -100");
}

#[test]
fn a_protected_job_is_evicted_after_its_minimum_run_time() {
    let mut world = world(1);
    world.policy(preempting("q", 60_000));
    add(&mut world, "low", "low", pods(1, "gpu 4"));
    world.decide();
    add(&mut world, "high", "high", pods(1, "gpu 4"));
    // It does not run yet: its minimum run time has not begun.
    assert_snapshot!(world.decide(), @"");
    world.wait(10).run("low");
    world.wait(2);
    let decided = world.decided();
    assert_eq!(decided.decisions, Vec::new());
    assert_eq!(
        decided.wake_at.map(|at| at.millis_since(world.now)),
        Some(58_000)
    );
    world.wait(57);
    assert_snapshot!(world.decide(), @"");
    world.wait(1);
    assert_snapshot!(world.decide(), @"evict low #1 for high: Preempted: preempted for ns/high, which has priority 100 in its queue; it has -100");
}

#[test]
fn a_job_that_found_no_victims_tries_again_after_a_pause() {
    let mut world = world(1);
    runs(&mut world, "low", "low", pods(1, "gpu 2"));
    // A foreign pod blocks the second pod.
    world.apply(foreign("a", "n0", "gpu 2"));
    add(&mut world, "high", "high", pods(2, "gpu 2"));
    assert_snapshot!(world.decide(), @"");
    let (cluster, uid) = ("a".into(), "foreign-a-n0".into());
    world.apply(Event::PodGone(cluster, uid));
    let decided = world.decided();
    assert_eq!(decided.decisions, Vec::new());
    let pause = decided.wake_at.map(|at| at.millis_since(world.now));
    assert_eq!(pause, Some(1_000));
    world.wait(1);
    assert_snapshot!(world.decide(), @"evict low #1 for high: Preempted: preempted for ns/high, which has priority 100 in its queue; it has -100");
}

#[test]
fn a_job_that_found_no_victims_tries_again_when_a_cluster_becomes_eligible() {
    let mut world = world(1);
    runs(&mut world, "low", "low", pods(1, "gpu 4"));
    world.cluster("b", 1, "cpu 64, gpu 4");
    world.apply(foreign("b", "n0", "gpu 4"));
    let closed = ClusterFact {
        taints: vec![Taint {
            key: "closed".to_owned(),
            value: String::new(),
            effect: TaintEffect::NoSchedule,
        }],
        ..cluster("a")
    };
    world.apply(Event::ClusterUpserted(closed));
    add(&mut world, "high", "high", pods(1, "gpu 4"));
    assert_snapshot!(world.decide(), @"");
    world.apply(Event::ClusterUpserted(cluster("a")));
    world.decide();
    world.wait(1);
    assert_snapshot!(world.decide(), @"evict low #1 for high: Preempted: preempted for ns/high, which has priority 100 in its queue; it has -100");
}

#[test]
fn a_job_that_found_no_victims_tries_again_at_once_when_a_class_has_another_value() {
    let mut world = world(1);
    let class = |name: &str, value| {
        Event::PriorityClassUpserted(PriorityClassFact {
            name: name.to_owned(),
            value,
            global_default: false,
            preempts: true,
        })
    };
    world.apply(class("equal", 0));
    runs(&mut world, "runs", "normal", pods(1, "gpu 4"));
    add(&mut world, "waits", "equal", pods(1, "gpu 4"));
    assert_snapshot!(world.decide(), @"");
    // The class of the preemptor stays, and it searched a moment ago.
    world.apply(class("normal", -50));
    assert_snapshot!(world.decide(), @"evict runs #1 for waits: Preempted: preempted for ns/waits, which has priority 0 in its queue; it has -50");
}

#[test]
fn free_capacity_is_used_before_eviction() {
    // Bug class 9.
    let mut world = world(2);
    runs(&mut world, "low", "low", pods(1, "gpu 4"));
    add(&mut world, "high", "high", pods(1, "gpu 4"));
    assert_snapshot!(world.decide(), @"release high #1 a(n1)");
}

#[test]
fn no_job_is_evicted_if_the_preemptor_would_not_fit() {
    // Bug class 9: evictions for a placement that does not fit in the end.
    let mut world = world(1);
    runs(&mut world, "fixed", "high", pods(1, "gpu 1"));
    runs(&mut world, "low", "low", pods(1, "gpu 3"));
    add(&mut world, "high", "high", pods(1, "gpu 4"));
    assert_snapshot!(world.decide(), @"");
    assert_eq!(world.state("low"), JobState::Assumed.max(JobState::Running));
}

#[test]
fn many_small_jobs_are_evicted_for_a_large_one_and_not_one_more() {
    // Bug class 8.
    let mut world = world(2);
    for index in 0..8 {
        runs(
            &mut world,
            &format!("small{index}"),
            "low",
            pods(1, "gpu 1"),
        );
        world.wait(10);
    }
    add(&mut world, "high", "high", pods(1, "gpu 4"));
    // The cheapest jobs of one node.
    assert_snapshot!(world.decide(), @r"
    evict small4 #1 for high: Preempted: preempted for ns/high, which has priority 100 in its queue; it has -100
    evict small5 #1 for high: Preempted: preempted for ns/high, which has priority 100 in its queue; it has -100
    evict small6 #1 for high: Preempted: preempted for ns/high, which has priority 100 in its queue; it has -100
    evict small7 #1 for high: Preempted: preempted for ns/high, which has priority 100 in its queue; it has -100
    ");
}

#[test]
fn the_job_that_loses_least_is_evicted() {
    let mut world = world(2);
    runs(&mut world, "long", "low", pods(1, "gpu 4"));
    world.wait(1000);
    runs(&mut world, "short", "low", pods(1, "gpu 4"));
    world.wait(1000);
    let mut copy = world.engine.clone();
    add(&mut world, "high", "high", pods(1, "gpu 4"));
    assert_snapshot!(world.decide(), @"evict short #1 for high: Preempted: preempted for ns/high, which has priority 100 in its queue; it has -100");
    // A job that has saved its work since loses less.
    std::mem::swap(&mut copy, &mut world.engine);
    let mut job = world.job("long", "q", pods(1, "gpu 4")).priority("low");
    job.0.queued_at = engine::Time(1000);
    job.0.checkpointed_at = Some(world.now);
    world.submit(job);
    add(&mut world, "high", "high", pods(1, "gpu 4"));
    assert_snapshot!(world.decide(), @"evict long #1 for high: Preempted: preempted for ns/high, which has priority 100 in its queue; it has -100");
}

#[test]
fn a_higher_priority_weighs_more() {
    let mut world = world(2);
    runs(&mut world, "normal", "normal", pods(1, "gpu 4"));
    world.wait(100);
    runs(&mut world, "low", "low", pods(1, "gpu 4"));
    world.wait(150);
    // 250 s of the one count twice, 150 s of the other once.
    add(&mut world, "high", "high", pods(1, "gpu 4"));
    assert_snapshot!(world.decide(), @"evict low #1 for high: Preempted: preempted for ns/high, which has priority 100 in its queue; it has -100");
}

#[test]
fn the_surplus_of_an_elastic_gang_is_evicted_before_any_whole_job() {
    let mut world = world(2);
    runs(&mut world, "elastic", "low", elastic(2, 4, "gpu 1"));
    runs(&mut world, "fresh", "low", pods(1, "gpu 4"));
    add(&mut world, "high", "high", pods(1, "gpu 2"));
    assert_snapshot!(world.decide(), @"resize elastic #1 a(n0×2)");
    assert_snapshot!(world.why("high"), @"#1 AwaitingEviction: needs 1 pod × nvidia.com/gpu 2; a has room for 0 of 1; it is next: ns/elastic is evicted for it, and what becomes free is reserved for it");
    world.resized("elastic");
    assert_snapshot!(world.decide(), @"release high #1 a(n0)");
    assert_eq!(shrinks(&world, "elastic"), 2);
    // It scales up again when there is capacity.
    world.run("high");
    world.finish("high");
    assert_snapshot!(world.decide(), @"resize elastic #1 a(n0×2 n0×2)");
}

#[test]
fn only_the_needed_surplus_is_evicted_or_the_whole_gang() {
    let mut world = world(1);
    runs(&mut world, "elastic", "low", elastic(1, 4, "gpu 1"));
    let copy = world.engine.clone();
    add(&mut world, "high", "high", pods(1, "gpu 1"));
    assert_snapshot!(world.decide(), @"resize elastic #1 a(n0×3)");
    world.engine = copy;
    add(&mut world, "high", "high", pods(1, "gpu 4"));
    assert_snapshot!(world.decide(), @"evict elastic #1 for high: Preempted: preempted for ns/high, which has priority 100 in its queue; it has -100");
}

#[test]
fn quota_is_freed_too() {
    let mut world = world(4);
    world.queue(capped("q", "gpu 4"));
    runs(&mut world, "low", "low", pods(1, "gpu 4"));
    add(&mut world, "high", "high", pods(1, "gpu 2"));
    assert_snapshot!(world.decide(), @"evict low #1 for high: Preempted: preempted for ns/high, which has priority 100 in its queue; it has -100");
    world.works_gone("low");
    assert_snapshot!(world.decide(), @"release high #1 a(n0)");
}

#[test]
fn a_second_preemptor_neither_uses_nor_repeats_pending_evictions() {
    let mut world = world(2);
    runs(&mut world, "low1", "low", pods(1, "gpu 4"));
    runs(&mut world, "low2", "low", pods(1, "gpu 4"));
    add(&mut world, "high1", "high", pods(1, "gpu 4"));
    assert_snapshot!(world.decide(), @"evict low1 #1 for high1: Preempted: preempted for ns/high1, which has priority 100 in its queue; it has -100");
    add(&mut world, "high2", "high", pods(1, "gpu 4"));
    assert_snapshot!(world.decide(), @"evict low2 #1 for high2: Preempted: preempted for ns/high2, which has priority 100 in its queue; it has -100");
    add(&mut world, "high3", "high", pods(1, "gpu 4"));
    assert_snapshot!(world.decide(), @"");
    world.works_gone("low1");
    world.works_gone("low2");
    assert_snapshot!(world.decide(), @r"
    release high1 #1 a(n0)
    release high2 #1 a(n1)
    ");
}

#[test]
fn evictions_continue_if_the_preemptor_goes() {
    let mut world = world(1);
    runs(&mut world, "low", "low", pods(1, "gpu 4"));
    add(&mut world, "high", "high", pods(1, "gpu 4"));
    world.decide();
    world.apply(Event::JobGone(key("high")));
    assert_snapshot!(world.decide(), @"");
    assert_snapshot!(world.why("low"), @"Preempted: preempted for ns/high, which has priority 100 in its queue; it has -100; charged until its Works are gone; its former pods in cluster a still end (1 is left)");
    world.works_gone("low");
    assert_snapshot!(world.decide(), @"release low #2 a(n0)");
}

#[test]
fn a_victim_may_end_by_itself() {
    let mut world = world(1);
    runs(&mut world, "low", "low", pods(1, "gpu 4"));
    add(&mut world, "high", "high", pods(1, "gpu 4"));
    world.decide();
    world.drop_pods("low");
    world.apply(Event::JobGone(key("low")));
    assert_snapshot!(world.decide(), @"release high #1 a(n0)");
}

#[test]
fn a_preemptor_waits_for_jobs_that_are_ending_anyway() {
    let mut world = world(2);
    runs(&mut world, "one", "low", pods(1, "gpu 4"));
    runs(&mut world, "two", "low", pods(1, "gpu 4"));
    world.ending("one", Reason::Suspended);
    add(&mut world, "high", "high", pods(1, "gpu 4"));
    assert_snapshot!(world.decide(), @"");
    world.works_gone("one");
    assert_snapshot!(world.decide(), @"release high #1 a(n0)");
}

#[test]
fn pending_evictions_survive_a_restart() {
    let mut world = world(1);
    runs(&mut world, "low", "low", pods(1, "gpu 4"));
    add(&mut world, "high", "high", pods(1, "gpu 4"));
    world.decide();
    let snapshot = serde_json::to_string(&world.engine.snapshot()).unwrap();
    world.engine = engine::Engine::restore(
        serde_json::from_str(&snapshot).unwrap(),
        engine::EngineConfig::default(),
    );
    assert_snapshot!(world.decide(), @"");
    assert_snapshot!(world.why("high"), @"#1 AwaitingEviction: needs 1 pod × nvidia.com/gpu 4; a has room for 0 of 1; it is next: ns/low is evicted for it, and what becomes free is reserved for it");
    add(&mut world, "other", "normal", pods(1, "gpu 4"));
    world.works_gone("low");
    assert_snapshot!(world.decide(), @"release high #1 a(n0)");
}

#[test]
fn an_eviction_names_the_preemptor_and_the_reason() {
    let mut world = world(1);
    runs(&mut world, "low", "low", pods(1, "gpu 4"));
    add(&mut world, "high", "high", pods(1, "gpu 4"));
    let decided = world.decided();
    assert_snapshot!(line(&decided.decisions[0]), @"evict low #1 for high: Preempted: preempted for ns/high, which has priority 100 in its queue; it has -100");
}

#[test]
fn a_preemptor_with_another_priority_keeps_its_reservation() {
    let mut world = world(1);
    runs(&mut world, "low", "low", pods(1, "gpu 4"));
    let mut preemptor = add(&mut world, "preemptor", "high", pods(1, "gpu 4"));
    world.decide();
    preemptor.priority_class = Some("normal".to_owned());
    world.apply(Event::JobUpserted(preemptor));
    add(&mut world, "ahead", "high", pods(1, "gpu 3"));
    assert_snapshot!(world.decide(), @"");
    assert_snapshot!(world.why("preemptor"), @"#2 AwaitingEviction: needs 1 pod × nvidia.com/gpu 4; a has room for 0 of 1; it is next: ns/low is evicted for it, and what becomes free is reserved for it");
    world.works_gone("low");
    assert_snapshot!(world.decide(), @"release preemptor #1 a(n0)");
}

#[test]
fn a_preemptor_behind_a_job_with_the_same_shape_starts_when_its_victim_is_gone() {
    let mut world = world(1);
    runs(&mut world, "low", "low", pods(1, "gpu 4"));
    add(&mut world, "preemptor", "normal", pods(1, "gpu 4"));
    world.decide();
    add(&mut world, "ahead", "high", pods(1, "gpu 4"));
    assert_snapshot!(world.decide(), @"");
    world.works_gone("low");
    // The freed capacity is withheld from the job ahead, too: no other job could use it.
    assert_snapshot!(world.decide(), @"release preemptor #1 a(n0)");
}

#[test]
fn in_a_strict_queue_jobs_ahead_of_a_preemptor_start_before_it() {
    let mut world = world(1);
    world.policy(PolicyFact {
        ordering: engine::facts::QueueOrdering::StrictFifo,
        ..preempting("q", 0)
    });
    runs(&mut world, "low", "low", pods(1, "gpu 4"));
    add(&mut world, "preemptor", "normal", pods(1, "gpu 4"));
    world.decide();
    add(&mut world, "ahead", "high", pods(1, "gpu 3"));
    assert_snapshot!(world.decide(), @"");
    world.works_gone("low");
    // No job behind it could start before it: if it were withheld, the capacity would idle.
    assert_snapshot!(world.decide(), @"release ahead #1 a(n0)");
}

#[test]
fn a_job_that_is_gone_once_more_does_not_move_the_clock() {
    let mut world = world(1);
    runs(&mut world, "low", "low", pods(1, "gpu 4"));
    add(&mut world, "high", "high", pods(1, "gpu 4"));
    world.decide();
    world.works_gone("low");
    assert_snapshot!(world.decide(), @"release high #1 a(n0)");
    world.run("high");
    world.wait(60);
    world.finish("high");
    assert_snapshot!(world.decide(), @"release low #2 a(n0)");
    let now = |world: &World| serde_json::to_value(world.engine.snapshot()).unwrap()["now"].clone();
    let before = now(&world);
    world.apply(Event::JobGone(key("nobody")));
    assert_eq!(now(&world), before);
    // An end that gives something back comes after the admission.
    world.finish("low");
    assert_ne!(now(&world), before);
}
