//! How often jobs of a queue are queued again after they have failed, when their own controllers have given
//! up. A job that fails because of its nodes or devices is counted apart from one that fails by itself.

use super::CapacityPolicy;
use crate::loose::nullable;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Retries for faults of nodes, devices, networks and volumes, if the queue does not say.
pub(super) const DEFAULT_INFRASTRUCTURE: u32 = 10;

/// How often jobs are queued again after they have failed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct CapacityPolicyRetries {
    /// How often a job that has failed through no fault of its own (a node, a device, the network, a volume) is
    /// queued again. 0: never.
    #[schemars(with = "Option<i32>", range(min = 0, max = 100), extend("default" = {"stated": 10}))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub infrastructure: Option<i64>,
    /// How often a job that has failed by itself is queued again. 0: never.
    #[schemars(with = "Option<i32>", range(min = 0, max = 100), extend("default" = {"stated": 0}))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<i64>,
    /// The exit codes of a container after which a job that has failed by itself is queued again. Unset: all.
    #[schemars(length(max = 64), inner(range(min = 1, max = 255)))]
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub on_exit_codes: Vec<i32>,
}

/// The retries of the jobs of a queue, with defaults in place of what is unset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetryLimits {
    /// The most failures through no fault of its own after which a job is queued again.
    pub infrastructure: u32,
    /// The same for failures of its own.
    pub user: u32,
    /// The exit codes that a failure of its own must have; empty if any will do.
    pub on_exit_codes: Vec<i32>,
}

impl Default for RetryLimits {
    fn default() -> Self {
        Self {
            infrastructure: DEFAULT_INFRASTRUCTURE,
            user: 0,
            on_exit_codes: Vec::new(),
        }
    }
}

impl CapacityPolicy {
    /// Returns how often jobs of the queue are queued again. A negative number counts as unset, and
    /// [`Self::to_fact`] reports it.
    #[must_use]
    pub fn retries(&self) -> RetryLimits {
        let unset = RetryLimits::default();
        let Some(stated) = &self.spec.retries else {
            return unset;
        };
        let or = |stated: Option<i64>, unset| match stated {
            Some(most) if most >= 0 => u32::try_from(most).unwrap_or(u32::MAX),
            _ => unset,
        };
        RetryLimits {
            infrastructure: or(stated.infrastructure, unset.infrastructure),
            user: or(stated.user, unset.user),
            on_exit_codes: stated.on_exit_codes.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::{Value, json};

    fn policy(retries: Value) -> CapacityPolicy {
        let policy = json!({"metadata": {"name": "q"}, "spec": {"retries": retries}});
        serde_json::from_value(policy).unwrap()
    }

    #[test]
    fn what_a_queue_does_not_say_has_defaults() {
        for (retries, expected) in [
            (Value::Null, (10, 0, vec![])),
            (json!({}), (10, 0, vec![])),
            (json!({"infrastructure": 0, "user": 3}), (0, 3, vec![])),
            (json!({"user": 1, "onExitCodes": [75]}), (10, 1, vec![75])),
            (
                json!({"infrastructure": -1, "onExitCodes": null}),
                (10, 0, vec![]),
            ),
        ] {
            let limits = policy(retries.clone()).retries();
            let (infrastructure, user, on_exit_codes) = expected;
            let expected = RetryLimits {
                infrastructure,
                user,
                on_exit_codes,
            };
            assert_eq!(limits, expected, "{retries}");
        }
    }

    #[test]
    fn a_negative_number_makes_the_policy_invalid() {
        let invalid = |retries| policy(retries).to_fact(None).invalid;
        assert_eq!(invalid(json!({"infrastructure": 0, "user": 0})), None);
        assert_eq!(
            invalid(json!({"user": -1})).as_deref(),
            Some("spec.retries.user: -1 is too small; 0 or more is needed")
        );
    }
}
