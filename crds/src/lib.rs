//! API types: Muster's own kinds, and slim read types of other projects' kinds.
//!
//! Slim types decode only the fields that Muster reads, tolerate new values, and are never written back:
//! every write is a patch of Muster's own fields. The YAML of Muster's kinds is generated from the types
//! here (`crds/yaml`), and a test checks that it is current.

#![allow(
    clippy::duplicated_attributes,
    reason = "clippy takes the keys of one printcolumn(...) for repetitions of another's"
)]

pub mod capacity_policy;
pub mod conditions;
pub mod devices;
pub mod duration;
pub mod fault_policy;
pub mod gpu_pool;
pub mod karmada;
pub mod kubernetes;
pub mod loose;
pub mod member_rules;
pub mod muster_config;
pub mod names;
pub mod namespace_queue;
pub mod node_alert;
pub mod node_health;
pub mod node_remediation;
pub mod podgroup;
pub mod queue;
pub mod record;
pub mod v1alpha1;
pub mod yaml;
