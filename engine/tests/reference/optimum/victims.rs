//! The victims for a gang: the least loss with which it starts in one cluster.

use super::Record;
use crate::case::Role;
use crate::world;
use engine::facts::{PodFact, PodPhase, PolicyFact, Preemption, PriorityClassFact, QueueFact};
use engine::{
    ClusterName, Decision, Engine, EngineConfig, Event, JobKey, NodeName, Progress, Reason, Time,
    Uid,
};
use good_lp::{Expression, ProblemVariables, Solution, SolverModel, Variable, constraint, microlp};
use good_lp::{ResolutionError, variable};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use std::collections::BTreeSet;

#[derive(Debug, Clone)]
struct Case {
    /// The GPUs and the cluster of each node.
    nodes: Vec<(usize, i64)>,
    running: Vec<Runs>,
    preemptor: Role,
    within_queue: bool,
}

/// A job that was started this many seconds before the preemptor was submitted.
#[derive(Debug, Clone, Copy)]
struct Runs {
    role: Role,
    class: usize,
    before: i64,
}

/// A running job in the program: its GPUs per node, and the cost of its loss.
#[derive(Debug)]
struct Victim {
    key: JobKey,
    held: Vec<i64>,
    cost: i64,
}

const CLUSTERS: usize = 2;
/// Priorities of the classes `p0`, `p1`, `p2`; the preemptor's class `top` is above them all.
const PRIORITIES: [i32; 3] = [-10, 0, 10];
const COMES_AT: i64 = 10_000;

fn case() -> impl Strategy<Value = Case> {
    let gang = |most: u32, gpus: std::ops::Range<i64>| {
        (1..=most, gpus).prop_map(|(count, gpus)| Role {
            count,
            each: [gpus, 1],
        })
    };
    let runs = (gang(3, 1..5), 0..3_usize, 1..1000_i64).prop_map(|(role, class, before)| Runs {
        role,
        class,
        before,
    });
    (
        proptest::collection::vec((0..CLUSTERS, 2..9_i64), 2..7),
        proptest::collection::vec(runs, 3..14),
        gang(4, 1..9),
        any::<bool>(),
    )
        .prop_map(|(nodes, mut running, preemptor, within_queue)| {
            running.sort_by_key(|runs| std::cmp::Reverse(runs.before));
            Case {
                nodes,
                running,
                preemptor,
                within_queue,
            }
        })
}

impl Case {
    /// The fleet, full of running jobs.
    fn engine(&self) -> (Engine, Vec<Victim>) {
        let mut engine = Engine::new(EngineConfig::default());
        let classes = PRIORITIES.into_iter().enumerate();
        let classes = classes.map(|(index, value)| (format!("p{index}"), value));
        for (name, value) in classes.chain([("top".to_owned(), 100)]) {
            engine.apply(Event::PriorityClassUpserted(PriorityClassFact {
                name,
                value,
                global_default: false,
                preempts: true,
            }));
        }
        for cluster in 0..CLUSTERS {
            engine.apply(Event::ClusterUpserted(world::cluster(&format!(
                "c{cluster}"
            ))));
        }
        for (index, (cluster, gpus)) in self.nodes.iter().enumerate() {
            let has = format!("gpu {gpus}, cpu 64");
            let fact = world::node(&format!("c{cluster}"), &format!("n{index}"), &has);
            engine.apply(Event::NodeUpserted(fact));
        }
        self.queues(&mut engine);
        let mut victims = Vec::new();
        for (index, runs) in self.running.iter().enumerate() {
            victims.extend(self.start(&mut engine, index, *runs));
        }
        self.allow_preemption(&mut engine);
        let ranks = self.ranks(&victims);
        for (victim, index) in &mut victims {
            let runs = self.running[*index];
            let lost = victim.held.iter().sum::<i64>() * runs.before;
            victim.cost = lost * (1 + ranks.range(..PRIORITIES[runs.class]).count() as i64);
        }
        (
            engine,
            victims.into_iter().map(|(victim, _)| victim).collect(),
        )
    }

    /// `q0` uses the whole fleet, all of it borrowed; the preemptor's queue deserves the fleet. Or
    /// both are one queue in which jobs of higher priority preempt.
    fn queues(&self, engine: &mut Engine) {
        engine.apply(Event::QueueUpserted(world::queue("q0")));
        let fleet: i64 = self.nodes.iter().map(|(_, gpus)| gpus).sum();
        engine.apply(Event::QueueUpserted(QueueFact {
            deserved: world::res(&format!("gpu {fleet}")),
            ..world::queue("q1")
        }));
    }

    /// Only once all run: they must not evict each other.
    fn allow_preemption(&self, engine: &mut Engine) {
        engine.apply(Event::PolicyUpserted(PolicyFact {
            preemption: Preemption {
                within_queue: true,
                ..Preemption::default()
            },
            ..world::policy("q0")
        }));
    }

    /// Starts a job if it fits, and returns what it uses then.
    fn start(&self, engine: &mut Engine, index: usize, runs: Runs) -> Option<(Victim, usize)> {
        let now = Time((COMES_AT - runs.before) * 1000);
        let name = format!("v{index:02}");
        submit(
            engine,
            &name,
            0,
            runs.role,
            &format!("p{}", runs.class),
            now,
        );
        // Jobs that do not fit are deleted.
        let decided = engine.decide(now).decisions;
        let released = decided.iter().find_map(|decision| match decision {
            Decision::Release { key, admission, .. } if *key == world::key(&name) => {
                Some(admission)
            }
            _ => None,
        });
        let Some(admission) = released else {
            engine.apply(Event::JobGone(world::key(&name)));
            return None;
        };
        let mut held = vec![0; self.nodes.len()];
        for slot in admission.shares.iter().flat_map(|share| &share.slots) {
            let node: usize = slot.node.as_str()[1..].parse().unwrap();
            held[node] += runs.role.each[0] * i64::from(slot.count);
            for pod in 0..slot.count {
                bind(
                    engine,
                    &name,
                    pod,
                    &format!("c{}", self.nodes[node].0),
                    &slot.node,
                    runs.role,
                );
            }
        }
        engine.apply(Event::JobProgressed {
            key: world::key(&name),
            attempt: admission.attempt,
            progress: Progress::Running,
            at: now,
        });
        let victim = Victim {
            key: world::key(&name),
            held,
            cost: 0,
        };
        Some((victim, index))
    }

    fn ranks(&self, victims: &[(Victim, usize)]) -> BTreeSet<i32> {
        let used = victims
            .iter()
            .map(|(_, index)| PRIORITIES[self.running[*index].class]);
        used.collect()
    }

    /// The cost of the engine's victims; `None` if it evicts none and does not start the job.
    fn chosen(&self, engine: &mut Engine, victims: &[Victim]) -> Option<i64> {
        let now = Time(COMES_AT * 1000);
        let queue = usize::from(!self.within_queue);
        submit(engine, "preemptor", queue, self.preemptor, "top", now);
        let decided = engine.decide(now).decisions;
        assert_eq!(engine.check_invariants(), Vec::<String>::new());
        if decided.is_empty() {
            return None;
        }
        let mut cost = 0;
        for decision in &decided {
            match decision {
                Decision::Release { key, .. } => assert_eq!(*key, world::key("preemptor")),
                Decision::Evict {
                    key,
                    for_job,
                    reason,
                    ..
                } => {
                    assert_eq!(*for_job, Some(world::key("preemptor")));
                    let why = if self.within_queue {
                        Reason::Preempted
                    } else {
                        Reason::Reclaimed
                    };
                    assert_eq!(*reason, why);
                    let victim = victims.iter().find(|victim| victim.key == *key);
                    cost += victim.unwrap().cost;
                }
                Decision::Resize { .. } => panic!("nothing is elastic here: {decision:?}"),
            }
        }
        if cost > 0 {
            self.starts(engine, &decided);
        }
        Some(cost)
    }

    /// Once the victims are gone the preemptor starts.
    fn starts(&self, engine: &mut Engine, decided: &[Decision]) {
        let now = Time(COMES_AT * 1000 + 1000);
        for decision in decided {
            if let Decision::Evict { key, .. } = decision {
                self.clear(engine, key);
                engine.apply(Event::JobWorksGone {
                    key: key.clone(),
                    at: now,
                });
            }
        }
        let decided = engine.decide(now).decisions;
        let preemptor = |decision: &Decision| matches!(decision, Decision::Release { key, .. } if *key == world::key("preemptor"));
        assert!(
            decided.iter().any(preemptor),
            "for nothing: {decided:?} {self:?}"
        );
    }

    /// The pods of a job are gone.
    fn clear(&self, engine: &mut Engine, key: &JobKey) {
        for (index, (cluster, _)) in self.nodes.iter().enumerate() {
            for pod in 0..4 {
                engine.apply(Event::PodGone(
                    ClusterName::from(format!("c{cluster}").as_str()),
                    Uid::from(format!("{}-n{index}-{pod}", key.name).as_str()),
                ));
            }
        }
    }

    /// The least loss with which the preemptor fits into one cluster; `None` if there is none.
    fn best(&self, victims: &[Victim]) -> Option<i64> {
        let mut all = ProblemVariables::new();
        let clusters: Vec<Variable> = (0..CLUSTERS)
            .map(|_| all.add(variable().binary()))
            .collect();
        let gone: Vec<Variable> = victims
            .iter()
            .map(|_| all.add(variable().binary()))
            .collect();
        let pods = variable().integer().min(0).max(self.preemptor.count);
        let pods: Vec<Variable> = self.nodes.iter().map(|_| all.add(pods.clone())).collect();
        let loss: Expression = gone
            .iter()
            .zip(victims)
            .map(|(gone, victim)| victim.cost as f64 * *gone)
            .sum();
        let mut model = all.minimise(loss).using(microlp);
        let taken: Expression = clusters.iter().sum();
        let placed: Expression = pods.iter().sum();
        model.add_constraint(constraint!(taken <= 1));
        model.add_constraint(constraint!(placed == self.preemptor.count));
        for (index, (cluster, gpus)) in self.nodes.iter().enumerate() {
            let count = f64::from(self.preemptor.count);
            model.add_constraint(constraint!(pods[index] <= clusters[*cluster] * count));
            let held: i64 = victims.iter().map(|victim| victim.held[index]).sum();
            let comes: Expression = gone
                .iter()
                .zip(victims)
                .map(|(gone, victim)| victim.held[index] as f64 * *gone)
                .sum();
            let free = (gpus - held) as f64;
            let each = self.preemptor.each[0] as f64;
            model.add_constraint(constraint!(each * pods[index] <= comes + free));
        }
        match model.solve() {
            Ok(solution) => {
                let lost = gone.iter().zip(victims);
                let lost = lost.filter(|(gone, _)| solution.value(**gone) > 0.5);
                Some(lost.map(|(_, victim)| victim.cost).sum())
            }
            Err(ResolutionError::Infeasible) => None,
            Err(wrong) => panic!("{wrong}: {self:?}"),
        }
    }
}

fn submit(engine: &mut Engine, name: &str, queue: usize, role: Role, class: &str, now: Time) {
    let job = crate::case::Job {
        queue,
        class: 0,
        queued_at: now.0 / 1000,
        user: 0,
        roles: vec![role],
    };
    engine.apply(Event::JobUpserted(engine::facts::JobFact {
        priority_class: Some(class.to_owned()),
        ..job.fact(name)
    }));
}

fn bind(engine: &mut Engine, name: &str, pod: u32, cluster: &str, node: &NodeName, role: Role) {
    engine.apply(Event::PodUpserted(PodFact {
        cluster: ClusterName::from(cluster),
        uid: Uid::from(format!("{name}-{node}-{pod}").as_str()),
        node: Some(node.clone()),
        request: world::pod(&crate::case::amounts_text(role.each)),
        job: Some(world::key(name)),
        phase: PodPhase::Running,
        symptom: None,
        grace_s: 0,
    }));
}

fn compare(cases: u32) {
    let mut runner = TestRunner::deterministic();
    let mut record = Record::default();
    for _ in 0..cases {
        let case = case().new_tree(&mut runner).unwrap().current();
        let (mut engine, victims) = case.engine();
        let chosen = case.chosen(&mut engine, &victims);
        record.add(chosen, case.best(&victims), &format!("{case:?}"));
    }
    record.close("victims, GPU-seconds lost by priority");
}

#[test]
fn victims_are_found_if_possible_and_cost_about_the_least() {
    compare(120);
}

#[test]
#[ignore = "the long form, for the closing note"]
fn long_victims() {
    compare(500);
}
