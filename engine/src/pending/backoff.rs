//! The back-off of jobs that searched for victims and found none.
//!
//! A search costs far more than another evaluation, so it is limited for each job: a job rests until one
//! of its [`RequeueCondition`]s has come, and stays at rest when its class is woken for something else.
//! - `Victims`: a while has passed, and anything has changed since the search.
//! - `Time`: a victim was protected by the minimum run time of its queue, which has passed.
//! - `Entitlement`: the job was not entitled to reclaim, and a queue of its path uses enough less than it
//!   deserves.
//!
//! When a queue, a policy or a priority class has changed, all back-offs end, some at a time. The class of
//! a job is activated when its back-off ends.

use super::inadmissible::RequeueCondition;
use super::waiting_list::WaitingList;
use crate::amounts::hashed::Hashed;
use facts::{JobKey, QueueName, ResourceName, Time};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::ops::Bound::{Excluded, Unbounded};
use std::ops::RangeInclusive;

/// The most back-offs that end at once.
const AT_ONCE: usize = 64;

/// The jobs with a back-off.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Record", into = "Record")]
pub(crate) struct PreemptionBackoff {
    /// Counts changes after which a search may find victims.
    version: u64,
    resting: Hashed<JobKey, Resting>,
    /// The same jobs in order, to end their back-offs some at a time.
    in_order: BTreeSet<JobKey>,
    /// The last job of which was looked whether its back-off began before `ended_before`.
    looked_at: Option<JobKey>,
    /// The same jobs by what they wait for.
    pub(super) waiting: WaitingList<JobKey>,
    /// Back-offs that began before this version end, whatever they wait for; zero: none does.
    ended_before: u64,
}

/// The back-off of one job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Resting {
    /// The version at the search.
    seen: u64,
    conditions: Vec<RequeueCondition>,
}

/// The same as a plain list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Record {
    version: u64,
    #[serde(default)]
    searches: Vec<(JobKey, Resting)>,
    #[serde(default)]
    ended_before: u64,
}

impl From<PreemptionBackoff> for Record {
    fn from(backoff: PreemptionBackoff) -> Self {
        let mut searches: Vec<_> = backoff.resting.into_iter().collect();
        searches.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        Self {
            version: backoff.version,
            searches,
            ended_before: backoff.ended_before,
        }
    }
}

impl From<Record> for PreemptionBackoff {
    fn from(record: Record) -> Self {
        let mut waiting = WaitingList::default();
        for (key, resting) in &record.searches {
            let conditions = resting.conditions.iter();
            conditions.for_each(|condition| waiting.add(key, condition));
        }
        Self {
            version: record.version,
            in_order: record.searches.iter().map(|(key, _)| key.clone()).collect(),
            looked_at: None,
            resting: record.searches.into_iter().collect(),
            waiting,
            ended_before: record.ended_before,
        }
    }
}

impl PreemptionBackoff {
    /// What can be reclaimed or preempted changed.
    pub(crate) fn moved(&mut self) {
        self.version += 1;
    }

    /// The rules changed: all back-offs end.
    pub(crate) fn hurry(&mut self) {
        self.version += 1;
        self.ended_before = self.version;
        self.looked_at = None;
    }

    /// Returns true if a job has a back-off.
    pub(crate) fn rests(&self, key: &JobKey) -> bool {
        self.resting.contains_key(key)
    }

    /// A job searched without result: it rests until one of these conditions has come.
    pub(crate) fn rest(&mut self, key: &JobKey, conditions: Vec<RequeueCondition>) {
        self.forget(key);
        for condition in &conditions {
            self.waiting.add(key, condition);
        }
        let seen = self.version;
        self.in_order.insert(key.clone());
        self.resting
            .insert(key.clone(), Resting { seen, conditions });
    }

    /// The back-off of a job ends.
    pub(crate) fn forget(&mut self, key: &JobKey) {
        let resting = self.resting.remove(key);
        self.in_order.remove(key);
        for condition in resting.iter().flat_map(|resting| &resting.conditions) {
            self.waiting.remove(key, condition);
        }
    }

    /// The jobs whose back-off ends, now that a queue deserves so much of each resource and does not
    /// use it.
    pub(crate) fn entitled_in(
        &mut self,
        queue: &QueueName,
        unused: impl Fn(&ResourceName) -> i128,
    ) -> Vec<JobKey> {
        let gap = RequeueCondition::Entitlement;
        let met = self.waiting.met(gap, queue, |_, of| unused(of));
        let jobs = met.iter().flat_map(|gap| self.waiting.of(gap));
        let jobs: BTreeSet<JobKey> = jobs.cloned().collect();
        jobs.iter().for_each(|key| self.forget(key));
        jobs.into_iter().collect()
    }

    /// The jobs whose back-off ends at `now`.
    pub(crate) fn due(&mut self, now: Time) -> Vec<JobKey> {
        let timed = self.waiting.within(times(RequeueCondition::Time, now));
        let mut due: Vec<JobKey> = timed.map(|(_, key)| key.clone()).collect();
        due.iter().for_each(|key| self.forget(key));
        let ended = self.take_ended(AT_ONCE.saturating_sub(due.len()));
        due.extend(ended);
        while due.len() < AT_ONCE {
            let searches = self.next_searches().filter(|(at, _)| *at <= now);
            let searches = searches.into_iter().flat_map(|(_, searches)| searches);
            let first: Vec<JobKey> = searches.take(AT_ONCE - due.len()).cloned().collect();
            if first.is_empty() {
                break;
            }
            first.iter().for_each(|key| self.forget(key));
            due.extend(first);
        }
        due
    }

    /// Ends back-offs that began before the rules changed, at most so many: each is looked at once.
    fn take_ended(&mut self, most: usize) -> Vec<JobKey> {
        if self.ended_before == 0 {
            return Vec::new();
        }
        let from = self.looked_at.as_ref().map_or(Unbounded, Excluded);
        let rest = self.in_order.range((from, Unbounded));
        let began_before = |key: &&JobKey| {
            let resting = self.resting.get(*key);
            resting.is_some_and(|resting| resting.seen < self.ended_before)
        };
        let ended: Vec<JobKey> = rest.filter(began_before).take(most).cloned().collect();
        match ended.last() {
            Some(last) if ended.len() == most => self.looked_at = Some(last.clone()),
            _ if most > 0 => self.ended_before = 0,
            _ => {}
        }
        ended.iter().for_each(|key| self.forget(key));
        ended
    }

    /// When the next back-off ends, as things are.
    pub(crate) fn next(&self) -> Option<Time> {
        let ended = (self.ended_before > 0).then(Time::default);
        let searches = self.next_searches();
        let search = searches.and_then(|(at, mut searches)| searches.next().map(|_| at));
        let timed = self.first_at(RequeueCondition::Time).map(|(at, _)| at);
        ended.into_iter().chain(search).chain(timed).min()
    }

    /// Of the jobs that search again after a while, if anything has changed since their searches: those that may do so
    /// first, and when. Those that may later have searched later, too.
    fn next_searches(&self) -> Option<(Time, impl Iterator<Item = &JobKey>)> {
        let (at, _) = self.first_at(RequeueCondition::Victims)?;
        let together = self.waiting.within(times(RequeueCondition::Victims, at));
        let has_news = |key: &&JobKey| {
            let resting = self.resting.get(*key);
            resting.is_some_and(|resting| resting.seen < self.version)
        };
        let keys = together.map(|(_, key)| key);
        Some((at, keys.filter(has_news)))
    }

    fn first_at(&self, kind: fn(Time) -> RequeueCondition) -> Option<(Time, &JobKey)> {
        let all = times(kind, Time(i64::MAX));
        let (condition, key) = self.waiting.within(all).next()?;
        match condition {
            RequeueCondition::Victims(at) | RequeueCondition::Time(at) => Some((*at, key)),
            _ => None,
        }
    }

    /// For the audit: the same with its list rebuilt.
    pub(super) fn rebuilt(&self) -> Self {
        Self {
            looked_at: self.looked_at.clone(),
            ..Self::from(Record::from(self.clone()))
        }
    }
}

/// The conditions of a kind that have come at `now`.
fn times(kind: fn(Time) -> RequeueCondition, now: Time) -> RangeInclusive<RequeueCondition> {
    kind(Time(i64::MIN))..=kind(now)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::pending::inadmissible::QueueNeed;

    fn keys(count: usize) -> Vec<JobKey> {
        let keys = (0..count).map(|index| JobKey::new("ns", &format!("job-{index:03}")));
        keys.collect()
    }

    #[test]
    fn a_job_searches_again_after_a_while_once_anything_has_changed() {
        let mut backoff = PreemptionBackoff::default();
        let key = &keys(1)[0];
        backoff.rest(key, vec![RequeueCondition::Victims(Time(10))]);
        assert_eq!(backoff.due(Time(20)), []);
        assert_eq!(backoff.next(), None);
        backoff.moved();
        assert_eq!(backoff.next(), Some(Time(10)));
        assert_eq!(backoff.due(Time(9)), []);
        assert!(backoff.rests(key));
        assert_eq!(backoff.due(Time(10)), std::slice::from_ref(key));
        assert!(!backoff.rests(key));
    }

    #[test]
    fn of_jobs_that_searched_together_those_search_again_that_saw_less() {
        let mut backoff = PreemptionBackoff::default();
        let [late, early] = [&keys(2)[0], &keys(2)[1]];
        backoff.rest(early, vec![RequeueCondition::Victims(Time(10))]);
        backoff.moved();
        backoff.rest(late, vec![RequeueCondition::Victims(Time(10))]);
        assert_eq!(backoff.next(), Some(Time(10)));
        assert_eq!(backoff.due(Time(10)), std::slice::from_ref(early));
        assert_eq!((backoff.rests(late), backoff.next()), (true, None));
    }

    #[test]
    fn a_job_searches_again_when_a_victim_is_not_protected_any_more() {
        let mut backoff = PreemptionBackoff::default();
        let key = &keys(1)[0];
        let conditions = [RequeueCondition::Victims, RequeueCondition::Time].map(|of| of(Time(7)));
        backoff.rest(key, conditions.into());
        assert_eq!(backoff.next(), Some(Time(7)));
        assert_eq!(backoff.due(Time(6)), []);
        assert_eq!(backoff.due(Time(7)), std::slice::from_ref(key));
        assert_eq!(backoff, PreemptionBackoff::default());
    }

    /// Those that were let search and rest again do not keep the others at rest.
    #[test]
    fn after_a_change_of_the_rules_every_job_searches_once_some_at_a_time() {
        let mut backoff = PreemptionBackoff::default();
        let all = keys(2 * AT_ONCE + 1);
        for key in &all {
            backoff.rest(key, Vec::new());
        }
        backoff.hurry();
        let mut searched = Vec::new();
        for count in [AT_ONCE, AT_ONCE, 1, 0] {
            let expected = (count > 0).then(Time::default);
            assert_eq!(backoff.next(), expected);
            let due = backoff.due(Time(1));
            assert_eq!(due.len(), count);
            for key in &due {
                backoff.rest(key, vec![RequeueCondition::Victims(Time(5))]);
            }
            searched.extend(due);
        }
        assert_eq!(searched, all);
    }

    #[test]
    fn a_restored_back_off_is_the_same() {
        let mut backoff = PreemptionBackoff::default();
        let need = |needs| QueueNeed {
            queue: QueueName::from("q"),
            class: None,
            resource: ResourceName::new("cpu"),
            needs,
        };
        let gaps = [2, 1].map(|needs| RequeueCondition::Entitlement(need(needs)));
        let timed = [
            RequeueCondition::Victims(Time(3)),
            RequeueCondition::Time(Time(2)),
        ];
        let never = Vec::new();
        for (key, conditions) in keys(3).iter().zip([gaps.into(), timed.into(), never]) {
            backoff.rest(key, conditions);
            backoff.moved();
        }
        backoff.hurry();
        let text = serde_json::to_string(&backoff).unwrap();
        assert_eq!(
            serde_json::from_str::<PreemptionBackoff>(&text).unwrap(),
            backoff
        );
        let entitled = backoff.entitled_in(&QueueName::from("q"), |_| 1);
        assert_eq!(entitled, keys(1));
        assert_eq!(backoff.rebuilt(), backoff);
    }

    #[test]
    fn a_job_that_searches_once_more_rests_for_the_new_conditions_only() {
        let mut backoff = PreemptionBackoff::default();
        let key = &keys(1)[0];
        backoff.rest(key, vec![RequeueCondition::Time(Time(10))]);
        backoff.rest(key, vec![RequeueCondition::Time(Time(20))]);
        assert_eq!(backoff.next(), Some(Time(20)));
        assert_eq!(backoff.rebuilt(), backoff);
    }

    #[test]
    fn only_some_of_the_jobs_that_rested_long_enough_search_at_once() {
        let mut backoff = PreemptionBackoff::default();
        let all = keys(AT_ONCE + 1);
        for key in &all {
            backoff.rest(key, vec![RequeueCondition::Victims(Time(1))]);
        }
        backoff.moved();
        assert_eq!(backoff.due(Time(1)), all[..AT_ONCE]);
        assert_eq!(backoff.due(Time(1)), all[AT_ONCE..]);
    }

    #[test]
    fn a_snapshot_does_not_depend_on_the_order_in_which_jobs_came_to_rest() {
        let mut backoff = PreemptionBackoff::default();
        let all = keys(50);
        for key in all.iter().rev() {
            backoff.rest(key, Vec::new());
        }
        let listed = Record::from(backoff).searches.into_iter();
        assert_eq!(listed.map(|(key, _)| key).collect::<Vec<_>>(), all);
    }
}
