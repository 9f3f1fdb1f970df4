//! What is said to people of jobs and queues, by the functions that decide.

pub(crate) mod advise;
pub(crate) mod ahead;
pub(crate) mod evidence;
pub(crate) mod explain;
pub(crate) mod usage;
