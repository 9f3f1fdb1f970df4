//! The cycle: events in, decisions out.

pub(crate) mod decide;
pub(crate) mod elastic;
pub(crate) mod evaluate;
pub(crate) mod events;
pub(crate) mod resize;
pub(crate) mod rules;
pub(crate) mod timers;
