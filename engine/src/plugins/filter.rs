//! Filters: which clusters may take a job, whatever their free capacity.

use crate::plugins::filters::{
    ApiEnablementFilter, ClusterAffinity, ClusterPaused, ClusterReady, DataRegion,
    SpreadConstraint, TaintToleration,
};
use facts::matching::ClusterRule;
use facts::plugins::{self, Holds, Plugin};
use facts::{ClusterFact, ClusterName, ClusterPlacement};
use std::collections::BTreeMap;

/// All filters, each with its name, in the order of [`plugins::FILTERS`].
static FILTERS: [(Plugin<Holds>, &dyn Filter); plugins::FILTERS.len()] = [
    (plugins::CLUSTER_AFFINITY, &ClusterAffinity),
    (plugins::CLUSTER_READY, &ClusterReady),
    (plugins::TAINT_TOLERATION, &TaintToleration),
    (plugins::API_ENABLEMENT, &ApiEnablementFilter),
    (plugins::DATA_REGION, &DataRegion),
    (plugins::CLUSTER_PAUSED, &ClusterPaused),
    (plugins::SPREAD_CONSTRAINT, &SpreadConstraint),
];

/// The input of a filter: a job's placement and a cluster.
pub(crate) struct Question<'a> {
    pub(crate) placement: &'a ClusterPlacement,
    /// The group of the placement that is tried.
    pub(crate) group: &'a ClusterRule,
    pub(crate) cluster: &'a ClusterFact,
    /// All clusters.
    pub(crate) fleet: &'a BTreeMap<ClusterName, ClusterFact>,
}

/// A rule on which clusters may take a job.
pub(crate) trait Filter: Sync {
    /// Why the cluster may not take the job, if so, in words that follow the cluster's name.
    fn refuses(&self, question: &Question<'_>) -> Option<String>;
}

/// Returns true if the group selects the cluster.
pub(crate) fn selects(question: &Question<'_>) -> bool {
    ClusterAffinity.refuses(question).is_none()
}

/// Returns true if the cluster may take an object without pods. It needs neither capacity nor a live view of it, and a
/// pause for new jobs does not concern it.
pub(crate) fn takes_objects(question: &Question<'_>) -> bool {
    let filters: [&dyn Filter; 4] = [
        &ClusterAffinity,
        &TaintToleration,
        &ApiEnablementFilter,
        &SpreadConstraint,
    ];
    filters
        .into_iter()
        .all(|filter| filter.refuses(question).is_none())
}

/// Why the first filter that refuses the cluster does so, if one does.
pub(crate) fn refusal(question: &Question<'_>) -> Option<String> {
    let chosen = question.placement.filters;
    let mut filters = FILTERS.iter().enumerate();
    let refused = filters.find_map(|(index, (plugin, filter))| {
        let applies = chosen.has(index, plugin.unset);
        applies.then(|| filter.refuses(question)).flatten()
    });
    // What the member's API server refuses holds whichever filters a policy names.
    refused.or_else(|| {
        let refused_in = &question.placement.refused_in;
        refused_in.get(&question.cluster.name).cloned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_are_in_the_order_of_their_names() {
        let names = FILTERS.iter().map(|(plugin, _)| *plugin);
        assert!(names.eq(plugins::FILTERS));
    }
}
