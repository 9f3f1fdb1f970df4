//! `status.federation` of a PodGroup: what Volcano's own CRD has no fields for.
//!
//! Where that CRD is installed, the API server would prune it. There it stands as JSON in the annotation
//! [`FEDERATION_ANNOTATION`], and [`PodGroup::with_annotated_federation`] reads it back.

use super::{PodGroup, StatusWord};
use crate::loose::lenient;
use crate::names::FEDERATION_ANNOTATION;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The status of a job in the federation.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct FederationStatus {
    /// What it does, in one word: Queued, Admitted, Starting, Running, Evicting, Succeeded, Failed or Finished.
    #[serde(deserialize_with = "lenient")]
    pub status: Option<String>,
    /// Its position in its queue; 1 is next. From 10 on it is rounded down to a power of ten: 10 means 10 to 99.
    #[serde(deserialize_with = "lenient")]
    pub position: Option<i64>,
    /// Its parts, by cluster.
    #[serde(deserialize_with = "lenient")]
    pub placement: Vec<PlacedPart>,
    /// Pods by cluster: `gpu-a:8,gpu-b:8`.
    #[serde(deserialize_with = "lenient")]
    pub placement_summary: Option<String>,
    /// Why it waits, or what it does: one word of a closed list.
    #[serde(deserialize_with = "lenient")]
    pub reason: Option<String>,
    /// The reason as a sentence, with numbers.
    #[serde(deserialize_with = "lenient")]
    pub message: Option<String>,
    /// The facts behind the reason, one in each line, the most important first.
    #[serde(deserialize_with = "lenient")]
    pub evidence: Vec<String>,
    /// Changes of which each one would let the job start now.
    #[serde(deserialize_with = "lenient")]
    pub helps: Vec<String>,
    /// The jobs ahead of it in its queue.
    #[serde(deserialize_with = "lenient")]
    pub ahead: Option<JobsAhead>,
    /// When it is expected to start, if that is known.
    #[serde(deserialize_with = "lenient")]
    pub start: Option<ExpectedStart>,
    /// Its last eviction, if any.
    #[serde(deserialize_with = "lenient")]
    pub eviction: Option<Eviction>,
    /// The former name of `eviction`: read for one version, never written.
    #[serde(deserialize_with = "lenient", skip_serializing)]
    pub taken_back: Option<Eviction>,
    /// How often it was admitted, this time included.
    #[serde(deserialize_with = "lenient")]
    pub attempt: Option<i32>,
    /// The value of its PriorityClass.
    #[serde(deserialize_with = "lenient")]
    pub priority: Option<i32>,
    /// The user as which it counts: who submitted it, or the namespace of the service account that did.
    #[serde(deserialize_with = "lenient")]
    pub user: Option<String>,
    /// The devices that all its pods request together.
    #[serde(deserialize_with = "lenient")]
    pub devices: Option<i64>,
    /// How long it may run, as it declares, in seconds: its expected duration, at most its own deadline.
    #[serde(deserialize_with = "lenient")]
    pub expected_duration_seconds: Option<i64>,
    /// When it reached each stage.
    #[serde(deserialize_with = "lenient")]
    pub timeline: Timeline,
}

/// The jobs ahead of a job. Small numbers are exact and large ones are rounded down, so that a moving queue writes
/// little.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct JobsAhead {
    /// Jobs, rounded like positions.
    pub jobs: i64,
    /// Devices that they request together, beyond 20 rounded to two digits.
    pub devices: i64,
    /// Device-hours that they are expected to take, if run times are known; rounded likewise.
    pub device_hours: i64,
}

/// When a job is expected to start. Times are rounded by how far away they are.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ExpectedStart {
    /// The earliest start that is likely. Never now: the job is blocked. Absent if nothing is known of it.
    pub earliest: Option<Time>,
    /// The latest start that is likely. Absent if nothing is known of it.
    pub latest: Option<Time>,
    /// What the estimate rests on, as a sentence.
    pub basis: String,
    /// How many of the latest ranges for jobs like it have held their starts, as a sentence; empty if there
    /// were too few.
    pub past: String,
}

/// The eviction of an attempt of a job.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Eviction {
    /// When.
    pub time: Option<Time>,
    /// Why: one word of a closed list.
    pub reason: String,
    /// A sentence.
    pub message: String,
    /// The job that it was evicted for (`namespace/name` of its PodGroup), if any.
    pub for_job: Option<String>,
}

/// One cluster's part of a job.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PlacedPart {
    /// The cluster.
    pub cluster: String,
    /// Pods that were placed there.
    pub pods: i32,
    /// Pods that run there, as the cluster reports.
    pub ready: i32,
    /// The state of the part: Dispatched, Running, Ended, ...
    pub phase: String,
    /// What is wrong, if anything.
    pub reason: String,
}

/// When a job reached each stage, in its latest attempt (`queued`: in all of them). A time that Muster did not
/// observe is absent.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Timeline {
    /// It was submitted.
    pub queued: Option<Time>,
    /// Since when only quota, room and the jobs ahead of it keep it waiting: no hold, no closed queue, no
    /// back-off. Absent while one of these does, and if Muster did not see when it ended.
    pub eligible: Option<Time>,
    /// Quota was charged.
    pub admitted: Option<Time>,
    /// Its placement was written.
    pub placed: Option<Time>,
    /// Its minimum ran.
    pub running: Option<Time>,
    /// It was last grown or shrunk.
    pub resized: Option<Time>,
    /// It ended.
    pub finished: Option<Time>,
}

impl FederationStatus {
    /// Returns the published status, if this version knows the word.
    #[must_use]
    pub fn status_word(&self) -> Option<StatusWord> {
        self.status.as_deref()?.parse().ok()
    }
}

impl PodGroup {
    /// Returns the PodGroup with `status.federation` from its annotation, where the CRD has no such field.
    #[must_use]
    pub fn with_annotated_federation(mut self) -> Self {
        let annotations = self.metadata.annotations.as_ref();
        let text = annotations.and_then(|all| all.get(FEDERATION_ANNOTATION));
        if let Some(status) = &mut self.status
            && status.federation.is_none()
            && let Some(text) = text
        {
            status.federation = serde_json::from_str(text).ok();
        }
        self
    }
}
