//! Objects of one kind that a member has shown, over any number of connections. Pure.

use runtime::watch::{Delta, ObjectKey};
use std::collections::{BTreeMap, BTreeSet};

/// What is known by key. Outlives a connection: what has vanished meanwhile is found when the
/// next one has listed.
#[derive(Debug)]
pub(super) struct Known<T> {
    objects: BTreeMap<ObjectKey, T>,
    /// Known from an earlier connection and not yet seen over this one.
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
    /// A new connection begins to list.
    pub(super) fn begin(&mut self) {
        self.listed = false;
        self.unseen = self.objects.keys().cloned().collect();
    }

    /// Whether it has listed over the present connection.
    pub(super) fn has_listed(&self) -> bool {
        self.listed
    }

    /// Takes in `delta`; the keys of what may be another now, with what it was.
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
