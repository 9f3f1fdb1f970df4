//! Bounds that what is charged passes already: lowered below it, or charged beyond an admission.

use crate::amounts::tally::clamp;
use crate::api::ids::{JobKey, QueueName};
use crate::engine::Engine;
use crate::quota::check::{Detail, Short};
use crate::quota::queues::{Pools, Queues};

impl Engine {
    /// How a bound is passed, of the queue that a released job is charged to or of one above it, in
    /// a resource that the job holds; `None` where none is.
    #[must_use]
    pub fn bound_passed_by(&self, key: &JobKey) -> Option<String> {
        let released = self.jobs.released(key)?;
        let queue = &released.admission.queue;
        let passed = self.quota.passed(queue, &released.pools())?;
        let text = |amount: i128| passed.resource.format(clamp(amount));
        Some(format!(
            "queue {} may use {} {}{} and has {} charged",
            passed.queue,
            passed.resource,
            text(passed.capability),
            passed.scope(),
            text(passed.charged),
        ))
    }
}

impl Queues {
    /// The bound nearest to the queue that what is charged passes, in a resource of `charge`.
    fn passed(&self, queue: &QueueName, charge: &Pools) -> Option<Short> {
        let paths = self.upwards(self.id(queue)?);
        let mut accounts = paths.flat_map(|(_, node)| {
            let accounts = node.accounts.iter();
            accounts.map(move |(scope, account)| (node, *scope, account))
        });
        accounts.find_map(|(node, scope, account)| {
            let of_charge = self.within(scope, charge);
            let (resource, capability) = of_charge.iter().find_map(|(resource, _)| {
                let bound = account.bounds.binding.get(resource)?;
                (account.charged.get(resource) > bound).then_some((resource, bound))
            })?;
            let amounts = (capability, account.charged.get(resource), 0);
            Some(self.named(node, (scope, resource), amounts, Detail::default()))
        })
    }
}
