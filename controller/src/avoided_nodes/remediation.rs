//! Which nodes an outside operator is asked to repair: NodeRemediation objects on the control plane.
//!
//! ```text
//! nodes that are avoided by a rule with `remediate` ─┬─► due ─► RemediationChange ─► effects ─► NodeRemediation
//! NodeRemediations that are there ───────────────────┘
//! status of a NodeRemediation: Succeeded ─► the avoidance ends
//! ```
//!
//! The taint of the node is the state; the objects follow it. One that a person created is left alone. Pure.

use super::events::ClusterEvent;
use super::{AvoidedNodes, NodeKey, RETRY_MS};
use binding_writer::overrides::is_ours;
use crds::node_remediation::{self, NodeRemediation, NodeRemediationSpec};
use engine::faults::FaultRuleSet;
use engine::{ClusterName, NodeName, Reason, Time};
use jiff::Timestamp;
use runtime::watch::Delta;
use std::collections::BTreeMap;

/// A change of the NodeRemediations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RemediationChange {
    /// The object of this name has this spec.
    Request(String, Box<NodeRemediationSpec>),
    /// There is no object of this name.
    End(String),
}

/// The objects that are there, by what the operator has said.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct RemediationCounts {
    pub(crate) open: usize,
    pub(crate) succeeded: usize,
    /// Those of which the operator has given up.
    pub(crate) failed: usize,
}

/// How often something happened with remediations while this process decided.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct RemediationNews {
    pub(crate) requested: u64,
    pub(crate) succeeded: u64,
    pub(crate) failed: u64,
}

/// The objects that are there, and what was requested.
#[derive(Debug, Default)]
pub(super) struct Remediations {
    there: BTreeMap<String, NodeRemediation>,
    /// True once all objects are known.
    listed: bool,
    /// When a change of an object was last requested, until it shows a change.
    requested: BTreeMap<String, Time>,
    events: Vec<ClusterEvent>,
    news: RemediationNews,
}

impl AvoidedNodes {
    /// Applies a change of a NodeRemediation.
    pub(crate) fn remediation(&mut self, delta: Delta<NodeRemediation>) {
        self.compared_at = None;
        let books = &mut self.remediations;
        match delta {
            Delta::Upserted(object) => {
                let name = object.metadata.name.clone().unwrap_or_default();
                books.requested.remove(&name);
                let said = |object: &NodeRemediation| object.succeeded().map(|(said, _)| said);
                // What was said before this process saw the object is no news.
                let before = books.there.insert(name, object.clone());
                let is_news = before.is_some_and(|before| said(&before) != said(&object));
                match said(&object).filter(|_| is_news) {
                    Some(true) => books.news.succeeded += 1,
                    Some(false) => {
                        books.news.failed += 1;
                        books.events.push(failed_event(&object));
                    }
                    None => {}
                }
            }
            Delta::Gone(object) => {
                books.requested.remove(&object.name);
                books.there.remove(&object.name);
            }
            Delta::Listed => books.listed = true,
        }
    }

    /// Ends the avoidance of nodes that were repaired.
    pub(super) fn apply_remediated(&mut self) {
        for object in self.remediations.there.values() {
            let Some((true, at)) = object.succeeded() else {
                continue;
            };
            let key: NodeKey = (
                ClusterName::new(&object.spec.cluster),
                NodeName::new(&object.spec.node),
            );
            let Some(state) = self.nodes.get_mut(&key) else {
                continue;
            };
            let avoidance = state.health.avoidance.as_ref();
            // An earlier fault may have been repaired, and not this one.
            if let Some(avoidance) = avoidance.filter(|is| is.since == object.spec.since) {
                let since = avoidance.since.parse().unwrap_or(Timestamp::MIN);
                state.remediate(at.max(since));
            }
        }
    }

    /// Returns the changes of NodeRemediations that are due at `now`. `is_seen` says whether all nodes of a cluster
    /// are known: of another nothing ends.
    pub(crate) fn remediations_due(
        &mut self,
        rules: &FaultRuleSet,
        is_seen: impl Fn(&ClusterName) -> bool,
        now: Time,
    ) -> Vec<RemediationChange> {
        if !self.remediations.listed {
            return Vec::new();
        }
        let wanted = self.wanted(rules);
        let books = &mut self.remediations;
        let mut changes = Vec::new();
        for (name, spec) in &wanted {
            match books.there.get(name) {
                Some(there) if there.spec == *spec => {}
                // It goes first.
                Some(there) if there.metadata.deletion_timestamp.is_some() => {}
                Some(there) if there.spec.since != spec.since => {
                    changes.push(RemediationChange::End(name.clone()));
                }
                there => {
                    if there.is_none() && !books.requested.contains_key(name) {
                        books.news.requested += 1;
                        books.events.push(requested_event(name, spec));
                    }
                    let spec = Box::new(spec.clone());
                    changes.push(RemediationChange::Request(name.clone(), spec));
                }
            }
        }
        for (name, there) in &books.there {
            let goes = !wanted.contains_key(name)
                && there.metadata.deletion_timestamp.is_none()
                && is_seen(&ClusterName::new(&there.spec.cluster));
            if goes {
                changes.push(RemediationChange::End(name.clone()));
            }
        }
        changes.retain(|change| {
            let (RemediationChange::Request(name, _) | RemediationChange::End(name)) = change;
            let ours = books
                .there
                .get(name)
                .is_none_or(|there| is_ours(&there.metadata));
            let waits = |at: &Time| now.millis_since(*at) < RETRY_MS;
            let goes = ours && !books.requested.get(name).is_some_and(waits);
            if goes {
                books.requested.insert(name.clone(), now);
            }
            goes
        });
        changes
    }

    /// Returns the events about remediations since the last call.
    pub(crate) fn take_remediation_events(&mut self) -> Vec<ClusterEvent> {
        std::mem::take(&mut self.remediations.events)
    }

    /// Returns what has happened since the last call.
    pub(crate) fn take_remediation_news(&mut self) -> RemediationNews {
        std::mem::take(&mut self.remediations.news)
    }

    /// Returns how many objects there are.
    pub(crate) fn remediation_counts(&self) -> RemediationCounts {
        let mut counts = RemediationCounts::default();
        for object in self.remediations.there.values() {
            match object.succeeded() {
                None => counts.open += 1,
                Some((true, _)) => counts.succeeded += 1,
                Some((false, _)) => counts.failed += 1,
            }
        }
        counts
    }

    /// Forgets what has happened while another replica leads, which tells it.
    pub(crate) fn stand_by(&mut self) {
        self.remediations.events.clear();
        self.remediations.news = RemediationNews::default();
    }

    /// Returns the objects that there should be, by name.
    fn wanted(&self, rules: &FaultRuleSet) -> BTreeMap<String, NodeRemediationSpec> {
        let avoided = self.nodes.iter().filter_map(|((cluster, node), state)| {
            let is = state.health.avoidance.as_ref()?;
            let remediate = rules.remediation_of(&is.policy, &is.rule, false)?;
            let spec = NodeRemediationSpec {
                cluster: cluster.to_string(),
                node: node.to_string(),
                action: remediate.action.clone(),
                class: is.class.clone(),
                rule: is.rule.clone(),
                policy: is.policy.clone(),
                message: is.message.clone(),
                since: is.since.clone(),
            };
            Some((node_remediation::name(cluster, node), spec))
        });
        avoided.collect()
    }
}

fn requested_event(name: &str, spec: &NodeRemediationSpec) -> ClusterEvent {
    let NodeRemediationSpec {
        node,
        action,
        class,
        rule,
        policy,
        ..
    } = spec;
    let action = match action.as_str() {
        "" => String::new(),
        action => format!(" ({action})"),
    };
    ClusterEvent {
        cluster: ClusterName::new(&spec.cluster),
        reason: Reason::NodeRemediation,
        is_warning: false,
        message: format!(
            "the remediation of node {node}{action} is requested for a fault of class {class}, by rule {rule} of \
             FaultPolicy {policy}: NodeRemediation {name}"
        ),
    }
}

fn failed_event(object: &NodeRemediation) -> ClusterEvent {
    ClusterEvent {
        cluster: ClusterName::new(&object.spec.cluster),
        reason: Reason::NodeRemediation,
        is_warning: true,
        message: format!(
            "the remediation of node {} has failed, as the status of its NodeRemediation says; it stays avoided",
            object.spec.node
        ),
    }
}

#[cfg(test)]
mod tests;
