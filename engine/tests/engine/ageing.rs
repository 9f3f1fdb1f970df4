//! Ageing: with it no job waits for ever behind jobs of higher priority, and it preempts nothing by its age.

use crate::world::{World, pods, policy, queue};
use engine::facts::{Ageing, PolicyFact, Preemption, PriorityClassFact};
use engine::{Decision, Event, Time};
use insta::assert_snapshot;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// One step raises a priority by ten after a minute: from low (-100) to high (100) in twenty minutes.
const RISES: i64 = 20 * 60;

fn ageing(every_ms: i64, raise: u32) -> PolicyFact {
    PolicyFact {
        ageing: Some(Ageing {
            every_ms,
            raise,
            classes: None,
        }),
        ..policy("q")
    }
}

/// One node of eight GPUs, and a queue.
fn world() -> World {
    let mut world = World::new();
    world.cluster("a", 1, "cpu 64, gpu 8").queue(queue("q"));
    world
}

/// Submits a job of this class that needs the whole node.
fn submit(world: &mut World, name: &str, class: &str) {
    let mut job = world.job(name, "q", pods(1, "gpu 8")).priority(class);
    job.0.queued_at = world.now;
    world.submit(job);
}

/// Decides, and returns the job that starts.
fn started(world: &mut World) -> Option<String> {
    let decided = world.decided().decisions.into_iter();
    let mut started = decided.filter_map(|decision| match decision {
        Decision::Release { key, .. } => Some(key.name.to_string()),
        _ => None,
    });
    started.next()
}

fn run_for(world: &mut World, name: &str, seconds: i64) {
    world.run(name);
    world.wait(seconds);
    world.finish(name);
}

/// Submits a low job and then, for each job that ends, two high ones. Returns when the low one starts.
fn starts_after(world: &mut World, most: i64) -> Option<i64> {
    submit(world, "first", "high");
    submit(world, "low", "low");
    let begun = world.now;
    for round in 0.. {
        let waited = world.now.millis_since(begun) / 1000;
        if waited > most {
            return None;
        }
        let name = started(world).expect("the node is free, and jobs wait");
        if name == "low" {
            return Some(waited);
        }
        run_for(world, &name, 100);
        for half in ["a", "b"] {
            submit(world, &format!("high-{round}{half}"), "high");
        }
    }
    None
}

#[test]
fn a_low_job_starts_once_it_has_risen_to_the_highest_class() {
    let mut ages = world();
    ages.policy(ageing(60_000, 10));
    assert_eq!(starts_after(&mut ages, 5_000), Some(RISES));
    assert_eq!(
        starts_after(&mut world(), 5_000),
        None,
        "without ageing it never starts"
    );
}

#[test]
fn a_rule_applies_from_when_it_is_set_until_it_is_removed() {
    let mut world = world();
    submit(&mut world, "low", "low");
    world.wait(RISES);
    submit(&mut world, "high", "high");
    world.policy(ageing(60_000, 10));
    world.policy(policy("q"));
    assert_eq!(started(&mut world).as_deref(), Some("high"));
    run_for(&mut world, "high", 1);
    submit(&mut world, "higher", "high");
    // The time before counts too.
    world.policy(ageing(60_000, 10));
    assert_eq!(started(&mut world).as_deref(), Some("low"));
}

#[test]
fn a_job_rises_only_to_the_highest_class_that_its_queue_allows() {
    let mut world = world();
    let mut rule = ageing(60_000, 10);
    let ageing = rule.ageing.as_mut().unwrap();
    ageing.classes = Some(vec!["low".to_owned(), "normal".to_owned()]);
    world.policy(rule);
    submit(&mut world, "low", "low");
    world.wait(10 * RISES);
    submit(&mut world, "high", "high");
    submit(&mut world, "normal", "normal");
    for wanted in ["high", "low", "normal"] {
        assert_eq!(started(&mut world).as_deref(), Some(wanted));
        run_for(&mut world, wanted, 1);
    }
    // A class that becomes higher counts from then on.
    submit(&mut world, "old", "low");
    world.wait(10 * RISES);
    submit(&mut world, "new", "high");
    world.apply(Event::PriorityClassUpserted(PriorityClassFact {
        name: "normal".to_owned(),
        value: 100,
        global_default: false,
        preempts: true,
    }));
    assert_eq!(started(&mut world).as_deref(), Some("old"));
}

#[test]
fn a_job_preempts_by_its_class_and_not_by_its_age() {
    let mut world = world();
    world.policy(PolicyFact {
        preemption: Preemption {
            within_queue: true,
            ..Preemption::default()
        },
        ..ageing(60_000, 10)
    });
    submit(&mut world, "runs", "normal");
    assert_eq!(started(&mut world).as_deref(), Some("runs"));
    world.run("runs");
    submit(&mut world, "aged", "low");
    world.wait(10 * RISES);
    assert_snapshot!(world.decide(), @"");
    submit(&mut world, "high", "high");
    assert_snapshot!(world.decide(), @"");
    // The aged job is ahead of it; once that is gone, the high one preempts.
    world.apply(Event::JobGone(crate::world::key("aged")));
    assert_snapshot!(world.decide(), @"evict runs #1 for high: Preempted: preempted for ns/high, which has priority 100 in its queue; it has 0");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    /// In a closed workload, in which a job is submitted for each that ends, each job starts within the time in
    /// which it rises to the highest class, and the runs of those that were queued before it and of one more.
    #[test]
    fn each_job_of_a_closed_workload_starts_within_a_bound(
        every in 5..120_i64, raise in 1..80_u32, run in 1..60_i64, pending in 1..6_usize,
        classes in proptest::collection::vec(0..8_usize, 60),
    ) {
        // Most are high, so that the others would wait for ever.
        let class = |index: usize| ["low", "normal"].get(classes[index % classes.len()]).copied().unwrap_or("high");
        let mut world = world();
        world.policy(ageing(every * 1000, raise));
        let mut submitted: BTreeMap<String, (Time, i64)> = BTreeMap::new();
        let mut submit_next = |world: &mut World| {
            let index = submitted.len();
            let name = format!("job-{index}");
            let lacks = match class(index) { "low" => 200, "normal" => 100, _ => 0_i64 };
            let rises = (lacks + i64::from(raise) - 1) / i64::from(raise) * every;
            submit(world, &name, class(index));
            submitted.insert(name, (world.now, rises));
            submitted.clone()
        };
        let mut known = BTreeMap::new();
        for _ in 0..pending {
            known = submit_next(&mut world);
        }
        for _ in 0..classes.len() {
            let name = started(&mut world).expect("the node is free, and jobs wait");
            let (since, rises) = known[&name];
            let waited = world.now.millis_since(since) / 1000;
            let bound = rises + i64::try_from(pending + 1).unwrap() * run;
            prop_assert!(waited <= bound, "{name} waited {waited} s, more than {bound} s");
            run_for(&mut world, &name, run);
            known = submit_next(&mut world);
        }
    }
}
