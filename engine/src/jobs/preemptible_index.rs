//! The index of jobs that could be evicted, by queue and priority, and of terminating jobs.
//!
//! A search for victims uses this index, so that its cost does not depend on the number of pending
//! jobs, and is small for each job that is listed: what it reads of them stands here.

use crate::api::charge::Pools;
use crate::jobs::elastic::Sizes;
use crate::jobs::job::Job;
use crate::jobs::victim_group::{GroupKey, VictimGroup};
use facts::{JobKey, QueueName, Time};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Admitted jobs that are neither ending nor over, and jobs that are terminating.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct PreemptibleIndex {
    /// Jobs by the queue that they are charged to.
    queues: BTreeMap<QueueName, PreemptibleJobs>,
    /// The number of jobs of each priority.
    priorities: BTreeMap<i32, usize>,
    /// Jobs that are ending and still charged, or have terminating pods.
    terminating: BTreeSet<JobKey>,
}

/// The jobs of one queue.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct PreemptibleJobs {
    /// All of them, lowest priority first.
    jobs: BTreeMap<(i32, JobKey), Arc<VictimFacts>>,
    /// Those that are charged anything, once more.
    groups: BTreeMap<GroupKey, VictimGroup>,
}

/// What a search for victims reads of a job. It reads many for a choice of one, so this stands in the index
/// beside the key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct VictimFacts {
    /// What it is charged, if anything. The jobs of a group share one.
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

impl PreemptibleJobs {
    fn insert(&mut self, key: &JobKey, priority: i32, mut facts: VictimFacts) {
        let group = group_of(priority, &facts).map(|of| {
            let entry = self.groups.entry(of);
            facts.charge = Some(Arc::clone(&entry.key().charge));
            entry.or_default()
        });
        let facts = Arc::new(facts);
        if let Some(group) = group {
            group.insert(key, Arc::clone(&facts));
        }
        self.jobs.insert((priority, key.clone()), facts);
    }

    fn remove(&mut self, key: &JobKey, priority: i32) {
        let Some(facts) = self.jobs.remove(&(priority, key.clone())) else {
            return;
        };
        let Some(of) = group_of(priority, &facts) else {
            return;
        };
        if let Some(group) = self.groups.get_mut(&of) {
            group.remove(key, &facts);
            if group.len() == 0 {
                self.groups.remove(&of);
            }
        }
    }

    fn update(&mut self, key: &JobKey, priority: i32, mut facts: VictimFacts) {
        let known = self.jobs.get_mut(&(priority, key.clone()));
        let Some(known) = known.filter(|known| ***known != facts) else {
            return;
        };
        if (known.is_whole, &known.charge) != (facts.is_whole, &facts.charge) {
            self.remove(key, priority);
            return self.insert(key, priority, facts);
        }
        facts.charge.clone_from(&known.charge);
        let (was, now) = (Arc::clone(known), Arc::new(facts));
        *known = Arc::clone(&now);
        if let Some(group) = group_of(priority, &was).and_then(|of| self.groups.get_mut(&of)) {
            group.remove(key, &was);
            group.insert(key, now);
        }
    }
}

/// Returns the group of a job, if it is in one.
fn group_of(priority: i32, facts: &VictimFacts) -> Option<GroupKey> {
    Some(GroupKey {
        priority,
        is_whole: facts.is_whole,
        charge: Arc::clone(facts.charge.as_ref()?),
    })
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
        if let Some(jobs) = self.queues.get_mut(queue) {
            jobs.update(key, *priority, now);
        }
    }

    fn remove(&mut self, key: &JobKey, (queue, priority): &(QueueName, i32)) {
        if let Some(jobs) = self.queues.get_mut(queue) {
            jobs.remove(key, *priority);
            if jobs.jobs.is_empty() {
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
        let jobs = self.queues.entry(queue.clone()).or_default();
        jobs.insert(key, *priority, facts);
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
        let jobs = self.queues.get(queue).into_iter();
        jobs.flat_map(|jobs| jobs.jobs.keys())
    }

    /// The jobs of a queue that are charged anything, in groups.
    pub(crate) fn groups_of(
        &self,
        queue: &QueueName,
    ) -> impl Iterator<Item = (&GroupKey, &VictimGroup)> {
        let jobs = self.queues.get(queue).into_iter();
        jobs.flat_map(|jobs| &jobs.groups)
    }

    /// The jobs of all queues for which `counts` returns true.
    pub(crate) fn below(
        &self,
        counts: impl Fn(&QueueName) -> bool,
    ) -> impl Iterator<Item = &JobKey> {
        let queues = self.queues.iter().filter(move |(queue, _)| counts(queue));
        queues.flat_map(|(_, jobs)| jobs.jobs.keys().map(|(_, key)| key))
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
        let groups = |index: &PreemptibleIndex| index.groups_of(&queue).count();
        let shared = |index: &PreemptibleIndex| {
            let jobs = index.queues[&queue].jobs.values();
            let charges: Vec<_> = jobs.map(|facts| facts.charge.clone().unwrap()).collect();
            Arc::ptr_eq(charges.first().unwrap(), charges.last().unwrap())
        };
        for key in &keys {
            index.set(key, None, Some((&place, facts(1))));
        }
        assert!(shared(&index));
        index.set(&keys[1], Some(&place), Some((&place, facts(2))));
        assert!(!shared(&index));
        assert_eq!(groups(&index), 2);
        index.set(&keys[1], Some(&place), Some((&place, facts(1))));
        assert!(shared(&index));
        for key in &keys {
            assert_eq!(groups(&index), 1);
            index.set(key, Some(&place), None);
        }
        assert_eq!(index, PreemptibleIndex::default());
    }
}
