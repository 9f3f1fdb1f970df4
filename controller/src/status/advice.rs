//! What would help the first job of each queue, asked of the engine now and then.
//!
//! An answer tries out several changes on the engine's own checks, which costs more than all else
//! that is said of a job. So only who stands first is advised, an answer is cached for a while, and
//! answers together take no more than a small share of the time: decisions come first. No queue is
//! named that the job's namespace may not use.

use crate::core::Core;
use crate::reconcile::Reconciler;
use engine::decision::Help;
use engine::{JobKey, QueueName, Time};
use std::collections::HashMap;
use std::time::{Duration, Instant};
use workload::WorkloadSpec;

/// Milliseconds for which an answer is kept.
const KEPT_MS: i64 = 10_000;
/// Milliseconds after which who got no answer asks again.
const AGAIN_MS: i64 = 1_000;
/// An answer that took so long is followed by none for this many times as long.
const REST: u32 = 20;

/// The answers.
#[derive(Debug, Default)]
pub(crate) struct Advice {
    known: HashMap<JobKey, (Time, Vec<Help>)>,
    /// Until when nothing is asked.
    rests_until: Option<Instant>,
}

impl Advice {
    /// A job does not stand first any more, or is gone.
    pub(crate) fn forget(&mut self, key: &JobKey) {
        self.known.remove(key);
    }

    /// An answer that is still kept, and until when.
    fn fresh(&self, key: &JobKey, now: Time) -> Option<(Time, Vec<Help>)> {
        let (at, helps) = self.known.get(key)?;
        let until = at.after(KEPT_MS);
        (now < until).then(|| (until, helps.clone()))
    }

    fn rests(&self) -> bool {
        self.rests_until.is_some_and(|until| Instant::now() < until)
    }

    fn note(&mut self, key: &JobKey, now: Time, helps: &[Help], took: Duration) {
        self.known.insert(key.clone(), (now, helps.to_vec()));
        self.rests_until = Some(Instant::now() + took * REST);
    }
}

impl Core {
    /// What would help the job, which stands first in its queue.
    pub(crate) fn advise(&mut self, key: &JobKey, now: Time) -> Vec<Help> {
        let advice = &self.publisher.advice;
        if let Some((until, helps)) = advice.fresh(key, now) {
            // Something has changed since it was asked: what helps may have, too.
            self.reconciler.requeue_at(key, until);
            return helps;
        }
        if advice.rests() {
            // On the second, so that many who ask in one wait for the same look.
            let again = (now.0 / AGAIN_MS + 2) * AGAIN_MS;
            self.reconciler.requeue_at(key, Time(again));
            let known = self.publisher.advice.known.get(key);
            return known.map_or_else(Vec::new, |(_, helps)| helps.clone());
        }
        let started = Instant::now();
        let reconciler = &self.reconciler;
        let helps = reconciler
            .engine
            .advise(key, &|queue| reconciler.may_be_named(key, queue));
        let took = started.elapsed();
        self.publisher.advice.note(key, now, &helps, took);
        helps
    }
}

impl Reconciler {
    /// Whether a queue may be named as one to submit to: the job's namespace may use it, and it takes
    /// the job's PriorityClasses.
    fn may_be_named(&self, key: &JobKey, queue: &QueueName) -> bool {
        if !self.may_use(key, queue) {
            return false;
        }
        let binding = self.mirror.bindings().get(key);
        let ask = binding.and_then(|binding| self.mirror.ask_of(binding));
        let classes = ask.map(WorkloadSpec::priority_classes).unwrap_or_default();
        self.mirror.refused_class(queue, &classes).is_none()
    }

    /// Whether the namespace of a job is known to have the use of a queue. What only a user may use does
    /// not count.
    pub(crate) fn may_use(&self, key: &JobKey, queue: &QueueName) -> bool {
        let namespace = self.namespace_of(key);
        let closed = self
            .mirror
            .closed_to(queue, &key.namespace, &namespace.labels);
        closed.is_none() || self.rights.is_known(&key.namespace, queue)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_cached_for_a_while_and_followed_by_a_rest() {
        let (key, now) = (JobKey::new("team", "a"), Time(0));
        let mut advice = Advice::default();
        assert!(!advice.rests());
        assert_eq!(advice.fresh(&key, now), None);
        advice.note(&key, now, &[], Duration::from_secs(60));
        assert!(advice.rests());
        let kept = advice.fresh(&key, now.after(KEPT_MS - 1));
        assert_eq!(kept, Some((Time(KEPT_MS), Vec::new())));
        assert_eq!(advice.fresh(&key, now.after(KEPT_MS)), None);
        advice.forget(&key);
        assert_eq!(advice.fresh(&key, now), None);
    }
}
