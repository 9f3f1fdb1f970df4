//! The admission record: the annotation `muster.io/admission` on a binding.
//!
//! It is the only durable memory of what was admitted. The patch that carries out the admission writes it,
//! and every restart reads it; jobs are charged from it, never from the present template.
//!
//! Several versions of Muster read and write it, during an upgrade and after a rollback. So it has a
//! version, and these rules apply:
//!
//! - A new field has a default and does not change the version. A version of Muster that does not know the
//!   field keeps it, byte for byte, when it writes the same record ([`UnknownFields`]).
//! - A change of the meaning of a record raises [`VERSION`]: for instance a field without which the rest is
//!   misread. A record without a version has version 1.
//! - A record of a later version, or with an unknown value (a state, a reason), is never acted on and never
//!   written. [`RecordError`] has the readable fields, for the charge.

use crate::karmada::{AppliedOverride, ResourceBinding};
use crate::names::ADMISSION_ANNOTATION;
use facts::{
    Admission, Attempt, ClusterName, JobKey, Leaving, PoolClass, QueueName, Reason, Resources,
    RolePods, Share, Time, Uid,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use workload::{AdmittedRequests, GangAction, GangPolicies, Reach};

mod avoided;
mod refused;
mod unknown;
mod unreadable;

#[cfg(test)]
mod tests;

pub use avoided::AvoidedByJob;
pub use unknown::UnknownFields;
pub use unreadable::{Readable, RecordError, Unreadable};

/// The version of records that this Muster writes, and the latest that it acts on.
pub const VERSION: u32 = 1;

/// The progress of an attempt, as far as it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum RecordState {
    /// The controller decided; the scheduler, in another process, has yet to place it.
    Planned,
    /// The scheduler cannot carry the plan out; the controller will decide again.
    Refused,
    /// Placed: `spec.clusters` was written with it.
    Admitted,
    /// Evicted; charged until its Works are gone.
    Ending,
    /// Nothing of the attempt is left and nothing is charged. The record keeps the attempt number.
    Requeued,
}

/// The progress of a job that is placed in parts. Until every Work shows its own part, nothing of the job
/// is dispatched: a member with the whole template would run the whole job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Parts {
    /// Dispatching is suspended until every Work shows its part.
    Held,
    /// Every Work has shown its part.
    Dispatched,
}

/// What was admitted, as the record stores it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionRecord {
    /// Version of its format, see [`VERSION`].
    #[serde(default = "first_version")]
    pub version: u32,
    /// UID of the template: a record with another UID belongs to another job.
    #[serde(rename = "templateUID")]
    pub template_uid: Uid,
    /// Number of the attempt, from 1.
    pub attempt: Attempt,
    /// Its progress.
    pub state: RecordState,
    /// The queue that is charged.
    pub queue: QueueName,
    /// The queues above it when the record was written, from the top down: the charge counts there even if
    /// these are deleted. Empty for a top-level queue, and in records of versions that did not write it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub queues_above: Vec<QueueName>,
    /// The requests of one pod of each role at the admission; empty in records of versions that did not write
    /// it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub requests: AdmittedRequests,
    /// The shares of the clusters, which are charged.
    #[serde(default)]
    pub clusters: Vec<RecordedShare>,
    /// Pods that were asked to end and are not gone: charged in addition to the shares.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub leaving: Vec<Leaving>,
    /// Whether each cluster gets a part of its own, by an override, and its progress.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parts: Option<Parts>,
    /// True if its override does not split it: it only keeps its pods off some nodes. Its `parts` say whether its
    /// Works show that.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub whole: bool,
    /// The nodes that its attempts are not placed on because its pods failed there, the oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub avoided_nodes: Vec<AvoidedByJob>,
    /// True if its parts can be resized while they run.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub resizable: bool,
    /// The address of the pod of rank 0 for pods of other clusters, if known, with the placeholder
    /// `{service}`: the name of its Service follows from the record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// By cluster, the addresses of its pods for other clusters, with the placeholders `{host}` and
    /// `{service}`, if each pod has to be found.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub hosts: BTreeMap<ClusterName, String>,
    /// The cluster whose part ends the whole job with its success, if it is in parts and has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leading: Option<ClusterName>,
    /// How often policies of its template have restarted it, or pods of it, in this attempt's predecessors:
    /// counted against its `maxRetry`. Evictions for other reasons do not count.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub retries: u32,
    /// Its `maxRetry` at the admission, if it is in several parts and its kind has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_retry: Option<u32>,
    /// The phase in which a part asks for a restart of the whole gang, if its policies restart it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restart_phase: Option<String>,
    /// What a part asks of the gang by the phase Failed, if its policies say the same for every failed pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed_action: Option<String>,
    /// The tasks that complete the gang once all of their pods have succeeded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub completing_tasks: Vec<String>,
    /// When it was admitted, RFC 3339 with milliseconds.
    pub time: jiff::Timestamp,
    /// Run time in milliseconds that it had declared when it was admitted; absent if it had declared none, and
    /// in records of versions that did not write it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_duration_ms: Option<i64>,
    /// The reason, in state Refused or Ending.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// The message, in state Refused or Ending.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The job that it was evicted for, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub for_job: Option<JobKey>,
    /// When it was evicted. Written under its former name until every version that may read the record knows
    /// the new one.
    #[serde(
        rename = "takenBackAt",
        alias = "evictedAt",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub evicted_at: Option<jiff::Timestamp>,
    /// When an evicted job may be admitted again, if not at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<jiff::Timestamp>,
    /// The generation of the template when it was admitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template_generation: Option<i64>,
    /// Digest of the placement of its policy with which the API server refused to place it, and would again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused_placement: Option<String>,
    /// How often it has failed through no fault of its own.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub infrastructure_failures: u32,
    /// How often it was queued again after it had failed by itself.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub own_failures: u32,
    /// True if the job ran before Muster managed it: charged, never gated.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub adopted: bool,
    /// Since when its Works request more than was admitted; dispatching is suspended meanwhile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exceeds_since: Option<jiff::Timestamp>,
    /// The overrides because of which it was evicted, if any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub overrides: Vec<RecordedOverride>,
    /// Fields of the attempt that only a later version knows.
    #[serde(flatten)]
    pub unknown: UnknownFields,
}

/// A policy whose overrides make a job request more than was admitted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RecordedOverride {
    /// The policy.
    #[serde(flatten)]
    pub policy: AppliedOverride,
    /// Its generation at that time; absent if it was not found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<i64>,
}

/// One cluster's share.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RecordedShare {
    /// The cluster.
    pub name: ClusterName,
    /// Pods per role, in the template's order.
    pub pods: Vec<RolePods>,
    /// Charged for it, by class of pool.
    pub charge: BTreeMap<PoolClass, Resources>,
    /// Fields of the share that only a later version knows.
    #[serde(flatten)]
    pub unknown: UnknownFields,
}

impl AdmissionRecord {
    /// Returns the record of `admission` in `state`.
    #[must_use]
    pub fn new(admission: &Admission, state: RecordState) -> Self {
        Self {
            version: VERSION,
            template_uid: admission.uid.clone(),
            attempt: admission.attempt,
            state,
            queue: admission.queue.clone(),
            queues_above: Vec::new(),
            requests: AdmittedRequests::new(),
            clusters: admission
                .shares
                .iter()
                .map(|share| RecordedShare {
                    name: share.cluster.clone(),
                    pods: share.pods.clone(),
                    charge: share.charge.clone(),
                    unknown: UnknownFields::default(),
                })
                .collect(),
            leaving: Vec::new(),
            parts: None,
            whole: false,
            avoided_nodes: Vec::new(),
            resizable: false,
            address: None,
            hosts: BTreeMap::new(),
            leading: None,
            retries: 0,
            max_retry: None,
            restart_phase: None,
            failed_action: None,
            completing_tasks: Vec::new(),
            time: timestamp(admission.admitted_at),
            expected_duration_ms: admission.declared_ms,
            reason: None,
            message: String::new(),
            for_job: None,
            evicted_at: None,
            not_before: None,
            template_generation: None,
            refused_placement: None,
            infrastructure_failures: 0,
            own_failures: 0,
            adopted: false,
            exceeds_since: None,
            overrides: Vec::new(),
            unknown: UnknownFields::default(),
        }
    }

    /// Returns the same placement with the shares of `admission`, which is of the same attempt.
    #[must_use]
    pub fn resized(&self, admission: &Admission) -> Self {
        let mut clusters = Self::new(admission, self.state).clusters;
        for share in &mut clusters {
            let before = self.clusters.iter().find(|known| known.name == share.name);
            share.unknown = before.map_or_else(UnknownFields::default, |b| b.unknown.clone());
        }
        Self {
            clusters,
            ..self.clone()
        }
    }

    /// Returns the same record with what the controller noted of the job in the `plan` of the same attempt. The
    /// placement is the scheduler's own.
    #[must_use]
    pub fn completed_from(self, plan: Self) -> Self {
        Self {
            queues_above: plan.queues_above,
            requests: plan.requests,
            retries: plan.retries,
            max_retry: plan.max_retry,
            restart_phase: plan.restart_phase,
            failed_action: plan.failed_action,
            completing_tasks: plan.completing_tasks,
            template_generation: plan.template_generation,
            avoided_nodes: plan.avoided_nodes,
            infrastructure_failures: plan.infrastructure_failures,
            own_failures: plan.own_failures,
            ..self
        }
    }

    /// Returns true if it is the record of `attempt`, placed in parts.
    #[must_use]
    pub fn is_in_parts(&self, attempt: Attempt) -> bool {
        self.state == RecordState::Admitted && self.attempt == attempt && self.parts.is_some()
    }

    /// Returns true if it is split: each cluster has a part of its own.
    #[must_use]
    pub fn is_split(&self) -> bool {
        self.parts.is_some() && !self.whole
    }

    /// Returns the mark that the Work of the cluster at `index` shows once it applies the override of the job, whose
    /// shares are `shares`.
    #[must_use]
    pub fn mark(&self, shares: &[Share], index: usize) -> String {
        match self.whole {
            true => workload::whole_mark(self.attempt),
            false => workload::mark(self.attempt, shares, index),
        }
    }

    /// Returns how pods of other clusters are reached.
    #[must_use]
    pub fn reach(&self) -> Reach {
        Reach {
            leader: self.address.clone(),
            hosts: self.hosts.clone(),
        }
    }

    /// Returns the same record with `reach`.
    #[must_use]
    pub fn with_reach(self, reach: Reach) -> Self {
        Self {
            address: reach.leader,
            hosts: reach.hosts,
            ..self
        }
    }

    /// Returns the policies that its whole gang follows; `None` if it is not in several parts.
    #[must_use]
    pub fn policies(&self) -> Option<GangPolicies> {
        Some(GangPolicies {
            restart_phase: self.restart_phase.clone(),
            failed_action: self.failed_action.as_deref().and_then(GangAction::named),
            max_retry: self.max_retry?,
            completing: {
                let tasks = self.completing_tasks.iter();
                tasks
                    .map(|task| (task.clone(), self.pods_of(task)))
                    .collect()
            },
        })
    }

    /// Returns the admitted pods of a role.
    fn pods_of(&self, role: &str) -> u32 {
        let roles = self.clusters.iter().flat_map(|share| &share.pods);
        let counts = roles
            .filter(|pods| pods.role == role)
            .map(|pods| pods.count);
        counts.fold(0, u32::saturating_add)
    }

    /// Sets the policies that its whole gang follows.
    pub fn set_policies(&mut self, policies: Option<GangPolicies>) {
        self.max_retry = policies.as_ref().map(|policies| policies.max_retry);
        let failed = policies
            .as_ref()
            .and_then(|policies| policies.failed_action);
        self.failed_action = failed.map(|action| action.as_str().to_owned());
        let completing = policies.as_ref().map(|policies| &policies.completing);
        self.completing_tasks = completing
            .into_iter()
            .flat_map(BTreeMap::keys)
            .cloned()
            .collect();
        self.restart_phase = policies.and_then(|policies| policies.restart_phase);
    }

    /// Returns the same record in another state, with the reason and message.
    #[must_use]
    pub fn in_state(&self, state: RecordState, reason: Option<Reason>, message: &str) -> Self {
        Self {
            state,
            reason,
            message: message.to_owned(),
            ..self.clone()
        }
    }

    /// Returns the admission for the engine. Slots are not recorded: the pods show which nodes they use.
    #[must_use]
    pub fn admission(&self) -> Admission {
        Admission {
            uid: self.template_uid.clone(),
            attempt: self.attempt,
            queue: self.queue.clone(),
            admitted_at: Time(self.time.as_millisecond()),
            declared_ms: self.expected_duration_ms,
            shares: self
                .clusters
                .iter()
                .map(|share| Share {
                    cluster: share.name.clone(),
                    pods: share.pods.clone(),
                    charge: share.charge.clone(),
                    slots: Vec::new(),
                })
                .collect(),
        }
    }

    /// Reads a binding's record; `None` if it has none.
    ///
    /// # Errors
    /// [`RecordError`] if this version cannot act on the record.
    pub fn read(
        annotations: Option<&BTreeMap<String, String>>,
    ) -> Result<Option<Self>, RecordError> {
        annotations
            .and_then(|annotations| annotations.get(ADMISSION_ANNOTATION))
            .map(|text| Self::parse(text))
            .transpose()
    }

    /// Returns the record of `binding`, if it is readable and belongs to the template that is bound now.
    #[must_use]
    pub fn own(binding: &ResourceBinding) -> Option<Self> {
        let record = Self::read(binding.metadata.annotations.as_ref()).ok()??;
        (record.template_uid == *binding.spec.resource.uid).then_some(record)
    }

    /// Returns the record of `binding`, if it is readable and of `attempt`.
    #[must_use]
    pub fn of_attempt(binding: &ResourceBinding, attempt: Attempt) -> Option<Self> {
        let record = Self::read(binding.metadata.annotations.as_ref()).ok()??;
        (record.attempt == attempt).then_some(record)
    }

    /// Returns the record of `binding`, if it places `attempt` in parts.
    #[must_use]
    pub fn placed_in_parts(binding: &ResourceBinding, attempt: Attempt) -> Option<Self> {
        Self::of_attempt(binding, attempt).filter(|record| record.is_in_parts(attempt))
    }

    fn parse(text: &str) -> Result<Self, RecordError> {
        match serde_json::from_str::<Self>(text) {
            Ok(record) if record.version <= VERSION => Ok(unknown::with_exact_bytes(record, text)),
            Ok(_) => Err(RecordError::of(text, None)),
            Err(error) => Err(RecordError::of(text, Some(&error))),
        }
    }

    /// Returns the annotation's value.
    ///
    /// # Errors
    /// Never for records built here; serialization can fail by type only.
    pub fn to_annotation(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string(self)
    }
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_zero(count: &u32) -> bool {
    *count == 0
}

fn first_version() -> u32 {
    1
}

/// Formats `time` in seconds, as Go's metav1.Time does.
#[must_use]
pub fn seconds(time: jiff::Timestamp) -> String {
    // A valid time in whole seconds is a valid time.
    jiff::Timestamp::from_second(time.as_second())
        .map_or_else(|_| time.to_string(), |whole| whole.to_string())
}

/// Returns `time` as a timestamp; an out-of-range time, which no clock returns, becomes the epoch.
#[must_use]
pub fn timestamp(time: Time) -> jiff::Timestamp {
    jiff::Timestamp::from_millisecond(time.0).unwrap_or(jiff::Timestamp::UNIX_EPOCH)
}
