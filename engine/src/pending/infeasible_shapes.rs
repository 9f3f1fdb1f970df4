//! The request shapes, by what may make them feasible: a node with freed capacity names the shapes that
//! it might take, and is offered to them; the other infeasible ones cost nothing.

use crate::capacity::leading;
use crate::pending::infeasible::Infeasible;
use crate::pending::offers::{Offer, Offers};
use crate::pending::shapes::{RequestShape, ShapeId};
use facts::{JobKey, ResourceName};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// The shapes in use, feasible and infeasible.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct InfeasibleShapes {
    feasible: BTreeSet<ShapeId>,
    /// The infeasible ones that freed nodes may take.
    offers: Offers,
    /// The other infeasible ones, by what a pod of a role requests of its leading resource; each with the number of
    /// these pods.
    by_leading: BTreeMap<ResourceName, BTreeMap<LeadingRequest, BTreeSet<(u32, ShapeId)>>>,
    /// Those with a role that requests nothing.
    undemanding: BTreeSet<ShapeId>,
    /// Those that reservations make infeasible, which does not hold for the jobs before all of these.
    withheld: BTreeSet<ShapeId>,
    /// How many shapes the reservation of a job makes infeasible.
    stopped_by: HashMap<JobKey, usize>,
}

/// What each pod of a role requests of its leading resource, and whether these pods may be in several clusters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LeadingRequest {
    pub(crate) amount: i64,
    pub(crate) divisible: bool,
}

/// What a shape is.
#[derive(Clone, Copy)]
pub(super) enum Feasibility<'a> {
    Unused,
    Feasible,
    Infeasible(&'a Infeasible),
}

impl<'a> Feasibility<'a> {
    pub(super) fn of(infeasible: Option<&'a Infeasible>) -> Self {
        infeasible.map_or(Self::Feasible, Self::Infeasible)
    }
}

impl InfeasibleShapes {
    /// Notes what a shape was, and is from now on.
    pub(super) fn note(
        &mut self,
        id: ShapeId,
        shape: &RequestShape,
        before: Feasibility<'_>,
        now: Feasibility<'_>,
    ) {
        match before {
            Feasibility::Unused => {}
            Feasibility::Feasible => {
                self.feasible.remove(&id);
            }
            Feasibility::Infeasible(why) => self.unlist(id, shape, why),
        }
        match now {
            Feasibility::Unused => {}
            Feasibility::Feasible => {
                self.feasible.insert(id);
            }
            Feasibility::Infeasible(why) => self.list(id, shape, why),
        }
    }

    fn list(&mut self, id: ShapeId, shape: &RequestShape, why: &Infeasible) {
        self.list_by_leading(id, shape);
        if matches!(why, Infeasible::Withheld(_)) {
            self.withheld.insert(id);
        }
        for owner in owners(why) {
            *self.stopped_by.entry(owner.clone()).or_default() += 1;
        }
    }

    fn list_by_leading(&mut self, id: ShapeId, shape: &RequestShape) {
        for request in requests(shape) {
            match request {
                Some((name, each, count)) => {
                    let by_request = self.by_leading.entry(name.clone()).or_default();
                    by_request.entry(each).or_default().insert((count, id));
                }
                None => {
                    self.undemanding.insert(id);
                }
            }
        }
    }

    fn unlist(&mut self, id: ShapeId, shape: &RequestShape, why: &Infeasible) {
        if !self.offers.remove(id) {
            self.unlist_by_leading(id, shape);
        }
        self.withheld.remove(&id);
        for owner in owners(why) {
            if let Some(count) = self.stopped_by.get_mut(owner) {
                *count -= 1;
                if *count == 0 {
                    self.stopped_by.remove(owner);
                }
            }
        }
    }

    fn unlist_by_leading(&mut self, id: ShapeId, shape: &RequestShape) {
        for request in requests(shape) {
            let Some((name, each, count)) = request else {
                self.undemanding.remove(&id);
                continue;
            };
            let Some(by_request) = self.by_leading.get_mut(name) else {
                continue;
            };
            if let Some(listed) = by_request.get_mut(&each) {
                listed.remove(&(count, id));
                if listed.is_empty() {
                    by_request.remove(&each);
                }
            }
            if by_request.is_empty() {
                self.by_leading.remove(name);
            }
        }
    }

    /// A freed node may take a pod of an infeasible shape.
    pub(super) fn offer(&mut self, id: ShapeId, shape: &RequestShape, offer: Offer) {
        if self.offers.of(id).is_none() {
            self.unlist_by_leading(id, shape);
        }
        self.offers.insert(id, offer);
    }

    /// No freed node takes a pod of an infeasible shape.
    pub(super) fn withdraw(&mut self, id: ShapeId, shape: &RequestShape) {
        if self.offers.remove(id) {
            self.list_by_leading(id, shape);
        }
    }

    /// The freed nodes that may take infeasible shapes.
    pub(crate) fn offers(&self) -> &Offers {
        &self.offers
    }

    /// The feasible shapes.
    pub(crate) fn feasible(&self) -> &BTreeSet<ShapeId> {
        &self.feasible
    }

    /// The shapes that reservations make infeasible.
    pub(crate) fn withheld(&self) -> &BTreeSet<ShapeId> {
        &self.withheld
    }

    /// Returns true if the reservation of a job makes any shape infeasible.
    pub(crate) fn are_stopped_by(&self, owner: &JobKey) -> bool {
        self.stopped_by.contains_key(owner)
    }

    /// The infeasible shapes that nothing is offered to of which a pod might fit on a node with so much free of each
    /// resource, as far as one resource tells. A shape is named once for each of its roles.
    pub(crate) fn might_be_on(
        &self,
        free: impl Fn(&ResourceName) -> i128,
    ) -> impl Iterator<Item = ShapeId> {
        let fitting = self.by_leading.iter().flat_map(move |(name, by_request)| {
            let most = LeadingRequest {
                amount: i64::try_from(free(name).max(0)).unwrap_or(i64::MAX),
                divisible: true,
            };
            by_request.range(..=most).flat_map(|(_, shapes)| shapes)
        });
        let fitting = fitting.map(|(_, id)| *id);
        fitting.chain(self.undemanding.iter().copied())
    }

    /// The infeasible shapes that nothing is offered to with a role for which there is not enough, as far as one
    /// resource tells: `is_enough` says whether so many pods have enough. If they have, fewer pods that request as much
    /// have enough, too: their shapes are not looked at one by one.
    pub(crate) fn short(
        &self,
        is_enough: impl Fn(&ResourceName, LeadingRequest, u32) -> bool,
    ) -> BTreeSet<ShapeId> {
        let mut short = BTreeSet::new();
        for (name, by_request) in &self.by_leading {
            for (each, shapes) in by_request {
                let is_short = |(count, _): &&(u32, _)| !is_enough(name, *each, *count);
                let largest_first = shapes.iter().rev();
                short.extend(largest_first.take_while(is_short).map(|(_, id)| *id));
            }
        }
        short
    }
}

/// The owners of the reservations that make a shape infeasible.
fn owners(why: &Infeasible) -> &[JobKey] {
    match why {
        Infeasible::NoRoom => &[],
        Infeasible::Withheld(owners) => owners,
    }
}

/// Returns what a pod of each role requests of its leading resource, and how many pods it has; `None` for nothing. A
/// shape without pods requests nothing.
pub(crate) fn requests(
    shape: &RequestShape,
) -> impl Iterator<Item = Option<(&ResourceName, LeadingRequest, u32)>> {
    let divisible = shape.needs_no_single_cluster();
    let roles = shape.demand.roles.iter().filter(|role| role.count > 0);
    let none = roles.clone().next().is_none();
    let requests = roles.map(move |role| {
        let name = leading(&role.request)?;
        let amount = role.request.amount_of(name).0;
        let each = LeadingRequest { amount, divisible };
        (amount > 0).then_some((name, each, role.count))
    });
    requests.chain(none.then_some(None))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capacity::testing::{demand, resources};
    use crate::pending::shapes::Shapes;
    use crate::pending::testing;
    use facts::Demand;

    fn shape(roles: &[(u32, Option<&str>)]) -> RequestShape {
        let roles = roles.iter().map(|(count, request)| {
            let mut role = demand(*count, "cpu 1").roles.remove(0);
            role.request = request.map(resources).unwrap_or_default();
            role
        });
        testing::shape(Demand {
            roles: roles.collect(),
            ..demand(1, "cpu 1")
        })
    }

    #[test]
    fn a_node_names_the_shapes_of_which_it_has_the_leading_resource_for_a_pod() {
        let mut shapes = Shapes::default();
        let [small, large, none, both, unused, empty] = [
            &[(3, Some("cpu 2"))][..],
            &[(1, Some("cpu 8"))],
            &[(1, None)],
            &[(1, Some("cpu 8")), (1, Some("gpu 1"))],
            &[(0, Some("cpu 1")), (1, Some("cpu 9"))],
            &[(0, Some("cpu 9"))],
        ]
        .map(|roles| shapes.acquire(shape(roles)));
        let all = [small, large, none, both, unused, empty];
        for id in all {
            shapes.note_infeasible(id, Infeasible::NoRoom, 1);
        }
        let named = |shapes: &Shapes, list: &str| -> BTreeSet<ShapeId> {
            let free = resources(list);
            let free = |name: &ResourceName| i128::from(free.amount_of(name).0);
            shapes.infeasible_shapes().might_be_on(free).collect()
        };
        // A shape without pods, or with one that requests nothing, may be anywhere.
        let anywhere = [none, empty];
        let cases = [
            ("cpu 1", &[][..]),
            ("cpu 2", &[small]),
            ("cpu 8", &[small, large, both]),
            ("cpu 9", &[small, large, both, unused]),
            ("gpu 1", &[both]),
        ];
        for (list, fitting) in cases {
            let expected: BTreeSet<ShapeId> = fitting.iter().chain(&anywhere).copied().collect();
            assert_eq!(named(&shapes, list), expected, "{list}");
        }
        for id in all {
            shapes.note_feasible(id);
        }
        assert_eq!(named(&shapes, "cpu 9"), BTreeSet::new());
        assert_eq!(shapes.infeasible_shapes().feasible().len(), all.len());
        assert!(shapes.are_listed());
    }

    #[test]
    fn of_shapes_that_request_the_same_only_those_without_enough_are_looked_at() {
        let mut shapes = Shapes::default();
        let mut of_gpus = |count: u32, natively_divisible: bool| {
            let role = demand(count, "nvidia.com/gpu 8");
            let demand = Demand {
                natively_divisible,
                ..role
            };
            shapes.acquire(testing::shape(demand))
        };
        let whole: Vec<ShapeId> = (1..=100).map(|count| of_gpus(count, false)).collect();
        let divisible: Vec<ShapeId> = (1..=100).map(|count| of_gpus(count, true)).collect();
        let two = shapes.acquire(shape(&[(1, Some("nvidia.com/gpu 8")), (70, Some("cpu 1"))]));
        for id in whole.iter().chain(&divisible).chain([&two]) {
            shapes.note_infeasible(*id, Infeasible::NoRoom, 1);
        }
        let asked = std::cell::Cell::new(0);
        let short = shapes.infeasible_shapes().short(|name, each, count| {
            asked.set(asked.get() + 1);
            let most = match (name.is_device(), each.divisible) {
                (true, true) => 99,
                (true, false) => 98,
                (false, _) => 69,
            };
            count <= most
        });
        let expected = [whole[98], whole[99], divisible[99], two];
        assert_eq!(short, BTreeSet::from(expected));
        // Those four, and the largest that have enough of either kind.
        assert_eq!(asked.get(), 4 + 2);
    }

    #[test]
    fn a_reservation_makes_shapes_infeasible_until_the_last_of_them_is_feasible() {
        let mut shapes = Shapes::default();
        let [one, two] = ["one", "two"].map(|name| JobKey::new("ns", name));
        let [both, first] = [&[(1, Some("cpu 1"))], &[(1, Some("cpu 2"))]]
            .map(|roles| shapes.acquire(shape(roles)));
        let why = |owners: &[&JobKey]| {
            Infeasible::Withheld(owners.iter().map(|owner| (*owner).clone()).collect())
        };
        shapes.note_infeasible(both, why(&[&one, &two]), 1);
        shapes.note_infeasible(first, why(&[&one]), 1);
        let stopped = |shapes: &Shapes| {
            [&one, &two].map(|owner| shapes.infeasible_shapes().are_stopped_by(owner))
        };
        assert_eq!(stopped(&shapes), [true, true]);
        shapes.note_feasible(both);
        assert_eq!(stopped(&shapes), [true, false]);
        shapes.note_feasible(first);
        assert_eq!(stopped(&shapes), [false, false]);
    }
}
