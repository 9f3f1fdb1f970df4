//! Groups of jobs that lose in one order by an eviction: those of one queue with equal priorities and charges.
//!
//! What a job loses by an eviction grows with time, but within a group the order of the candidates
//! (`preemption/victims.rs`) stays the same while they run. So a search for victims reads the first of each group and,
//! most often, no others.

use crate::api::charge::Pools;
use crate::jobs::preemptible_index::VictimFacts;
use facts::{JobKey, Time};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What the jobs of a group have in common, besides their queue.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct GroupKey {
    pub(crate) priority: i32,
    /// True if each is evicted as a whole ([`VictimFacts::is_whole`]).
    pub(crate) is_whole: bool,
    /// What each is charged.
    pub(crate) charge: Arc<Pools>,
}

/// The jobs of a group.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct VictimGroup {
    /// Those that do not run, of which nothing is lost: by the latest admission.
    idle: BTreeMap<(Reverse<Time>, JobKey), Arc<VictimFacts>>,
    /// Those that run: first those whose work was saved last, then by the latest admission.
    running: BTreeMap<(Reverse<Time>, Reverse<Time>, JobKey), Arc<VictimFacts>>,
}

impl VictimGroup {
    pub(super) fn insert(&mut self, key: &JobKey, facts: Arc<VictimFacts>) {
        let (younger, key) = (Reverse(facts.admitted_at), key.clone());
        match facts.unsaved_since {
            Some(since) => {
                let at = (Reverse(since), younger, key);
                self.running.insert(at, facts);
            }
            None => {
                self.idle.insert((younger, key), facts);
            }
        }
    }

    pub(super) fn remove(&mut self, key: &JobKey, facts: &VictimFacts) {
        let (younger, key) = (Reverse(facts.admitted_at), key.clone());
        match facts.unsaved_since {
            Some(since) => self.running.remove(&(Reverse(since), younger, key)),
            None => self.idle.remove(&(younger, key)),
        };
    }

    pub(crate) fn len(&self) -> usize {
        self.idle.len() + self.running.len()
    }

    /// Returns the jobs in the order of what is lost of them at `now`, then by the latest admission and the key.
    pub(crate) fn in_order(
        &self,
        now: Time,
    ) -> impl DoubleEndedIterator<Item = (&JobKey, &VictimFacts)> {
        let idle = self.idle.iter();
        let idle = idle.map(|((younger, key), facts)| (*younger, key, &**facts));
        let running = self.running.iter();
        let running =
            running.map(|((since, younger, key), facts)| (since.0, (*younger, key, &**facts)));
        // Nothing is lost either of a job that runs only from now on, or has just saved its work.
        let fresh = running.clone().take_while(|(since, _)| *since >= now);
        let mut without_loss: Vec<_> = fresh.map(|(_, job)| job).collect();
        let fresh = without_loss.len();
        let mut left = idle.len();
        if fresh > 0 {
            without_loss.extend(idle.clone());
            without_loss.sort_by_key(|(younger, key, _)| (*younger, *key));
            left = 0;
        }
        let running = running.skip(fresh).map(|(_, job)| job);
        let all = without_loss
            .into_iter()
            .chain(idle.take(left))
            .chain(running);
        all.map(|(_, key, facts)| (key, facts))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(admitted: i64, unsaved: Option<i64>) -> VictimFacts {
        VictimFacts {
            charge: None,
            admitted_at: Time(admitted),
            started_at: unsaved.map(Time),
            unsaved_since: unsaved.map(Time),
            overdue_at: None,
            preemptible: true,
            gave_way: false,
            is_whole: true,
        }
    }

    #[test]
    fn jobs_that_lose_least_come_first_at_any_time() {
        let jobs = [
            ("a", facts(5, None)),
            ("b", facts(7, None)),
            ("c", facts(1, Some(10))),
            ("d", facts(6, Some(20))),
            ("e", facts(6, Some(20))),
            ("f", facts(9, Some(30))),
        ];
        let mut group = VictimGroup::default();
        for (name, facts) in &jobs {
            group.insert(&JobKey::new("ns", name), Arc::new(facts.clone()));
        }
        for now in 0..40 {
            let lost = |facts: &VictimFacts| {
                let since = facts.unsaved_since;
                since.map_or(0, |since| (now - since.0).max(0))
            };
            let mut sorted: Vec<_> = jobs.iter().collect();
            sorted.sort_by_key(|(name, facts)| (lost(facts), Reverse(facts.admitted_at), *name));
            let sorted: Vec<&str> = sorted.iter().map(|(name, _)| *name).collect();
            let names = group.in_order(Time(now)).map(|(key, _)| &*key.name);
            assert_eq!(names.collect::<Vec<_>>(), sorted, "at {now}");
            let back = group.in_order(Time(now)).rev().map(|(key, _)| &*key.name);
            assert!(back.eq(sorted.iter().rev().copied()), "at {now}");
        }
        for (name, facts) in &jobs {
            assert!(group.len() > 0);
            group.remove(&JobKey::new("ns", name), facts);
        }
        assert_eq!(group, VictimGroup::default());
    }
}
