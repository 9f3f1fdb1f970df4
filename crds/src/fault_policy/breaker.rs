//! The breaker of a FaultPolicy: when a cluster takes no new jobs because many fail there.

use crate::duration::DURATION_PATTERN;
use crate::fault_policy::{FaultPolicy, positive_millis};
use crate::loose::lenient;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Values of `status.pausedClusters[].phase`.
pub mod pause {
    /// The cluster takes no new job.
    pub const PAUSED: &str = "Paused";
    /// The cluster takes one job, to see whether it runs.
    pub const TRIAL: &str = "Trial";
}

/// When a cluster takes no new jobs: many jobs fail there through no fault of their own.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct FaultPolicyBreaker {
    /// The number of jobs that have to fail in the cluster, on more than one of its nodes; by default 5. Only
    /// faults of the classes Node, Device, Network, Storage and Cluster count.
    #[schemars(range(min = 2))]
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub jobs: Option<u32>,
    /// The number of namespaces that these jobs have to be of, and also of queues; by default 2, so that no
    /// tenant can shut a cluster for others.
    #[schemars(range(min = 1))]
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub namespaces: Option<u32>,
    /// The time within which they have to fail; by default 10m.
    #[schemars(length(max = 32), regex(pattern = DURATION_PATTERN))]
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub within: Option<String>,
    /// The time for which the cluster takes no new job; by default 10m. After it one job is tried there.
    #[serde(rename = "for")]
    #[schemars(length(max = 32), regex(pattern = DURATION_PATTERN))]
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub lasts: Option<String>,
}

/// A cluster that takes no new jobs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["cluster"]))]
pub struct PausedCluster {
    /// Its name.
    pub cluster: String,
    /// Paused, or Trial: it takes one job, to see whether it runs.
    pub phase: String,
    /// Since when (RFC 3339).
    pub since: String,
    /// Until when it takes no job (RFC 3339).
    pub until: String,
    /// The job that is tried, as namespace/name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trial_job: Option<String>,
    /// What was seen.
    pub message: String,
}

/// A breaker that can be read, of the policy `policy`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterBreaker {
    /// The policy.
    pub policy: String,
    /// True if it only tells.
    pub dry_run: bool,
    /// The number of jobs that have to fail.
    pub jobs: u32,
    /// The number of their namespaces, and of their queues.
    pub namespaces: u32,
    /// Milliseconds within which they have to fail.
    pub within_ms: i64,
    /// Milliseconds for which the cluster is paused.
    pub for_ms: i64,
}

impl FaultPolicy {
    /// Returns its breaker, if it has one.
    ///
    /// # Errors
    /// Returns which field is wrong, its value, and what would be right.
    pub fn breaker(&self) -> Result<Option<ClusterBreaker>, String> {
        const TEN_MINUTES_MS: i64 = 600_000;
        let Some(spec) = &self.spec.cluster_breaker else {
            return Ok(None);
        };
        let number = |value: Option<u32>, unset: u32, least: u32, name: &str| {
            let value = value.unwrap_or(unset);
            (value >= least).then_some(value).ok_or_else(|| {
                format!(
                    "spec.clusterBreaker.{name}: {value} is too few; at least {least} is needed"
                )
            })
        };
        let millis = |text: Option<&String>, name: &str| {
            let field = format!("spec.clusterBreaker.{name}");
            positive_millis(text, (TEN_MINUTES_MS, "10m"), &field)
        };
        Ok(Some(ClusterBreaker {
            policy: self.metadata.name.clone().unwrap_or_default(),
            dry_run: self.is_dry_run(),
            jobs: number(spec.jobs, 5, 2, "jobs")?,
            namespaces: number(spec.namespaces, 2, 1, "namespaces")?,
            within_ms: millis(spec.within.as_ref(), "within")?,
            for_ms: millis(spec.lasts.as_ref(), "for")?,
        }))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::{Value, json};

    fn breaker(spec: Value) -> Result<Option<ClusterBreaker>, String> {
        let policy: FaultPolicy =
            serde_json::from_value(json!({"metadata": {"name": "a"}, "spec": spec})).unwrap();
        policy.breaker()
    }

    #[test]
    fn a_breaker_has_defaults_and_wrong_values_are_named() {
        assert_eq!(breaker(json!({})), Ok(None));
        let expected = ClusterBreaker {
            policy: "a".to_owned(),
            dry_run: true,
            jobs: 5,
            namespaces: 2,
            within_ms: 600_000,
            for_ms: 1_800_000,
        };
        let spec = json!({"dryRun": true, "clusterBreaker": {"for": "30m"}});
        assert_eq!(breaker(spec), Ok(Some(expected)));
        for (field, value, said) in [
            ("jobs", json!(1), "jobs: 1 is too few; at least 2"),
            ("namespaces", json!(0), "namespaces: 0 is too few"),
            ("within", json!("1d"), "within: \"1d\" is not a duration"),
            ("for", json!("0s"), "for: is no time"),
        ] {
            let wrong = breaker(json!({"clusterBreaker": {field: value}})).unwrap_err();
            let said = format!("spec.clusterBreaker.{said}");
            assert!(wrong.starts_with(&said), "{wrong}");
        }
    }
}
