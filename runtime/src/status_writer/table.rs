//! What is submitted, due, and last sent, for each object. No I/O.

use super::StatusTarget;
use serde_json::Value;
use std::collections::{BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Delay after the first failure; it doubles up to [`RETRY_MAX`].
const RETRY_MIN: Duration = Duration::from_millis(500);
/// See [`RETRY_MIN`].
const RETRY_MAX: Duration = Duration::from_secs(60);

/// One patch on its way.
#[derive(Debug)]
pub(super) struct StatusPatch {
    pub(super) target: Arc<StatusTarget>,
    pub(super) patch: Value,
    fingerprint: u64,
}

#[derive(Debug, Default)]
struct StatusEntry {
    submitted: Option<(Value, u64)>,
    /// Fingerprint of the patch last written: patches of a million objects would not fit in memory.
    sent: Option<u64>,
    in_flight: bool,
    /// True if it was dropped while a patch of it was in flight, so that the answer says nothing.
    forgotten: bool,
    not_before: Option<Instant>,
    due: Option<(Instant, u64)>,
    failures: u32,
}

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct StatusTable {
    interval: Duration,
    settle: Duration,
    entries: HashMap<Arc<StatusTarget>, StatusEntry>,
    /// By time, then in the order of submission.
    due: BTreeSet<DueStatus>,
    submitted: u64,
    in_flight: usize,
}

#[derive(Debug, Clone)]
struct DueStatus {
    at: Instant,
    number: u64,
    target: Arc<StatusTarget>,
}

impl PartialEq for DueStatus {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}
impl Eq for DueStatus {}
impl PartialOrd for DueStatus {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for DueStatus {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

impl StatusTable {
    pub(super) fn new(interval: Duration, settle: Duration) -> Self {
        Self {
            interval,
            settle,
            entries: HashMap::new(),
            due: BTreeSet::new(),
            submitted: 0,
            in_flight: 0,
        }
    }

    /// Submits a patch; returns true if something is due that was not before.
    pub(super) fn submit(&mut self, target: StatusTarget, patch: Value, now: Instant) -> bool {
        let print = fingerprint(&patch);
        let target = match self.entries.get_key_value(&target) {
            Some((known, _)) => known.clone(),
            None => Arc::new(target),
        };
        let entry = self.entries.entry(target.clone()).or_default();
        if !entry.in_flight && entry.sent == Some(print) {
            // The object shows this already: the submitted patch is void.
            entry.submitted = None;
            self.unschedule(&target);
            return false;
        }
        entry.submitted = Some((patch, print));
        match entry.in_flight || entry.due.is_some() {
            true => false,
            false => {
                self.schedule(&target, now + self.settle);
                true
            }
        }
    }

    pub(super) fn forget(&mut self, target: &StatusTarget) {
        let Some((known, _)) = self.entries.get_key_value(target) else {
            return;
        };
        let known = known.clone();
        self.unschedule(&known);
        match self.entries.get_mut(&known) {
            Some(entry) if entry.in_flight => {
                entry.submitted = None;
                entry.forgotten = true;
            }
            _ => {
                self.entries.remove(&known);
            }
        }
    }

    pub(super) fn pending(&self) -> usize {
        self.due.len() + self.in_flight
    }

    pub(super) fn next_due(&self) -> Option<Instant> {
        self.due.first().map(|due| due.at)
    }

    /// Returns the next patch that is due.
    pub(super) fn take_due(&mut self, now: Instant) -> Option<StatusPatch> {
        loop {
            if self.next_due()? > now {
                return None;
            }
            let due = self.due.pop_first()?;
            let Some(entry) = self.entries.get_mut(&due.target) else {
                continue;
            };
            entry.due = None;
            let Some((patch, fingerprint)) = entry.submitted.take() else {
                continue;
            };
            entry.in_flight = true;
            self.in_flight += 1;
            return Some(StatusPatch {
                target: due.target,
                patch,
                fingerprint,
            });
        }
    }

    pub(super) fn written(&mut self, job: &StatusPatch, now: Instant) {
        self.landed(job, now);
    }

    /// Handles a refusal: nothing is sent until another patch is submitted.
    pub(super) fn refused(&mut self, job: &StatusPatch, now: Instant) {
        self.landed(job, now);
    }

    /// Handles a deleted object: nothing more is known of it.
    pub(super) fn dropped(&mut self, job: &StatusPatch) {
        self.in_flight -= 1;
        self.unschedule(&job.target);
        self.entries.remove(&job.target);
    }

    /// Schedules a retry with the newest patch at that time.
    pub(super) fn retry(&mut self, job: StatusPatch, retry_after: Option<Duration>, now: Instant) {
        self.in_flight -= 1;
        let Some(entry) = self.entries.get_mut(&job.target) else {
            return;
        };
        entry.in_flight = false;
        // It is unknown whether it was written, so the next patch is sent in any case.
        entry.sent = None;
        let delay = RETRY_MIN
            .saturating_mul(1 << entry.failures.min(10))
            .max(retry_after.unwrap_or_default())
            .min(RETRY_MAX);
        entry.failures += 1;
        entry.not_before = Some(now + delay);
        if !std::mem::take(&mut entry.forgotten) {
            entry.submitted.get_or_insert((job.patch, job.fingerprint));
        }
        if entry.submitted.is_some() {
            self.schedule(&job.target, now);
        }
    }

    fn landed(&mut self, job: &StatusPatch, now: Instant) {
        self.in_flight -= 1;
        let Some(entry) = self.entries.get_mut(&job.target) else {
            return;
        };
        let forgotten = std::mem::take(&mut entry.forgotten);
        entry.in_flight = false;
        entry.sent = (!forgotten).then_some(job.fingerprint);
        entry.failures = 0;
        entry.not_before = Some(now + self.interval);
        if entry.submitted.as_ref().map(|(_, print)| *print) == entry.sent {
            entry.submitted = None;
        }
        if entry.submitted.is_some() {
            self.schedule(&job.target, now);
        }
    }

    fn schedule(&mut self, target: &Arc<StatusTarget>, now: Instant) {
        let Some(entry) = self.entries.get_mut(target) else {
            return;
        };
        self.submitted += 1;
        let at = entry.not_before.map_or(now, |earliest| earliest.max(now));
        entry.due = Some((at, self.submitted));
        self.due.insert(DueStatus {
            at,
            number: self.submitted,
            target: target.clone(),
        });
    }

    fn unschedule(&mut self, target: &Arc<StatusTarget>) {
        let Some(entry) = self.entries.get_mut(target) else {
            return;
        };
        if let Some((at, number)) = entry.due.take() {
            self.due.remove(&DueStatus {
                at,
                number,
                target: target.clone(),
            });
        }
    }
}

fn fingerprint(patch: &Value) -> u64 {
    let mut hasher = DefaultHasher::new();
    patch.to_string().hash(&mut hasher);
    hasher.finish()
}
