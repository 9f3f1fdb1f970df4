//! Capacity and usage as they would be without what some jobs hold.
//!
//! What-if views are built here and only here: preemption frees its victims, and reservations free
//! what expected ends give back.

use crate::api::charge::Pools;
use crate::api::event::Progress;
use crate::api::ids::{JobKey, QueueName};
use crate::capacity::Holdings;
use crate::placement::plan::View;
use crate::state::Inputs;

/// What comes free once a job that is ending is gone, or what leaves it is.
pub(crate) fn going(inputs: Inputs<'_>, key: &JobKey) -> Option<(QueueName, Pools, Holdings)> {
    let released = inputs.jobs.released(key)?;
    let queue = released.admission.queue.clone();
    let mut nodes = inputs.capacity.holdings(key);
    if released.progress == Progress::Ending {
        return Some((queue, released.pools(), nodes));
    }
    // Of a gang that shrinks, its plan says where it stays.
    let basis = released.basis.as_deref()?;
    for share in &released.admission.shares {
        for slot in &share.slots {
            let role = basis.roles.iter().find(|role| role.name == slot.role)?;
            let held = nodes.get_mut(&(share.cluster.clone(), slot.node.clone()));
            if let Some(held) = held {
                let count = held.fits(&role.request, slot.count);
                held.add(&role.request, -i64::from(count));
            }
        }
        if share.slots.is_empty() {
            nodes.retain(|(cluster, _), _| *cluster != share.cluster);
        }
    }
    let mut charge = Pools::new();
    for leaving in &released.leaving {
        for (class, part) in &leaving.charge {
            let pool = (leaving.cluster.clone(), class.clone());
            let sum = charge.entry(pool).or_default();
            *sum = sum.checked_add(part).unwrap_or_else(|| part.clone());
        }
    }
    Some((queue, charge, nodes))
}

/// Takes a charge off what a view shows as charged.
pub(crate) fn without(inputs: Inputs<'_>, view: &mut View, queue: &QueueName, charge: &Pools) {
    view.kept.supposes = true;
    for queue in inputs.quota.path(queue) {
        view.kept.book(&queue, charge, -1);
    }
}

/// Takes what is leaving off what a view shows as used.
pub(crate) fn off_nodes(view: &mut View, nodes: Holdings) {
    for ((cluster, node), held) in nodes {
        let cluster = view.nodes.entry(cluster).or_default();
        cluster.entry(node).or_default().add_totals(&held, -1);
    }
}
