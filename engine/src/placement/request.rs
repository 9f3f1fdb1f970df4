//! A job under evaluation, and the verdict on it.
//!
//! A verdict admits with a plan, or says what blocks the job, in words and as the conditions after
//! which it is worth to evaluate the job again. It changes nothing.

use crate::api::charge::Pools;
use crate::api::decision::Blocker;
use crate::api::facts::Share;
use crate::api::ids::QueueName;
use crate::api::job::QueueOrder;
use crate::api::reason::Reason;
use crate::pending::inadmissible::RequeueCondition;
use crate::pending::infeasible::Infeasible;
use crate::pending::shapes::RequestShape;
use crate::placement::plan::View;
use crate::quota::Shortfall;
use crate::state::Inputs;

/// What stands for and against releasing a job now.
#[derive(Debug, Clone)]
pub(crate) enum Verdict {
    /// It may go there.
    Go(Vec<Share>),
    /// It may not.
    Blocked(Box<Block>),
}

/// What stops a job.
#[derive(Debug, Clone)]
pub(crate) struct Block {
    pub(crate) reason: Reason,
    pub(crate) message: String,
    pub(crate) blocker: Option<Blocker>,
    pub(crate) gate: Gate,
    /// Set where it stops everybody who wants the same, not only this queue.
    pub(crate) infeasible: Option<Infeasible>,
    /// What may change that.
    pub(crate) conditions: Vec<RequeueCondition>,
}

/// Where it is stopped.
#[derive(Debug, Clone)]
pub(crate) enum Gate {
    /// It could not go even if nothing else were there.
    Never,
    /// A number of jobs is reached.
    Limit,
    /// Headroom is short; with the pools it would use, where a bound on those is.
    Quota(Box<Shortfall>, Option<Pools>),
    /// Room is short.
    Room,
    /// What it needs is there, but kept for a job further ahead.
    Reserved,
}

/// Who asks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Request<'a> {
    pub(crate) queue: &'a QueueName,
    pub(crate) rank: &'a QueueOrder,
    pub(crate) shape: &'a RequestShape,
    /// Whether the verdict will be told in words: those cost more than the verdict.
    pub(crate) tells: bool,
}

impl Request<'_> {
    /// Everything that is free now, with words if they will be read.
    pub(crate) fn view(&self) -> View {
        View {
            tells: self.tells,
            ..View::now()
        }
    }

    /// Words, if they will be told.
    pub(crate) fn words(&self, words: impl FnOnce() -> String) -> String {
        if self.tells { words() } else { String::new() }
    }

    /// Who asks, for limits by user.
    pub(crate) fn user(&self) -> &str {
        self.shape.user_of(&self.rank.key)
    }
}

/// The place of a waiting job that is not among the first who may compete in its queue, with
/// how many may.
pub(crate) fn over_pending_limit(
    inputs: Inputs<'_>,
    queue: &QueueName,
    rank: &QueueOrder,
) -> Option<(usize, u32)> {
    let limit = inputs.quota.pending_limit(queue)?;
    let place = inputs
        .pending
        .queues
        .pending_queue(queue)?
        .ranks()
        .position(rank)?;
    (place > limit as usize).then_some((place, limit))
}
