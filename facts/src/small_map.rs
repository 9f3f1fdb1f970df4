//! A map with few entries, in order of their keys.
//!
//! Resource lists are short, and millions of them are made, compared and dropped. A sorted vector
//! needs one allocation of the right size, and a linear search in it is fast.

use std::fmt;

/// A map as a vector of entries, sorted by key. It compares as a `BTreeMap` does.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SmallMap<K, V>(Vec<(K, V)>);

impl<K, V> Default for SmallMap<K, V> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<K: Ord, V> SmallMap<K, V> {
    /// The value of `key`.
    pub fn get(&self, key: &K) -> Option<&V> {
        // Equal names mostly share one text, so comparing them is cheap.
        let entry = self.0.iter().find(|(known, _)| known == key);
        entry.map(|(_, value)| value)
    }

    /// The value of `key`, mutable.
    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        let entry = self.0.iter_mut().find(|(known, _)| known == key);
        entry.map(|(_, value)| value)
    }

    /// Sets the value of `key`.
    pub fn insert(&mut self, key: K, value: V) {
        match self.0.binary_search_by(|(known, _)| known.cmp(&key)) {
            Ok(at) => self.0[at].1 = value,
            Err(at) => self.0.insert(at, (key, value)),
        }
    }

    /// Removes the entry of `key`, if there is one.
    pub fn remove(&mut self, key: &K) {
        self.0.retain(|(known, _)| known != key);
    }

    /// Keeps only the entries for which `keep` returns true.
    pub fn retain(&mut self, keep: impl Fn(&V) -> bool) {
        self.0.retain(|(_, value)| keep(value));
    }

    /// All entries, in order of their keys.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.0.iter().map(|(key, value)| (key, value))
    }

    /// Returns true if there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<K: Ord, V> FromIterator<(K, V)> for SmallMap<K, V> {
    /// If a key occurs twice, the last entry wins.
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        let mut few = Self::default();
        let entries = entries.into_iter();
        few.0.reserve_exact(entries.size_hint().0);
        for (key, value) in entries {
            few.insert(key, value);
        }
        few
    }
}

impl<K: fmt::Debug, V: fmt::Debug> fmt::Debug for SmallMap<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let entries = self.0.iter().map(|(key, value)| (key, value));
        f.debug_map().entries(entries).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn both(entries: &[(u8, i8)]) -> (SmallMap<u8, i8>, BTreeMap<u8, i8>) {
        let entries = || entries.iter().copied();
        (entries().collect(), entries().collect())
    }

    proptest! {
        #[test]
        fn behaves_as_a_btree_map(
            entries in proptest::collection::vec((0..9_u8, any::<i8>()), 0..12),
            others in proptest::collection::vec((0..9_u8, any::<i8>()), 0..12),
            gone in 0..9_u8,
        ) {
            let (mut few, mut map) = both(&entries);
            let (other, other_map) = both(&others);
            prop_assert_eq!(few.cmp(&other), map.cmp(&other_map));
            prop_assert_eq!(few == other, map == other_map);
            prop_assert_eq!(format!("{few:?}"), format!("{map:?}"));
            few.remove(&gone);
            map.remove(&gone);
            if let (Some(mine), Some(its)) = (few.get_mut(&3), map.get_mut(&3)) {
                *mine = 0;
                *its = 0;
            }
            few.retain(|value| *value >= 0);
            map.retain(|_, value| *value >= 0);
            prop_assert!(few.iter().eq(map.iter()));
            prop_assert_eq!(few.is_empty(), map.is_empty());
            for key in 0..9 {
                prop_assert_eq!(few.get(&key), map.get(&key));
            }
        }
    }
}
