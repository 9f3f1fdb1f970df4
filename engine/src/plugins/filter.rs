//! Filters: which clusters may take a job, whatever their free capacity.

use crate::api::demand::ClusterPlacement;
use crate::api::facts::ClusterFact;
use crate::api::ids::ClusterName;
use crate::api::matching::ClusterRule;
use crate::plugins::filters::{
    ApiEnablementFilter, ClusterAffinity, ClusterPaused, ClusterReady, DataRegion,
    SpreadConstraint, TaintToleration,
};
use crate::plugins::{Plugin, UnknownPlugin};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// All filters, in the order of evaluation. The first that refuses is reported.
const FILTERS: &[&dyn Filter] = &[
    &ClusterAffinity,
    &ClusterReady,
    &TaintToleration,
    &ApiEnablementFilter,
    &DataRegion,
    &ClusterPaused,
    &SpreadConstraint,
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

/// When a filter applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holds {
    /// To every job: a cluster that it refuses could not run the job.
    Always,
    /// Unless a CapacityPolicy names other filters.
    Unset,
    /// Only if a CapacityPolicy names it.
    Named,
}

/// A rule on which clusters may take a job.
pub(crate) trait Filter: Sync {
    /// Its name and description.
    fn plugin(&self) -> Plugin<Holds>;

    /// Why the cluster may not take the job, if so, in words that follow the cluster's name.
    fn refuses(&self, question: &Question<'_>) -> Option<String>;
}

/// The descriptions of all filters, in the order of evaluation.
pub fn filters() -> impl Iterator<Item = Plugin<Holds>> {
    FILTERS.iter().map(|filter| filter.plugin())
}

/// Whether the group selects the cluster.
pub(crate) fn selects(question: &Question<'_>) -> bool {
    ClusterAffinity.refuses(question).is_none()
}

/// Whether the cluster may take an object without pods. It needs neither capacity nor a live view of it, and a pause
/// for new jobs does not concern it.
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
    let refused = filters.find_map(|(index, filter)| {
        let applies = chosen.has(index, filter.plugin().unset);
        applies.then(|| filter.refuses(question)).flatten()
    });
    // What the member's API server refuses holds whichever filters a policy names.
    refused.or_else(|| {
        let refused_in = &question.placement.refused_in;
        refused_in.get(&question.cluster.name).cloned()
    })
}

/// The choice of filters of a CapacityPolicy, besides those that always apply.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(try_from = "Option<Vec<String>>", into = "Option<Vec<String>>")]
pub struct Filters {
    /// A bit for each index in the list; `None` if the policy does not choose.
    named: Option<u32>,
}

impl Filters {
    /// The filters with these names.
    ///
    /// # Errors
    /// If a name is not that of a filter that can be chosen.
    pub fn named<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<Self, UnknownPlugin> {
        let mut named = 0;
        for name in names {
            let place = Self::choices().find(|(_, plugin)| plugin.name == name);
            let known = || Self::choices().map(|(_, plugin)| plugin.name);
            let unknown = || UnknownPlugin::new("filter that can be chosen", name, known());
            let (place, _) = place.ok_or_else(unknown)?;
            named |= 1 << place;
        }
        Ok(Self { named: Some(named) })
    }

    fn choices() -> impl Iterator<Item = (usize, Plugin<Holds>)> {
        let all = filters().enumerate();
        all.filter(|(_, plugin)| plugin.unset != Holds::Always)
    }

    fn has(self, place: usize, unset: Holds) -> bool {
        match (unset, self.named) {
            (Holds::Always, _) => true,
            (_, Some(named)) => named & (1 << place) != 0,
            (unset, None) => unset == Holds::Unset,
        }
    }
}

impl TryFrom<Option<Vec<String>>> for Filters {
    type Error = UnknownPlugin;

    fn try_from(names: Option<Vec<String>>) -> Result<Self, Self::Error> {
        names.map_or_else(
            || Ok(Self::default()),
            |names| Self::named(names.iter().map(String::as_str)),
        )
    }
}

impl From<Filters> for Option<Vec<String>> {
    fn from(filters: Filters) -> Self {
        filters.named.map(|_| {
            let chosen = Filters::choices().filter(|(at, plugin)| filters.has(*at, plugin.unset));
            chosen.map(|(_, plugin)| plugin.name.to_owned()).collect()
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn names_are_distinct_and_kept() {
        assert!(FILTERS.len() <= 32, "the bits of a u32");
        let mut names: Vec<&str> = filters().map(|plugin| plugin.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), FILTERS.len());
        for list in [
            None,
            Some(vec![]),
            Some(vec!["APIEnablement", "DataRegion"]),
        ] {
            let list: Option<Vec<String>> =
                list.map(|list: Vec<&str>| list.into_iter().map(str::to_owned).collect());
            let filters = Filters::try_from(list.clone()).unwrap();
            let mut kept = Option::<Vec<String>>::from(filters);
            kept.iter_mut().for_each(|kept| kept.sort());
            assert_eq!(kept, list);
        }
    }

    #[test]
    fn a_filter_that_always_applies_cannot_be_chosen() {
        let error = Filters::named(["ClusterReady"]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "\"ClusterReady\" is no filter that can be chosen; one of APIEnablement, DataRegion is needed"
        );
    }
}
