//! Filters by name, and the choice that a CapacityPolicy makes among them.

use super::{Plugin, UnknownPlugin};
use serde::{Deserialize, Serialize};

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

/// The job's PropagationPolicy selects the cluster.
pub const CLUSTER_AFFINITY: Plugin<Holds> = Plugin {
    name: "ClusterAffinity",
    about: "clusters that the job's policy selects",
    unset: Holds::Always,
};

/// The cluster is Ready, is not being deleted, and its view is fresh enough.
pub const CLUSTER_READY: Plugin<Holds> = Plugin {
    name: "ClusterReady",
    about: "clusters that are Ready and whose live view is fresh enough to decide on",
    unset: Holds::Always,
};

/// The job tolerates the taints of the cluster.
pub const TAINT_TOLERATION: Plugin<Holds> = Plugin {
    name: "TaintToleration",
    about: "clusters whose taints the job's policy tolerates",
    unset: Holds::Always,
};

/// The cluster serves the job's kind.
pub const API_ENABLEMENT: Plugin<Holds> = Plugin {
    name: "APIEnablement",
    about: "clusters that serve the job's kind, as Karmada reports; leave it out if \
            Karmada cannot list all APIs of the clusters",
    unset: Holds::Unset,
};

/// The cluster is in a region of the job's data, which must stay there.
pub const DATA_REGION: Plugin<Holds> = Plugin {
    name: "DataRegion",
    about: "clusters in a region (spec.region) of a cluster that holds the job's data \
            (muster.io/data-clusters); jobs that name none go anywhere",
    unset: Holds::Named,
};

/// The cluster takes new jobs, or one more to see whether it runs.
pub const CLUSTER_PAUSED: Plugin<Holds> = Plugin {
    name: "ClusterPaused",
    about: "clusters that take new jobs: where many jobs fail, a FaultPolicy pauses the cluster for a while",
    unset: Holds::Always,
};

/// The cluster has what the job's spread constraints group clusters by.
pub const SPREAD_CONSTRAINT: Plugin<Holds> = Plugin {
    name: "SpreadConstraint",
    about: "clusters that have what the spread constraints of the job's policy group by, such as a region",
    unset: Holds::Always,
};

/// All filters, in the order of evaluation. The first that refuses is reported.
pub const FILTERS: [Plugin<Holds>; 7] = [
    CLUSTER_AFFINITY,
    CLUSTER_READY,
    TAINT_TOLERATION,
    API_ENABLEMENT,
    DATA_REGION,
    CLUSTER_PAUSED,
    SPREAD_CONSTRAINT,
];

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
        let all = FILTERS.into_iter().enumerate();
        all.filter(|(_, plugin)| plugin.unset != Holds::Always)
    }

    /// Returns true if the filter at a place of [`FILTERS`] applies, if `unset` says when it does by default.
    #[inline]
    #[must_use]
    pub fn has(self, place: usize, unset: Holds) -> bool {
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
        let mut names: Vec<&str> = FILTERS.iter().map(|plugin| plugin.name).collect();
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
