//! Bindings that were opened or placed, or have Works, without an admission. They are gated again, and
//! charged for what runs until that is gone.

use crate::facts::running::record_of;
use crate::messages::job_event::JobEvent;
use crate::mirror::binding::required_by;
use crate::reconcile::{ReconcileCtx, Reconciler};
use binding_writer::Write;
use crds::karmada::ResourceBinding;
use crds::record::{AdmissionRecord, RecordState};
use engine::{Attempt, Reason};

impl Reconciler {
    /// Gates a binding that was placed or opened without an admission. Its charge stays until its Works are
    /// gone.
    pub(crate) fn opened_by_hand(
        &mut self,
        ctx: &ReconcileCtx<'_>,
        record: Option<AdmissionRecord>,
    ) {
        let message = match required_by(&ctx.binding) {
            Some(by) => taken_along_message(&by),
            None => opened_message("it was opened or placed without admission"),
        };
        self.record_event(
            ctx,
            JobEvent::warning(Reason::OpenedByHand, "Gate", message.clone()),
        );
        self.metrics.opened_by_hand.inc();
        let charged = record.filter(|record| record.state != RecordState::Requeued);
        let charged = charged.or_else(|| self.unadmitted(ctx));
        let record =
            charged.map(|r| r.in_state(RecordState::Ending, Some(Reason::OpenedByHand), &message));
        if let Some(record) = &record {
            self.apply_evicted(ctx, record);
        }
        self.write(ctx.key, &ctx.binding, Write::Gate { record });
    }

    /// Returns the record to charge while a job is evicted that was placed, or has Works, without an
    /// admission; it is an attempt of its own.
    fn unadmitted(&self, ctx: &ReconcileCtx<'_>) -> Option<AdmissionRecord> {
        let job = self.job_of(ctx.key, &ctx.binding, &self.view().namespace_of(ctx.key));
        let clusters = self
            .view()
            .running_shares(ctx.key, &ctx.binding, job.as_ref());
        if clusters.is_empty() {
            return None;
        }
        let last = self.engine.job(ctx.key).map_or(0, |job| job.attempts.0);
        let recorded = recorded_attempt(&ctx.binding);
        let queue = job.map(|job| job.fact.queue);
        let queue = queue.unwrap_or_else(|| {
            let works = self.mirror.works_of(&ctx.binding);
            self.view().queue_of_works(ctx.key, works)
        });
        let uid = &ctx.binding.spec.resource.uid;
        let attempt = Attempt(last.max(recorded).saturating_add(1));
        let state = RecordState::Admitted;
        Some(record_of((uid, attempt), queue, clusters, state, ctx.now))
    }
}

/// Returns the attempt of the binding's record, in any state.
fn recorded_attempt(binding: &ResourceBinding) -> u32 {
    AdmissionRecord::read(binding.metadata.annotations.as_ref())
        .ok()
        .flatten()
        .map_or(0, |record| record.attempt.0)
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
