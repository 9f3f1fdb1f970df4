//! Amounts, demands and nodes, for tests of what is private to the room and the core.

#![allow(clippy::unwrap_used)]

use facts::{
    ClusterName, ClusterPlacement, Demand, Held, NodeFact, NodeName, PoolClass, Resources, Role,
    Split,
};
use std::collections::BTreeMap;

/// `cpu 1, nvidia.com/gpu 4`.
pub(crate) fn resources(list: &str) -> Resources {
    let pairs = list.split(", ").map(|one| one.split_once(' ').unwrap());
    Resources::parse(pairs).unwrap()
}

/// So many pods of one role.
pub(crate) fn demand(count: u32, request: &str) -> Demand {
    Demand {
        min_available: count,
        roles: vec![Role::of("worker", count, resources(request))],
        natively_divisible: false,
        held: Held::Not,
        elastic: false,
        split: Split::Never,
        topology: None,
        placement: ClusterPlacement::default(),
    }
}

/// A node of class `gpu` in cluster `a`.
pub(crate) fn node(name: &str, allocatable: &str) -> NodeFact {
    NodeFact {
        cluster: ClusterName::from("a"),
        name: NodeName::from(name),
        class: PoolClass::from("gpu"),
        labels: BTreeMap::new(),
        taints: Vec::new(),
        domains: Vec::new(),
        allocatable: resources(allocatable),
        usable: true,
        lost: false,
    }
}
