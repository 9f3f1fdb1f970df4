//! Reclaim between queues, and preemption inside one: the engine's victims, compared with every set
//! that the rules allow ([`rules`]).
//!
//! The queues are siblings, or some are below another; jobs request GPUs, as gangs in one cluster.
//! All queues are BestEffort, so that only preemptors have reservations. Members carry out
//! decisions at once.

mod random;
mod rules;

use crate::case::CLUSTERS as NAMES;
use crate::case::{Queue as Stated, job_name, job_number, queue_name};
use crate::world::{World, cluster, node, pods, policy};
use engine::facts::{
    Admission, PolicyFact, Preemption, PriorityClassFact, QueueFact, QueueOrdering,
};
use engine::{Decision, Decisions, Event, JobState, Reason};
use proptest::prelude::*;
use random::{case, inside};
use rules::{Entry, Rules, Runs};
use std::collections::{BTreeMap, BTreeSet};

const CLUSTERS: usize = 2;
const CORES: i64 = 64;
/// The most calls of `decide` until nothing is decided.
const CALLS: usize = 200;

#[derive(Debug, Clone)]
pub struct Case {
    /// True if jobs preempt lower priority in their own queue (`preemption.withinQueue`) and
    /// reclaim from no other; else the reverse.
    within: bool,
    queues: Vec<Queue>,
    /// The cluster of each node, and its GPUs.
    nodes: Vec<(usize, i64)>,
    rounds: Vec<Round>,
}

/// A queue, by GPUs.
#[derive(Debug, Clone)]
struct Queue {
    parent: Option<usize>,
    deserved: Option<i64>,
    guarantee: i64,
    reclaimable: bool,
    reclaims: bool,
    /// Seconds.
    min_runtime: i64,
}

#[derive(Debug, Clone)]
struct Round {
    finish: Option<usize>,
    submit: Vec<Job>,
    /// The seconds that pass before.
    wait: i64,
}

#[derive(Debug, Clone)]
pub struct Job {
    queue: usize,
    count: u32,
    gpus: i64,
    class: Class,
    preemptible: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    Low,
    High,
    /// `preemptionPolicy: Never`.
    Never,
}

impl Class {
    fn name(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::High => "high",
            Self::Never => "never",
        }
    }

    /// The values of the classes: those of [`World`], and zero for the one that never preempts.
    fn priority(self) -> i32 {
        match self {
            Self::Low => -100,
            Self::High => 100,
            Self::Never => 0,
        }
    }

    fn preempts(self) -> bool {
        self != Self::Never
    }
}

impl Queue {
    fn stated(&self) -> Stated {
        Stated {
            parent: self.parent,
            weight: 1,
            guarantee: [Some(self.guarantee).filter(|gpus| *gpus > 0), None],
            deserved: [self.deserved, None],
            ..Stated::default()
        }
    }

    fn fact(&self, index: usize) -> QueueFact {
        QueueFact {
            reclaimable: self.reclaimable,
            ..self.stated().fact(index)
        }
    }

    fn policy(&self, index: usize, within: bool) -> PolicyFact {
        PolicyFact {
            ordering: QueueOrdering::BestEffort,
            preemption: Preemption {
                within_queue: within && self.reclaims,
                reclaim: !within && self.reclaims,
                min_runtime_ms: self.min_runtime * 1000,
                ..Preemption::default()
            },
            ..policy(&queue_name(index))
        }
    }
}

/// The jobs that are evicted at once, by preemptor.
type Takes = BTreeMap<usize, Vec<usize>>;

/// The engine and the reference, with the same facts.
struct Both<'a> {
    world: World,
    rules: Rules<'a>,
    /// The evictions: the victim and the preemptor.
    taken: Vec<(usize, usize)>,
}

impl<'a> Both<'a> {
    fn new(case: &'a Case) -> Self {
        let mut world = World::new();
        world.apply(Event::PriorityClassUpserted(PriorityClassFact {
            name: "never".to_owned(),
            value: 0,
            global_default: false,
            preempts: false,
        }));
        for name in &NAMES[..CLUSTERS] {
            world.apply(Event::ClusterUpserted(cluster(name)));
        }
        for (index, (at, gpus)) in case.nodes.iter().enumerate() {
            let has = format!("gpu {gpus}, cpu {CORES}");
            let fact = node(NAMES[*at], &format!("n{index}"), &has);
            world.apply(Event::NodeUpserted(fact));
        }
        for (index, queue) in case.queues.iter().enumerate() {
            let policy = queue.policy(index, case.within);
            world.queue(queue.fact(index)).policy(policy);
        }
        Self {
            world,
            rules: Rules::new(case),
            taken: Vec::new(),
        }
    }

    fn round(&mut self, round: &Round) -> Result<(), String> {
        self.world.wait(round.wait);
        // What comes up now comes up after all admissions so far.
        self.world.now = self.world.now.after(1);
        let running: Vec<usize> = self.jobs(true);
        if let Some(pick) = round.finish.filter(|_| !running.is_empty()) {
            let job = running[pick % running.len()];
            self.world.finish(&job_name(job));
            self.rules.note_end(job, self.world.now.0);
            // It stays in the list of jobs, uses nothing, and requests nothing any more.
            self.rules.jobs[job].runs = None;
        }
        for job in &round.submit {
            let name = job_name(self.rules.jobs.len());
            let demand = pods(job.count, &format!("gpu {}, cpu 1", job.gpus));
            let queue = queue_name(job.queue);
            let mut submitted = self.world.job(&name, &queue, demand);
            submitted.0.preemptible = job.preemptible;
            submitted.0.queued_at = self.world.now;
            self.world.submit(submitted.priority(job.class.name()));
            self.rules.jobs.push(Entry {
                job: job.clone(),
                queued: self.world.now.0,
                gave_way_to: None,
                runs: None,
            });
        }
        self.settle()?;
        self.nobody_is_left()
    }

    /// The running jobs, or the pending ones.
    fn jobs(&self, running: bool) -> Vec<usize> {
        let all = 0..self.rules.jobs.len();
        let waits = |job: &usize| self.world.state(&job_name(*job)) == JobState::Queued;
        all.filter(|job| match running {
            true => self.rules.jobs[*job].runs.is_some(),
            false => waits(job),
        })
        .collect()
    }

    /// Carries out decisions until there are none; each reclaim must be valid, and preemptors whose
    /// victims are gone must start.
    fn settle(&mut self) -> Result<(), String> {
        let before = self.taken.len();
        let mut served: BTreeSet<usize> = BTreeSet::new();
        for _ in 0..CALLS {
            let promised = self.promises() > 0;
            let Decisions {
                decisions,
                more,
                wake_at,
                ..
            } = self.world.decided();
            let rests = decisions.is_empty();
            let takes = self.carry_out(&decisions, promised, &mut served)?;
            if !more && let Some(job) = served.iter().next() {
                return Err(format!("j{job:02} does not start with its victims gone"));
            }
            for (preemptor, victims) in takes {
                for victim in &victims {
                    self.world.works_gone(&job_name(*victim));
                    self.rules.note_gave_way(*victim, preemptor);
                    self.rules.jobs[*victim].runs = None;
                    self.taken.push((*victim, preemptor));
                }
                served.insert(preemptor);
            }
            let soon = wake_at.filter(|at| at.millis_since(self.world.now) <= 5_000);
            match soon {
                Some(at) if rests => {
                    let millis = at.millis_since(self.world.now).max(1);
                    self.world.now = self.world.now.after(millis);
                }
                None if rests && !more => return self.no_circle(before),
                _ => self.world.now = self.world.now.after(1),
            }
        }
        Err("it never rests".to_owned())
    }

    /// Starts admitted jobs, and returns the evictions.
    fn carry_out(
        &mut self,
        decisions: &[Decision],
        promised: bool,
        served: &mut BTreeSet<usize>,
    ) -> Result<Takes, String> {
        let mut takes = Takes::new();
        // The reservation of a job whose victims are gone, or for which pending evictions of
        // another suffice, is not idle for others and counts as charged.
        let mut checked = promised;
        for decision in decisions {
            match decision {
                Decision::Release { key, admission, .. } => {
                    // A job that is admitted after a reclaim was decided does not count in it.
                    self.check(&takes, &mut checked)?;
                    served.remove(&job_number(&key.name));
                    self.start(job_number(&key.name), admission)?;
                }
                Decision::Evict {
                    key,
                    for_job: Some(whom),
                    reason,
                    ..
                } => {
                    let expected = if self.rules.case.within {
                        Reason::Preempted
                    } else {
                        Reason::Reclaimed
                    };
                    if *reason != expected {
                        return Err(format!("{key} is taken as {reason}"));
                    }
                    let victims = takes.entry(job_number(&whom.name)).or_default();
                    victims.push(job_number(&key.name));
                }
                _ => return Err(format!("nobody asked for {decision:?}")),
            }
        }
        self.check(&takes, &mut checked)?;
        Ok(takes)
    }

    /// Checks the victims by the rules, in the current state. With several preemptors at once, the
    /// result of each depends on the placement of the others.
    fn check(&self, takes: &Takes, checked: &mut bool) -> Result<(), String> {
        if let (false, 1, 1, Some((preemptor, victims))) =
            (*checked, takes.len(), self.promises(), takes.iter().next())
        {
            *checked = true;
            let valid = self.rules.check(*preemptor, victims, self.world.now.0);
            valid.map_err(|wrong| format!("{victims:?} are taken for j{preemptor:02}: {wrong}"))?;
        }
        Ok(())
    }

    /// The number of jobs with a reservation of what others free. It counts as charged.
    fn promises(&self) -> u32 {
        let queues = (0..self.rules.case.queues.len()).map(queue_name);
        let reserved = queues.map(|name| self.world.engine.reserved(&name.as_str().into()));
        reserved.map(|reserved| reserved.evictions).sum()
    }

    fn start(&mut self, job: usize, admission: &Admission) -> Result<(), String> {
        let slots = admission.shares.iter().flat_map(|share| &share.slots);
        let assumed: Vec<(usize, u32)> = slots
            .map(|slot| (job_number(slot.node.as_str()), slot.count))
            .collect();
        self.world.run(&job_name(job));
        self.rules.jobs[job].runs = Some(Runs {
            since: self.world.now.0,
            assumed,
        });
        for (node, (_, gpus)) in self.rules.case.nodes.iter().enumerate() {
            if self.rules.used(node, &[])[0] > *gpus {
                return Err(format!("n{node} is over with j{job:02}"));
            }
        }
        Ok(())
    }

    /// A victim does not evict its preemptor in turn.
    fn no_circle(&self, before: usize) -> Result<(), String> {
        let now = &self.taken[before..];
        let circle = now.iter().find(|(a, b)| now.contains(&(*b, *a)));
        circle.map_or(Ok(()), |(a, b)| {
            Err(format!("j{a:02} and j{b:02} take turns"))
        })
    }

    /// When nothing more is decided, no job waits that could reclaim what others borrow.
    fn nobody_is_left(&self) -> Result<(), String> {
        let now = self.world.now.0;
        for job in self.jobs(false) {
            if let Some(victims) = self.rules.must_take(job, now) {
                let why = self.world.why(&job_name(job));
                return Err(format!("j{job:02} may have {victims:?}, and waits: {why}"));
            }
        }
        Ok(())
    }
}

fn hold(case: &Case) -> Result<usize, String> {
    let mut both = Both::new(case);
    for round in &case.rounds {
        both.round(round)?;
    }
    Ok(both.taken.len())
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: crate::cases(120),
        max_shrink_iters: 5_000,
        ..ProptestConfig::default()
    })]

    #[test]
    fn reclaim_is_what_the_rules_allow_and_demand(case in case()) {
        hold(&case).map_err(TestCaseError::fail)?;
    }

    #[test]
    fn preemption_inside_a_queue_is_what_the_rules_allow_and_demand(case in case()) {
        hold(&inside(case)).map_err(TestCaseError::fail)?;
    }
}

/// The rules would hold for an engine that evicts nothing, and in fleets without evictions.
#[test]
fn the_random_cases_do_evict() {
    use proptest::strategy::ValueTree;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    for within in [false, true] {
        let cases = (0..80).map(|_| case().new_tree(&mut runner).unwrap().current());
        let cases = cases.map(|case| if within { inside(case) } else { case });
        let taken: usize = cases.map(|case| hold(&case).unwrap_or(0)).sum();
        assert!(taken > 20, "inside queues {within}: {taken}");
    }
}

fn queue(deserved: Option<i64>) -> Queue {
    Queue {
        parent: None,
        deserved,
        guarantee: 0,
        reclaimable: true,
        reclaims: true,
        min_runtime: 0,
    }
}

fn job(queue: usize, gpus: i64, class: Class) -> Job {
    Job {
        queue,
        count: 1,
        gpus,
        class,
        preemptible: true,
    }
}

fn round(submit: Vec<Job>) -> Round {
    Round {
        finish: None,
        submit,
        wait: 0,
    }
}

/// A guarantee of one does not protect a gang of four, of which three are borrowed.
#[test]
fn a_gang_beyond_the_guarantee_of_its_queue_is_evicted() {
    let gang = Job {
        count: 4,
        ..job(0, 1, Class::Low)
    };
    let guaranteed = Queue {
        guarantee: 1,
        ..queue(Some(1))
    };
    let case = Case {
        within: false,
        queues: vec![guaranteed, queue(Some(3))],
        nodes: vec![(0, 4)],
        rounds: vec![round(vec![gang]), round(vec![job(1, 1, Class::Low)])],
    };
    assert_eq!(hold(&case), Ok(1));
}

/// The second and third queue are below the last, which deserves all. Inside it the second borrows
/// from the third; outside it borrows nothing.
fn below_one_that_deserves_all(reclaimable: bool, preemptor: usize) -> Result<usize, String> {
    let below = |deserved| Queue {
        parent: Some(3),
        ..queue(Some(deserved))
    };
    let inner = Queue {
        reclaimable,
        ..queue(Some(4))
    };
    let borrows = (0..4).map(|_| job(1, 1, Class::Low)).collect();
    let case = Case {
        within: false,
        queues: vec![queue(Some(2)), below(0), below(2), inner],
        nodes: vec![(0, 4)],
        rounds: vec![round(borrows), round(vec![job(preemptor, 1, Class::Low)])],
    };
    hold(&case)
}

#[test]
fn reclaim_is_decided_at_the_children_of_the_common_ancestor() {
    assert_eq!(below_one_that_deserves_all(true, 2), Ok(1));
    assert_eq!(below_one_that_deserves_all(true, 0), Ok(0));
}

/// Two jobs of a queue that deserves three GPUs request the same. The class of the first never
/// preempts; that says nothing of the second. The engine once tried the first only.
#[test]
fn a_job_that_never_preempts_does_not_block_a_preemptor_with_the_same_shape() {
    let borrows = (0..4).map(|_| job(0, 1, Class::Low)).collect();
    let case = Case {
        within: false,
        queues: vec![queue(None), queue(Some(3))],
        nodes: vec![(0, 4)],
        rounds: vec![
            round(borrows),
            round(vec![job(1, 3, Class::Never), job(1, 3, Class::Low)]),
        ],
    };
    assert_eq!(hold(&case), Ok(3));
}
