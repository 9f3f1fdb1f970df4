//! The operation on a binding that is under way, and the version that the watch has to show before the next pass.

use crate::mirror::binding::version;
use crds::karmada::ResourceBinding;
use engine::{Attempt, Time};

#[cfg(test)]
mod tests;

/// Milliseconds after which a failed write is tried again.
const RETRY_MS: i64 = 1_000;

/// What is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OpenOperation {
    /// The scheduler prepares the members for this attempt.
    Preparing(Attempt),
    /// A patch of the binding is under way.
    Writing,
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct OpenWrite {
    open: Option<OpenOperation>,
    /// The version of the last own write, until the watch has caught up with it.
    expected_version: Option<u64>,
    /// The version that the last write was decided on.
    decided_on: u64,
    /// A version that is known to be outdated, and how long to wait for a newer one.
    outdated: Option<(u64, Time)>,
    /// Until when the job is left alone after a failed write.
    backing_off_until: Option<Time>,
}

impl OpenWrite {
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
        self.open = Some(OpenOperation::Preparing(attempt));
    }

    /// Returns true if `attempt` is being prepared.
    pub(crate) fn is_preparing(&self, attempt: Attempt) -> bool {
        self.open == Some(OpenOperation::Preparing(attempt))
    }

    /// Returns true if any operation is open.
    pub(crate) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Begins a write of `binding`.
    pub(crate) fn begin(&mut self, binding: &ResourceBinding) {
        self.open = Some(OpenOperation::Writing);
        self.decided_on = version(binding);
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
}
