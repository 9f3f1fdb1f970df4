//! Whether a job is over, and how its pods stand, from what the members report of its parts.
//!
//! Karmada keeps the status of each member's part in `status.aggregatedStatus[].status` of the
//! binding; the template on the control plane may never turn terminal (a split Volcano Job has
//! no phase there, a failed batch/v1 Job is refused its condition), so only the parts are read.

use crate::kinds;
use serde_json::Value;

/// Where a job is, as its parts tell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Too little is known.
    Unknown,
    /// Some of it runs, or may still start.
    Active,
    /// What is not over yet is suspended by its own means and holds no pods.
    Suspended,
    /// All of it is over, all of it well, or at least what leads it.
    Succeeded,
    /// All of it is over, some of it badly.
    Failed {
        /// What the members say of it.
        message: String,
    },
}

/// Pods of a job by phase, as the members count them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PodCounts {
    /// Made, but not running yet. Kubeflow's operators do not tell.
    pub pending: u32,
    /// Running.
    pub running: u32,
    /// Ended well.
    pub succeeded: u32,
    /// Ended badly.
    pub failed: u32,
}

impl PodCounts {
    /// The sum of both.
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

/// Where a job of this kind is. `statuses` has the status of every part that was placed, null
/// for one that has reported none; it is over only when every part is, because until then pods
/// run somewhere. `leading` is the part whose good end is that of the whole, where there is one:
/// how the others ended does not matter then. Kinds that are not known, and services, are never
/// over.
#[must_use]
pub fn outcome(
    api_version: &str,
    kind: &str,
    statuses: &[Value],
    leading: Option<usize>,
) -> Outcome {
    let kind = kinds::of(api_version, kind);
    let part = |status| match kind {
        Some(kind) => kind.part_outcome(status),
        None => active_if_told(status),
    };
    let parts: Vec<Outcome> = statuses.iter().map(part).collect();
    let has = |outcome: Outcome| parts.contains(&outcome);
    let led = leading.and_then(|leading| parts.get(leading)) == Some(&Outcome::Succeeded);
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

/// Every part is over: all well, or what went badly, said once.
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

/// Pods of a job of this kind, summed over its parts; zero for kinds that are not known.
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

/// For a part that is not over: active, if anything is reported of it.
pub(crate) fn active_if_told(status: &Value) -> Outcome {
    if is_reported(status) {
        Outcome::Active
    } else {
        Outcome::Unknown
    }
}

fn is_reported(status: &Value) -> bool {
    status.as_object().is_some_and(|fields| !fields.is_empty())
}

/// The condition `kind` of `status`, where it is true.
pub(crate) fn condition<'a>(status: &'a Value, kind: &str) -> Option<&'a Value> {
    let conditions = status.get("conditions")?.as_array()?;
    conditions
        .iter()
        .find(|condition| text(condition, "type") == kind && text(condition, "status") == "True")
}

/// The failure that `condition` tells of.
pub(crate) fn failed_by(condition: &Value) -> Outcome {
    Outcome::failed(&[text(condition, "reason"), text(condition, "message")])
}

impl Outcome {
    /// Whether all of it is over, well or badly.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed { .. })
    }

    /// A failure told by the `words` that are not empty.
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

/// The text `key` of `object`; empty where there is none.
pub(crate) fn text<'a>(object: &'a Value, key: &str) -> &'a str {
    object.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// The count `key` of `object`; zero where there is none, and never more than a u32 holds.
pub(crate) fn number(object: &Value, key: &str) -> u32 {
    let number = object.get(key).and_then(Value::as_u64).unwrap_or(0);
    u32::try_from(number).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
