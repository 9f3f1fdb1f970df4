//! Run times, predicted from those of like jobs.

pub(crate) mod predict;
