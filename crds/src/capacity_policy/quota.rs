//! The quota of a queue over all pools: what its Queue and its CapacityPolicy state together.
//!
//! Either alone is enough. Where both state an amount and differ, the lower one counts, so that no edit of one of them
//! lifts a quota that the other states. A Queue that Muster created for a policy is one only while the policy states
//! the queue: without it the queue would have no bounds.

use super::fact::Checks;
use super::{CapacityPolicy, CapacityPolicyBounds};
use crate::loose::{QuantityList, QuantityText};
use crate::names::QUEUE_OF_POLICY_ANNOTATION;
use crate::queue::{Guarantee, Queue, QueueSpec, ROOT};
use facts::ResourceName;
use std::collections::BTreeSet;

#[cfg(test)]
mod tests;

/// A queue as its objects state it together.
#[derive(Debug, Clone, PartialEq)]
pub struct StatedQueue {
    /// The Queue, with what only the policy states.
    pub queue: Queue,
    /// Each value that both state differently, with both objects.
    pub conflicts: Vec<String>,
}

impl CapacityPolicy {
    /// Returns true if it states the queue by itself, so that there is a queue also without a Queue.
    #[must_use]
    pub fn states_queue(&self) -> bool {
        self.spec.parent.is_some() || !super::is_unstated(&self.spec.resources)
    }

    /// Returns the quotas over all pools that can be read; [`Self::to_fact`] reports the others.
    #[must_use]
    pub fn bounds(&self) -> &[CapacityPolicyBounds] {
        self.spec.resources.items()
    }

    /// Checks the quotas over all pools, which count with those of the Queue.
    pub(super) fn check_quota(&self, checks: &mut Checks) {
        let mut names = BTreeSet::new();
        for (at, bounds) in self.bounds().iter().enumerate() {
            let name = &bounds.name;
            if name.is_empty() {
                checks.fail(format!("spec.resources[{at}].name is missing"));
            } else if !names.insert(name) {
                checks.fail(format!("spec.resources[{at}].name: {name} is there twice"));
            }
        }
        checks.bounds("spec.resources", "spec.resources", &self.spec.resources);
    }
}

impl Queue {
    /// Returns the Queue that Muster creates for a policy that states its queue.
    #[must_use]
    pub fn of_policy(name: &str) -> Self {
        let mut queue = Self::default();
        queue.metadata.name = Some(name.to_owned());
        let made = (QUEUE_OF_POLICY_ANNOTATION.to_owned(), "true".to_owned());
        queue.metadata.annotations = Some([made].into());
        queue
    }

    /// Returns true if Muster created it for a policy, and nobody has stated an amount in it since.
    #[must_use]
    pub fn is_of_policy(&self) -> bool {
        let annotations = self.metadata.annotations.as_ref();
        let made = annotations.is_some_and(|all| all.contains_key(QUEUE_OF_POLICY_ANNOTATION));
        let guarantee = self.spec.guarantee.as_ref();
        made && self.spec.capability.is_empty()
            && self.spec.deserved.is_empty()
            && guarantee.is_none_or(|guarantee| guarantee.resource.is_empty())
    }

    /// Returns the queue with what its policy states; `None` if it was created for a policy that does not state the
    /// queue any more.
    #[must_use]
    pub fn with_policy(&self, policy: Option<&CapacityPolicy>) -> Option<StatedQueue> {
        let mut stated = StatedQueue {
            queue: self.clone(),
            conflicts: Vec::new(),
        };
        let Some(policy) = policy.filter(|policy| policy.states_queue()) else {
            return (!self.is_of_policy()).then_some(stated);
        };
        stated.add_parent(policy);
        for bounds in policy.bounds() {
            stated.add("capability", bounds, &bounds.capability, |spec| {
                &mut spec.capability
            });
            stated.add("deserved", bounds, &bounds.deserved, |spec| {
                &mut spec.deserved
            });
            stated.add("guarantee", bounds, &bounds.guarantee, |spec| {
                let guarantee = spec.guarantee.get_or_insert_with(Guarantee::default);
                &mut guarantee.resource
            });
        }
        Some(stated)
    }
}

impl StatedQueue {
    fn name(&self) -> &str {
        self.queue.metadata.name.as_deref().unwrap_or_default()
    }

    /// Takes the parent of the policy where the Queue has none. Otherwise that of the Queue counts.
    fn add_parent(&mut self, policy: &CapacityPolicy) {
        let stated = policy.spec.parent.as_deref();
        let Some(stated) = stated.filter(|parent| !parent.is_empty()) else {
            return;
        };
        let own = self.queue.spec.parent.as_deref();
        // Volcano writes the root where nothing is stated.
        let own = own.filter(|parent| !parent.is_empty() && *parent != ROOT);
        match own {
            None => self.queue.spec.parent = Some(stated.to_owned()),
            Some(own) if own != stated => {
                let name = self.name();
                let conflict = format!(
                    "parent is {own} in Queue {name} and {stated} in spec.parent of CapacityPolicy {name}: that of the \
                     Queue counts"
                );
                self.conflicts.push(conflict);
            }
            Some(_) => {}
        }
    }

    /// Adds an amount of the policy to a list of the Queue.
    fn add(
        &mut self,
        field: &str,
        bounds: &CapacityPolicyBounds,
        amount: &Option<QuantityText>,
        list: fn(&mut QueueSpec) -> &mut QuantityList,
    ) {
        let Some(amount) = amount else { return };
        let list = list(&mut self.queue.spec);
        let Some(own) = list.get(&bounds.name).cloned() else {
            list.insert(bounds.name.clone(), amount.clone());
            return;
        };
        let resource = ResourceName::new(&bounds.name);
        // An amount that cannot be read makes its own object invalid.
        let amounts = (resource.amount(&own.0), resource.amount(&amount.0));
        let (Ok(in_queue), Ok(in_policy)) = amounts else {
            return;
        };
        if in_queue == in_policy {
            return;
        }
        if in_policy < in_queue {
            list.insert(bounds.name.clone(), amount.clone());
        }
        let name = self.name();
        let conflict = format!(
            "{field} of {resource} is {} in Queue {name} and {} in spec.resources of CapacityPolicy {name}: the lower \
             counts",
            own.0, amount.0
        );
        self.conflicts.push(conflict);
    }
}
