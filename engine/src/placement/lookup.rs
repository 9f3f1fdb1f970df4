//! Which clusters to pack node by node, and in which order.
//!
//! A cluster with fewer fitting pods than the gang has cannot hold it (`capacity/index.rs`). Those that
//! might are ordered by an estimate of their score, as if their tightest node were taken. If at most
//! [`EXACT`] might hold it, all are packed, and the best is found. Of more, the best of the
//! [`LIKELIEST`] that hold it is taken; its score may be behind the best by the error of the estimate.
//! As long as none was found, no cluster that holds it is left out.

use crate::capacity::{FittingPods, Place, device, leading_amount};
use crate::overlay::Overlay;
use crate::pending::shapes::RequestShape;
use crate::placement::score::Weights;
use crate::plugins::Site;
use crate::state::Inputs;
use facts::{Demand, Role};
use std::borrow::Cow;
use std::collections::BTreeSet;

/// Up to so many clusters are all packed.
pub(crate) const EXACT: usize = 8;

/// Of more than that, so many are packed at first.
const LIKELIEST: usize = 3;

/// The order in which clusters are looked at: the order of the fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Estimate {
    preference: u64,
    weighted: i64,
    /// Clusters with much capacity are left to large gangs.
    fitting: u64,
    pub(crate) place: Place,
}

/// What is known of clusters without looking at their nodes.
pub(crate) struct LookUp<'a> {
    inputs: Inputs<'a>,
    weights: &'a Weights<'a>,
    /// True if no pod runs.
    empty: bool,
    /// Pods, and fitting pods by place, for each role.
    fitting: Vec<(u64, Cow<'a, [FittingPods]>)>,
    /// Fitting pods of the largest role.
    main: Option<Cow<'a, [FittingPods]>>,
    /// Clusters that an overlay changes, in order: nothing is known of those.
    changed: Vec<Place>,
    prices: Option<&'a [i64]>,
}

impl LookUp<'_> {
    pub(crate) fn fitting_at(&self, place: Place) -> FittingPods {
        self.main
            .as_ref()
            .map_or_else(FittingPods::default, |all| all[place])
    }

    /// True if a cluster might hold all pods.
    fn might(&self, place: Place) -> bool {
        let enough = |(count, fitting): &(u64, Cow<'_, [FittingPods]>)| {
            let fitting = fitting[place];
            *count
                <= if self.empty {
                    fitting.empty
                } else {
                    fitting.now
                }
        };
        self.fitting.iter().all(enough) || self.changed.binary_search(&place).is_ok()
    }

    fn likely(&self, place: Place) -> Estimate {
        let fitting = self.fitting_at(place);
        let known = self.prices.filter(|_| !self.weights.looks_at_facts());
        let (preference, price, fact) = match known {
            Some(prices) => (0, prices[place], None),
            None => {
                let name = &self.inputs.capacity.places()[place];
                let fact = self.inputs.capacity.cluster_fact(name);
                let price = fact.map_or(0, |fact| self.inputs.eligibility.price_of(fact));
                (self.weights.preference(name), price, fact)
            }
        };
        let site = Site {
            fact,
            fitting,
            price,
            without_images: self.weights.without_images_at(self.inputs, place),
        };
        Estimate {
            preference,
            weighted: self.weights.guess(&site),
            fitting: fitting.now,
            place,
        }
    }

    /// The clusters to be packed first, in order: all that might hold the gang if they are at most
    /// [`EXACT`], else the [`LIKELIEST`] of them.
    pub(crate) fn likeliest(&self, places: &[Place]) -> Vec<Estimate> {
        let mut best: Vec<Estimate> = Vec::with_capacity(EXACT + 1);
        let mut many = false;
        for place in places.iter().copied().filter(|place| self.might(*place)) {
            let likely = self.likely(place);
            let most = if many { LIKELIEST } else { EXACT };
            if many && best.last().is_some_and(|last| *last < likely) {
                continue;
            }
            let at = best.partition_point(|known| *known < likely);
            best.insert(at, likely);
            if best.len() > most {
                many = true;
                best.truncate(LIKELIEST);
            }
        }
        best
    }

    /// The other clusters that might.
    pub(crate) fn others(&self, places: &[Place], looked_at: &BTreeSet<Place>) -> Vec<Estimate> {
        let others = places.iter().copied();
        others
            .filter(|place| self.might(*place) && !looked_at.contains(place))
            .map(|place| self.likely(place))
            .collect()
    }
}

/// Returns what is known of clusters for a gang before any is looked at.
pub(crate) fn look_up<'a>(
    inputs: Inputs<'a>,
    shape: &'a RequestShape,
    overlay: &'a Overlay,
    weights: &'a Weights<'a>,
) -> LookUp<'a> {
    let roles = shape.demand.roles.iter().filter(|role| role.count > 0);
    let main = largest_role(&shape.demand);
    let place = |name| inputs.capacity.places().binary_search(name).ok();
    LookUp {
        inputs,
        weights,
        empty: overlay.is_of_empty_fleet(),
        fitting: roles
            .map(|role| {
                (
                    u64::from(role.count),
                    inputs.capacity.fitting_for_role(role),
                )
            })
            .collect(),
        main: main.map(|role| inputs.capacity.fitting_for_role(role)),
        changed: overlay.clusters().filter_map(place).collect(),
        prices: inputs.eligibility.prices(&inputs.capacity),
    }
}

/// The role that requests most: devices before CPU.
pub(crate) fn largest_role(demand: &Demand) -> Option<&Role> {
    let roles = demand.roles.iter().filter(|role| role.count > 0);
    roles.rev().max_by_key(|role| {
        let total = i128::from(leading_amount(&role.request)) * i128::from(role.count);
        (device(&role.request).is_some(), total)
    })
}

/// How much each pod of the largest role requests of its leading resource.
pub(crate) fn leading_ask(demand: &Demand) -> i64 {
    largest_role(demand).map_or(0, |role| leading_amount(&role.request))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capacity::testing::demand;

    fn roles(all: &[(u32, &str)]) -> Demand {
        let mut gang = demand(1, "cpu 1");
        let roles = all.iter().map(|(count, request)| Role {
            name: format!("{count} of {request}"),
            ..demand(*count, request).roles.remove(0)
        });
        gang.roles = roles.collect();
        gang
    }

    #[test]
    fn the_largest_role_has_most_devices_in_all_and_some_pods() {
        let largest = |all: &[(u32, &str)]| {
            let demand = roles(all);
            largest_role(&demand).map(|role| role.name.clone())
        };
        let (few, many) = ((3, "nvidia.com/gpu 4"), (20, "nvidia.com/gpu 1"));
        let nine = (9, "nvidia.com/gpu 1");
        let (cpus, none) = ((40, "cpu 64"), (0, "nvidia.com/gpu 8"));
        let is = |name: &str| Some(name.to_owned());
        assert_eq!(largest(&[few, many]), is("20 of nvidia.com/gpu 1"));
        assert_eq!(largest(&[few, nine]), is("3 of nvidia.com/gpu 4"));
        assert_eq!(largest(&[cpus, few]), is("3 of nvidia.com/gpu 4"));
        assert_eq!(largest(&[none, cpus]), is("40 of cpu 64"));
        assert_eq!(largest(&[none]), None);
    }

    #[test]
    fn each_pod_of_the_largest_role_asks_for_its_devices() {
        let gang = roles(&[(40, "cpu 64"), (2, "cpu 8, nvidia.com/gpu 4")]);
        let gpus = leading_amount(&gang.roles[1].request);
        assert!(gpus > 1, "{gpus}");
        assert_eq!(leading_ask(&gang), gpus);
    }
}
