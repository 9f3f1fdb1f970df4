//! The admission record: the annotation `muster.io/admission` on a binding.
//!
//! It is the one durable memory of what was admitted. Written in the same patch as what it
//! records, read at every restart; jobs are charged from it, never from the template as it
//! looks now.
//!
//! Several versions of Muster read and write it, during an upgrade and after a roll-back. So it
//! has a version, and these rules hold:
//!
//! - A new field has a default and leaves the version as it is. A Muster that does not know the
//!   field keeps it, byte for byte, in whatever it writes of the same record ([`UnknownFields`]).
//! - What changes the meaning of a record raises [`VERSION`]: a field without which the rest is
//!   read wrongly, for instance. A record without a version has version 1.
//! - A record of a later version, or with a value that is not known (a state, a reason), is never
//!   acted on and never written. [`RecordError`] has what of it can be read, for the charge.

use crate::karmada::{AppliedOverride, ResourceBinding};
use crate::names::ADMISSION_ANNOTATION;
use engine::facts::{Admission, Leaving, RolePods, Share};
use engine::{Attempt, ClusterName, JobKey, PoolClass, QueueName, Reason, Resources, Time, Uid};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use workload::{AdmittedRequests, Reach};

mod unknown;
mod unreadable;

#[cfg(test)]
mod tests;

pub use unknown::UnknownFields;
pub use unreadable::{Readable, RecordError, Unreadable};

/// The version of the records that this Muster writes, and the latest that it acts on.
pub const VERSION: u32 = 1;

/// How far an attempt has come, as far as writes tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum RecordState {
    /// The controller decided; the scheduler, a process of its own, has yet to place it.
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

/// How far a job that is placed in parts has come. Until every Work shows its own part, nothing
/// of the job is dispatched: a member that got the whole of it would run the whole of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Parts {
    /// Dispatching is suspended until every Work shows its part.
    Held,
    /// Every Work has shown its part.
    Dispatched,
}

/// What was admitted, in the words of the record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionRecord {
    /// Version of its form, see [`VERSION`].
    #[serde(default = "first_version")]
    pub version: u32,
    /// UID of the template: a record with another's is not this job's.
    #[serde(rename = "templateUID")]
    pub template_uid: Uid,
    /// Which attempt it is, from 1.
    pub attempt: Attempt,
    /// How far it has come.
    pub state: RecordState,
    /// The queue that is charged.
    pub queue: QueueName,
    /// The queues above it when the record was written, from the top down: what is charged counts
    /// there also when these are gone. Empty for a queue at the top, and in records of versions
    /// that did not write it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub queues_above: Vec<QueueName>,
    /// What one pod of each role requested when it was admitted; empty in records of versions that
    /// did not write it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub requests: AdmittedRequests,
    /// What each cluster got and is charged.
    #[serde(default)]
    pub clusters: Vec<RecordedShare>,
    /// Pods that were told to go and have not been seen gone: charged beside what the clusters got.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub leaving: Vec<Leaving>,
    /// Whether each cluster gets a part of its own, by an override, and how far that is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parts: Option<Parts>,
    /// Whether its parts were made to be resized while they run.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub resizable: bool,
    /// Where pods of other clusters reach the pod of rank 0, where that is known, with `{service}`
    /// left open: the name of its Service follows from the record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// By cluster, where pods of others reach its own, with `{host}` and `{service}` left open; where
    /// each of them has to be found.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub hosts: BTreeMap<ClusterName, String>,
    /// The cluster whose part ends the whole job by ending well, where it is in parts and one
    /// does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leading: Option<ClusterName>,
    /// When it was admitted, RFC 3339 with milliseconds.
    pub time: jiff::Timestamp,
    /// Run time in milliseconds that it had declared when it was admitted; absent where it had
    /// declared none, and in records of versions that did not write it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_duration_ms: Option<i64>,
    /// Why, where the state is Refused or Ending.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// In words, where the state is Refused or Ending.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The job that it was evicted for, where it was for one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub for_job: Option<JobKey>,
    /// When it was evicted. Written under its former name until every version that may read the
    /// record knows the new one.
    #[serde(
        rename = "takenBackAt",
        alias = "evictedAt",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub evicted_at: Option<jiff::Timestamp>,
    /// When a job that was evicted may be released again, if not at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<jiff::Timestamp>,
    /// Whether the job ran before Muster managed it: charged, never gated.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub adopted: bool,
    /// Since when what its Works ask for has been beyond what was admitted; dispatching is suspended
    /// as long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exceeds_since: Option<jiff::Timestamp>,
    /// The overrides that it was evicted for, where it was for some.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub overrides: Vec<RecordedOverride>,
    /// What else a later Muster has noted of the attempt.
    #[serde(flatten)]
    pub unknown: UnknownFields,
}

/// A policy whose overrides have a job ask for more than it is admitted with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RecordedOverride {
    /// The policy.
    #[serde(flatten)]
    pub policy: AppliedOverride,
    /// Its generation then; absent where it was not to be seen.
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
    /// What else a later Muster has noted of the share.
    #[serde(flatten)]
    pub unknown: UnknownFields,
}

impl AdmissionRecord {
    /// The record of `admission` in `state`.
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
            resizable: false,
            address: None,
            hosts: BTreeMap::new(),
            leading: None,
            time: timestamp(admission.admitted_at),
            expected_duration_ms: admission.declared_ms,
            reason: None,
            message: String::new(),
            for_job: None,
            evicted_at: None,
            not_before: None,
            adopted: false,
            exceeds_since: None,
            overrides: Vec::new(),
            unknown: UnknownFields::default(),
        }
    }

    /// The same placement with the shares of `admission`, which is of the same attempt.
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

    /// Whether it is the record of `attempt`, placed in parts.
    #[must_use]
    pub fn is_in_parts(&self, attempt: Attempt) -> bool {
        self.state == RecordState::Admitted && self.attempt == attempt && self.parts.is_some()
    }

    /// How pods of other clusters are reached.
    #[must_use]
    pub fn reach(&self) -> Reach {
        Reach {
            leader: self.address.clone(),
            hosts: self.hosts.clone(),
        }
    }

    /// The same record, whose pods reach those of other clusters so.
    #[must_use]
    pub fn with_reach(self, reach: Reach) -> Self {
        Self {
            address: reach.leader,
            hosts: reach.hosts,
            ..self
        }
    }

    /// The same record in another state, with why.
    #[must_use]
    pub fn in_state(&self, state: RecordState, reason: Option<Reason>, message: &str) -> Self {
        Self {
            state,
            reason,
            message: message.to_owned(),
            ..self.clone()
        }
    }

    /// What it admits, for the engine. Slots are gone: the pods tell what room is used.
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

    /// Reads a binding's record; `None` where it has none.
    ///
    /// # Errors
    /// [`RecordError`] where the annotation is there and this version cannot act on it.
    pub fn read(
        annotations: Option<&BTreeMap<String, String>>,
    ) -> Result<Option<Self>, RecordError> {
        annotations
            .and_then(|annotations| annotations.get(ADMISSION_ANNOTATION))
            .map(|text| Self::parse(text))
            .transpose()
    }

    /// That of `binding`, if it can be read and is of `attempt`.
    #[must_use]
    pub fn of_attempt(binding: &ResourceBinding, attempt: Attempt) -> Option<Self> {
        let record = Self::read(binding.metadata.annotations.as_ref()).ok()??;
        (record.attempt == attempt).then_some(record)
    }

    /// That of `binding`, if `attempt` is placed in parts there.
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

    /// The annotation's value.
    ///
    /// # Errors
    /// Never for records built here; serialization is fallible by type only.
    pub fn to_annotation(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string(self)
    }
}

fn first_version() -> u32 {
    1
}

/// `time` as a timestamp; out-of-range times, which no clock gives, become the epoch.
#[must_use]
pub fn timestamp(time: Time) -> jiff::Timestamp {
    jiff::Timestamp::from_millisecond(time.0).unwrap_or(jiff::Timestamp::UNIX_EPOCH)
}
