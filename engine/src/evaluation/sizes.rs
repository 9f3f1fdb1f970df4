//! Verdicts on elastic gangs: the largest size that may be admitted, and how far one may scale up.
//!
//! A gang is evaluated at full size first, then at the largest size that may go; what blocks it is
//! what blocks its smallest size.

use crate::api::facts::Share;
use crate::api::ids::{ClusterName, JobKey, QueueName};
use crate::evaluation::verdict::blocked;
use crate::evaluation::{growth, pending_as, verdict};
use crate::jobs::elastic::Sizes;
use crate::placement::request::{Request, Verdict};
use crate::state::Inputs;
use std::sync::Arc;

/// Judges a job that waits in line: at full size, else at the largest that may go.
pub(crate) fn judge(inputs: Inputs<'_>, request: Request<'_>) -> Verdict {
    let full = verdict::judge_as_is(inputs, request);
    let Some(sizes) = Sizes::of(&request.shape.demand) else {
        return full;
    };
    if matches!(full, Verdict::Go(_)) {
        return full;
    }
    let judged = |beyond: u32| {
        let shape = request.shape.resized(sizes.at(beyond))?;
        let shape = &shape;
        let sized = Request { shape, ..request };
        // Whether its bounds would ever let it go is known of the gang, not of each size.
        if inputs.pending.shapes.let_by(request.shape, request.queue) == Some(false) {
            return Some(blocked(verdict::block_by_bounds(inputs, sized)));
        }
        Some(verdict::judge_as_is(inputs, sized))
    };
    let mut best = match judged(sizes.least) {
        Some(Verdict::Go(shares)) => shares,
        Some(blocked) => return blocked,
        None => return full,
    };
    // What fits at one size is taken to fit at every smaller one.
    let (mut fits, mut fails) = (sizes.least, sizes.most);
    while fails - fits > 1 {
        let middle = fits + (fails - fits) / 2;
        match judged(middle) {
            Some(Verdict::Go(shares)) => (fits, best) = (middle, shares),
            _ => fails = middle,
        }
    }
    Verdict::Go(best)
}

/// Elastic jobs that may scale up, in order.
pub(crate) fn scaling_up(inputs: Inputs<'_>) -> Vec<JobKey> {
    let ranked = inputs.jobs.may_scale_up().filter_map(|key| {
        let job = inputs.jobs.get(key)?;
        Some((job.queue_now(), pending_as::rank_of(inputs, key, job)))
    });
    let mut ranked: Vec<_> = ranked.collect();
    ranked.sort_by(|a, b| inputs.quota.compare((a.0, &a.1), (b.0, &b.1)));
    ranked.into_iter().map(|(_, rank)| rank.key).collect()
}

pub(crate) fn grows_like(
    inputs: Inputs<'_>,
    key: &JobKey,
) -> Option<(QueueName, usize, Vec<ClusterName>)> {
    let job = inputs.jobs.get(key)?;
    let demand = Arc::as_ptr(job.demand.as_ref()?).addr();
    let shares = &job.released.as_ref()?.admission.shares;
    let clusters = shares.iter().map(|share| share.cluster.clone()).collect();
    Some((job.queue_now().clone(), demand, clusters))
}

/// The share of the most pods by which an elastic job may grow now.
pub(crate) fn largest_growth(inputs: Inputs<'_>, key: &JobKey) -> Option<Share> {
    let freed = |pods: u32| growth::judge_growth_by(inputs, key, pods).ok().flatten();
    let missing = inputs.jobs.get(key)?.pods_missing();
    let mut fails = missing.saturating_add(1);
    let mut best = freed(1)?;
    let mut fits = 1;
    while fails - fits > 1 {
        // All first: that is what is granted most often.
        let tried = if fits == 1 && fails == missing + 1 {
            fails - 1
        } else {
            fits + (fails - fits) / 2
        };
        match freed(tried) {
            Some(more) => (fits, best) = (tried, more),
            None => fails = tried,
        }
    }
    Some(best)
}
