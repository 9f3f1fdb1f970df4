//! Index of what Muster has published of its queues: the Queues themselves, the statuses of their policies, and what
//! each queue is to a namespace. Watches feed it.
//!
//! It is what every replica knows, also one that does not lead and one that runs the webhook alone. It is as old as the
//! statuses, some seconds, and no decision reads it.

use crate::queues::QueueIndex;
use crds::capacity_policy::{CapacityPolicy, CapacityPolicyStatus, condition_type};
use crds::loose::QuantityText;
use crds::namespace_queue::{NamespaceQueue, NamespaceQueueStatus};
use crds::queue::Queue;
use facts::{Amount, Reason, ResourceName};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use parking_lot::RwLock;
use runtime::{Delta, ObjectKey};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// The index. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct PublishedIndex(Arc<RwLock<PublishedState>>);

#[derive(Debug, Default)]
struct PublishedState {
    queues: HashMap<String, Queue>,
    queues_listed: bool,
    policies: HashMap<String, CapacityPolicyStatus>,
    /// By queue and namespace.
    of_namespaces: BTreeMap<(String, String), NamespaceQueueStatus>,
}

/// What is published of a queue, for one namespace. What is not known is absent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct QueueOutlook {
    /// True if the queue is known not to exist.
    pub is_missing: bool,
    /// Why it takes no jobs, if it does not.
    pub closed: Option<String>,
    /// The number of its pending jobs.
    pub pending: Option<u64>,
    /// When the last of them is expected to start at the latest.
    pub last_start: Option<Timestamp>,
    /// Its resources that are limited, used or requested.
    pub resources: BTreeMap<ResourceName, ResourceOutlook>,
}

/// Amounts of one resource.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ResourceOutlook {
    /// The most that a job of the namespace can have, by the limits of the queue and of the namespace.
    pub most: Option<Amount>,
    /// What of it is not charged.
    pub free: Option<Amount>,
    /// What is free on the nodes of all clusters.
    pub in_clusters: Option<Amount>,
}

impl PublishedIndex {
    /// Applies a change of a queue.
    pub fn queue(&self, delta: Delta<Queue>) {
        let mut index = self.0.write();
        match delta {
            Delta::Upserted(queue) => {
                index.queues.insert(ObjectKey::of(&queue).name, queue);
            }
            Delta::Gone(key) => _ = index.queues.remove(&key.name),
            Delta::Listed => index.queues_listed = true,
        }
    }

    /// Applies a change of a capacity policy.
    pub fn policy(&self, delta: &Delta<CapacityPolicy>) {
        let mut index = self.0.write();
        match delta {
            Delta::Upserted(policy) => {
                let name = ObjectKey::of(policy).name;
                match &policy.status {
                    Some(status) => index.policies.insert(name, status.clone()),
                    None => index.policies.remove(&name),
                };
            }
            Delta::Gone(key) => _ = index.policies.remove(&key.name),
            Delta::Listed => {}
        }
    }

    /// Applies a change of what a queue is to a namespace.
    pub fn of_namespace(&self, delta: Delta<NamespaceQueue>) {
        let mut index = self.0.write();
        let at = |key: ObjectKey| (key.name, key.namespace.unwrap_or_default());
        match delta {
            Delta::Upserted(queue) => {
                let key = at(ObjectKey::of(&queue));
                match queue.status {
                    Some(status) => index.of_namespaces.insert(key, status),
                    None => index.of_namespaces.remove(&key),
                };
            }
            Delta::Gone(key) => _ = index.of_namespaces.remove(&at(key)),
            Delta::Listed => {}
        }
    }

    /// Returns the queue `name` as its Queue and its policy state it together; `None` if neither does.
    #[must_use]
    pub fn stated(&self, name: &str, policy: Option<&CapacityPolicy>) -> Option<Queue> {
        let index = self.0.read();
        let of_policy = || {
            policy
                .filter(|policy| policy.states_queue())
                .map(|_| Queue::of_policy(name))
        };
        let queue = index.queues.get(name).cloned().or_else(of_policy)?;
        Some(queue.with_policy(policy)?.queue)
    }

    /// Returns what is published of a queue for the jobs of a namespace.
    #[must_use]
    pub fn outlook(&self, queue: &str, namespace: &str, queues: &QueueIndex) -> QueueOutlook {
        let policy = queues.policy_of(queue);
        let is_missing = self.stated(queue, policy.as_ref()).is_none();
        let index = self.0.read();
        let own = (queue.to_owned(), namespace.to_owned());
        let own = index.of_namespaces.get(&own);
        // What it shows of the whole queue is the same for all namespaces.
        let from = (queue.to_owned(), String::new());
        let mut others = index.of_namespaces.range(from..);
        let other = others
            .next()
            .filter(|((of, _), _)| of == queue)
            .map(|(_, status)| status);
        let (policy, any) = (index.policies.get(queue), own.or(other));
        let pending = policy
            .map(|status| status.counts.pending)
            .or(any.map(|status| status.queue_pending));
        QueueOutlook {
            is_missing: index.queues_listed && queues.has_policies() && is_missing,
            closed: closed(queue, own, policy),
            pending: pending.and_then(|jobs| u64::try_from(jobs).ok()),
            last_start: any.and_then(|status| Some(status.last_pending_start.as_ref()?.0)),
            resources: resources(own, any, policy),
        }
    }
}

/// Returns why the queue takes no jobs. The words of the policy may name other tenants, so that only their reason is
/// shown.
fn closed(
    queue: &str,
    own: Option<&NamespaceQueueStatus>,
    policy: Option<&CapacityPolicyStatus>,
) -> Option<String> {
    let not_open = |conditions: &[Condition]| {
        let mut open = conditions
            .iter()
            .filter(|one| one.type_ == condition_type::OPEN);
        open.find(|one| one.status == "False").cloned()
    };
    if let Some(own) = own {
        let open = not_open(&own.conditions)?;
        // Whether this user may use it is asked at each request.
        let of_rights = open.reason == Reason::QueueNotPermitted.as_str();
        return (!of_rights).then_some(open.message);
    }
    let open = not_open(&policy?.conditions)?;
    Some(format!(
        "queue {queue} takes no jobs at present: {}",
        open.reason
    ))
}

fn resources(
    own: Option<&NamespaceQueueStatus>,
    any: Option<&NamespaceQueueStatus>,
    policy: Option<&CapacityPolicyStatus>,
) -> BTreeMap<ResourceName, ResourceOutlook> {
    let mut all: BTreeMap<ResourceName, ResourceOutlook> = BTreeMap::new();
    for shown in any.into_iter().flat_map(|status| &status.resources) {
        let name = ResourceName::new(&shown.name);
        let amount = |text: &Option<QuantityText>| amount(&name, text.as_ref());
        let most = amount(&shown.queue_limit);
        let used = name.amount(&shown.queue_used.0).ok();
        let outlook = ResourceOutlook {
            most,
            free: left(most, used),
            in_clusters: amount(&shown.free_in_clusters),
        };
        all.insert(name, outlook);
    }
    // The policy's status is written sooner.
    for shown in policy.into_iter().flat_map(|status| &status.resources) {
        let name = ResourceName::new(&shown.name);
        let most = amount(&name, shown.real_capability.as_ref());
        let used = name.amount(&shown.allocated.0).ok();
        let outlook = all.entry(name).or_default();
        (outlook.most, outlook.free) = (most, left(most, used));
    }
    for shown in own.into_iter().flat_map(|status| &status.resources) {
        let name = ResourceName::new(&shown.name);
        let limit = amount(&name, shown.limit.as_ref());
        let used = name.amount(&shown.used.0).ok();
        let outlook = all.entry(name).or_default();
        let lower = |one: Option<Amount>, other: Option<Amount>| one.into_iter().chain(other).min();
        outlook.most = lower(outlook.most, limit);
        outlook.free = lower(outlook.free, left(limit, used));
    }
    all
}

fn amount(name: &ResourceName, text: Option<&QuantityText>) -> Option<Amount> {
    name.amount(&text?.0).ok()
}

fn left(most: Option<Amount>, used: Option<Amount>) -> Option<Amount> {
    Some(Amount(most?.0.saturating_sub(used?.0).max(0)))
}

#[cfg(test)]
mod tests;
