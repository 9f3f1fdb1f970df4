//! Fault policies: their rules go to the engine, in the order of their names and before Muster's own.

use crate::reconcile::Reconciler;
use crds::fault_policy::{FaultPolicy, rules_in_force};
use engine::Event;
use runtime::watch::Delta;

impl Reconciler {
    /// Files a fault policy, and gives the engine the rules in force.
    pub(crate) fn fault_policy(&mut self, delta: Delta<FaultPolicy>) {
        let same = match delta {
            Delta::Upserted(policy) => {
                let spec = policy.spec.clone();
                let seen = self.mirror.put_fault_policy(policy);
                seen.is_some_and(|seen| seen.spec == spec)
            }
            Delta::Gone(object) => {
                self.mirror.drop_fault_policy(&object.name);
                false
            }
            // Muster's own rules hold even if there is no policy.
            Delta::Listed => false,
        };
        if !same {
            let policies = self.mirror.fault_policies().values();
            let breakers = policies.clone().filter_map(|policy| policy.breaker().ok()?);
            self.fleet.breakers.set(breakers.collect());
            let rules = rules_in_force(policies);
            self.apply(Event::FaultRulesChanged(rules));
        }
    }
}
