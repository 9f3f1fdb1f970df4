//! Nodes that are avoided: which nodes get the taint `muster.io/avoid`, and which lose it again.
//!
//! ```text
//! conditions of nodes ─┐
//! failures of pods ────┼─► AvoidedNodes ─► due(now) ─► TaintChange ─► effects ─► node in its member
//! taints of nodes ─────┘
//! ```
//!
//! The rules are those of FaultPolicies. The taint with its annotation on the node is the state: it outlives
//! this process, and all schedulers of the member keep off. Failures are remembered in this process only.
//! A person who removes the taint has cleared the node: what failed before does not count any more. Pure.

mod rules;

use crds::node_health::{NodeAvoidance, NodeHealth};
use engine::facts::{PodFact, PodPhase};
use engine::faults::{AvoidNode, FaultRuleSet, Symptom};
use engine::{ClusterName, Event, JobKey, NodeName, Time, Uid};
use std::collections::BTreeMap;

/// Milliseconds after which a change that the node does not show is requested again.
const RETRY_MS: i64 = 30_000;
/// Milliseconds after which nodes are compared again although nothing was reported: time passes, and rules change.
const COMPARE_MS: i64 = 5_000;
/// The most failures that are remembered of one node.
const MOST_FAILURES: usize = 64;
/// At most this share of a cluster's nodes, and always one, is avoided because of failed pods: where more nodes
/// fail, the cause is not the nodes.
const MOST_PERCENT: usize = 10;

/// A node of a member.
type NodeKey = (ClusterName, NodeName);

/// A change of the taint of one node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TaintChange {
    pub(crate) cluster: ClusterName,
    pub(crate) node: NodeName,
    /// Why it is avoided; `None` to avoid it no more.
    pub(crate) avoidance: Option<NodeAvoidance>,
}

/// A job that failed on a node, by a rule that counts such failures.
#[derive(Debug)]
struct NodeFailure {
    job: JobKey,
    rule: String,
    class: &'static str,
    avoid: AvoidNode,
    symptom: Symptom,
    at: Time,
}

/// What is known of one node. Nodes without faults have none.
#[derive(Debug, Default)]
struct NodeState {
    health: NodeHealth,
    failures: Vec<NodeFailure>,
    /// When a change was last requested, until the node shows it.
    requested_at: Option<Time>,
    /// True once it was reported that the node is not avoided because too many are.
    is_reported: bool,
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct AvoidedNodes {
    nodes: BTreeMap<NodeKey, NodeState>,
    /// When the nodes were last compared with the rules, unless something has changed since.
    compared_at: Option<Time>,
}

impl AvoidedNodes {
    /// Applies a fact of a member; `was_there` returns true for a pod that was seen before its end. The end of
    /// another pod may be days old.
    pub(crate) fn note(
        &mut self,
        fact: &Event,
        rules: &FaultRuleSet,
        was_there: impl Fn(&Uid) -> bool,
        now: Time,
    ) {
        match fact {
            Event::PodUpserted(pod) if !pod.ended() || was_there(&pod.uid) => {
                self.pod(pod, rules, now)
            }
            Event::NodeGone(cluster, node) => {
                self.nodes.remove(&(cluster.clone(), node.clone()));
            }
            Event::ClusterGone(cluster) => self.nodes.retain(|(of, _), _| of != cluster),
            _ => {}
        }
    }

    /// Applies the health of a node.
    pub(crate) fn health(&mut self, cluster: ClusterName, node: NodeName, health: NodeHealth) {
        self.compared_at = None;
        let state = self.nodes.entry((cluster, node)).or_default();
        state.requested_at = None;
        if state.health.is_avoided && !health.is_avoided {
            state.failures.clear();
        }
        state.health = health;
    }

    /// Notes the failure of a pod. Its job counts once for each rule, with its last failure.
    fn pod(&mut self, pod: &PodFact, rules: &FaultRuleSet, now: Time) {
        let (Some(job), Some(node), Some(symptom)) = (&pod.job, &pod.node, &pod.symptom) else {
            return;
        };
        if matches!(pod.phase, PodPhase::Running | PodPhase::Evicting) {
            return;
        }
        let Some(rule) = rules.rule_of(symptom) else {
            return;
        };
        let Some(avoid) = rule.avoid_node else {
            return;
        };
        self.compared_at = None;
        let key = (pod.cluster.clone(), node.clone());
        let failures = &mut self.nodes.entry(key).or_default().failures;
        failures.retain(|failure| (&failure.job, &failure.rule) != (job, &rule.name));
        if failures.len() == MOST_FAILURES {
            failures.remove(0);
        }
        failures.push(NodeFailure {
            job: job.clone(),
            rule: rule.name.clone(),
            class: rule.class.as_str(),
            avoid,
            symptom: symptom.as_ref().clone(),
            at: now,
        });
    }

    /// Returns true if something has changed since the nodes were compared with the rules, or that was a while ago.
    pub(crate) fn is_due(&self, now: Time) -> bool {
        let is_recent = |at: Time| now.millis_since(at) < COMPARE_MS;
        !self.compared_at.is_some_and(is_recent)
    }

    /// Compares the nodes with the rules and returns the changes that are due at `now`; `nodes_in` returns the
    /// number of nodes of a cluster.
    pub(crate) fn due(
        &mut self,
        rules: &FaultRuleSet,
        nodes_in: impl Fn(&ClusterName) -> usize,
        now: Time,
    ) -> Vec<TaintChange> {
        self.compared_at = Some(now);
        let mut for_failures = self.avoided_for_failures();
        let mut changes = Vec::new();
        for ((cluster, node), state) in &mut self.nodes {
            let waits = |at: Time| now.millis_since(at) < RETRY_MS;
            if state.requested_at.is_some_and(waits) {
                continue;
            }
            let Some(avoidance) = state.change(rules, now) else {
                continue;
            };
            if avoidance
                .as_ref()
                .is_some_and(|avoidance| avoidance.until.is_some())
            {
                let avoided = for_failures.entry(cluster.clone()).or_default();
                if *avoided >= most(nodes_in(cluster)) {
                    state.report_too_many(cluster, node);
                    continue;
                }
                *avoided += 1;
            }
            state.requested_at = Some(now);
            changes.push(TaintChange {
                cluster: cluster.clone(),
                node: node.clone(),
                avoidance,
            });
        }
        let keeps =
            |state: &NodeState| !state.failures.is_empty() || state.health != NodeHealth::default();
        self.nodes.retain(|_, state| keeps(state));
        changes
    }

    /// Returns the number of nodes that are avoided.
    pub(crate) fn count(&self) -> usize {
        let avoided = self.nodes.values().filter(|state| state.health.is_avoided);
        avoided.count()
    }

    /// Returns the number of each cluster's nodes that are avoided because of failed pods.
    fn avoided_for_failures(&self) -> BTreeMap<ClusterName, usize> {
        let mut counts = BTreeMap::new();
        for ((cluster, _), state) in &self.nodes {
            let avoidance = state.health.avoidance.as_ref();
            if avoidance.is_some_and(|avoidance| avoidance.until.is_some()) {
                *counts.entry(cluster.clone()).or_default() += 1;
            }
        }
        counts
    }
}

/// Returns the most nodes of a cluster with `nodes` nodes that are avoided because of failed pods.
fn most(nodes: usize) -> usize {
    (nodes * MOST_PERCENT / 100).max(1)
}

impl NodeState {
    fn report_too_many(&mut self, cluster: &ClusterName, node: &NodeName) {
        if !std::mem::replace(&mut self.is_reported, true) {
            tracing::warn!(%cluster, %node, "jobs fail on this node; it is not avoided because too many of its cluster are");
        }
    }
}

#[cfg(test)]
mod tests;
