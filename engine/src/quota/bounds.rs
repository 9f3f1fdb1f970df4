//! What a queue may have of each resource that is named.

use crate::amounts::resource_ids::{ResourceId, ResourceIds};
use crate::amounts::totals::clamp;
use facts::Resources;
use facts::small_map::SmallMap;

/// Amounts by resource; what is absent is not bounded, and an explicit zero is none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Bounds(SmallMap<ResourceId, i128>);

impl Bounds {
    pub(super) fn of(ids: &mut ResourceIds, resources: &Resources) -> Self {
        let amounts = resources.iter();
        Self(
            amounts
                .map(|(name, amount)| (ids.intern(name), i128::from(amount.0)))
                .collect(),
        )
    }

    pub(super) fn get(&self, id: ResourceId) -> Option<i128> {
        self.0.get(&id).copied()
    }

    pub(super) fn set(&mut self, id: ResourceId, amount: i128) {
        self.0.insert(id, amount);
    }

    /// Those that are named.
    pub(super) fn iter(&self) -> impl Iterator<Item = (ResourceId, i128)> {
        self.0.iter().map(|(id, amount)| (*id, *amount))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Of two for the same thing, resource by resource: `pick` where both name it, else the one that
    /// does.
    pub(super) fn merge(&mut self, other: &Self, pick: impl Fn(i128, i128) -> i128) {
        for (id, amount) in other.iter() {
            let merged = self.get(id).map_or(amount, |known| pick(known, amount));
            self.set(id, merged);
        }
    }

    /// For output, zeros included.
    pub(super) fn named(&self, ids: &ResourceIds) -> Resources {
        self.iter()
            .map(|(id, amount)| (ids.name(id).clone(), clamp(amount)))
            .collect()
    }
}
