//! The inputs and outputs of the engine: names, facts, events, decisions, reasons.

pub(crate) mod charge;
pub mod decision;
pub(crate) mod demand;
pub mod event;
pub mod facts;
pub mod faults;
pub mod ids;
pub(crate) mod images;
pub(crate) mod job;
pub mod matching;
pub mod pod_rules;
pub mod reason;
pub(crate) mod shares;
pub(crate) mod slot;
pub(crate) mod spread;
pub(crate) mod uid;
