//! Advice for the head of each queue: changes that would help it, which the engine tries out.
//!
//! An answer tries several changes with the engine's own checks, which costs more than everything else that
//! a job shows. So only the head gets advice, an answer is cached for a while, and all answers together
//! take only a small share of the time: decisions come first. Advice names no queue that the job's
//! namespace may not use.

use crate::core::Core;
use crate::reconcile::Reconciler;
use engine::decision::Help;
use engine::{JobKey, QueueName, Time};
use std::collections::HashMap;
use std::time::{Duration, Instant};
use workload::WorkloadSpec;

/// Milliseconds for which an answer is cached.
const CACHED_MS: i64 = 10_000;
/// Milliseconds after which a job without an answer asks again.
const RETRY_MS: i64 = 1_000;
/// After an answer no other is computed for this multiple of its time.
const PAUSE_FACTOR: u32 = 20;

/// The cached answers.
#[derive(Debug, Default)]
pub(crate) struct Advice {
    known: HashMap<JobKey, (Time, Vec<Help>)>,
    /// Until when no answer is computed.
    paused_until: Option<Instant>,
}

impl Advice {
    /// Drops the answer of a job that is no longer the head, or is gone.
    pub(crate) fn forget(&mut self, key: &JobKey) {
        self.known.remove(key);
    }

    /// Returns a cached answer that is still valid, and until when it is.
    fn fresh(&self, key: &JobKey, now: Time) -> Option<(Time, Vec<Help>)> {
        let (at, helps) = self.known.get(key)?;
        let until = at.after(CACHED_MS);
        (now < until).then(|| (until, helps.clone()))
    }

    fn is_paused(&self) -> bool {
        self.paused_until
            .is_some_and(|until| Instant::now() < until)
    }

    fn note(&mut self, key: &JobKey, now: Time, helps: &[Help], took: Duration) {
        self.known.insert(key.clone(), (now, helps.to_vec()));
        self.paused_until = Some(Instant::now() + took * PAUSE_FACTOR);
    }
}

impl Core {
    /// Returns what would help the job, which is the head of its queue.
    pub(crate) fn advise(&mut self, key: &JobKey, now: Time) -> Vec<Help> {
        let advice = &self.publisher.advice;
        if let Some((until, helps)) = advice.fresh(key, now) {
            // Something has changed since the answer, and the advice may have, too.
            self.reconciler.requeue_at(key, until);
            return helps;
        }
        if advice.is_paused() {
            // Rounded to the second, so that jobs which ask in the same second share a pass.
            let again = (now.0 / RETRY_MS + 2) * RETRY_MS;
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
    /// Returns true if advice may name a queue: the job's namespace may use it, and it allows the job's
    /// PriorityClasses.
    fn may_be_named(&self, key: &JobKey, queue: &QueueName) -> bool {
        if !self.may_use(key, queue) {
            return false;
        }
        let binding = self.mirror.bindings().get(key);
        let ask = binding.and_then(|binding| self.mirror.ask_of(binding));
        let classes = ask.map(WorkloadSpec::named_classes).unwrap_or_default();
        self.mirror.refused_class(queue, &classes).is_none()
    }

    /// Returns true if the namespace of a job is known to have the use of a queue. The right of a single user
    /// does not count.
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
        assert!(!advice.is_paused());
        assert_eq!(advice.fresh(&key, now), None);
        advice.note(&key, now, &[], Duration::from_secs(60));
        assert!(advice.is_paused());
        let kept = advice.fresh(&key, now.after(CACHED_MS - 1));
        assert_eq!(kept, Some((Time(CACHED_MS), Vec::new())));
        assert_eq!(advice.fresh(&key, now.after(CACHED_MS)), None);
        advice.forget(&key);
        assert_eq!(advice.fresh(&key, now), None);
    }
}
