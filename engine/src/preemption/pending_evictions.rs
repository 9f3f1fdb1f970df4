//! Which jobs a preemptor waits for.
//!
//! It waits for the victims that are evicted for it, and for jobs that terminate already on nodes that it
//! will use, or that are charged where headroom is short. Otherwise it would be evaluated at once, would
//! fail, and would drop its reservation. That activates the next preemptor, and the two would livelock.

use crate::api::charge::{Pools, pools_of};
use crate::backfill::assume::FreedByEnd;
use crate::backfill::{assume, withheld};
use crate::overlay::Overlay;
use crate::placement::request::Request;
use crate::quota::Shortfall;
use crate::state::Inputs;
use facts::{JobKey, Share};
use std::collections::BTreeSet;

/// Jobs that are ending or shrinking, and have to be gone before the request can have `shares`: those on
/// nodes that these use, and in addition as many, first in order, as give back the headroom that is short
/// beside the reservations ahead. Of jobs that would do as well for headroom it waits for the first: if
/// another one is gone sooner, the freed quota activates it.
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
    let ahead = withheld::reservations_ahead(inputs, request);
    let mut overlay = Overlay::beside(inputs, &ahead).with_spares(inputs, request);
    let mut pending_evictions = BTreeSet::new();
    let is_on_used =
        |leaving: &FreedByEnd<'_>| leaving.nodes.keys().any(|node| used.contains(node));
    let (on_used, mut others): (Vec<_>, Vec<_>) = assume::terminating(inputs).partition(is_on_used);
    for leaving in on_used {
        overlay.release(inputs, &leaving);
        pending_evictions.insert(leaving.key.clone());
    }
    let (queue, total, pools) = (request.queue, &request.shape.total, pools_of(shares));
    while let Err(short) = inputs
        .quota
        .check_charge(queue, total, Some(&pools), &overlay)
    {
        let gives = |leaving: &FreedByEnd<'_>| {
            let within = inputs.quota.is_within(leaving.queue, &short.queue);
            within && gives_back(&leaving.charge, &short)
        };
        let Some(first) = others.iter().position(gives) else {
            break;
        };
        let leaving = others.remove(first);
        overlay.release(inputs, &leaving);
        pending_evictions.insert(leaving.key.clone());
    }
    pending_evictions
}

/// True if a charge counts where headroom is short.
fn gives_back(charge: &Pools, short: &Shortfall) -> bool {
    let mut charge = charge.iter();
    charge.any(|((cluster, class), part)| {
        short.counts(cluster, class) && part.amount_of(&short.resource).0 > 0
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::charge::PoolSelector;
    use crate::capacity::testing::resources;
    use crate::quota::ShortfallDetail;
    use facts::{ClusterName, PoolClass, QueueName, ResourceName};

    #[test]
    fn only_a_charge_of_the_class_and_resource_that_is_short_gives_back() {
        let gives = |class: &str, charge: &str| {
            let pool = (ClusterName::from("a"), PoolClass::from(class));
            let short = Shortfall {
                queue: QueueName::from("q"),
                resource: ResourceName::new("nvidia.com/gpu"),
                capability: 8,
                charged: 8,
                needs: 1,
                detail: Box::new(ShortfallDetail {
                    pools: PoolSelector {
                        class: Some(PoolClass::from("gpu")),
                        clusters: None,
                    },
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
