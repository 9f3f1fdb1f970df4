//! Evaluation: the verdict on a job at one size, at the largest size that may go, or on its growth.
//!
//! Functions over [`crate::state::Inputs`] that change nothing: quota first, then placement, then what
//! reservations withhold.

pub(crate) mod growth;
pub(crate) mod pending_as;
pub(crate) mod prediction;
pub(crate) mod sizes;
pub(crate) mod verdict;
pub(crate) mod words;
