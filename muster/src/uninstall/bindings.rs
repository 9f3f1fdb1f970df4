//! Hands bindings to Karmada: what is placed stays as it is, and what waits is open for its scheduler.

use super::objects::Remover;
use super::overrides;
use crds::karmada::ResourceBinding;
use crds::names::{ACCOUNTING_FINALIZER, ADMISSION_ANNOTATION, FENCE_ANNOTATION, SCHEDULER_NAME};
use crds::record::{AdmissionRecord, Parts, RecordState};
use engine::Reason;
use kube::ResourceExt as _;
use kube::api::Api;
use runtime::client::CallFault;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// The scheduler of Karmada, as a policy that names none has it.
pub(super) const KARMADAS: &str = "default-scheduler";

/// What becomes of a binding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HandOver {
    /// It keeps its clusters: Karmada's scheduler leaves it alone.
    Placed,
    /// It has ended, and would run again if it were open.
    Ended,
    /// Karmada's scheduler may place it.
    Opened,
    /// It is being deleted: Karmada finishes that.
    Deleting,
}

/// The bindings that stay closed for Karmada's scheduler.
#[derive(Debug, Default)]
pub(super) struct KeptBindings {
    placed: usize,
    ended: usize,
    kinds: BTreeSet<(String, String)>,
}

impl KeptBindings {
    /// Returns apiVersion and kind of the jobs that keep their clusters.
    pub(super) fn kinds(&self) -> Vec<(String, String)> {
        self.kinds.iter().cloned().collect()
    }

    fn count(&mut self, binding: &ResourceBinding, fate: HandOver) {
        match fate {
            HandOver::Placed => {
                self.placed += 1;
                let template = &binding.spec.resource;
                let kind = (template.api_version.clone(), template.kind.clone());
                self.kinds.insert(kind);
            }
            HandOver::Ended => self.ended += 1,
            HandOver::Opened | HandOver::Deleting => {}
        }
    }

    /// Prints what stays, and how to change it.
    pub(super) fn tell(&self) {
        if self.placed > 0 {
            println!(
                "{} placed jobs keep their clusters (spec.suspension.scheduling of their bindings), their OverridePolicies \
                 muster-NAME and the interpreters of their kinds. Run `muster uninstall` again when they have ended. To let \
                 Karmada place one again: kubectl -n NAMESPACE patch resourcebinding NAME --type=merge \
                 -p '{{\"spec\":{{\"suspension\":null}}}}'",
                self.placed
            );
        }
        if self.ended > 0 {
            println!(
                "{} ended jobs stay closed, or they would run again",
                self.ended
            );
        }
    }
}

/// Hands every binding with a mark of Muster over, and returns those that stay closed.
pub(super) async fn hand_over(remover: &Remover) -> anyhow::Result<KeptBindings> {
    let bindings: Vec<ResourceBinding> = remover.list().await?;
    let mut kept = KeptBindings::default();
    let mut placed = BTreeSet::new();
    for binding in &bindings {
        let is_closed = is_placed(binding) && is_suspended(binding);
        let fate = match hand_over_of(binding) {
            None if is_closed => Some(HandOver::Placed),
            other => other.map(|(fate, _)| fate),
        };
        if let Some(fate) = fate {
            kept.count(binding, fate);
        }
        if fate == Some(HandOver::Placed) {
            placed.insert(binding.uid().unwrap_or_default());
        }
    }
    overrides::remove(remover, &placed).await?;
    for binding in &bindings {
        hand_over_one(remover, binding).await?;
    }
    Ok(kept)
}

async fn hand_over_one(remover: &Remover, binding: &ResourceBinding) -> anyhow::Result<()> {
    let namespace = binding.namespace().unwrap_or_default();
    let (name, mut current) = (binding.name_any(), binding.clone());
    let api: Api<ResourceBinding> = Api::namespaced(remover.client().clone(), &namespace);
    // Karmada writes bindings too, so a conflict is expected.
    while let Some((fate, patch)) = hand_over_of(&current) {
        let what = match fate {
            HandOver::Placed => "keeps its clusters",
            HandOver::Ended => "has ended and stays closed",
            HandOver::Opened => "open for Karmada's scheduler",
            HandOver::Deleting => "released for its deletion",
        };
        let line = format!("resourcebinding {namespace}/{name} {what}");
        match remover.merge(&api, &name, &patch, &line).await {
            Err(error) if error.fault() == CallFault::Conflict => match api.get_opt(&name).await? {
                Some(newer) => current = newer,
                None => break,
            },
            other => {
                other.map_err(|error| anyhow::anyhow!("{line}: {}", error.message()))?;
                break;
            }
        }
    }
    Ok(())
}

/// Returns what becomes of a binding with a mark of Muster, and the patch that does it.
pub(super) fn hand_over_of(binding: &ResourceBinding) -> Option<(HandOver, Value)> {
    let finalizers = binding.finalizers();
    let annotations = binding.annotations();
    let has_finalizer = finalizers.iter().any(|name| name == ACCOUNTING_FINALIZER);
    let marks = [ADMISSION_ANNOTATION, FENCE_ANNOTATION];
    let marks = marks.map(|mark| (mark, annotations.contains_key(mark)));
    if !has_finalizer && marks.iter().all(|(_, has)| !has) {
        return None;
    }
    let record = AdmissionRecord::read(Some(annotations)).ok().flatten();
    let fate = fate(binding, record.as_ref(), has_finalizer);
    let removed = marks.iter().filter(|(_, has)| *has);
    let removed: Map<String, Value> = removed
        .map(|(mark, _)| ((*mark).to_owned(), Value::Null))
        .collect();
    let mut patch = json!({"metadata": {
        "resourceVersion": binding.metadata.resource_version,
        "annotations": removed,
    }});
    if has_finalizer {
        let others = finalizers
            .iter()
            .filter(|name| *name != ACCOUNTING_FINALIZER);
        patch["metadata"]["finalizers"] = json!(others.collect::<Vec<_>>());
    }
    let suspended_by_muster = record
        .as_ref()
        .is_some_and(|record| record.parts == Some(Parts::Held) || record.exceeds_since.is_some());
    if suspended_by_muster {
        patch["spec"]["suspension"]["dispatching"] = Value::Null;
    }
    match fate {
        HandOver::Deleting => {}
        HandOver::Placed | HandOver::Ended => {
            patch["spec"]["suspension"]["scheduling"] = json!(true);
        }
        // A gate without Muster's finalizer belongs to another manager.
        HandOver::Opened if has_finalizer => {
            patch["spec"]["suspension"]["scheduling"] = Value::Null;
            if is_placed(binding) {
                patch["spec"]["clusters"] = json!([]);
            }
        }
        HandOver::Opened => {}
    }
    Some((fate, patch))
}

fn fate(
    binding: &ResourceBinding,
    record: Option<&AdmissionRecord>,
    has_finalizer: bool,
) -> HandOver {
    if binding.metadata.deletion_timestamp.is_some() {
        return HandOver::Deleting;
    }
    // Nothing of it was dispatched, and without Muster its members would get the whole job each.
    let is_held = record.is_some_and(|record| record.parts == Some(Parts::Held));
    if is_placed(binding) && !(is_held && has_finalizer) {
        return HandOver::Placed;
    }
    match record.is_some_and(has_ended) {
        true => HandOver::Ended,
        false => HandOver::Opened,
    }
}

/// Returns true if the job had ended for good when its parts were removed.
fn has_ended(record: &AdmissionRecord) -> bool {
    let closed = matches!(record.state, RecordState::Ending | RecordState::Requeued);
    let over = [Reason::PartFailed, Reason::Succeeded, Reason::Aborted];
    closed && record.reason.is_some_and(|reason| over.contains(&reason))
}

fn is_placed(binding: &ResourceBinding) -> bool {
    !binding.spec.clusters.is_empty()
}

fn is_suspended(binding: &ResourceBinding) -> bool {
    let suspension = binding.spec.suspension.as_ref();
    suspension.and_then(|suspension| suspension.scheduling) == Some(true)
}

/// Gives every binding that still names Muster's scheduler to Karmada's. Karmada copies the name from a
/// policy, so the policies are replaced before that.
pub(super) async fn rename_scheduler(remover: &Remover) -> anyhow::Result<()> {
    let bindings: Vec<ResourceBinding> = remover.list().await?;
    let ours =
        |binding: &&ResourceBinding| binding.spec.scheduler_name.as_deref() == Some(SCHEDULER_NAME);
    for binding in bindings.iter().filter(ours) {
        let namespace = binding.namespace().unwrap_or_default();
        let name = binding.name_any();
        let api: Api<ResourceBinding> = Api::namespaced(remover.client().clone(), &namespace);
        let patch = json!({"spec": {"schedulerName": KARMADAS}});
        let line = format!("resourcebinding {namespace}/{name} has schedulerName {KARMADAS}");
        remover.merge(&api, &name, &patch, &line).await?;
    }
    Ok(())
}
