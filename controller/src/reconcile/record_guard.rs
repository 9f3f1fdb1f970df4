//! Detects changes by other users to what only Muster writes on a binding: the admission record and the
//! finalizer.
//!
//! By Karmada's default roles a user who may edit a namespace may also edit its bindings. While this
//! process leads, it does not accept a record that changes without its own write. The job's charge stays,
//! the record is restored, an event and a metric report it, and a condition of the PodGroup shows it until
//! the next attempt.
//!
//! A record on a binding that a leader sees for the first time is not accepted either. Before its term a
//! leader has seen every binding that an earlier leader wrote, and in its term no other process writes
//! records, so another user wrote it. That holds for the watch and for a list after a gap of the watch alike.
//!
//! A change while no replica led cannot be distinguished from a write of an earlier leader, but the
//! admission policies refuse such a change at any time. A new leader does not accept a record that says
//! less than what members run: it charges the job for that and writes it into the record. An override or an
//! edited template also makes members run more; that is no change of the record.

use crate::messages::job_event::JobEvent;
use crate::mirror::binding::{has_finalizer, has_record, own_record, unreadable};
use crate::reconcile::JobPass;
use crate::reconcile::binding_phase::BindingPhase;
use crate::reconcile::engine_events::{apply_admission, apply_evicted};
use crate::reconcile::in_flight::InFlight;
use crate::reconcile::opened::opened_by_hand;
use crate::reconcile::placed::progress_of;
use binding_writer::Write;
use crds::karmada::ResourceBinding;
use crds::names;
use crds::record::{AdmissionRecord, RecordState};
use engine::{Progress, Reason};
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};

#[cfg(test)]
mod tests;

/// State of one binding's record.
#[derive(Debug, Default)]
pub(crate) struct RecordGuard {
    /// Digest of the record that was last written.
    written: Option<u64>,
    /// The record before another user changed it.
    replaced: Option<Replaced>,
    /// What was changed in this attempt's record, as text.
    changed: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Replaced {
    /// The text of the annotation.
    record: Option<String>,
    /// True if it has been reported to the user.
    reported: bool,
}

impl RecordGuard {
    /// Returns the state for a binding with a record that no leader wrote.
    fn of_foreign_record() -> Self {
        Self {
            replaced: Some(Replaced {
                record: None,
                reported: false,
            }),
            ..Self::default()
        }
    }

    /// Records what `write` leaves on the binding.
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

    /// Records that the watch now shows `now` instead of `before`.
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
                    reported: false,
                });
            }
        }
    }

    /// Returns what another user has changed in this attempt's record, as text.
    pub(crate) fn changed(&self) -> Option<&str> {
        self.changed.as_deref()
    }

    /// Resets the state when the attempt is over.
    pub(crate) fn ended(&mut self) {
        self.changed = None;
    }

    /// Returns true if another user has changed the record.
    pub(crate) fn is_replaced(&self) -> bool {
        self.replaced.is_some()
    }
}

fn digest(text: Option<&str>) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

/// Begins with a binding that this leader sees for the first time: its record, if it has one, counts as none.
/// What was under way for an earlier binding of its name does not concern it.
pub(crate) fn begin_binding(pass: &mut JobPass<'_>) {
    *pass.in_flight = InFlight::default();
    if has_record(pass.binding) {
        pass.in_flight.guard = RecordGuard::of_foreign_record();
    }
}

/// Compares the record of a binding with the one that it has now, in `shown`.
pub(crate) fn watch_record(pass: &mut JobPass<'_>, shown: &ResourceBinding) {
    let known = pass.binding;
    let (before, now) = (record_text(known), record_text(shown));
    if known.metadata.uid != shown.metadata.uid || before == now {
        return;
    }
    let answers = !pass.options.places_itself && is_answer(known, shown);
    let guard = &mut pass.in_flight.guard;
    // An operator or a later version repairs a record that this version cannot act on.
    if answers || !guard.is_replaced() && unreadable(known).is_some() {
        guard.written = Some(digest(now));
    }
    guard.shows(before, now);
}

/// Restores a record that another user has changed. The job's charge stays.
pub(crate) fn restore_record(pass: &mut JobPass<'_>) {
    let Some(replaced) = pass.in_flight.guard.replaced.as_mut() else {
        return;
    };
    let first = !std::mem::replace(&mut replaced.reported, true);
    let text = replaced.record.clone();
    let record: Option<AdmissionRecord> = text
        .as_deref()
        .and_then(|text| serde_json::from_str(text).ok());
    if first {
        let message = format!(
            "its annotation {} was changed ({}), which only Muster may do; Muster has restored it, and the job's charge is unchanged",
            names::ADMISSION_ANNOTATION,
            difference(text.as_deref(), record_text(pass.binding)),
        );
        record_changed(pass, message);
    }
    match record {
        Some(record) => put_back(pass, record),
        // There was no record, so nothing was ever admitted.
        None => opened_by_hand(pass, None),
    }
}

fn put_back(pass: &mut JobPass<'_>, record: AdmissionRecord) {
    let write = match record.state {
        RecordState::Requeued => Write::Record { record },
        _ => Write::Adopt { record },
    };
    pass.write_unchanged(write);
}

/// Reports a changed record: an event, a metric, and a condition of the PodGroup.
fn record_changed(pass: &mut JobPass<'_>, message: String) {
    pass.out.metrics.records_changed.inc();
    pass.in_flight.guard.changed = Some(message.clone());
    pass.record_event(JobEvent::warning(Reason::RecordChanged, "Restore", message));
}

/// Returns the phase of a job that is new to this leader. If its record says less than its members run,
/// the phase has the complete record; `None` if that record is written first, and the job charged by it.
pub(crate) fn with_running_shares(
    pass: &mut JobPass<'_>,
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
    let known = pass.admission_of(record.attempt);
    let known = known.is_some_and(|admission| admission.uid == record.template_uid);
    let whole = match known || record.state == RecordState::Requeued {
        true => None,
        false => pass
            .view()
            .raised_to_running(pass.key, pass.binding, record),
    };
    let Some((whole, lacks)) = whole else {
        return Some(phase);
    };
    match phase {
        // The changed placement is reported on its own.
        BindingPhase::Displaced(_) => return Some(BindingPhase::Displaced(whole)),
        BindingPhase::OpenedByHand(_) => return Some(BindingPhase::OpenedByHand(Some(whole))),
        BindingPhase::Ending(_) => apply_evicted(pass, &whole),
        BindingPhase::Deleting(_) => apply_admission(pass, &whole, Progress::Ending),
        _ => {
            let job = pass.resolved_job();
            let progress = progress_of(pass, &whole, job.as_ref());
            apply_admission(pass, &whole, progress);
        }
    }
    let message = format!(
        "its annotation {} says less than its members run ({lacks}): it was changed while no replica led, which only Muster may do; it is written again, and the job is charged for what it runs",
        names::ADMISSION_ANNOTATION,
    );
    record_changed(pass, message);
    pass.in_flight.guard.replaced = Some(Replaced {
        record: whole.to_annotation().ok(),
        reported: true,
    });
    put_back(pass, whole);
    None
}

/// Restores the finalizer of a charged job if another user has removed it.
pub(crate) fn keep_finalizer(pass: &mut JobPass<'_>) {
    let going = pass.binding.metadata.deletion_timestamp.is_some();
    let open = pass.in_flight.open.is_open();
    if going || open || has_finalizer(pass.binding) {
        return;
    }
    let charged = |record: &AdmissionRecord| record.state != RecordState::Requeued;
    let Some(record) = own_record(pass.binding).filter(charged) else {
        return;
    };
    let message = format!(
        "finalizer {} was removed from its binding {}; Muster has restored it: the charge has to outlive the binding's deletion",
        names::ACCOUNTING_FINALIZER,
        pass.key
    );
    pass.record_event(JobEvent::warning(Reason::RecordChanged, "Restore", message));
    pass.out.metrics.finalizers_restored.inc();
    pass.write(Write::Adopt { record });
}

/// Returns how a record was changed, by the names of its fields.
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

/// Returns true if `after` has the scheduler process's answer to the plan in `before`: the same admission,
/// placed or refused. A later version may answer with fields that this version cannot read.
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
