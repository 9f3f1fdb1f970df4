//! Warnings about quotas that cannot be used in full: a queue whose capability is above that of a queue above it. Such
//! a policy is allowed, because the amounts of a tree are changed one after another.

use crate::outlook::short;
use crate::published::PublishedIndex;
use crate::queues::QueueIndex;
use crate::review::ReviewRequest;
use crds::capacity_policy::CapacityPolicy;
use facts::QueueFact;
use serde::Deserialize as _;
use serde_json::Value;

/// The most queues above one that are looked at; a circle of parents has no end.
const LEVELS: usize = 16;

/// Returns the warnings about the policy that `request` creates or changes.
#[must_use]
pub fn of_policy(
    request: &ReviewRequest<Value>,
    queues: &QueueIndex,
    published: &PublishedIndex,
) -> Vec<String> {
    let policy = |object: &Value| CapacityPolicy::deserialize(object).ok();
    let Some(new) = request.object.as_ref().and_then(policy) else {
        return Vec::new();
    };
    let old = request.old_object.as_ref().and_then(policy);
    if old.is_some_and(|old| old.spec == new.spec) {
        return Vec::new();
    }
    let Some(queue) = published.stated(&request.name, Some(&new)) else {
        return Vec::new();
    };
    let queue = queue.to_fact();
    let above = above(&queue, queues, published);
    let warnings = queue.capability.iter().filter_map(|(resource, own)| {
        let mut lower = above.iter().filter_map(|queue| Some((queue, queue.capability.get(resource)?)));
        let (parent, least) = lower.find(|(_, amount)| *amount < own)?;
        let (own, least) = (resource.format(own), resource.format(least));
        Some(short(format!(
            "capability of {resource} is {own} and that of queue {} above it is {least}: queue {} can use {least} at \
             most",
            parent.name, queue.name
        )))
    });
    warnings.collect()
}

/// Returns the queues above one, the nearest first.
fn above(queue: &QueueFact, queues: &QueueIndex, published: &PublishedIndex) -> Vec<QueueFact> {
    let mut all: Vec<QueueFact> = Vec::new();
    let mut parent = queue.parent.clone();
    while let Some(name) = parent
        .take()
        .filter(|name| *name != queue.name && all.len() < LEVELS)
    {
        let policy = queues.policy_of(name.as_str());
        if let Some(queue) = published.stated(name.as_str(), policy.as_ref()) {
            let fact = queue.to_fact();
            parent = fact.parent.clone();
            all.push(fact);
        }
    }
    all
}

#[cfg(test)]
mod tests;
