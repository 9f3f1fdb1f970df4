//! Fills a cluster with tasks of the openb trace until nothing fits, and measures the GPUs that
//! remain unallocated under the engine and under four rules from the literature.
//!
//! Tasks are drawn at random with replacement, in the same sequence for each rule; a task that does
//! not fit is dropped. GPUs count in thousandths. No rule distinguishes the GPUs of one node.

use crate::baselines::{Fill, Rule};
use crate::fixture::{Chance, timed};
use crate::sheet::{Call, Goal, Sheet};
use engine::facts::{JobFact, QueueOrdering};
use engine::{Decision, Engine, EngineConfig, Event, JobKey, Time, Uid};
use sim::input::{OPENB_GPU, read_scenario};
use sim::scenario::{NO_DEADLINE_MS, Scenario};
use std::path::Path;

/// The number of task sequences.
const SEEDS: u64 = 3;
/// Tasks are drawn until they request this percentage of the cluster's GPUs.
const UNTIL_PERCENT: i64 = 130;

pub(crate) fn run(sheet: &mut Sheet, traces: Option<&Path>, quick: bool) -> Result<(), String> {
    let folder = traces.map(|traces| traces.join("openb"));
    let nodes = folder
        .as_ref()
        .map(|f| f.join("openb_node_list_all_node.csv"));
    let Some((folder, nodes)) = folder.zip(nodes).filter(|(_, nodes)| nodes.exists()) else {
        let why = "--traces DIR with openb/openb_node_list_all_node.csv is needed";
        sheet.skip("openb, filled up", why);
        return Ok(());
    };
    for pods in ["openb_pod_list_default.csv", "openb_pod_list_gpuspec33.csv"] {
        let path = folder.join(pods);
        if !path.exists() {
            sheet.skip(pods, "the file is not there");
            continue;
        }
        let read = read_scenario(&nodes, None, &path).map_err(|error| error.to_string())?;
        compare(sheet, pods, &read.what, if quick { 1 } else { SEEDS });
    }
    Ok(())
}

/// Unallocated GPUs in thousandths: when the requests reach the capacity, and at the end.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Left {
    pub(crate) at_full: i64,
    pub(crate) at_end: i64,
}

fn compare(sheet: &mut Sheet, pods: &str, scenario: &Scenario, seeds: u64) {
    let capacity = gpus(scenario.fleet.nodes.iter().map(|node| &node.allocatable));
    let mut best = [f64::INFINITY; 2];
    let mut rows: Vec<(&str, [f64; 2])> = Vec::new();
    for (name, rule) in [
        ("best fit", Some(Rule::BestFit)),
        ("dot product", Some(Rule::DotProduct)),
        ("clustering", Some(Rule::Clustering)),
        ("FGD", Some(Rule::Fgd)),
        ("Muster", None),
    ] {
        let mut sums = [0.0; 2];
        for seed in 0..seeds {
            let sequence = sequence(scenario, capacity, seed);
            let left = match rule {
                Some(rule) => Fill::new(scenario, rule).fill(&sequence, capacity),
                None => by_engine(scenario, &sequence, capacity),
            };
            for (sum, left) in sums.iter_mut().zip([left.at_full, left.at_end]) {
                *sum += left as f64 * 100.0 / capacity as f64 / seeds as f64;
            }
        }
        if rule.is_some() {
            for (best, sum) in best.iter_mut().zip(sums) {
                *best = best.min(sum);
            }
        }
        rows.push((name, sums));
    }
    for (name, [at_full, at_end]) in rows {
        let goal = if name == "Muster" {
            Goal::AtMost(best[1])
        } else {
            Goal::None
        };
        let row = format!("openb {pods}: unallocated, {name}");
        sheet.add(
            &row,
            at_end,
            "% of GPUs",
            goal,
            &[("when 100 % were asked for", at_full)],
        );
    }
}

fn gpus<'a>(all: impl Iterator<Item = &'a engine::Resources>) -> i64 {
    let name = engine::resources::ResourceName::new(OPENB_GPU);
    all.map(|resources| resources.amount_of(&name).0).sum()
}

/// Returns indices of tasks in the trace, drawn until they request enough.
fn sequence(scenario: &Scenario, capacity: i64, seed: u64) -> Vec<usize> {
    let mut chance = Chance::new(seed * 1_000_003 + 11);
    let mut asked = 0;
    let mut drawn = Vec::new();
    while asked < capacity * UNTIL_PERCENT / 100 {
        let place = chance.below(scenario.jobs.len());
        asked += asks(scenario, place);
        drawn.push(place);
    }
    drawn
}

/// Returns the GPUs that a task requests, in thousandths.
pub(crate) fn asks(scenario: &Scenario, place: usize) -> i64 {
    let roles = &scenario.jobs[place].fact.demand.roles;
    gpus(roles.iter().map(|role| &role.request))
}

fn by_engine(scenario: &Scenario, sequence: &[usize], capacity: i64) -> Left {
    let mut engine = Engine::new(EngineConfig {
        start_deadline_ms: NO_DEADLINE_MS,
        recovery_deadline_ms: None,
        ..EngineConfig::default()
    });
    for fact in &scenario.fleet.clusters {
        engine.apply(Event::ClusterUpserted(fact.clone()));
    }
    for fact in &scenario.fleet.nodes {
        engine.apply(Event::NodeUpserted(fact.clone()));
    }
    for fact in &scenario.queues.queues {
        engine.apply(Event::QueueUpserted(fact.clone()));
    }
    for fact in &scenario.queues.policies {
        let mut fact = fact.clone();
        fact.ordering = QueueOrdering::BestEffort;
        engine.apply(Event::PolicyUpserted(fact));
    }
    let mut left = Left {
        at_full: capacity,
        at_end: capacity,
    };
    let mut asked = 0;
    for (serial, place) in sequence.iter().enumerate() {
        let name = format!("task-{serial}");
        let now = Time(1_000 + serial as i64);
        let key = JobKey::new("openb", &name);
        engine.apply(Event::JobUpserted(JobFact {
            key: key.clone(),
            uid: Uid::from(name.as_str()),
            queued_at: now,
            ..scenario.jobs[*place].fact.clone()
        }));
        let (decided, _) = timed(Call::Decide, || engine.decide(now));
        assert!(!decided.cut, "jobs have each other evaluated in a circle");
        let released = |decision: &Decision| matches!(decision, Decision::Release { .. });
        if decided.decisions.iter().any(released) {
            left.at_end -= asks(scenario, *place);
        } else {
            engine.apply(Event::JobGone(key));
        }
        asked += asks(scenario, *place);
        if asked <= capacity {
            left.at_full = left.at_end;
        }
    }
    left
}
