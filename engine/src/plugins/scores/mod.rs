//! The scores, one per file.

mod data;
mod fragmentation;
mod images;
mod network;
mod price;
mod spread;

pub(super) use data::Data;
pub(super) use fragmentation::Fragmentation;
pub(super) use images::Images;
pub(super) use network::Network;
pub(super) use price::Price;
pub(super) use spread::Spread;
