//! Which job gets an event for the reason that it shows, and when. Pure.
//!
//! Thousands of jobs may change their reasons at once, and some change between two reasons again and again.
//! So a job gets an event for a reason that lasts, not for each position or number in its message, and the
//! same reason is not repeated for some minutes. Events come at a limited rate: first those of the heads of
//! queues, then those of jobs that do not compete, then those of the other jobs in the order of their
//! positions.
//!
//! A new leader learns from the PodGroups for which reasons the last one recorded events.

use crate::messages::job_event::{JobEvent, LONGEST_NOTE, WAIT, truncated};
use crds::karmada::ObjectReference;
use crds::podgroup::PodGroup;
use engine::{JobKey, JobState, QueueName, Reason, Time};
use std::collections::{BTreeSet, HashMap};

/// Milliseconds for which a job shows a reason before it gets an event.
const SETTLE_MS: i64 = 2_000;
/// The same for a job that waits for its first evaluation, which takes longer in a long queue.
const NOT_EVALUATED_MS: i64 = 30_000;
/// Milliseconds within which the same reason of a job is not repeated.
const REPEAT_MS: i64 = 600_000;
/// Milliseconds between two events at a steady rate.
const INTERVAL_MS: i64 = 500;
/// Events that may follow each other at once after a pause.
const BURST: i64 = 10;
/// Reasons of a job that are remembered.
const REMEMBERED: usize = 6;

/// A reason of a job, in the queue that it is in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct QueuedReason {
    pub(crate) reason: Reason,
    pub(crate) queue: QueueName,
}

/// A reason that a job shows and has no event for yet.
#[derive(Debug)]
struct Candidate {
    shown: QueuedReason,
    /// When its event is due.
    at: Time,
    turn: usize,
}

#[derive(Debug, Default)]
struct JobReasons {
    candidate: Option<Candidate>,
    /// What it got events for, the newest last.
    recorded: Vec<(QueuedReason, Time)>,
}

/// The jobs whose reasons get events.
#[derive(Debug)]
pub(crate) struct ReasonEvents {
    jobs: HashMap<JobKey, JobReasons>,
    /// Candidates whose time has not come.
    settling: BTreeSet<(Time, JobKey)>,
    /// Candidates whose time has come, in the order of their turns.
    due: BTreeSet<(usize, Time, JobKey)>,
    /// Until when the events so far use up the steady rate.
    used_until: Time,
}

impl ReasonEvents {
    pub(crate) fn new() -> Self {
        Self {
            jobs: HashMap::new(),
            settling: BTreeSet::new(),
            due: BTreeSet::new(),
            used_until: Time(i64::MIN / 2),
        }
    }

    /// Notes the reason that the PodGroup of a job showed when this process saw the job first: an earlier
    /// leader recorded its event.
    pub(crate) fn remember(
        &mut self,
        key: &JobKey,
        published: impl FnOnce() -> Option<QueuedReason>,
        now: Time,
    ) {
        if !self.jobs.contains_key(key) {
            let recorded = published().map(|published| (published, now));
            let job = JobReasons {
                candidate: None,
                recorded: recorded.into_iter().collect(),
            };
            self.jobs.insert(key.clone(), job);
        }
    }

    /// Notes the reason that a job shows now at a position in its queue; `None` if it needs no event.
    pub(crate) fn observe(
        &mut self,
        key: &JobKey,
        shown: Option<QueuedReason>,
        position: Option<usize>,
        now: Time,
    ) {
        let Some(shown) = shown else {
            return self.withdraw(key);
        };
        let turn = turn_of(position);
        let job = self.jobs.entry(key.clone()).or_default();
        if let Some(candidate) = &job.candidate
            && candidate.shown == shown
        {
            let (at, before) = (candidate.at, candidate.turn);
            if before != turn {
                self.change_turn(key, at, before, turn);
            }
            return;
        }
        let newest = job.recorded.last();
        if newest.is_some_and(|(newest, _)| *newest == shown) {
            return self.withdraw(key);
        }
        let settled = now.after(match shown.reason {
            Reason::NotEvaluated => NOT_EVALUATED_MS,
            _ => SETTLE_MS,
        });
        let mut earlier = job.recorded.iter().rev();
        let earlier = earlier.find(|(earlier, _)| *earlier == shown);
        let at = earlier.map_or(settled, |(_, at)| at.after(REPEAT_MS).max(settled));
        self.withdraw(key);
        self.settling.insert((at, key.clone()));
        let candidate = Candidate { shown, at, turn };
        self.jobs.entry(key.clone()).or_default().candidate = Some(candidate);
    }

    fn change_turn(&mut self, key: &JobKey, at: Time, before: usize, turn: usize) {
        let job = self.jobs.get_mut(key);
        if let Some(candidate) = job.and_then(|job| job.candidate.as_mut()) {
            candidate.turn = turn;
        }
        if self.due.remove(&(before, at, key.clone())) {
            self.due.insert((turn, at, key.clone()));
        }
    }

    /// Drops the candidate of a job.
    fn withdraw(&mut self, key: &JobKey) {
        let job = self.jobs.get_mut(key);
        if let Some(candidate) = job.and_then(|job| job.candidate.take()) {
            self.settling.remove(&(candidate.at, key.clone()));
            self.due
                .remove(&(candidate.turn, candidate.at, key.clone()));
        }
    }

    /// Drops all of a job that is gone.
    pub(crate) fn forget(&mut self, key: &JobKey) {
        self.withdraw(key);
        self.jobs.remove(key);
    }

    /// Returns the jobs that get their events now, as far as the rate allows.
    pub(crate) fn take_due(&mut self, now: Time) -> Vec<JobKey> {
        while self.settling.first().is_some_and(|(at, _)| *at <= now)
            && let Some((at, key)) = self.settling.pop_first()
        {
            let candidate = self.jobs.get(&key).and_then(|job| job.candidate.as_ref());
            if let Some(candidate) = candidate {
                self.due.insert((candidate.turn, at, key));
            }
        }
        let mut keys = Vec::new();
        while self.allowed_at() <= now
            && let Some((_, _, key)) = self.due.pop_first()
        {
            self.used_until = self.used_until.max(now).after(INTERVAL_MS);
            if let Some(job) = self.jobs.get_mut(&key) {
                job.candidate = None;
            }
            keys.push(key);
        }
        keys
    }

    /// Notes that a job got its event.
    pub(crate) fn recorded(&mut self, key: &JobKey, shown: QueuedReason, now: Time) {
        let job = self.jobs.entry(key.clone()).or_default();
        job.recorded
            .retain(|(earlier, at)| *earlier != shown && now.millis_since(*at) < REPEAT_MS);
        if job.recorded.len() >= REMEMBERED {
            job.recorded.remove(0);
        }
        job.recorded.push((shown, now));
    }

    /// Returns when the rate allows the next event.
    fn allowed_at(&self) -> Time {
        self.used_until.after(-(BURST - 1) * INTERVAL_MS)
    }

    /// Returns when the next event is due.
    pub(crate) fn next_due(&self) -> Option<Time> {
        let settled = self.settling.first().map(|(at, _)| *at);
        let due = self.due.first().map(|_| self.allowed_at());
        settled.into_iter().chain(due).min()
    }
}

/// Returns the reason that an existing PodGroup shows.
pub(crate) fn published(seen: &PodGroup) -> Option<QueuedReason> {
    let status = seen.status.as_ref()?.federation.as_ref()?;
    let word = status.reason.as_deref()?;
    let (reason, _) = Reason::ALL
        .iter()
        .find(|(reason, _)| reason.as_str() == word)?;
    Some(QueuedReason {
        reason: *reason,
        queue: QueueName::new(&seen.spec.queue),
    })
}

/// Returns the place in the order of events: lower is earlier.
fn turn_of(position: Option<usize>) -> usize {
    match position {
        Some(1) => 0,
        None => 1,
        Some(position) => position,
    }
}

/// Returns true if a job in this state gets an event for this reason. What happens to a job (it is admitted,
/// evicted, resized) has events of its own.
pub(crate) fn needs_event(state: JobState, reason: Reason) -> bool {
    use Reason::{MemberRefused, PodsLost, PodsNotScheduled, PodsNotStarting, PodsRefused};
    match state {
        JobState::Queued => reason.is_of_waiting(),
        JobState::Placed | JobState::Running => {
            let kept = matches!(reason, PodsRefused | PodsNotStarting | PodsNotScheduled);
            kept || matches!(reason, MemberRefused | PodsLost)
        }
        JobState::Assumed | JobState::Ending | JobState::Finished => false,
    }
}

/// Returns the event for the reason of a job: its queue, the message, and how to learn more.
pub(crate) fn event(object: &ObjectReference, shown: &QueuedReason, message: &str) -> JobEvent {
    let command = explain_command(object);
    let queue = format!("queue {}", shown.queue);
    let named = shown.queue.as_str().is_empty() || message.contains(&queue);
    let text = match named {
        true => message.to_owned(),
        false => format!("{queue}: {message}"),
    };
    let text = truncated(text, LONGEST_NOTE - command.len() - 2);
    let note = format!("{text}; {command}");
    let waits = shown.reason.is_of_waiting();
    let must_change = !waits || shown.reason.needs_change();
    match must_change {
        true => JobEvent::warning(shown.reason, WAIT, note),
        false => JobEvent::normal(shown.reason, WAIT, note),
    }
}

/// Returns the command that explains a job.
pub(crate) fn explain_command(object: &ObjectReference) -> String {
    format!(
        "see kubectl muster explain {}/{} -n {}",
        object.kind.to_lowercase(),
        object.name,
        object.namespace
    )
}

#[cfg(test)]
mod tests;
