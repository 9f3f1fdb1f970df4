//! The operators of other projects' kinds in members: their CRDs and their real controllers.
//!
//! The control plane needs the CRDs before karmada-controller-manager starts, and a member before
//! it is joined, so they are part of the [`crate::TestbedSpec`]. The controllers start in members that are
//! up.

mod configured;
pub mod jobset;
pub mod kuberay;
pub mod leader_worker_set;
pub mod mpi_operator;
pub mod training_operator;
