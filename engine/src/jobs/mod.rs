//! The job store: the state of jobs and its transitions, indexes over jobs, and deadlines.

pub(crate) mod ageing;
mod audit;
pub(crate) mod causes;
pub(crate) mod deadline;
pub(crate) mod drain;
pub(crate) mod elastic;
mod ends_in_order;
pub(crate) mod excess;
pub(crate) mod expected_end;
pub(crate) mod images;
pub(crate) mod job;
mod names;
pub(crate) mod observe;
pub(crate) mod preemptible_index;
pub(crate) mod recovery;
pub(crate) mod resize;
pub(crate) mod runtime;
pub(crate) mod store;
pub(crate) mod terminating;
mod transitions;
pub(crate) mod unsynced;
pub(crate) mod victim_group;
