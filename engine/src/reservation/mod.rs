//! Reservations: what is withheld for the first jobs that lack it, and until when.

pub(crate) mod expected_release;
pub(crate) mod plan;
pub(crate) mod reserve;
pub(crate) mod store;
pub(crate) mod window;
