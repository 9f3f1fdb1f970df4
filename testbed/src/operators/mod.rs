//! What runs the kinds of other projects in members: their CRDs, and their real controllers.
//!
//! The control plane needs the CRDs before karmada-controller-manager starts, a member before it is
//! joined: they go into the [`crate::TestbedSpec`]. The controllers are started in members that are up.

pub mod jobset;
pub mod kuberay;
pub mod mpi_operator;
pub mod training_operator;
