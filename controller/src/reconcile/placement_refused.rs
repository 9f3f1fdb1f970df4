//! Jobs that cannot be placed as their policies say: the API server has refused the write that places them or an
//! object that their placement needs (an OverridePolicy, a Service), or the placement is too large.
//!
//! Another attempt would end the same way, and other jobs would be evicted for it. So such a job is held, with the
//! server's words, until its template or the placement of its policy changes. A refusal is kept in memory and written
//! into the record, which holds the job under the next leader too. What may change by itself, such as a quota, is
//! tried again after a while (`notBefore` of the record).

use crate::facts::holds;
use crate::mirror::template::Template;
use crate::reconcile::JobPass;
use binding_writer::refusal::{self, ServerRefusal};
use crds::karmada::ResourceBinding;
use crds::record::{AdmissionRecord, RecordState, timestamp};
use engine::facts::Hold;
use engine::{Attempt, Time};

/// An attempt that the API server has refused.
#[derive(Debug, Clone)]
pub(crate) struct RefusedAttempt {
    /// What to write of it.
    record: AdmissionRecord,
    /// True if the API server refuses that as well: then it is only kept here.
    pub(crate) unwritable: bool,
}

impl RefusedAttempt {
    /// Returns the hold of its job.
    pub(crate) fn hold(&self, binding: &ResourceBinding, template: &Template) -> Option<Hold> {
        holds::refused_by(&self.record, binding, template)
    }
}

/// Notes that the API server has refused to place `attempt` of a job, and would refuse that again.
pub(crate) fn note_refused(pass: &mut JobPass<'_>, attempt: Attempt, refusal: &ServerRefusal) {
    let Some(admission) = pass.admission_of(attempt) else {
        return;
    };
    let binding = pass.binding;
    let state = RecordState::Requeued;
    let mut record = AdmissionRecord::new(admission, state);
    let template = pass.mirror.template_of(binding);
    record.template_generation = template.and_then(|template| template.generation);
    let record = refusal::noted(&record, state, binding, refusal, timestamp(pass.now));
    pass.in_flight.refused = Some(RefusedAttempt {
        record,
        unwritable: false,
    });
}

/// Returns the record that says what was refused, if it does not say so yet. Tries it again when its time has
/// come: the record then says so no longer.
pub(crate) fn keep_refusal(
    pass: &mut JobPass<'_>,
    record: Option<&AdmissionRecord>,
) -> Option<AdmissionRecord> {
    let attempt = record.map_or(Attempt(0), |record| record.attempt);
    let noted = pass.in_flight.refused.as_ref();
    let pending = noted.filter(|noted| noted.record.attempt > attempt);
    let (noted, unwritable) = match (pending, record) {
        (Some(pending), _) => (pending.record.clone(), pending.unwritable),
        (None, Some(record)) if record.refused_placement.is_some() => (record.clone(), false),
        _ => return None,
    };
    let is_pending = pending.is_some();
    let template = pass.mirror.template_of(pass.binding);
    let holds =
        template.is_some_and(|seen| holds::refused_by(&noted, pass.binding, seen).is_some());
    let over_at = noted.not_before.map(|at| Time(at.as_millisecond()));
    if let Some(at) = over_at.filter(|at| *at > pass.now) {
        pass.out.work_queue.add_at(pass.key, at);
    }
    let is_over = !holds || over_at.is_some_and(|at| at <= pass.now);
    if !is_pending || is_over {
        pass.in_flight.refused = None;
    }
    match (is_pending, is_over) {
        (true, false) if !unwritable => Some(noted),
        (false, true) if holds => Some(AdmissionRecord {
            refused_placement: None,
            ..noted
        }),
        (true, true) => {
            pass.out.work_queue.add(pass.key);
            None
        }
        _ => None,
    }
}
