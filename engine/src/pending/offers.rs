//! Infeasible shapes that a freed node may take: they count as feasible as long as that holds.
//!
//! Each freed node is offered once to the infeasible shapes, not compared with all of them for each head.
//! What is offered may be taken by others before the shape has its turn, so an offer is checked when
//! its shape is asked for. Nothing here knows what is free: `backfill::offers` does.

use crate::pending::shapes::ShapeId;
use facts::{ClusterName, NodeName, ResourceName};
use std::collections::{BTreeMap, BTreeSet};

/// A freed node that took one pod of a shape when it was offered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Offer {
    pub(crate) cluster: ClusterName,
    pub(crate) node: NodeName,
    /// The leading resource of that pod, and how much it requests of it; `None` if it requests nothing.
    pub(crate) leading: Option<(ResourceName, i64)>,
}

/// The offers, one for each shape.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Offers {
    by_shape: BTreeMap<ShapeId, Offer>,
    by_leading: BTreeMap<ResourceName, BTreeSet<(i64, ShapeId)>>,
}

impl Offers {
    pub(super) fn insert(&mut self, id: ShapeId, offer: Offer) {
        self.remove(id);
        if let Some((name, amount)) = &offer.leading {
            let by_amount = self.by_leading.entry(name.clone()).or_default();
            by_amount.insert((*amount, id));
        }
        self.by_shape.insert(id, offer);
    }

    /// Returns true if there was one.
    pub(super) fn remove(&mut self, id: ShapeId) -> bool {
        let Some(offer) = self.by_shape.remove(&id) else {
            return false;
        };
        if let Some((name, amount)) = &offer.leading
            && let Some(by_amount) = self.by_leading.get_mut(name)
        {
            by_amount.remove(&(*amount, id));
            if by_amount.is_empty() {
                self.by_leading.remove(name);
            }
        }
        true
    }

    pub(crate) fn of(&self, id: ShapeId) -> Option<&Offer> {
        self.by_shape.get(&id)
    }

    pub(crate) fn shapes(&self) -> impl Iterator<Item = ShapeId> {
        self.by_shape.keys().copied()
    }

    pub(crate) fn len(&self) -> usize {
        self.by_shape.len()
    }

    /// The resources of which offered shapes request most.
    pub(super) fn leading(&self) -> impl Iterator<Item = &ResourceName> {
        self.by_leading.keys()
    }

    /// The shapes of which the offered pod requests more of a resource than this.
    pub(super) fn above(&self, name: &ResourceName, amount: i128) -> Vec<ShapeId> {
        let from = i64::try_from(amount.saturating_add(1)).unwrap_or(i64::MAX);
        let by_amount = self.by_leading.get(name).into_iter();
        let above = by_amount.flat_map(|by_amount| by_amount.iter().rev());
        let above = above.take_while(|(amount, _)| *amount >= from);
        above.map(|(_, id)| *id).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capacity::testing::demand;
    use crate::pending::shapes::Shapes;
    use crate::pending::testing::shape;

    #[test]
    fn what_is_offered_is_found_by_what_it_requests_until_it_is_removed() {
        let mut shapes = Shapes::default();
        let ids = ["cpu 1", "cpu 2", "gpu 1"].map(|list| shapes.acquire(shape(demand(1, list))));
        let offer = |leading: Option<(&str, i64)>| Offer {
            cluster: ClusterName::from("a"),
            node: NodeName::from("n0"),
            leading: leading.map(|(name, amount)| (ResourceName::new(name), amount)),
        };
        let mut offers = Offers::default();
        offers.insert(ids[0], offer(Some(("cpu", 1))));
        offers.insert(ids[1], offer(Some(("cpu", 2))));
        offers.insert(ids[2], offer(Some(("gpu", 1))));
        let cpu = ResourceName::new("cpu");
        let above = |offers: &Offers, amount| offers.above(&cpu, amount);
        assert_eq!(above(&offers, 0), [ids[1], ids[0]]);
        assert_eq!(above(&offers, 1), [ids[1]]);
        assert_eq!(above(&offers, 2), []);
        // Another offer stands in place of the first.
        offers.insert(ids[1], offer(None));
        assert_eq!(above(&offers, 0), [ids[0]]);
        assert!(offers.remove(ids[0]) && offers.remove(ids[1]) && offers.remove(ids[2]));
        assert!(!offers.remove(ids[0]));
        assert_eq!(offers, Offers::default());
    }
}
