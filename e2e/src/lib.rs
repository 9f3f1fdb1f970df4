//! Muster on a real local control plane: the end-to-end tests' shared code, the demo and the
//! benchmarks.
//!
//! The control plane is a [`testbed`], which knows nothing of Muster. The shared code on top of it
//! is in [`harness`], which uses Muster as its users do: by its binary and its objects.
//!
//! This crate must never use Muster's code, because a check must be independent of what it checks,
//! and it must never leave a process behind.

pub mod bench;
pub mod demo;
pub mod harness;
