//! Fleets, queue trees and jobs of any size, equal in every run.

use crate::sheet::{self, Call};
use engine::facts::{
    Admission, Demand, FairShare, JobFact, NodeFact, PolicyFact, QueueFact, QueueOrdering,
};
use engine::resources::ResourceName;
use engine::{
    Amount, Decision, Engine, EngineConfig, Event, JobKey, NodeName, PoolClass, Progress,
    QueueName, Resources, Time, Uid,
};
use sim::input::plain;
use sim::random::RandomSequence;
use sim::scenario::{NO_DEADLINE_MS, plain_policy, plain_queue};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// GPUs of a node.
pub(crate) const NODE_GPUS: i64 = 8;

/// The most calls in a row that end after too many evaluations and admit nothing.
const MOST_CUTS: usize = 10;

/// A deterministic pseudo-random sequence.
pub(crate) struct Chance(RandomSequence);

impl Chance {
    pub(crate) fn new(seed: u64) -> Self {
        Self(RandomSequence::from_state(seed))
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.0.draw() % bound.max(1) as u64) as usize
    }
}

/// An engine and the jobs that it admitted.
pub(crate) struct World {
    pub(crate) engine: Engine,
    pub(crate) now: Time,
    pub(crate) running: Vec<(JobKey, Admission)>,
    place: BTreeMap<JobKey, usize>,
    serial: u64,
}

pub(crate) fn res(gpus: i64, cpu_milli: i64) -> Resources {
    let named = [
        (ResourceName::CPU, cpu_milli),
        ("nvidia.com/gpu", gpus),
        (ResourceName::MEMORY, cpu_milli << 22),
    ];
    let named = named.into_iter().filter(|(_, amount)| *amount > 0);
    named
        .map(|(name, amount)| (ResourceName::new(name), Amount(amount)))
        .collect()
}

/// Returns a demand of `count` equal pods that go to one cluster.
pub(crate) fn pods(count: u32, gpus: i64, cpu_milli: i64) -> Demand {
    plain::gang(vec![plain::role("worker", count, res(gpus, cpu_milli))])
}

impl World {
    /// Builds a fleet of equal clusters, whose nodes have eight GPUs and stand in racks of eight.
    pub(crate) fn new(clusters: usize, nodes: usize) -> Self {
        let config = EngineConfig {
            start_deadline_ms: NO_DEADLINE_MS,
            recovery_deadline_ms: None,
            ..EngineConfig::default()
        };
        let mut engine = Engine::new(config);
        for cluster in 0..clusters {
            let name = format!("member-{cluster:03}");
            engine.apply(Event::ClusterUpserted(plain::cluster(&name)));
            for node in 0..nodes {
                engine.apply(Event::NodeUpserted(node_of(&name, node)));
            }
        }
        Self {
            engine,
            now: Time(1_000_000),
            running: Vec::new(),
            place: BTreeMap::new(),
            serial: 0,
        }
    }

    /// Adds a tree of three levels that uses every feature of queues, and returns the leaves'
    /// names.
    pub(crate) fn tree(
        &mut self,
        leaves: usize,
        fleet_gpus: i64,
        guaranteed: bool,
    ) -> Vec<QueueName> {
        let fan = (1..=leaves).find(|fan| fan.pow(3) >= leaves).unwrap_or(1);
        let mut names = Vec::new();
        let mut add = |name: &str, parent: Option<&str>, gpus: i64, index: usize| {
            let queue = QueueFact {
                parent: parent.map(QueueName::from),
                weight: 1 + (index % 3) as u32,
                guarantee: if guaranteed && index.is_multiple_of(3) {
                    res(gpus / 2, 0)
                } else {
                    Resources::new()
                },
                deserved: res(gpus, 0),
                ..plain_queue(name)
            };
            self.engine.apply(Event::QueueUpserted(queue));
            let half_life = index.is_multiple_of(2).then_some(3_600_000);
            let policy = PolicyFact {
                ordering: match index % 4 {
                    0 => QueueOrdering::ShortestPredicted,
                    1 => QueueOrdering::BestEffort,
                    _ => QueueOrdering::Backfill,
                },
                fair_share: FairShare {
                    within: None,
                    weight: None,
                    usage_half_life_ms: half_life,
                },
                ..plain_policy(name)
            };
            self.engine.apply(Event::PolicyUpserted(policy));
        };
        let part = |parts: usize| fleet_gpus / 2 / parts.max(1) as i64;
        for top in 0..fan {
            let top_name = format!("org-{top:02}");
            add(&top_name, None, part(fan), 2);
            for middle in 0..fan {
                let middle_name = format!("{top_name}-dept-{middle:02}");
                add(&middle_name, Some(&top_name), part(fan * fan), 2);
                for leaf in 0..fan {
                    if names.len() < leaves {
                        let name = format!("{middle_name}-team-{leaf:02}");
                        add(&name, Some(&middle_name), part(fan.pow(3)), names.len());
                        names.push(QueueName::from(name.as_str()));
                    }
                }
            }
        }
        names
    }

    /// Adds one queue without limits.
    pub(crate) fn queue(&mut self, name: &str, ordering: QueueOrdering) -> QueueName {
        self.engine.apply(Event::QueueUpserted(plain_queue(name)));
        self.engine.apply(Event::PolicyUpserted(PolicyFact {
            ordering,
            ..plain_policy(name)
        }));
        QueueName::from(name)
    }

    /// Submits a job with a name of the form that a control plane gives.
    pub(crate) fn submit(&mut self, queue: &QueueName, demand: Demand) -> JobKey {
        self.submit_as(queue, demand, None)
    }

    pub(crate) fn submit_as(
        &mut self,
        queue: &QueueName,
        demand: Demand,
        class: Option<&str>,
    ) -> JobKey {
        self.submit_fact(queue, demand, |fact| {
            fact.priority_class = class.map(str::to_owned);
        })
    }

    /// Submits a job that declares its run time in milliseconds.
    pub(crate) fn submit_declared(&mut self, queue: &QueueName, demand: Demand, run_ms: i64) {
        self.submit_fact(queue, demand, |fact| {
            fact.expected_duration_ms = Some(run_ms)
        });
    }

    fn submit_fact(
        &mut self,
        queue: &QueueName,
        demand: Demand,
        change: impl FnOnce(&mut JobFact),
    ) -> JobKey {
        self.serial += 1;
        let serial = self.serial;
        let name = format!("train-{serial:08}-job");
        let mut job = plain::job(
            &name,
            queue.as_str(),
            self.now.after(serial as i64 / 100),
            demand,
        );
        job.fact.key = JobKey::new(queue.as_str(), &name);
        job.fact.uid = Uid::from(format!("{serial:08x}-1111-4111-8111-{serial:012x}").as_str());
        job.fact.user = format!("user-{}", serial % 50);
        change(&mut job.fact);
        let key = job.fact.key.clone();
        self.tell(Event::JobUpserted(job.fact));
        key
    }

    /// Applies an event, and returns the time that the engine took.
    pub(crate) fn tell(&mut self, event: Event) -> Duration {
        timed(Call::Apply, || self.engine.apply(event)).1
    }

    /// Moves the clock by milliseconds.
    pub(crate) fn later(&mut self, millis: i64) {
        self.now = self.now.after(millis);
    }

    /// Decides until no decision is left; admitted jobs run. Returns the number of decisions and
    /// the time spent in the engine.
    ///
    /// A call ends after so many evaluations without result, and there may be more classes than that: a circle
    /// is what more than [`MOST_CUTS`] such calls do not end.
    pub(crate) fn settle(&mut self) -> (usize, Duration) {
        let (mut count, mut took, mut cuts) = (0, Duration::ZERO, 0);
        loop {
            let (decided, time) = timed(Call::Decide, || self.engine.decide(self.now));
            took += time;
            cuts = if decided.cut && decided.decisions.is_empty() {
                cuts + 1
            } else {
                0
            };
            assert!(
                cuts <= MOST_CUTS,
                "jobs have each other evaluated in a circle"
            );
            count += decided.decisions.len();
            let begin = Instant::now();
            for decision in decided.decisions {
                self.carry_out(decision);
            }
            self.engine.take_changed();
            took += begin.elapsed();
            if !decided.more && !decided.cut {
                return (count, took);
            }
        }
    }

    fn carry_out(&mut self, decision: Decision) {
        match decision {
            Decision::Release { key, admission, .. } => {
                self.engine.apply(Event::JobProgressed {
                    key: key.clone(),
                    attempt: admission.attempt,
                    progress: Progress::Running,
                    at: self.now,
                });
                self.place.insert(key.clone(), self.running.len());
                self.running.push((key, admission));
            }
            Decision::Evict { key, .. } => {
                self.forget_running(&key);
                let at = self.now;
                self.engine.apply(Event::JobWorksGone { key, at });
            }
            Decision::Resize { .. } => {}
        }
    }

    fn forget_running(&mut self, key: &JobKey) -> Option<Admission> {
        let place = self.place.remove(key)?;
        let (_, admission) = self.running.swap_remove(place);
        if let Some((moved, _)) = self.running.get(place) {
            self.place.insert(moved.clone(), place);
        }
        Some(admission)
    }

    /// Ends and removes a job, and returns the time spent in the engine.
    pub(crate) fn complete(&mut self, place: usize) -> Duration {
        let Some((key, _)) = self.running.get(place) else {
            return Duration::ZERO;
        };
        let key = key.clone();
        let Some(admission) = self.forget_running(&key) else {
            return Duration::ZERO;
        };
        self.later(1);
        let finished = self.tell(Event::JobProgressed {
            key: key.clone(),
            attempt: admission.attempt,
            progress: Progress::Finished,
            at: self.now,
        });
        finished + self.tell(Event::JobGone(key))
    }
}

/// Makes one call of the engine, and returns its result and the time that it took.
pub(crate) fn timed<T>(kind: Call, call: impl FnOnce() -> T) -> (T, Duration) {
    let begin = Instant::now();
    let result = call();
    let took = begin.elapsed();
    sheet::note_call(kind, took);
    (result, took)
}

/// Returns a GPU node of the fleet.
pub(crate) fn node_of(cluster: &str, node: usize) -> NodeFact {
    let mut fact = plain::node(cluster, &format!("node-{node:04}"), "gpu");
    fact.domains = vec![format!("zone-{}", node / 16), format!("rack-{}", node / 8)];
    fact.allocatable = res(NODE_GPUS, 128_000);
    fact.allocatable
        .set(ResourceName::new(ResourceName::PODS), Amount(110));
    fact
}

/// Returns a node that has only CPUs.
pub(crate) fn cpu_node(cluster: &str, node: usize, cores: i64) -> NodeFact {
    NodeFact {
        class: PoolClass::from("cpu"),
        name: NodeName::from(format!("cpu-{node:04}").as_str()),
        domains: Vec::new(),
        allocatable: [
            (ResourceName::new(ResourceName::CPU), Amount(cores * 1000)),
            (ResourceName::new(ResourceName::MEMORY), Amount(cores << 32)),
            (ResourceName::new(ResourceName::PODS), Amount(110)),
        ]
        .into_iter()
        .collect(),
        ..node_of(cluster, node)
    }
}

/// Durations in nanoseconds, from which quantiles are read.
pub(crate) struct Times(Vec<u64>);

impl Times {
    pub(crate) fn new() -> Self {
        Self(Vec::new())
    }

    pub(crate) fn add(&mut self, time: Duration) {
        self.0
            .push(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn total_seconds(&self) -> f64 {
        self.0.iter().sum::<u64>() as f64 / 1e9
    }

    /// Returns the median, the 99th percentile and the maximum in microseconds.
    pub(crate) fn micros(&mut self) -> [f64; 3] {
        self.0.sort_unstable();
        [500, 990, 1000].map(|permille| {
            let last = self.0.len().saturating_sub(1);
            self.0.get(last * permille / 1000).copied().unwrap_or(0) as f64 / 1000.0
        })
    }
}
