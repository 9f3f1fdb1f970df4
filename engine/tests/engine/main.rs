//! The engine from outside: events in, decisions out, told as short stories.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    unreachable_pub
)]

mod accounts;
mod advise;
mod ageing;
mod asked;
mod assigned_pods;
mod assumed_pods;
mod backfill;
mod bounds;
mod brute;
mod call_ends;
mod capacity;
mod changes;
mod cheapest;
mod completion_grace;
mod cost;
mod crowded;
mod deadline;
mod deserved;
mod displaced;
mod drain;
mod elastic;
mod evidence;
mod excess;
mod explain;
mod facts;
mod growth;
mod guarantees;
mod headroom;
mod images;
mod in_clusters;
mod later_starts;
mod likely;
mod limits;
mod machine;
mod moves;
mod node_changes;
mod order;
mod outranked;
mod overdue;
mod owing;
mod owner_limits;
mod packing;
mod paused;
mod placement;
mod plugins;
mod pod_charges;
mod pod_rules;
mod pod_rules_random;
mod prediction;
mod preemption;
mod preemptors;
mod quantities;
mod random;
mod reclaim;
mod recovery;
mod regressions;
mod reservation;
mod runtime;
mod scale;
mod sharing;
mod short_of_both;
mod shrinking;
mod spare;
mod speed;
mod split;
mod spread;
mod start;
mod surplus;
mod taking;
mod targets;
mod topology;
mod users;
mod victims;
mod wake;
mod world;
