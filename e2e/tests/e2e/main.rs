//! The whole way on the real thing: Muster's binary on a real Karmada control plane with real members.
//!
//! Each test has a namespace, queues and a GPU class of its own, so that tests run side by side on one
//! plane; those that kill, pause or restart what all share run one by one on a second, meanwhile.
//! Soak tests are `#[ignore]`d and run by `make soak`.
//!
//! `MUSTER_BIN` names another binary than the one cargo built; `E2E_DIR` another state folder than
//! `target/tmp`, where the logs stay after a run, in `e2e/log` and `e2e-apart/log`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod audited;
mod backfill;
mod bad_input;
mod bounds;
mod case;
mod cluster_spec;
mod contest;
mod crash;
mod dependencies;
mod devices;
mod diagnosis;
mod elastic;
mod elastic_parts;
mod examples;
mod foreign_kinds;
mod gate;
mod hierarchy;
mod job;
mod job_set;
mod leading_part;
mod lifecycle;
mod lost_cluster;
mod mpi;
mod namespaces;
mod order;
mod over_three;
mod plane;
mod plugins;
mod preemption;
mod pull;
mod queues_live;
mod quota;
mod race;
mod ray;
mod reclaim;
mod rendezvous;
mod rest;
mod separate;
mod services;
mod soak;
mod split;
mod split_changes;
mod ttl;
mod unjoined;
mod volcano_podgroups;
