//! What is under way for one job: the write that is open, the version that the watch must
//! show before the job is looked at again, checks and retries. In memory only: a restart
//! finds everything again by looking.

use crate::reconcile::placed::excess::ExcessState;
use crate::reconcile::placed::parts::PartsState;
use crate::reconcile::placed::rendezvous::ServiceDiscovery;
use crate::reconcile::placed::shrink::Shrinks;
use crate::reconcile::record_guard::RecordGuard;
use binding_writer::Write;
use crds::karmada::ResourceBinding;
use engine::{Attempt, JobKey, Time};
use workload::Outcome;

#[cfg(test)]
mod tests;

/// Milliseconds after which a write that failed is tried again.
const RETRY_MS: i64 = 1_000;
/// Milliseconds in which Karmada may still be making Works of a placement that was evicted
/// before any of them was seen (its binding controller may be in the middle of a pass).
const SETTLE_MS: i64 = 5_000;
/// Milliseconds in which Karmada removes the Works of a placement that is no more; those that
/// are left then it did not see when it did so.
const SWEEP_MS: i64 = 15_000;

/// What is open for a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum InFlightStage {
    /// The scheduler prepares its members for this attempt.
    Preparing(Attempt),
    /// A patch of its binding is under way.
    Writing,
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct InFlight {
    open: Option<InFlightStage>,
    /// Own writes are assumed until the watch has caught up with them.
    expected_version: Option<u64>,
    /// The version that the last write was decided on.
    decided_on: u64,
    /// A version that is known to be outdated, and until when the watch gets to show another.
    outdated: Option<(u64, Time)>,
    /// Until when it is left alone, after a write that failed.
    backing_off_until: Option<Time>,
    /// Whether a Work of the present placement was seen.
    pub(crate) works_seen: bool,
    /// Since when the job is being ended.
    ending_since: Option<Time>,
    /// Since when it has Works that should go.
    leftover_since: Option<Time>,
    checking_works: bool,
    /// Clusters that have not confirmed that the job is smaller.
    pub(crate) shrinks: Shrinks,
    /// How the parts of the present placement stand, where it has some.
    pub(crate) parts: PartsState,
    /// Whether its pods can find each other, where they do by Services.
    pub(crate) service_discovery: ServiceDiscovery,
    /// The attempt that is evicted for another job, and that job.
    making_room: Option<(Attempt, JobKey)>,
    /// Whether its members are kept from deleting it when it has ended.
    pub(crate) kept_alive: bool,
    /// How it ended, as last reported.
    pub(crate) ended: Option<(Attempt, Outcome)>,
    /// When its members are looked at next for what it needs there, while nothing of it runs.
    pub(crate) renew_at: Option<Time>,
    /// The attempt that was over and is charged again, until it is over or seen to run.
    pub(crate) reopened: Option<Attempt>,
    /// What its Works ask for beyond what was admitted.
    pub(crate) excess: ExcessState,
    /// Whether its user was told that members have kept it.
    pub(crate) kept_told: bool,
    /// What of its binding others have changed that only Muster writes.
    pub(crate) guard: RecordGuard,
    /// Since when it has been looked at to be adopted, without its template.
    adopting_since: Option<Time>,
    /// The growth that its override was last made for, and the version of its template then.
    pinned: (Vec<String>, String),
    /// The attempt of which a pin of an earlier process was lifted, if it had one.
    unpinned: Option<Attempt>,
}

impl InFlight {
    /// Whether the job must be left alone: something is under way, or the watch is behind.
    pub(crate) fn is_busy(&mut self, binding: &ResourceBinding, now: Time) -> bool {
        if self.open.is_some() || self.backing_off_until.is_some_and(|until| now < until) {
            return true;
        }
        self.backing_off_until = None;
        let seen = version(binding);
        if self
            .expected_version
            .is_some_and(|expected_version| seen < expected_version)
        {
            return true;
        }
        self.expected_version = None;
        if self
            .outdated
            .is_some_and(|(version, until)| seen <= version && now < until)
        {
            return true;
        }
        self.outdated = None;
        false
    }

    pub(crate) fn begin_preparing(&mut self, attempt: Attempt) {
        self.open = Some(InFlightStage::Preparing(attempt));
    }

    /// Whether `attempt` is being prepared.
    pub(crate) fn is_preparing(&self, attempt: Attempt) -> bool {
        self.open == Some(InFlightStage::Preparing(attempt))
    }

    /// Whether anything is open.
    pub(crate) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    pub(crate) fn begin_write(&mut self, binding: &ResourceBinding, write: &Write) {
        self.open = Some(InFlightStage::Writing);
        self.decided_on = version(binding);
        self.guard.writes(write);
        if matches!(write, Write::Place { .. }) {
            self.works_seen = false;
            self.ending_since = None;
            self.leftover_since = None;
        }
    }

    /// The open write was made; the watch will show `resource_version`.
    pub(crate) fn written(&mut self, resource_version: &str) {
        self.open = None;
        self.expected_version = resource_version.parse().ok();
    }

    /// What was open is off.
    pub(crate) fn closed(&mut self) {
        self.open = None;
    }

    /// The binding was another than the one written on: it is left alone until the watch shows
    /// that, or until the time returned, so that a watch that is behind makes no loop of it.
    pub(crate) fn conflicted(&mut self, now: Time) -> Time {
        self.open = None;
        let until = now.after(RETRY_MS);
        self.outdated = Some((self.decided_on, until));
        until
    }

    /// What was open failed; the job is left alone until the time returned.
    pub(crate) fn failed(&mut self, now: Time) -> Time {
        self.open = None;
        *self.backing_off_until.insert(now.after(RETRY_MS))
    }

    /// Notes that the job is being ended; whether the absence of Works may be believed by now.
    pub(crate) fn has_settled(&mut self, now: Time) -> Result<(), Time> {
        let since = *self.ending_since.get_or_insert(now);
        let settled = since.after(SETTLE_MS);
        if self.works_seen || now >= settled {
            Ok(())
        } else {
            Err(settled)
        }
    }

    /// Notes that Works are there which should go; whether Karmada had its time to remove them.
    pub(crate) fn are_left_behind(&mut self, now: Time) -> Result<(), Time> {
        let since = *self.leftover_since.get_or_insert(now);
        let until = since.after(SWEEP_MS);
        if now >= until { Ok(()) } else { Err(until) }
    }

    /// Notes that the job is to be adopted; since when it is.
    pub(crate) fn adopting_since(&mut self, now: Time) -> Time {
        *self.adopting_since.get_or_insert(now)
    }

    /// Notes that `attempt` is evicted for `preemptor`.
    pub(crate) fn make_room(&mut self, attempt: Attempt, preemptor: JobKey) {
        self.making_room = Some((attempt, preemptor));
    }

    /// The job that `attempt` is evicted for, if it is for one.
    pub(crate) fn makes_room_for(&self, attempt: Attempt) -> Option<JobKey> {
        let made = self.making_room.as_ref();
        made.filter(|(of, _)| *of == attempt)
            .map(|(_, preemptor)| preemptor.clone())
    }

    /// Begins a check of the Works, unless one runs.
    pub(crate) fn begin_check(&mut self) -> bool {
        !std::mem::replace(&mut self.checking_works, true)
    }

    pub(crate) fn end_check(&mut self) {
        self.checking_works = false;
    }

    /// Notes that the job is pinned against `growth`, by an override made from its template at
    /// `version`. Whether the growth is another than before, and whether either is.
    pub(crate) fn pin(&mut self, growth: &[String], version: String) -> (bool, bool) {
        let news = self.pinned.0 != growth;
        let edited = news || self.pinned.1 != version;
        self.pinned = (growth.to_vec(), version);
        (news, edited)
    }

    /// Notes that no pin of an earlier process is left for `attempt`; whether that is news.
    pub(crate) fn begin_unpinned(&mut self, attempt: Attempt) -> bool {
        self.unpinned.replace(attempt) != Some(attempt)
    }

    /// Forgets the pin; whether there was one.
    pub(crate) fn unpin(&mut self) -> bool {
        !std::mem::take(&mut self.pinned).0.is_empty()
    }

    /// The attempt is over.
    pub(crate) fn ended(&mut self) {
        self.ending_since = None;
        self.leftover_since = None;
        self.works_seen = false;
        self.shrinks = Shrinks::default();
        self.parts = PartsState::default();
        self.service_discovery = ServiceDiscovery::default();
        self.excess = ExcessState::default();
        self.kept_told = false;
        self.guard.ended();
    }
}

/// Resource versions of one API server are comparable integers (Kubernetes KEP-5504).
pub(crate) fn version(binding: &ResourceBinding) -> u64 {
    binding
        .metadata
        .resource_version
        .as_deref()
        .and_then(|v| v.parse().ok())
        .unwrap_or(0)
}
