//! The record of a run: what happened to each job, and what was in use over time.
//!
//! Amounts are thousandths of a device (of a core if the fleet has no devices), so that fractions
//! of GPUs count. Samples are taken at a fixed interval; when there are too many, every second one
//! is dropped and the interval doubles.

use crate::fair::{FairTree, jain};
use crate::fragmentation::FragmentationTracker;
use crate::scenario::Scenario;
use engine::facts::{Admission, Share};
use engine::resources::ResourceName;
use engine::{ClusterName, PoolClass, Resources, Time};
use serde::Serialize;
use std::collections::BTreeMap;

/// The number of samples in the arrival window; the run may be longer.
const SAMPLES: i64 = 400;
/// The number of samples above which every second one is dropped.
const MOST_SAMPLES: usize = 1600;

/// The unit of amounts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Measure {
    /// Thousandths of devices.
    Devices,
    /// Thousandths of cores, if the fleet has no devices.
    Cores,
}

/// What happened to one job.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JobRecord {
    /// When it was first admitted.
    pub started: Option<Time>,
    /// When it ended.
    pub finished: Option<Time>,
    /// When its current wait began; `None` if it is not pending.
    pub waits_since: Option<Time>,
    /// Its wait in milliseconds, over all attempts.
    pub waited_ms: i64,
    /// How often it was evicted.
    pub evicted: u32,
    /// The work that it lost to evictions, in thousandths of devices × milliseconds.
    pub lost: i128,
    /// The most clusters that it used at once.
    pub clusters: u32,
    /// The sum of its pods' requests.
    pub size: i64,
}

/// A sample of the state at one moment.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Sample {
    /// The time.
    pub at: Time,
    /// The use of each pool.
    pub pools: Vec<i64>,
    /// The use of each queue.
    pub queues: Vec<i64>,
    /// The sum of the pending jobs' requests.
    pub waiting: i64,
    /// The share of free devices that the job mix cannot use.
    pub unusable: f64,
    /// Half the sum over queues of |use − fair share|, over the sum of fair shares.
    pub unfair: f64,
    /// Jain's index of use ÷ fair share, over the queues with requests.
    pub jain: Option<f64>,
}

/// A pool and its capacity.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PoolRecord {
    /// Its cluster.
    pub cluster: ClusterName,
    /// Its class.
    pub class: PoolClass,
    /// The sum of its nodes' capacity.
    pub capacity: i64,
}

/// The record of a run.
#[derive(Debug, Clone)]
pub struct RunRecord {
    /// The unit of amounts.
    pub measure: Measure,
    /// The capacity of the fleet.
    pub capacity: i64,
    /// Its pools, by cluster and class.
    pub pools: Vec<PoolRecord>,
    /// What happened to each job, in the scenario's order.
    pub jobs: Vec<JobRecord>,
    /// The samples.
    pub samples: Vec<Sample>,
    /// Use × milliseconds, up to the last arrival.
    pub used_in_window: i128,
    /// Decisions by kind.
    pub decisions: Decided,
    queue_of: Vec<usize>,
    node_index: BTreeMap<(ClusterName, engine::NodeName), (usize, usize)>,
    per_pod: Vec<Vec<i64>>,
    held: Vec<Vec<(usize, usize, i64)>>,
    in_use: Vec<i64>,
    by_queue: Vec<i64>,
    asked: Vec<i64>,
    fair: FairTree,
    fragmentation: FragmentationTracker,
    counted_to: Time,
    window_end: Time,
    step: i64,
    next_sample: Time,
}

/// The number of decisions of each kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Decided {
    /// Admissions.
    pub releases: u64,
    /// Scale-ups granted and shrinks requested.
    pub resizes: u64,
    /// Evictions.
    pub evicted: u64,
}

impl Measure {
    fn of(scenario: &Scenario) -> Self {
        let mut names = scenario
            .fleet
            .nodes
            .iter()
            .flat_map(|n| n.allocatable.iter());
        if names.any(|(name, _)| name.is_device()) {
            Self::Devices
        } else {
            Self::Cores
        }
    }

    /// Sums the resources that count; `None` if there are none.
    #[must_use]
    pub fn of_resources(self, resources: &Resources) -> Option<i64> {
        let counted = resources.iter().filter_map(|(name, amount)| match self {
            Self::Devices if !name.is_device() => None,
            // A resource in thousandths of a device, like openb's GPUs.
            Self::Devices if name.as_str().ends_with("-milli") => Some(amount.0),
            Self::Devices => Some(amount.0.saturating_mul(1000)),
            Self::Cores => (name.as_str() == ResourceName::CPU).then_some(amount.0),
        });
        counted.reduce(i64::saturating_add)
    }

    /// Returns the singular noun of the unit.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Devices => "GPU",
            Self::Cores => "core",
        }
    }
}

impl RunRecord {
    /// Returns the empty record of a scenario.
    #[must_use]
    pub fn new(scenario: &Scenario) -> Self {
        let measure = Measure::of(scenario);
        let count = |resources: &Resources| measure.of_resources(resources).unwrap_or(0);
        let mut pool_index = BTreeMap::new();
        for node in &scenario.fleet.nodes {
            pool_index.insert((node.cluster.clone(), node.class.clone()), 0);
        }
        for (place, index) in pool_index.values_mut().enumerate() {
            *index = place;
        }
        let mut pools: Vec<PoolRecord> = pool_index
            .keys()
            .map(|(cluster, class)| PoolRecord {
                cluster: cluster.clone(),
                class: class.clone(),
                capacity: 0,
            })
            .collect();
        let mut node_index = BTreeMap::new();
        for (place, node) in scenario.fleet.nodes.iter().enumerate() {
            let pool = pool_index[&(node.cluster.clone(), node.class.clone())];
            pools[pool].capacity += count(&node.allocatable);
            node_index.insert((node.cluster.clone(), node.name.clone()), (place, pool));
        }
        let queues: BTreeMap<_, _> = scenario
            .queues
            .queues
            .iter()
            .map(|q| &q.name)
            .zip(0..)
            .collect();
        let roles = |job: &crate::scenario::SimJob| -> Vec<i64> {
            job.fact
                .demand
                .roles
                .iter()
                .map(|role| count(&role.request))
                .collect()
        };
        let per_pod: Vec<Vec<i64>> = scenario.jobs.iter().map(roles).collect();
        let jobs: Vec<JobRecord> = scenario
            .jobs
            .iter()
            .zip(&per_pod)
            .map(|(job, sizes)| {
                let roles = job.fact.demand.roles.iter().zip(sizes);
                JobRecord {
                    size: roles.map(|(role, size)| i64::from(role.count) * size).sum(),
                    ..JobRecord::default()
                }
            })
            .collect();
        let mix = scenario.jobs.iter().zip(&per_pod).flat_map(|(job, sizes)| {
            let roles = job.fact.demand.roles.iter().zip(sizes);
            roles.map(|(role, size)| (*size, u64::from(role.count)))
        });
        let capacities = scenario
            .fleet
            .nodes
            .iter()
            .map(|node| count(&node.allocatable));
        let (first, last) = scenario.window().unwrap_or_default();
        let queue_of = scenario
            .jobs
            .iter()
            .map(|job| queues.get(&job.fact.queue).copied().unwrap_or(usize::MAX));
        Self {
            measure,
            capacity: pools.iter().map(|pool| pool.capacity).sum(),
            samples: Vec::new(),
            used_in_window: 0,
            decisions: Decided::default(),
            queue_of: queue_of.collect(),
            held: vec![Vec::new(); jobs.len()],
            in_use: vec![0; pools.len()],
            by_queue: vec![0; queues.len()],
            asked: vec![0; queues.len()],
            fair: FairTree::new(&scenario.queues, |resources| {
                measure.of_resources(resources)
            }),
            fragmentation: FragmentationTracker::new(capacities, mix),
            counted_to: first,
            window_end: last,
            step: (last.millis_since(first) / SAMPLES).max(1),
            next_sample: first,
            pools,
            jobs,
            node_index,
            per_pod,
        }
    }

    /// Advances the time to `now`; nothing has changed since the previous call.
    pub fn advance(&mut self, now: Time) {
        let until = now.min(self.window_end);
        let used: i64 = self.in_use.iter().sum();
        self.used_in_window += i128::from(until.millis_since(self.counted_to)) * i128::from(used);
        self.counted_to = now;
        while self.next_sample <= now {
            self.sample();
            self.next_sample = self.next_sample.after(self.step);
            if self.samples.len() >= MOST_SAMPLES {
                let mut keep = false;
                self.samples.retain(|_| {
                    keep = !keep;
                    keep
                });
                self.step *= 2;
            }
        }
    }

    fn sample(&mut self) {
        let shares = self.fair.shares(self.capacity, &self.asked);
        let all: f64 = self.queue_leaves().map(|queue| shares[queue]).sum();
        let apart: f64 = self
            .queue_leaves()
            .map(|queue| (self.by_queue[queue] as f64 - shares[queue]).abs())
            .sum();
        let parts: Vec<f64> = self
            .queue_leaves()
            .filter(|queue| shares[*queue] > 0.0)
            .map(|queue| self.by_queue[queue] as f64 / shares[queue])
            .collect();
        let used: i64 = self.in_use.iter().sum();
        let asked: i64 = self.asked.iter().sum();
        self.samples.push(Sample {
            at: self.next_sample,
            pools: self.in_use.clone(),
            queues: self.by_queue.clone(),
            waiting: (asked - used).max(0),
            unusable: self.fragmentation.unusable(),
            unfair: if all > 0.0 { apart / all / 2.0 } else { 0.0 },
            jain: jain(&parts),
        });
    }

    /// Returns the queues that may have requests; inner queues have no jobs.
    fn queue_leaves(&self) -> impl Iterator<Item = usize> {
        (0..self.asked.len()).filter(|queue| self.asked[*queue] > 0)
    }

    /// Records the arrival of a job.
    pub fn arrives(&mut self, job: usize, now: Time) {
        self.jobs[job].waits_since = Some(now);
        if let Some(asked) = self.asked.get_mut(self.queue_of[job]) {
            *asked += self.jobs[job].size;
        }
    }

    /// Records that a job starts or is resized.
    pub fn runs(&mut self, job: usize, admission: &Admission, now: Time) {
        let record = &mut self.jobs[job];
        record.started.get_or_insert(now);
        if let Some(since) = record.waits_since.take() {
            record.waited_ms += now.millis_since(since);
        }
        let clusters = u32::try_from(admission.shares.len()).unwrap_or(u32::MAX);
        record.clusters = record.clusters.max(clusters);
        self.free(job);
        let held = admission
            .shares
            .iter()
            .flat_map(|share| self.places(job, share));
        let held: Vec<_> = held.collect();
        self.hold(job, &held, 1);
        self.held[job] = held;
    }

    /// Returns the nodes of a part's pods as (node, pool, amount). Plans of the engine always name
    /// nodes; pods without a slot would have no place here.
    fn places(&self, job: usize, share: &Share) -> Vec<(usize, usize, i64)> {
        let place = |slot: &engine::facts::Slot| {
            let key = (share.cluster.clone(), slot.node.clone());
            let (node, pool) = *self.node_index.get(&key)?;
            let role = share.pods.iter().position(|pods| pods.role == slot.role)?;
            let amount = self.per_pod[job].get(role)? * i64::from(slot.count);
            Some((node, pool, amount))
        };
        share.slots.iter().filter_map(place).collect()
    }

    fn hold(&mut self, job: usize, held: &[(usize, usize, i64)], sign: i64) {
        for (node, pool, amount) in held {
            self.fragmentation.take(*node, sign * amount);
            self.in_use[*pool] += sign * amount;
            if let Some(queue) = self.by_queue.get_mut(self.queue_of[job]) {
                *queue += sign * amount;
            }
        }
    }

    fn free(&mut self, job: usize) {
        let held = std::mem::take(&mut self.held[job]);
        self.hold(job, &held, -1);
    }

    /// Records an eviction and the pod time that it lost.
    pub fn evicted(&mut self, job: usize, lost_pod_ms: i128, pods: u64) {
        let record = &mut self.jobs[job];
        record.evicted += 1;
        // A pod counts as the average over roles.
        record.lost += lost_pod_ms * i128::from(record.size) / i128::from(pods.max(1));
    }

    /// Records that an evicted job is gone and pending again since it was stopped.
    pub fn waits_again(&mut self, job: usize, since: Time) {
        self.free(job);
        self.jobs[job].waits_since = Some(since);
    }

    /// Records the end of a job.
    pub fn finishes(&mut self, job: usize, now: Time) {
        self.free(job);
        self.jobs[job].finished = Some(now);
        if let Some(asked) = self.asked.get_mut(self.queue_of[job]) {
            *asked -= self.jobs[job].size;
        }
    }
}
