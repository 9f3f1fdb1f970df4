//! What the controller keeps of a template: what it requests, never the object itself.
//!
//! The task of the watch decodes each template as it arrives, so that a large template is parsed once and
//! takes no memory after that.

use crate::mirror::heartbeat::Heartbeat;
use crds::duration::parse_millis;
use crds::karmada::ObjectReference;
use crds::names;
use engine::facts::RoleImages;
use engine::{Attempt, Time, Uid};
use kube::api::{ApiResource, DynamicObject};
use serde_json::Value;
use std::fmt;
use workload::{PodShape, ShownStatus, SpecError, TimeToLive, WorkloadSpec};

/// The shortest time after which a job without a heartbeat is stuck.
const LEAST_TIMEOUT_MS: i64 = 60_000;

/// The kind of a template, as bindings name it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct TemplateKind {
    /// `batch.volcano.sh/v1alpha1`.
    pub(crate) api_version: String,
    /// `Job`.
    pub(crate) kind: String,
}

impl TemplateKind {
    /// Returns how the API server serves the kind.
    pub(crate) fn api_resource(&self) -> ApiResource {
        crds::kubernetes::api_resource(&self.api_version, &self.kind)
    }
}

impl fmt::Display for TemplateKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.api_version, self.kind)
    }
}

/// Identifies a template: kind, namespace and name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct TemplateKey {
    pub(crate) kind: TemplateKind,
    pub(crate) namespace: String,
    pub(crate) name: String,
}

/// The parts of a template that concern queueing.
#[derive(Debug, Clone)]
pub(crate) struct Template {
    pub(crate) key: TemplateKey,
    pub(crate) uid: Uid,
    pub(crate) resource_version: String,
    /// 1 until its spec changes; `None` if the API server does not say.
    pub(crate) generation: Option<i64>,
    pub(crate) created: Time,
    pub(crate) deleting: bool,
    /// The finalizers that keep it, while it is being deleted.
    pub(crate) kept_by: Vec<String>,
    /// What it requests by its kind; for unknown kinds the binding gives the size.
    pub(crate) ask: Result<WorkloadSpec, SpecError>,
    /// Whether its label puts it on hold.
    pub(crate) on_hold: Result<bool, SpecError>,
    /// The PriorityClass that its label names, if any.
    pub(crate) labelled_class: Option<String>,
    /// The queue that it names; `None` leaves the choice to the namespace.
    pub(crate) queue: Option<String>,
    /// The user as which it counts, by who submitted it ([`names::counted_user`]); empty if that is unknown.
    pub(crate) user: String,
    /// The queue that its user may use, as the webhook recorded where the namespace may not.
    pub(crate) permitted_queue: Option<String>,
    /// When its job last wrote a checkpoint, if it says so.
    pub(crate) checkpointed_at: Option<Time>,
    /// What its job says of its progress.
    pub(crate) heartbeat: Heartbeat,
    /// The span of which its author says that its job is a part.
    pub(crate) traceparent: Option<String>,
    /// The aborted attempt after which a user has resumed its job, if one has.
    pub(crate) resumed_after: Option<Attempt>,
    /// How long it stays after its end, if it says so.
    pub(crate) time_to_live: Option<TimeToLive>,
    /// True if it calls exit codes below 128 permanent.
    pub(crate) permanent_exit_codes: bool,
    /// True if Karmada itself may divide its replicas, as far as its kind allows.
    pub(crate) divisible_kind: bool,
    /// True if a policy has selected it.
    pub(crate) selected: bool,
    /// True if another object controls it.
    pub(crate) controlled: bool,
    /// What its status says, as far as Muster writes it too.
    pub(crate) shown: ShownStatus,
    /// The images of its pods, by role.
    pub(crate) images: Vec<RoleImages>,
    /// The resources of its pods, by role, to which members add.
    pub(crate) pods: Vec<PodShape>,
    /// Messages on fields that are valid here and that Karmada or a member refuses later.
    pub(crate) warnings: Vec<String>,
}

impl Template {
    /// Reads `object`. The kind is an argument because list items carry no type.
    pub(crate) fn read(kind: &TemplateKind, object: DynamicObject) -> Self {
        let metadata = object.metadata.clone();
        let labels = metadata.labels.as_ref();
        let selected = labels.is_some_and(|labels| {
            labels.contains_key(names::POLICY_PERMANENT_ID)
                || labels.contains_key(names::CLUSTER_POLICY_PERMANENT_ID)
        });
        let mut owners = metadata.owner_references.iter().flatten();
        let controlled = owners.any(|owner| owner.controller == Some(true));
        let annotation = |name| metadata.annotations.as_ref()?.get(name).cloned();
        let submitter = annotation(names::USER_ANNOTATION).unwrap_or_default();
        let user = names::counted_user(&submitter).to_owned();
        let permitted_queue = annotation(names::PERMITTED_QUEUE_ANNOTATION);
        let checkpoint =
            annotation(names::CHECKPOINTED_AT_ANNOTATION).map(|text| checkpoint(&text));
        let beat = annotation(names::HEARTBEAT_ANNOTATION)
            .map(|text| time_of(names::HEARTBEAT_ANNOTATION, &text));
        let timeout = annotation(names::HEARTBEAT_TIMEOUT_ANNOTATION).map(|text| timeout(&text));
        let traceparent = annotation(names::TRACEPARENT_ANNOTATION);
        let resumed = annotation(names::RESUME_ANNOTATION);
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
            kept_by: match metadata.deletion_timestamp {
                Some(_) => metadata.finalizers.unwrap_or_default(),
                None => Vec::new(),
            },
            ask: workload::read_spec(&value),
            on_hold: workload::is_on_hold(&value),
            labelled_class: workload::labelled_class(&value),
            queue: workload::named_queue(&value),
            user,
            permitted_queue,
            checkpointed_at: checkpoint
                .as_ref()
                .and_then(|read| read.as_ref().ok().copied()),
            heartbeat: Heartbeat {
                at: beat.as_ref().and_then(|read| read.as_ref().ok().copied()),
                timeout_ms: timeout
                    .as_ref()
                    .and_then(|read| read.as_ref().ok().copied()),
            },
            traceparent,
            resumed_after: resumed.and_then(|attempt| attempt.trim().parse().ok().map(Attempt)),
            time_to_live: workload::time_to_live(&value),
            permanent_exit_codes: workload::has_permanent_exit_codes(&value),
            divisible_kind: workload::divisible_kind(&value),
            selected,
            controlled,
            shown: workload::shown_status(&value),
            warnings: workload::warnings(&value)
                .into_iter()
                .chain(checkpoint.and_then(Result::err))
                .chain(beat.and_then(Result::err))
                .chain(timeout.and_then(Result::err))
                .collect(),
            images: workload::images(&mut value),
            pods: workload::pod_shapes(&mut value),
        }
    }

    /// Returns the reference to it, for events.
    pub(crate) fn reference(&self) -> ObjectReference {
        ObjectReference {
            api_version: self.key.kind.api_version.clone(),
            kind: self.key.kind.kind.clone(),
            namespace: self.key.namespace.clone(),
            name: self.key.name.clone(),
            uid: self.uid.to_string(),
            resource_version: self.resource_version.clone(),
        }
    }

    /// Returns the name that Karmada gives its binding.
    pub(crate) fn binding_name(&self) -> String {
        names::binding_name(&self.key.kind.kind, &self.key.name)
    }
}

/// Parses the time of a job's last checkpoint.
fn checkpoint(text: &str) -> Result<Time, String> {
    time_of(names::CHECKPOINTED_AT_ANNOTATION, text)
}

/// Parses a time that a job reports in an annotation.
fn time_of(annotation: &str, text: &str) -> Result<Time, String> {
    let read: Result<jiff::Timestamp, _> = text.parse();
    read.map(|at| Time(at.as_millisecond())).map_err(|_| {
        format!("annotation {annotation}: {text:?} is not used: a time like 2026-11-21T14:00:00Z is needed")
    })
}

/// Parses the time after which a job without a heartbeat is stuck.
fn timeout(text: &str) -> Result<i64, String> {
    let name = names::HEARTBEAT_TIMEOUT_ANNOTATION;
    match parse_millis(text) {
        Ok(ms) if ms >= LEAST_TIMEOUT_MS => Ok(ms),
        Ok(_) => Err(format!(
            "annotation {name}: {text:?} is not used: at least 1m is needed"
        )),
        Err(error) => Err(format!("annotation {name} is not used: {error}")),
    }
}
