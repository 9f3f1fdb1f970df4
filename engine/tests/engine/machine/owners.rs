//! S1 by owners: no admission and no growth exceeds what a queue of the path lets one user or one namespace have.

use super::model::Model;
use crate::world::res;
use engine::facts::{Admission, FairShareWithin, JobFact};
use engine::{JobKey, QueueName, Resources};

impl Model {
    /// Limits the owners in a queue of the tree, inner ones included, and orders its jobs by users or not.
    pub fn limit_owners(
        &mut self,
        queue: usize,
        (per_user, per_namespace): (Option<u32>, Option<u32>),
        by_user: bool,
    ) {
        let names = self.layout.tree;
        let name = QueueName::from(names[queue % names.len()].0);
        let gpus = |most: Option<u32>| {
            most.map_or_else(Resources::new, |most| res(&format!("gpu {most}")))
        };
        let mut fact = self.policy_of(&name);
        fact.limits.resources_per_user = gpus(per_user);
        fact.limits.resources_per_namespace = gpus(per_namespace);
        fact.fair_share.within = by_user.then_some(FairShareWithin::User);
        self.policy(fact);
    }

    pub fn check_owners(&self, fact: &JobFact, admission: &Admission) {
        let asked = admission.charge().unwrap();
        let asks = |resource: &_| asked.amount_of(resource).0 > 0;
        for name in self.path(&admission.queue) {
            let Some(policy) = self.policies.get(&name) else {
                continue;
            };
            let of_user = |key: &JobKey| self.jobs.get(key).is_some_and(|of| of.user == fact.user);
            let of_namespace = |key: &JobKey| key.namespace == fact.key.namespace;
            let limits = &policy.limits;
            for (resource, most) in limits.resources_per_user.iter().filter(|(of, _)| asks(of)) {
                let has = self.held_by(&name, &of_user, |held| held.amount_of(resource).0);
                assert!(
                    has <= most.0,
                    "{} has {has} in {name} of {most:?}",
                    fact.user
                );
            }
            let limited = limits.resources_per_namespace.iter();
            for (resource, most) in limited.filter(|(of, _)| asks(of)) {
                let has = self.held_by(&name, &of_namespace, |held| held.amount_of(resource).0);
                assert!(
                    has <= most.0,
                    "the namespace has {has} in {name} of {most:?}"
                );
            }
        }
    }

    /// Returns what the jobs of some keys are charged in a queue and below it.
    fn held_by(
        &self,
        queue: &QueueName,
        of: &dyn Fn(&JobKey) -> bool,
        counts: impl Fn(&Resources) -> i64,
    ) -> i64 {
        let held = self.charges_by_job().filter(|(key, _)| of(key));
        let here = held.filter(|(_, held)| self.path(&held.queue).contains(queue));
        here.map(|(_, held)| counts(&held.charge().unwrap())).sum()
    }
}
