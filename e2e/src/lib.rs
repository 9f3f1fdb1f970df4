//! Muster on a real local control plane: what the end-to-end tests share, the demo and the benchmarks.
//!
//! The control plane is a [`testbed`], which knows nothing of Muster. What the tests, the demo and the
//! benchmarks share on top of it is in [`harness`], which knows Muster as its users do: by its binary
//! and its objects, never by its code.
//!
//! It must never use code of Muster's, which would check itself, and never leave a process behind.

pub mod bench;
pub mod demo;
pub mod harness;
