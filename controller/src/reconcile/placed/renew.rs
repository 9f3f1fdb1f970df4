//! Renews what a placed job needs in its members: its Queue and its PriorityClasses.
//!
//! They are created before the placement. A member that comes back empty has lost them; Karmada creates the
//! job there again, and it would never start. So while no pod of a placed job runs, the controller checks
//! for them and creates them.
//!
//! With the scheduler in a process of its own there is no such check: the next placement creates them.

use crate::messages::action::Effect;
use crate::reconcile::JobPass;
use crate::reconcile::placed::Placed;
use engine::{ClusterName, Progress};

/// Milliseconds between two checks.
const EVERY_MS: i64 = 30_000;

/// Checks the members of a job of which nothing runs, if a check is due.
pub(crate) fn renew(pass: &mut JobPass<'_>, placed: &Placed) {
    let record = &placed.record;
    if placed.progress != Progress::Placed {
        pass.in_flight.timers.renew_at = None;
        return;
    }
    let next = pass.now.after(EVERY_MS);
    let Some(due) = pass.in_flight.timers.renew_at else {
        // The job was just placed, or this process has just started.
        pass.in_flight.timers.renew_at = Some(next);
        return pass.out.work_queue.add_at(pass.key, next);
    };
    if pass.now < due {
        return;
    }
    pass.in_flight.timers.renew_at = Some(next);
    pass.out.work_queue.add_at(pass.key, next);
    let Some(fact) = pass
        .jobs
        .last_facts
        .get(pass.key)
        .filter(|_| pass.options.places_itself)
    else {
        return;
    };
    let clusters: Vec<ClusterName> = record.clusters.iter().map(|c| c.name.clone()).collect();
    let ask = pass.mirror.ask_of(pass.binding);
    let priority_classes = ask.map_or_else(
        || fact.priority_class.iter().cloned().collect(),
        |ask| ask.priority_classes(),
    );
    let api = fact.demand.placement.api.clone();
    pass.push(Effect::RenewMembers {
        key: pass.key.clone(),
        clusters,
        api,
        queue: record.queue.clone(),
        priority_classes,
    });
}
