//! Evaluation: the verdict on a job at one size, at the largest size that fits, or on its growth.
//!
//! A verdict checks the quota first, then the placement, then the reservations. It changes nothing.

pub(crate) mod growth;
pub(crate) mod pending_as;
pub(crate) mod prediction;
pub(crate) mod sizes;
pub(crate) mod verdict;
pub(crate) mod words;
