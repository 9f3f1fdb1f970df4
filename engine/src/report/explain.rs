//! Where a job stands, in words, by the functions that decide.

use crate::api::decision::{Blocker, Explanation};
use crate::api::facts::QueueOrdering;
use crate::api::ids::{JobKey, QueueName};
use crate::api::job::{JobState, QueueOrder};
use crate::api::reason::Reason;
use crate::evaluation::{growth, pending_as, sizes};
use crate::jobs::job::{Job, Released};
use crate::pending::shapes::RequestShape;
use crate::placement::request::{Gate, Request, Verdict};
use crate::report::{ahead, evidence};
use crate::state::Inputs;

/// Where a job stands; `None` for one that is not known. Also for released jobs.
#[must_use]
pub(crate) fn explain(inputs: Inputs<'_>, key: &JobKey) -> Option<Explanation> {
    let job = inputs.jobs.get(key)?;
    Some(match job.released.as_deref() {
        Some(released) => explain_released(inputs, key, job, released),
        None => explain_queued(inputs, key, job),
    })
}

fn explain_queued(inputs: Inputs<'_>, key: &JobKey, job: &Job) -> Explanation {
    let position = job.derived.line.as_ref().and_then(|line| {
        let pending_queue = inputs.pending.queues.pending_queue(&line.queue)?;
        pending_queue.ranks().position(&line.rank)
    });
    if let Some((reason, message)) = pending_as::obstacle(inputs, job) {
        return told(reason, message);
    }
    if let Some((reason, message)) = inputs.quota.problem(&job.queue) {
        return Explanation {
            position,
            ..told(reason, message)
        };
    }
    let Some(line) = &job.derived.line else {
        return explain_back_off(inputs, job);
    };
    let Some(shape) = inputs.pending.shapes.get(line.shape) else {
        return told(
            Reason::NotEvaluated,
            "it has not been looked at yet".to_owned(),
        );
    };
    let explanation = explain_pending(inputs, key, &line.queue, &line.rank, shape);
    let outlook = position.map(|at| ahead::outlook_of(inputs, &line.queue, &line.rank, at));
    let (ahead, start) = outlook.unzip();
    Explanation {
        position,
        evidence: evidence::evidence(inputs, key, &line.queue, shape),
        ahead,
        start: start.flatten(),
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
    told(Reason::BackingOff, message)
}

fn explain_pending(
    inputs: Inputs<'_>,
    key: &JobKey,
    queue: &QueueName,
    rank: &QueueOrder,
    shape: &RequestShape,
) -> Explanation {
    let tells = true;
    match sizes::evaluate(
        inputs,
        Request {
            queue,
            rank,
            shape,
            tells,
        },
    ) {
        Verdict::Blocked(block) => {
            let behind = behind(inputs, queue, rank).filter(|_| !matches!(block.gate, Gate::Never));
            if let Some(behind) = behind {
                return behind;
            }
            let (reason, message) = told_holder(inputs, key, block.reason, block.message);
            Explanation {
                blocker: block.blocker,
                ..told(reason, message)
            }
        }
        Verdict::Go(_) => behind(inputs, queue, rank).unwrap_or_else(|| {
            told(
                Reason::NotEvaluated,
                "it may go, and is decided on next".to_owned(),
            )
        }),
    }
}

/// What stops a job, or that what frees is kept for it, if it is.
fn told_holder(
    inputs: Inputs<'_>,
    key: &JobKey,
    reason: Reason,
    mut message: String,
) -> (Reason, String) {
    let Some(kept) = inputs.reservations.of(key) else {
        return (reason, message);
    };
    if !kept.pending_evictions.is_empty() {
        let victims: Vec<String> = kept
            .pending_evictions
            .iter()
            .map(ToString::to_string)
            .collect();
        message = format!(
            "{message}; it is next: {} evicted for it, and what frees is kept for it",
            are(&victims)
        );
        return (Reason::AwaitingEviction, message);
    }
    message.push_str("; it is next: what frees is kept for it");
    (Reason::Reserved, message)
}

/// Who has to start first, where the queue is strictly ordered and somebody has to.
fn behind(inputs: Inputs<'_>, queue: &QueueName, rank: &QueueOrder) -> Option<Explanation> {
    if inputs.quota.ordering(queue) != QueueOrdering::StrictFifo {
        return None;
    }
    let head = inputs
        .pending
        .queues
        .pending_queue(queue)?
        .first_that_may_go()?;
    (head < rank).then(|| Explanation {
        blocker: Some(Blocker {
            scope: format!("job/{}", head.key),
            resource: None,
            needs: None,
            free: None,
        }),
        ..told(
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
        let message = if released.charged() {
            format!("{}; charged until its Works are gone", cause.message)
        } else {
            format!("{}; it had ended and is charged nothing", cause.message)
        };
        return told(cause.reason, message);
    }
    if inputs.jobs.resizing().contains(key)
        && let Err(why) = growth::evaluate_growth(inputs, key)
    {
        let elastic = job.demand.as_ref().filter(|demand| demand.elastic);
        let Some(demand) = elastic else {
            let message = format!("it runs as admitted; to grow it {why}");
            return told(Reason::GrowthHeld, message);
        };
        let (all, missing) = (demand.pods(), u64::from(job.pods_missing()));
        let message = format!(
            "has {} of {all} pods; to grow it {why}",
            all - missing.min(all)
        );
        return told(stage(job).0, message);
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
        _ => {
            let (reason, what) = stage(job);
            (reason, what.to_owned())
        }
    };
    if reason == Reason::Finished {
        return told(reason, format!("{what}; {place}, charged nothing"));
    }
    let queue = &admission.queue;
    told(
        reason,
        format!("{what}; {place}, charged {charged} to queue {queue}"),
    )
}

/// How far a released job is.
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

fn told(reason: Reason, message: String) -> Explanation {
    Explanation::of(reason, message)
}
