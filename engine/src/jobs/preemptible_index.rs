//! The index of jobs that could be evicted, by queue and priority, and of terminating jobs.
//!
//! A search for victims uses this index, so that its cost does not depend on the number of pending
//! jobs, and is small for each job that is listed: what it reads of them stands here.

use crate::amounts::hashed::Hashed;
use crate::api::charge::Pools;
use crate::jobs::elastic::Sizes;
use crate::jobs::job::Job;
use facts::{JobKey, QueueName, Time};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Admitted jobs that are neither ending nor over, and jobs that are terminating.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct PreemptibleIndex {
    /// Jobs by the queue that they are charged to, lowest priority first.
    queues: BTreeMap<QueueName, BTreeMap<(i32, JobKey), VictimFacts>>,
    /// What they are charged.
    charges: SharedCharges,
    /// The number of jobs of each priority.
    priorities: BTreeMap<i32, usize>,
    /// Jobs that are ending and still charged, or have terminating pods.
    terminating: BTreeSet<JobKey>,
}

/// What a search for victims reads of a job. It reads thousands for a choice of one, so this stands in the index
/// beside the key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct VictimFacts {
    /// What it is charged, if anything. Jobs with equal charges share one.
    pub(crate) charge: Option<Arc<Pools>>,
    pub(crate) admitted_at: Time,
    /// When it was first observed running, if it was.
    pub(crate) started_at: Option<Time>,
    /// Since when its work is not saved; `None` while it does not run.
    pub(crate) unsaved_since: Option<Time>,
    /// When it has run as long as it declared ([`Job::overdue_at`]).
    pub(crate) overdue_at: Option<Time>,
    /// True if it may be evicted for another job.
    pub(crate) preemptible: bool,
    /// True if it was ever evicted for another job.
    pub(crate) gave_way: bool,
    /// True if it has one size, and none of its pods terminates: it is evicted as a whole.
    pub(crate) is_whole: bool,
}

/// Charges of jobs, each with the number of jobs that have it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct SharedCharges(Hashed<Arc<Pools>, usize>);

impl VictimFacts {
    /// `None` for a job that is not admitted.
    fn of(job: &Job) -> Option<Self> {
        let released = job.released.as_deref()?;
        let saved = released.started_at.max(job.cold.checkpointed_at);
        let has_sizes = job.demand.as_deref().and_then(Sizes::of).is_some();
        let charge = job.derived.has.charge.as_ref();
        Some(Self {
            charge: charge.map(|(_, pools)| Arc::clone(pools)),
            admitted_at: released.admission.admitted_at,
            started_at: released.started_at,
            unsaved_since: released.started_at.and(saved),
            overdue_at: job.overdue_at(),
            preemptible: job.preemptible,
            gave_way: job.gave_way(),
            is_whole: !has_sizes && released.leaving.is_empty(),
        })
    }

    /// Returns true if a cause is later than its admission, so that it may be evicted for that.
    pub(crate) fn gives_way_to(&self, cause: Time) -> bool {
        self.admitted_at < cause
    }
}

impl Job {
    /// When it has run as long as it declared; `None` while it does not run, and if it declared nothing.
    pub(crate) fn overdue_at(&self) -> Option<Time> {
        let released = self.released.as_deref()?;
        let declared = released.declared_ms.or(self.duration)?;
        Some(released.started_at?.after(declared))
    }

    /// Its entry in the index of preemptible jobs, if it is listed.
    pub(super) fn preemptible_entry(&self) -> Option<(&(QueueName, i32), VictimFacts)> {
        let place = self.derived.has.held.as_ref()?;
        Some((place, VictimFacts::of(self)?))
    }
}

impl SharedCharges {
    /// Adds a job with this charge, and returns the one that all such jobs share.
    fn share(&mut self, charge: Arc<Pools>) -> Arc<Pools> {
        let entry = self.0.entry(charge);
        let shared = Arc::clone(entry.key());
        *entry.or_default() += 1;
        shared
    }

    /// Takes off a job with this charge.
    fn release(&mut self, charge: &Arc<Pools>) {
        if let Some(count) = self.0.get_mut(charge) {
            *count -= 1;
            if *count == 0 {
                self.0.remove(charge);
            }
        }
    }
}

impl PreemptibleIndex {
    /// Sets the entry of a job that was listed in a queue with a priority, or not; `None` means that it is not listed.
    pub(crate) fn set(
        &mut self,
        key: &JobKey,
        was: Option<&(QueueName, i32)>,
        now: Option<(&(QueueName, i32), VictimFacts)>,
    ) {
        match (was, now) {
            (Some(was), Some((now, facts))) if was == now => self.update(key, was, facts),
            (was, now) => {
                if let Some(was) = was {
                    self.remove(key, was);
                }
                if let Some((now, facts)) = now {
                    self.insert(key, now, facts);
                }
            }
        }
    }

    fn update(&mut self, key: &JobKey, (queue, priority): &(QueueName, i32), now: VictimFacts) {
        let jobs = self.queues.get_mut(queue);
        let known = jobs.and_then(|jobs| jobs.get_mut(&(*priority, key.clone())));
        let Some(known) = known else { return };
        let mut now = now;
        if known.charge == now.charge {
            now.charge = known.charge.take();
        } else {
            now.charge = now.charge.map(|charge| self.charges.share(charge));
            if let Some(charge) = &known.charge {
                self.charges.release(charge);
            }
        }
        *known = now;
    }

    fn remove(&mut self, key: &JobKey, (queue, priority): &(QueueName, i32)) {
        if let Some(jobs) = self.queues.get_mut(queue) {
            let facts = jobs.remove(&(*priority, key.clone()));
            if let Some(charge) = facts.and_then(|facts| facts.charge) {
                self.charges.release(&charge);
            }
            if jobs.is_empty() {
                self.queues.remove(queue);
            }
        }
        if let Some(count) = self.priorities.get_mut(priority) {
            *count -= 1;
            if *count == 0 {
                self.priorities.remove(priority);
            }
        }
    }

    fn insert(&mut self, key: &JobKey, (queue, priority): &(QueueName, i32), facts: VictimFacts) {
        let charge = facts.charge.map(|charge| self.charges.share(charge));
        let jobs = self.queues.entry(queue.clone()).or_default();
        jobs.insert((*priority, key.clone()), VictimFacts { charge, ..facts });
        *self.priorities.entry(*priority).or_default() += 1;
    }

    /// Lists a job as terminating, or not.
    pub(crate) fn set_terminating(&mut self, key: &JobKey, terminating: bool) {
        if terminating {
            self.terminating.insert(key.clone());
        } else {
            self.terminating.remove(key);
        }
    }

    /// Jobs that are terminating, as a whole or in part.
    pub(crate) fn terminating(&self) -> impl Iterator<Item = &JobKey> {
        self.terminating.iter()
    }

    /// The queues that have such jobs.
    pub(crate) fn queues(&self) -> impl Iterator<Item = &QueueName> {
        self.queues.keys()
    }

    /// The jobs of a queue, lowest priority first.
    pub(crate) fn of(&self, queue: &QueueName) -> impl Iterator<Item = &(i32, JobKey)> {
        self.with_facts(queue).map(|(job, _)| job)
    }

    /// The same, each with what a search for victims reads of it.
    pub(crate) fn with_facts(
        &self,
        queue: &QueueName,
    ) -> impl Iterator<Item = (&(i32, JobKey), &VictimFacts)> {
        self.queues.get(queue).into_iter().flatten()
    }

    /// The jobs of all queues for which `counts` returns true.
    pub(crate) fn below(
        &self,
        counts: impl Fn(&QueueName) -> bool,
    ) -> impl Iterator<Item = &JobKey> {
        let queues = self.queues.iter().filter(move |(queue, _)| counts(queue));
        queues.flat_map(|(_, jobs)| jobs.keys().map(|(_, key)| key))
    }

    /// The position of a priority among those in use, 0 for the lowest.
    pub(crate) fn rank(&self, priority: i32) -> usize {
        self.priorities.range(..priority).count()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use facts::{Amount, ResourceName, Resources};

    fn facts(gpus: i64) -> VictimFacts {
        let pool = ("member".into(), "gpu".into());
        let amounts = [(ResourceName::new("nvidia.com/gpu"), Amount(gpus))];
        let charge = BTreeMap::from([(pool, amounts.into_iter().collect::<Resources>())]);
        VictimFacts {
            charge: Some(Arc::new(charge)),
            admitted_at: Time(1),
            started_at: None,
            unsaved_since: None,
            overdue_at: None,
            preemptible: true,
            gave_way: false,
            is_whole: true,
        }
    }

    #[test]
    fn jobs_with_equal_charges_share_one_until_the_last_is_gone() {
        let (queue, place) = (QueueName::from("q"), (QueueName::from("q"), 0));
        let keys = ["a", "b"].map(|name| JobKey::new("ns", name));
        let mut index = PreemptibleIndex::default();
        let shared = |index: &PreemptibleIndex| {
            let charges = index
                .with_facts(&queue)
                .map(|(_, facts)| facts.charge.clone());
            let charges: Vec<Arc<Pools>> = charges.flatten().collect();
            Arc::ptr_eq(charges.first().unwrap(), charges.last().unwrap())
        };
        for key in &keys {
            index.set(key, None, Some((&place, facts(1))));
        }
        assert!(shared(&index));
        index.set(&keys[1], Some(&place), Some((&place, facts(2))));
        assert!(!shared(&index));
        assert_eq!(index.charges.0.len(), 2);
        index.set(&keys[1], Some(&place), Some((&place, facts(1))));
        assert!(shared(&index));
        for key in &keys {
            assert_eq!(index.charges.0.len(), 1);
            index.set(key, Some(&place), None);
        }
        assert_eq!(index, PreemptibleIndex::default());
    }
}
