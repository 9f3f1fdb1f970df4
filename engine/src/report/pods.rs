//! The pods of one job: those that are observed, and those for which capacity is held.

use crate::state::Inputs;
use facts::{ClusterName, JobKey, Leaving, Resources, Slot};

/// The pods of a job, of whichever attempt, read-only. There are none of a job that is not known.
#[derive(Debug, Clone, Copy)]
pub struct PodsView<'a> {
    pub(crate) inputs: Inputs<'a>,
    pub(crate) key: &'a JobKey,
}

impl<'a> PodsView<'a> {
    /// The request of those in a cluster that have not ended.
    #[must_use]
    pub fn request_in(self, cluster: &ClusterName) -> Resources {
        self.inputs.capacity.requested(self.key, cluster)
    }

    /// The number of the job's `of` pods in a cluster that are bound to nodes and have not been lost, or ended by
    /// themselves and need no other in their place.
    #[must_use]
    pub fn bound_in(self, cluster: &ClusterName, of: u32) -> u32 {
        self.inputs.capacity.present_pods(self.key, cluster, of)
    }

    /// Where capacity is held for pods of an admitted job that are not bound yet, or are to replace lost ones.
    #[must_use]
    pub fn assumed(self) -> Vec<(ClusterName, Slot)> {
        let assumption = self.inputs.capacity.assumed().get(self.key).into_iter();
        let each = assumption.flat_map(|assumption| {
            assumption.assumed.iter().filter_map(|pod| {
                let slot = Slot {
                    node: pod.node.clone()?,
                    role: assumption.demand.roles[pod.role].name.clone(),
                    count: pod.count,
                };
                Some((pod.cluster.clone(), slot))
            })
        });
        each.collect()
    }

    /// The terminating pods of an admitted job that are still charged.
    #[must_use]
    pub fn leaving(self) -> &'a [Leaving] {
        let released = self.inputs.jobs.released(self.key);
        released.map_or(&[], |job| &job.leaving)
    }

    /// The longest grace period in seconds of those that still use capacity, in clusters and on nodes that can be
    /// seen; `None` if there are none.
    #[must_use]
    pub fn longest_grace(self) -> Option<u32> {
        self.inputs.capacity.grace_of_pods_left(self.key)
    }

    /// Returns true if a running job has fewer pods than it needs.
    #[must_use]
    pub fn are_too_few(self) -> bool {
        let released = self.inputs.jobs.released(self.key);
        released.is_some_and(|released| released.loss.is_some())
    }
}
