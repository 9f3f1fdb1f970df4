//! Amounts and demands, for tests of what is private to the room.

#![allow(clippy::unwrap_used)]

use crate::facts::{ClusterPlacement, Demand, Held, Role, Split};
use crate::resources::Resources;

/// `cpu 1, nvidia.com/gpu 4`.
pub(super) fn resources(list: &str) -> Resources {
    let pairs = list.split(", ").map(|one| one.split_once(' ').unwrap());
    Resources::parse(pairs).unwrap()
}

/// So many pods of one role.
pub(super) fn demand(count: u32, request: &str) -> Demand {
    Demand {
        min_available: count,
        roles: vec![Role {
            name: "worker".to_owned(),
            count,
            min: count,
            request: resources(request),
            node_terms: Vec::new(),
            tolerations: Vec::new(),
        }],
        natively_divisible: false,
        held: Held::Not,
        elastic: false,
        split: Split::Never,
        topology: None,
        placement: ClusterPlacement::default(),
    }
}
