//! The shapes of the jobs of one user, and of one namespace, where limits concern them.
//!
//! It lists what [`crate::pending::shapes`] owns, and decides nothing.

use crate::pending::shapes::{RequestShape, ShapeId};
use crate::quota::ChargeOwner;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Shapes by owner; no owner is without any.
type OfOwners = BTreeMap<Arc<str>, BTreeSet<ShapeId>>;

/// The shapes that name an owner.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ShapesByOwner {
    users: OfOwners,
    namespaces: OfOwners,
}

impl ShapesByOwner {
    pub(super) fn insert(&mut self, id: ShapeId, shape: &RequestShape) {
        for (owner, of_owners) in self.owners(shape) {
            let of_owner = of_owners.entry(Arc::clone(owner)).or_default();
            of_owner.insert(id);
        }
    }

    pub(super) fn remove(&mut self, id: ShapeId, shape: &RequestShape) {
        for (owner, of_owners) in self.owners(shape) {
            if let Some(of_owner) = of_owners.get_mut(owner) {
                of_owner.remove(&id);
                if of_owner.is_empty() {
                    of_owners.remove(owner);
                }
            }
        }
    }

    /// The shapes of jobs which a limit on this owner concerns.
    pub(super) fn of(&self, owner: ChargeOwner<'_>) -> impl Iterator<Item = ShapeId> {
        let of_user = self.users.get(owner.user).into_iter();
        let of_both = of_user.chain(self.namespaces.get(owner.namespace));
        of_both.flatten().copied()
    }

    /// The owners that a shape names, with the list in which each has its shapes.
    fn owners<'a>(
        &'a mut self,
        shape: &'a RequestShape,
    ) -> impl Iterator<Item = (&'a Arc<str>, &'a mut OfOwners)> {
        let users = shape.user.as_ref().map(|user| (user, &mut self.users));
        let namespaces = shape.namespace.as_ref();
        let namespaces = namespaces.map(|namespace| (namespace, &mut self.namespaces));
        users.into_iter().chain(namespaces)
    }
}
