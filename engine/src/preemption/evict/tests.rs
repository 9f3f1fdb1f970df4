//! Victims chosen among a few candidates of each group are those chosen among all.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::capacity::testing::{demand, node, resources};
use crate::config::EngineConfig;
use crate::quota::testing::{policy, queue};
use crate::state::Engine;
use crate::testing::cluster;
use facts::{
    Attempt, ClusterName, Demand, Event, JobFact, PolicyFact, Preemption, PriorityClassFact,
    Progress, QueueFact, Uid,
};

/// Random numbers that are the same each time.
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005) + 1;
        (self.0 >> 33) % bound
    }

    fn one_in(&mut self, of: u64) -> bool {
        self.below(of) == 0
    }
}

fn job(name: &str, queue: &str, class: &str, demand: Demand) -> JobFact {
    JobFact {
        key: JobKey::new("ns", name),
        uid: Uid::from(name),
        queue: QueueName::from(queue),
        priority_class: Some(class.to_owned()),
        queued_at: Time(0),
        demand,
        hold: None,
        expected_duration_ms: Some(100_000),
        user: "ann".to_owned(),
        preemptible: true,
        checkpointed_at: None,
        images: Vec::new(),
    }
}

/// Full clusters with jobs of some sizes, priorities and ages in two queues.
fn full(chance: &mut Chance) -> (Engine, Time) {
    let mut engine = Engine::new(EngineConfig::default());
    for (name, value) in [("low", -1), ("normal", 0), ("high", 1)] {
        engine.apply(Event::PriorityClassUpserted(PriorityClassFact {
            name: name.to_owned(),
            value,
            global_default: false,
            preempts: true,
        }));
    }
    for name in ["a", "b"] {
        let name = QueueName::from(name);
        engine.apply(Event::QueueUpserted(QueueFact {
            deserved: resources("nvidia.com/gpu 60"),
            ..queue(&name, None)
        }));
        engine.apply(Event::PolicyUpserted(PolicyFact {
            preemption: Preemption {
                within_queue: true,
                min_runtime_ms: if chance.one_in(4) { 20_000 } else { 0 },
                evict_overdue: chance.one_in(2),
                ..Preemption::default()
            },
            start_deadline_ms: 1_000_000_000,
            ..policy(&name)
        }));
    }
    let clusters = if chance.one_in(2) { 2 } else { 6 };
    for at in 0..clusters {
        let name = format!("c{at}");
        engine.apply(Event::ClusterUpserted(cluster(&name)));
        for at in 0..30 / clusters {
            let mut node = node(&format!("n{at}"), "nvidia.com/gpu 8, cpu 64, pods 110");
            node.cluster = ClusterName::from(name.as_str());
            engine.apply(Event::NodeUpserted(node));
        }
    }
    let sizes = if chance.one_in(2) { 1 } else { 3 };
    let most_of_a = chance.below(3);
    let mut now = Time(1_000);
    for index in 0..240 {
        let gpus = 1 + chance.below(sizes);
        let mut demand = demand(1, &format!("nvidia.com/gpu {gpus}, cpu 1, pods 1"));
        if sizes > 1 && chance.one_in(16) {
            demand.elastic = true;
            demand.roles[0].count = 3;
        }
        let queue = if chance.below(3) < most_of_a {
            "a"
        } else {
            "b"
        };
        // No job is evicted for a later one.
        let class = if index < 80 { "normal" } else { "low" };
        let name = format!("j{index:03}");
        // So those that cost least are not on one node.
        let saved = i64::try_from(chance.below(130)).unwrap();
        engine.apply(Event::JobUpserted(JobFact {
            checkpointed_at: Some(Time(saved * 1_000)),
            ..job(&name, queue, class, demand)
        }));
        if engine.decide(now).decisions.is_empty() {
            break;
        }
        if !chance.one_in(8) {
            engine.apply(Event::JobProgressed {
                key: JobKey::new("ns", &name),
                attempt: Attempt(1),
                progress: Progress::Running,
                at: now,
            });
        }
        now = now.after(i64::try_from(chance.below(3)).unwrap() * 500);
    }
    (engine, now)
}

/// Returns the victims of a job in words; if there are none, when there may be more candidates.
fn found(engine: &Engine, key: &JobKey, listings: &[Option<usize>]) -> String {
    let inputs = engine.inputs();
    let entry = withheld::line_now(inputs, key).unwrap();
    let request = Request {
        queue: &entry.queue,
        rank: &entry.rank,
        shape: inputs.pending.shapes.get(entry.shape).unwrap(),
        verbose: false,
    };
    let mut more_at = None;
    let rights = rights(inputs, &entry.queue, key);
    let taking = find_within(inputs, request, rights, listings, &mut more_at);
    taking.map_or_else(
        || format!("none until {more_at:?}"),
        |taking| format!("{taking:?}"),
    )
}

#[test]
fn victims_among_a_few_candidates_are_those_among_all() {
    let mut chance = Chance(7);
    let (mut among_few, mut not_among_few) = (0, 0);
    for _ in 0..40 {
        let (mut engine, now) = full(&mut chance);
        let wanted = [(1, 1), (1, 4), (2, 4), (3, 2), (1, 8), (5, 1)];
        for (index, (pods, gpus)) in wanted.into_iter().enumerate() {
            let demand = demand(pods, &format!("nvidia.com/gpu {gpus}, cpu 1, pods 1"));
            let queue = if chance.one_in(2) { "a" } else { "b" };
            let name = format!("preemptor-{index}");
            engine.apply(Event::JobUpserted(job(&name, queue, "high", demand)));
            let key = JobKey::new("ns", &name);
            let all = found(&engine, &key, &[None]);
            assert_eq!(found(&engine, &key, &TIMES), all, "{name} at {now:?}");
            if !all.starts_with("none") {
                let few = found(&engine, &key, &TIMES[..1]);
                *(if few == all {
                    &mut among_few
                } else {
                    &mut not_among_few
                }) += 1;
            }
        }
    }
    // Neither way is rare.
    assert!(
        among_few > 5 && not_among_few > 5,
        "{among_few}, {not_among_few}"
    );
}
