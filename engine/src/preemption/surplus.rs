//! The parts in which an elastic gang may be evicted: its surplus in steps, and all that is left of it then.

use crate::api::charge::{Pools, pools_of};
use crate::backfill::assume;
use crate::capacity::Holdings;
use crate::jobs::elastic::least_counts;
use crate::jobs::job::{Job, Released};
use crate::jobs::resize::{cuts_to, spare};
use crate::jobs::terminating::Cut;
use crate::state::Inputs;
use facts::{ClusterName, JobKey, NodeName};

/// Most candidates into which the surplus of one gang is divided.
const STEPS: u32 = 64;

/// Some pods of a job, or all that is left of it without those.
#[derive(Debug)]
pub(super) struct PodSurplus {
    /// The pods; `None`: all that is left.
    pub(super) cut: Option<Cut>,
    /// The candidate of the same job that must be evicted before.
    pub(super) after: Option<usize>,
    /// What is charged no more without it.
    pub(super) charge: Pools,
    /// What it would be charged when it comes back, if that is not the same.
    pub(super) again: Option<Pools>,
    /// What is free on nodes without it.
    pub(super) nodes: Holdings,
}

/// The candidates of one job: each step, then all that is left of it.
pub(super) fn divided(
    inputs: Inputs<'_>,
    key: &JobKey,
    (job, released): (&Job, &Released),
    steps: Vec<Cut>,
) -> Vec<PodSurplus> {
    let mut nodes = inputs.capacity.holdings(key);
    if !released.leaving.is_empty() {
        // What leaves already counts as gone.
        let leaving = assume::leaving(inputs, key).map(|leaving| leaving.nodes);
        for (node, held) in leaving.into_iter().flatten() {
            nodes.entry(node).or_default().add_totals(&held, -1);
        }
    }
    let again = pools_of(&released.admission.shares);
    let mut rest = released.clone();
    let on: Vec<(ClusterName, NodeName)> = nodes.keys().cloned().collect();
    let mut parts = Vec::new();
    for cut in steps {
        let basis = rest.basis.clone().or_else(|| job.demand.clone());
        let Some((leaving, from)) = basis.and_then(|basis| rest.cut(&basis, &cut)) else {
            break;
        };
        let mut freed = Holdings::new();
        let mut left = leaving.count;
        let mut free = |at: &(ClusterName, NodeName), count: u32| {
            let held = nodes.entry(at.clone()).or_default();
            let count = held.fits(&leaving.request, count);
            held.add(&leaving.request, -i64::from(count));
            let freed = freed.entry(at.clone()).or_default();
            freed.add(&leaving.request, i64::from(count));
            count
        };
        for (node, count) in from {
            left -= free(&(cut.cluster.clone(), node), count.min(left));
        }
        // A restored plan names no nodes: pods leave where they are seen.
        for at in on.iter().rev().filter(|at| at.0 == cut.cluster) {
            left -= free(at, left);
        }
        let charge: Pools = leaving
            .charge
            .into_iter()
            .map(|(class, part)| ((cut.cluster.clone(), class), part))
            .collect();
        let part = PodSurplus {
            cut: Some(cut),
            after: None,
            charge,
            again: None,
            nodes: freed,
        };
        parts.push(part);
    }
    let left = PodSurplus {
        cut: None,
        after: None,
        charge: pools_of(&rest.admission.shares),
        again: Some(again),
        nodes,
    };
    parts.push(left);
    parts
}

/// The steps by which an elastic gang shrinks to its minimum: the last role first, and of it the last part.
/// If overrides enforce its parts, each part keeps a pod.
pub(super) fn surplus(job: &Job, released: &Released) -> Vec<Cut> {
    let Some(demand) = job.demand.as_ref() else {
        return Vec::new();
    };
    let Some(least) = least_counts(demand) else {
        return Vec::new();
    };
    let shares = &released.admission.shares;
    let mut spare = spare(demand, shares);
    let mut cuts = Vec::new();
    for (role, least) in demand.roles.iter().zip(least).rev() {
        let pods = shares.iter().map(|share| share.pods_of(&role.name));
        let each = pods
            .sum::<u32>()
            .saturating_sub(least)
            .div_ceil(STEPS)
            .max(1);
        for cut in cuts_to(shares, &role.name, least, &mut spare) {
            let mut left = cut.count;
            while left > 0 {
                let count = each.min(left);
                left -= count;
                cuts.push(Cut {
                    count,
                    ..cut.clone()
                });
            }
        }
    }
    cuts
}
