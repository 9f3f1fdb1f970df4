//! What a namespace says about the jobs and bindings in it.

use crds::kubernetes::Namespace;
use crds::names;
use std::collections::BTreeMap;

/// The part of a namespace that determines the phase of its bindings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct NamespaceRule {
    /// Labelled `muster.io/managed=true` and not a system namespace.
    pub(crate) managed: bool,
    /// True if the earlier workloads there are adopted; no more are.
    pub(crate) adopted: bool,
}

impl NamespaceRule {
    /// Returns true if workloads that run there without an admission count as earlier ones.
    pub(crate) fn adopts(self) -> bool {
        self.managed && !self.adopted
    }
}

/// The part of a namespace that concerns its jobs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct NamespaceFact {
    pub(crate) managed: bool,
    pub(crate) default_queue: Option<String>,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) terminating: bool,
    /// True if all workloads that ran there before it was managed are adopted.
    pub(crate) adopted: bool,
    /// The resourceVersion of the Namespace, which guards writes of it.
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

    /// Returns the queue of its jobs that name none.
    pub(crate) fn queue(&self) -> &str {
        self.default_queue
            .as_deref()
            .unwrap_or(names::DEFAULT_QUEUE)
    }

    /// Returns true if it equals `other`, except for the version.
    pub(crate) fn equals(&self, other: &Self) -> bool {
        let of_version = Self {
            version: other.version.clone(),
            ..self.clone()
        };
        of_version == *other
    }

    /// Returns the part that determines the phase of its bindings.
    pub(crate) fn rule(&self) -> NamespaceRule {
        NamespaceRule {
            managed: self.managed,
            adopted: self.adopted,
        }
    }
}
