//! The engine against the reference: the same order, the same admissions, the same numbers.

use crate::case::{
    CLUSTERS, CPU, Case, GPU, Job, Node, Queue, Role, Round, amounts, amounts_text, bounds,
    job_name, job_number, priority_classes, progress, queue_name,
};
use crate::model::{Model, State};
use crate::{random, world};
use engine::facts::{PodFact, PodPhase};
use engine::{
    ClusterName, Decision, Engine, EngineConfig, Event, NodeName, Progress, QueueName, Time, Uid,
};
use proptest::prelude::*;

/// The engine and the reference, with the same facts.
struct Both {
    case: Case,
    engine: Engine,
    model: Model,
    now: Time,
}

impl Both {
    fn new(case: &Case) -> Self {
        let mut both = Self {
            case: case.clone(),
            engine: Engine::new(EngineConfig::default()),
            model: Model::new(case),
            now: Time(1_000_000),
        };
        priority_classes().for_each(|class| both.apply(class));
        for name in CLUSTERS {
            both.apply(Event::ClusterUpserted(world::cluster(name)));
        }
        for (index, node) in case.nodes.iter().enumerate() {
            both.apply(Event::NodeUpserted(node.fact(index, true)));
        }
        for (index, queue) in case.queues.iter().enumerate() {
            both.apply(Event::QueueUpserted(queue.fact(index)));
            both.apply(Event::PolicyUpserted(queue.policy(index)));
        }
        both
    }

    fn apply(&mut self, event: Event) {
        self.engine.apply(event);
    }

    fn round(&mut self, round: &Round) -> Result<(), String> {
        self.now = self.now.after(1000);
        for pick in &round.finish {
            let running = self.model.running();
            if !running.is_empty() {
                self.finish(running[pick % running.len()]);
            }
        }
        if let Some((node, usable)) = round.node {
            self.model.set_usable(node, usable);
            let fact = self.case.nodes[node].fact(node, usable);
            self.apply(Event::NodeUpserted(fact));
        }
        if let Some((queue, gpus)) = round.capability {
            self.model.queues[queue].capability[0] = gpus;
            let fact = self.model.queues[queue].fact(queue);
            self.apply(Event::QueueUpserted(fact));
        }
        for job in &round.submit {
            let name = job_name(self.model.jobs.len());
            self.apply(Event::JobUpserted(job.fact(&name)));
            self.model.submit(job.clone());
        }
        self.decide()?;
        self.same_numbers()
    }

    fn finish(&mut self, job: usize) {
        self.bind(job, false);
        self.model.finish(job);
        self.progress(job, Progress::Finished);
    }

    /// Binds the pods of a job as planned, or removes them.
    fn bind(&mut self, job: usize, there: bool) {
        let key = world::key(&job_name(job));
        for (index, (node, role)) in self.model.assumed(job).into_iter().enumerate() {
            let fact = &self.case.nodes[node];
            let pod = PodFact {
                cluster: ClusterName::from(CLUSTERS[fact.cluster]),
                uid: Uid::from(format!("{}-{index}", key.name).as_str()),
                node: Some(NodeName::from(format!("n{node}").as_str())),
                request: world::pod(&amounts_text(role.each)),
                job: Some(key.clone()),
                phase: PodPhase::Running,
                symptom: None,
                grace_s: 0,
            };
            self.apply(if there {
                Event::PodUpserted(pod)
            } else {
                Event::PodGone(pod.cluster, pod.uid)
            });
        }
    }

    fn progress(&mut self, job: usize, of: Progress) {
        progress(&mut self.engine, job, of, self.now);
    }

    /// Decides until nothing changes; each admission must be the one of the reference.
    fn decide(&mut self) -> Result<(), String> {
        loop {
            let decided = self.engine.decide(self.now);
            for decision in decided.decisions {
                let Decision::Release {
                    key,
                    admission,
                    message,
                } = decision
                else {
                    return Err(format!("nothing but releases was expected: {decision:?}"));
                };
                let expected = self.model.next().map(job_name);
                if expected.as_deref() != Some(&*key.name) {
                    let expected = expected.unwrap_or_else(|| "nobody".to_owned());
                    return Err(format!("{key} goes ({message}), expected {expected}"));
                }
                let job = job_number(&key.name);
                self.model.release(job, &admission)?;
                self.bind(job, true);
                self.progress(job, Progress::Running);
            }
            if !decided.more {
                break;
            }
        }
        let Some(left) = self.model.next() else {
            return Ok(());
        };
        let why = self.engine.explain(&world::key(&job_name(left)));
        Err(format!("{} stays: {why:?}", job_name(left)))
    }

    /// Compares the engine's usage of each queue with the reference's.
    fn same_numbers(&self) -> Result<(), String> {
        let wrong = self.engine.check_invariants();
        same("invariants", &wrong, &Vec::new())?;
        self.model.with_tree(|tree| {
            for queue in 0..self.case.queues.len() {
                let name = queue_name(queue);
                let usage = self.engine.queue_usage(&QueueName::from(name.as_str()));
                let usage = usage.ok_or_else(|| format!("{name} is not known"))?;
                let deserved = tree.deserved(queue);
                let held = tree.allocated[queue];
                let borrowed: [i64; 2] =
                    std::array::from_fn(|dim| (held[dim] - tree.not_borrowed(queue, dim)).max(0));
                let real = std::array::from_fn(|dim| tree.real(queue, dim));
                let waiting = self.model.sum(queue, State::Waits);
                same(
                    &format!("{name} allocated"),
                    &amounts(&usage.allocated),
                    &held,
                )?;
                same(
                    &format!("{name} pending"),
                    &amounts(&usage.pending),
                    &waiting,
                )?;
                same(
                    &format!("{name} real capability"),
                    &bounds(&usage.real_capability),
                    &real,
                )?;
                same(
                    &format!("{name} deserved"),
                    &bounds(&usage.deserved),
                    &deserved,
                )?;
                let of_class = usage.pools.first().map(|pool| bounds(&pool.deserved)[GPU]);
                let stated = self.model.queues[queue].deserved_of_class;
                if stated.is_some() {
                    same(
                        &format!("{name} deserved of class gpu"),
                        &of_class.flatten(),
                        &tree.deserved_of_class(queue),
                    )?;
                }
                same(
                    &format!("{name} borrowed"),
                    &amounts(&usage.borrowed),
                    &borrowed,
                )?;
            }
            Ok(())
        })
    }
}

fn same<T: PartialEq + std::fmt::Debug>(
    what: &str,
    engine: &T,
    reference: &T,
) -> Result<(), String> {
    if engine == reference {
        return Ok(());
    }
    Err(format!(
        "{what}: the engine says {engine:?}, the reference {reference:?}"
    ))
}

fn agree(case: &Case) -> Result<(), String> {
    let mut both = Both::new(case);
    for round in &case.rounds {
        both.round(round)?;
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: crate::cases(300),
        max_shrink_iters: 20_000,
        ..ProptestConfig::default()
    })]

    #[test]
    fn order_admissions_and_shares_are_those_of_the_reference(case in random::case()) {
        agree(&case).map_err(TestCaseError::fail)?;
    }
}

/// The head of a strict queue waits for quota. Then the only node that it fits on is lost: it can
/// never start, and no longer stops the job behind it.
#[test]
fn a_head_that_no_longer_fits_the_fleet_stops_nobody() {
    let role = |count, gpus| Role {
        count,
        each: [gpus, 1],
    };
    let job = |queued_at, roles: &[Role]| Job {
        queue: 0,
        class: 0,
        queued_at,
        user: 0,
        roles: roles.to_vec(),
    };
    let node = |gpus, cores| Node {
        cluster: 0,
        big: false,
        has: [gpus, cores],
    };
    let case = Case {
        queues: vec![Queue {
            weight: 1,
            strict: true,
            capability: [Some(5), None],
            ..Queue::default()
        }],
        nodes: vec![node(1, 3), node(3, 6)],
        rounds: vec![
            Round {
                submit: vec![job(0, &[role(1, 2), role(2, 1)]), job(3, &[role(1, 2)])],
                ..Round::default()
            },
            Round {
                submit: vec![job(3, &[role(1, 0)])],
                node: Some((1, false)),
                ..Round::default()
            },
        ],
    };
    agree(&case).unwrap();
}

/// A queue that uses all that it deserves of a class, and the CPU of that, borrows nothing: its next job goes before
/// the older one of an idle queue that deserves nothing.
#[test]
fn a_queue_that_uses_what_it_deserves_of_a_class_borrows_no_cpu() {
    let job = |queue, queued_at| Job {
        queue,
        class: 0,
        queued_at,
        user: 0,
        roles: vec![Role {
            count: 1,
            each: [1, 1],
        }],
    };
    let queue = |deserved_of_class| Queue {
        weight: 1,
        deserved_of_class,
        ..Queue::default()
    };
    let node = Node {
        cluster: 0,
        big: false,
        has: [4, 8],
    };
    let round = |submit| Round {
        submit,
        ..Round::default()
    };
    let case = Case {
        queues: vec![queue(Some(2)), queue(None)],
        nodes: vec![node],
        rounds: vec![
            round(vec![job(0, 1), job(0, 1)]),
            round(vec![job(1, 2), job(0, 3)]),
        ],
    };
    agree(&case).unwrap();
}

/// The reference would agree with an engine that admits nothing if no case admitted anything.
#[test]
fn the_random_cases_do_admit_and_do_block() {
    use proptest::strategy::ValueTree;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let (mut released, mut blocked, mut borrowed, mut below) = (0, 0, 0, 0);
    for _ in 0..50 {
        let case = random::case().new_tree(&mut runner).unwrap().current();
        let mut both = Both::new(&case);
        for round in &case.rounds {
            if both.round(round).is_err() {
                break;
            }
            released += both.model.running().len();
            let waits = |entry: &&crate::model::Entry| entry.state == State::Waits;
            blocked += both.model.jobs.iter().filter(waits).count();
            borrowed += both.model.with_tree(|tree| {
                let over = |queue: &usize| tree.allocated[*queue][CPU] > 0;
                (0..tree.queues.len()).filter(over).count()
            });
            below += both.model.with_tree(|tree| {
                let is_below = |queue: &usize| {
                    let deserved = tree.deserved_of_class(*queue);
                    let waits = both.model.sum(*queue, State::Waits)[GPU] > 0;
                    waits && deserved.is_some_and(|deserved| tree.of_class[*queue] < deserved)
                };
                (0..tree.queues.len()).filter(is_below).count()
            });
        }
    }
    assert!(
        released > 100 && blocked > 100 && borrowed > 50 && below > 30,
        "{released} {blocked} {borrowed} {below}"
    );
}
