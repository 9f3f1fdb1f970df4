//! Hash maps and sets with a fixed seed.
//!
//! The order of their entries depends on their history, so no decision may depend on it: code
//! that iterates over one sorts, or gives the same result in any order.

use foldhash::fast::FixedState;
use std::collections::{HashMap, HashSet};

/// A hash map with the same hashes in every process.
pub(crate) type Hashed<K, V> = HashMap<K, V, FixedState>;

/// A hash set with the same hashes in every process.
pub(crate) type HashedSet<K> = HashSet<K, FixedState>;
