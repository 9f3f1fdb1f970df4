//! Elastic gangs: admitted at the largest size that fits, scaled up when no pending job has a claim.
//!
//! A gang is evaluated at full size first, then at the largest size that may go; what stops it is
//! what stops its smallest size. Scaling up comes after all pending jobs had their turn, and never
//! uses what is reserved for another job. It is tried again only after something came free.

use crate::api::decision::Decision;
use crate::cycle::lifecycle;
use crate::cycle::react::{Change, react};
use crate::evaluation::sizes::{self, GrowsLike};
use crate::state::Engine;
use facts::JobKey;
use std::collections::BTreeSet;

/// Grows elastic jobs into what came free, those first in order first. Returns whether any did: their ends give back
/// more from now on, so that less has to be kept for jobs that count on them, and they may grow again.
pub(crate) fn scale_up_elastic(engine: &mut Engine, decisions: &mut Vec<Decision>) -> bool {
    let mut grown = BTreeSet::new();
    scale_up(engine, decisions, &mut grown);
    if grown.is_empty() {
        return false;
    }
    react(engine, Change::EndsMoved(&grown));
    true
}

fn scale_up(engine: &mut Engine, decisions: &mut Vec<Decision>, grown: &mut BTreeSet<JobKey>) {
    if engine.jobs.resizing().is_empty() {
        return;
    }
    // What does not fit for one job does not fit for its like in the same places.
    let mut fails: BTreeSet<GrowsLike> = BTreeSet::new();
    for key in sizes::scaling_up(engine.inputs()) {
        if decisions.len() >= engine.config.decision_budget {
            engine.jobs.retry_scale_up();
            return;
        }
        let Some(alike) =
            sizes::grows_like(engine.inputs(), &key).filter(|alike| !fails.contains(alike))
        else {
            continue;
        };
        match grow_everywhere(engine, &key) {
            Some(freed) => {
                decisions.push(freed);
                grown.insert(key);
            }
            None => {
                fails.insert(alike);
            }
        }
    }
}

/// Grows a job in each of its clusters by what goes there, as one decision.
fn grow_everywhere(engine: &mut Engine, key: &JobKey) -> Option<Decision> {
    let mut freed: Option<Decision> = None;
    while let Some(more) = sizes::largest_growth(engine.inputs(), key) {
        let Some(mut next) = lifecycle::scale_up(engine, key, &more) else {
            break;
        };
        if let (
            Decision::Resize { message, .. },
            Some(Decision::Resize {
                message: before, ..
            }),
        ) = (&mut next, &freed)
        {
            *message = format!("{before}, {message}");
        }
        freed = Some(next);
    }
    freed
}
