//! Verdicts on admitted jobs that need more pods.

use crate::amounts::totals::ResourceTotals;
use crate::api::charge::pools_of;
use crate::backfill::withheld;
use crate::capacity::{Need, NodeView};
use crate::evaluation::pending_as;
use crate::overlay::Overlay;
use crate::pending::shapes::RequestShape;
use crate::placement::plan;
use crate::placement::request::Request;
use crate::quota::OwnedRequest;
use crate::state::Inputs;
use facts::{JobKey, Resources, Share};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The share by which a job may grow now; `Ok(None)` if it has all its pods.
///
/// # Errors
/// What blocks it, in words.
pub(crate) fn evaluate_growth(inputs: Inputs<'_>, key: &JobKey) -> Result<Option<Share>, String> {
    evaluate_growth_by(inputs, key, u32::MAX)
}

/// The share by which a job may grow now, with at most `most` pods.
///
/// # Errors
/// What blocks it, in words.
pub(crate) fn evaluate_growth_by(
    inputs: Inputs<'_>,
    key: &JobKey,
    most: u32,
) -> Result<Option<Share>, String> {
    let Some(job) = inputs.jobs.get(key) else {
        return Ok(None);
    };
    let (Some(demand), Some(released)) = (&job.demand, job.released.as_deref()) else {
        return Ok(None);
    };
    let needs = job.missing(most);
    if needs.is_empty() {
        return Ok(None);
    }
    let mut extra = ResourceTotals::default();
    let shares = &released.admission.shares;
    for need in &needs {
        // Which of its clusters takes them is not known yet.
        let in_shares = shares
            .iter()
            .map(|share| need.role.request_in(&share.cluster));
        let largest = in_shares.fold(need.role.request.clone(), |largest, request| {
            Resources::max(&largest, request)
        });
        extra.add(&largest, i64::from(need.count));
    }
    let shape = RequestShape {
        demand: Arc::clone(demand),
        total: extra.to_resources(),
        duration: pending_as::declared(job),
        user: None,
        namespace: None,
        max_clusters: None,
        avoid: BTreeSet::new(),
        preempts: false,
    };
    let queue = &released.admission.queue;
    let more = OwnedRequest {
        queue,
        owner: job.owner(key),
        request: &shape.total,
    };
    let within = inputs.quota.check_owner(more);
    within.map_err(|reached| reached.message)?;
    let rank = pending_as::rank_of(inputs, key, job);
    let request = Request {
        queue,
        rank: &rank,
        shape: &shape,
        verbose: false,
    };
    growth_of(inputs, request, shares, &needs).map(Some)
}

/// A share for all of `needs` in the first cluster of `shares` that has capacity for it.
fn growth_of(
    inputs: Inputs<'_>,
    request: Request<'_>,
    shares: &[Share],
    needs: &[Need<'_>],
) -> Result<Share, String> {
    if let Some(deleted) = inputs.quota.is_deleted(request.queue) {
        return Err(deleted);
    }
    let ahead = if request.shape.demand.elastic {
        other_owners(inputs, &request.rank.key)
    } else {
        withheld::reservations_ahead(inputs, request)
    };
    let overlay = Overlay::beside(inputs, &ahead).with_spares(inputs, request);
    let (queue, total) = (request.queue, &request.shape.total);
    let total = inputs.quota.check_total(queue, total, &overlay);
    total.map_err(|short| short.message(&inputs.quota))?;
    let mut why = "it is placed nowhere".to_owned();
    for share in shares {
        let (key, demand) = (&request.rank.key, &request.shape.demand);
        let standing = inputs.capacity.standing(key, &share.cluster, demand, true);
        let node_view = NodeView::of(&overlay).beside(&standing);
        let packing = inputs.capacity.pack(&share.cluster, needs, node_view);
        if let Some(lack) = packing.lack {
            why = format!(
                "{} has room for {} of {} more pods",
                share.cluster, lack.placed, lack.wanted
            );
            continue;
        }
        let more = plan::share_of(inputs, &share.cluster, &request.shape.demand, &packing);
        let pools = pools_of(std::slice::from_ref(&more));
        match inputs.quota.check_pools(queue, &pools, &overlay) {
            Ok(()) => return Ok(more),
            Err(short) => why = short.message(&inputs.quota),
        }
    }
    Err(why)
}

/// The owners of all reservations but that of `key`. Elastic growth uses nothing that is reserved.
fn other_owners<'a>(inputs: Inputs<'a>, key: &JobKey) -> Vec<&'a JobKey> {
    let owners = inputs
        .reservations
        .iter()
        .map(|reservation| &reservation.rank.key);
    owners.filter(|owner| *owner != key).collect()
}
