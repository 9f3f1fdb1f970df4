//! The eligible places of an admitted gang: labels, taints and affinity, checked by rules that
//! share nothing with the engine.

use super::jobs::{LABEL, TAINT};
use crate::machine::model::Model;
use engine::facts::{Admission, JobFact, NodeFact, Role};

/// Returns true if a node has the label that a role may require, and no taint that it does not tolerate.
pub fn may_run_on(role: &Role, node: &NodeFact) -> bool {
    let terms = role.node_terms.iter();
    let mut asked = terms
        .flat_map(|term| &term.labels)
        .flat_map(|label| &label.values);
    let labelled = asked.all(|value| node.labels.get(LABEL) == Some(value));
    labelled && (node.taints.is_empty() || !role.tolerations.is_empty())
}

impl Model {
    pub fn check_affinity(&self, fact: &JobFact, admission: &Admission) {
        let placement = &fact.demand.placement;
        for share in &admission.shares {
            let cluster = &self.clusters[&share.cluster];
            for rule in &placement.groups {
                let named = rule.names.as_ref();
                let named = named.is_none_or(|names| names.contains(&share.cluster));
                let out = rule.exclude.contains(&share.cluster);
                assert!(named && !out, "{} is in {}", fact.key, share.cluster);
            }
            for taint in &cluster.taints {
                let stands = taint.key == TAINT && !placement.tolerations.is_empty();
                assert!(stands, "{} is in {}: {taint:?}", fact.key, share.cluster);
            }
            for slot in &share.slots {
                let node = &self.nodes[&(share.cluster.clone(), slot.node.clone())];
                let mut roles = fact.demand.roles.iter();
                let role = roles.find(|role| role.name == slot.role).unwrap();
                assert!(may_run_on(role, node), "{} is on {node:?}", fact.key);
            }
        }
        let placed = u32::try_from(admission.shares.len()).unwrap();
        let most = placement.max_clusters.unwrap_or(placed);
        assert!(placed <= most, "{} is in {placed} clusters", fact.key);
    }
}
