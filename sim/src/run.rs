//! The loop of virtual time: arrivals, ends and timers go to the engine in order of time, and its
//! decisions take effect at once.
//!
//! Time jumps from one event to the next. The loop ends when nothing can happen any more: no
//! arrival is left, nothing runs, and no timer of the engine would change anything.

use crate::faults::{FaultInjector, FaultRecord, Sides};
use crate::members::SimulatedMembers;
use crate::record::RunRecord;
use crate::scenario::Scenario;
use crate::starts::{StartAccuracy, StartWatch};
use engine::facts::{Admission, Share};
use engine::{
    Attempt, ClusterName, Decision, Engine, EngineConfig, Event, JobKey, Progress, Reason, Time,
};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::time::{Duration, Instant};

/// The options of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct RunOptions {
    /// Settings of the engine.
    pub config: EngineConfig,
    /// True if all derived state is recomputed and compared after each step.
    pub check: bool,
    /// Milliseconds from an eviction until all pods are gone.
    pub stop_ms: i64,
    /// True if pending jobs are asked when they expect to start.
    pub starts: bool,
}

/// A timer after this time never fires (a start deadline without pods).
const NEVER_MS: i64 = crate::scenario::NO_DEADLINE_MS / 2;
/// The number of timers in a row, without any other event, after which the run ends.
const IDLE_TIMERS: u32 = 1_000;

/// A defect of Muster that the simulation found.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// Derived state of the engine does not follow from its facts.
    #[error("at {at} ms the engine's books do not add up: {what}")]
    Books {
        /// The virtual time.
        at: i64,
        /// The first differences.
        what: String,
    },
    /// A job was placed on a node that is known to be out of service.
    #[error("at {at} ms {what}")]
    Misplaced {
        /// The virtual time.
        at: i64,
        /// The job and the node.
        what: String,
    },
}

/// Runs a scenario to its end, and reports the number of ended jobs to `watch` from time to time.
///
/// # Errors
/// Returns a [`Violation`] if a job is placed on a node that is known to be out of service, or if
/// `check` is set and finds one.
pub fn simulate(
    scenario: &Scenario,
    options: &RunOptions,
    watch: &mut dyn FnMut(usize),
) -> Result<RunOutcome, Violation> {
    let mut run = Run::new(scenario, options);
    let mut idle = 0;
    while let Some((now, kind)) = run.next() {
        idle = if kind == Next::Timer { idle + 1 } else { 0 };
        // A node that will be repaired may let a job start, however long it has tried.
        if idle > IDLE_TIMERS && run.next_fault().is_none() {
            break;
        }
        run.record.advance(now);
        run.now = now;
        run.tell_what_came();
        if run.decide() {
            idle = 0;
        }
        if run.replace_lost_pods() {
            run.decide();
        }
        run.ask_starts();
        run.check_placements()?;
        if options.check {
            run.check()?;
        }
        watch(run.done);
    }
    Ok(run.outcome())
}

/// The outcome of a run.
#[derive(Debug, Clone)]
pub struct RunOutcome {
    /// The record of the run.
    pub record: RunRecord,
    /// The time of the last event.
    pub end: Time,
    /// The first ten jobs that never started, with the engine's explanation.
    pub stuck: Vec<(JobKey, String)>,
    /// What faults did; `None` if there were to be none.
    pub faults: Option<FaultRecord>,
    /// How expected starts fared; empty if jobs were not asked.
    pub starts: Vec<StartAccuracy>,
    /// The longest call of the engine to decide, in real time: no part of what is simulated.
    pub longest_call: Duration,
}

/// The next event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Next {
    Event,
    Timer,
}

/// A shrink in progress: when its pods are gone, the job and attempt, the cluster, and the
/// remaining pods.
type Resizing = (Time, usize, Attempt, ClusterName, u32);

struct Run<'a> {
    scenario: &'a Scenario,
    options: &'a RunOptions,
    engine: Engine,
    members: SimulatedMembers,
    record: RunRecord,
    now: Time,
    arrived: usize,
    done: usize,
    wake_at: Option<Time>,
    index: BTreeMap<&'a JobKey, usize>,
    attempts: Vec<Attempt>,
    /// Jobs that are being stopped: when their pods are gone, and when the stop began.
    stopping: BinaryHeap<Reverse<(Time, usize, Time)>>,
    /// Resized jobs: when a cluster has no more than the new number of pods.
    resizing: BinaryHeap<Reverse<Resizing>>,
    /// The newest size of each resized job: pods by cluster.
    sizes: BTreeMap<usize, BTreeMap<ClusterName, u32>>,
    faults: Option<FaultInjector<'a>>,
    starts: Option<StartWatch>,
    longest_call: Duration,
}

impl<'a> Run<'a> {
    fn new(scenario: &'a Scenario, options: &'a RunOptions) -> Self {
        let mut config = options.config.clone();
        if let Some(plan) = &scenario.faults {
            config.recovery_deadline_ms = Some(plan.recovery_deadline_ms);
        }
        let mut engine = Engine::new(config);
        for fact in &scenario.fleet.clusters {
            engine.apply(Event::ClusterUpserted(fact.clone()));
        }
        for fact in &scenario.fleet.nodes {
            engine.apply(Event::NodeUpserted(fact.clone()));
        }
        for fact in &scenario.queues.classes {
            engine.apply(Event::PriorityClassUpserted(fact.clone()));
        }
        for fact in &scenario.queues.queues {
            engine.apply(Event::QueueUpserted(fact.clone()));
        }
        for fact in &scenario.queues.policies {
            engine.apply(Event::PolicyUpserted(fact.clone()));
        }
        let record = RunRecord::new(scenario);
        let plan = scenario.faults.as_ref();
        Self {
            scenario,
            options,
            engine,
            members: SimulatedMembers::new(&scenario.jobs),
            faults: plan.map(|plan| FaultInjector::new(plan, scenario, record.measure)),
            record,
            now: Time::default(),
            arrived: 0,
            done: 0,
            wake_at: None,
            index: scenario
                .jobs
                .iter()
                .map(|job| &job.fact.key)
                .zip(0..)
                .collect(),
            attempts: vec![Attempt::default(); scenario.jobs.len()],
            stopping: BinaryHeap::new(),
            resizing: BinaryHeap::new(),
            sizes: BTreeMap::new(),
            starts: options.starts.then(StartWatch::default),
            longest_call: Duration::ZERO,
        }
    }

    /// Asks pending jobs when they expect to start.
    fn ask_starts(&mut self) {
        let (jobs, records) = (&self.scenario.jobs, &self.record.jobs);
        let waits = |job: usize| records[job].started.is_none().then(|| &jobs[job].fact.key);
        if let Some(starts) = &mut self.starts {
            starts.ask(&self.engine, waits, self.now);
        }
    }

    /// Returns the next event, and whether it is more than a timer of the engine.
    fn next(&mut self) -> Option<(Time, Next)> {
        let arrival = self.scenario.jobs.get(self.arrived);
        let arrival = arrival.map(|job| job.fact.queued_at);
        let gone = self.stopping.peek().map(|Reverse((at, ..))| *at);
        let resized = self.resizing.peek().map(|Reverse((at, ..))| *at);
        let (ends, fault) = (self.members.next_end(), self.next_fault());
        let events = [arrival, gone, resized, ends, fault];
        let event = events.into_iter().flatten().min();
        let timer = self.wake_at.filter(|at| at.0 < NEVER_MS);
        let first = [
            event.map(|at| (at, Next::Event)),
            timer.map(|at| (at, Next::Timer)),
        ];
        first
            .into_iter()
            .flatten()
            .min()
            .map(|(at, kind)| (at.max(self.now), kind))
    }

    /// Returns the injector of faults with what it acts on; `None` without faults.
    fn faults(&mut self) -> Option<(&mut FaultInjector<'a>, Sides<'_>)> {
        let sides = Sides {
            engine: &mut self.engine,
            members: &mut self.members,
            now: self.now,
        };
        Some((self.faults.as_mut()?, sides))
    }

    /// Pods in the place of lost ones start where the decisions have left room. Returns true if some do.
    fn replace_lost_pods(&mut self) -> bool {
        let faults = self.faults();
        faults.is_some_and(|(faults, mut sides)| faults.replace_waiting(&mut sides))
    }

    fn next_fault(&self) -> Option<Time> {
        let arriving = self.arrived < self.scenario.jobs.len();
        self.faults.as_ref()?.next_at(arriving)
    }

    /// Sends the engine all events that are due.
    fn tell_what_came(&mut self) {
        let now = self.now;
        while let Some(job) = self.members.take_ended(now) {
            let key = &self.scenario.jobs[job].fact.key;
            self.progress(job, Progress::Finished);
            self.engine.apply(Event::JobGone(key.clone()));
            if let Some((faults, mut sides)) = self.faults() {
                faults.ended(job, &mut sides);
            }
            self.record.finishes(job, now);
            self.done += 1;
        }
        while let Some(&Reverse((at, job, since))) = self.stopping.peek() {
            if at > now {
                break;
            }
            self.stopping.pop();
            let key = self.scenario.jobs[job].fact.key.clone();
            if let Some((faults, mut sides)) = self.faults() {
                faults.gone(job, &mut sides);
            }
            self.engine.apply(Event::JobWorksGone { key, at: now });
            self.record.waits_again(job, since);
        }
        self.tell_resized();
        while let Some(job) = self.scenario.jobs.get(self.arrived) {
            if job.fact.queued_at > now {
                break;
            }
            self.engine.apply(Event::JobUpserted(job.fact.clone()));
            self.record.arrives(self.arrived, now);
            if let Some(starts) = &mut self.starts {
                starts.arrives(self.arrived, now);
            }
            self.arrived += 1;
        }
        if let Some((faults, mut sides)) = self.faults() {
            faults.run_due(&mut sides);
        }
    }

    /// Reports the shrinks that are complete. A shrink that a newer size replaced is not reported;
    /// the newer one covers it.
    fn tell_resized(&mut self) {
        while let Some(Reverse((at, ..))) = self.resizing.peek() {
            if *at > self.now {
                return;
            }
            let Some(Reverse((_, job, attempt, cluster, pods))) = self.resizing.pop() else {
                return;
            };
            let newest = self.sizes.get(&job).and_then(|sizes| sizes.get(&cluster));
            if newest == Some(&pods) {
                if let Some((faults, mut sides)) = self.faults() {
                    faults.shrunk(job, &mut sides);
                }
                self.engine.apply(Event::JobResized {
                    key: self.scenario.jobs[job].fact.key.clone(),
                    attempt,
                    cluster,
                    pods,
                    at: self.now,
                });
            }
        }
    }

    fn progress(&mut self, job: usize, progress: Progress) {
        self.engine.apply(Event::JobProgressed {
            key: self.scenario.jobs[job].fact.key.clone(),
            attempt: self.attempts[job],
            progress,
            at: self.now,
        });
    }

    /// Lets the engine decide until it makes no more decisions. Returns true if it made one.
    fn decide(&mut self) -> bool {
        let mut any = false;
        loop {
            let begin = Instant::now();
            let decided = self.engine.decide(self.now);
            self.longest_call = self.longest_call.max(begin.elapsed());
            assert!(
                !decided.cut,
                "a defect: jobs have each other evaluated in a circle"
            );
            let fruitless = &decided.fruitless_reservations;
            assert!(
                fruitless.is_empty(),
                "a defect: reserved without result for {fruitless:?}"
            );
            self.wake_at = decided.wake_at;
            // The facts that follow from the decisions may allow more decisions.
            let again = decided.more || !decided.decisions.is_empty();
            any |= !decided.decisions.is_empty();
            for decision in decided.decisions {
                self.carry_out(decision);
            }
            // The simulation does not use the list of changes, so it is emptied.
            self.engine.take_changed();
            if !again {
                return any;
            }
        }
    }

    fn carry_out(&mut self, decision: Decision) {
        match decision {
            Decision::Release { key, admission, .. } => {
                self.record.decisions.releases += 1;
                self.starts_in(&key, &admission);
                self.runs(&key, &admission);
            }
            Decision::Resize { key, admission, .. } => {
                self.record.decisions.resizes += 1;
                self.resizes(&key, &admission);
                self.runs(&key, &admission);
            }
            Decision::Evict { key, reason, .. } => {
                self.record.decisions.evicted += 1;
                self.stops(&key, reason);
            }
        }
    }

    fn runs(&mut self, key: &JobKey, admission: &Admission) {
        let Some(&job) = self.index.get(key) else {
            return;
        };
        let starts = self.attempts[job] != admission.attempt;
        self.attempts[job] = admission.attempt;
        match self.faults() {
            Some((faults, mut sides)) => faults.runs(job, admission, starts, &mut sides),
            None => {
                let pods = admission.shares.iter().map(Share::replicas).sum();
                self.members.run(job, pods, 0, self.now);
            }
        }
        self.record.runs(job, admission, self.now);
        if let Some(watch) = self.starts.as_mut().filter(|_| starts) {
            watch.starts(key, self.now);
        }
        if starts {
            self.progress(job, Progress::Running);
        }
    }

    /// Records where a resizable job starts.
    fn starts_in(&mut self, key: &JobKey, admission: &Admission) {
        let job = self.index.get(key).copied();
        let elastic = |job: &usize| self.scenario.jobs[*job].fact.demand.elastic;
        if let Some(job) = job.filter(elastic) {
            let pods = |share: &Share| (share.cluster.clone(), share.replicas());
            let sizes = admission.shares.iter().map(pods).collect();
            self.sizes.insert(job, sizes);
        }
    }

    /// Schedules the report of a job's new size for when its surplus pods have stopped.
    fn resizes(&mut self, key: &JobKey, admission: &Admission) {
        let Some(&job) = self.index.get(key) else {
            return;
        };
        let sizes = self.sizes.entry(job).or_default();
        // A cluster with no pods left is reported too.
        sizes.values_mut().for_each(|pods| *pods = 0);
        for share in &admission.shares {
            sizes.insert(share.cluster.clone(), share.replicas());
        }
        let at = self.now.after(self.options.stop_ms);
        for (cluster, pods) in sizes {
            let told = (at, job, admission.attempt, cluster.clone(), *pods);
            self.resizing.push(Reverse(told));
        }
    }

    fn stops(&mut self, key: &JobKey, reason: Reason) {
        let Some(&job) = self.index.get(key) else {
            return;
        };
        let sim = &self.scenario.jobs[job];
        let lost = match self.faults() {
            Some((faults, mut sides)) => faults.stops(job, reason, &mut sides),
            None => self.members.stop(job, sim.checkpoint_ms, self.now),
        };
        let pods = sim.fact.demand.pods();
        self.record.evicted(job, lost.pod_ms, pods);
        let gone = self.now.after(self.options.stop_ms);
        self.stopping.push(Reverse((gone, job, self.now)));
    }

    fn check_placements(&self) -> Result<(), Violation> {
        let faults = self.faults.as_ref();
        match faults.and_then(FaultInjector::misplacement) {
            None => Ok(()),
            Some(what) => Err(Violation::Misplaced {
                at: self.now.0,
                what: what.to_owned(),
            }),
        }
    }

    fn check(&self) -> Result<(), Violation> {
        let found = self.engine.check_invariants();
        let mut first = found.iter().take(3).map(ToString::to_string);
        match first.next() {
            None => Ok(()),
            Some(one) => Err(Violation::Books {
                at: self.now.0,
                what: first.fold(one, |all, next| format!("{all}; {next}")),
            }),
        }
    }

    fn outcome(self) -> RunOutcome {
        let waiting = self.record.jobs.iter().zip(&self.scenario.jobs);
        let stuck = waiting
            .filter(|(record, _)| record.started.is_none())
            .take(10)
            .map(|(_, job)| {
                let why = self.engine.explain(&job.fact.key);
                let why = why.map_or_else(String::new, |why| {
                    format!("{}: {}", why.reason, why.message)
                });
                (job.fact.key.clone(), why)
            });
        RunOutcome {
            stuck: stuck.collect(),
            end: self.now,
            faults: self.faults.map(FaultInjector::into_record),
            starts: self
                .starts
                .map(|starts| starts.accuracy())
                .unwrap_or_default(),
            record: self.record,
            longest_call: self.longest_call,
        }
    }
}
