//! Read access to the objects of the mirror, and the objects that are filed unchanged.

use crate::mirror::Mirror;
use crate::mirror::namespace::NamespaceFact;
use crate::mirror::template::{Template, TemplateKey};
use crds::capacity_policy::CapacityPolicy;
use crds::fault_policy::FaultPolicy;
use crds::karmada::ResourceBinding;
use crds::namespace_queue::NamespaceQueue;
use crds::podgroup::PodGroup;
use crds::queue::Queue;
use engine::{JobKey, QueueName};
use runtime::watch::Delta;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

impl Mirror {
    /// The bindings, by job.
    pub(crate) fn bindings(&self) -> &BTreeMap<JobKey, Arc<ResourceBinding>> {
        &self.bindings
    }

    /// Returns the highest resourceVersion of any binding seen so far.
    pub(crate) fn newest_binding(&self) -> u64 {
        self.newest_binding
    }

    /// The templates of jobs.
    pub(crate) fn templates(&self) -> &HashMap<TemplateKey, Template> {
        &self.templates
    }

    /// Returns what the namespaces say about their jobs.
    pub(crate) fn namespaces(&self) -> &BTreeMap<String, NamespaceFact> {
        &self.namespaces
    }

    /// The Queue objects.
    pub(crate) fn queues(&self) -> &BTreeMap<QueueName, Queue> {
        self.queueing.queues()
    }

    /// The capacity policies, by the queue that each is for.
    pub(crate) fn policies(&self) -> &BTreeMap<QueueName, CapacityPolicy> {
        self.queueing.policies()
    }

    /// The PodGroups on the control plane.
    pub(crate) fn podgroups(&self) -> &HashMap<JobKey, Arc<PodGroup>> {
        &self.podgroups
    }

    /// The fault policies, by name.
    pub(crate) fn fault_policies(&self) -> &BTreeMap<String, FaultPolicy> {
        &self.fault_policies
    }

    /// Files a fault policy and returns its previous state.
    pub(crate) fn put_fault_policy(&mut self, policy: FaultPolicy) -> Option<FaultPolicy> {
        let name = policy.metadata.name.clone().unwrap_or_default();
        self.fault_policies.insert(name, policy)
    }

    /// Drops a deleted fault policy.
    pub(crate) fn drop_fault_policy(&mut self, name: &str) {
        self.fault_policies.remove(name);
    }

    /// The NamespaceQueues on the control plane, by namespace and queue.
    pub(crate) fn namespace_queues(&self) -> &BTreeMap<(String, QueueName), NamespaceQueue> {
        &self.namespace_queues
    }

    /// Applies the delta of a NamespaceQueue and returns its namespace.
    pub(crate) fn namespace_queue(&mut self, delta: Delta<NamespaceQueue>) -> Option<String> {
        let (namespace, name, object) = match delta {
            Delta::Upserted(object) => {
                let metadata = &object.metadata;
                (
                    metadata.namespace.clone(),
                    metadata.name.clone()?,
                    Some(object),
                )
            }
            Delta::Gone(key) => (key.namespace, key.name, None),
            Delta::Listed => return None,
        };
        let namespace = namespace?;
        let key = (namespace.clone(), QueueName::new(&name));
        match object {
            Some(object) => _ = self.namespace_queues.insert(key, object),
            None => _ = self.namespace_queues.remove(&key),
        }
        Some(namespace)
    }

    /// Files a PodGroup and returns its previous state.
    pub(crate) fn put_podgroup(
        &mut self,
        key: JobKey,
        podgroup: PodGroup,
    ) -> Option<Arc<PodGroup>> {
        self.podgroups.insert(key, Arc::new(podgroup))
    }

    /// Drops a deleted PodGroup.
    pub(crate) fn drop_podgroup(&mut self, key: &JobKey) {
        self.podgroups.remove(key);
    }

    /// Drops all templates, as if none had been seen.
    #[cfg(test)]
    pub(crate) fn forget_templates(&mut self) {
        self.templates.clear();
    }
}
