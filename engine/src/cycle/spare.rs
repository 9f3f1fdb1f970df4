//! Keeps the spare nodes of queues in step with the gangs that run, and evicts jobs from lent ones.

use crate::api::decision::Decision;
use crate::backfill::spare;
use crate::cycle::lifecycle;
use crate::cycle::react::{Change, react};
use crate::state::Engine;
use facts::{ClusterName, JobKey, Reason};
use std::collections::BTreeSet;

/// A policy came, changed or went.
pub(crate) fn note_policies(engine: &mut Engine) {
    let mut policies = engine.quota.policies();
    let wanted = policies.any(|policy| policy.spare.is_some());
    engine.spares.set_wanted(wanted);
}

/// Chooses the spare nodes again. Those that were chosen before stay as long as they can.
pub(crate) fn settle(engine: &mut Engine) {
    if engine.spares.are_unused() {
        return;
    }
    let now = spare::spares_now(engine.inputs());
    let before = engine.spares.replace(now);
    let changed = engine.spares.changed_since(&before).cloned();
    engine.changed.queues.extend(changed);
    if engine.spares.loosened_since(&before) {
        react(engine, Change::Spares);
    }
}

/// Evicts jobs from lent nodes for gangs that have lost pods which fit nowhere else in their cluster.
pub(crate) fn evict_lent(
    engine: &mut Engine,
    lost: &BTreeSet<(JobKey, ClusterName)>,
    decisions: &mut Vec<Decision>,
) {
    if engine.spares.are_unused() {
        return;
    }
    for (gang, cluster) in lost {
        for key in spare::lent_victims(engine.inputs(), gang, cluster) {
            let Some(job) = engine.jobs.get(&key) else {
                continue;
            };
            let attempt = job.attempt;
            let queue = engine.jobs.get(gang).map(|gang| gang.queue_now());
            let (reason, word) = match queue == Some(job.queue_now()) {
                true => (Reason::Preempted, "preempted"),
                false => (Reason::Reclaimed, "reclaimed"),
            };
            let queue = queue.map_or_else(String::new, ToString::to_string);
            let message = format!(
                "{word} for {gang}, which has lost pods: it ran on a node that is lent and kept as a spare for \
                 large gangs of queue {queue}"
            );
            lifecycle::begin_eviction(engine, &key, reason, &message, None);
            decisions.push(Decision::Evict {
                key,
                attempt,
                reason,
                for_job: Some(gang.clone()),
                message,
            });
        }
    }
}
