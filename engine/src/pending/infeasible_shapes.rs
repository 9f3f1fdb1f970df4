//! The request shapes, by what may make them feasible: a node with freed capacity names the shapes that
//! it might take, and is offered to them; the other infeasible ones cost nothing.

use crate::amounts::resources::ResourceName;
use crate::api::ids::JobKey;
use crate::capacity::leading;
use crate::pending::infeasible::Infeasible;
use crate::pending::offers::{Offer, Offers};
use crate::pending::shapes::{RequestShape, ShapeId};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// The shapes in use, feasible and infeasible.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct InfeasibleShapes {
    feasible: BTreeSet<ShapeId>,
    /// The infeasible ones that freed nodes may take.
    offers: Offers,
    /// The other infeasible ones, by the amount of its leading resource that a pod of a role requests.
    by_leading: BTreeMap<ResourceName, BTreeMap<i64, BTreeSet<ShapeId>>>,
    /// Those with a role that requests nothing.
    undemanding: BTreeSet<ShapeId>,
    /// Those that reservations make infeasible, which does not hold for the jobs before all of these.
    withheld: BTreeSet<ShapeId>,
    /// How many shapes the reservation of a job makes infeasible.
    stopped_by: HashMap<JobKey, usize>,
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
            let listed = match request {
                Some((name, amount)) => {
                    let by_amount = self.by_leading.entry(name.clone()).or_default();
                    by_amount.entry(amount).or_default()
                }
                None => &mut self.undemanding,
            };
            listed.insert(id);
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
            let Some((name, amount)) = request else {
                self.undemanding.remove(&id);
                continue;
            };
            let Some(by_amount) = self.by_leading.get_mut(name) else {
                continue;
            };
            if let Some(listed) = by_amount.get_mut(&amount) {
                listed.remove(&id);
                if listed.is_empty() {
                    by_amount.remove(&amount);
                }
            }
            if by_amount.is_empty() {
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

    /// Whether the reservation of a job makes any shape infeasible.
    pub(crate) fn are_stopped_by(&self, owner: &JobKey) -> bool {
        self.stopped_by.contains_key(owner)
    }

    /// The infeasible shapes that nothing is offered to of which a pod might fit on a node with so much free of each
    /// resource, as far as one resource tells. A shape is named once for each of its roles.
    pub(crate) fn might_be_on(
        &self,
        free: impl Fn(&ResourceName) -> i128,
    ) -> impl Iterator<Item = ShapeId> {
        let fitting = self.by_leading.iter().flat_map(move |(name, by_amount)| {
            let free = i64::try_from(free(name).max(0)).unwrap_or(i64::MAX);
            by_amount.range(..=free).flat_map(|(_, shapes)| shapes)
        });
        fitting.chain(&self.undemanding).copied()
    }
}

/// The owners of the reservations that make a shape infeasible.
fn owners(why: &Infeasible) -> &[JobKey] {
    match why {
        Infeasible::NoRoom => &[],
        Infeasible::Withheld(owners) => owners,
    }
}

/// What a pod of each role requests of its leading resource; `None` for nothing. A shape without pods
/// requests nothing.
fn requests(shape: &RequestShape) -> impl Iterator<Item = Option<(&ResourceName, i64)>> {
    let roles = shape.demand.roles.iter().filter(|role| role.count > 0);
    let none = roles.clone().next().is_none();
    let requests = roles.map(|role| {
        let name = leading(&role.request)?;
        let amount = role.request.amount_of(name).0;
        (amount > 0).then_some((name, amount))
    });
    requests.chain(none.then_some(None))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::demand::Demand;
    use crate::capacity::testing::{demand, resources};
    use crate::pending::shapes::Shapes;
    use crate::pending::testing;

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
