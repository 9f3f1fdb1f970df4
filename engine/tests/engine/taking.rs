//! Random queues that deserve, borrow and evict, and the invariants of eviction.
//!
//! When nothing more is decided, each preemptor has started since its evictions, though another
//! entitled job may have evicted it in turn. Idle guarantees are withheld. Without further events
//! nothing more is decided after few evictions, and no job is evicted repeatedly for the same
//! preemptor.

use crate::elastic::elastic;
use crate::random::cases;
use crate::world::{World, below, deserving, key, pods, policy, res};
use engine::facts::{PolicyFact, Preemption, QueueFact};
use engine::{Decision, JobKey, JobState, QueueName, Resources};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// The nodes of the fleet.
const GPUS: i64 = 12;
const QUEUES: [&str; 4] = ["a", "b", "c", "d"];
const CLASSES: [&str; 3] = ["low", "normal", "high"];

#[derive(Debug, Clone)]
struct Share {
    gpus: u32,
    cpus: Option<u32>,
    guaranteed: u32,
    within: bool,
    capability: Option<u32>,
}

#[derive(Debug, Clone)]
struct Job {
    queue: usize,
    class: usize,
    count: u32,
    gpus: u32,
    cpus: u32,
    least: Option<u32>,
}

#[derive(Debug, Clone)]
enum Step {
    Submit(Job),
    Finish(usize),
    Wait(i64),
    Change(usize, Share),
    Settle,
}

fn share() -> impl Strategy<Value = Share> {
    (
        0..9_u32,
        proptest::option::of(1..33_u32),
        0..5_u32,
        any::<bool>(),
        proptest::option::weighted(0.2, 8..13_u32),
    )
        .prop_map(|(gpus, cpus, guaranteed, within, capability)| Share {
            gpus,
            cpus,
            guaranteed: guaranteed.min(gpus),
            within,
            capability,
        })
}

fn job() -> impl Strategy<Value = Job> {
    let least = proptest::option::weighted(0.3, 1..3_u32);
    (0..4_usize, 0..3_usize, 1..5_u32, 0..5_u32, 1..7_u32, least).prop_map(
        |(queue, class, count, gpus, cpus, least)| Job {
            queue,
            class,
            count,
            gpus,
            cpus,
            least: least.filter(|least| *least < count),
        },
    )
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => job().prop_map(Step::Submit),
        3 => (0..30_usize).prop_map(Step::Finish),
        2 => (1..100_i64).prop_map(Step::Wait),
        1 => (0..4_usize, share()).prop_map(|(queue, share)| Step::Change(queue, share)),
        6 => Just(Step::Settle),
    ]
}

struct Model {
    world: World,
    shares: Vec<Share>,
    jobs: usize,
    /// How often each job was evicted for each preemptor since the last outside event.
    taken: BTreeMap<(String, String), u32>,
    /// The preemptors that have not started since.
    preemptors: BTreeSet<JobKey>,
}

impl Model {
    fn new(shares: Vec<Share>) -> Self {
        let mut world = World::new();
        world
            .cluster("x", 2, "cpu 16, gpu 4")
            .cluster("y", 1, "cpu 16, gpu 4")
            .queue(deserving("dept", "gpu 8"));
        let mut model = Self {
            world,
            shares: shares.clone(),
            jobs: 0,
            taken: BTreeMap::new(),
            preemptors: BTreeSet::new(),
        };
        for (queue, share) in shares.into_iter().enumerate() {
            model.change(queue, share);
        }
        model
    }

    fn change(&mut self, queue: usize, share: Share) {
        let name = QUEUES[queue];
        let cpus = share
            .cpus
            .map_or(String::new(), |cpus| format!(", cpu {cpus}"));
        // Two queues below a department, within its eight; two beside it.
        let gpus = if queue < 2 {
            share.gpus.min(4)
        } else {
            share.gpus
        };
        let fact = QueueFact {
            guarantee: if queue < 2 || share.guaranteed == 0 {
                Resources::new()
            } else {
                res(&format!("gpu {}", share.guaranteed.min(2)))
            },
            capability: share
                .capability
                .map_or_else(Resources::new, |gpus| res(&format!("gpu {gpus}"))),
            ..deserving(
                name,
                &format!("gpu {gpus}{}", if queue < 2 { "" } else { &cpus }),
            )
        };
        self.world
            .queue(if queue < 2 { below("dept", fact) } else { fact });
        self.world.policy(PolicyFact {
            preemption: Preemption {
                within_queue: share.within,
                ..Preemption::default()
            },
            ..policy(name)
        });
        self.shares[queue] = share;
        self.taken.clear();
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Submit(job) => {
                let request = if job.gpus == 0 {
                    format!("cpu {}", job.cpus)
                } else {
                    format!("cpu {}, gpu {}", job.cpus, job.gpus)
                };
                let demand = match job.least {
                    Some(least) => elastic(least, job.count, &request),
                    None => pods(job.count, &request),
                };
                let name = format!("j{:02}", self.jobs);
                self.jobs += 1;
                let job = self
                    .world
                    .job(&name, QUEUES[job.queue], demand)
                    .priority(CLASSES[job.class]);
                self.world.submit(job);
                self.taken.clear();
            }
            Step::Finish(job) => {
                let name = format!("j{job:02}");
                let known = self.world.engine.job(&key(&name)).map(|job| job.state);
                if known == Some(JobState::Running) {
                    self.world.finish(&name);
                    self.taken.clear();
                }
            }
            Step::Wait(seconds) => {
                self.world.wait(seconds);
            }
            Step::Change(queue, share) => self.change(queue, share),
            Step::Settle => self.settle(),
        }
    }

    /// Runs rounds until nothing is decided any more.
    fn settle(&mut self) {
        let mut evictions = 0;
        for _ in 0..300 {
            let before = self.committed();
            let decided = self.world.decided();
            if decided.decisions.is_empty() {
                let soon = decided.wake_at.map(|at| at.millis_since(self.world.now));
                match soon.filter(|left| *left <= 2_000) {
                    Some(left) => self.world.now = self.world.now.after(left.max(1)),
                    None => return self.preemptors_started(),
                }
                continue;
            }
            evictions += self.round(&decided.decisions);
            let (now, most) = (self.committed(), before.max(GPUS));
            assert!(now <= most, "{now} held or guaranteed, {before} before");
            assert!(evictions < 40, "does not come to rest: {:?}", self.taken);
            self.world.now = self.world.now.after(1);
        }
        panic!("does not come to rest");
    }

    fn round(&mut self, decisions: &[Decision]) -> usize {
        let mut evictions = 0;
        for decision in decisions {
            match decision {
                Decision::Release { key, .. } => {
                    self.preemptors.remove(key);
                    self.world.run(&key.name);
                }
                Decision::Resize { key, for_job, .. } => {
                    self.preemptors.extend(for_job.clone());
                    self.world.resized(&key.name);
                }
                Decision::Evict {
                    key: victim,
                    for_job: Some(whom),
                    ..
                } => {
                    evictions += 1;
                    self.preemptors.insert(whom.clone());
                    let pair = (victim.name.to_string(), whom.name.to_string());
                    let times = self.taken.entry(pair.clone()).or_default();
                    *times += 1;
                    assert!(*times <= 2, "{pair:?} again: {:?}", self.taken);
                    self.world.works_gone(&victim.name);
                }
                other => panic!("unasked for: {other:?}"),
            }
        }
        evictions
    }

    /// When nothing more is decided, each preemptor has started.
    fn preemptors_started(&mut self) {
        if let Some(preemptor) = self.preemptors.pop_first() {
            let why = self.world.engine.explain(&preemptor);
            panic!("{preemptor} did not start: {why:?}");
        }
    }

    /// GPUs that are in use, or guaranteed and idle: a guarantee stays withheld when the gang that
    /// used it is evicted.
    fn committed(&self) -> i64 {
        let gpu = engine::ResourceName::new("nvidia.com/gpu");
        let committed = |name: &str| {
            let index = QUEUES.iter().position(|queue| *queue == name);
            let guaranteed = index.map_or(0, |index| self.shares[index].guaranteed.min(2));
            let usage = self.world.engine.queue_usage(&QueueName::from(name));
            let usage = usage.unwrap();
            let valid = usage.closed.is_none();
            let kept = if valid { i64::from(guaranteed) } else { 0 };
            usage.allocated.amount_of(&gpu).0.max(kept)
        };
        ["dept", "c", "d"].map(committed).into_iter().sum()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(64), ..ProptestConfig::default() })]

    #[test]
    fn each_eviction_is_used_and_evictions_end(
        shares in proptest::collection::vec(share(), 4),
        steps in proptest::collection::vec(step(), 1..40),
    ) {
        let mut model = Model::new(shares);
        for step in steps {
            model.take(step);
        }
        model.settle();
    }
}
