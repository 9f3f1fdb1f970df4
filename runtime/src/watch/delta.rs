//! What a watch reports: deltas, and the keys of objects.

use kube::Resource;
use std::fmt;

/// A change of objects of one kind.
#[derive(Debug, Clone, PartialEq)]
pub enum Delta<K> {
    /// The object exists, or changed. It may be repeated without a change.
    Upserted(K),
    /// The object is gone. An object that was deleted and created again while the connection was down is
    /// reported as gone first.
    Gone(ObjectKey),
    /// All existing objects have been sent, and all deleted ones as gone: once after the first list, and again
    /// after each later one.
    Listed,
}

impl<K> Delta<K> {
    /// Returns the same change with the object converted by `read`.
    pub fn map<T>(self, read: impl FnOnce(K) -> T) -> Delta<T> {
        match self {
            Self::Upserted(object) => Delta::Upserted(read(object)),
            Self::Gone(key) => Delta::Gone(key),
            Self::Listed => Delta::Listed,
        }
    }
}

/// Name and namespace, if any, of an object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    /// The namespace; `None` for objects of cluster scope.
    pub namespace: Option<String>,
    /// The name.
    pub name: String,
}

impl ObjectKey {
    /// Returns the key of `object`.
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
