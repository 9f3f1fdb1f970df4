//! Marks the jobs that a change of what members apply to pods concerns.

use crate::facts::member_rules::ChangedRules;
use crate::mirror::binding::admitted_record;
use crate::reconcile::Reconciler;
use engine::{ClusterName, Time};
use members::RulesUpdate;

impl Reconciler {
    /// Takes what a member applies to pods.
    pub(crate) fn member_rules(&mut self, cluster: ClusterName, rules: RulesUpdate, now: Time) {
        match self.fleet.member_rules.update(cluster, rules) {
            ChangedRules::All => self
                .out
                .work_queue
                .extend(self.jobs.last_facts.keys().cloned()),
            ChangedRules::Namespace(name) => self.out.work_queue.extend(self.mirror.jobs_in(&name)),
            ChangedRules::Quotas => self.look_at_quotas(now),
        }
    }

    /// Marks the pending jobs of namespaces whose ResourceQuotas have changed, each namespace once in a while.
    pub(crate) fn look_at_quotas(&mut self, now: Time) {
        for name in self.fleet.member_rules.take_due(now) {
            let jobs = self.mirror.jobs_in(&name).into_iter();
            let pending = jobs.filter(|key| {
                let binding = self.mirror.bindings().get(key);
                binding.is_some_and(|binding| admitted_record(binding).is_none())
            });
            self.out.work_queue.extend(pending);
        }
    }
}
