//! The spare nodes that stand: whole nodes that queues keep for their large gangs.
//!
//! Only a store: `backfill::spare` says which they are, and `cycle::spare` sets them.

use crate::reservation::store::ReservedNode;
use facts::{ClusterName, JobKey, NodeName, QueueName};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// The spare nodes of one queue in one cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Spare {
    pub(crate) queue: QueueName,
    pub(crate) cluster: ClusterName,
    /// The gangs that they are kept for: those that run there, and those that were evicted there because
    /// they had lost pods, until they run again.
    pub(crate) gangs: BTreeSet<JobKey>,
    /// Whole nodes, with all that is allocatable of them.
    pub(crate) nodes: Vec<ReservedNode>,
    /// Those of the nodes on which other jobs run meanwhile.
    pub(crate) lent: BTreeSet<NodeName>,
}

/// All spares, in order of queue and cluster.
#[derive(Debug, Clone, Default)]
pub(crate) struct Spares {
    wanted: bool,
    all: Vec<Spare>,
}

impl Spares {
    /// Notes whether any policy asks for spares.
    pub(crate) fn set_wanted(&mut self, wanted: bool) {
        self.wanted = wanted;
    }

    /// True if there are none, and none are asked for.
    pub(crate) fn are_unused(&self) -> bool {
        !self.wanted && self.all.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Spare> {
        self.all.iter()
    }

    /// The spare of a queue in a cluster.
    pub(crate) fn of(&self, queue: &QueueName, cluster: &ClusterName) -> Option<&Spare> {
        let mut all = self.all.iter();
        all.find(|spare| spare.queue == *queue && spare.cluster == *cluster)
    }

    /// Replaces all of them. Returns those before.
    pub(crate) fn replace(&mut self, all: Vec<Spare>) -> Vec<Spare> {
        std::mem::replace(&mut self.all, all)
    }

    /// Returns true if less is kept than `before`, or for others.
    pub(crate) fn loosened_since(&self, before: &[Spare]) -> bool {
        before.iter().any(|before| {
            self.of(&before.queue, &before.cluster).is_none_or(|now| {
                now.gangs != before.gangs
                    || !now.lent.is_subset(&before.lent)
                    || before.nodes.iter().any(|node| !now.nodes.contains(node))
            })
        })
    }

    /// The queues of which spares are not as they were `before`.
    pub(crate) fn changed_since<'a>(
        &'a self,
        before: &'a [Spare],
    ) -> impl Iterator<Item = &'a QueueName> {
        let (new, gone) = (self.all.iter(), before.iter());
        let new = new.filter(|now| !before.contains(now));
        let gone = gone.filter(|before| !self.all.contains(before));
        new.chain(gone).map(|spare| &spare.queue)
    }
}
