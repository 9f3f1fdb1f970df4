//! A real local control plane as plain processes, for Muster's end-to-end tests, demo and benchmarks.
//!
//! [`tools`] builds the real components (etcd, Kubernetes, Karmada, KWOK, Volcano) from their Go
//! modules into a per-user cache; [`testbed`] starts them on 127.0.0.1, joins the members to Karmada
//! and owns the processes until it goes down. The `testbed` command is a thin layer over both.
//!
//! Neither knows Muster: they play the part of the clusters that Muster is installed on. What the
//! tests, the demo and the benchmarks share on top of them is in [`harness`], which knows Muster as its
//! users do: by its binary and its objects, never by its code.
//!
//! It must never listen on anything but loopback and never leave a process behind.

pub mod bench;
pub mod demo;
pub mod harness;
pub mod kuberay;
pub mod mpi_operator;
pub mod testbed;
pub mod tools;
pub mod training_operator;
