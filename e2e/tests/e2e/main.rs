//! The end-to-end tests: Muster's binary on a real Karmada control plane with real members.
//!
//! Each story has a namespace, queues and a GPU class of its own, so that stories run in parallel
//! on one plane. A story declares what else it disturbs, and runs when that affects no other story
//! (`e2e::harness::turns`). The run has one deadline and ends after three failures (`run.rs`). Soak
//! stories are `#[ignore]`d and run by `make soak`.
//!
//! `MUSTER_BIN` names another binary than the one that cargo built, and `E2E_DIR` another state
//! folder than `target/tmp`. The logs stay there after a run, in `e2e/log`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod admission_policies;
mod alerts;
mod audited;
mod avoided_nodes;
mod backfill;
mod bad_input;
mod bounds;
mod case;
mod causes;
mod chart;
mod chart_control_plane;
mod chart_values;
mod cli;
mod cli_submit;
mod cluster_spec;
mod contest;
mod crash;
mod crowd;
mod dependencies;
mod devices;
mod diagnosis;
mod documents;
mod earlier_api;
mod elastic;
mod elastic_parts;
mod emptied;
mod ends;
mod examples;
mod faults_killed;
mod foreign_kinds;
mod gate;
mod hierarchy;
mod image;
mod job;
mod job_set;
mod kubeflow;
mod leader_worker_set;
mod leading_part;
mod lifecycle;
mod lost_cluster;
mod many_deleted;
mod member_queues;
mod member_rules;
mod mpi;
mod namespaces;
mod not_started;
mod order;
mod outlive;
mod over_three;
mod own_policies;
mod past_quota;
mod plane;
mod plugins;
mod pod_rules;
mod pods_charged;
mod preemption;
mod prometheus;
mod pull;
mod queues_live;
mod quota;
mod race;
mod ray;
mod real;
mod reclaim;
mod recovery;
mod refusals;
mod rendezvous;
mod rest;
mod restored;
mod rights;
mod run;
mod scaled;
mod separate;
mod services;
mod simulated;
mod soak;
mod spare;
mod split;
mod split_changes;
mod split_retries;
mod steered;
mod stopped;
mod story;
mod tenant_growth;
mod tenant_policies;
mod tenant_reach;
mod tenants;
mod traces;
mod ttl;
mod tutorial;
mod uninstalled;
mod uninstalled_split;
mod unjoined;
mod unsafe_policies;
mod upgrade;
mod upgrade_crowd;
mod upstream_examples;
mod users;
mod volcano_podgroups;
mod warnings;
