//! Objects of one kind that a member has shown, over all its connections. Pure.

use runtime::watch::{Delta, ObjectKey};
use std::collections::{BTreeMap, BTreeSet};

/// The known objects by key. They outlive a connection: objects that were deleted meanwhile are found when
/// the next connection has listed.
#[derive(Debug)]
pub(super) struct Known<T> {
    objects: BTreeMap<ObjectKey, T>,
    /// Objects from an earlier connection that have not been seen over the present one.
    unseen: BTreeSet<ObjectKey>,
    listed: bool,
}

impl<T> Default for Known<T> {
    fn default() -> Self {
        Self {
            objects: BTreeMap::new(),
            unseen: BTreeSet::new(),
            listed: false,
        }
    }
}

impl<T> Known<T> {
    /// Starts to list over a new connection.
    pub(super) fn begin(&mut self) {
        self.listed = false;
        self.unseen = self.objects.keys().cloned().collect();
    }

    /// Returns true if it has listed over the present connection.
    pub(super) fn has_listed(&self) -> bool {
        self.listed
    }

    /// Applies `delta` and returns the keys of objects that may have changed, with their old values.
    pub(super) fn take(&mut self, delta: Delta<(ObjectKey, T)>) -> Vec<(ObjectKey, Option<T>)> {
        match delta {
            Delta::Upserted((key, object)) => {
                self.unseen.remove(&key);
                let before = self.objects.insert(key.clone(), object);
                vec![(key, before)]
            }
            Delta::Gone(key) => {
                self.unseen.remove(&key);
                let before = self.objects.remove(&key);
                vec![(key, before)]
            }
            Delta::Listed => {
                self.listed = true;
                let gone = std::mem::take(&mut self.unseen).into_iter();
                gone.map(|key| {
                    let before = self.objects.remove(&key);
                    (key, before)
                })
                .collect()
            }
        }
    }

    pub(super) fn get(&self, key: &ObjectKey) -> Option<&T> {
        self.objects.get(key)
    }

    pub(super) fn get_mut(&mut self, key: &ObjectKey) -> Option<&mut T> {
        self.objects.get_mut(key)
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &T> {
        self.objects.values()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (&ObjectKey, &mut T)> {
        self.objects.iter_mut()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&ObjectKey, &T)> {
        self.objects.iter()
    }
}
