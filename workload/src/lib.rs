//! Reads what a job requests: converts a template's JSON into pods, requests, minimum, queue and priority.
//!
//! ```text
//! template ──► kind ──► Size (roles, minimum) ──┐
//! binding  ──► (any other kind) ────────────────┴──► WorkloadSpec
//! WorkloadSpec + placement ──► facts::Demand
//! pods of a template + what a member adds and refuses ──► requests in that member
//! aggregatedStatus ──► Outcome, PodCounts
//! template + admitted shares ──► Part per cluster, PodService per pod that needs an address
//! ```
//!
//! `kinds` has a folder for each kind, which implements the trait `WorkloadKind`, and a table of them. A
//! kind knows where its templates specify pods and how its members report an end. `pod` and `nodes` read
//! what one pod requests from a node. All other modules are common to all kinds: they use the table, and do
//! not match on API groups.
//!
//! Architecture invariant: pure functions of their arguments. No I/O, no clock, no floats; no input makes
//! them panic; a size is computed from the template, never from its present status; unknown fields never
//! matter.

mod annotations;
mod apportion;
mod binding;
mod cap_requests;
mod cap_to_admitted;
mod claims;
mod dependencies;
mod duration;
mod error;
mod field;
mod growth;
mod images;
mod kinds;
mod labels;
mod leading;
mod member_rules;
mod nodes;
mod off_nodes;
mod outcome;
mod parts;
mod placement;
mod pod;
mod pod_rules;
mod pod_shape;
mod pod_specs;
mod policies;
mod pre_pull;
mod queue;
mod queued_status;
mod rendered;
mod rendezvous;
mod services;
mod size;
mod spec;
mod split;
#[cfg(test)]
mod testing;
mod ttl;
mod warnings;

pub use apportion::apportion;
pub use cap_requests::{AdmittedRequests, cap_requests, raised_requests};
pub use cap_to_admitted::cap_to_admitted;
pub use claims::{ClaimedDevices, claimed_devices};
pub use dependencies::{Dependency, dependencies};
pub use duration::parse_millis as duration_millis;
pub use error::SpecError;
pub use growth::{Growth, growth, growth_beside_replicas};
pub use images::{full_image_name, images};
pub use kinds::{
    KnownKind, divisible_kind, holds_replicas, is_known_kind, is_stand_in, known_kinds,
    may_start_pods, unqueued_advice, unselected_advice, unselected_kinds,
};
pub use labels::{HOLD_LABEL, PRIORITY_CLASS_LABEL, is_on_hold, labelled_class};
pub use member_rules::{
    InMember, LimitRangeRules, MemberRules, NamespaceRules, QuotaRules, in_member,
};
pub use off_nodes::{changed_affinities, off_nodes, with_affinities};
pub use outcome::{GangRules, Outcome, PodCounts, counts, outcome};
pub use parts::{
    PartsError, RenderedPart, attempt_of, mark, may_be_forgotten, may_be_in_parts, parts, resized,
    whole_mark,
};
pub use placement::{cluster_placement, divided, natively_divisible, not_followed, too_large};
pub use pod_shape::{PodShape, pod_shapes};
pub use policies::{
    GangAction, GangPolicies, completed_task, ended_by_rule, gang_action, has_permanent_exit_codes,
    limit_retries, retries,
};
pub use pre_pull::{ImagePull, image_pull_job};
pub use queue::{DEFAULT_QUEUE, named_queue, queue_of, to_queue};
pub use queued_status::{QueuedStatus, ShownStatus, shown_status};
pub use rendered::{Rendered, rendered};
pub use rendezvous::{ANY_CLUSTER, AddressError, Addresses, Meeting, Reach};
pub use services::{PART_LABEL, PodService, needs_services, services};
pub use spec::{
    WorkloadSpec, pod_overhead, pod_request, read_spec, read_spec_from_binding, read_spec_with,
};
pub use split::{SPLIT_WORDS, split_of, without_rendezvous};
pub use ttl::{TimeToLive, ended_at, for_ever, time_to_live};
pub use warnings::warnings;
