//! The invariants at the end: evictions end, every job that fits alone is admitted, and the same
//! events give the same decisions.

use super::model::{Model, Told, config};
use engine::{Engine, Event, JobKey, JobState, Progress, Reason};
use std::collections::BTreeSet;

/// So many rounds are run in any case, and at most.
const LEAST_ROUNDS: usize = 31;
const MOST_ROUNDS: usize = 256;
/// In so many rounds after another nothing is evicted or shrunk once there is rest.
const QUIET_ROUNDS: usize = 6;

impl Model {
    /// Without external changes, and with members that carry out decisions, evictions and shrinks
    /// end. Queues with a limit of run time are excluded, and running jobs end at last: an overdue
    /// job may let another pass as late as its next estimate, and each estimate is later by half.
    pub fn come_to_rest(&mut self) {
        let limited: Vec<_> = self.policies.values().cloned().collect();
        for mut fact in limited {
            fact.limits.runtime_ms = None;
            self.policy(fact);
        }
        let mut last = String::new();
        let (before, mut quiet) = (self.taken, 0);
        for round in 0..MOST_ROUNDS {
            self.now = self.now.after(if round < 10 { 1000 } else { 40_000 });
            let taken = self.taken;
            self.decide_once();
            quiet += 1;
            if self.taken > taken {
                quiet = 0;
                last = self
                    .decided
                    .last()
                    .map(|(_, _, text)| text.clone())
                    .unwrap_or_default();
            }
            self.members_obey();
            if round >= LEAST_ROUNDS && quiet >= QUIET_ROUNDS {
                break;
            }
        }
        assert!(quiet >= QUIET_ROUNDS, "no rest: {last:?}");
        // Nothing comes up meanwhile that entitles a job to evictions.
        let most = (self.layout.jobs as u64).pow(2);
        assert!(
            self.taken - before <= most,
            "{} evictions",
            self.taken - before
        );
    }

    /// Admitted jobs run, shrunk jobs lose pods, and evicted jobs are gone.
    pub fn members_obey(&mut self) {
        self.all_gone();
        for index in 0..self.layout.jobs {
            let key = Self::name(index);
            self.shed(&key);
            self.bind(&key, usize::MAX, false);
            self.bind_rest(&key, usize::MAX);
            if matches!(self.state(&key), Some(JobState::Assumed | JobState::Placed)) {
                self.progress(&key, Progress::Running);
            }
        }
    }

    /// After all disturbances, every job that fits alone is admitted.
    pub fn settle(&mut self) {
        for index in 0..self.layout.leaves.len() {
            self.open(index, true);
        }
        self.all_foreign_gone();
        let alone: Vec<JobKey> = self
            .jobs
            .keys()
            .filter(|key| self.fits_alone(key))
            .cloned()
            .collect();
        let mut done = BTreeSet::new();
        for _ in 0..4 * self.layout.jobs {
            if alone.iter().all(|key| done.contains(key)) {
                break;
            }
            self.now = self.now.after(3_600_000);
            self.decide_once();
            for index in 0..self.layout.jobs {
                self.advance(&Self::name(index), &mut done);
            }
        }
        for key in alone {
            let explanation = self.engine.explain(&key).unwrap();
            // A job at the head that can never start does not use up the pending limit.
            let stopped = matches!(
                explanation.reason,
                Reason::RuntimeLimitExceeded | Reason::PendingLimitReached
            );
            assert!(
                done.contains(&key) || stopped,
                "{key} never ran: {explanation:?}"
            );
        }
    }

    /// Admitted jobs end; evicted jobs are gone.
    fn advance(&mut self, key: &JobKey, done: &mut BTreeSet<JobKey>) {
        match self.state(key) {
            Some(JobState::Ending) => self.works_gone(key),
            Some(JobState::Queued | JobState::Finished) | None => {}
            Some(_) => self.finish(key),
        }
        if self.state(key) == Some(JobState::Finished) {
            done.insert(key.clone());
        }
    }

    /// Returns true if a new engine with the same fleet and queues, and no other job, admits it.
    fn fits_alone(&self, key: &JobKey) -> bool {
        let mut fresh = Engine::new(config());
        let classes = self.classes.values().cloned();
        let classes = classes.map(Event::PriorityClassUpserted);
        let queues = self.queues.values().cloned().map(Event::QueueUpserted);
        let policies = self.policies.values().cloned().map(Event::PolicyUpserted);
        let clusters = self.clusters.values().cloned().map(Event::ClusterUpserted);
        let nodes = self.nodes.values().cloned().map(Event::NodeUpserted);
        let facts = classes
            .chain(queues)
            .chain(policies)
            .chain(clusters)
            .chain(nodes);
        facts.for_each(|event| fresh.apply(event));
        fresh.apply(Event::JobUpserted(self.jobs[key].clone()));
        !fresh.decide(self.clock()).decisions.is_empty()
    }

    /// Repeats the events: they give the same decisions.
    pub fn replay(&self) {
        let mut engine = Engine::new(config());
        let mut told = 0;
        for (until, now, decided) in &self.decided {
            for event in &self.log[told..*until] {
                match event {
                    Told::Event(event) => engine.apply((**event).clone()),
                    Told::Restart => engine = Engine::new(config()),
                }
            }
            told = *until;
            assert_eq!(format!("{:?}", engine.decide(*now)), *decided);
        }
    }
}
