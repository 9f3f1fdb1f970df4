//! The filters, one per file.

mod api_enablement;
mod cluster_affinity;
mod cluster_paused;
mod cluster_ready;
mod data_region;
mod spread_constraint;
mod taint_toleration;

pub(super) use api_enablement::ApiEnablementFilter;
pub(super) use cluster_affinity::ClusterAffinity;
pub(super) use cluster_paused::ClusterPaused;
pub(super) use cluster_ready::ClusterReady;
pub(super) use data_region::DataRegion;
pub(super) use spread_constraint::SpreadConstraint;
pub(super) use taint_toleration::TaintToleration;
