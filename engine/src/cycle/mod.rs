//! The cycle: events in, decisions out.

pub(crate) mod decide;
pub(crate) mod evaluate;
pub(crate) mod events;
pub(crate) mod rules;
