//! Events about nodes and clusters, on the Cluster objects of the control plane.
//!
//! Such events are in the namespace `default`, where others may read them: they name no jobs.

use super::{Avoided, TaintChange};
use crds::node_health::NodeAvoidance;
use engine::{ClusterName, NodeName, Reason};

/// An event of a Cluster object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ClusterEvent {
    pub(crate) cluster: ClusterName,
    pub(crate) reason: Reason,
    /// True if it is of type Warning.
    pub(crate) is_warning: bool,
    pub(crate) message: String,
}

/// Returns the event of a change of a node's taint that was written.
pub(crate) fn node_event(change: &TaintChange) -> ClusterEvent {
    let TaintChange {
        cluster,
        node,
        avoidance,
        because,
    } = change;
    let (reason, message) = match avoidance {
        Some(avoidance) if avoidance.is_end() => (
            Reason::NodeAvoided,
            format!("node {node} is avoided: {because}; its jobs are moved"),
        ),
        Some(avoidance) => (
            Reason::NodeAvoided,
            format!(
                "node {node} is avoided {}: {because}",
                time_and_rule(avoidance)
            ),
        ),
        None => (
            Reason::NodeReturned,
            format!("node {node} is avoided no more: {because}"),
        ),
    };
    ClusterEvent {
        cluster: cluster.clone(),
        reason,
        is_warning: avoidance.is_some(),
        message,
    }
}

/// Returns the event of a node that a policy in a dry run would have avoided.
pub(super) fn would_event(cluster: &ClusterName, node: &NodeName, would: &Avoided) -> ClusterEvent {
    let (when, told) = (time_and_rule(&would.avoidance), &would.told);
    ClusterEvent {
        cluster: cluster.clone(),
        reason: Reason::FaultPolicyDryRun,
        is_warning: false,
        message: format!("node {node} would be avoided {when}, which is in a dry run: {told}"),
    }
}

fn time_and_rule(avoidance: &NodeAvoidance) -> String {
    let NodeAvoidance {
        class,
        rule,
        policy,
        until,
        ..
    } = avoidance;
    let until = until.as_ref().map_or_else(
        || "while it lasts".to_owned(),
        |until| format!("until {until}"),
    );
    format!("{until} for a fault of class {class}, by rule {rule} of FaultPolicy {policy}")
}
