//! Whether the pods of a job can find each other from different clusters.
//!
//! What resolves between clusters is said by capacity policies, for a queue and those below it.
//! A job that must meet is split only where its queue has an address for every cluster; else it
//! runs in one, and its owner is told why.

use crate::core::Core;
use crate::fact::Job;
use crate::notes::Note;
use crate::reconcile::Look;
use crds::karmada::ResourceBinding;
use engine::facts::Admission;
use engine::{QueueName, Reason};
use std::collections::BTreeSet;
use workload::{Addresses, Meeting, Reach};

impl Core {
    /// Why pods of a job of `queue` could not find each other from every cluster, if so.
    pub(crate) fn apart(&self, queue: &QueueName, meeting: Meeting) -> Option<String> {
        let Some((name, addresses)) = self.addresses(queue) else {
            return Some(format!(
                "spec.placement.addresses of capacitypolicy {queue}, or of one above it, does not say how its pods reach those of other clusters"
            ));
        };
        let missing = addresses.missing(self.engine.cluster_names(), meeting)?;
        let which = match meeting {
            Meeting::All => " with {host} in it, for each of its pods to be found",
            Meeting::Nobody | Meeting::First => "",
        };
        Some(format!(
            "spec.placement.addresses of capacitypolicy {name} has no address for cluster {missing}{which}"
        ))
    }

    /// How pods of the job of `binding` are reached from other clusters, as far as that is known.
    pub(crate) fn reach(&self, binding: &ResourceBinding, admission: &Admission) -> Reach {
        let ask = self.world.ask_of(binding);
        let (Some(ask), Some((_, addresses))) = (ask, self.addresses(&admission.queue)) else {
            return Reach::default();
        };
        let namespace = binding.metadata.namespace.as_deref().unwrap_or_default();
        ask.reach(&addresses, namespace, &admission.shares)
    }

    /// Remembers a job whose split hangs on clusters and policies, and tells its owner where
    /// that keeps it from being split.
    pub(crate) fn note_meeting(&mut self, look: &Look<'_>, job: &Job) {
        let meeting = job.ask.as_ref().map(|ask| ask.meeting);
        if meeting.unwrap_or_default() == Meeting::Nobody {
            return;
        }
        self.meeting.insert(look.key.clone());
        // Who leaves it to the queue has not asked for it.
        let asks = job.ask.as_ref().is_some_and(|ask| ask.asks_to_be_split);
        if let Some(why) = job.unsplit.as_ref().filter(|_| asks) {
            let message = workload::cannot_meet(why);
            self.note(
                look,
                Note::warning(Reason::InvalidTemplate, "Validate", message),
            );
        }
    }

    /// The addresses that hold for a queue, its own or of the nearest above it, and whose.
    fn addresses(&self, queue: &QueueName) -> Option<(QueueName, Addresses)> {
        let mut seen = BTreeSet::new();
        let mut name = Some(queue.clone());
        while let Some(queue) = name.filter(|queue| seen.insert(queue.clone())) {
            let policy = self.world.policies.get(&queue);
            let addresses = policy.map(|policy| policy.addresses());
            if let Some(addresses) = addresses.filter(|addresses| !addresses.is_empty()) {
                return Some((queue, addresses));
            }
            let above = self.world.queues.get(&queue);
            name = above.and_then(|queue| queue.spec.parent.as_ref().map(QueueName::new));
        }
        None
    }
}
