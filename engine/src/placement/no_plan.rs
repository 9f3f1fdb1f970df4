//! Why a job has no placement: which clusters it may not go to, what they lack, or which bound
//! it would pass. Of several reasons the one closest to a placement is reported.

use crate::api::charge::Pools;
use crate::placement::eligible::Ineligible;
use crate::placement::shortage::ResourceShortage;
use crate::quota::Shortfall;
use facts::ClusterName;
use std::collections::BTreeSet;

/// Why there is no plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NoPlan {
    /// No cluster may take the job at all; why not, by cluster.
    NoCluster(Vec<Ineligible>),
    /// It fits on no cluster's nodes.
    NoRoom(Vec<ClusterLack>),
    /// It fits, but a bound on that class of pools would be passed.
    Bound(Box<Shortfall>, Pools),
}

/// How much of a job fits on one cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ClusterLack {
    pub(crate) cluster: ClusterName,
    /// The role that does not fit, as an index.
    pub(crate) role: usize,
    pub(crate) wanted: u32,
    pub(crate) placed: u32,
    /// Usable nodes that its pods may run on.
    pub(crate) nodes: u32,
    /// The domain that comes closest, where all must be in one.
    pub(crate) domain: Option<String>,
    /// What no node of it has, of the labels that the role selects nodes by, if words are to be said; `None` if it
    /// has no nodes.
    pub(crate) unmatched: Option<Vec<String>>,
    /// The resource that is short, if one alone is and words are to be said.
    pub(crate) short: Option<ResourceShortage>,
}

impl NoPlan {
    /// Of two reasons why there is no plan, what is closer to a plan; lacks are gathered.
    pub(crate) fn or(self, next: Self) -> Self {
        match (self, next) {
            (Self::NoCluster(mut all), Self::NoCluster(more)) => {
                all.extend(more);
                all.sort();
                let mut known = BTreeSet::new();
                all.retain(|entry| known.insert(entry.cluster.clone()));
                Self::NoCluster(all)
            }
            (Self::NoRoom(mut all), Self::NoRoom(more)) => {
                for lack in more {
                    match all.iter_mut().find(|known| known.cluster == lack.cluster) {
                        Some(known) if known.placed < lack.placed => *known = lack,
                        Some(_) => {}
                        None => all.push(lack),
                    }
                }
                Self::NoRoom(all)
            }
            (Self::Bound(known, _), Self::Bound(short, pools)) if known.never() => {
                Self::Bound(short, pools)
            }
            (known @ Self::Bound(..), _) => known,
            (_, next @ Self::Bound(..)) => next,
            (known @ Self::NoRoom(_), Self::NoCluster(_)) => known,
            (Self::NoCluster(_), next @ Self::NoRoom(_)) => next,
        }
    }

    pub(crate) fn worse(known: Option<Self>, next: Self) -> Self {
        match known {
            Some(known) => known.or(next),
            None => next,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::panic)]

    use super::*;

    fn lack(cluster: &str, placed: u32) -> ClusterLack {
        ClusterLack {
            cluster: ClusterName::from(cluster),
            role: 0,
            wanted: 9,
            placed,
            nodes: 1,
            domain: None,
            unmatched: Some(Vec::new()),
            short: None,
        }
    }

    #[test]
    fn of_what_one_cluster_lacks_in_several_ways_the_least_is_reported() {
        // Placed on a by one way and by another, and which of them is reported.
        for (known, next, told) in [(2, 5, 5), (5, 2, 5), (3, 3, 3)] {
            let mut first = lack("a", known);
            first.domain = Some("first".to_owned());
            let second = NoPlan::NoRoom(vec![lack("b", 1), lack("a", next)]);
            let NoPlan::NoRoom(all) = NoPlan::NoRoom(vec![first]).or(second) else {
                panic!("no lack of room");
            };
            let all: Vec<_> = all
                .iter()
                .map(|lack| (lack.cluster.as_str(), lack.placed, lack.domain.is_some()))
                .collect();
            // Of equal ones the first.
            assert_eq!(all, [("a", told, known >= next), ("b", 1, false)]);
        }
    }
}
