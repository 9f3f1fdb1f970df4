//! Possible placements of a gang, each with its score.
//!
//! The parts are scored one by one, so that choices which have a part in common score it once.

use crate::capacity::{FittingPods, NodeView, PackEffect, Packing, Place};
use crate::overlay::Overlay;
use crate::placement::plan::all_needs;
use crate::placement::request::GangRequest;
use crate::placement::score::{PlacementScore, Weights};
use crate::plugins::Site;
use crate::state::Inputs;
use std::sync::Arc;

/// One way to place the whole gang.
#[derive(Debug, Clone)]
pub(crate) struct PlacementCandidate {
    pub(crate) score: PlacementScore,
    pub(crate) parts: Vec<Arc<ScoredPart>>,
}

/// What goes to one cluster, and what it counts for.
#[derive(Debug)]
pub(crate) struct ScoredPart {
    pub(crate) place: Place,
    pub(crate) packing: Packing,
    pods: u32,
    /// The weighted sum of the scores, as if it were the whole gang.
    weighted: i128,
    effect: PackEffect,
}

/// Returns a way to place all on one cluster, with its score.
pub(crate) fn scored_whole(
    inputs: Inputs<'_>,
    gang: GangRequest<'_>,
    overlay: &Overlay,
    whole: (Place, Packing),
    fitting: FittingPods,
    weights: &Weights<'_>,
) -> PlacementCandidate {
    let part = scored_part(inputs, gang, overlay, whole, fitting, weights);
    scored_together(inputs, vec![Arc::new(part)], 0, weights)
}

/// Returns a part on one cluster, with what it counts for.
pub(crate) fn scored_part(
    inputs: Inputs<'_>,
    gang: GangRequest<'_>,
    overlay: &Overlay,
    (place, packing): (Place, Packing),
    fitting: FittingPods,
    weights: &Weights<'_>,
) -> ScoredPart {
    let needs = all_needs(&gang.shape.demand);
    let cluster = &inputs.capacity.places()[place];
    let node_view = NodeView::of(overlay);
    let effect = inputs.capacity.effect(cluster, &needs, &packing, node_view);
    let fact = inputs.capacity.cluster_fact(cluster);
    let site = Site {
        fact,
        fitting,
        price: fact.map_or(0, |fact| inputs.eligibility.price_of(fact)),
        without_images: weights.without_images(inputs, cluster, &packing),
    };
    ScoredPart {
        place,
        pods: packing.pods(),
        weighted: weights.of_cluster(&site) + weights.of_nodes(&effect),
        packing,
        effect,
    }
}

/// Returns a way to place all in these parts, with its score.
pub(crate) fn scored_together(
    inputs: Inputs<'_>,
    parts: Vec<Arc<ScoredPart>>,
    spare: u64,
    weights: &Weights<'_>,
) -> PlacementCandidate {
    let mut score = PlacementScore {
        tier: 0,
        preference: 0,
        weighted: 0,
        spare,
        units_left: 0,
        cpu_left: 0,
        places: parts.iter().map(|part| part.place).collect(),
    };
    let mut facts = Vec::new();
    let pods: u32 = parts.iter().map(|part| part.pods).sum();
    for part in &parts {
        let cluster = &inputs.capacity.places()[part.place];
        score.weighted += part.weighted * i128::from(part.pods) / i128::from(pods.max(1));
        score.tier = score.tier.max(part.effect.tier);
        score.preference += weights.preference(cluster) * u64::from(part.pods);
        score.units_left += part.effect.units_left;
        score.cpu_left += part.effect.cpu_left;
        facts.extend(inputs.capacity.cluster_fact(cluster));
    }
    score.weighted += weights.of_clusters(&facts);
    PlacementCandidate { score, parts }
}
