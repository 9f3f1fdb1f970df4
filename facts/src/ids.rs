//! Names, times and attempts. Each has a type of its own, so that they cannot be confused.

use crate::texts::{name_type, order_of_texts};
pub use crate::uid::Uid;
use foldhash::fast::FixedState;
use serde::{Deserialize, Serialize};
use std::cmp::Ordering;
use std::fmt;
use std::hash::{BuildHasher, Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;

name_type! {
    /// A queue: the name of a Volcano `Queue` and of its `CapacityPolicy`.
    QueueName
}

name_type! {
    /// A member cluster, as Karmada names it.
    ClusterName
}

name_type! {
    /// A node of a member cluster.
    NodeName
}

name_type! {
    /// A class of nodes: what makes devices interchangeable (`nvidia-h100-80gb`, `cpu`).
    /// A pool is one class in one cluster.
    PoolClass
}

/// A job: the namespace and name of its ResourceBinding, which is unique across kinds.
/// Keys are ordered by namespace, then name.
///
/// All clones share one copy of the texts, since half a dozen indexes name a pending job.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "JobNames", into = "JobNames")]
pub struct JobKey(Arc<Keyed>);

/// The texts of a [`JobKey`]; a key dereferences to them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobNames {
    /// Namespace of the binding and of the template.
    pub namespace: Arc<str>,
    /// Name of the binding, which is also that of the PodGroup.
    pub name: Box<str>,
}

/// The texts and their hash: a key is made once and looked up many times.
#[derive(PartialEq, Eq)]
struct Keyed {
    hash: u64,
    names: JobNames,
}

impl JobKey {
    /// The key of the binding `namespace/name`.
    #[must_use]
    pub fn new(namespace: &str, name: &str) -> Self {
        Self::within(Arc::from(namespace), name)
    }

    /// The key of the binding `namespace/name`, without a copy of the namespace.
    #[must_use]
    pub fn within(namespace: Arc<str>, name: &str) -> Self {
        // The hash is the same in every process.
        let hash = FixedState::default().hash_one((&namespace, name));
        let name = Box::from(name);
        Self(Arc::new(Keyed {
            hash,
            names: JobNames { namespace, name },
        }))
    }

    /// The key of the pods of `namespace` that belong to no job. No binding has an empty name, so it is the key of
    /// no job.
    #[must_use]
    pub fn of_namespace(namespace: &str) -> Self {
        Self::new(namespace, "")
    }

    /// Returns true if it is the key of a job, and not that of the pods of a namespace that belong to none.
    #[inline]
    #[must_use]
    pub fn is_job(&self) -> bool {
        !self.name.is_empty()
    }
}

impl Deref for JobKey {
    type Target = JobNames;

    #[inline]
    fn deref(&self) -> &JobNames {
        &self.0.names
    }
}

impl From<JobNames> for JobKey {
    fn from(names: JobNames) -> Self {
        Self::within(names.namespace, &names.name)
    }
}

impl From<JobKey> for JobNames {
    fn from(key: JobKey) -> Self {
        key.0.names.clone()
    }
}

impl Hash for JobKey {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.0.hash);
    }
}

impl Ord for JobKey {
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        if Arc::ptr_eq(&self.0, &other.0) {
            return Ordering::Equal;
        }
        order_of_texts(&self.namespace, &other.namespace).then_with(|| self.name.cmp(&other.name))
    }
}

impl PartialOrd for JobKey {
    #[inline]
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Debug for JobKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut key = f.debug_struct("JobKey");
        key.field("namespace", &self.namespace);
        key.field("name", &self.name).finish()
    }
}

impl fmt::Display for JobKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// A point in time, in milliseconds since the Unix epoch. The engine has no clock: times come
/// with events and with `decide(now)`.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Time(pub i64);

impl Time {
    /// `self` plus `millis` milliseconds, at most the end of time.
    #[inline]
    #[must_use]
    pub fn after(self, millis: i64) -> Self {
        Self(self.0.saturating_add(millis))
    }

    /// Milliseconds from `earlier` to `self`, zero if `earlier` is later.
    #[inline]
    #[must_use]
    pub fn millis_since(self, earlier: Self) -> i64 {
        self.0.saturating_sub(earlier.0).max(0)
    }
}

/// The number of an attempt: 1 for the first admission of a job, one more for each after it.
/// Reports about an older attempt are ignored.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Attempt(pub u32);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_one_text_are_equal_whether_they_share_it_or_not() {
        let hash = |name: &QueueName| FixedState::default().hash_one(name);
        let name = QueueName::new("vision");
        for same in [name.clone(), QueueName::new("vision")] {
            assert_eq!((&same, hash(&same)), (&name, hash(&name)));
        }
        assert_ne!(QueueName::new("visions"), name);
    }

    #[test]
    fn different_keys_have_different_hashes() {
        let hash = |namespace, name| FixedState::default().hash_one(JobKey::new(namespace, name));
        let keys = [("ns", "a"), ("ns", "b"), ("other", "a")];
        let hashes = keys.map(|(namespace, name)| hash(namespace, name));
        assert_eq!(hashes, keys.map(|(namespace, name)| hash(namespace, name)));
        assert!(hashes[0] != hashes[1] && hashes[0] != hashes[2] && hashes[1] != hashes[2]);
    }
}
