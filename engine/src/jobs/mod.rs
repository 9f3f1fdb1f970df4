//! Jobs: their state, how they are released, resized and evicted, and their deadlines.

pub(crate) mod deadline;
pub(crate) mod drain;
pub(crate) mod elastic;
pub(crate) mod excess;
pub(crate) mod growth;
pub(crate) mod job;
pub(crate) mod leaving;
pub(crate) mod names;
pub(crate) mod preemptible_index;
pub(crate) mod register;
pub(crate) mod release;
pub(crate) mod runtime;
pub(crate) mod store;
