//! A job under evaluation, and the verdict on it.
//!
//! A verdict admits with a plan, or says what blocks the job, in words and as the conditions after
//! which it is worth to evaluate the job again. It changes nothing.

use crate::api::charge::Pools;
use crate::api::decision::Blocker;
use crate::api::job::QueueOrder;
use crate::pending::inadmissible::RequeueCondition;
use crate::pending::infeasible::Infeasible;
use crate::pending::shapes::RequestShape;
use crate::quota::{ChargeOwner, OwnedRequest, Shortfall};
use crate::state::Inputs;
use facts::{JobKey, QueueName, Reason, Share};

/// Whether a job may be admitted now.
#[derive(Debug, Clone)]
pub(crate) enum Verdict {
    /// It may be admitted to these clusters.
    Go(Vec<Share>),
    /// It may not be admitted.
    Blocked(Box<Block>),
}

/// What blocks a job.
#[derive(Debug, Clone)]
pub(crate) struct Block {
    pub(crate) reason: Reason,
    pub(crate) message: String,
    pub(crate) blocker: Option<Blocker>,
    pub(crate) gate: Gate,
    /// Set if it blocks every job of the same shape, in all queues.
    pub(crate) infeasible: Option<Infeasible>,
    /// After which changes it is worth to evaluate the job again.
    pub(crate) conditions: Vec<RequeueCondition>,
}

/// At which gate it is blocked.
#[derive(Debug, Clone)]
pub(crate) enum Gate {
    /// It could not be admitted even if nothing else were there.
    Never,
    /// A number of jobs is reached.
    Limit,
    /// Headroom is short; with the pools that it would use if a bound on those is exceeded.
    Quota(Box<Shortfall>, Option<Pools>),
    /// Capacity is short.
    Room,
    /// What it needs is free, but reserved for a job further ahead.
    Reserved,
}

/// A job under evaluation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Request<'a> {
    pub(crate) queue: &'a QueueName,
    pub(crate) rank: &'a QueueOrder,
    pub(crate) shape: &'a RequestShape,
    /// True if the verdict is to be said in words: those cost more than the verdict.
    pub(crate) verbose: bool,
}

/// A gang that is to be placed, as its queue may be charged for it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GangRequest<'a> {
    pub(crate) queue: &'a QueueName,
    pub(crate) shape: &'a RequestShape,
    /// The job, if the gang is one: its images are not part of its shape.
    pub(crate) job: Option<&'a JobKey>,
    /// True if what each cluster is short of is to be said.
    pub(crate) verbose: bool,
}

impl<'a> Request<'a> {
    /// Returns what of it is to be placed.
    pub(crate) fn gang(self) -> GangRequest<'a> {
        GangRequest {
            queue: self.queue,
            shape: self.shape,
            job: Some(&self.rank.key),
            verbose: self.verbose,
        }
    }
}

impl Request<'_> {
    /// Words, if they are to be said.
    pub(crate) fn words(&self, words: impl FnOnce() -> String) -> String {
        if self.verbose { words() } else { String::new() }
    }

    /// Returns what it asks for, and for whom.
    pub(crate) fn owned<'a>(&'a self, inputs: Inputs<'a>) -> OwnedRequest<'a> {
        OwnedRequest {
            queue: self.queue,
            owner: owner_of(inputs, &self.rank.key),
            request: &self.shape.total,
        }
    }
}

/// Whose job it is. That of a job which is not known is its namespace's.
pub(crate) fn owner_of<'a>(inputs: Inputs<'a>, key: &'a JobKey) -> ChargeOwner<'a> {
    let job = inputs.jobs.get(key);
    job.map_or(ChargeOwner::of_namespace(&key.namespace), |job| {
        job.owner(key)
    })
}

/// The position of a pending job that is beyond the pending limit of its queue, with the limit.
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
