//! Maps for looking up by name, where an ordered one would compare a dozen names on the way.
//!
//! Hashes are the same in every process; even so nothing may follow from the order in which
//! such a map or set is listed, since that depends on what was in it before: code that lists one
//! sorts, or does what comes to the same in any order.

use foldhash::fast::FixedState;
use std::collections::{HashMap, HashSet};

/// A map to look up in.
pub(crate) type Hashed<K, V> = HashMap<K, V, FixedState>;

/// A set to look up in.
pub(crate) type HashedSet<K> = HashSet<K, FixedState>;
