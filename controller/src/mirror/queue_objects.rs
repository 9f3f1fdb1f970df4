//! The objects by which jobs are queued: Queues, CapacityPolicies, the MusterConfig and PriorityClasses.

use crds::capacity_policy::{self, CapacityPolicy, RefusedClass};
use crds::muster_config::{self, MusterConfig};
use crds::queue::Queue;
use engine::QueueName;
use engine::facts::PriorityClassFact;
use kube::ResourceExt as _;
use runtime::watch::Delta;
use std::collections::{BTreeMap, BTreeSet};

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct QueueObjects {
    /// As they are on the control plane.
    objects: BTreeMap<QueueName, Queue>,
    /// The same, with what their policies state; without those that were created for policies which state none.
    queues: BTreeMap<QueueName, Queue>,
    /// What the Queue and the policy of a queue state differently.
    conflicts: BTreeMap<QueueName, Vec<String>>,
    policies: BTreeMap<QueueName, CapacityPolicy>,
    config: Option<MusterConfig>,
    /// Each PriorityClass, with its priority if jobs that name none get it; Kubernetes expects one such class.
    priority_classes: BTreeMap<String, Option<i32>>,
}

impl QueueObjects {
    /// The Queue objects, with what their policies state.
    pub(crate) fn queues(&self) -> &BTreeMap<QueueName, Queue> {
        &self.queues
    }

    /// The capacity policies, by the queue that each is for.
    pub(crate) fn policies(&self) -> &BTreeMap<QueueName, CapacityPolicy> {
        &self.policies
    }

    /// Files a queue and returns its previous state, with what its policy stated.
    pub(crate) fn put_queue(&mut self, name: QueueName, queue: Queue) -> Option<Queue> {
        let before = self.queues.get(&name).cloned();
        self.objects.insert(name.clone(), queue);
        self.merge(&name);
        before
    }

    /// Drops a deleted queue and returns its last state.
    pub(crate) fn drop_queue(&mut self, name: &QueueName) -> Option<Queue> {
        self.objects.remove(name);
        self.conflicts.remove(name);
        self.queues.remove(name)
    }

    /// Files a policy and returns its previous state.
    pub(crate) fn put_policy(
        &mut self,
        name: QueueName,
        policy: CapacityPolicy,
    ) -> Option<CapacityPolicy> {
        let before = self.policies.insert(name.clone(), policy);
        self.merge(&name);
        before
    }

    /// Drops a deleted policy.
    pub(crate) fn drop_policy(&mut self, name: &QueueName) {
        self.policies.remove(name);
        self.merge(name);
    }

    /// Returns what the Queue and the policy of a queue state differently.
    pub(crate) fn conflicts(&self, name: &QueueName) -> &[String] {
        self.conflicts.get(name).map_or(&[], Vec::as_slice)
    }

    /// Returns the object that was created for a policy which does not state the queue any more. It is no queue.
    pub(crate) fn orphan(&self, name: &QueueName) -> Option<&Queue> {
        let object = self.objects.get(name);
        object.filter(|_| !self.queues.contains_key(name))
    }

    /// Reads a queue from its objects again.
    fn merge(&mut self, name: &QueueName) {
        let Some(object) = self.objects.get(name) else {
            return;
        };
        let Some(stated) = object.with_policy(self.policies.get(name)) else {
            self.conflicts.remove(name);
            self.queues.remove(name);
            return;
        };
        match stated.conflicts.is_empty() {
            true => _ = self.conflicts.remove(name),
            false => _ = self.conflicts.insert(name.clone(), stated.conflicts),
        }
        self.queues.insert(name.clone(), stated.queue);
    }

    /// Applies a change of a MusterConfig. Returns true if that changes a setting: only the one with its name
    /// counts.
    pub(crate) fn file_config(&mut self, delta: Delta<MusterConfig>) -> bool {
        let config = match delta {
            Delta::Upserted(config) if config.name_any() == muster_config::NAME => Some(config),
            Delta::Gone(key) if key.name == muster_config::NAME => None,
            Delta::Upserted(_) | Delta::Gone(_) | Delta::Listed => return false,
        };
        let spec =
            |config: &Option<MusterConfig>| config.as_ref().map(|config| config.spec.clone());
        let changed = spec(&self.config) != spec(&config);
        self.config = config;
        changed
    }

    /// Returns why a namespace with `labels` may not use a queue without an explicit right, if so.
    pub(crate) fn closed_to(
        &self,
        queue: &QueueName,
        namespace: &str,
        labels: &BTreeMap<String, String>,
    ) -> Option<String> {
        let policy = self.policies.get(queue);
        let config = self.config.as_ref();
        capacity_policy::closed_to(queue.as_str(), policy, config, namespace, labels)
    }

    /// Returns the first of a job's PriorityClasses that a queue does not allow. A job without a class has the
    /// default class.
    pub(crate) fn refused_class(
        &self,
        queue: &QueueName,
        classes: &BTreeSet<String>,
    ) -> Option<RefusedClass> {
        let policy = self.policies.get(queue);
        let named = classes.iter().map(String::as_str);
        let default = self.default_class().filter(|_| classes.is_empty());
        capacity_policy::refused_class(policy, named.chain(default))
    }

    /// Returns the PriorityClass of jobs that name none; of several defaults Kubernetes takes the lowest.
    pub(crate) fn default_class(&self) -> Option<&str> {
        let classes = self.priority_classes.iter();
        let defaults = classes.filter_map(|(name, priority)| Some((name, (*priority)?)));
        let lowest = defaults.min_by_key(|(_, priority)| *priority);
        lowest.map(|(name, _)| name.as_str())
    }

    /// Returns the names of all PriorityClasses.
    pub(crate) fn priority_classes(&self) -> impl Iterator<Item = &String> {
        self.priority_classes.keys()
    }

    /// Records a PriorityClass.
    pub(crate) fn put_priority_class(&mut self, class: &PriorityClassFact) {
        let priority = class.global_default.then_some(class.value);
        self.priority_classes.insert(class.name.clone(), priority);
    }

    /// Drops a PriorityClass that is gone.
    pub(crate) fn drop_priority_class(&mut self, name: &str) {
        self.priority_classes.remove(name);
    }
}
