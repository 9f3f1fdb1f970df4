//! Bindings that were opened or placed, or have Works, without an admission. They are gated again, and
//! charged for what runs until that is gone.

use crate::facts::running::record_of;
use crate::messages::job_event::JobEvent;
use crate::mirror::binding::{required_by, written_record};
use crate::reconcile::JobPass;
use crate::reconcile::engine_events::apply_evicted;
use binding_writer::Write;
use crds::record::{AdmissionRecord, RecordState};
use engine::{Attempt, Reason};

/// Gates a binding that was placed or opened without an admission. Its charge stays until its Works are
/// gone.
pub(crate) fn opened_by_hand(pass: &mut JobPass<'_>, record: Option<AdmissionRecord>) {
    let message = match required_by(pass.binding) {
        Some(by) => taken_along_message(&by),
        None => opened_message("it was opened or placed without admission"),
    };
    pass.record_event(JobEvent::warning(
        Reason::OpenedByHand,
        "Gate",
        message.clone(),
    ));
    pass.out.metrics.opened_by_hand.inc();
    let charged = record.filter(|record| record.state != RecordState::Requeued);
    let charged = charged.or_else(|| unadmitted(pass));
    let record =
        charged.map(|r| r.in_state(RecordState::Ending, Some(Reason::OpenedByHand), &message));
    if let Some(record) = &record {
        apply_evicted(pass, record);
    }
    pass.write(Write::Gate { record });
}

/// Returns the record to charge while a job is evicted that was placed, or has Works, without an
/// admission; it is an attempt of its own.
fn unadmitted(pass: &JobPass<'_>) -> Option<AdmissionRecord> {
    let job = pass.resolved_job();
    let clusters = pass
        .view()
        .running_shares(pass.key, pass.binding, job.as_ref());
    if clusters.is_empty() {
        return None;
    }
    let last = pass.engine.job(pass.key).map_or(0, |job| job.attempts.0);
    let recorded = written_record(pass.binding).map_or(0, |record| record.attempt.0);
    let queue = job.map(|job| job.fact.queue);
    let queue = queue.unwrap_or_else(|| {
        let works = pass.mirror.works.of(pass.binding);
        pass.view().queue_of_works(pass.key, works)
    });
    let uid = &pass.binding.spec.resource.uid;
    let attempt = Attempt(last.max(recorded).saturating_add(1));
    let state = RecordState::Admitted;
    Some(record_of((uid, attempt), queue, clusters, state, pass.now))
}

pub(crate) fn opened_message(what: &str) -> String {
    format!(
        "{what}; it is gated again and waits in its queue, because only an admission may open it"
    )
}

fn taken_along_message(by: &str) -> String {
    format!(
        "Karmada places it together with {by} as a dependency of that (spec.requiredBy), without an admission; what runs of it is \
         charged and removed. Give it a PropagationPolicy, and let no ResourceInterpreterCustomization name it as a dependency"
    )
}
