//! Which clusters might take a gang, without looking at their nodes.
//!
//! For each amount that the pods of the observed mix request, every cluster's number of fitting pods:
//! how many such pods its nodes would hold as far as that resource goes. A cluster with fewer
//! fitting pods than a gang has cannot take it; one with enough must still be packed node by node. The
//! numbers follow the changes of nodes, each resource by itself. Amounts that the mix has forgotten are counted
//! when they are needed. Clusters are numbered in the order of their names.

use super::{ClusterCapacity, NodeInfo};
use crate::amounts::resource_ids::{ResourceId, ResourceVec, times};
use facts::ClusterName;
use std::collections::{BTreeMap, BTreeSet};

/// The place of a cluster in the order of names.
pub(crate) type Place = usize;

/// Fitting pods of every cluster by requested amount.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Index {
    names: Vec<ClusterName>,
    /// Changes whenever a cluster comes or goes.
    generation: u64,
    fitting: BTreeMap<ResourceId, ByAmount>,
}

/// Fitting pods of every cluster by the requested amount of one resource.
type ByAmount = BTreeMap<i64, Followed>;

/// Fitting pods of one amount.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Followed {
    /// By place.
    clusters: Vec<FittingPods>,
    /// How many pods fit now in all clusters together.
    now: u128,
}

impl Followed {
    fn count(
        clusters: &BTreeMap<ClusterName, ClusterCapacity>,
        resource: ResourceId,
        each: i64,
    ) -> Self {
        let clusters = clusters.values().map(|room| count(room, resource, each));
        let clusters: Vec<FittingPods> = clusters.collect();
        let now = clusters.iter().map(|fitting| u128::from(fitting.now)).sum();
        Self { clusters, now }
    }
}

/// What of one amount a cluster holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct FittingPods {
    /// Pods that fit as things are.
    pub(crate) now: u64,
    /// Pods that would fit if its nodes were empty.
    pub(crate) empty: u64,
    /// The fewest free on a node that has enough for one, of the pools counted in this
    /// resource; the largest number where there is none.
    pub(crate) tightest: i64,
}

/// Converts a free amount to the type of [`FittingPods::tightest`]; the largest number if there is none.
fn narrow(free: Option<i128>) -> i64 {
    free.map_or(i64::MAX, |free| i64::try_from(free).unwrap_or(i64::MAX))
}

/// What of a node counts: nothing while it is not usable.
#[derive(Debug, Clone, Default)]
pub(crate) struct Counted {
    pub(crate) free: ResourceVec,
    pub(crate) has: ResourceVec,
}

impl Counted {
    pub(crate) fn of(node: Option<&NodeInfo>) -> Self {
        match node.filter(|node| node.fact.usable) {
            Some(node) => Self {
                free: node.free.clone(),
                has: node.has.clone(),
            },
            None => Self::default(),
        }
    }
}

impl Index {
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    pub(crate) fn names(&self) -> &[ClusterName] {
        &self.names
    }

    pub(crate) fn place(&self, cluster: &ClusterName) -> Option<Place> {
        self.names.binary_search(cluster).ok()
    }

    /// Fitting pods by place, if this amount is followed.
    pub(crate) fn fitting(&self, resource: ResourceId, each: i64) -> Option<&[FittingPods]> {
        let followed = self.fitting.get(&resource)?.get(&each)?;
        Some(&followed.clusters)
    }

    /// How many pods fit now in all clusters together, if this amount is followed.
    pub(crate) fn now_in_all(&self, resource: ResourceId, each: i64) -> Option<u128> {
        let followed = self.fitting.get(&resource)?.get(&each)?;
        Some(followed.now)
    }

    /// True if the clusters there are, are those numbered.
    pub(crate) fn knows(&self, cluster: &ClusterName) -> bool {
        self.place(cluster).is_some()
    }

    /// Numbers the clusters again, and counts all fitting pods for these amounts.
    pub(crate) fn rebuild(
        &mut self,
        clusters: &BTreeMap<ClusterName, ClusterCapacity>,
        amounts: impl Iterator<Item = (ResourceId, i64)>,
    ) {
        if !self.names.iter().eq(clusters.keys()) {
            self.names = clusters.keys().cloned().collect();
            self.generation += 1;
        }
        self.fitting.clear();
        self.follow(clusters, amounts);
    }

    /// Follows other amounts; those followed already stay as they are.
    pub(crate) fn follow(
        &mut self,
        clusters: &BTreeMap<ClusterName, ClusterCapacity>,
        amounts: impl Iterator<Item = (ResourceId, i64)>,
    ) {
        let mut wanted: BTreeMap<ResourceId, BTreeSet<i64>> = BTreeMap::new();
        for (resource, each) in amounts {
            wanted.entry(resource).or_default().insert(each);
        }
        self.fitting
            .retain(|resource, _| wanted.contains_key(resource));
        for (resource, wanted) in wanted {
            let followed = self.fitting.entry(resource).or_default();
            followed.retain(|each, _| wanted.contains(each));
            for each in wanted {
                let count = || Followed::count(clusters, resource, each);
                followed.entry(each).or_insert_with(count);
            }
        }
    }

    /// True if all is as it is when counted again.
    pub(crate) fn is_sound(&self, clusters: &BTreeMap<ClusterName, ClusterCapacity>) -> bool {
        self.names.iter().eq(clusters.keys())
            && self.fitting.iter().all(|(resource, followed)| {
                let mut followed = followed.iter();
                followed.all(|(each, followed)| {
                    *followed == Followed::count(clusters, *resource, *each)
                })
            })
    }

    /// A node of `cluster` changed; `fleet` where it did so in what it is, so that it may be
    /// counted in something else.
    pub(crate) fn moved(
        &mut self,
        cluster: &ClusterName,
        room: &ClusterCapacity,
        (from, to): (&Counted, &Counted),
        fleet: bool,
    ) {
        let Some(place) = self.place(cluster) else {
            return;
        };
        for (resource, followed) in &mut self.fitting {
            let (was, is) = (from.free.get(*resource), to.free.get(*resource));
            let (had, has) = (from.has.get(*resource), to.has.get(*resource));
            if was == is && had == has && !fleet {
                continue;
            }
            for (each, followed) in followed {
                let fitting = &mut followed.clusters[place];
                let least = i128::from(*each);
                let before = fitting.now;
                fitting.now = before - times(was, *each) + times(is, *each);
                followed.now = followed.now - u128::from(before) + u128::from(fitting.now);
                fitting.empty = fitting.empty - times(had, *each) + times(has, *each);
                let tightest = i128::from(fitting.tightest);
                if fleet || (was != is && (tightest == was || (is >= least && is < tightest))) {
                    fitting.tightest = narrow(room.tightest(*resource, least));
                }
            }
        }
    }
}

/// The fitting pods of a cluster, counted from its nodes.
pub(crate) fn count(room: &ClusterCapacity, resource: ResourceId, each: i64) -> FittingPods {
    let mut fitting = FittingPods {
        tightest: narrow(room.tightest(resource, i128::from(each))),
        ..FittingPods::default()
    };
    for node in room.nodes().values().filter(|node| node.fact.usable) {
        fitting.now += times(node.free.get(resource), each);
        fitting.empty += times(node.has.get(resource), each);
    }
    fitting
}
