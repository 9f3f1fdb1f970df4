//! What only Muster writes on a binding and others have changed: the admission record and the
//! finalizer.
//!
//! A user who may edit a namespace may, as Karmada installs it, edit its bindings too. A record that
//! changes without a write of ours is not believed while this process leads: the job stays charged
//! as it is known, the record is put back, and it is said to the user and counted; a condition of the
//! PodGroup says so until the next attempt.
//!
//! What changed while none led cannot be distinguished from what an earlier leader wrote, and the admission
//! policies refuse such a change also then. A new leader does not believe a record that says less than
//! what members run: the job is charged for that, and the record says so from then on.
//! An override, or a template that was edited, tells members more, too; that is no change of the record.

use crate::mirror::binding::{has_finalizer, own_record, unreadable};
use crate::reconcile::binding_phase::BindingPhase;
use crate::reconcile::{ReconcileCtx, Reconciler};
use crate::status::events::JobEvent;
use binding_writer::Write;
use crds::karmada::ResourceBinding;
use crds::names;
use crds::record::{AdmissionRecord, RecordState};
use engine::{JobKey, Progress, Reason};
use runtime::watch::Delta;
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};

#[cfg(test)]
mod tests;

/// What is remembered of one binding's record.
#[derive(Debug, Default)]
pub(crate) struct RecordGuard {
    /// A digest of the record that was written last.
    written: Option<u64>,
    /// The record as it was before somebody else changed it.
    replaced: Option<Replaced>,
    /// What of this attempt's record was changed, in words.
    changed: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Replaced {
    /// As it stood on the binding.
    record: Option<String>,
    /// Whether the user has been told.
    told: bool,
}

impl RecordGuard {
    /// Notes what `write` leaves on the binding.
    pub(crate) fn writes(&mut self, write: &Write) {
        let text = match write {
            Write::Hold
            | Write::Finalize
            | Write::RemoveWithWorks
            | Write::Spread { .. }
            | Write::Ack { .. } => return,
            write => write
                .record()
                .and_then(|record| record.to_annotation().ok()),
        };
        self.written = Some(digest(text.as_deref()));
    }

    /// Notes that the watch shows `now` where it showed `before`.
    fn shows(&mut self, before: Option<&str>, now: Option<&str>) {
        if self.written == Some(digest(now)) {
            self.replaced = None;
            return;
        }
        match &self.replaced {
            Some(replaced) if replaced.record.as_deref() == now => self.replaced = None,
            Some(_) => {}
            None => {
                self.replaced = Some(Replaced {
                    record: before.map(str::to_owned),
                    told: false,
                });
            }
        }
    }

    /// What of this attempt's record somebody else has changed, in words.
    pub(crate) fn changed(&self) -> Option<&str> {
        self.changed.as_deref()
    }

    /// The attempt is over.
    pub(crate) fn ended(&mut self) {
        self.changed = None;
    }

    /// Whether somebody else has changed the record.
    pub(crate) fn is_replaced(&self) -> bool {
        self.replaced.is_some()
    }
}

fn digest(text: Option<&str>) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

impl Reconciler {
    /// Compares the record that a binding shows with the one that it showed before, where this replica
    /// `leads`.
    pub(crate) fn watch_record(&mut self, delta: &Delta<ResourceBinding>, leads: bool) {
        let Delta::Upserted(binding) = delta else {
            return;
        };
        let metadata = &binding.metadata;
        let key = JobKey::new(
            metadata.namespace.as_deref().unwrap_or_default(),
            metadata.name.as_deref().unwrap_or_default(),
        );
        let Some(known) = self.mirror.bindings().get(&key).cloned() else {
            return;
        };
        let (before, now) = (record_text(&known), record_text(binding));
        let same = known.metadata.uid == metadata.uid && before == now;
        if !leads || same || known.metadata.uid != metadata.uid {
            return;
        }
        let answers = !self.options.places_itself && is_answer(&known, binding);
        let guard = &mut self.in_flight_of(&key).guard;
        // One that this version cannot act on is for an operator, or a later version, to repair.
        if answers || !guard.is_replaced() && unreadable(&known).is_some() {
            guard.written = Some(digest(now));
        }
        guard.shows(before, now);
    }

    /// Puts back the record that somebody else has changed. What the job was charged stays charged.
    pub(crate) fn restore_record(&mut self, ctx: &ReconcileCtx<'_>) {
        let Some(replaced) = self.in_flight_of(ctx.key).guard.replaced.as_mut() else {
            return;
        };
        let first = !std::mem::replace(&mut replaced.told, true);
        let text = replaced.record.clone();
        let record: Option<AdmissionRecord> = text
            .as_deref()
            .and_then(|text| serde_json::from_str(text).ok());
        if first {
            let message = format!(
                "its annotation {} was changed ({}), which only Muster may do; Muster has restored it, and the job's charge is unchanged",
                names::ADMISSION_ANNOTATION,
                difference(text.as_deref(), record_text(&ctx.binding)),
            );
            self.record_changed(ctx, message);
        }
        match record {
            Some(record) => self.put_back(ctx, record),
            // There was none: what this one admits was never admitted.
            None => self.opened_by_hand(ctx, None),
        }
    }

    fn put_back(&mut self, ctx: &ReconcileCtx<'_>, record: AdmissionRecord) {
        let write = match record.state {
            RecordState::Requeued => Write::Record { record },
            _ => Write::Adopt { record },
        };
        self.write_as_it_is(ctx.key, &ctx.binding, write);
    }

    /// Tells that a record was changed: an event, a metric, and a condition of the PodGroup.
    fn record_changed(&mut self, ctx: &ReconcileCtx<'_>, message: String) {
        self.metrics.records_changed.inc();
        self.in_flight_of(ctx.key).guard.changed = Some(message.clone());
        self.record_event(
            ctx,
            JobEvent::warning(Reason::RecordChanged, "Restore", message),
        );
    }

    /// The phase of a job that this leader has not seen yet, whose record may say less than what its
    /// members run: then with the record that says as much. `None` where that record is
    /// written first, and the job charged by it.
    pub(crate) fn with_what_runs(
        &mut self,
        ctx: &ReconcileCtx<'_>,
        phase: BindingPhase,
    ) -> Option<BindingPhase> {
        let (BindingPhase::Admitted(record)
        | BindingPhase::Displaced(record)
        | BindingPhase::Ending(record)
        | BindingPhase::Deleting(Some(record))
        | BindingPhase::OpenedByHand(Some(record))) = &phase
        else {
            return Some(phase);
        };
        let known = self.engine.job(ctx.key).and_then(|job| job.admission);
        let known = known.is_some_and(|admission| {
            admission.uid == record.template_uid && admission.attempt == record.attempt
        });
        let whole = match known || record.state == RecordState::Requeued {
            true => None,
            false => self.as_much_as_runs(ctx, record),
        };
        let Some((whole, lacks)) = whole else {
            return Some(phase);
        };
        match phase {
            // Where it is was changed, too, and is reported by itself.
            BindingPhase::Displaced(_) => return Some(BindingPhase::Displaced(whole)),
            BindingPhase::OpenedByHand(_) => return Some(BindingPhase::OpenedByHand(Some(whole))),
            BindingPhase::Ending(_) => self.apply_evicted(ctx, &whole),
            BindingPhase::Deleting(_) => self.apply_admission(ctx, &whole, Progress::Ending),
            _ => {
                let job = self.job_of(ctx.key, &ctx.binding, &self.namespace_of(ctx.key));
                let progress = self.progress_of(ctx, &whole, job.as_ref());
                self.apply_admission(ctx, &whole, progress);
            }
        }
        let message = format!(
            "its annotation {} says less than its members run ({lacks}): it was changed while no replica led, which only Muster may do; it is written again, and the job is charged for what it runs",
            names::ADMISSION_ANNOTATION,
        );
        self.record_changed(ctx, message);
        self.in_flight_of(ctx.key).guard.replaced = Some(Replaced {
            record: whole.to_annotation().ok(),
            told: true,
        });
        self.put_back(ctx, whole);
        None
    }

    /// Puts the finalizer back where somebody has taken it off a job that is charged.
    pub(crate) fn keep_finalizer(&mut self, ctx: &ReconcileCtx<'_>) {
        let going = ctx.binding.metadata.deletion_timestamp.is_some();
        let open = self
            .in_flight
            .get(ctx.key)
            .is_none_or(|in_flight| in_flight.is_open());
        if going || open || has_finalizer(&ctx.binding) {
            return;
        }
        let charged = |record: &AdmissionRecord| record.state != RecordState::Requeued;
        let Some(record) = own_record(&ctx.binding).filter(charged) else {
            return;
        };
        let message = format!(
            "finalizer {} was removed from its binding {}; Muster has restored it: the charge has to outlive the binding's deletion",
            names::ACCOUNTING_FINALIZER,
            ctx.key
        );
        self.record_event(
            ctx,
            JobEvent::warning(Reason::RecordChanged, "Restore", message),
        );
        self.metrics.finalizers_restored.inc();
        self.write(ctx.key, &ctx.binding, Write::Adopt { record });
    }
}

/// How a record was changed, by the names of its fields.
fn difference(before: Option<&str>, now: Option<&str>) -> String {
    let (Some(before), Some(now)) = (before, now) else {
        return match now {
            Some(_) => "there was none".to_owned(),
            None => "it was removed".to_owned(),
        };
    };
    let read = |text: &str| serde_json::from_str::<Map<String, Value>>(text).ok();
    let (Some(before), Some(now)) = (read(before), read(now)) else {
        return "it is no longer a valid record".to_owned();
    };
    let names: BTreeSet<&String> = before.keys().chain(now.keys()).collect();
    let changed = names
        .into_iter()
        .filter(|name| before.get(*name) != now.get(*name));
    let changed: Vec<&str> = changed.map(String::as_str).collect();
    changed.join(", ")
}

fn record_text(binding: &ResourceBinding) -> Option<&str> {
    let annotations = binding.metadata.annotations.as_ref()?;
    annotations
        .get(names::ADMISSION_ANNOTATION)
        .map(String::as_str)
}

/// Whether `after` has what a scheduler process answers to the plan that `before` has: the same
/// admission, placed or refused. One of a later version may say what this one cannot read.
fn is_answer(before: &ResourceBinding, after: &ResourceBinding) -> bool {
    let Some(plan) = own_record(before).filter(|plan| plan.state == RecordState::Planned) else {
        return false;
    };
    if unreadable(after).is_some_and(|error| !error.is_garbage()) {
        return true;
    }
    let Some(answer) = own_record(after) else {
        return false;
    };
    matches!(answer.state, RecordState::Admitted | RecordState::Refused)
        && plan.admission() == answer.admission()
}
