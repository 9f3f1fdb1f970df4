//! Which values of a queue and of its policy have no effect at present: they name a resource, a class, a cluster
//! or a PriorityClass that does not exist. Such a value is valid, and most often it is misspelt. Pure.
//!
//! What exists may change at any time, so nothing is said of it while a member is away, and no decision reads
//! this.

use crds::capacity_policy::CapacityPolicy;
use crds::loose::QuantityList;
use crds::queue::Queue;
use engine::{QueueUsage, Resources};
use std::collections::BTreeSet;

/// The most edits by which a name is still taken for another.
const NEAR: usize = 2;

/// The names that mean something at present.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct KnownNames {
    pub(crate) resources: BTreeSet<String>,
    pub(crate) classes: BTreeSet<String>,
    pub(crate) clusters: BTreeSet<String>,
    pub(crate) priority_classes: BTreeSet<String>,
    /// True if all members are seen.
    pub(crate) complete: bool,
}

impl KnownNames {
    /// Returns each value that has no effect, by its field; `None` if that is not known.
    pub(crate) fn without_effect(
        &self,
        policy: &CapacityPolicy,
        queue: &Queue,
        usage: &QueueUsage,
    ) -> Option<Vec<String>> {
        if !self.complete {
            return None;
        }
        let mut found = Vec::new();
        let mut resources = self.resources.clone();
        for asked in [&usage.allocated, &usage.pending] {
            resources.extend(names(asked));
        }
        let spec = &queue.spec;
        let guarantee = spec.guarantee.as_ref().map(|reserved| &reserved.resource);
        for (field, list) in [
            ("capability", Some(&spec.capability)),
            ("deserved", Some(&spec.deserved)),
            ("guarantee", guarantee),
        ] {
            let list: Option<&QuantityList> = list;
            for name in list.into_iter().flat_map(|list| list.keys()) {
                let field = format!("{field} of the queue");
                check(&mut found, &field, name, &resources, RESOURCE);
            }
        }
        let spec = &policy.spec;
        for (index, pool) in spec.pools.iter().enumerate() {
            let field = |name| format!("spec.pools[{index}].{name}");
            check(
                &mut found,
                &field("class"),
                &pool.class,
                &self.classes,
                CLASS,
            );
            for cluster in pool.clusters.iter().flatten() {
                check(
                    &mut found,
                    &field("clusters"),
                    cluster,
                    &self.clusters,
                    CLUSTER,
                );
            }
            for resource in pool.bounds().iter().map(|bounds| &bounds.name) {
                check(
                    &mut found,
                    &field("resources"),
                    resource,
                    &resources,
                    RESOURCE,
                );
            }
        }
        for class in spec.priority_classes.iter().flatten() {
            let field = "spec.priorityClasses";
            check(&mut found, field, class, &self.priority_classes, PRIORITY);
        }
        if let Some(class) = spec.spare.as_ref().and_then(|spare| spare.class.as_ref()) {
            check(&mut found, "spec.spare.class", class, &self.classes, CLASS);
        }
        let placement = spec.placement.iter();
        for cluster in placement.flat_map(|placement| &placement.preferred_clusters) {
            let field = "spec.placement.preferredClusters";
            check(&mut found, field, cluster, &self.clusters, CLUSTER);
        }
        Some(found)
    }
}

const RESOURCE: &str = "no node has this resource and no job of the queue asks for it";
const CLASS: &str = "no node is of this class";
const CLUSTER: &str = "no cluster has this name";
const PRIORITY: &str = "no PriorityClass has this name";

/// Returns the names in a list of amounts.
pub(crate) fn names(resources: &Resources) -> impl Iterator<Item = String> {
    resources.iter().map(|(name, _)| name.to_string())
}

fn check(found: &mut Vec<String>, field: &str, name: &str, known: &BTreeSet<String>, why: &str) {
    if name.is_empty() || known.contains(name) {
        return;
    }
    let near = |most: usize| {
        let near = known.iter().filter(move |known| edits(name, known) <= most);
        near.collect::<Vec<_>>()
    };
    // Only one name can be meant.
    let nearest = (1..=NEAR.min(name.len() - 1))
        .map(near)
        .find(|near| !near.is_empty());
    let meant = match nearest.as_deref() {
        Some([only]) => format!("; {only} is meant?"),
        _ => String::new(),
    };
    found.push(format!("{field}: {name} has no effect: {why}{meant}"));
}

/// Returns how many letters have to be inserted, removed or replaced to make one name of another.
fn edits(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (at, letter) in one.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = at + 1;
        for (index, seen) in other.iter().enumerate() {
            let replaced = diagonal + usize::from(letter != *seen);
            diagonal = row[index + 1];
            row[index + 1] = replaced.min(diagonal + 1).min(row[index] + 1);
        }
    }
    row[other.len()]
}
