//! Names at the edge of the engine, each its own type so that none can stand for another.

use serde::{Deserialize, Serialize};
use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

macro_rules! name_type {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(Arc<str>);

        impl $name {
            /// A name from its text.
            #[must_use]
            pub fn new(name: impl AsRef<str>) -> Self {
                Self(Arc::from(name.as_ref()))
            }

            /// The name that `text` is, without a copy of it.
            #[must_use]
            pub fn shared(text: Arc<str>) -> Self {
                Self(text)
            }

            /// The name's text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl From<&str> for $name {
            fn from(name: &str) -> Self {
                Self::new(name)
            }
        }
    };
}

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
name_type! {
    /// The UID of an API object, which tells a re-created object from the first.
    Uid
}

/// A job: the namespace and name of its ResourceBinding, which is unique among all kinds.
/// Keys are in order of namespace, then name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct JobKey {
    /// Namespace of the binding and of the template.
    pub namespace: Arc<str>,
    /// Name of the binding, which is also that of the PodGroup.
    pub name: Arc<str>,
}

impl JobKey {
    /// The key of the binding `namespace/name`.
    #[must_use]
    pub fn new(namespace: &str, name: &str) -> Self {
        Self {
            namespace: Arc::from(namespace),
            name: Arc::from(name),
        }
    }
}

impl Ord for JobKey {
    fn cmp(&self, other: &Self) -> Ordering {
        // Jobs of a namespace share its text: most often nobody has to look at it.
        let namespaces = if Arc::ptr_eq(&self.namespace, &other.namespace) {
            Ordering::Equal
        } else {
            self.namespace.cmp(&other.namespace)
        };
        namespaces.then_with(|| self.name.cmp(&other.name))
    }
}

impl PartialOrd for JobKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for JobKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// A point in time, in milliseconds since the Unix epoch. The engine has no clock: every
/// time comes in with an event or with `decide(now)`.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Time(pub i64);

impl Time {
    /// `self` plus `millis` milliseconds, at most the end of time.
    #[must_use]
    pub fn after(self, millis: i64) -> Self {
        Self(self.0.saturating_add(millis))
    }

    /// Milliseconds from `earlier` to `self`, zero where `earlier` is later.
    #[must_use]
    pub fn millis_since(self, earlier: Self) -> i64 {
        self.0.saturating_sub(earlier.0).max(0)
    }
}

/// The attempt of a job: 1 for its first release, one more for every release after. Fences
/// what an earlier attempt left behind.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Attempt(pub u32);
