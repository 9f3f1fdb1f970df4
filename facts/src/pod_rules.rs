//! How the pods of one job have to stand to each other on the nodes of a cluster: required affinity and
//! anti-affinity between pods, topology spread constraints that keep pods from starting, and ports of the host.
//!
//! Label selectors are evaluated before, against the pods of the job itself: a rule names roles. Pods of other jobs
//! are not known here.

use crate::objects::NodeFact;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// The label with the name of a node. Every kubelet sets it.
const HOSTNAME: &str = "kubernetes.io/hostname";

/// What nodes form a domain.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum NodeDomain {
    /// Each node is one.
    Node,
    /// The nodes with one value of this label (`topologyKey`).
    Label(String),
}

impl NodeDomain {
    /// The domain of a node; `None` if it is in none.
    #[inline]
    #[must_use]
    pub fn of<'a>(&self, node: &'a NodeFact) -> Option<&'a str> {
        match self {
            Self::Node => Some(node.name.as_str()),
            Self::Label(key) => match node.labels.get(key) {
                Some(value) => Some(value),
                None => (key == HOSTNAME).then_some(node.name.as_str()),
            },
        }
    }

    /// Returns true if each node is a domain of its own.
    #[inline]
    #[must_use]
    pub fn is_node(&self) -> bool {
        match self {
            Self::Node => true,
            Self::Label(key) => key == HOSTNAME,
        }
    }
}

/// One rule for the pods of a role.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PodRule {
    /// What nodes count together.
    pub domain: NodeDomain,
    /// The roles whose pods it is about, by name.
    pub roles: BTreeSet<String>,
    /// What has to hold.
    pub kind: PodRuleKind,
}

/// What a rule demands.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum PodRuleKind {
    /// No other pod of the roles is in the domain of a pod (required anti-affinity, ports of the host). Both roles
    /// of a pair have the rule. A node in no domain takes any number.
    Apart,
    /// All pods of the roles are in one domain (required affinity). All of them have the rule.
    Together,
    /// The pods of the roles are spread over the domains (`topologySpreadConstraints`, `DoNotSchedule`).
    Spread {
        /// By how many a domain with a pod may exceed the domain that has the fewest (`maxSkew`).
        max_skew: u32,
        /// With fewer domains than this, the fewest is zero (`minDomains`).
        min_domains: u32,
        /// True if only nodes count that the pod's terms select (`nodeAffinityPolicy: Honor`).
        by_terms: bool,
        /// True if only nodes count whose taints it tolerates (`nodeTaintsPolicy: Honor`).
        by_taints: bool,
    },
}
