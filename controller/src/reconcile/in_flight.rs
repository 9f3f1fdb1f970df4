//! State of one job between passes: the open write, the version that the watch has to show before the next
//! pass, checks and retries. It is in memory only: a restart derives it again.

use crate::messages::unbound_pods::UnboundPods;
use crate::reconcile::placed::excess::ExcessState;
use crate::reconcile::placed::parts::PartsState;
use crate::reconcile::placed::rendezvous::ServiceDiscovery;
use crate::reconcile::placed::shrink::Shrinks;
use crate::reconcile::placement_refused::RefusedAttempt;
use crate::reconcile::record_guard::RecordGuard;
use binding_writer::Write;
use crds::karmada::ResourceBinding;
use engine::{Attempt, ClusterName, JobKey, Time};
use std::collections::BTreeMap;
use workload::Outcome;

#[cfg(test)]
mod tests;

/// Milliseconds after which a failed write is tried again.
const RETRY_MS: i64 = 1_000;
/// Milliseconds in which Karmada may still create Works of an evicted placement of which no Work was seen:
/// its binding controller may be in the middle of a pass.
const SETTLE_MS: i64 = 5_000;
/// Milliseconds in which Karmada removes the Works of a placement that is gone; Works left after that are
/// ones that it missed.
const SWEEP_MS: i64 = 15_000;

/// The open operation of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum InFlightStage {
    /// The scheduler prepares the members for this attempt.
    Preparing(Attempt),
    /// A patch of the binding is under way.
    Writing,
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct InFlight {
    open: Option<InFlightStage>,
    /// The version of the last own write, until the watch has caught up with it.
    expected_version: Option<u64>,
    /// The version that the last write was decided on.
    decided_on: u64,
    /// A version that is known to be outdated, and how long to wait for a newer one.
    outdated: Option<(u64, Time)>,
    /// Until when the job is left alone after a failed write.
    backing_off_until: Option<Time>,
    /// True if a Work of the present placement was seen.
    pub(crate) works_seen: bool,
    /// Since when the eviction of the job is under way.
    ending_since: Option<Time>,
    /// Since when it has Works that should be gone.
    leftover_since: Option<Time>,
    /// Since when a member refuses the job.
    pub(crate) refused_since: Option<Time>,
    /// Since when its object is missing while nothing deletes its binding.
    pub(crate) orphaned_since: Option<Time>,
    checking_works: bool,
    /// Since when the end of its pods is waited for: its Works are gone.
    pods_end_since: Option<Time>,
    /// The last attempt, if the API server has refused to place it and would again.
    pub(crate) refused: Option<RefusedAttempt>,
    /// Clusters that have not confirmed the smaller size of the job.
    pub(crate) shrinks: Shrinks,
    /// State of the parts of the present placement, for a job in parts.
    pub(crate) parts: PartsState,
    /// Whether its pods can find each other, if they need Services for that.
    pub(crate) service_discovery: ServiceDiscovery,
    /// The attempt that is evicted for another job, and that job.
    evicted_for: Option<(Attempt, JobKey)>,
    /// True if its members are kept from deleting it after its end.
    pub(crate) kept_alive: bool,
    /// How it ended, as last reported.
    pub(crate) ended: Option<(Attempt, Outcome)>,
    /// Why it failed, and why it is not queued again, as far as this process saw it.
    pub(crate) failure: Option<(Attempt, String)>,
    /// Which of its pods the scheduler of a cluster has not bound in time.
    pub(crate) unscheduled: Option<String>,
    /// When the schedulers of its clusters were last asked why, and the last answers, each of an attempt.
    pub(crate) schedulers_asked_at: Option<Time>,
    pub(crate) unbound: BTreeMap<ClusterName, (Attempt, UnboundPods)>,
    /// Since when this process sees it run.
    pub(crate) runs_since: Option<Time>,
    /// When to check again what it needs in its members, while none of its pods runs.
    pub(crate) renew_at: Option<Time>,
    /// The finished attempt that is charged again, until it has ended or was seen to run.
    pub(crate) reopened: Option<Attempt>,
    /// What its Works request beyond what was admitted.
    pub(crate) excess: ExcessState,
    /// True if its user was told that members have kept it.
    pub(crate) kept_reported: bool,
    /// When Karmada is made to write its Works again, while one of them preserves its objects.
    pub(crate) sync_works_at: Option<Time>,
    /// What other users have changed of its binding that only Muster may write.
    pub(crate) guard: RecordGuard,
    /// Since when its adoption waits for its template.
    adopting_since: Option<Time>,
    /// The growth that its override was last written for, and the version of its template then.
    pinned: (Vec<String>, String),
    /// The attempt for which the pin of an earlier process, if any, was removed.
    unpinned: Option<Attempt>,
}

impl InFlight {
    /// Returns true if the job must be left alone: an operation is open, or the watch lags.
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

    /// Returns true if `attempt` is being prepared.
    pub(crate) fn is_preparing(&self, attempt: Attempt) -> bool {
        self.open == Some(InFlightStage::Preparing(attempt))
    }

    /// Returns true if any operation is open.
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
            self.pods_end_since = None;
            self.refused_since = None;
            self.refused = None;
        }
    }

    /// Closes the open write, which succeeded; the watch will show `resource_version`.
    pub(crate) fn written(&mut self, resource_version: &str) {
        self.open = None;
        self.expected_version = resource_version.parse().ok();
    }

    /// Closes what was open, without a result.
    pub(crate) fn closed(&mut self) {
        self.open = None;
    }

    /// Closes a write that conflicted. The job is left alone until the watch shows a newer version, or until
    /// the time returned, so that a lagging watch causes no loop.
    pub(crate) fn conflicted(&mut self, now: Time) -> Time {
        self.open = None;
        let until = now.after(RETRY_MS);
        self.outdated = Some((self.decided_on, until));
        until
    }

    /// Closes what was open after a failure. The job is left alone until the time returned.
    pub(crate) fn failed(&mut self, now: Time) -> Time {
        self.open = None;
        *self.backing_off_until.insert(now.after(RETRY_MS))
    }

    /// Records that the job is being ended. Returns `Ok` once the absence of Works is conclusive, else when it
    /// will be.
    pub(crate) fn has_settled(&mut self, now: Time) -> Result<(), Time> {
        let since = *self.ending_since.get_or_insert(now);
        let settled = since.after(SETTLE_MS);
        if self.works_seen || now >= settled {
            Ok(())
        } else {
            Err(settled)
        }
    }

    /// Records that Works exist that should be gone. Returns `Ok` once Karmada had time to remove them, else
    /// when it will have had.
    pub(crate) fn are_left_behind(&mut self, now: Time) -> Result<(), Time> {
        let since = *self.leftover_since.get_or_insert(now);
        let until = since.after(SWEEP_MS);
        if now >= until { Ok(()) } else { Err(until) }
    }

    /// Records that the job waits to be adopted, and returns since when.
    pub(crate) fn adopting_since(&mut self, now: Time) -> Time {
        *self.adopting_since.get_or_insert(now)
    }

    /// Records that `attempt` is evicted for `preemptor`.
    pub(crate) fn evict_for(&mut self, attempt: Attempt, preemptor: JobKey) {
        self.evicted_for = Some((attempt, preemptor));
    }

    /// Returns the job that `attempt` is evicted for, if any.
    pub(crate) fn preemptor_of(&self, attempt: Attempt) -> Option<JobKey> {
        let made = self.evicted_for.as_ref();
        made.filter(|(of, _)| *of == attempt)
            .map(|(_, preemptor)| preemptor.clone())
    }

    /// Records that its Works are gone and pods of it are left. Returns since when.
    pub(crate) fn pods_end_since(&mut self, now: Time) -> Time {
        *self.pods_end_since.get_or_insert(now)
    }

    /// Returns true if its Works are gone and the end of its pods is waited for.
    pub(crate) fn waits_for_pods(&self) -> bool {
        self.pods_end_since.is_some()
    }

    /// Starts a check of the Works if none is running; returns true if it did.
    pub(crate) fn begin_check(&mut self) -> bool {
        !std::mem::replace(&mut self.checking_works, true)
    }

    pub(crate) fn end_check(&mut self) {
        self.checking_works = false;
    }

    /// Records that the job is pinned against `growth`, by an override rendered from its template at
    /// `version`. Returns whether the growth is new, and whether either is.
    pub(crate) fn pin(&mut self, growth: &[String], version: String) -> (bool, bool) {
        let news = self.pinned.0 != growth;
        let edited = news || self.pinned.1 != version;
        self.pinned = (growth.to_vec(), version);
        (news, edited)
    }

    /// Records that no pin of an earlier process is left for `attempt`; returns true the first time.
    pub(crate) fn begin_unpinned(&mut self, attempt: Attempt) -> bool {
        self.unpinned.replace(attempt) != Some(attempt)
    }

    /// Drops the pin; returns true if there was one.
    pub(crate) fn unpin(&mut self) -> bool {
        !std::mem::take(&mut self.pinned).0.is_empty()
    }

    /// Resets what belongs to an attempt when it is over.
    pub(crate) fn ended(&mut self) {
        self.ending_since = None;
        self.leftover_since = None;
        self.pods_end_since = None;
        self.refused_since = None;
        self.works_seen = false;
        self.shrinks = Shrinks::default();
        self.parts = PartsState::default();
        self.service_discovery = ServiceDiscovery::default();
        self.excess = ExcessState::default();
        self.kept_reported = false;
        self.sync_works_at = None;
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
