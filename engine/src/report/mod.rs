//! Reports on jobs, queues and the fleet, computed by the functions that decide.

pub(crate) mod advise;
pub(crate) mod ahead;
pub(crate) mod evidence;
pub(crate) mod explain;
pub(crate) mod fleet;
pub(crate) mod pods;
pub(crate) mod pre_pull;
pub(crate) mod start;
pub(crate) mod usage;
