//! What happens to a job, carried through all stores: observed, admitted, resized, evicted, queued
//! again.
//!
//! The job store changes the job; capacity that is assumed for its pods follows; and `settle`
//! brings its charge, its counts and its place among pending jobs in step.

use crate::api::decision::Decision;
use crate::cycle::react::{Change, react};
use crate::cycle::{decide, reserve, sync, timers};
use crate::evaluation::prediction;
use crate::forecast::Runner;
use crate::jobs::excess::Excess;
use crate::jobs::job::Cause;
use crate::jobs::observe::{ObservedAdmission, ObservedProgress};
use crate::jobs::resize::Edited;
use crate::jobs::terminating::Cut;
use crate::placement::lookup::largest_role;
use crate::state::Engine;
use facts::{
    Admission, Attempt, ClusterName, Demand, JobFact, JobKey, Leaving, Progress, QueueName, Reason,
    Share, Time, Uid, counted,
};

/// Why what an earlier object of a job's name holds is evicted.
pub(crate) const REPLACED: &str = "another object of this name took its place";

/// What becomes known.
pub(crate) fn observe_job(engine: &mut Engine, mut fact: JobFact) {
    // The pods that hold most devices wait longest for each other: their images count.
    let largest = largest_role(&fact.demand);
    fact.images
        .retain(|of| largest.is_some_and(|role| role.name == of.role));
    let demand = fact.hold.is_none().then(|| {
        note_submitted(engine, &fact.key, &fact.demand);
        engine.pending.shapes.intern_demand(&fact.demand)
    });
    let observed = engine.jobs.observe(fact, demand);
    let key = &observed.key;
    if observed.renewed || (observed.is_new && is_late(engine, key)) {
        let cause = time_of_cause(engine);
        engine.jobs.note_renewed(key, cause);
    }
    if observed.preemptible_changed {
        react(engine, Change::Victims);
    }
    if observed.replaced {
        begin_eviction(engine, key, Reason::Deleting, REPLACED, None);
    }
    if observed.gated {
        engine.jobs.note_given_up(key);
    }
    let intern = |demand: &_| engine.pending.shapes.intern_demand(demand);
    match engine.jobs.compare_template(key, intern) {
        Some(Edited::Requests(demand)) => engine.capacity.assume_more(key, &demand, None),
        Some(Edited::Pods(demand, shares)) => {
            engine.capacity.assume_pods(key, demand, &shares);
        }
        None => {}
    }
    settle_record(engine, key);
    if observed.class_changed {
        // It may preempt now, or may not any more.
        react(engine, Change::Priority(key));
    }
}

pub(crate) fn observe_admission(
    engine: &mut Engine,
    key: &JobKey,
    admission: Admission,
    progress: Progress,
) {
    let attempt = admission.attempt;
    match engine.jobs.observe_admission(key, admission, progress) {
        ObservedAdmission::Outdated => return,
        ObservedAdmission::Known => {
            return observe_progress(engine, key, attempt, progress, engine.now);
        }
        ObservedAdmission::New => engine.capacity.forget(key),
        ObservedAdmission::Replaced => {
            engine.capacity.forget(key);
            begin_eviction(engine, key, Reason::Deleting, REPLACED, None);
        }
    }
    settle_record(engine, key);
}

/// Holds capacity for the pods of an admission read back that are not bound yet, and brings
/// what is derived of the job in step.
pub(crate) fn settle_record(engine: &mut Engine, key: &JobKey) {
    // A job without an attempt has no pods.
    if engine.jobs.released(key).is_some() {
        engine.capacity.note_pods_of(key);
    }
    if let Some((demand, shares)) = engine.jobs.take_unassumed(key) {
        engine.capacity.assume_pods(key, demand, &shares);
    }
    settle(engine, key);
    timers::note_drain(engine, key);
}

pub(crate) fn observe_progress(
    engine: &mut Engine,
    key: &JobKey,
    attempt: Attempt,
    progress: Progress,
    at: Time,
) {
    decide::advance(engine, at);
    match engine.jobs.observe_progress(key, attempt, progress, at) {
        ObservedProgress::Known => return,
        ObservedProgress::Evicted => {
            return begin_eviction(engine, key, Reason::Evicted, "it is being evicted", None);
        }
        ObservedProgress::Placed => {}
        ObservedProgress::Running => {
            engine.capacity.note_pods_of(key);
            react(engine, Change::Victims);
        }
        ObservedProgress::Finished => {
            add_run(engine, key, at);
            note_end(engine, key);
        }
    }
    settle(engine, key);
    // It may have been taken for finished while its queue or cluster began to be drained.
    timers::note_drain(engine, key);
}

/// Notes that a charged job ends for no other job. The end of one that holds nothing, or that is not known any more, is
/// no cause for anything.
pub(crate) fn note_end(engine: &mut Engine, key: &JobKey) {
    let Some((queue, _)) = engine.jobs.charge_of(key) else {
        return;
    };
    let below_root: Vec<QueueName> = engine.quota.path(queue).into_iter().skip(1).collect();
    let cause = time_of_cause(engine);
    engine.jobs.queue_causes_mut().note(below_root, cause);
}

/// The time of a cause that comes up now. What is admitted was admitted before: if a job that gave way was at the
/// present time, the clock moves by a millisecond.
pub(crate) fn time_of_cause(engine: &mut Engine) -> Time {
    if engine.jobs.queue_causes().is_readmitted_since(engine.now) {
        decide::advance(engine, engine.now.after(1));
    }
    engine.now
}

/// Returns true if a job says that it was queued before jobs were admitted which were there first: times of submission
/// are rounded to seconds, by another clock.
fn is_late(engine: &Engine, key: &JobKey) -> bool {
    let causes = engine.jobs.queue_causes();
    let job = engine.jobs.get(key);
    job.is_some_and(|job| causes.is_readmitted_since(job.queued_at))
}

/// Adds the run of a job that has ended to the forecast.
pub(crate) fn add_run(engine: &mut Engine, key: &JobKey, at: Time) {
    let (Some(job), Some(released)) = (engine.jobs.get(key), engine.jobs.released(key)) else {
        return;
    };
    let demand = released.basis.as_deref().or(job.demand.as_deref());
    let Some(demand) = demand else { return };
    let millis = at.millis_since(released.begun());
    let runner = Runner::new(&released.admission.queue, &job.user, demand);
    engine.forecast.add(&runner, millis);
}

/// An attempt was refused before anything of it was written.
pub(crate) fn observe_refusal(
    engine: &mut Engine,
    key: &JobKey,
    attempt: Attempt,
    cause: Cause,
    avoid: Option<ClusterName>,
    at: Time,
) {
    decide::advance(engine, at);
    if is_unwritten(engine, key, attempt) {
        requeue(engine, key, Some(cause), avoid, at);
    }
}

/// An attempt was never handed over.
pub(crate) fn observe_withdrawal(engine: &mut Engine, key: &JobKey, attempt: Attempt, at: Time) {
    decide::advance(engine, at);
    if is_unwritten(engine, key, attempt) {
        engine.capacity.forget(key);
        engine.jobs.withdraw(key, at, &engine.config);
        settle(engine, key);
    }
}

/// Returns true if nothing of an attempt was written. Of a job that was seen placed something was: what is refused then
/// is a resize, and the charge stays.
fn is_unwritten(engine: &Engine, key: &JobKey, attempt: Attempt) -> bool {
    engine.jobs.released(key).is_some_and(|released| {
        released.admission.attempt == attempt && released.progress == Progress::Assumed
    })
}

/// Nothing of a job is left in any cluster.
pub(crate) fn observe_works_gone(engine: &mut Engine, key: &JobKey, at: Time) {
    decide::advance(engine, at);
    let released = engine.jobs.released(key);
    let Some(released) = released.filter(|r| r.progress == Progress::Ending) else {
        return;
    };
    let (cause, avoid) = released.ending.clone().unzip();
    requeue(engine, key, cause, avoid.flatten(), at);
}

/// An earlier process has told pods of a job to go.
pub(crate) fn observe_terminating(
    engine: &mut Engine,
    key: &JobKey,
    attempt: Attempt,
    leaving: Vec<Leaving>,
) {
    if engine.jobs.observe_terminating(key, attempt, leaving) {
        settle(engine, key);
    }
}

/// Fewer pods of a job can be in a cluster than were told to go: the charge of the rest is
/// released.
pub(crate) fn confirm_gone(
    engine: &mut Engine,
    key: &JobKey,
    attempt: Attempt,
    cluster: &ClusterName,
    pods: u32,
    at: Time,
) {
    decide::advance(engine, at);
    let Some(may_be) = engine.jobs.confirm_gone(key, attempt, cluster, pods) else {
        return;
    };
    engine.capacity.trim_assumed(key, cluster, &may_be);
    let released = engine.jobs.released(key);
    let all_gone = released.is_none_or(|released| released.leaving.is_empty());
    settle(engine, key);
    if all_gone {
        reserve::victim_gone(engine, key);
    }
    react(engine, Change::Capacity);
}

/// A job runs more than was admitted.
pub(crate) fn observe_excess(engine: &mut Engine, key: &JobKey, attempt: Attempt, excess: Excess) {
    if engine.jobs.observe_excess(key, attempt, excess) {
        settle(engine, key);
        react(engine, Change::Capacity);
    }
}

/// A job was found stopped, by its record.
pub(crate) fn observe_stopped(engine: &mut Engine, key: &JobKey, uid: &Uid, ran_ms: i64) {
    if engine.jobs.observe_stopped(key, uid, ran_ms) {
        sync::sync_indexes(engine, key);
    }
}

/// Returns what is decided.
/// Admits a pending job with a plan.
pub(crate) fn release(engine: &mut Engine, key: &JobKey, shares: Vec<Share>) -> Option<Decision> {
    let job = engine.jobs.get(key)?;
    let undeclared = Some(job).filter(|job| job.duration.is_none());
    let expected_ms = undeclared.and_then(|job| prediction::expected_run(engine.inputs(), job, 0));
    let (admission, demand) = engine.jobs.admit(key, shares, expected_ms, engine.now)?;
    engine.jobs.note_readmitted(key, engine.now);
    let message = released_message(&admission);
    engine.capacity.assume_pods(key, demand, &admission.shares);
    let trials = admission.shares.iter().map(|share| share.cluster.clone());
    let trials: Vec<ClusterName> = trials.collect();
    let intern = |demand: &_| engine.pending.shapes.intern_demand(demand);
    engine.jobs.rebase(key, intern);
    settle(engine, key);
    end_trials(engine, &trials);
    Some(Decision::Release {
        key: key.clone(),
        admission,
        message,
    })
}

/// Pauses the clusters of a new admission that take one job on trial: they take no other until its fate is known.
fn end_trials(engine: &mut Engine, clusters: &[ClusterName]) {
    for name in clusters {
        let Some(fact) = engine.capacity.cluster_fact(name) else {
            continue;
        };
        let mut fact = fact.clone();
        let Some(pause) = fact.paused.as_mut().filter(|pause| pause.trial) else {
            continue;
        };
        pause.trial = false;
        "it takes no other job until one that is tried there runs".clone_into(&mut pause.because);
        engine.capacity.set_cluster(fact);
        react(engine, Change::Fleet(std::slice::from_ref(name)));
    }
}

/// Adds pods to a released job that waits for them.
pub(crate) fn scale_up(engine: &mut Engine, key: &JobKey, more: &Share) -> Option<Decision> {
    let intern = |demand: &_| engine.pending.shapes.intern_demand(demand);
    let (admission, demand) = engine.jobs.scale_up(key, more, intern)?;
    engine.capacity.assume_more(key, &demand, Some(more));
    settle(engine, key);
    react(engine, Change::Capacity);
    Some(Decision::Resize {
        key: key.clone(),
        admission,
        for_job: None,
        message: format!("grows by {} pods on {}", more.replicas(), more.cluster),
    })
}

/// Makes a released job smaller. Nothing where it has none of those pods.
pub(crate) fn shrink(
    engine: &mut Engine,
    key: &JobKey,
    cuts: &[Cut],
    for_job: Option<&JobKey>,
    why: &str,
) -> Option<Decision> {
    let intern = |demand: &_| engine.pending.shapes.intern_demand(demand);
    let (admission, pods) = engine.jobs.shrink(key, cuts, for_job, intern)?;
    settle(engine, key);
    Some(Decision::Resize {
        key: key.clone(),
        admission,
        for_job: for_job.cloned(),
        message: format!("shrinks by {pods} pods{why}"),
    })
}

/// Evicts a job for a reason of its own.
pub(crate) fn evict(
    engine: &mut Engine,
    key: &JobKey,
    reason: Reason,
    message: &str,
    avoid: Option<ClusterName>,
) -> Option<Decision> {
    let attempt = engine.jobs.get(key)?.attempt;
    begin_eviction(engine, key, reason, message, avoid);
    Some(Decision::Evict {
        key: key.clone(),
        attempt,
        reason,
        for_job: None,
        message: message.to_owned(),
    })
}

/// Begins to evict a released job. What was charged stays charged.
pub(crate) fn begin_eviction(
    engine: &mut Engine,
    key: &JobKey,
    reason: Reason,
    message: &str,
    avoid: Option<ClusterName>,
) {
    let message = message.to_owned();
    let cause = Cause { reason, message };
    let for_another = cause.is_for_another();
    if engine.jobs.begin_eviction(key, cause, avoid) {
        if !for_another {
            note_end(engine, key);
        }
        settle(engine, key);
    }
}

/// Queues a job again of which nothing is left.
pub(crate) fn requeue(
    engine: &mut Engine,
    key: &JobKey,
    cause: Option<Cause>,
    avoid: Option<ClusterName>,
    at: Time,
) {
    engine.capacity.forget(key);
    engine.jobs.requeue(key, cause, avoid, at, &engine.config);
    settle(engine, key);
}

/// Brings all that follows from a job in step with it.
pub(crate) fn settle(engine: &mut Engine, key: &JobKey) {
    let Some(job) = engine.jobs.get(key) else {
        return;
    };
    let released = job.released.as_deref();
    if released.is_none_or(|released| !released.charged()) {
        engine.capacity.forget(key);
    }
    sync::sync_indexes(engine, key);
}

pub(crate) fn released_message(admission: &Admission) -> String {
    let parts: Vec<String> = admission
        .shares
        .iter()
        .map(|share| {
            let pods = counted(share.replicas(), "pod");
            format!("{pods} on {}", share.cluster)
        })
        .collect();
    let charge = admission.charge().unwrap_or_default();
    format!(
        "queue {}: {}; charged {charge}",
        admission.queue,
        parts.join(", ")
    )
}

/// A job that had not been submitted before is one more of its kind.
pub(crate) fn note_submitted(engine: &mut Engine, key: &JobKey, demand: &Demand) {
    engine.eligibility.note(&demand.placement, &engine.capacity);
    let known = engine.jobs.get(key).is_some_and(|job| job.demand.is_some());
    if !known {
        engine.capacity.note_demand(demand);
    }
}
