//! The nodes that policies in a dry run would have avoided, which the status of each policy shows.
//!
//! The status is what remains of it: a new leader begins with what it says, and repeats no event.

use super::events::{ClusterEvent, would_event};
use super::{Avoided, NodeKey};
use crds::fault_policy::WouldAvoidNode;
use crds::node_health::NodeAvoidance;
use engine::faults::FaultRuleSet;
use engine::{ClusterName, NodeName};
use jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet};

/// The most nodes that a status names.
const MOST_NAMED: usize = 50;

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct WouldAvoid {
    /// By policy and node.
    nodes: BTreeMap<(String, NodeKey), NodeAvoidance>,
    /// The policies whose nodes have changed.
    changed: BTreeSet<String>,
    events: Vec<ClusterEvent>,
}

impl WouldAvoid {
    /// Begins with what the status of a policy shows.
    pub(crate) fn begin(&mut self, policy: &str, shown: &[WouldAvoidNode]) {
        for node in shown {
            let key = (ClusterName::new(&node.cluster), NodeName::new(&node.node));
            let entry = self.nodes.entry((policy.to_owned(), key));
            entry.or_insert_with(|| node.avoidance.clone());
        }
    }

    /// Compares it with what is `found` at `now`, by node and policy. What ended a while ago stays until its
    /// time is over, unless a person has `cleared` the node since.
    pub(super) fn compare<'a>(
        &mut self,
        rules: &FaultRuleSet,
        found: impl Iterator<Item = (&'a NodeKey, BTreeMap<String, Avoided>)>,
        cleared: impl Fn(&NodeKey) -> Option<Timestamp>,
        now: Timestamp,
    ) {
        let pods = rules.rules.iter().filter(|rule| rule.dry_run);
        let nodes = rules.nodes.iter().filter(|rule| rule.dry_run);
        let policies = pods.map(|rule| &rule.policy);
        let policies: BTreeSet<&String> = policies.chain(nodes.map(|rule| &rule.policy)).collect();
        let found = found.flat_map(|(node, would)| {
            let keyed = would.into_iter();
            keyed.map(|(policy, avoided)| ((policy, node.clone()), avoided))
        });
        // A policy may be in force by now whose rules were tried when a job failed.
        let found = found.filter(|((policy, _), _)| policies.contains(policy));
        let found: BTreeMap<_, _> = found.collect();
        let changed = &mut self.changed;
        self.nodes.retain(|key, is| {
            let lasts = match &is.until {
                Some(_) => !is.is_over(now),
                None => found.contains_key(key),
            };
            let is_cleared = cleared(&key.1).is_some_and(|at| is.is_cleared(at));
            let stays = lasts && !is_cleared && policies.contains(&key.0);
            if !stays {
                changed.insert(key.0.clone());
            }
            stays
        });
        for (key, mut avoided) in found {
            if !self.nodes.contains_key(&key) {
                let (policy, (cluster, node)) = &key;
                if rules
                    .remediation_of(policy, &avoided.avoidance.rule, true)
                    .is_some()
                {
                    avoided.told += "; its remediation would be requested";
                }
                self.changed.insert(policy.clone());
                self.events.push(would_event(cluster, node, &avoided));
                self.nodes.insert(key, avoided.avoidance);
            }
        }
    }

    /// Drops nodes that do not exist any more.
    pub(super) fn forget(&mut self, is_gone: impl Fn(&NodeKey) -> bool) {
        let changed = &mut self.changed;
        self.nodes.retain(|(policy, node), _| {
            let gone = is_gone(node);
            if gone {
                changed.insert(policy.clone());
            }
            !gone
        });
    }

    /// Returns the number of nodes of a policy, and the first of them.
    pub(crate) fn of(&self, policy: &str) -> (usize, Vec<WouldAvoidNode>) {
        let nodes = self.nodes.iter().filter(|((of, _), _)| of == policy);
        let named = nodes.clone().take(MOST_NAMED);
        let named = named.map(|((_, (cluster, node)), avoidance)| WouldAvoidNode {
            cluster: cluster.to_string(),
            node: node.to_string(),
            avoidance: avoidance.clone(),
        });
        (nodes.count(), named.collect())
    }

    /// Returns the policies that have changed, and the events, since the last call.
    pub(crate) fn take(&mut self) -> (BTreeSet<String>, Vec<ClusterEvent>) {
        (
            std::mem::take(&mut self.changed),
            std::mem::take(&mut self.events),
        )
    }
}
