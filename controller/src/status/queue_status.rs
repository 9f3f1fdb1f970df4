//! Statuses of queues and capacity policies, from what the engine has charged. Pure.

use crate::status::effective::KnownNames;
use crds::capacity_policy::{
    self, CapacityPolicy, CapacityPolicyStatus, CapacityPolicySummary, ClusterUse, JobCounts,
    PoolUse, QueueHead, ResourceUse, SpareNodeUse, UnadmittedUse,
};
use crds::conditions::{self, Statement};
use crds::loose::{QuantityList, QuantityText};
use crds::queue::Queue;
use engine::decision::PoolUsage;
use engine::{ClusterName, NodeName, QueueUsage, Reason, ResourceName, Resources};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

#[cfg(test)]
mod tests;

/// The most entries of `unadmitted`: a status must stay small.
const MOST_UNADMITTED: usize = 50;

/// Returns the patch of a queue's status in Volcano's format. The state belongs to the component that set it
/// and is left out: the value seen may be outdated when this is written, and could open a queue that was
/// closed meanwhile. A queue without a state counts as open, which Volcano's admission requires to be
/// written, and one that is deleted as closing. Then the patch holds only for the version that was seen, for the
/// same reason.
pub(crate) fn queue(queue: &Queue, usage: &QueueUsage) -> Value {
    // A merge patch removes nothing: a resource that is no longer charged has to be set to zero.
    let mut allocated = usage.allocated.to_list();
    for name in queue.status.allocated.keys() {
        allocated
            .entry(name.clone())
            .or_insert_with(|| "0".to_owned());
    }
    let mut status = json!({
        "allocated": allocated,
        "pending": usage.pending_jobs,
        "inqueue": usage.admitted_jobs,
        "running": usage.running_jobs,
        "unknown": usage.ending_jobs,
        "completed": usage.finished_jobs,
    });
    let state = queue.status.state.as_deref().unwrap_or_default();
    match (queue.is_deleting(), state) {
        (false, "") => status["state"] = "Open".into(),
        // Another client's finalizer keeps it.
        (true, "" | "Open") => status["state"] = "Closing".into(),
        _ => return json!({ "status": status }),
    }
    json!({"metadata": {"resourceVersion": queue.metadata.resource_version}, "status": status})
}

/// The objects that state a queue.
pub(crate) struct StatedBy<'a> {
    pub(crate) policy: &'a CapacityPolicy,
    /// With what the policy states.
    pub(crate) queue: &'a Queue,
    /// What the two state differently.
    pub(crate) conflicts: &'a [String],
}

/// Returns the status of a capacity policy.
pub(crate) fn policy(
    stated: &StatedBy<'_>,
    usage: &QueueUsage,
    spares: BTreeMap<(ClusterName, NodeName), bool>,
    known: &KnownNames,
    now: jiff::Timestamp,
) -> CapacityPolicyStatus {
    let StatedBy { policy, queue, .. } = *stated;
    let spare_node = |((cluster, node), lent): ((ClusterName, NodeName), bool)| SpareNodeUse {
        cluster: cluster.to_string(),
        node: node.to_string(),
        lent,
    };
    let counts = JobCounts {
        pending: usage.pending_jobs.into(),
        admitted: usage.admitted_jobs.into(),
        running: usage.running_jobs.into(),
        ending: usage.ending_jobs.into(),
        finished: usage.finished_jobs.into(),
    };
    let resources = resources(queue, usage);
    let mut said = statements(policy, queue, usage);
    said.extend(known.without_effect(policy, queue, usage).map(effective));
    said.extend(consistent(stated));
    CapacityPolicyStatus {
        observed_generation: policy.metadata.generation,
        conditions: conditions(policy, &said, now),
        clusters: clusters(usage),
        pools: pools(policy, usage),
        spare_nodes: spares.into_iter().map(spare_node).collect(),
        unadmitted: unadmitted(usage),
        head: usage.head.as_ref().map(|(job, explanation)| QueueHead {
            job: job.to_string(),
            reason: explanation.reason.to_string(),
            message: explanation.message.clone(),
        }),
        summary: Some(CapacityPolicySummary::of(&resources, &counts)),
        resources,
        counts,
    }
}

/// Returns the status of a capacity policy without its queue: nothing goes by it until there is one.
pub(crate) fn policy_without_queue(
    policy: &CapacityPolicy,
    now: jiff::Timestamp,
) -> CapacityPolicyStatus {
    use capacity_policy::condition_type::{OPEN, VALID};
    let name = policy.metadata.name.as_deref().unwrap_or_default();
    let missing = match policy.states_queue() {
        true => format!("the Queue {name} is being created"),
        false => format!(
            "queue {name} does not exist, so that this policy has no effect; create a Queue (scheduling.volcano.sh) \
             named {name}, state its quota in spec.resources of this policy, or name the policy as its queue"
        ),
    };
    let valid = match policy.to_fact(None).invalid {
        Some(problem) => (VALID, false, Reason::QueueInvalid.to_string(), problem),
        None => checked(),
    };
    let open = (OPEN, false, Reason::QueueNotFound.to_string(), missing);
    CapacityPolicyStatus {
        observed_generation: policy.metadata.generation,
        conditions: conditions(policy, &[valid, open], now),
        ..CapacityPolicyStatus::default()
    }
}

/// Returns the conditions of a policy with what is said of it now.
fn conditions(policy: &CapacityPolicy, said: &[Said], now: jiff::Timestamp) -> Vec<Condition> {
    let status = policy.status.as_ref();
    let mut conditions = status.map_or_else(Vec::new, |status| status.conditions.clone());
    for (type_, holds, reason, message) in said {
        let statement = Statement {
            type_,
            holds: Some(*holds),
            reason,
            message,
        };
        conditions::set(&mut conditions, &statement, policy.metadata.generation, now);
    }
    conditions
}

/// Returns every resource with a limit, a share, a use or a request.
fn resources(queue: &Queue, usage: &QueueUsage) -> Vec<ResourceUse> {
    let capability = queue.to_fact().capability;
    let names: BTreeSet<&ResourceName> = [
        &capability,
        &usage.deserved,
        &usage.allocated,
        &usage.pending,
    ]
    .into_iter()
    .flat_map(|list| list.iter().map(|(name, _)| name))
    .collect();
    let stated = |name: &ResourceName, list: &Resources| {
        let amount = list.get(name)?;
        Some(QuantityText(name.format(amount)))
    };
    let some = |name: &ResourceName, list: &Resources| {
        stated(name, list).filter(|_| list.amount_of(name).0 > 0)
    };
    names
        .into_iter()
        .map(|name| ResourceUse {
            name: name.to_string(),
            allocated: text(name, &usage.allocated),
            pending: text(name, &usage.pending),
            deserved: stated(name, &usage.deserved),
            capability: stated(name, &capability),
            real_capability: stated(name, &usage.real_capability),
            borrowed: some(name, &usage.borrowed),
            lent: some(name, &usage.lent),
            decayed_use: usage
                .decayed_usage
                .as_ref()
                .and_then(|used| used.get(name))
                .map(|amount| thousandths(amount.0)),
        })
        .collect()
}

/// Formats thousandths, rounded to a tenth: a value that decays all the time is not worth a write each
/// time.
fn thousandths(amount: i64) -> QuantityText {
    let tenths = amount / 100;
    QuantityText(match tenths % 10 {
        0 => (tenths / 10).to_string(),
        rest => format!("{}.{rest}", tenths / 10),
    })
}

fn text(name: &ResourceName, list: &Resources) -> QuantityText {
    QuantityText(name.format(list.amount_of(name)))
}

fn clusters(usage: &QueueUsage) -> Vec<ClusterUse> {
    let mut by_cluster: BTreeMap<&str, Resources> = BTreeMap::new();
    for placed in &usage.placed {
        add(
            by_cluster.entry(placed.cluster.as_str()).or_default(),
            &placed.allocated,
        );
    }
    by_cluster
        .into_iter()
        .map(|(name, allocated)| ClusterUse {
            name: name.to_owned(),
            allocated: list(&allocated),
        })
        .collect()
}

/// Returns what pods use beyond what was admitted, in order of namespace and job.
fn unadmitted(usage: &QueueUsage) -> Vec<UnadmittedUse> {
    let used = usage.unadmitted.iter().take(MOST_UNADMITTED);
    used.map(|used| UnadmittedUse {
        namespace: used.pods_of.namespace.to_string(),
        job: used.pods_of.is_job().then(|| used.pods_of.name.to_string()),
        cluster: used.cluster.to_string(),
        allocated: list(&used.resources),
    })
    .collect()
}

/// Returns one line for each limit on a pool in the policy.
fn pools(policy: &CapacityPolicy, usage: &QueueUsage) -> Vec<PoolUse> {
    let stated = policy.spec.pools.iter();
    stated
        .zip(policy.to_fact(None).pools)
        .map(|(pool, bound)| {
            let none = Resources::new();
            let used = usage.pools.iter().find(|used| {
                let clusters = bound.clusters.iter().flatten();
                used.class == bound.class && used.clusters.iter().eq(clusters)
            });
            let of = |part: fn(&PoolUsage) -> &Resources| list(used.map_or(&none, part));
            PoolUse {
                name: pool.name.clone(),
                class: bound.class.to_string(),
                clusters: bound
                    .clusters
                    .as_ref()
                    .map(|names| names.iter().map(ToString::to_string).collect()),
                allocated: of(|used| &used.allocated),
                deserved: of(|used| &used.deserved),
                capability: list(&bound.capability),
                real_capability: of(|used| &used.real_capability),
            }
        })
        .collect()
}

/// Adds up amounts; each was checked for overflow when it was admitted.
fn add(sum: &mut Resources, part: &Resources) {
    if let Some(total) = sum.checked_add(part) {
        *sum = total;
    }
}

fn list(resources: &Resources) -> QuantityList {
    resources
        .to_list()
        .into_iter()
        .map(|(name, text)| (name, QuantityText(text)))
        .collect()
}

/// Type, status, reason and message of a condition.
pub(super) type Said = (&'static str, bool, String, String);

fn statements(policy: &CapacityPolicy, queue: &Queue, usage: &QueueUsage) -> Vec<Said> {
    use capacity_policy::condition_type::VALID;
    let invalid = policy
        .to_fact(None)
        .invalid
        .or_else(|| queue.to_fact().invalid);
    let valid = match (&invalid, &usage.closed) {
        (Some(problem), _) => (VALID, false, "QueueInvalid".to_owned(), problem.clone()),
        (None, Some((reason, message))) if reason.as_str() == "QueueInvalid" => {
            (VALID, false, reason.to_string(), message.clone())
        }
        _ => checked(),
    };
    vec![valid, open(usage)]
}

/// Says whether the queue takes jobs.
pub(super) fn open(usage: &QueueUsage) -> Said {
    use capacity_policy::condition_type::OPEN;
    match &usage.closed {
        Some((reason, message)) => (OPEN, false, reason.to_string(), message.clone()),
        None => (
            OPEN,
            true,
            "Open".to_owned(),
            "the queue takes jobs".to_owned(),
        ),
    }
}

/// Says whether the policy and its Queue state the same, if both state the queue, or did.
fn consistent(stated: &StatedBy<'_>) -> Option<Said> {
    use capacity_policy::condition_type::CONSISTENT;
    let status = stated.policy.status.as_ref();
    let mut said = status.into_iter().flat_map(|status| &status.conditions);
    let was_said = said.any(|condition| condition.type_ == CONSISTENT);
    (stated.policy.states_queue() || was_said).then(|| match stated.conflicts.is_empty() {
        true => {
            let message = "it and its Queue state no different values".to_owned();
            (CONSISTENT, true, "Checked".to_owned(), message)
        }
        false => {
            let message = format!("{}; state each in one of them", stated.conflicts.join("; "));
            (CONSISTENT, false, "StatedTwice".to_owned(), message)
        }
    })
}

/// Says whether each value has an effect; `without` has those that have none.
fn effective(without: Vec<String>) -> Said {
    use capacity_policy::condition_type::EFFECTIVE;
    match without.is_empty() {
        true => {
            let message = "every name in it exists".to_owned();
            (EFFECTIVE, true, "Checked".to_owned(), message)
        }
        false => (EFFECTIVE, false, "NoEffect".to_owned(), without.join("; ")),
    }
}

fn checked() -> Said {
    let message = "every value can be used".to_owned();
    (
        capacity_policy::condition_type::VALID,
        true,
        "Checked".to_owned(),
        message,
    )
}
