//! Eligibility: the clusters that a placement selects.

pub(crate) mod store;
