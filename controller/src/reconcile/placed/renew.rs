//! What a placed job needs in its members beside itself: its Queue and its PriorityClasses.
//!
//! They are made before it is placed. A member that comes back empty has lost them; Karmada makes the
//! job again there, and it would never start. So they are looked for again, and made, while nothing of
//! a placed job runs.
//!
//! A scheduler process of its own does not look: there they are made with the next job that is placed.

use crate::reconcile::action::ReconcileAction;
use crate::reconcile::{ReconcileCtx, Reconciler};
use crds::record::AdmissionRecord;
use engine::{ClusterName, Progress};

/// Milliseconds from one look to the next.
const EVERY_MS: i64 = 30_000;

impl Reconciler {
    /// Has the members of a job of which nothing runs looked at, if it is time for that.
    pub(crate) fn renew(
        &mut self,
        ctx: &ReconcileCtx<'_>,
        record: &AdmissionRecord,
        progress: Progress,
    ) {
        if progress != Progress::Placed {
            self.in_flight_of(ctx.key).renew_at = None;
            return;
        }
        let next = ctx.now.after(EVERY_MS);
        let Some(due) = self.in_flight_of(ctx.key).renew_at else {
            // It was placed just now, or this process has just begun.
            self.in_flight_of(ctx.key).renew_at = Some(next);
            return self.requeue_at(ctx.key, next);
        };
        if ctx.now < due {
            return;
        }
        self.in_flight_of(ctx.key).renew_at = Some(next);
        self.requeue_at(ctx.key, next);
        let Some(fact) = self
            .last_facts
            .get(ctx.key)
            .filter(|_| self.options.places_itself)
        else {
            return;
        };
        let clusters: Vec<ClusterName> = record.clusters.iter().map(|c| c.name.clone()).collect();
        let ask = self.mirror.ask_of(&ctx.binding);
        let priority_classes = ask.map_or_else(
            || fact.priority_class.iter().cloned().collect(),
            |ask| ask.priority_classes(),
        );
        let api = fact.demand.placement.api.clone();
        self.push(ReconcileAction::RenewMembers {
            key: ctx.key.clone(),
            clusters,
            api,
            queue: record.queue.clone(),
            priority_classes,
        });
    }
}
