//! Released jobs that get another size: shrinks that templates ask for, growth where quota and
//! capacity are there.
//!
//! A job that is not elastic grows before pending jobs are evaluated; an elastic one after them
//! (`elastic.rs`).

use crate::api::decision::Decision;
use crate::cycle::lifecycle;
use crate::evaluation::growth;
use crate::jobs::job::Job;
use crate::state::Engine;

/// Shrinks what templates ask to shrink, and grows what is not elastic, as far as the budget
/// goes.
pub(crate) fn resize(engine: &mut Engine, decisions: &mut Vec<Decision>) {
    for key in engine.jobs.resizing().clone() {
        if decisions.len() >= engine.config.decision_budget {
            return;
        }
        let cuts = engine.jobs.get(&key).map(Job::beyond_template);
        decisions.extend(lifecycle::shrink(
            engine,
            &key,
            &cuts.unwrap_or_default(),
            None,
            "",
        ));
        let elastic = engine
            .jobs
            .demand_of(&key)
            .is_some_and(|demand| demand.elastic);
        if !elastic && let Ok(Some(more)) = growth::evaluate_growth(engine.inputs(), &key) {
            decisions.extend(lifecycle::scale_up(engine, &key, &more));
        }
    }
}
