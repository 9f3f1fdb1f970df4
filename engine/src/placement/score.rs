//! The order of possible placements.
//!
//! The sum of what the [`crate::plugins`] say, in thousandths, with the weights of the queue's policy.
//! Lower is better. A cluster without a price counts as the dearest.

use crate::capacity::{ImageId, PackEffect, Packing, Place};
use crate::placement::lookup::{largest_role, leading_ask};
use crate::placement::request::GangRequest;
use crate::plugins::{FRAGMENTATION, ScoredJob, Site, weighted};
use crate::state::Inputs;
use facts::{ClusterFact, ClusterName, PlacementWeights};

/// The order among placements over equally many clusters: the policy is the order of the fields.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PlacementScore {
    /// Innermost domain first.
    pub(crate) tier: u32,
    /// The queue's preferred clusters in their order, then the others: its pods times how far
    /// down the list each is.
    pub(crate) preference: u64,
    /// The weighted sum of the scores.
    pub(crate) weighted: i128,
    /// How many more pods its clusters could hold, of a gang that is divided.
    pub(crate) spare: u64,
    /// Free devices, then free CPU, left on the nodes that it uses.
    pub(crate) units_left: i128,
    pub(crate) cpu_left: i128,
    /// Then by name, so that no two are equal.
    pub(crate) places: Vec<Place>,
}

/// What a job's queue and demand say of clusters.
pub(crate) struct Weights<'a> {
    weights: PlacementWeights,
    preferred: &'a [ClusterName],
    job: ScoredJob<'a>,
    /// The images of its largest role that some nodes have.
    images: Vec<ImageId>,
    /// The role itself, as an index, and its pods.
    largest: (usize, u32),
}

/// Returns what counts for a gang.
pub(crate) fn weights<'a>(inputs: Inputs<'a>, gang: GangRequest<'a>) -> Weights<'a> {
    let policy = inputs.quota.policy(gang.queue);
    let demand = &*gang.shape.demand;
    let data = demand.placement.data_clusters.iter();
    let job = gang.job.and_then(|key| inputs.jobs.get(key));
    let images = job.map(|job| inputs.capacity.known_images(job.images.iter()));
    let largest = largest_role(demand);
    Weights {
        weights: policy.map_or_else(PlacementWeights::default, |policy| policy.weights),
        preferred: policy.map_or(&[], |policy| policy.preferred_clusters.as_slice()),
        job: ScoredJob {
            data: data
                .filter_map(|name| inputs.capacity.cluster_fact(name))
                .collect(),
            farthest: inputs.eligibility.farthest(),
            each: leading_ask(demand),
        },
        images: images.unwrap_or_default(),
        largest: largest.map_or((0, 0), |role| {
            let mut roles = demand.roles.iter();
            let index = roles.position(|known| known.name == role.name);
            (index.unwrap_or(0), role.count)
        }),
    }
}

impl Weights<'_> {
    /// How far down the queue's list a cluster is.
    pub(crate) fn preference(&self, cluster: &ClusterName) -> u64 {
        let place = self.preferred.iter().position(|name| name == cluster);
        place.unwrap_or(self.preferred.len()) as u64
    }

    /// Of the nodes of a packing, how many thousandths have to pull an image.
    pub(crate) fn without_images(
        &self,
        inputs: Inputs<'_>,
        cluster: &ClusterName,
        packing: &Packing,
    ) -> i64 {
        let placed = packing.placed.iter();
        let largest = placed.filter(|placed| placed.role == self.largest.0);
        let nodes = largest.map(|placed| &placed.node);
        inputs.capacity.nodes_without(&self.images, cluster, nodes)
    }

    /// The same by look-up, as if each pod had a node for itself.
    pub(crate) fn without_images_at(&self, inputs: Inputs<'_>, place: Place) -> i64 {
        if self.images.is_empty() {
            return 0;
        }
        let cluster = &inputs.capacity.places()[place];
        let (_, pods) = self.largest;
        inputs.capacity.least_without(&self.images, cluster, pods)
    }

    /// Returns what counts of a cluster, whichever of its nodes are used.
    pub(crate) fn of_cluster(&self, site: &Site<'_>) -> i128 {
        let each = weighted(&self.weights);
        let weighed = each
            .filter(|(_, weight)| *weight > 0)
            .map(|(score, weight)| {
                i128::from(weight) * i128::from(score.of_cluster(&self.job, site))
            });
        weighed.sum()
    }

    /// Returns what counts of the nodes that a packing uses.
    pub(crate) fn of_nodes(&self, effect: &PackEffect) -> i128 {
        let each = weighted(&self.weights);
        each.map(|(score, weight)| i128::from(weight) * score.of_nodes(effect))
            .sum()
    }

    /// Returns what counts of the clusters of one gang.
    pub(crate) fn of_clusters(&self, clusters: &[&ClusterFact]) -> i128 {
        let each = weighted(&self.weights);
        let weighed = each.map(|(score, weight)| {
            i128::from(weight) * i128::from(score.of_clusters(&self.job, clusters))
        });
        weighed.sum()
    }

    /// True if more of a cluster counts than its price and how full it is.
    pub(crate) fn looks_at_facts(&self) -> bool {
        let mut each = weighted(&self.weights);
        let reads = each.any(|(score, weight)| weight > 0 && score.reads_cluster(&self.job));
        reads || !self.preferred.is_empty()
    }

    /// An estimate of the weighted score, by which clusters are looked at first.
    pub(crate) fn guess(&self, site: &Site<'_>) -> i64 {
        let each = weighted(&self.weights).enumerate();
        each.fold(0, |sum: i64, (place, (score, weight))| {
            let weight = match place {
                FRAGMENTATION => weight.max(1),
                _ => weight,
            };
            let weighed = match weight {
                0 => 0,
                weight => i64::from(weight).saturating_mul(score.guess(&self.job, site)),
            };
            sum.saturating_add(weighed)
        })
    }
}
