//! What a namespace says of the jobs and bindings in it.

use crds::kubernetes::Namespace;
use std::collections::BTreeMap;

/// What the namespace of a binding says of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct NamespaceRule {
    /// Labelled `muster.io/managed=true` and not a system namespace.
    pub(crate) managed: bool,
    /// Whether what ran there before has been adopted: nothing more is.
    pub(crate) adopted: bool,
}

/// What a namespace says of its jobs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct NamespaceFact {
    pub(crate) managed: bool,
    pub(crate) default_queue: Option<String>,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) terminating: bool,
    /// Whether all that ran there before it was managed has been adopted.
    pub(crate) adopted: bool,
    /// Its resourceVersion, by which what is written of it is guarded.
    pub(crate) version: Option<String>,
}

impl NamespaceFact {
    /// Reads `namespace`.
    pub(crate) fn of(namespace: &Namespace) -> Self {
        Self {
            managed: namespace.is_managed(),
            default_queue: namespace.default_queue().map(str::to_owned),
            labels: namespace.metadata.labels.clone().unwrap_or_default(),
            terminating: namespace.metadata.deletion_timestamp.is_some(),
            adopted: namespace.is_adopted(),
            version: namespace.metadata.resource_version.clone(),
        }
    }

    /// Whether it says what `other` says, of whatever version.
    pub(crate) fn says(&self, other: &Self) -> bool {
        let of_version = Self {
            version: other.version.clone(),
            ..self.clone()
        };
        of_version == *other
    }

    /// What it says of the phase of its bindings.
    pub(crate) fn rule(&self) -> NamespaceRule {
        NamespaceRule {
            managed: self.managed,
            adopted: self.adopted,
        }
    }
}
