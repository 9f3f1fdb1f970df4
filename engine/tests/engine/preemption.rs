//! Evicting from jobs of lower priority in the same queue.

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

/// A job that was released and runs since now.
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
fn the_lower_goes_and_the_higher_gets_its_place() {
    let mut world = world(1);
    runs(&mut world, "low", "low", pods(1, "gpu 4"));
    add(&mut world, "high", "high", pods(1, "gpu 4"));
    assert_snapshot!(world.decide(), @"evict low #1 for high: Preempted: preempted for ns/high, which has priority 100 in its queue; it has -100");
    assert_snapshot!(world.why("high"), @"#1 AwaitingEviction: needs 1 pod × nvidia.com/gpu 4; a has room for 0 of 1; it is next: ns/low is evicted for it, and what frees is kept for it");
    assert_snapshot!(world.why("low"), @"Preempted: preempted for ns/high, which has priority 100 in its queue; it has -100; charged until its Works are gone");
    // Decided once.
    assert_snapshot!(world.decide(), @"");
    world.works_gone("low");
    assert_snapshot!(world.decide(), @"release high #1 a(n0)");
    // At its old place, with no back-off and no failure counted.
    assert_snapshot!(world.why("low"), @"#1 Reserved: needs 1 pod × nvidia.com/gpu 4; a has room for 0 of 1; it is next: what frees is kept for it");
    world.run("high");
    world.finish("high");
    assert_snapshot!(world.decide(), @"release low #2 a(n0)");
}

#[test]
fn what_looks_cheaper_and_does_not_help_is_left_alone() {
    let mut world = world(17);
    for name in ["old-a", "old-b"] {
        runs(&mut world, name, "low", pods(1, "gpu 2"));
    }
    world.wait(100);
    // Each beside one that may not be taken: its node would still not take the whole pod.
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
fn nobody_of_the_same_priority_and_only_where_the_queue_allows_it() {
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
fn what_says_it_may_not_be_taken_is_not() {
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
fn a_protected_job_is_taken_when_its_time_has_passed() {
    let mut world = world(1);
    world.policy(preempting("q", 60_000));
    add(&mut world, "low", "low", pods(1, "gpu 4"));
    world.decide();
    add(&mut world, "high", "high", pods(1, "gpu 4"));
    // It does not even run yet: its time has not begun.
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
fn who_found_no_victims_looks_again_after_a_pause() {
    let mut world = world(1);
    runs(&mut world, "low", "low", pods(1, "gpu 2"));
    // A pod of others is in the way of the second pod.
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
fn who_found_no_victims_looks_again_where_another_cluster_takes_jobs() {
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
fn idle_room_before_eviction() {
    // Bug class 9.
    let mut world = world(2);
    runs(&mut world, "low", "low", pods(1, "gpu 4"));
    add(&mut world, "high", "high", pods(1, "gpu 4"));
    assert_snapshot!(world.decide(), @"release high #1 a(n1)");
}

#[test]
fn nothing_is_taken_where_it_would_not_fit_even_so() {
    // Bug class 9: evictions for a place that finally does not fit.
    let mut world = world(1);
    runs(&mut world, "fixed", "high", pods(1, "gpu 1"));
    runs(&mut world, "low", "low", pods(1, "gpu 3"));
    add(&mut world, "high", "high", pods(1, "gpu 4"));
    assert_snapshot!(world.decide(), @"");
    assert_eq!(world.state("low"), JobState::Assumed.max(JobState::Running));
}

#[test]
fn many_small_ones_for_a_large_one_and_not_one_more() {
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
    // Those of one node that have lost the least.
    assert_snapshot!(world.decide(), @r"
    evict small4 #1 for high: Preempted: preempted for ns/high, which has priority 100 in its queue; it has -100
    evict small5 #1 for high: Preempted: preempted for ns/high, which has priority 100 in its queue; it has -100
    evict small6 #1 for high: Preempted: preempted for ns/high, which has priority 100 in its queue; it has -100
    evict small7 #1 for high: Preempted: preempted for ns/high, which has priority 100 in its queue; it has -100
    ");
}

#[test]
fn who_loses_least_goes() {
    let mut world = world(2);
    runs(&mut world, "long", "low", pods(1, "gpu 4"));
    world.wait(1000);
    runs(&mut world, "short", "low", pods(1, "gpu 4"));
    world.wait(1000);
    let mut copy = world.engine.clone();
    add(&mut world, "high", "high", pods(1, "gpu 4"));
    assert_snapshot!(world.decide(), @"evict short #1 for high: Preempted: preempted for ns/high, which has priority 100 in its queue; it has -100");
    // One that has saved its work since loses less.
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
fn surplus_of_an_elastic_gang_before_any_whole_job() {
    let mut world = world(2);
    runs(&mut world, "elastic", "low", elastic(2, 4, "gpu 1"));
    runs(&mut world, "fresh", "low", pods(1, "gpu 4"));
    add(&mut world, "high", "high", pods(1, "gpu 2"));
    assert_snapshot!(world.decide(), @"resize elastic #1 a(n0×2)");
    assert_snapshot!(world.why("high"), @"#1 AwaitingEviction: needs 1 pod × nvidia.com/gpu 2; a has room for 0 of 1; it is next: ns/elastic is evicted for it, and what frees is kept for it");
    world.resized("elastic");
    assert_snapshot!(world.decide(), @"release high #1 a(n0)");
    assert_eq!(shrinks(&world, "elastic"), 2);
    // And grows again when there is room.
    world.run("high");
    world.finish("high");
    assert_snapshot!(world.decide(), @"resize elastic #1 a(n0×2 n0×2)");
}

#[test]
fn only_as_much_of_the_surplus_as_is_needed_and_the_whole_gang_where_that_is_not_enough() {
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
fn a_second_preemptor_counts_neither_on_what_is_promised_nor_takes_it_twice() {
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
fn if_the_preemptor_goes_away_what_was_decided_stands() {
    let mut world = world(1);
    runs(&mut world, "low", "low", pods(1, "gpu 4"));
    add(&mut world, "high", "high", pods(1, "gpu 4"));
    world.decide();
    world.apply(Event::JobGone(key("high")));
    assert_snapshot!(world.decide(), @"");
    assert_snapshot!(world.why("low"), @"Preempted: preempted for ns/high, which has priority 100 in its queue; it has -100; charged until its Works are gone");
    world.works_gone("low");
    assert_snapshot!(world.decide(), @"release low #2 a(n0)");
}

#[test]
fn a_victim_that_ends_by_itself_is_fine() {
    let mut world = world(1);
    runs(&mut world, "low", "low", pods(1, "gpu 4"));
    add(&mut world, "high", "high", pods(1, "gpu 4"));
    world.decide();
    world.drop_pods("low");
    world.apply(Event::JobGone(key("low")));
    assert_snapshot!(world.decide(), @"release high #1 a(n0)");
}

#[test]
fn what_is_ending_anyway_is_waited_for_instead() {
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
fn a_restored_engine_remembers_what_it_takes_for_whom() {
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
    assert_snapshot!(world.why("high"), @"#1 AwaitingEviction: needs 1 pod × nvidia.com/gpu 4; a has room for 0 of 1; it is next: ns/low is evicted for it, and what frees is kept for it");
    add(&mut world, "other", "normal", pods(1, "gpu 4"));
    world.works_gone("low");
    assert_snapshot!(world.decide(), @"release high #1 a(n0)");
}

#[test]
fn the_decision_says_for_whom_and_why() {
    let mut world = world(1);
    runs(&mut world, "low", "low", pods(1, "gpu 4"));
    add(&mut world, "high", "high", pods(1, "gpu 4"));
    let decided = world.decided();
    assert_snapshot!(line(&decided.decisions[0]), @"evict low #1 for high: Preempted: preempted for ns/high, which has priority 100 in its queue; it has -100");
}

#[test]
fn a_preemptor_that_moves_in_its_line_keeps_what_is_being_freed_for_it() {
    let mut world = world(1);
    runs(&mut world, "low", "low", pods(1, "gpu 4"));
    let mut preemptor = add(&mut world, "preemptor", "high", pods(1, "gpu 4"));
    world.decide();
    preemptor.priority_class = Some("normal".to_owned());
    world.apply(Event::JobUpserted(preemptor));
    add(&mut world, "ahead", "high", pods(1, "gpu 3"));
    assert_snapshot!(world.decide(), @"");
    assert_snapshot!(world.why("preemptor"), @"#2 AwaitingEviction: needs 1 pod × nvidia.com/gpu 4; a has room for 0 of 1; it is next: ns/low is evicted for it, and what frees is kept for it");
    world.works_gone("low");
    assert_snapshot!(world.decide(), @"release preemptor #1 a(n0)");
}

#[test]
fn a_preemptor_behind_one_who_wants_the_same_starts_when_its_victim_is_gone() {
    let mut world = world(1);
    runs(&mut world, "low", "low", pods(1, "gpu 4"));
    add(&mut world, "preemptor", "normal", pods(1, "gpu 4"));
    world.decide();
    add(&mut world, "ahead", "high", pods(1, "gpu 4"));
    assert_snapshot!(world.decide(), @"");
    world.works_gone("low");
    // What is freed is kept from the one ahead, too: nobody else could use it.
    assert_snapshot!(world.decide(), @"release preemptor #1 a(n0)");
}

#[test]
fn in_a_strict_queue_those_ahead_of_a_preemptor_go_before_it() {
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
    // Nobody behind it could go before it does: kept from it, the room would idle.
    assert_snapshot!(world.decide(), @"release ahead #1 a(n0)");
}
