//! The pods of one job: those that are observed, and those for which capacity is held.

use crate::capacity::PodsLeft;
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

    /// Those that are left, ended or not, in clusters and on nodes that can be seen.
    #[must_use]
    pub fn left(self) -> Vec<PodsLeft> {
        self.inputs.capacity.pods_left(self.key)
    }

    /// Returns true if a running job has fewer pods than it needs.
    #[must_use]
    pub fn are_too_few(self) -> bool {
        let released = self.inputs.jobs.released(self.key);
        released.is_some_and(|released| released.loss.is_some())
    }
}

/// Says where pods of an earlier attempt are left, if there are some: `its former pods in cluster a still end (2 are
/// left)`.
#[must_use]
pub fn still_end(left: &[PodsLeft]) -> Option<String> {
    let count = |left: &PodsLeft| match left.pods {
        1 => "1 is left".to_owned(),
        pods => format!("{pods} are left"),
    };
    match left {
        [] => None,
        [one] => Some(format!(
            "its former pods in cluster {} still end ({})",
            one.cluster,
            count(one)
        )),
        several => {
            let clusters: Vec<String> = several
                .iter()
                .map(|left| format!("{} ({})", left.cluster, count(left)))
                .collect();
            Some(format!(
                "its former pods in clusters {} still end",
                clusters.join(", ")
            ))
        }
    }
}
