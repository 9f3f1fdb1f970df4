//! The breaker of a FaultPolicy: when a cluster takes no new jobs because many fail there.

use crate::fault_policy::{FaultPolicy, at_least, positive_millis};
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

const TEN_MINUTES: i32 = 600;

/// When a cluster takes no new jobs: many jobs fail there through no fault of their own.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct FaultPolicyBreaker {
    /// The number of jobs that have to fail in the cluster, on more than one of its nodes. Only faults of the
    /// classes Node, Device, Network, Storage and Cluster count.
    #[schemars(range(min = 2), extend("default" = {"stated": 5}))]
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub jobs: Option<i32>,
    /// The number of namespaces that these jobs have to be of, and also of queues: with more than one, no
    /// tenant can shut a cluster for others.
    #[schemars(range(min = 1), extend("default" = {"stated": 2}))]
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub namespaces: Option<i32>,
    /// The seconds within which they have to fail.
    #[schemars(range(min = 1), extend("default" = {"stated": TEN_MINUTES}))]
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub window_seconds: Option<i32>,
    /// The seconds for which the cluster takes no new job. After them one job is tried there.
    #[schemars(range(min = 1), extend("default" = {"stated": TEN_MINUTES}))]
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub pause_seconds: Option<i32>,
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
    /// Since when.
    #[schemars(extend("format" = "date-time"))]
    pub since: String,
    /// Until when it takes no job.
    #[schemars(extend("format" = "date-time"))]
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
        let Some(spec) = &self.spec.cluster_breaker else {
            return Ok(None);
        };
        let field = |name: &str| format!("spec.clusterBreaker.{name}");
        let millis = |seconds, name| positive_millis(seconds, TEN_MINUTES, &field(name));
        Ok(Some(ClusterBreaker {
            policy: self.metadata.name.clone().unwrap_or_default(),
            dry_run: self.is_dry_run(),
            jobs: at_least(spec.jobs, 5, 2, &field("jobs"))?,
            namespaces: at_least(spec.namespaces, 2, 1, &field("namespaces"))?,
            within_ms: millis(spec.window_seconds, "windowSeconds")?,
            for_ms: millis(spec.pause_seconds, "pauseSeconds")?,
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
        let spec = json!({"mode": "DryRun", "clusterBreaker": {"pauseSeconds": 1800}});
        assert_eq!(breaker(spec), Ok(Some(expected)));
        for (field, value, said) in [
            ("jobs", 1, "jobs: 1 is too small; 2 or more"),
            ("namespaces", 0, "namespaces: 0 is too small"),
            ("windowSeconds", -1, "windowSeconds: -1 is too small"),
            ("pauseSeconds", 0, "pauseSeconds: 0 is too small"),
        ] {
            let wrong = breaker(json!({"clusterBreaker": {field: value}})).unwrap_err();
            let said = format!("spec.clusterBreaker.{said}");
            assert!(wrong.starts_with(&said), "{wrong}");
        }
    }
}
