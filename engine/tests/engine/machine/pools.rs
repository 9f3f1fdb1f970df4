//! The machine's own counts: the charge of each job from decisions and events, and the bounds on
//! classes of pools.
//!
//! The tests compare the engine's sums with these, and check bounds on pools by these alone.

use super::model::Model;
use engine::facts::{Admission, PoolBound, QueueState};
use engine::{JobKey, QueueName, Reason, ResourceName, Resources, Time};
use std::collections::BTreeSet;

/// The last attempt of a job, as its admission record states it.
#[derive(Debug, Clone)]
pub struct Record {
    pub admission: Admission,
    pub phase: Phase,
    /// The reason and the time of its eviction.
    pub taken: Option<(Reason, Time)>,
    /// When its last Work was gone.
    pub over_at: Option<Time>,
    /// The number of the attempt before.
    pub before: Option<Box<Record>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// It is charged.
    Held,
    /// It has ended by itself.
    Ended,
    /// No Work of it is left.
    Over,
}

/// Returns true if guarantee ≤ deserved ≤ capability, as far as they are named.
pub fn in_order(bounds: [&Resources; 3]) -> bool {
    let resources = bounds.into_iter().flat_map(Resources::iter);
    let resources: BTreeSet<&ResourceName> = resources.map(|(resource, _)| resource).collect();
    resources.into_iter().all(|resource| {
        let named = bounds.into_iter().filter_map(|bound| bound.get(resource));
        named.is_sorted()
    })
}

/// The part of an admission that a bound counts.
pub fn within(admission: &Admission, bound: &PoolBound, resource: &ResourceName) -> i64 {
    let clusters = bound.clusters.as_ref();
    let shares = admission.shares.iter();
    let shares =
        shares.filter(|share| clusters.is_none_or(|clusters| clusters.contains(&share.cluster)));
    let charges = shares.filter_map(|share| share.charge.get(&bound.class));
    charges.map(|charge| charge.amount_of(resource).0).sum()
}

impl Model {
    /// Notes that an attempt begins.
    pub fn record(&mut self, key: &JobKey, admission: &Admission) {
        let record = Record {
            admission: admission.clone(),
            phase: Phase::Held,
            taken: None,
            over_at: None,
            before: self.records.remove(key).map(Box::new),
        };
        self.records.insert(key.clone(), record);
    }

    /// Notes that an attempt is being evicted.
    pub fn record_taken(&mut self, key: &JobKey, reason: Reason) {
        let now = self.clock();
        if let Some(record) = self.records.get_mut(key) {
            record.taken.get_or_insert((reason, now));
        }
    }

    pub fn record_phase(&mut self, key: &JobKey, phase: Phase) {
        let now = self.clock();
        if let Some(record) = self.records.get_mut(key) {
            record.phase = phase;
            record.over_at = (phase == Phase::Over).then_some(now);
        }
    }

    /// The charge of a job. The charge of an edit of its template is known to the engine only.
    fn holds(&self, key: &JobKey) -> Option<&Admission> {
        let record = self.records.get(key);
        let record = record.filter(|record| record.phase == Phase::Held)?;
        if self.edited.contains(key) {
            return self.engine.job(key).and_then(|job| job.admission);
        }
        Some(&record.admission)
    }

    /// The charges of all charged jobs, with their keys.
    pub fn charges_by_job(&self) -> impl Iterator<Item = (&JobKey, &Admission)> {
        let keys = self.records.keys();
        keys.filter_map(|key| Some((key, self.holds(key)?)))
    }

    /// The charges of all charged jobs.
    pub fn charged_to_jobs(&self) -> impl Iterator<Item = &Admission> {
        self.records.keys().filter_map(|key| self.holds(key))
    }

    /// The sum of the charges of the jobs of a queue and of those below it.
    fn held_in(&self, queue: &QueueName, counts: impl Fn(&Admission) -> i64) -> i64 {
        let here = self
            .charged_to_jobs()
            .filter(|held| self.path(&held.queue).contains(queue));
        here.map(counts).sum()
    }

    /// S1 by pools: the charge is within every bound of the path that counts it.
    pub fn check_pool_bounds(&self, asked: &Admission) {
        for name in self.path(&asked.queue) {
            let Some(policy) = self.policies.get(&name) else {
                continue;
            };
            for (index, bound) in policy.pools.iter().enumerate() {
                let ordered = in_order([&bound.guarantee, &bound.deserved, &bound.capability]);
                // Bounds on the same pools count as one, with the larger guarantee.
                let same = |other: &&PoolBound| {
                    (&other.class, &other.clusters) == (&bound.class, &bound.clusters)
                };
                let alone = policy.pools.iter().filter(same).count() == 1;
                assert!(
                    ordered || !alone,
                    "{name} is wrong and takes jobs: {bound:?}"
                );
                let real = &self.engine.queue_usage(&name).unwrap().pools[index].real_capability;
                let most = bound.capability.iter().chain(real.iter());
                for (resource, most) in most {
                    let held = self.held_in(&name, |held| within(held, bound, resource));
                    assert!(
                        within(asked, bound, resource) == 0 || held <= most.0,
                        "{name} holds {held} of {resource}, may {most:?}: {bound:?}"
                    );
                }
            }
        }
    }

    /// S10 by pools: the charge in the pools of a bound is that of the jobs there.
    pub fn check_pool_accounts(&self) {
        for (name, policy) in &self.policies {
            if self.is_edited(name) {
                continue;
            }
            let Some(usage) = self.engine.queue_usage(name) else {
                continue;
            };
            for (bound, usage) in policy.pools.iter().zip(&usage.pools) {
                let named = bound.capability.iter().chain(usage.allocated.iter());
                for (resource, _) in named {
                    let told = usage.allocated.amount_of(resource).0;
                    let held = self.held_in(name, |held| within(held, bound, resource));
                    let leaves = self.shrinking_in(name, resource);
                    assert!(
                        held <= told && told <= held + leaves,
                        "{name} is charged {told} of {resource}, its jobs hold {held} and give \
                         back {leaves}: {bound:?}"
                    );
                }
            }
        }
    }

    /// The queue and its ancestors. A queue whose parent does not exist, or that is on a circle, is
    /// below the root.
    pub fn path(&self, queue: &QueueName) -> Vec<QueueName> {
        let mut path = vec![queue.clone()];
        while let Some(parent) = path.last().and_then(|name| self.parent_of(name)) {
            path.push(parent);
        }
        if self.queues.contains_key(&QueueName::from("root")) {
            path.push(QueueName::from("root"));
        }
        path
    }

    fn named_parent(&self, name: &QueueName) -> Option<QueueName> {
        let parent = self.queues.get(name)?.parent.clone()?;
        self.queues.contains_key(&parent).then_some(parent)
    }

    pub fn parent_of(&self, name: &QueueName) -> Option<QueueName> {
        let parent = self.named_parent(name)?;
        let mut seen = BTreeSet::new();
        let mut above = Some(parent.clone());
        while let Some(at) = above.filter(|at| seen.insert(at.clone())) {
            if at == *name {
                return None;
            }
            above = self.named_parent(&at);
        }
        Some(parent)
    }

    /// Returns true if a queue is a leaf, and it and all its ancestors exist, are open and are on no
    /// circle.
    pub fn takes_jobs(&self, name: &QueueName) -> bool {
        let mut others = self.queues.keys();
        if others.any(|other| self.parent_of(other).as_ref() == Some(name)) {
            return false;
        }
        self.path(name).iter().all(|name| {
            let fact = self.queues.get(name);
            fact.is_some_and(|fact| {
                let placed = fact.parent.is_none() || self.parent_of(name).is_some();
                placed && fact.state == QueueState::Open
            })
        })
    }

    /// Returns true if the template of a job was edited that is charged to the queue or below it.
    pub fn is_edited(&self, queue: &QueueName) -> bool {
        self.edited.iter().any(|key| {
            let job = self.engine.job(key);
            job.is_some_and(|job| self.path(job.queue).contains(queue))
        })
    }
}
