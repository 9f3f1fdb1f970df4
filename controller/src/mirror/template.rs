//! What the controller keeps of a template: what it asks for, never the object itself.
//!
//! Templates are watched by kind and decoded into this as they arrive, in the watch's own
//! task, so that a large template costs its parsing once and no memory after.

use crds::names;
use engine::{Time, Uid};
use kube::api::DynamicObject;
use serde_json::Value;
use std::fmt;
use workload::{SpecError, TimeToLive, WorkloadSpec};

/// The kind of a template, as bindings name it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct TemplateKind {
    /// `batch.volcano.sh/v1alpha1`.
    pub(crate) api_version: String,
    /// `Job`.
    pub(crate) kind: String,
}

impl fmt::Display for TemplateKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.api_version, self.kind)
    }
}

/// Which template: kind, namespace and name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct TemplateKey {
    pub(crate) kind: TemplateKind,
    pub(crate) namespace: String,
    pub(crate) name: String,
}

/// A template as far as queueing is concerned.
#[derive(Debug, Clone)]
pub(crate) struct Template {
    pub(crate) key: TemplateKey,
    pub(crate) uid: Uid,
    pub(crate) resource_version: String,
    /// 1 until its spec is changed; `None` where the API server does not say.
    pub(crate) generation: Option<i64>,
    pub(crate) created: Time,
    pub(crate) deleting: bool,
    /// What it asks for by its kind; kinds that are not known are sized from their binding.
    pub(crate) ask: Result<WorkloadSpec, SpecError>,
    /// The queue it names, by the rule of the design; `None` leaves it to the namespace.
    pub(crate) queue: Option<String>,
    /// Who submitted it, as the webhook wrote down; empty where that is not known.
    pub(crate) user: String,
    /// The queue that who submitted it may use, as the webhook wrote down where its namespace may not.
    pub(crate) permitted_queue: Option<String>,
    /// When its job last saved its work, if it tells.
    pub(crate) checkpointed_at: Option<Time>,
    /// How long it stays after its end, where it says so.
    pub(crate) time_to_live: Option<TimeToLive>,
    /// Whether Karmada itself may divide its replicas, its policy permitting.
    pub(crate) divisible_kind: bool,
    /// What is legal here and refused further on, in words.
    pub(crate) warnings: Vec<String>,
}

impl Template {
    /// Reads `object`, of a kind whose type is given because list items carry none.
    pub(crate) fn read(kind: &TemplateKind, object: DynamicObject) -> Self {
        let metadata = object.metadata.clone();
        let annotation = |name| metadata.annotations.as_ref()?.get(name).cloned();
        let user = annotation(names::USER_ANNOTATION).unwrap_or_default();
        let permitted_queue = annotation(names::PERMITTED_QUEUE_ANNOTATION);
        let checkpoint =
            annotation(names::CHECKPOINTED_AT_ANNOTATION).map(|text| checkpoint(&text));
        let mut value = serde_json::to_value(&object).unwrap_or(Value::Null);
        if let Some(map) = value.as_object_mut() {
            map.insert("apiVersion".into(), kind.api_version.clone().into());
            map.insert("kind".into(), kind.kind.clone().into());
        }
        Self {
            key: TemplateKey {
                kind: kind.clone(),
                namespace: metadata.namespace.unwrap_or_default(),
                name: metadata.name.unwrap_or_default(),
            },
            uid: Uid::new(metadata.uid.unwrap_or_default()),
            resource_version: metadata.resource_version.unwrap_or_default(),
            generation: metadata.generation,
            created: metadata
                .creation_timestamp
                .map_or(Time(0), |t| Time(t.0.as_millisecond())),
            deleting: metadata.deletion_timestamp.is_some(),
            ask: workload::read_spec(&value),
            queue: workload::named_queue(&value),
            user,
            permitted_queue,
            checkpointed_at: checkpoint
                .as_ref()
                .and_then(|read| read.as_ref().ok().copied()),
            time_to_live: workload::time_to_live(&value),
            divisible_kind: workload::divisible_kind(&value),
            warnings: workload::warnings(&value)
                .into_iter()
                .chain(checkpoint.and_then(Result::err))
                .collect(),
        }
    }

    /// The name that Karmada gives its binding.
    pub(crate) fn binding_name(&self) -> String {
        names::binding_name(&self.key.kind.kind, &self.key.name)
    }
}

/// Reads when a job last saved its work.
fn checkpoint(text: &str) -> Result<Time, String> {
    let read: Result<jiff::Timestamp, _> = text.parse();
    read.map(|at| Time(at.as_millisecond())).map_err(|_| {
        format!(
            "annotation {}: {text:?} is not used: a time like 2026-11-21T14:00:00Z is needed",
            names::CHECKPOINTED_AT_ANNOTATION
        )
    })
}
