//! How far the queues of a job's path are from what they deserve: facts for messages.

use crate::state::Inputs;
use facts::{QueueName, ResourceName, Resources};

/// How much less than it deserves one queue has and what another has, where their paths diverge, of the first
/// requested resource of which it has less.
pub(crate) fn gaps(
    inputs: Inputs<'_>,
    preemptor: &QueueName,
    victim: &QueueName,
    requested: &Resources,
) -> Option<String> {
    let (preemptor, victim) = inputs.quota.id(preemptor).zip(inputs.quota.id(victim))?;
    let (preemptor, victim) = inputs.quota.lca_children(preemptor, victim)?;
    let [preemptor, victim] = [preemptor, victim].map(|id| inputs.quota.name(id));
    let of = |queue| (inputs.quota.charged(queue), inputs.quota.deserved(queue));
    let ((has, deserves), (holds, owns)) = (of(preemptor), of(victim));
    let (name, due) = deserves.iter().find(|(name, due)| {
        let competes = name.as_str() != ResourceName::PODS;
        competes && requested.amount_of(name).0 > 0 && has.amount_of(name) < *due
    })?;
    Some(format!(
        "queue {} has {name} {} of the {} that it deserves, queue {} has {} and deserves {}",
        preemptor,
        name.format(has.amount_of(name)),
        name.format(due),
        victim,
        name.format(holds.amount_of(name)),
        name.format(owns.amount_of(name)),
    ))
}
