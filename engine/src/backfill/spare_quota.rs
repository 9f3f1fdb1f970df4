//! What spare nodes count at their queue and at those above it.
//!
//! A spare node counts like what a reservation withholds. Only within what the queue may use and deserves is one kept.

use crate::amounts::totals::ResourceTotals;
use crate::api::charge::Pools;
use crate::backfill::expected_start::jobs_on;
use crate::overlay::Overlay;
use crate::reservation::spares::Spare;
use crate::reservation::store::ReservedNode;
use crate::state::Inputs;
use facts::{QueueName, ResourceName};
use std::collections::BTreeMap;

/// Returns what of a node counts at the queue: its devices, or its CPUs if it has none.
fn counted(node: &ReservedNode) -> ResourceTotals {
    let devices = node.resources.iter();
    let devices = devices.filter(|(name, amount)| name.is_device() && amount.0 > 0);
    let mut sum = ResourceTotals::default();
    for (name, amount) in devices {
        sum.add_amount(name, i128::from(amount.0));
    }
    if sum.is_empty() {
        let cpu = ResourceName::new(ResourceName::CPU);
        sum.add_amount(&cpu, i128::from(node.resources.amount_of(&cpu).0));
    }
    sum
}

/// Returns true if the nodes are within the bounds and the deserved amounts of their queue and of all above it, beside
/// what
/// `others` keep.
pub(super) fn is_within_quota(inputs: Inputs<'_>, others: &Overlay, spare: &Spare) -> bool {
    let mut total = ResourceTotals::default();
    let mut pools: BTreeMap<_, ResourceTotals> = BTreeMap::new();
    for node in &spare.nodes {
        total.add_totals(&counted(node), 1);
        let pool = (node.cluster.clone(), node.class.clone());
        pools.entry(pool).or_default().add_totals(&counted(node), 1);
    }
    let total = total.to_resources();
    let pools: Pools = pools
        .into_iter()
        .map(|(pool, sum)| (pool, sum.to_resources()))
        .collect();
    let (quota, queue) = (&inputs.quota, &spare.queue);
    let fits = |overlay: Overlay| {
        let overlay = overlay.without_lent(inputs, spare);
        let deserves = |above: &QueueName| {
            total.iter().all(|(name, amount)| {
                let unused = match above == queue {
                    true => quota.unused_deserved(above, name),
                    false => quota.unused_named(above, name),
                };
                let kept = overlay.overall_at(above, name);
                unused.is_none_or(|unused| i128::from(amount.0) + kept <= unused)
            })
        };
        quota
            .check_charge(queue, &total, Some(&pools), &overlay)
            .is_ok()
            && quota.path(queue).iter().all(deserves)
    };
    // Guarantees of other queues are left alone as if the others kept nothing, too.
    fits(others.clone()) && fits(Overlay::default())
}

/// Returns true if a node counts at a queue, the spare's own or one above it. Above it, the jobs to which the node is
/// lent are charged for it, as far as they are of a queue below, too.
fn counts_at(inputs: Inputs<'_>, spare: &Spare, node: &ReservedNode, queue: &QueueName) -> bool {
    if *queue == spare.queue || !spare.lent.contains(&node.node) {
        return true;
    }
    let on = jobs_on(inputs, &node.cluster, &node.node);
    let mut borrowers = on.keys().filter(|key| !spare.gangs.contains(**key));
    !borrowers.any(|key| {
        let job = inputs.jobs.get(key);
        job.is_some_and(|job| inputs.quota.is_within(job.queue_now(), queue))
    })
}

impl Overlay {
    /// In addition, without what the jobs to which nodes of a spare are lent are charged for them above its queue:
    /// they are evicted before the nodes are used.
    fn without_lent(mut self, inputs: Inputs<'_>, spare: &Spare) -> Self {
        for queue in inputs.quota.path(&spare.queue) {
            for node in &spare.nodes {
                if !counts_at(inputs, spare, node, &queue) {
                    let pool = (node.cluster.clone(), node.class.clone());
                    for (name, amount) in counted(node).to_resources().iter() {
                        self.relieve(&queue, None, name, amount.0.into());
                        self.relieve(&queue, Some(pool.clone()), name, amount.0.into());
                    }
                }
            }
        }
        self
    }

    /// Keeps the nodes of a spare, and their part of the quota at its queue and above it.
    pub(crate) fn keep_spare(&mut self, inputs: Inputs<'_>, spare: &Spare) {
        for node in &spare.nodes {
            self.node_mut(&node.cluster, &node.node)
                .add(&node.resources, 1);
        }
        for queue in inputs.quota.path(&spare.queue) {
            for node in &spare.nodes {
                if counts_at(inputs, spare, node, &queue) {
                    let sum = counted(node);
                    let pool = (node.cluster.clone(), node.class.clone());
                    self.withhold(&queue, None, &sum);
                    self.withhold(&queue, Some(pool), &sum);
                }
            }
        }
    }
}
