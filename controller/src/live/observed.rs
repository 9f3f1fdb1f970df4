//! What was read of the control plane and of the members, as the controller keeps it. Plain data.

use crate::facts::queue_rights::Pair;
use crate::mirror::seen_work::ReadWork;
use crate::mirror::template::Template;
use crds::capacity_policy::CapacityPolicy;
use crds::devices::ResourceClaimTemplate;
use crds::fault_policy::FaultPolicy;
use crds::karmada::ResourceBinding;
use crds::kubernetes::{Namespace, PriorityClass};
use crds::muster_config::MusterConfig;
use crds::podgroup::PodGroup;
use crds::queue::Queue;
use engine::JobKey;
use kube::core::ObjectMeta;
use members::MemberEvent;
use std::collections::BTreeSet;

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct LiveObjects {
    pub(crate) bindings: Vec<ResourceBinding>,
    pub(crate) works: Vec<ReadWork>,
    pub(crate) templates: Vec<Template>,
    pub(crate) namespaces: Vec<Namespace>,
    pub(crate) queues: Vec<Queue>,
    pub(crate) capacity_policies: Vec<CapacityPolicy>,
    pub(crate) configs: Vec<MusterConfig>,
    pub(crate) fault_policies: Vec<FaultPolicy>,
    pub(crate) priority_classes: Vec<PriorityClass>,
    pub(crate) claim_templates: Vec<ResourceClaimTemplate>,
    pub(crate) podgroups: Vec<(JobKey, PodGroup)>,
    /// The metadata of OverridePolicies and ClusterOverridePolicies.
    pub(crate) overrides: Vec<ObjectMeta>,
    pub(crate) members: Vec<MemberEvent>,
    pub(crate) rights: Vec<(Pair, bool)>,
    /// The queues that the user may use in namespaces where not everybody may.
    pub(crate) own_rights: BTreeSet<Pair>,
    /// What could not be read and was not needed, or makes answers worse.
    pub notes: Vec<String>,
}

impl LiveObjects {
    /// Returns the Queue of this name.
    #[must_use]
    pub fn queue(&self, name: &str) -> Option<&Queue> {
        let mut queues = self.queues.iter();
        queues.find(|queue| queue.metadata.name.as_deref() == Some(name))
    }

    /// Returns what a Queue and the CapacityPolicy of its name state differently.
    #[must_use]
    pub fn conflicts(&self, queue: &Queue) -> Vec<String> {
        let mut policies = self.capacity_policies.iter();
        let policy = policies.find(|policy| policy.metadata.name == queue.metadata.name);
        let stated = queue.with_policy(policy);
        stated.map_or_else(Vec::new, |stated| stated.conflicts)
    }
}
