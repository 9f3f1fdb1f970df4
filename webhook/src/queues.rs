//! Index of what capacity policies, namespaces and the MusterConfig say about who may submit to which queue. Three
//! watches feed it.
//!
//! Until all have listed nothing is known, and every answer says so.

use crds::capacity_policy::{
    CapacityPolicy, CapacityPolicyStop, RefusedClass, closed_to, refused_class,
};
use crds::kubernetes::Namespace;
use crds::muster_config::{self, MusterConfig};
use parking_lot::RwLock;
use runtime::{Delta, ObjectKey};
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// The index. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct QueueIndex(Arc<RwLock<QueueIndexState>>);

#[derive(Debug, Default)]
struct QueueIndexState {
    policies: HashMap<String, CapacityPolicy>,
    policies_listed: bool,
    config: Option<MusterConfig>,
    config_listed: bool,
    namespaces: HashMap<String, NamespaceSays>,
    namespaces_listed: bool,
}

#[derive(Debug, Default)]
struct NamespaceSays {
    labels: BTreeMap<String, String>,
    default_queue: Option<String>,
}

/// What applies to a template in its queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueSays {
    /// The queue.
    pub queue: String,
    /// Why its namespace may not submit to it without an explicit right, if so.
    pub closed: Option<String>,
    /// The first of its PriorityClasses that the queue does not allow.
    pub refused_class: Option<RefusedClass>,
    /// True if it opts out of eviction but its queue does not allow that.
    pub preemptible_all_the_same: bool,
}

impl QueueIndex {
    /// Applies a change of a capacity policy.
    pub fn policy(&self, delta: Delta<CapacityPolicy>) {
        let mut index = self.0.write();
        match delta {
            Delta::Upserted(mut policy) => {
                policy.status = None;
                index.policies.insert(ObjectKey::of(&policy).name, policy);
            }
            Delta::Gone(key) => _ = index.policies.remove(&key.name),
            Delta::Listed => index.policies_listed = true,
        }
    }

    /// Applies a change of a MusterConfig. Only the one with its name counts.
    pub fn config(&self, delta: Delta<MusterConfig>) {
        let mut index = self.0.write();
        match delta {
            Delta::Upserted(config) if ObjectKey::of(&config).name == muster_config::NAME => {
                index.config = Some(config);
            }
            Delta::Gone(key) if key.name == muster_config::NAME => index.config = None,
            Delta::Upserted(_) | Delta::Gone(_) => {}
            Delta::Listed => index.config_listed = true,
        }
    }

    /// Applies a change of a namespace.
    pub fn namespace(&self, delta: Delta<Namespace>) {
        let mut index = self.0.write();
        match delta {
            Delta::Upserted(namespace) => {
                let says = NamespaceSays {
                    default_queue: namespace.default_queue().map(str::to_owned),
                    labels: namespace.metadata.labels.clone().unwrap_or_default(),
                };
                index
                    .namespaces
                    .insert(ObjectKey::of(&namespace).name, says);
            }
            Delta::Gone(key) => _ = index.namespaces.remove(&key.name),
            Delta::Listed => index.namespaces_listed = true,
        }
    }

    /// Returns the policy of a queue, without its status.
    #[must_use]
    pub fn policy_of(&self, queue: &str) -> Option<CapacityPolicy> {
        self.0.read().policies.get(queue).cloned()
    }

    /// Returns true once all policies are known.
    #[must_use]
    pub fn has_policies(&self) -> bool {
        self.0.read().policies_listed
    }

    /// Returns the word with which its policy stops a queue, if it does.
    #[must_use]
    pub fn stop_of(&self, queue: &str) -> Option<&'static str> {
        let index = self.0.read();
        let stop = index.policies.get(queue)?.spec.stop_policy.as_ref()?;
        match stop.known()? {
            CapacityPolicyStop::None => None,
            CapacityPolicyStop::Hold => Some("Hold"),
            CapacityPolicyStop::HoldAndDrain => Some("HoldAndDrain"),
        }
    }

    /// Returns the labels of a namespace; `None` if it is unknown.
    #[must_use]
    pub fn labels_of(&self, namespace: &str) -> Option<BTreeMap<String, String>> {
        let index = self.0.read();
        Some(index.namespaces.get(namespace)?.labels.clone())
    }

    /// Returns the queue of a template; `None` while that is unknown.
    #[must_use]
    pub fn queue_of(&self, template: &Value, namespace: &str) -> Option<String> {
        let index = self.0.read();
        let says = index.namespaces.get(namespace);
        if says.is_none() && !index.namespaces_listed {
            return None;
        }
        let default = says.and_then(|says| says.default_queue.as_deref());
        Some(workload::queue_of(template, default))
    }

    /// Returns what applies to a template in its queue; `None` while that is unknown.
    #[must_use]
    pub fn say(&self, template: &Value, namespace: &str) -> Option<QueueSays> {
        let queue = self.queue_of(template, namespace)?;
        let index = self.0.read();
        if !(index.policies_listed && index.config_listed) {
            return None;
        }
        let policy = index.policies.get(&queue);
        let none = BTreeMap::new();
        let says = index.namespaces.get(namespace);
        let labels = says.map_or(&none, |says| &says.labels);
        let closed = closed_to(&queue, policy, index.config.as_ref(), namespace, labels);
        let ask = workload::read_spec(template).ok();
        let classes = ask.as_ref().map(workload::WorkloadSpec::named_classes);
        let classes = classes.iter().flatten().map(String::as_str);
        let refused_class = refused_class(policy, classes);
        let disregards = policy.is_some_and(|policy| !policy.honors_preemptable_label());
        let says_never = ask.is_some_and(|ask| !ask.preemptible);
        Some(QueueSays {
            queue,
            closed,
            refused_class,
            preemptible_all_the_same: disregards && says_never,
        })
    }
}
