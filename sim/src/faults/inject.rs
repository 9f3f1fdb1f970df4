//! Carries faults out: nodes go out of service, are detected and repaired, and the jobs on them stop,
//! start again and lose work.

use super::generator::{FaultGenerator, NodeFault, hits_of_jobs};
use super::nodes::{Down, with_fault};
use super::pods::{SimulatedPod, SimulatedPods};
use super::record::FaultRecord;
use super::{FaultKind, FaultPlan};
use crate::members::{Lost, SimulatedMembers};
use crate::record::Measure;
use crate::scenario::{Scenario, SimJob};
use engine::facts::{Admission, PodPhase};
use engine::{Engine, Event, Reason, Time};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

/// The rest of the simulation, which faults act on.
pub(crate) struct Sides<'a> {
    pub(crate) engine: &'a mut Engine,
    pub(crate) members: &'a mut SimulatedMembers,
    pub(crate) now: Time,
}

/// All faults of a run and the jobs that they hit.
#[derive(Debug)]
pub(crate) struct FaultInjector<'a> {
    pub(super) plan: &'a FaultPlan,
    pub(super) scenario: &'a Scenario,
    pub(super) measure: Measure,
    generator: FaultGenerator,
    pub(super) pods: SimulatedPods,
    /// The nodes that are out of service.
    pub(super) down: BTreeMap<usize, Down>,
    /// Scheduled steps, each with a number that keeps the order of steps at one time.
    agenda: BinaryHeap<Reverse<(Time, u64, FaultStep)>>,
    steps: u64,
    /// When in its first attempt a fault hits each job, in millionths of its run time.
    hits: Vec<Option<u64>>,
    pub(super) jobs: Vec<JobRecovery>,
    /// Jobs of which pods in the place of lost ones wait for room.
    pub(super) replacing: BTreeSet<usize>,
    /// Jobs that have started and not ended.
    unfinished: usize,
    pub(super) record: FaultRecord,
    misplacement: Option<String>,
}

/// A step of a fault that has happened, with the index of its node or job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum FaultStep {
    /// The engine receives what the node is now.
    Detected(usize),
    /// The node is as before.
    Repaired(usize),
    /// A fault comes to a node of a job.
    HitsJob(usize),
    /// The controller of a job starts pods in the place of lost ones.
    Replaces(usize),
}

/// Where a job is in its recovery.
#[derive(Debug, Clone, Default)]
pub(super) struct JobRecovery {
    /// True if it is admitted and not being evicted.
    pub(super) runs: bool,
    /// True if a fault has stopped it.
    pub(super) stalled: bool,
    /// When the engine received that it is below its minimum of pods.
    pub(super) detected_at: Option<Time>,
    /// When the fault happened after which it does not run again yet.
    fault_at: Option<Time>,
    /// When all of it was gone after that.
    gone_at: Option<Time>,
    /// True if its next start has the cost of a restart.
    restarts: bool,
}

impl<'a> FaultInjector<'a> {
    pub(crate) fn new(plan: &'a FaultPlan, scenario: &'a Scenario, measure: Measure) -> Self {
        let start = scenario.window().unwrap_or_default().0;
        let jobs = scenario.jobs.len();
        Self {
            plan,
            scenario,
            measure,
            generator: FaultGenerator::new(plan, scenario.fleet.nodes.len(), start),
            pods: SimulatedPods::new(&scenario.fleet, jobs),
            down: BTreeMap::new(),
            agenda: BinaryHeap::new(),
            steps: 0,
            hits: hits_of_jobs(plan, jobs),
            jobs: vec![JobRecovery::default(); jobs],
            replacing: BTreeSet::new(),
            unfinished: 0,
            record: FaultRecord {
                jobs: vec![super::JobFaultRecord::default(); jobs],
                ..FaultRecord::default()
            },
            misplacement: None,
        }
    }

    /// Returns when faults change something next. New faults come only while there are jobs that they
    /// could hit: `arriving`, or started and not ended.
    pub(crate) fn next_at(&self, arriving: bool) -> Option<Time> {
        let step = self.agenda.peek().map(|Reverse((at, ..))| *at);
        let busy = arriving || self.unfinished > 0;
        let fault = self.generator.next_at().filter(|_| busy);
        step.into_iter().chain(fault).min()
    }

    /// Carries out all that is due.
    pub(crate) fn run_due(&mut self, sides: &mut Sides<'_>) {
        let now = sides.now;
        loop {
            let step = self.agenda.peek().map(|Reverse((at, ..))| *at);
            let fault = self.generator.next_at();
            let step_first = step.is_some_and(|step| fault.is_none_or(|fault| step <= fault));
            if step_first && step <= Some(now) {
                let Some(Reverse((_, _, step))) = self.agenda.pop() else {
                    return;
                };
                match step {
                    FaultStep::Detected(node) => self.detected(node, sides),
                    FaultStep::Repaired(node) => self.repaired(node, sides),
                    FaultStep::HitsJob(job) => self.hits_job(job, sides),
                    FaultStep::Replaces(job) => self.replaces(job, sides),
                }
            } else if let Some(fault) = self.generator.take(now) {
                self.happens(fault, sides);
            } else {
                return;
            }
        }
    }

    /// A pod that was placed on a node known to be out of service, if there is one.
    pub(crate) fn misplacement(&self) -> Option<&str> {
        self.misplacement.as_deref()
    }

    pub(crate) fn into_record(self) -> FaultRecord {
        self.record
    }

    pub(super) fn schedule(&mut self, at: Time, step: FaultStep) {
        self.steps += 1;
        self.agenda.push(Reverse((at, self.steps, step)));
    }

    pub(super) fn job(&self, job: usize) -> &'a SimJob {
        &self.scenario.jobs[job]
    }

    /// A fault comes to a node. Nothing happens if it is out of service already.
    fn happens(&mut self, fault: NodeFault, sides: &mut Sides<'_>) {
        let node = fault.node;
        if self.down.contains_key(&node) {
            return;
        }
        let class = match fault.class {
            FaultKind::DeviceFault if self.devices_of(node) > 0 => FaultKind::DeviceFault,
            _ => FaultKind::NodeLost,
        };
        match class {
            FaultKind::NodeLost => self.record.nodes_lost += 1,
            FaultKind::DeviceFault => self.record.device_faults += 1,
        }
        let detected = self.plan.class(class).detection_ms;
        if detected < fault.for_ms {
            self.schedule(sides.now.after(detected), FaultStep::Detected(node));
        }
        self.schedule(sides.now.after(fault.for_ms), FaultStep::Repaired(node));
        self.down
            .insert(node, Down::new(NodeFault { class, ..fault }));
        let jobs = self.strike(node);
        for job in jobs {
            self.hurt(job, sides);
        }
    }

    /// Pods of a job have failed: it stops, for its other pods wait for them.
    fn hurt(&mut self, job: usize, sides: &mut Sides<'_>) {
        let recovery = &mut self.jobs[job];
        if recovery.runs && !recovery.stalled {
            sides.members.stall(job, sides.now);
            recovery.stalled = true;
            recovery.fault_at.get_or_insert(sides.now);
        }
    }

    /// Faults of a job's pods are detected, or its pods are back: it goes on in place with those that it
    /// has, if they are enough.
    pub(super) fn goes_on(&mut self, job: usize, sides: &mut Sides<'_>) {
        let recovery = &self.jobs[job];
        if !recovery.runs {
            return;
        }
        if !recovery.stalled {
            let working = self.pods.working(job);
            return sides.members.run(job, working, 0, sides.now);
        }
        let known = |pod: &SimulatedPod| {
            let down = self.down.get(&pod.node);
            down.is_none_or(|down| down.detected)
        };
        let lost = |pod: &SimulatedPod| pod.failed && known(pod);
        let below = self.pods.below_minimum(job, self.job(job), lost);
        let pods = self.pods.of(job).iter();
        let all_known = pods.filter(|pod| pod.failed).all(known);
        let detected = &mut self.jobs[job].detected_at;
        let first = below && detected.is_none();
        *detected = below.then(|| detected.unwrap_or(sides.now));
        if let Some(millis) = self.plan.replace_ms.filter(|_| first) {
            self.schedule(sides.now.after(millis), FaultStep::Replaces(job));
        }
        if all_known && !below {
            self.restarts_in_place(job, sides);
            self.runs_again(job, sides.now);
        }
    }

    /// A job goes on in the same attempt from its last checkpoint.
    fn restarts_in_place(&mut self, job: usize, sides: &mut Sides<'_>) {
        let working = self.pods.working(job);
        let checkpoint = self.checkpoint_of(job, true);
        let lost = sides
            .members
            .restart(job, checkpoint, self.plan.restart_ms, working, sides.now);
        self.adds_lost(job, lost);
        let record = &mut self.record.jobs[job];
        record.in_place += 1;
        record.restarting_ms += self.plan.restart_ms;
    }

    fn checkpoint_of(&self, job: usize, fault: bool) -> Option<i64> {
        let default = self
            .plan
            .checkpoint_ms
            .filter(|_| fault || self.plan.preemption_restarts);
        self.job(job).checkpoint_ms.or(default)
    }

    fn adds_lost(&mut self, job: usize, lost: Lost) {
        let demand = &self.job(job).fact.demand;
        let sizes = demand.roles.iter().map(|role| {
            let each = self.measure.of_resources(&role.request).unwrap_or(0);
            i128::from(each) * i128::from(role.count)
        });
        // A pod counts as the average over roles.
        let size: i128 = sizes.sum();
        let record = &mut self.record.jobs[job];
        record.lost += lost.pod_ms * size / i128::from(demand.pods().max(1));
        record.restarting_ms -= lost.restart_ms;
    }

    /// The engine receives the node as it is with its fault.
    fn detected(&mut self, node: usize, sides: &mut Sides<'_>) {
        let Some(down) = self.down.get_mut(&node) else {
            return;
        };
        down.detected = true;
        let class = down.fault.class;
        let failed = self.failed_on(node);
        for (job, pod) in &failed {
            if class == FaultKind::DeviceFault {
                let (sim, fleet) = (self.job(*job), &self.scenario.fleet);
                let fact = SimulatedPods::fact(pod, sim, fleet, PodPhase::Disrupted);
                sides.engine.apply(Event::PodUpserted(fact));
            }
        }
        let fact = with_fault(&self.scenario.fleet.nodes[node], class);
        sides.engine.apply(Event::NodeUpserted(fact));
        let jobs: BTreeSet<usize> = failed.into_iter().map(|(job, _)| job).collect();
        for job in jobs {
            self.goes_on(job, sides);
        }
    }

    fn failed_on(&self, node: usize) -> Vec<(usize, SimulatedPod)> {
        let on = self.pods.on(node).into_iter();
        on.filter(|(_, pod)| pod.failed).collect()
    }

    /// The node is as before, and so are the pods that are still on it.
    fn repaired(&mut self, node: usize, sides: &mut Sides<'_>) {
        let Some(down) = self.down.remove(&node) else {
            return;
        };
        let failed = self.failed_on(node);
        for (job, pod) in &failed {
            self.pods.change(*job, pod.number, |pod| pod.failed = false);
            if down.detected && down.fault.class == FaultKind::DeviceFault {
                let (sim, fleet) = (self.job(*job), &self.scenario.fleet);
                let fact = SimulatedPods::fact(pod, sim, fleet, PodPhase::Running);
                sides.engine.apply(Event::PodUpserted(fact));
            }
        }
        if down.detected {
            let fact = self.scenario.fleet.nodes[node].clone();
            sides.engine.apply(Event::NodeUpserted(fact));
        }
        let jobs: BTreeSet<usize> = failed.into_iter().map(|(job, _)| job).collect();
        for job in jobs {
            self.goes_on(job, sides);
        }
    }

    /// A job that a fault had stopped runs again.
    fn runs_again(&mut self, job: usize, now: Time) {
        self.replacing.remove(&job);
        let recovery = &mut self.jobs[job];
        (recovery.stalled, recovery.detected_at) = (false, None);
        let gone = recovery.gone_at.take();
        let Some(fault) = recovery.fault_at.take() else {
            return;
        };
        let took = now.millis_since(fault);
        self.record.jobs[job].recovering_ms += took;
        let times = &mut self.record.times;
        times.fault_to_running.push(took);
        times
            .gone_to_running
            .extend(gone.map(|gone| now.millis_since(gone)));
    }

    /// A fault comes to a node of a job, if the job still runs in its first attempt.
    fn hits_job(&mut self, job: usize, sides: &mut Sides<'_>) {
        let pods = self.pods.of(job);
        let first = self.record.jobs[job].attempts == 1 && self.jobs[job].runs;
        let Some(pod) = pods.first().copied().filter(|_| first) else {
            return;
        };
        let mut fault = self.generator.of_job(sides.now, pod.node);
        // The device that fails is one of the pod's.
        let on = self.pods.on(pod.node).into_iter();
        let before = on.take_while(|(_, other)| other.number != pod.number);
        let before =
            before.map(|(job, other)| SimulatedPods::devices(&other, self.job(job), self.measure));
        let devices = u64::try_from(self.devices_of(pod.node)).unwrap_or(0).max(1);
        let before = u64::try_from(before.sum::<i64>()).unwrap_or(0);
        fault.device = (before << 32).div_ceil(devices);
        self.happens(fault, sides);
    }

    /// A job is admitted or resized: its pods start on the nodes of the plan.
    pub(crate) fn runs(
        &mut self,
        job: usize,
        admission: &Admission,
        starts: bool,
        sides: &mut Sides<'_>,
    ) {
        let sim = self.job(job);
        let started = self.pods.follow(job, sim, admission);
        for pod in &started {
            self.placed(job, pod, sides.now);
            let fact = SimulatedPods::fact(pod, sim, &self.scenario.fleet, PodPhase::Running);
            sides.engine.apply(Event::PodUpserted(fact));
        }
        let working = self.pods.working(job);
        if starts {
            self.starts(job, working, sides);
        } else {
            sides.members.run(job, working, 0, sides.now);
        }
        // Faults that are not detected yet hit pods that start on their nodes.
        let nodes: BTreeSet<usize> = started.iter().map(|pod| pod.node).collect();
        for node in nodes {
            for job in self.strike(node) {
                self.hurt(job, sides);
            }
        }
    }

    fn starts(&mut self, job: usize, working: u32, sides: &mut Sides<'_>) {
        let restart = match std::mem::take(&mut self.jobs[job].restarts) {
            true => self.plan.restart_ms,
            false => 0,
        };
        self.jobs[job].runs = true;
        sides.members.run(job, working, restart, sides.now);
        self.runs_again(job, sides.now);
        let record = &mut self.record.jobs[job];
        record.restarting_ms += restart;
        record.attempts += 1;
        if record.attempts == 1 {
            self.unfinished += 1;
            if let Some(moment) = self.hits[job] {
                let run = i128::from(self.job(job).run_ms) * i128::from(moment) / 1_000_000;
                let at = sides.now.after(i64::try_from(run).unwrap_or(i64::MAX));
                self.schedule(at, FaultStep::HitsJob(job));
            }
        }
    }

    /// Checks that a pod is not placed on a node that is known to be out of service.
    pub(super) fn placed(&mut self, job: usize, pod: &SimulatedPod, now: Time) {
        self.record.placed += 1;
        let Some(down) = self.down.get(&pod.node).filter(|down| down.detected) else {
            return;
        };
        self.record.misplaced += 1;
        let node = &self.scenario.fleet.nodes[pod.node];
        let key = &self.job(job).fact.key;
        let since = now.millis_since(down.fault.at) / 1000;
        self.misplacement.get_or_insert(format!(
            "{key} was placed on node {}/{}, which has been out of service for {since} s",
            node.cluster, node.name
        ));
    }

    /// A job is being evicted. Returns the work that it loses by that, unless a fault had stopped it.
    pub(crate) fn stops(&mut self, job: usize, reason: Reason, sides: &mut Sides<'_>) -> Lost {
        self.replacing.remove(&job);
        let recovery = &mut self.jobs[job];
        recovery.runs = false;
        let stalled = std::mem::take(&mut recovery.stalled);
        recovery.restarts |= stalled || self.plan.preemption_restarts;
        let detected = recovery.detected_at.take();
        if let Some(since) = detected.filter(|_| reason == Reason::PodsLost) {
            let took = sides.now.millis_since(since);
            self.record.times.seen_to_evicted.push(took);
        }
        let checkpoint = self.checkpoint_of(job, stalled);
        let lost = sides.members.stop(job, checkpoint, sides.now);
        if stalled {
            self.adds_lost(job, lost);
            return Lost::NONE;
        }
        self.record.jobs[job].restarting_ms -= lost.restart_ms;
        lost
    }

    /// Nothing of an evicted job is left.
    pub(crate) fn gone(&mut self, job: usize, sides: &mut Sides<'_>) {
        self.removes(job, |_| true, sides);
        let recovery = &mut self.jobs[job];
        if recovery.fault_at.is_some() {
            recovery.gone_at = Some(sides.now);
        }
    }

    /// The pods beyond a job's new size are gone.
    pub(crate) fn shrunk(&mut self, job: usize, sides: &mut Sides<'_>) {
        self.removes(job, |pod| pod.terminating, sides);
    }

    /// A job has ended.
    pub(crate) fn ended(&mut self, job: usize, sides: &mut Sides<'_>) {
        self.removes(job, |_| true, sides);
        self.jobs[job].runs = false;
        self.unfinished -= 1;
    }

    fn removes(&mut self, job: usize, which: fn(&SimulatedPod) -> bool, sides: &mut Sides<'_>) {
        for pod in self.pods.remove(job, which) {
            let cluster = self.scenario.fleet.nodes[pod.node].cluster.clone();
            let gone = Event::PodGone(cluster, SimulatedPods::uid(&pod));
            sides.engine.apply(gone);
        }
    }
}
