//! The outcome of a job and its pods, from what members report of its parts.
//!
//! Karmada keeps the status of each member's part in `status.aggregatedStatus[].status` of the binding. The
//! template on the control plane may never show an end (without Muster's interpreters a split Volcano Job has no
//! phase there, and a failed batch/v1 Job is refused its condition), so only the parts are read.

use crate::kinds::{self, WorkloadKind};
use crate::policies::{self, GangAction, GangPolicies};
use serde_json::Value;

/// The outcome of a job, as its parts report it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Too little is known.
    Unknown,
    /// Some of it runs, or may still start.
    Active,
    /// What has not ended is suspended on its own account and has no pods.
    Suspended,
    /// All parts have ended and succeeded, or at least the leading one has succeeded.
    Succeeded,
    /// All parts have ended, and some have failed.
    Failed {
        /// The members' message.
        message: String,
    },
}

/// Pods of a job by phase, as the members count them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PodCounts {
    /// Created, but not running yet. Kubeflow's operators do not report it.
    pub pending: u32,
    /// Running.
    pub running: u32,
    /// Succeeded.
    pub succeeded: u32,
    /// Failed.
    pub failed: u32,
}

/// What decides how a gang ends, besides the ends of its parts.
#[derive(Debug, Clone, Copy, Default)]
pub struct GangRules<'a> {
    /// The part whose success is that of the job, if there is one.
    pub leading: Option<usize>,
    /// Its policies, if it is in several parts and its kind has any.
    pub policies: Option<&'a GangPolicies>,
    /// Its retries so far.
    pub retries: u32,
}

impl GangRules<'_> {
    fn request(&self, kind: &dyn WorkloadKind, status: &Value) -> Option<GangAction> {
        kind.gang_action(status, self.policies?)
    }

    /// Returns the outcome of one part. It is not over while the gang has yet to do what the part asks for: to
    /// stop with it, or to start again.
    fn part_outcome(&self, kind: &dyn WorkloadKind, status: &Value) -> Outcome {
        let outcome = kind.part_outcome(status);
        let asked = self.request(kind, status);
        let (Some(policies), false) = (self.policies, outcome == Outcome::Active) else {
            return outcome;
        };
        match asked {
            Some(GangAction::Abort) => Outcome::Active,
            Some(GangAction::Restart) if policies.may_restart(self.retries) => Outcome::Active,
            Some(GangAction::Restart) => Outcome::failed(&[&format!(
                "RestartJob, and its maxRetry of {} is reached",
                policies.max_retry
            )]),
            _ => outcome,
        }
    }
}

impl PodCounts {
    /// Returns the sum of both.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            pending: self.pending.saturating_add(other.pending),
            running: self.running.saturating_add(other.running),
            succeeded: self.succeeded.saturating_add(other.succeeded),
            failed: self.failed.saturating_add(other.failed),
        }
    }
}

/// Returns the outcome of a job of this kind. `statuses` has the status of every placed part, null without
/// a report; the job has ended only when every part has, because until then pods run somewhere. If the leading
/// part of `rules` has succeeded, or a policy completed a part, the results of the others do not matter.
/// Unknown kinds, and services, never end.
#[must_use]
pub fn outcome(
    api_version: &str,
    kind: &str,
    statuses: &[Value],
    rules: &GangRules<'_>,
) -> Outcome {
    let completed_by_task = || {
        let policies = rules.policies?;
        policies::completed_task(api_version, kind, statuses, policies)
    };
    let by_task = completed_by_task().is_some();
    let kind = kinds::of(api_version, kind);
    let part = |status| match kind {
        Some(kind) => rules.part_outcome(kind, status),
        None => active_if_reported(status),
    };
    let parts: Vec<Outcome> = statuses.iter().map(part).collect();
    let has = |outcome: Outcome| parts.contains(&outcome);
    let completed = |status: &Value| {
        let asked = kind.and_then(|kind| rules.request(kind, status));
        asked == Some(GangAction::Complete)
    };
    let led = rules.leading.and_then(|leading| parts.get(leading)) == Some(&Outcome::Succeeded)
        || statuses.iter().any(completed)
        || by_task;
    if parts.is_empty() {
        Outcome::Unknown
    } else if has(Outcome::Active) {
        Outcome::Active
    } else if has(Outcome::Unknown) {
        Outcome::Unknown
    } else if led {
        Outcome::Succeeded
    } else if has(Outcome::Suspended) {
        Outcome::Suspended
    } else {
        over(parts)
    }
}

/// Combines ended parts: all succeeded, or the failures, each once.
fn over(parts: Vec<Outcome>) -> Outcome {
    let mut messages: Vec<String> = Vec::new();
    for part in parts {
        match part {
            Outcome::Failed { message } if !messages.contains(&message) => messages.push(message),
            _ => {}
        }
    }
    if messages.is_empty() {
        Outcome::Succeeded
    } else {
        Outcome::Failed {
            message: messages.join("; "),
        }
    }
}

/// Returns the pods of a job of this kind, summed over its parts; zero for unknown kinds.
#[must_use]
pub fn counts(api_version: &str, kind: &str, statuses: &[Value]) -> PodCounts {
    let Some(kind) = kinds::of(api_version, kind) else {
        return PodCounts::default();
    };
    statuses
        .iter()
        .filter(|status| is_reported(status))
        .map(|status| kind.counts(status))
        .fold(PodCounts::default(), PodCounts::plus)
}

/// For a part that has not ended: active if anything is reported of it.
pub(crate) fn active_if_reported(status: &Value) -> Outcome {
    if is_reported(status) {
        Outcome::Active
    } else {
        Outcome::Unknown
    }
}

fn is_reported(status: &Value) -> bool {
    status.as_object().is_some_and(|fields| !fields.is_empty())
}

/// Returns the condition `kind` of `status`, if it is true.
pub(crate) fn condition<'a>(status: &'a Value, kind: &str) -> Option<&'a Value> {
    let conditions = status.get("conditions")?.as_array()?;
    conditions
        .iter()
        .find(|condition| text(condition, "type") == kind && text(condition, "status") == "True")
}

/// Returns the failure that `condition` reports.
pub(crate) fn failed_by(condition: &Value) -> Outcome {
    Outcome::failed(&[text(condition, "reason"), text(condition, "message")])
}

impl Outcome {
    /// Returns true if all of it has ended, with success or failure.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed { .. })
    }

    /// Returns a failure with the `words` that are not empty.
    pub(crate) fn failed(words: &[&str]) -> Self {
        let told: Vec<&str> = words
            .iter()
            .copied()
            .filter(|word| !word.is_empty())
            .collect();
        let message = if told.is_empty() {
            "failed".to_owned()
        } else {
            told.join(": ")
        };
        Self::Failed { message }
    }
}

/// Returns the string `key` of `object`; empty if there is none.
pub(crate) fn text<'a>(object: &'a Value, key: &str) -> &'a str {
    object.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// Returns the count `key` of `object`; zero if there is none, and at most what a u32 holds.
pub(crate) fn number(object: &Value, key: &str) -> u32 {
    let number = object.get(key).and_then(Value::as_u64).unwrap_or(0);
    u32::try_from(number).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
