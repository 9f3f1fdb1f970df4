//! Elastic gangs: admitted at the largest size that fits, scaled up when no pending job has a claim.
//!
//! A gang is evaluated at full size first, then at the largest size that may go; what stops it is
//! what stops its smallest size. Scaling up comes after all pending jobs had their turn, and never
//! uses what is reserved for another job. It is tried again only after something came free.

use crate::api::decision::Decision;
use crate::api::facts::Share;
use crate::api::ids::{ClusterName, JobKey, QueueName};
use crate::cycle::evaluate;
use crate::cycle::evaluate::{Request, Verdict, blocked};
use crate::cycle::resize;
use crate::jobs::elastic::Sizes;
use crate::jobs::lifecycle;
use crate::jobs::pending_as;
use crate::state::{Engine, Inputs};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Grows elastic jobs into what came free, those first in order first.
pub(crate) fn scale_up_elastic(engine: &mut Engine, decisions: &mut Vec<Decision>) {
    if !engine.jobs.take_scale_up_due() || engine.jobs.resizing().is_empty() {
        return;
    }
    // What does not fit for one job does not fit for its like in the same places.
    let mut fails: BTreeSet<(QueueName, usize, Vec<ClusterName>)> = BTreeSet::new();
    for key in scaling_up(engine.inputs()) {
        if decisions.len() >= engine.config.decision_budget {
            engine.jobs.retry_scale_up();
            return;
        }
        let Some(alike) = grows_like(engine.inputs(), &key).filter(|alike| !fails.contains(alike))
        else {
            continue;
        };
        match grow_everywhere(engine, &key) {
            Some(freed) => decisions.push(freed),
            None => {
                fails.insert(alike);
            }
        }
    }
}

/// Grows a job in each of its clusters by what goes there, as one decision.
fn grow_everywhere(engine: &mut Engine, key: &JobKey) -> Option<Decision> {
    let mut freed: Option<Decision> = None;
    while let Some(more) = largest_growth(engine.inputs(), key) {
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

/// Judges a job that waits in line: at full size, else at the largest that may go.
pub(crate) fn judge(inputs: Inputs<'_>, request: Request<'_>) -> Verdict {
    let full = evaluate::judge_as_is(inputs, request);
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
            return Some(blocked(evaluate::block_by_bounds(inputs, sized)));
        }
        Some(evaluate::judge_as_is(inputs, sized))
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
fn scaling_up(inputs: Inputs<'_>) -> Vec<JobKey> {
    let ranked = inputs.jobs.may_scale_up().filter_map(|key| {
        let job = inputs.jobs.get(key)?;
        Some((job.queue_now(), pending_as::rank_of(inputs, key, job)))
    });
    let mut ranked: Vec<_> = ranked.collect();
    ranked.sort_by(|a, b| inputs.quota.compare((a.0, &a.1), (b.0, &b.1)));
    ranked.into_iter().map(|(_, rank)| rank.key).collect()
}

fn grows_like(inputs: Inputs<'_>, key: &JobKey) -> Option<(QueueName, usize, Vec<ClusterName>)> {
    let job = inputs.jobs.get(key)?;
    let demand = Arc::as_ptr(job.demand.as_ref()?).addr();
    let shares = &job.released.as_ref()?.admission.shares;
    let clusters = shares.iter().map(|share| share.cluster.clone()).collect();
    Some((job.queue_now().clone(), demand, clusters))
}

/// The share of the most pods by which an elastic job may grow now.
fn largest_growth(inputs: Inputs<'_>, key: &JobKey) -> Option<Share> {
    let freed = |pods: u32| resize::judge_growth_by(inputs, key, pods).ok().flatten();
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
