//! A hash map in parts.
//!
//! A hash map that is full is built again, in one step that takes 100 ms for a million entries. The parts of this one
//! are built again one at a time.

use super::hashed::Hashed;
use foldhash::fast::FixedState;
use std::hash::{BuildHasher, Hash};

/// The number of parts; a power of two.
const PARTS: usize = 256;

/// A hash map with the same hashes in every process. The order of its entries depends on its history.
#[derive(Debug, Clone)]
pub(crate) struct Sharded<K, V>(Vec<Hashed<K, V>>);

impl<K, V> Default for Sharded<K, V> {
    fn default() -> Self {
        Self((0..PARTS).map(|_| Hashed::default()).collect())
    }
}

impl<K: Hash + Eq, V> Sharded<K, V> {
    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        self.0.get(part_of(key))?.get(key)
    }

    pub(crate) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.0.get_mut(part_of(key))?.get_mut(key)
    }

    pub(crate) fn insert(&mut self, key: K, value: V) {
        self.0[part_of(&key)].insert(key, value);
    }

    /// The value of a key, which is made if there is none.
    pub(crate) fn get_or_insert(&mut self, key: K, new: impl FnOnce() -> V) -> &mut V {
        self.0[part_of(&key)].entry(key).or_insert_with(new)
    }

    pub(crate) fn remove(&mut self, key: &K) {
        if let Some(part) = self.0.get_mut(part_of(key)) {
            part.remove(key);
        }
    }

    /// In no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.0.iter().flatten()
    }
}

/// By other bits of the hash than those by which a part finds its entries.
fn part_of(key: &impl Hash) -> usize {
    let hash = FixedState::with_seed(1).hash_one(key);
    (hash % PARTS as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn it_is_one_map_over_all_parts() {
        let mut sharded = Sharded::default();
        let mut known = BTreeMap::new();
        for key in 0..2_000_u32 {
            assert_eq!(*sharded.get_or_insert(key % 1_500, || key), key % 1_500);
            known.insert(key % 1_500, key % 1_500);
        }
        for key in (0..1_500).step_by(3) {
            sharded.remove(&key);
            known.remove(&key);
            assert_eq!(sharded.get(&key), None);
        }
        for (key, value) in &mut known {
            *value += 1;
            assert_eq!(sharded.get_mut(key).map(|value| *value += 1), Some(()));
        }
        sharded.insert(0, 7);
        known.insert(0, 7);
        let entries: BTreeMap<u32, u32> =
            sharded.iter().map(|(key, value)| (*key, *value)).collect();
        assert_eq!(entries, known);
        let largest = sharded.0.iter().map(Hashed::len).max();
        assert_eq!(largest.filter(|largest| *largest < 20), largest);
    }
}
