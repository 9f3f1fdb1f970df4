//! Which clusters may take a job at all, whatever room they have.
//!
//! The answer depends on the clusters' facts and on the placement only, and a million jobs have
//! a handful of placements: it is kept for each until a cluster changes.

use crate::api::facts::{ClusterFact, ClusterPlacement};
use crate::api::ids::ClusterName;
use crate::api::matching::ClusterRule;
use crate::capacity::{Place, Room};
use crate::placement::plugins::{Question, refusal, selects};
use crate::state::Inputs;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

/// Placements that are kept.
const KEPT: usize = 1024;

/// The clusters of one group that may take a job.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Eligible {
    /// All, in order of name.
    pub(crate) clusters: Vec<ClusterName>,
    /// Those with nodes, by their place in the room.
    pub(crate) places: Vec<Place>,
}

/// What is known of eligibility, by placement and group.
#[derive(Debug, Clone, Default)]
pub(crate) struct Eligibility {
    known: BTreeMap<ClusterPlacement, Vec<Eligible>>,
    /// The places that it speaks of.
    generation: u64,
    /// Prices by place, in thousandths of the dearest.
    prices: Vec<i64>,
    /// The highest price told.
    dearest: u64,
    /// The longest time between clusters that any tells, in microseconds.
    farthest: u64,
}

impl Eligibility {
    /// The longest time between clusters that any tells, in microseconds; zero where none does.
    pub(crate) fn farthest(&self) -> u64 {
        self.farthest
    }

    /// The price of a cluster in thousandths of the dearest.
    pub(crate) fn price_of(&self, fact: &ClusterFact) -> i64 {
        let price = u128::from(fact.price_milli.unwrap_or(self.dearest)) * 1000;
        i64::try_from(price / u128::from(self.dearest.max(1))).unwrap_or(1000)
    }

    /// Prices by place, in thousandths of the dearest; a cluster that tells none is as dear.
    pub(crate) fn prices(&self, room: &Room) -> Option<&[i64]> {
        self.is_current(room).then_some(&self.prices)
    }

    /// A job with this placement came.
    pub(crate) fn note(
        &mut self,
        placement: &ClusterPlacement,
        clusters: &BTreeMap<ClusterName, ClusterFact>,
        room: &Room,
    ) {
        if self.known.contains_key(placement) {
            return;
        }
        if self.known.len() >= KEPT {
            self.known.clear();
        }
        let found = find_all(placement, clusters, room);
        self.known.insert(placement.clone(), found);
    }

    /// A cluster changed, came or went.
    pub(crate) fn renew(&mut self, clusters: &BTreeMap<ClusterName, ClusterFact>, room: &Room) {
        self.generation = room.places_generation();
        for (placement, known) in &mut self.known {
            *known = find_all(placement, clusters, room);
        }
        let prices = clusters.values().filter_map(|fact| fact.price_milli);
        self.dearest = prices.max().unwrap_or(0);
        let times = clusters.values().flat_map(|fact| fact.network.values());
        self.farthest = times.copied().max().unwrap_or(0);
        let fact = |name: &ClusterName| clusters.get(name);
        let price = |name| fact(name).map_or(0, |fact| self.price_of(fact));
        self.prices = room.places().iter().map(price).collect();
    }

    /// Whether it still speaks of the clusters that have nodes.
    pub(crate) fn is_current(&self, room: &Room) -> bool {
        self.generation == room.places_generation()
    }

    /// Placements for which what is kept is not what is found anew.
    pub(crate) fn is_sound(
        &self,
        clusters: &BTreeMap<ClusterName, ClusterFact>,
        room: &Room,
    ) -> bool {
        !self.is_current(room)
            || self
                .known
                .iter()
                .all(|(placement, known)| *known == find_all(placement, clusters, room))
    }
}

/// The groups of a placement; one that selects every cluster where it names none.
pub(crate) fn groups_of(placement: &ClusterPlacement) -> Cow<'_, [ClusterRule]> {
    if placement.groups.is_empty() {
        Cow::Owned(vec![ClusterRule::default()])
    } else {
        Cow::Borrowed(&placement.groups)
    }
}

fn find_all(
    placement: &ClusterPlacement,
    clusters: &BTreeMap<ClusterName, ClusterFact>,
    room: &Room,
) -> Vec<Eligible> {
    let find = |group: &ClusterRule| {
        let may = |cluster: &&ClusterFact| {
            let question = Question {
                placement,
                group,
                cluster,
                fleet: clusters,
            };
            refusal(&question).is_none()
        };
        let able = clusters.values().filter(may);
        Eligible::new(able.map(|cluster| cluster.name.clone()).collect(), room)
    };
    groups_of(placement).iter().map(find).collect()
}

impl Eligible {
    fn new(clusters: Vec<ClusterName>, room: &Room) -> Self {
        let place = |cluster: &ClusterName| room.places().binary_search(cluster).ok();
        Self {
            places: clusters.iter().filter_map(place).collect(),
            clusters,
        }
    }
}

/// Why one cluster may not take a job.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ineligible {
    /// Those that are meant, and fail otherwise, come first.
    pub(crate) not_selected: bool,
    pub(crate) cluster: ClusterName,
    pub(crate) why: String,
}

/// The clusters that `placement` selects now: of its first group that has any, all that
/// are usable, serve the kind and are tolerated. For what is placed without being queued.
#[must_use]
pub(crate) fn eligible_clusters(
    inputs: Inputs<'_>,
    placement: &ClusterPlacement,
) -> Vec<ClusterName> {
    let groups = eligible_by_group(inputs, placement, &BTreeSet::new());
    let first = groups.iter().find(|group| !group.clusters.is_empty());
    first.map_or_else(Vec::new, |group| group.clusters.clone())
}

/// The clusters of each group of a placement that may take the job.
pub(crate) fn eligible_by_group<'a>(
    inputs: Inputs<'a>,
    placement: &ClusterPlacement,
    without: &BTreeSet<ClusterName>,
) -> Cow<'a, [Eligible]> {
    let current = inputs
        .capacity
        .eligibility
        .is_current(&inputs.capacity.room);
    let known = inputs
        .capacity
        .eligibility
        .known
        .get(placement)
        .filter(|_| current);
    let all = known.map_or_else(
        || {
            Cow::Owned(find_all(
                placement,
                &inputs.capacity.clusters,
                &inputs.capacity.room,
            ))
        },
        |known| Cow::Borrowed(known.as_slice()),
    );
    if without.is_empty() {
        return all;
    }
    let left = all.iter().map(|eligible| {
        let clusters = eligible.clusters.iter();
        let left = clusters.filter(|cluster| !without.contains(*cluster));
        Eligible::new(left.cloned().collect(), &inputs.capacity.room)
    });
    Cow::Owned(left.collect())
}

/// The clusters of a group that may take the job, and why the others may not.
pub(crate) fn eligible<'a>(
    inputs: Inputs<'a>,
    placement: &ClusterPlacement,
    group: &ClusterRule,
    without: &BTreeSet<ClusterName>,
) -> (Vec<&'a ClusterFact>, Vec<Ineligible>) {
    let mut eligible = Vec::new();
    let mut ineligible = Vec::new();
    for (name, cluster) in &inputs.capacity.clusters {
        let question = Question {
            placement,
            group,
            cluster,
            fleet: &inputs.capacity.clusters,
        };
        let selected = selects(&question);
        let why = if selected && without.contains(name) {
            Some("an attempt failed there a while ago".to_owned())
        } else {
            refusal(&question)
        };
        match why {
            None => eligible.push(cluster),
            Some(why) => ineligible.push(Ineligible {
                not_selected: !selected,
                cluster: name.clone(),
                why,
            }),
        }
    }
    (eligible, ineligible)
}
