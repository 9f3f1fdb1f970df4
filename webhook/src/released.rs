//! Index of the admitted jobs, from the admission records of a watch of bindings.
//!
//! The validation asks it instead of the API server. It is a hint only: before it has listed once it knows
//! nothing, and the controller charges and pins what passes.

use crds::loose::slim_metadata;
use crds::record::{AdmissionRecord, Readable, RecordState};
use crds::slim_resource;
use facts::{Attempt, QueueName, Uid};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::NamespaceResourceScope;
use parking_lot::RwLock;
use runtime::{Delta, ObjectKey};
use serde::Deserialize;
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

/// The fields of a binding that the index reads.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct RecordedBinding {
    /// Name, namespace, and the annotation with the record.
    #[serde(default, deserialize_with = "slim_metadata")]
    pub metadata: ObjectMeta,
}
slim_resource!(
    RecordedBinding,
    NamespaceResourceScope,
    "work.karmada.io",
    "v1alpha2",
    "ResourceBinding",
    "resourcebindings"
);

/// An admitted job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReleasedJob {
    /// UID of the template that was admitted.
    pub template: Uid,
    /// The attempt that runs.
    pub attempt: Attempt,
    /// The queue that is charged.
    pub queue: QueueName,
    /// True if it is placed in parts, whose size an override sets.
    pub in_parts: bool,
}

/// The index. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct ReleasedIndex(Arc<RwLock<ReleasedIndexState>>);

#[derive(Debug, Default)]
struct ReleasedIndexState {
    listed: bool,
    jobs: HashMap<ObjectKey, ReleasedJob>,
}

impl ReleasedIndex {
    /// Applies a change of a binding.
    pub fn apply(&self, delta: Delta<RecordedBinding>) {
        let mut index = self.0.write();
        match delta {
            Delta::Upserted(binding) => {
                let key = ObjectKey::of(&binding);
                match released(&binding) {
                    Some(job) => index.jobs.insert(key, job),
                    None => index.jobs.remove(&key),
                };
            }
            Delta::Gone(key) => {
                index.jobs.remove(&key);
            }
            Delta::Listed => index.listed = true,
        }
    }

    /// Returns the admitted job of `template`, by the key of its binding; `None` also before the index has
    /// listed.
    #[must_use]
    pub fn get(&self, key: &ObjectKey, template: &str) -> Option<ReleasedJob> {
        let index = self.0.read();
        let job = index.jobs.get(key).filter(|_| index.listed)?;
        (job.template == *template).then(|| job.clone())
    }
}

/// Returns what a binding's record admits. A job that is being evicted does not count: its next attempt is
/// admitted with the size that it has then.
fn released(binding: &RecordedBinding) -> Option<ReleasedJob> {
    let record = match AdmissionRecord::read(binding.metadata.annotations.as_ref()) {
        Ok(record) => record?,
        Err(error) => return unreadable(*error.readable),
    };
    let in_parts = record.is_split();
    matches!(record.state, RecordState::Planned | RecordState::Admitted).then(|| ReleasedJob {
        template: record.template_uid,
        attempt: record.attempt,
        queue: record.queue,
        in_parts,
    })
}

/// A job whose record this version cannot act on may run, so it must not grow either.
fn unreadable(record: Readable) -> Option<ReleasedJob> {
    Some(ReleasedJob {
        template: record.template_uid?,
        attempt: record.attempt?,
        queue: record.queue?,
        in_parts: false,
    })
}
