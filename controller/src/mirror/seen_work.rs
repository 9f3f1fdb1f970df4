//! What the controller keeps of a Work: whether it exists, and what it requests.
//!
//! The task of the watch reads each Work as it arrives, so that a large manifest is parsed once and takes
//! no memory after that.

use crate::mirror::BindingIdentity;
use crds::karmada::{self, AppliedOverride, Work};
use engine::QueueName;
use kube::core::ObjectMeta;
use runtime::watch::ObjectKey;
use workload::Rendered;

/// A Work of a job.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct SeenWork {
    pub(crate) cluster: String,
    /// True if it is being deleted.
    pub(crate) deleting: bool,
    /// Why the member refused it, if so.
    pub(crate) refused: Option<String>,
    /// The part of its job that it applies, for a job in parts.
    pub(crate) part: Option<String>,
    /// What it makes the member run, after all overrides; `None` if that cannot be read.
    pub(crate) asks: Option<Rendered>,
    /// Policies whose overrides Karmada applied to it.
    pub(crate) overrides: Vec<AppliedOverride>,
    /// True if its objects stay in the member when it is deleted.
    pub(crate) preserves: bool,
    /// The queue that its manifest names, if any.
    pub(crate) queue: Option<QueueName>,
}

/// A Work that arrived.
#[derive(Debug, Clone)]
pub(crate) struct ReadWork {
    pub(crate) object: ObjectKey,
    /// Its binding, as Karmada notes on it; `None` if it names none.
    pub(crate) owner: Option<BindingIdentity>,
    pub(crate) seen: SeenWork,
}

impl ReadWork {
    pub(crate) fn of(mut work: Work) -> Self {
        let refused = karmada::condition(&work.status.conditions, "Applied")
            .filter(|condition| condition.status == "False")
            .map(|condition| condition.message.clone());
        let owner = BindingIdentity::of_work(&work.metadata);
        let part = work.part().map(str::to_owned);
        let mut named = work.spec.workload.manifests.iter();
        let queue = named.find_map(workload::named_queue);
        let manifests = std::mem::take(&mut work.spec.workload.manifests);
        Self {
            object: key_of(&work.metadata),
            seen: SeenWork {
                cluster: work.cluster().to_owned(),
                deleting: work.metadata.deletion_timestamp.is_some(),
                refused,
                part,
                // A Work that belongs to no job is not compared with anything.
                asks: manifests
                    .into_iter()
                    .find_map(workload::rendered)
                    .filter(|_| owner.is_some()),
                overrides: work.overridden_by(),
                preserves: work.spec.preserve_resources_on_deletion == Some(true),
                queue: queue.as_deref().map(QueueName::new),
            },
            owner,
        }
    }
}

fn key_of(metadata: &ObjectMeta) -> ObjectKey {
    ObjectKey {
        namespace: metadata.namespace.clone(),
        name: metadata.name.clone().unwrap_or_default(),
    }
}
