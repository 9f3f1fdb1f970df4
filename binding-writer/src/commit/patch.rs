//! Builds the patches, and checks whether a binding already has what a patch would write. No I/O.
//!
//! Merge patches contain only Muster's own fields; all other fields of the binding belong to Karmada or the
//! user. A merge patch can only replace a list as a whole, so `metadata.finalizers` is derived from the
//! binding as it was read, and guarded by its resourceVersion.

use super::intent::{Intent, Write};
use crds::karmada::ResourceBinding;
use crds::names::{
    ACCOUNTING_FINALIZER, ADMISSION_ANNOTATION, APPLIED_PLACEMENT, FENCE_ANNOTATION,
};
use crds::record::{AdmissionRecord, Parts, seconds};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

/// Most bytes of the placement in an annotation.
const APPLIED_PLACEMENT_BYTES: usize = 64 * 1024;
/// The field of a placement that Karmada reads in the annotation.
const CLUSTER_TOLERATIONS: &str = "clusterTolerations";

/// The part of the object that a patch changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PatchTarget {
    /// The object itself.
    Whole,
    /// Its status subresource.
    Status,
}

/// A patch without its resourceVersion.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct PatchBody {
    pub(super) part: PatchTarget,
    pub(super) value: Value,
}

impl PatchBody {
    /// Returns the patch guarded by `resource_version`.
    pub(super) fn guarded(&self, resource_version: Option<&str>) -> Value {
        let mut value = self.value.clone();
        value["metadata"]["resourceVersion"] = json!(resource_version);
        value
    }
}

/// Returns the patch that carries `intent` out on `current`, the newest known state of its binding; `None`
/// if `current` needs no change.
///
/// # Errors
/// Returns an error if a record cannot be serialized, which its type allows and its values never cause.
pub(super) fn body(
    intent: &Intent,
    current: &ResourceBinding,
    now: Timestamp,
) -> Result<Option<PatchBody>, serde_json::Error> {
    let mut patch = Patch::default();
    match &intent.write {
        Write::Gate { record } => {
            patch.finalizer(current);
            patch.record(record.as_ref(), current)?;
            patch.scheduling_suspended(true);
            patch.release_dispatching(current);
            patch.clusters(json!([]));
        }
        Write::Hold => {
            patch.finalizer(current);
            if !is_gated(current) {
                patch.scheduling_suspended(true);
            }
        }
        Write::Plan { record } | Write::Refuse { record } | Write::Record { record } => {
            patch.record(Some(record), current)?;
        }
        Write::Place {
            record, clusters, ..
        } => {
            patch.finalizer(current);
            patch.record(Some(record), current)?;
            patch.applied_placement(&intent.binding)?;
            patch.scheduling_suspended(false);
            if record.parts == Some(Parts::Held) {
                patch.suspension("dispatching", json!(true));
            }
            patch.clusters(json!(clusters));
        }
        Write::Dispatch { record } => {
            patch.record(Some(record), current)?;
            patch.release_dispatching(current);
        }
        Write::Suspend { record } => {
            patch.record(Some(record), current)?;
            patch.suspension("dispatching", json!(true));
        }
        Write::Evict { record } => {
            patch.record(Some(record), current)?;
            patch.scheduling_suspended(true);
            patch.release_dispatching(current);
            patch.clusters(json!([]));
        }
        Write::Adopt { record } => {
            patch.finalizer(current);
            patch.record(Some(record), current)?;
        }
        Write::Finalize => patch.no_finalizer(current),
        Write::RemoveWithWorks => {
            let field = "preserveResourcesOnDeletion".to_owned();
            // Unset means the same as false. Karmada writes the Works again only if the spec changes.
            let value = match current.spec.preserve_resources_on_deletion {
                Some(false) => Value::Null,
                _ => json!(false),
            };
            patch.spec.insert(field, value);
        }
        Write::StopManaging => {
            patch.record(None, current)?;
            patch.no_fence(current);
            patch.release_dispatching(current);
            // A gate without Muster's finalizer belongs to another manager.
            if has_finalizer(current) {
                patch.no_finalizer(current);
                patch.no_scheduling_gate(current);
            }
        }
        Write::Spread { clusters } => {
            patch.applied_placement(&intent.binding)?;
            patch.clusters(json!(clusters));
        }
        Write::Ack { reschedule } => return Ok(ack(&intent.binding, current, *reschedule, now)),
    }
    Ok(patch.into_body())
}

/// Returns true if what the decision depends on has not changed.
pub(super) fn still_holds(decided: &ResourceBinding, current: &ResourceBinding) -> bool {
    let facts = |binding: &ResourceBinding| {
        (
            binding.metadata.uid.clone(),
            binding.metadata.deletion_timestamp.is_some(),
            annotation(binding, ADMISSION_ANNOTATION).map(str::to_owned),
            is_gated(binding),
            binding.spec.clusters.clone(),
            binding.spec.resource.uid.clone(),
        )
    };
    facts(decided) == facts(current)
}

/// Returns true if `current` (`raw` is the whole object) shows that `intent` was carried out: it has the
/// intent's record and did not have it before, or it has everything that the patch would write.
pub(super) fn is_carried_out(intent: &Intent, current: &ResourceBinding, raw: &Value) -> bool {
    if current.metadata.uid != intent.binding.metadata.uid {
        return false;
    }
    let record = intent.write.record().and_then(|r| r.to_annotation().ok());
    if let Some(record) = record {
        let shows = |binding| annotation(binding, ADMISSION_ANNOTATION) == Some(record.as_str());
        if shows(current) && !shows(&intent.binding) {
            return true;
        }
    }
    match body(intent, current, Timestamp::now()) {
        Ok(Some(body)) => changes_nothing(&body.value, raw),
        Ok(None) => true,
        Err(_) => false,
    }
}

/// Returns true if the merge patch `patch` would not change `object`. An absent list equals an empty one:
/// Go omits empty lists.
fn changes_nothing(patch: &Value, object: &Value) -> bool {
    match (patch, object) {
        (Value::Object(fields), Value::Object(_) | Value::Null) => fields
            .iter()
            .all(|(name, wanted)| changes_nothing(wanted, &object[name.as_str()])),
        (Value::Array(wanted), Value::Null) => wanted.is_empty(),
        (wanted, found) => wanted == found,
    }
}

fn ack(
    decided: &ResourceBinding,
    current: &ResourceBinding,
    reschedule: bool,
    now: Timestamp,
) -> Option<PatchBody> {
    let generation = decided.metadata.generation.unwrap_or_default();
    let observed = current.status.scheduler_observed_generation;
    if !reschedule && observed.unwrap_or_default() >= generation {
        return None;
    }
    let mut status = json!({
        "schedulerObservedGeneration": generation.max(observed.unwrap_or_default()),
    });
    if reschedule {
        // Never before the request, whatever the clocks say; otherwise the request would stay open for ever.
        let asked = decided.spec.reschedule_triggered_at.unwrap_or(now);
        status["lastScheduledTime"] = json!(seconds(now.max(asked)));
    }
    Some(PatchBody {
        part: PatchTarget::Status,
        value: json!({ "status": status }),
    })
}

pub(super) fn is_gated(binding: &ResourceBinding) -> bool {
    let suspension = binding.spec.suspension.as_ref();
    suspension.and_then(|suspension| suspension.scheduling) == Some(true)
}

fn has_finalizer(binding: &ResourceBinding) -> bool {
    finalizers(binding).any(|finalizer| finalizer == ACCOUNTING_FINALIZER)
}

fn finalizers(binding: &ResourceBinding) -> impl Iterator<Item = &str> {
    let finalizers = binding.metadata.finalizers.iter().flatten();
    finalizers.map(String::as_str)
}

pub(super) fn annotation<'a>(binding: &'a ResourceBinding, name: &str) -> Option<&'a str> {
    let annotations = binding.metadata.annotations.as_ref();
    annotations
        .and_then(|all| all.get(name))
        .map(String::as_str)
}

/// A patch under construction.
#[derive(Default)]
struct Patch {
    metadata: Map<String, Value>,
    annotations: Map<String, Value>,
    spec: Map<String, Value>,
}

impl Patch {
    fn finalizer(&mut self, current: &ResourceBinding) {
        // An API server accepts no new finalizers on an object that is being deleted.
        let deleting = current.metadata.deletion_timestamp.is_some();
        if !deleting && !has_finalizer(current) {
            let all = finalizers(current).chain([ACCOUNTING_FINALIZER]);
            self.finalizers(all);
        }
    }

    fn no_finalizer(&mut self, current: &ResourceBinding) {
        if has_finalizer(current) {
            self.finalizers(finalizers(current).filter(|name| *name != ACCOUNTING_FINALIZER));
        }
    }

    fn finalizers<'a>(&mut self, all: impl Iterator<Item = &'a str>) {
        let all: Vec<&str> = all.collect();
        self.metadata.insert("finalizers".to_owned(), json!(all));
    }

    fn record(
        &mut self,
        record: Option<&AdmissionRecord>,
        current: &ResourceBinding,
    ) -> Result<(), serde_json::Error> {
        let wanted = record.map(AdmissionRecord::to_annotation).transpose()?;
        if wanted.as_deref() != annotation(current, ADMISSION_ANNOTATION) {
            self.annotations
                .insert(ADMISSION_ANNOTATION.to_owned(), json!(wanted));
        }
        Ok(())
    }

    fn no_fence(&mut self, current: &ResourceBinding) {
        if annotation(current, FENCE_ANNOTATION).is_some() {
            let name = FENCE_ANNOTATION.to_owned();
            self.annotations.insert(name, Value::Null);
        }
    }

    /// Writes the placement for which the clusters were chosen: the one of the decision, even if the binding
    /// has a newer one by now, which then shows as changed. Karmada compares the two after decoding
    /// (pkg/scheduler/helper.go, placementChanged), so the order of keys does not matter.
    ///
    /// All annotations of an object have 256 KiB. Of a large placement only the tolerations are written, since
    /// Karmada's taint manager reads nothing else of it: with a hash, or without the annotation, it returns an error
    /// and moves nothing, and with an empty placement it would evict the job from clusters that it tolerates
    /// (pkg/controllers/cluster/taint_manager.go, needEviction). If these are too large as well, it is left out.
    fn applied_placement(&mut self, decided: &ResourceBinding) -> Result<(), serde_json::Error> {
        if let Some(placement) = &decided.spec.placement {
            let mut text = serde_json::to_string(placement)?;
            if text.len() > APPLIED_PLACEMENT_BYTES {
                let tolerations = &placement[CLUSTER_TOLERATIONS];
                text = serde_json::to_string(&json!({ CLUSTER_TOLERATIONS: tolerations }))?;
            }
            let fits = text.len() <= APPLIED_PLACEMENT_BYTES;
            self.annotations
                .insert(APPLIED_PLACEMENT.to_owned(), json!(fits.then_some(text)));
        }
        Ok(())
    }

    /// Other fields of the suspension do not change.
    fn scheduling_suspended(&mut self, suspended: bool) {
        self.suspension("scheduling", json!(suspended));
    }

    fn no_scheduling_gate(&mut self, current: &ResourceBinding) {
        if current.spec.suspension.is_some() {
            self.suspension("scheduling", Value::Null);
        }
    }

    /// Removes the suspension of dispatching, if Muster set it.
    fn release_dispatching(&mut self, current: &ResourceBinding) {
        let record = AdmissionRecord::read(current.metadata.annotations.as_ref());
        let ours = |record: AdmissionRecord| {
            record.parts == Some(Parts::Held) || record.exceeds_since.is_some()
        };
        if record.is_ok_and(|record| record.is_some_and(ours)) {
            self.suspension("dispatching", Value::Null);
        }
    }

    fn suspension(&mut self, field: &str, value: Value) {
        let suspension = self.spec.entry("suspension").or_insert_with(|| json!({}));
        suspension[field] = value;
    }

    fn clusters(&mut self, clusters: Value) {
        self.spec.insert("clusters".to_owned(), clusters);
    }

    fn into_body(mut self) -> Option<PatchBody> {
        if !self.annotations.is_empty() {
            let annotations = Value::Object(self.annotations);
            self.metadata.insert("annotations".to_owned(), annotations);
        }
        let mut value = Map::new();
        for (name, part) in [("metadata", self.metadata), ("spec", self.spec)] {
            if !part.is_empty() {
                value.insert(name.to_owned(), Value::Object(part));
            }
        }
        (!value.is_empty()).then_some(PatchBody {
            part: PatchTarget::Whole,
            value: Value::Object(value),
        })
    }
}
