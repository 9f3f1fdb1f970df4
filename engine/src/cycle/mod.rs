//! The cycle: events in, decisions out.

pub(crate) mod decide;
mod elastic;
pub(crate) mod evaluate;
pub(crate) mod events;
mod resize;
pub(crate) mod rules;
mod timers;
