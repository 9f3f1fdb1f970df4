//! Advice for pending jobs: changes that would help them, which the engine tries out.
//!
//! An answer tries several changes with the engine's own checks, which costs more than everything else that
//! a job shows. So jobs that get the same answer share it (same queue, request and reservations ahead), and
//! all answers together take only a small share of the time: decisions come first. The head of each queue
//! is answered first and again after seconds. The jobs behind it take turns: those without an answer come
//! first, and each is answered again after a minute or, in long queues, more. A turn shows the job again, so
//! that its position and its expected start are never older than its advice. Nobody has to ask: readers of a
//! namespace may write nothing in it. Advice names no queue that the job's namespace may not use.

use crate::facts::view::View;
use crate::status::Publishing;
use engine::decision::Help;
use engine::{AdviceClass, JobKey, QueueName, Time};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::{Duration, Instant};

/// Milliseconds for which an answer is cached.
const CACHED_MS: i64 = 10_000;
/// Milliseconds after which the head of a queue without an answer asks again.
const RETRY_MS: i64 = 1_000;
/// Least milliseconds between two turns of a job.
const TURN_MS: i64 = 60_000;
/// Least milliseconds between the turns of two jobs that have an answer: each may write a status.
const BETWEEN_TURNS_MS: i64 = 50;
/// How long one pass may answer jobs; decisions wait meanwhile.
const PASS: Duration = Duration::from_millis(10);
/// After an answer no other is computed for this multiple of its time.
const PAUSE_FACTOR: u32 = 20;

/// Jobs that get the same answer: the engine's class, and the namespace and the PriorityClasses, by which
/// queues may be named.
type SameAdvice = (AdviceClass, String, BTreeSet<String>);

/// The cached answers, and who is answered next.
#[derive(Debug)]
pub(crate) struct Advice {
    answers: BTreeMap<SameAdvice, (Time, Vec<Help>)>,
    /// What each job shows, and since when it has been the answer.
    known: HashMap<JobKey, (Time, Vec<Help>)>,
    /// The turn of each job behind a head.
    turns: HashMap<JobKey, AdviceTurn>,
    /// Turns in their order.
    due: BTreeSet<(AdviceTurn, JobKey)>,
    /// Until when no answer is computed.
    paused_until: Time,
    /// Until when no job that has an answer has its turn.
    spaced_until: Time,
}

/// When a job is answered; the order of the variants is the order of turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum AdviceTurn {
    /// It has no answer since then.
    First(Time),
    /// It has an answer, which is looked at again then.
    Again(Time),
}

impl Default for Advice {
    fn default() -> Self {
        let past = Time(i64::MIN / 2);
        Self {
            answers: BTreeMap::new(),
            known: HashMap::new(),
            turns: HashMap::new(),
            due: BTreeSet::new(),
            paused_until: past,
            spaced_until: past,
        }
    }
}

impl Advice {
    /// Drops the answer of a job that is no longer pending, or is gone.
    pub(crate) fn forget(&mut self, key: &JobKey) {
        self.known.remove(key);
        self.drop_turn(key);
    }

    /// Returns when the next answer is due, if one is.
    pub(crate) fn next_due(&self) -> Option<Time> {
        let (turn, _) = self.due.first()?;
        Some(self.paused_until.max(match turn {
            AdviceTurn::First(at) => *at,
            AdviceTurn::Again(at) => self.spaced_until.max(*at),
        }))
    }

    /// Takes the job whose turn it is.
    fn take_due(&mut self, now: Time) -> Option<JobKey> {
        if self.next_due().is_none_or(|due| now < due) {
            return None;
        }
        let (turn, key) = self.due.pop_first()?;
        self.turns.remove(&key);
        if matches!(turn, AdviceTurn::Again(_)) {
            self.spaced_until = now.after(BETWEEN_TURNS_MS);
        }
        Some(key)
    }

    fn set_turn(&mut self, key: &JobKey, turn: AdviceTurn) {
        if !self.turns.contains_key(key) {
            self.turns.insert(key.clone(), turn);
            self.due.insert((turn, key.clone()));
        }
    }

    fn drop_turn(&mut self, key: &JobKey) {
        if let Some(turn) = self.turns.remove(key) {
            self.due.remove(&(turn, key.clone()));
        }
    }

    /// Returns the answer of a job if it is still valid, and until when it is.
    fn fresh(&self, key: &JobKey, now: Time) -> Option<(Time, Vec<Help>)> {
        let (at, helps) = self.known.get(key)?;
        let until = at.after(CACHED_MS);
        (now < until).then(|| (until, helps.clone()))
    }

    /// Returns what the job shows: its last answer.
    fn shown(&self, key: &JobKey) -> Vec<Help> {
        let known = self.known.get(key);
        known.map_or_else(Vec::new, |(_, helps)| helps.clone())
    }

    /// Has a job use the answer of another, if that is still valid. Returns true if it does.
    fn share(&mut self, key: &JobKey, alike: &SameAdvice, now: Time) -> bool {
        let answer = self.answers.get(alike);
        let fresh = answer.filter(|(at, _)| now < at.after(CACHED_MS)).cloned();
        fresh.is_some_and(|answer| {
            self.known.insert(key.clone(), answer);
            true
        })
    }

    fn note(&mut self, key: &JobKey, alike: SameAdvice, now: Time, helps: Vec<Help>) {
        // Old answers are dropped now and then.
        if self.answers.len() >= 256 && self.answers.len().is_power_of_two() {
            self.answers.retain(|_, (at, _)| now < at.after(CACHED_MS));
        }
        self.answers.insert(alike, (now, helps.clone()));
        self.known.insert(key.clone(), (now, helps));
    }

    fn pause(&mut self, now: Time, took: Duration) {
        let millis = (took * PAUSE_FACTOR).as_millis();
        let until = now.after(i64::try_from(millis).unwrap_or(i64::MAX).max(1));
        self.paused_until = self.paused_until.max(until);
    }
}

impl Publishing<'_> {
    /// Returns what would help the job, which is the head of its queue.
    pub(crate) fn advise(&mut self, key: &JobKey, now: Time) -> Vec<Help> {
        let advice = &mut self.publisher.advice;
        advice.drop_turn(key);
        if let Some((until, helps)) = advice.fresh(key, now) {
            // Something has changed since the answer, and the advice may have, too.
            self.reconciler.out.work_queue.add_at(key, until);
            return helps;
        }
        if now < advice.paused_until {
            // Rounded to the second, so that jobs which ask in the same second share a pass.
            let again = (now.0 / RETRY_MS + 2) * RETRY_MS;
            self.reconciler.out.work_queue.add_at(key, Time(again));
            return advice.shown(key);
        }
        let started = Instant::now();
        self.answer(key, now);
        self.publisher.advice.pause(now, started.elapsed());
        self.publisher.advice.shown(key)
    }

    /// Returns what would help a job behind the head of its queue, as far as that is known. It takes its turn
    /// to learn more.
    pub(crate) fn advice_in_turn(&mut self, key: &JobKey, now: Time) -> Vec<Help> {
        let shared = !self.publisher.advice.known.contains_key(key)
            && alike(self.reconciler.view(), key).is_some_and(|alike| {
                let advice = &mut self.publisher.advice;
                advice.share(key, &alike, now)
            });
        let advice = &mut self.publisher.advice;
        let turn = match shared || advice.known.contains_key(key) {
            true => AdviceTurn::Again(now.after(TURN_MS)),
            false => AdviceTurn::First(now),
        };
        advice.set_turn(key, turn);
        advice.shown(key)
    }

    /// Answers the jobs whose turn it is, and shows them.
    pub(crate) fn advise_due(&mut self, now: Time) {
        let started = Instant::now();
        let mut any = false;
        while started.elapsed() < PASS
            && let Some(key) = self.publisher.advice.take_due(now)
        {
            any = true;
            self.answer(&key, now);
            self.publish_job(&key, now);
        }
        if any {
            self.publisher.advice.pause(now, started.elapsed());
        }
    }

    /// Learns what would help a job. One that is not pending has no answer.
    fn answer(&mut self, key: &JobKey, now: Time) {
        let reconciler = &self.reconciler;
        let advice = &mut self.publisher.advice;
        let Some(alike) = alike(reconciler.view(), key) else {
            return;
        };
        if !advice.share(key, &alike, now) {
            let may_use = |queue: &QueueName| reconciler.view().may_be_named(key, queue);
            let helps = reconciler.engine.advise(key, &may_use);
            advice.note(key, alike, now, helps);
        }
    }
}

/// Returns what a job's answer depends on, apart from the moment.
fn alike(view: View<'_>, key: &JobKey) -> Option<SameAdvice> {
    let class = view.engine.advice_class(key)?;
    Some((class, key.namespace.to_string(), view.classes_of(key)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(name: &str) -> JobKey {
        JobKey::new("team", name)
    }

    #[test]
    fn an_answer_is_cached_for_a_while_and_followed_by_a_rest() {
        let (key, now) = (job("a"), Time(0));
        let mut advice = Advice::default();
        assert_eq!(advice.fresh(&key, now), None);
        advice.known.insert(key.clone(), (now, Vec::new()));
        let kept = advice.fresh(&key, now.after(CACHED_MS - 1));
        assert_eq!(kept, Some((Time(CACHED_MS), Vec::new())));
        assert_eq!(advice.fresh(&key, now.after(CACHED_MS)), None);
        advice.forget(&key);
        assert_eq!(advice.fresh(&key, now), None);
        advice.set_turn(&key, AdviceTurn::First(now));
        advice.pause(now, Duration::from_millis(5));
        assert_eq!(advice.take_due(Time(99)), None);
        assert_eq!(advice.take_due(Time(100)), Some(key));
    }

    #[test]
    fn jobs_without_an_answer_come_first_and_the_others_take_turns() {
        let mut advice = Advice::default();
        advice.set_turn(&job("again"), AdviceTurn::Again(Time(10)));
        advice.set_turn(&job("other"), AdviceTurn::Again(Time(5)));
        advice.set_turn(&job("new"), AdviceTurn::First(Time(20)));
        advice.set_turn(&job("new"), AdviceTurn::First(Time(1)));
        let taken =
            |advice: &mut Advice, now| advice.take_due(Time(now)).map(|key| key.to_string());
        assert_eq!(taken(&mut advice, 20).as_deref(), Some("team/new"));
        assert_eq!(taken(&mut advice, 20).as_deref(), Some("team/other"));
        // Each may write a status.
        assert_eq!(advice.next_due(), Some(Time(20 + BETWEEN_TURNS_MS)));
        assert_eq!(taken(&mut advice, 69), None);
        assert_eq!(taken(&mut advice, 70).as_deref(), Some("team/again"));
        assert_eq!(taken(&mut advice, 1_000), None);
        // One that is gone has no turn.
        advice.set_turn(&job("gone"), AdviceTurn::First(Time(0)));
        advice.forget(&job("gone"));
        assert_eq!(advice.next_due(), None);
    }
}
