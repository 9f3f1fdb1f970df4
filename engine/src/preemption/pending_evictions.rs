//! The jobs that a preemptor waits for.
//!
//! Besides its own victims, these are terminating jobs on nodes that it will use, and those that are
//! charged where its queue, or one above it, lacks headroom. Otherwise it would be re-evaluated at
//! once, fail and drop its reservation; two preemptors would wake each other for ever.

use crate::api::charge::{Pools, pools_of};
use crate::api::facts::Share;
use crate::api::ids::{JobKey, QueueName};
use crate::backfill::withheld;
use crate::placement::plan::View;
use crate::placement::request::Request;
use crate::placement::without;
use crate::quota::Shortfall;
use crate::state::Inputs;
use std::collections::BTreeSet;

/// Jobs that are ending or shrinking, and have to be gone before the request can have `shares`:
/// those on nodes that these use, and as many more, first in order, as give back the headroom
/// that it lacks beside what it has to leave alone. Of jobs that would do as well for headroom
/// it waits for the first: if another is gone sooner, its quota wakes it.
pub(crate) fn pending_evictions_for(
    inputs: Inputs<'_>,
    request: Request<'_>,
    shares: &[Share],
) -> BTreeSet<JobKey> {
    let used = shares.iter().flat_map(|share| {
        let slots = share.slots.iter();
        slots.map(|slot| (share.cluster.clone(), slot.node.clone()))
    });
    let used: BTreeSet<_> = used.collect();
    let mut view = View {
        kept: withheld::headroom_reserved(inputs, &withheld::reservations_ahead(inputs, request)),
        ..View::now()
    };
    let mut pending_evictions = BTreeSet::new();
    let mut others = Vec::new();
    for key in inputs.jobs.preemptible().terminating() {
        let Some((queue, charge, nodes)) = without::going(inputs, key) else {
            continue;
        };
        if nodes.keys().any(|node| used.contains(node)) {
            without::without(inputs, &mut view, &queue, &charge);
            pending_evictions.insert(key.clone());
        } else {
            others.push((key, queue, charge));
        }
    }
    let pools = pools_of(shares);
    while let Err(short) = check_with(inputs, request, &pools, &view) {
        let gives = |(_, queue, charge): &(&JobKey, QueueName, Pools)| {
            inputs.quota.is_within(queue, &short.queue) && gives_back(charge, &short)
        };
        let Some(first) = others.iter().position(gives) else {
            break;
        };
        let (key, queue, charge) = others.remove(first);
        without::without(inputs, &mut view, &queue, &charge);
        pending_evictions.insert(key.clone());
    }
    pending_evictions
}

fn check_with(
    inputs: Inputs<'_>,
    request: Request<'_>,
    pools: &Pools,
    view: &View,
) -> Result<(), Shortfall> {
    let total = &request.shape.total;
    inputs.quota.check_total(request.queue, total, &view.kept)?;
    inputs.quota.check_pools(request.queue, pools, &view.kept)
}

/// Whether a charge counts where headroom is short.
fn gives_back(charge: &Pools, short: &Shortfall) -> bool {
    let mut charge = charge.iter();
    charge.any(|((cluster, class), part)| {
        short.counts(cluster, class) && part.amount_of(&short.resource).0 > 0
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::amounts::resources::ResourceName;
    use crate::api::ids::{ClusterName, PoolClass};
    use crate::capacity::testing::resources;
    use crate::quota::ShortfallDetail;

    #[test]
    fn only_a_charge_of_the_class_and_resource_that_is_short_gives_back() {
        let gives = |class: &str, charge: &str| {
            let pool = (ClusterName::from("a"), PoolClass::from(class));
            let short = Shortfall {
                queue: QueueName::from("q"),
                class: Some(PoolClass::from("gpu")),
                resource: ResourceName::new("nvidia.com/gpu"),
                capability: 8,
                charged: 8,
                needs: 1,
                detail: Box::new(ShortfallDetail {
                    beyond: 1,
                    ..ShortfallDetail::default()
                }),
            };
            gives_back(&Pools::from([(pool, resources(charge))]), &short)
        };
        assert!(gives("gpu", "cpu 8, nvidia.com/gpu 1"));
        assert!(!gives("gpu", "cpu 8"));
        assert!(!gives("cpu", "cpu 8, nvidia.com/gpu 1"));
    }
}
