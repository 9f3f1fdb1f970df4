//! What a watch reports: deltas, and the keys of objects.

use kube::Resource;
use std::fmt;

/// What became known about objects of one kind.
#[derive(Debug, Clone, PartialEq)]
pub enum Delta<K> {
    /// The object exists, or changed. May be told again without a change.
    Upserted(K),
    /// The object is gone. One that was deleted and created again while the connection was
    /// down is reported as gone first.
    Gone(ObjectKey),
    /// Everything that exists has been told, and everything that vanished meanwhile as gone:
    /// once after the first list, and again after each later one.
    Listed,
}

impl<K> Delta<K> {
    /// The same of what `read` makes of the object.
    pub fn map<T>(self, read: impl FnOnce(K) -> T) -> Delta<T> {
        match self {
            Self::Upserted(object) => Delta::Upserted(read(object)),
            Self::Gone(key) => Delta::Gone(key),
            Self::Listed => Delta::Listed,
        }
    }
}

/// Namespace, where it has one, and name of an object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    /// The namespace; none for objects of cluster scope.
    pub namespace: Option<String>,
    /// The name.
    pub name: String,
}

impl ObjectKey {
    /// The key of `object`.
    #[must_use]
    pub fn of<K: Resource>(object: &K) -> Self {
        let meta = object.meta();
        Self {
            namespace: meta.namespace.clone(),
            name: meta.name.clone().unwrap_or_default(),
        }
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{namespace}/{}", self.name),
            None => f.write_str(&self.name),
        }
    }
}
