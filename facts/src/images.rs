//! Container images: those that a node has, and those that a job needs.

use crate::ids::{ClusterName, NodeName};
use serde::{Deserialize, Serialize};

/// The smallest image that counts, in bytes: 256 MiB. A smaller one arrives in seconds, and few nodes list it, because
/// the kubelet reports the largest images only (50 of them unless it is configured otherwise).
pub const LARGE_IMAGE_BYTES: u64 = 256 << 20;

/// The large images that a node has ([`LARGE_IMAGE_BYTES`]).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeImages {
    /// The cluster it belongs to.
    pub cluster: ClusterName,
    /// The node.
    pub node: NodeName,
    /// All names of its images, in their full form (`docker.io/library/nginx:latest`); empty if it has none.
    pub images: Vec<String>,
}

/// The images that the pods of one role need, small ones included.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoleImages {
    /// The role's name.
    pub role: String,
    /// One name of each, in its full form.
    pub images: Vec<String>,
}
