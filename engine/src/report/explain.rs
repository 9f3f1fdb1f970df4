//! The state of a job in words, computed by the functions that decide.

use crate::amounts::totals::ResourceTotals;
use crate::api::decision::{Blocker, Explanation};
use crate::api::job::{JobState, QueueOrder};
use crate::evaluation::{growth, pending_as, sizes};
use crate::jobs::job::{Cause, Job, Released};
use crate::pending::shapes::RequestShape;
use crate::placement::request::{self, Gate, Request, Verdict};
use crate::report::pods::still_end;
use crate::report::{ahead, evidence, start};
use crate::state::Inputs;
use facts::faults::described;
use facts::{JobKey, PodFact, QueueName, QueueOrdering, Reason, counted};

/// The state of a job and the reason for it; `None` if the job is not known.
pub(crate) fn explain(inputs: Inputs<'_>, key: &JobKey) -> Option<Explanation> {
    let job = inputs.jobs.get(key)?;
    Some(match job.released.as_deref() {
        Some(released) => explain_released(inputs, key, job, released),
        None => explain_queued(inputs, key, job),
    })
}

/// Returns true if only quota, capacity and the jobs ahead of it keep a queued job waiting.
pub(crate) fn competes(inputs: Inputs<'_>, key: &JobKey) -> bool {
    let line = inputs.jobs.line_of(key);
    line.is_some_and(|line| {
        inputs.quota.problem(&line.queue).is_none()
            && request::over_pending_limit(inputs, &line.queue, &line.rank).is_none()
    })
}

fn explain_queued(inputs: Inputs<'_>, key: &JobKey, job: &Job) -> Explanation {
    let position = job.derived.line.as_ref().and_then(|line| {
        let pending_queue = inputs.pending.queues.pending_queue(&line.queue)?;
        pending_queue.ranks().position(&line.rank)
    });
    if let Some((reason, message)) = pending_as::obstacle(inputs, job) {
        return Explanation::of(reason, message);
    }
    if let Some((reason, message)) = inputs.quota.problem(&job.queue) {
        return Explanation {
            position,
            ..Explanation::of(reason, message)
        };
    }
    let Some(line) = &job.derived.line else {
        return explain_back_off(inputs, job);
    };
    let Some(shape) = inputs.pending.shapes.get(line.shape) else {
        return Explanation::of(
            Reason::NotEvaluated,
            "it has not been looked at yet".to_owned(),
        );
    };
    let explanation = explain_pending(inputs, key, &line.queue, &line.rank, shape);
    // What could never start has no start.
    let may_start = !explanation.reason.needs_change();
    Explanation {
        position,
        evidence: evidence::evidence(inputs, key, &line.queue, shape),
        ahead: position.map(|at| ahead::ahead_of(inputs, &line.queue, at)),
        start: may_start.then(|| start::estimate(inputs, key)).flatten(),
        ..explanation
    }
}

fn explain_back_off(inputs: Inputs<'_>, job: &Job) -> Explanation {
    let until = job.cold.back_off_until;
    let left = until.map_or(0, |until| until.millis_since(inputs.now));
    let last = job.cold.last.as_ref();
    let why = last.map_or_else(String::new, |cause| {
        format!(" ({}: {})", cause.reason, cause.message)
    });
    let message = format!(
        "attempt {} was evicted{why}; it competes again in {} s",
        job.attempt.0,
        (left + 999) / 1000
    );
    Explanation::of(Reason::BackingOff, message)
}

fn explain_pending(
    inputs: Inputs<'_>,
    key: &JobKey,
    queue: &QueueName,
    rank: &QueueOrder,
    shape: &RequestShape,
) -> Explanation {
    let request = Request {
        queue,
        rank,
        shape,
        verbose: true,
    };
    let behind = behind_head(inputs, queue, rank);
    match (sizes::evaluate(inputs, request), behind) {
        (Verdict::Blocked(block), behind)
            if behind.is_none() || matches!(block.gate, Gate::Never) =>
        {
            let (reason, message) = with_reservation(inputs, key, block.reason, block.message);
            Explanation {
                blocker: block.blocker,
                ..Explanation::of(reason, message)
            }
        }
        (_, Some(behind)) => behind,
        (_, None) => Explanation::of(
            Reason::NotEvaluated,
            "it may go, and is decided on next".to_owned(),
        ),
    }
}

/// The reason and the message of a blocked job, with its reservation if it has one.
fn with_reservation(
    inputs: Inputs<'_>,
    key: &JobKey,
    reason: Reason,
    mut message: String,
) -> (Reason, String) {
    let Some(reservation) = inputs.reservations.of(key) else {
        return (reason, message);
    };
    if !reservation.pending_evictions.is_empty() {
        let victims = reservation.pending_evictions.iter();
        let victims: Vec<String> = victims.map(ToString::to_string).collect();
        message = format!(
            "{message}; it is next: {} evicted for it, and what becomes free is reserved for it",
            are(&victims)
        );
        return (Reason::AwaitingEviction, message);
    }
    message.push_str("; it is next: what becomes free is reserved for it");
    (Reason::NextInLine, message)
}

/// The explanation of a job behind the head of a StrictFIFO queue. One beyond the limit of pending jobs waits for a
/// place in the queue, and the head may be beyond it, too.
fn behind_head(inputs: Inputs<'_>, queue: &QueueName, rank: &QueueOrder) -> Option<Explanation> {
    if inputs.quota.ordering(queue) != QueueOrdering::StrictFifo
        || request::over_pending_limit(inputs, queue, rank).is_some()
    {
        return None;
    }
    let pending_queue = inputs.pending.queues.pending_queue(queue)?;
    let head = pending_queue.first_that_may_go()?;
    let is_behind = pending_queue.turn(head) < pending_queue.turn(rank);
    is_behind.then(|| Explanation {
        blocker: Some(Blocker {
            scope: format!("job/{}", head.key),
            ..Blocker::default()
        }),
        ..Explanation::of(
            Reason::BehindHead,
            format!(
                "queue {queue} is strictly ordered: {} has to start first",
                head.key
            ),
        )
    })
}

fn explain_released(
    inputs: Inputs<'_>,
    key: &JobKey,
    job: &Job,
    released: &Released,
) -> Explanation {
    if let Some((cause, _)) = &released.ending {
        return explain_ending(inputs, key, cause, released);
    }
    if released.loss.is_none()
        && inputs.jobs.resizing().contains(key)
        && let Err(why) = growth::evaluate_growth(inputs, key)
    {
        let elastic = job.demand.as_ref().filter(|demand| demand.elastic);
        let Some(demand) = elastic else {
            let message = format!("it runs as admitted; to grow it {why}");
            return Explanation::of(Reason::GrowthHeld, message);
        };
        let (all, missing) = (demand.pods(), u64::from(job.pods_missing()));
        let message = format!(
            "has {} of {}; to grow it {why}",
            all - missing.min(all),
            counted(all, "pod")
        );
        return Explanation::of(stage(job).0, message);
    }
    let admission = &released.admission;
    let clusters: Vec<&str> = admission
        .shares
        .iter()
        .map(|share| share.cluster.as_str())
        .collect();
    let place = format!("attempt {} on {}", admission.attempt.0, clusters.join(", "));
    let charged = admission.charge().unwrap_or_default();
    let (reason, what) = match &released.loss {
        Some(loss) if job.state() == JobState::Running => (Reason::PodsLost, loss.to_string()),
        _ if job.state() == JobState::Placed && released.pods_kept => (
            Reason::PodsNotStarting,
            format!("placed; {}", what_keeps(inputs, key, released)),
        ),
        _ => {
            let (reason, what) = stage(job);
            (reason, what.to_owned())
        }
    };
    if reason == Reason::Finished {
        let message = match pods_left(inputs, key) {
            Some(left) => format!("{what}; {left}; {place}"),
            None => format!("{what}; {place}, charged nothing"),
        };
        return Explanation::of(reason, message);
    }
    let queue = &admission.queue;
    let moved = queue_edited(job, queue);
    Explanation::of(
        reason,
        format!("{what}; {place}, charged {charged} to queue {queue}{moved}"),
    )
}

/// The explanation of a job whose Works are being removed because of `cause`.
fn explain_ending(
    inputs: Inputs<'_>,
    key: &JobKey,
    cause: &Cause,
    released: &Released,
) -> Explanation {
    let charge = match pods_left(inputs, key) {
        _ if released.charged() => {
            let left = still_end(&inputs.capacity.pods_left(key));
            let left = left.map_or_else(String::new, |left| format!("; {left}"));
            format!("charged until its Works are gone{left}")
        }
        Some(left) => format!("it had ended; {left}"),
        None => "it had ended and is charged nothing".to_owned(),
    };
    Explanation::of(cause.reason, format!("{}; {charge}", cause.message))
}

/// The pods of a job that has ended which are bound all the same, with their charge; `None` if nothing is charged
/// for any. An operator may leave them (`cleanPodPolicy: None`).
fn pods_left(inputs: Inputs<'_>, key: &JobKey) -> Option<String> {
    let charge = inputs.pod_charges.of(key)?;
    let mut charged = ResourceTotals::default();
    charge.pools.values().for_each(|used| charged.add(used, 1));
    let is_charged = |pod: &&PodFact| {
        let mut clusters = charge.pools.keys().map(|(cluster, _)| cluster);
        clusters.any(|cluster| *cluster == pod.cluster)
    };
    let pods = inputs.capacity.live_pods(key).filter(is_charged).count();
    let (run, they) = match pods {
        0 => return None,
        1 => ("runs", "it is"),
        _ => ("run", "they are"),
    };
    let (pods, charged, queue) = (counted(pods, "pod"), charged.to_resources(), &charge.queue);
    Some(format!(
        "{pods} of it still {run}: charged {charged} to queue {queue} until {they} gone"
    ))
}

/// Returns what to add to the message of an admitted job whose template names another queue than `charged`; else
/// nothing.
fn queue_edited(job: &Job, charged: &QueueName) -> String {
    match job.queue == *charged {
        true => String::new(),
        false => format!(
            "; its template names queue {}, which counts when it is queued again",
            job.queue
        ),
    }
}

/// Returns what keeps the pods of a starting job from running, by cluster.
fn what_keeps(inputs: Inputs<'_>, key: &JobKey, released: &Released) -> String {
    let shares = released.admission.shares.iter();
    let kept = shares.filter_map(|share| {
        let symptoms = inputs.capacity.symptoms(key, &share.cluster);
        let of = format!(
            "of {} on {}, ",
            counted(share.replicas(), "pod"),
            share.cluster
        );
        (!symptoms.is_empty()).then(|| of + &described(&symptoms))
    });
    kept.collect::<Vec<_>>().join("; ")
}

/// The state of an admitted job as a reason and in words.
fn stage(job: &Job) -> (Reason, &'static str) {
    match job.state() {
        JobState::Assumed => (Reason::Admitted, "released; its placement is being written"),
        JobState::Placed => (Reason::Placed, "placed; waits for its pods to run"),
        JobState::Running => (Reason::Running, "runs"),
        JobState::Finished => (Reason::Finished, "ended"),
        JobState::Ending => (Reason::Evicted, "is being evicted"),
        JobState::Queued => (Reason::NotEvaluated, "waits"),
    }
}

/// `a is`, `a and b are`, `a, b and 3 more are`.
fn are(names: &[String]) -> String {
    match names {
        [one] => format!("{one} is"),
        [one, other] => format!("{one} and {other} are"),
        [one, other, rest @ ..] => format!("{one}, {other} and {} more are", rest.len()),
        [] => "nobody is".to_owned(),
    }
}
