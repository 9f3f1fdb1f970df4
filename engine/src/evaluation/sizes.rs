//! Verdicts on elastic gangs: the largest size that may be admitted, and how far one may scale up.
//!
//! A gang is evaluated at full size first, then by bisection at smaller sizes. If no size can be
//! admitted, the gang is blocked by what blocks its smallest size.

use crate::amounts::bisect::boundary;
use crate::evaluation::{growth, pending_as, verdict};
use crate::jobs::elastic::Sizes;
use crate::placement::request::{Request, Verdict};
use crate::state::Inputs;
use facts::{ClusterName, JobKey, QueueName, Share};
use std::sync::Arc;

/// What of an elastic job decides whether it may scale up.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct GrowsLike {
    queue: QueueName,
    /// Its user and its namespace, where the queue limits what they have.
    user: Option<Arc<str>>,
    namespace: Option<Arc<str>>,
    /// The address of its demand.
    demand: usize,
    clusters: Vec<ClusterName>,
}

/// Evaluates a pending job: at full size, else at the largest size that can be admitted.
pub(crate) fn evaluate(inputs: Inputs<'_>, request: Request<'_>) -> Verdict {
    let full = verdict::evaluate_at_size(inputs, request, request.shape);
    let Some(sizes) = Sizes::of(&request.shape.demand) else {
        return full;
    };
    if matches!(full, Verdict::Go(_)) {
        return full;
    }
    let evaluated = |beyond: u32| {
        let shape = &request.shape.resized(sizes.at(beyond))?;
        let sized = Request { shape, ..request };
        Some(verdict::evaluate_at_size(inputs, sized, request.shape))
    };
    let least = match evaluated(sizes.least) {
        Some(Verdict::Go(shares)) => shares,
        Some(blocked) => return blocked,
        None => return full,
    };
    // A gang that fits at one size is assumed to fit at every smaller one.
    let found = |beyond| match evaluated(beyond) {
        Some(Verdict::Go(shares)) => Some(shares),
        _ => None,
    };
    let (_, largest) = boundary((sizes.least, least), sizes.most, found);
    Verdict::Go(largest)
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

/// Jobs with equal results scale up alike: if one cannot, neither can the others.
pub(crate) fn grows_like(inputs: Inputs<'_>, key: &JobKey) -> Option<GrowsLike> {
    let job = inputs.jobs.get(key)?;
    let demand = Arc::as_ptr(job.demand.as_ref()?).addr();
    let shares = &job.released.as_ref()?.admission.shares;
    let clusters = shares.iter().map(|share| share.cluster.clone()).collect();
    let queue = job.queue_now();
    let limited = inputs.quota.limited_owners(queue);
    Some(GrowsLike {
        queue: queue.clone(),
        user: limited.users.then(|| Arc::clone(&job.user)),
        namespace: limited.namespaces.then(|| Arc::clone(&key.namespace)),
        demand,
        clusters,
    })
}

/// The largest share by which an elastic job may scale up now.
pub(crate) fn largest_growth(inputs: Inputs<'_>, key: &JobKey) -> Option<Share> {
    let share_of = |pods: u32| growth::evaluate_growth_by(inputs, key, pods).ok().flatten();
    let missing = inputs.jobs.get(key)?.pods_missing();
    let one = share_of(1)?;
    if missing <= 1 {
        return Some(one);
    }
    // Mostly all missing pods fit.
    share_of(missing).or_else(|| Some(boundary((1, one), missing, share_of).1))
}
