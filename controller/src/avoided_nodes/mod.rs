//! Nodes that are avoided: which nodes get the taint `muster.io/avoid`, and which lose it again.
//!
//! ```text
//! conditions of nodes ─┐
//! failures of pods ────┤
//! alerts of nodes ─────┼─► AvoidedNodes ─► due(now) ─► TaintChange ─► effects ─► node in its member
//! taints of nodes ─────┘
//! ```
//!
//! The rules are those of FaultPolicies. The taint with its annotation on the node is the state: it outlives
//! this process, and all schedulers of the member keep off. Failures are remembered in this process only.
//! A person clears a node by removing the taint, or by an annotation of its Cluster: what was seen before does
//! not count any more. Policies in a dry run only tell what they would do (`would`). Pure.

mod alerts;
mod events;
mod remediation;
mod rules;
mod would;

pub(crate) use events::{ClusterEvent, node_event};
pub(crate) use remediation::{RemediationChange, RemediationCounts, RemediationNews};

use crate::avoided_nodes::alerts::NodeAlerts;
use crate::avoided_nodes::remediation::Remediations;
use crate::avoided_nodes::rules::{TaintNeed, timestamp};
use crate::avoided_nodes::would::WouldAvoid;
use crds::node_health::{ClearedNodes, NodeAvoidance, NodeHealth};
use engine::facts::{PodFact, PodPhase};
use engine::faults::{AvoidNode, FaultRuleSet, Symptom};
use engine::{ClusterName, Event, JobKey, NodeName, Time, Uid};
use jiff::Timestamp;
use std::collections::BTreeMap;

/// Milliseconds after which a change that the node does not show is requested again.
const RETRY_MS: i64 = 30_000;
/// Milliseconds after which nodes are compared again although nothing was reported: time passes, and rules change.
const COMPARE_MS: i64 = 5_000;
/// The most failures that are remembered of one node.
const MOST_FAILURES: usize = 64;
/// At most this share of a cluster's nodes, and always one, is avoided because of failed pods and alerts: where more
/// nodes fail, the cause is not the nodes.
const MOST_PERCENT: usize = 10;

/// A node of a member.
type NodeKey = (ClusterName, NodeName);

/// The name in the annotation of cleared nodes that means every node of the cluster, and its pause.
pub(crate) const EVERY_NODE: &str = "*";

/// A change of the taint of one node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TaintChange {
    pub(crate) cluster: ClusterName,
    pub(crate) node: NodeName,
    /// Why it is avoided; `None` to avoid it no more.
    pub(crate) avoidance: Option<NodeAvoidance>,
    /// The same in words for an event, without names of jobs; empty if it is no news.
    pub(crate) because: String,
}

/// Why a node is avoided.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Avoided {
    avoidance: NodeAvoidance,
    /// The same in words for an event, without names of jobs.
    told: String,
}

/// A job that failed on a node, by a rule that counts such failures.
#[derive(Debug)]
struct NodeFailure {
    job: JobKey,
    policy: String,
    /// The policy again, if it is in a dry run.
    dry_run: Option<String>,
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
    alerts: NodeAlerts,
    /// When a person last cleared it.
    cleared: Option<Timestamp>,
    /// When an operator last repaired it, as far as this process has seen.
    remediated: Option<Timestamp>,
    /// When a change was last requested, until the node shows it.
    requested_at: Option<Time>,
    /// True once it was reported that the node is not avoided because too many are.
    is_reported: bool,
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct AvoidedNodes {
    nodes: BTreeMap<NodeKey, NodeState>,
    /// The nodes that persons have cleared, and when.
    cleared: BTreeMap<ClusterName, ClearedNodes>,
    would: WouldAvoid,
    remediations: Remediations,
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
                let key = (cluster.clone(), node.clone());
                self.nodes.remove(&key);
                self.would.forget(|node| *node == key);
            }
            Event::ClusterGone(cluster) => {
                self.nodes.retain(|(of, _), _| of != cluster);
                self.cleared.remove(cluster);
                self.would.forget(|(of, _)| of == cluster);
            }
            _ => {}
        }
    }

    /// Applies the health of a node.
    pub(crate) fn health(&mut self, cluster: ClusterName, node: NodeName, health: NodeHealth) {
        self.compared_at = None;
        let state = self.state_of((cluster, node));
        state.requested_at = None;
        if state.health.is_avoided && !health.is_avoided {
            state.failures.clear();
        }
        state.health = health;
    }

    /// Notes the failure of a pod.
    fn pod(&mut self, pod: &PodFact, rules: &FaultRuleSet, now: Time) {
        let (Some(job), Some(node), Some(symptom)) = (&pod.job, &pod.node, &pod.symptom) else {
            return;
        };
        let goes_on = matches!(pod.phase, PodPhase::Running | PodPhase::Evicting);
        if goes_on || symptom.is_on_request() {
            return;
        }
        for rule in rules.rules_of(symptom) {
            let Some(avoid) = rule.avoid_node else {
                continue;
            };
            self.compared_at = None;
            let failure = NodeFailure {
                job: job.clone(),
                policy: rule.policy.clone(),
                dry_run: rule.dry_run.then(|| rule.policy.clone()),
                rule: rule.name.clone(),
                class: rule.class.as_str(),
                avoid,
                symptom: symptom.as_ref().clone(),
                at: now,
            };
            let state = self.state_of((pod.cluster.clone(), node.clone()));
            state.failed(failure);
        }
    }

    /// Returns the state of a node, which is new if nothing is known of it.
    fn state_of(&mut self, key: NodeKey) -> &mut NodeState {
        let cleared = cleared_at(&self.cleared, &key);
        let new = || NodeState {
            cleared,
            ..NodeState::default()
        };
        self.nodes.entry(key).or_insert_with(new)
    }

    /// Applies which nodes of a cluster a person has cleared, and when. Returns true if that has changed.
    pub(crate) fn cleared(&mut self, cluster: &ClusterName, cleared: ClearedNodes) -> bool {
        self.compared_at = None;
        let before = self.cleared.insert(cluster.clone(), cleared);
        let changed = before.as_ref() != self.cleared.get(cluster);
        for (key, state) in &mut self.nodes {
            if key.0 == *cluster {
                state.clear(cleared_at(&self.cleared, key));
            }
        }
        changed
    }

    /// Returns when a person last cleared a node, or its whole cluster.
    pub(crate) fn cleared_at(&self, cluster: &ClusterName, node: &NodeName) -> Option<Timestamp> {
        cleared_at(&self.cleared, &(cluster.clone(), node.clone()))
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
        self.apply_remediated();
        let mut for_failures = self.avoided_for_failures();
        let mut changes = Vec::new();
        for ((cluster, node), state) in &mut self.nodes {
            let waits = |at: Time| now.millis_since(at) < RETRY_MS;
            if state.requested_at.is_some_and(waits) {
                continue;
            }
            let (avoidance, because) = match state.change(rules, now) {
                None => continue,
                Some(TaintNeed::Return(because)) => (None, because.to_owned()),
                Some(TaintNeed::Avoid(avoided)) => (Some(avoided.avoidance), avoided.told),
            };
            let is_new = state.health.avoidance.is_none();
            if is_new && avoidance.as_ref().is_some_and(is_for_failures) {
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
                because,
            });
        }
        let nodes = self.nodes.iter();
        let found = nodes.map(|(key, state)| (key, state.would(rules, now)));
        let cleared = |key: &NodeKey| cleared_at(&self.cleared, key);
        self.would.compare(rules, found, cleared, timestamp(now));
        self.nodes.retain(|_, state| {
            state.alerts.forget(state.health.is_avoided, now);
            let nothing = state.failures.is_empty() && state.alerts.is_empty();
            !nothing || state.health != NodeHealth::default()
        });
        changes
    }

    /// Returns what policies in a dry run would do with nodes.
    pub(crate) fn would(&self) -> &WouldAvoid {
        &self.would
    }

    /// Returns the same, to change it.
    pub(crate) fn would_mut(&mut self) -> &mut WouldAvoid {
        &mut self.would
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
            if avoidance.is_some_and(is_for_failures) {
                *counts.entry(cluster.clone()).or_default() += 1;
            }
        }
        counts
    }
}

/// Returns true if a node is avoided because of failed pods, or an alert.
fn is_for_failures(avoidance: &NodeAvoidance) -> bool {
    avoidance.until.is_some() && !avoidance.is_end()
}

/// Returns the most nodes of a cluster with `nodes` nodes that are avoided because of failed pods.
fn most(nodes: usize) -> usize {
    (nodes * MOST_PERCENT / 100).max(1)
}

/// Returns when a person last cleared a node, or its whole cluster.
fn cleared_at(all: &BTreeMap<ClusterName, ClearedNodes>, key: &NodeKey) -> Option<Timestamp> {
    let nodes = &all.get(&key.0)?.nodes;
    let names = [key.1.as_str(), EVERY_NODE];
    names
        .iter()
        .filter_map(|name| nodes.get(*name).copied())
        .max()
}

impl NodeState {
    /// Notes a failure. Its job counts once for each rule, with its last failure.
    fn failed(&mut self, failure: NodeFailure) {
        let same = |known: &NodeFailure| {
            (&known.job, &known.policy, &known.rule)
                == (&failure.job, &failure.policy, &failure.rule)
        };
        self.failures.retain(|known| !same(known));
        if self.failures.len() == MOST_FAILURES {
            self.failures.remove(0);
        }
        self.failures.push(failure);
    }

    /// Notes when a person cleared it: what failed before does not count.
    fn clear(&mut self, at: Option<Timestamp>) {
        self.cleared = at;
        self.failures
            .retain(|failure| at.is_none_or(|at| at < timestamp(failure.at)));
    }

    /// Notes when an operator repaired it: what failed before does not count.
    fn remediate(&mut self, at: Timestamp) {
        self.remediated = self.remediated.max(Some(at));
        self.failures.retain(|failure| at < timestamp(failure.at));
    }

    /// Returns since when what is seen of it counts, if it was cleared or repaired.
    fn counts_since(&self) -> Option<Timestamp> {
        self.cleared.max(self.remediated)
    }

    fn report_too_many(&mut self, cluster: &ClusterName, node: &NodeName) {
        if !std::mem::replace(&mut self.is_reported, true) {
            tracing::warn!(%cluster, %node, "jobs fail on this node; it is not avoided because too many of its cluster are");
        }
    }
}

#[cfg(test)]
mod tests;
