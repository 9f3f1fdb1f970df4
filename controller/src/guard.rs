//! What only Muster writes on a binding and others have changed: the admission record and the
//! finalizer.
//!
//! Whoever may edit a namespace may, as Karmada installs it, edit its bindings too. A record that
//! changes without a write of ours is not believed while this process leads: the job stays charged
//! as it is known, the record is put back, and it is said to the user and counted. What changed
//! while nobody led cannot be told from what an earlier leader wrote, and is believed; the
//! admission policies refuse such a change, also while nobody leads.

use crate::core::Core;
use crate::notes::Note;
use crate::reconcile::Look;
use crate::standing::{has_finalizer, own_record, unreadable};
use crds::karmada::ResourceBinding;
use crds::names;
use crds::record::{AdmissionRecord, RecordState};
use engine::{JobKey, Reason};
use runtime::watch::Delta;
use scheduler::commit::Write;
use std::hash::{DefaultHasher, Hash, Hasher};

#[cfg(test)]
mod tests;

/// What is remembered of one binding's record.
#[derive(Debug, Default)]
pub(crate) struct Guard {
    /// A digest of the record that was written last.
    written: Option<u64>,
    /// The record as it was before somebody else changed it.
    replaced: Option<Replaced>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Replaced {
    /// As it stood on the binding.
    record: Option<String>,
    /// Whether the user has been told.
    told: bool,
}

impl Guard {
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

impl Core {
    /// Compares the record that a binding shows with the one that it showed before.
    pub(crate) fn watch_record(&mut self, delta: &Delta<ResourceBinding>) {
        let Delta::Upserted(binding) = delta else {
            return;
        };
        let metadata = &binding.metadata;
        let key = JobKey::new(
            metadata.namespace.as_deref().unwrap_or_default(),
            metadata.name.as_deref().unwrap_or_default(),
        );
        let Some(known) = self.world.bindings.get(&key).cloned() else {
            return;
        };
        let (before, now) = (record_text(&known), record_text(binding));
        let same = known.metadata.uid == metadata.uid && before == now;
        if !self.leads() || same || known.metadata.uid != metadata.uid {
            return;
        }
        let answers = self.mode.scheduler().is_none() && is_answer(&known, binding);
        let guard = &mut self.track(&key).guard;
        // One that this version cannot act on is for an operator, or a later version, to repair.
        if answers || !guard.is_replaced() && unreadable(&known).is_some() {
            guard.written = Some(digest(now));
        }
        guard.shows(before, now);
    }

    /// Puts back the record that somebody else has changed. What the job was charged stays charged.
    pub(crate) fn restore_record(&mut self, look: &Look<'_>) {
        let Some(replaced) = self.track(look.key).guard.replaced.as_mut() else {
            return;
        };
        let first = !std::mem::replace(&mut replaced.told, true);
        let record = replaced.record.as_deref();
        let record: Option<AdmissionRecord> =
            record.and_then(|text| serde_json::from_str(text).ok());
        if first {
            self.metrics.records_changed.inc();
            let message = format!(
                "its annotation {} was changed, which only Muster may do; it is put back, and what the job was charged stays charged",
                names::ADMISSION_ANNOTATION
            );
            self.note(
                look,
                Note::warning(Reason::RecordChanged, "Restore", message),
            );
        }
        match record {
            Some(record) if record.state == RecordState::Requeued => {
                self.write(look.key, &look.binding, Write::Record { record });
            }
            Some(record) => self.write(look.key, &look.binding, Write::Adopt { record }),
            // There was none: what this one admits was never admitted.
            None => self.opened_by_hand(look, None),
        }
    }

    /// Puts the finalizer back where somebody has taken it off a job that is charged.
    pub(crate) fn keep_finalizer(&mut self, look: &Look<'_>) {
        let going = look.binding.metadata.deletion_timestamp.is_some();
        let open = self
            .tracks
            .get(look.key)
            .is_none_or(|track| track.is_open());
        if going || open || has_finalizer(&look.binding) {
            return;
        }
        let charged = |record: &AdmissionRecord| record.state != RecordState::Requeued;
        let Some(record) = own_record(&look.binding).filter(charged) else {
            return;
        };
        let message = format!(
            "finalizer {} was taken off its binding {}; it is put back: the charge has to outlive the binding's deletion",
            names::ACCOUNTING_FINALIZER,
            look.key
        );
        self.note(
            look,
            Note::warning(Reason::RecordChanged, "Restore", message),
        );
        self.metrics.finalizers_restored.inc();
        self.write(look.key, &look.binding, Write::Adopt { record });
    }
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
