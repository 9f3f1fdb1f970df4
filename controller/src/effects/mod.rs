//! What goes out and what comes back: decisions are carried out, writes are made, and their outcomes
//! return as inputs.
//!
//! ```text
//! decisions, writes ─► scheduler, committer, object writer, works reader ─► API server
//!                                                                   Input ◄─┘
//! ```
//!
//! It must never decide which job starts or ends: the engine does, and `reconcile`.

pub(crate) mod decisions;
pub(crate) mod object_writer;
pub(crate) mod outcomes;
pub(crate) mod rights;
pub(crate) mod works_reader;
