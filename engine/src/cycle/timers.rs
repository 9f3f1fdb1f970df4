//! What time alone does to jobs: pending ones age, back-offs and avoidances end, jobs are evicted that start too late,
//! have lost their nodes, run too long, do not tolerate a taint or are in a drained queue, and expected
//! ends are estimated again.
//!
//! A job has at most one timer, for the next thing that may happen to it by time alone. What is
//! to be done is found from the job's state when the timer comes, so a timer that comes too early
//! or twice does no harm.

use crate::api::decision::Decision;
use crate::backfill::spare::comes_back;
use crate::cycle::react::{Change, react};
use crate::cycle::spare::evict_lent;
use crate::cycle::{lifecycle, recovery, start, sync};
use crate::evaluation::prediction;
use crate::jobs::deadline::{deadline, room_lost_at};
use crate::jobs::drain::{emptied, is_emptied, must_leave};
use crate::jobs::runtime::runtime_ends;
use crate::state::{Engine, Inputs};
use facts::{JobKey, Reason, Share};
use std::collections::BTreeMap;

/// The most ends that are estimated again in one call. The others are those that passed last.
const RENEWED: usize = 1_024;

/// Handles every timer that has come, as far as the budget goes.
pub(crate) fn run_timers(engine: &mut Engine, decisions: &mut Vec<Decision>) {
    while decisions.len() < engine.config.decision_budget
        && let Some(key) = engine.jobs.take_timer(engine.now)
    {
        decisions.extend(look(engine, &key));
        sync::sync_indexes(engine, &key);
    }
}

fn look(engine: &mut Engine, key: &JobKey) -> Option<Decision> {
    let now = engine.now;
    let job = engine.jobs.get(key)?;
    let Some(released) = job.released.as_deref() else {
        engine.jobs.end_back_off(key, now);
        return None;
    };
    if released.loss.is_some() {
        let overdue = runtime_ends(&engine.quota, released).is_some_and(|at| at <= now);
        return match overdue {
            true => stop_overdue(engine, key),
            false => recovery::evict_unrecovered(engine, key),
        };
    }
    let lost = room_lost_at(&engine.config, released).filter(|(at, _)| *at <= now);
    if let Some((_, cluster)) = lost {
        let grace = engine.config.room_lost_grace_ms / 1000;
        let message = format!(
            "for {grace} s its pods that are not bound yet have fitted on no nodes of {cluster}"
        );
        let cluster = cluster.clone();
        return lifecycle::evict(engine, key, Reason::RoomLost, &message, Some(cluster));
    }
    if runtime_ends(&engine.quota, released).is_some_and(|at| at <= now) {
        return stop_overdue(engine, key);
    }
    if !released.placed || deadline(&engine.config, &engine.quota, released) > now {
        return None;
    }
    if let Some(evicted) = start::evict_late(engine, key) {
        return Some(evicted);
    }
    // It has started, or never will be asked again: nothing more is held for it.
    engine.capacity.forget(key);
    engine.jobs.release_assumed(key);
    None
}

/// Stops a job that has run as long as it may.
fn stop_overdue(engine: &mut Engine, key: &JobKey) -> Option<Decision> {
    let released = engine.jobs.released(key)?;
    let (limit, queue) = engine.quota.runtime_limit(&released.admission.queue)?;
    let ran = engine.now.millis_since(released.started_at?).max(limit);
    engine.jobs.stop(key, ran);
    let message = format!(
        "it ran {} s, and queue {queue} lets a job run {} s",
        ran / 1000,
        limit / 1000
    );
    lifecycle::evict(engine, key, Reason::RuntimeLimitExceeded, &message, None)
}

/// Finds other nodes for released pods that have lost theirs, and notes since when there are
/// none for them. If a gang has spare nodes that are lent, the jobs there are evicted for it.
pub(crate) fn settle_room(engine: &mut Engine, decisions: &mut Vec<Decision>) {
    let lost = engine.capacity.settle();
    evict_lent(engine, &lost, decisions);
    let inputs = engine.inputs();
    let lost = lost.into_iter();
    let lost = lost.filter(|(key, cluster)| !comes_back(inputs, key, cluster));
    // What a cluster looks like that cannot be seen says nothing.
    let clusters = engine.capacity.cluster_facts();
    let usable = |cluster: &_| clusters.get(cluster).is_some_and(|fact| fact.usable);
    let lost = lost.filter(|(_, cluster)| usable(cluster));
    let lost: Vec<_> = lost.collect();
    for key in engine.jobs.set_stranded(lost, engine.now) {
        sync::sync_indexes(engine, &key);
    }
}

/// Evicts the jobs of queues and clusters that are being drained, as far as the budget goes.
pub(crate) fn evict_drained(engine: &mut Engine, decisions: &mut Vec<Decision>) {
    if !engine.jobs.take_drains_due() {
        return;
    }
    for (key, (reason, message)) in drained(engine.inputs()) {
        if decisions.len() >= engine.config.decision_budget {
            return engine.jobs.recheck_drains();
        }
        decisions.extend(lifecycle::evict(engine, &key, reason, &message, None));
    }
}

/// The jobs that have to leave their queue or their clusters, and why.
fn drained(inputs: Inputs<'_>) -> BTreeMap<JobKey, (Reason, String)> {
    let mut drained = BTreeMap::new();
    for queue in inputs.quota.drained() {
        let message = format!(
            "queue {queue} is being drained: spec.stopPolicy of capacitypolicy {queue} is HoldAndDrain"
        );
        for (_, key) in inputs.jobs.preemptible().of(queue) {
            drained.insert(key.clone(), (Reason::QueueStopped, message.clone()));
        }
    }
    let emptied = emptied(inputs.capacity.cluster_facts().values());
    if emptied.is_empty() {
        return drained;
    }
    for (key, job) in inputs.jobs.admitted() {
        if let Some((cluster, taint)) = must_leave(job, &emptied) {
            let message = format!("cluster {cluster} is being emptied (taint {taint})");
            let why = (Reason::ClusterDrained, message);
            drained.entry(key.clone()).or_insert(why);
        }
    }
    drained
}

/// Notes that a job that was told of may have to leave.
pub(crate) fn note_drain(engine: &mut Engine, key: &JobKey) {
    let Some(released) = engine.jobs.released(key) else {
        return;
    };
    let cluster_of = |share: &Share| engine.capacity.cluster_fact(&share.cluster);
    let mut clusters = released.admission.shares.iter().filter_map(cluster_of);
    if clusters.any(is_emptied) || engine.quota.is_drained(&released.admission.queue) {
        engine.jobs.recheck_drains();
    }
}

/// Returns true if the beginning of another call would have news by what was decided in this one: a back-off ends, or
/// the run time of a job is known that has lost its reservation.
pub(crate) fn are_due(inputs: Inputs<'_>) -> bool {
    let timers = [inputs.pending.backoff.next(), inputs.jobs.next_timer()];
    let mut timers = timers.into_iter().flatten();
    timers.any(|at| at <= inputs.now) || unpredicted(inputs).next().is_some()
}

/// Jobs that were queued or admitted when no run times were known, if they are now. The owner of a reservation would
/// lose it to another place in its queue: its turn comes when it has none.
fn unpredicted<'a>(inputs: Inputs<'a>) -> impl Iterator<Item = &'a JobKey> {
    let predicts = inputs.forecast.predicts_all();
    let unknown = predicts.then(|| inputs.jobs.unpredicted());
    let unknown = unknown.into_iter().flatten();
    unknown.filter(|key| inputs.reservations.of(key).is_none())
}

/// Estimates that have passed are made again, and the reservations that rest on those that have moved. They have moved
/// also where something else made them again before, or where a job began to run.
pub(crate) fn renew_ends(engine: &mut Engine) {
    let unknown = unpredicted(engine.inputs()).take(RENEWED).cloned();
    for key in unknown.collect::<Vec<_>>() {
        engine.jobs.forget_forecast(&key);
        renew_end(engine, &key);
        sync::sync_indexes(engine, &key);
    }
    for _ in 0..RENEWED {
        let Some(key) = engine.jobs.first_past_end(engine.now) else {
            break;
        };
        renew_end(engine, &key);
        sync::sync_indexes(engine, &key);
    }
    let moved = engine.jobs.take_moved_ends();
    if !moved.is_empty() {
        react(engine, Change::EndsMoved(&moved));
    }
}

/// A job has run for as long as was expected, or nothing was: it is expected to run for longer.
fn renew_end(engine: &mut Engine, key: &JobKey) {
    let Some((job, released)) = engine.jobs.get(key).zip(engine.jobs.released(key)) else {
        return;
    };
    let elapsed = engine.now.millis_since(released.begun());
    let passed = released
        .expected_ms
        .is_none_or(|expected| expected <= elapsed);
    let expected = prediction::expected_run(engine.inputs(), job, elapsed);
    if let Some(expected) = expected.filter(|_| passed) {
        engine.jobs.expect(key, expected);
    }
}
