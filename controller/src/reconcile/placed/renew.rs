//! Renews what a placed job needs in its members: its Queue and its PriorityClasses.
//!
//! They are created before the placement. A member that comes back empty has lost them; Karmada creates the
//! job there again, and it would never start. So while no pod of a placed job runs, the controller checks
//! for them and creates them.
//!
//! With the scheduler in a process of its own there is no such check: the next placement creates them.

use crate::messages::action::Effect;
use crate::reconcile::Reconciler;
use crate::reconcile::placed::Placed;
use engine::{ClusterName, Progress};

/// Milliseconds between two checks.
const EVERY_MS: i64 = 30_000;

impl Reconciler {
    /// Checks the members of a job of which nothing runs, if a check is due.
    pub(crate) fn renew(&mut self, placed: &Placed<'_>) {
        let (ctx, record) = (placed.ctx, &placed.record);
        if placed.progress != Progress::Placed {
            self.in_flight_of(ctx.key).renew_at = None;
            return;
        }
        let next = ctx.now.after(EVERY_MS);
        let Some(due) = self.in_flight_of(ctx.key).renew_at else {
            // The job was just placed, or this process has just started.
            self.in_flight_of(ctx.key).renew_at = Some(next);
            return self.work_queue.add_at(ctx.key, next);
        };
        if ctx.now < due {
            return;
        }
        self.in_flight_of(ctx.key).renew_at = Some(next);
        self.work_queue.add_at(ctx.key, next);
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
        self.push(Effect::RenewMembers {
            key: ctx.key.clone(),
            clusters,
            api,
            queue: record.queue.clone(),
            priority_classes,
        });
    }
}
