//! The rules of one kind of workload: everything that differs between kinds, such as a Volcano Job and a
//! RayCluster.
//!
//! ```text
//! generic module (size, outcome, parts, services, ...) ──► table ──► WorkloadKind of the template
//! ```
//!
//! A kind implements this trait in its own folder and has one line in the table of [`super`]. The defaults
//! of the methods apply to a kind that runs in one cluster and has no fields of its own for the queue, the
//! time to live and so on, so that a new kind needs six methods.
//!
//! A kind is pure: it reads templates and statuses, keeps no state, and never panics on any input.

use super::KnownKind;
use crate::dependencies::NamedObjects;
use crate::error::SpecError;
use crate::field::Field;
use crate::outcome::{Outcome, PodCounts};
use crate::parts::{Fields, Gang, PartResizing};
use crate::pod_shape::AddedInit;
use crate::policies::{GangAction, GangPolicies};
use crate::queued_status::QueuedStatus;
use crate::rendezvous::Meeting;
use crate::size::{PriorityOf, Size};
use crate::ttl::TtlField;
use serde_json::Value;
use std::collections::BTreeMap;

/// Returns the fields that the cluster at an index gets of a template.
pub(crate) type PartFields = fn(&Value, &Gang<'_>, usize) -> Fields;

/// The rules of one kind of workload.
pub(crate) trait WorkloadKind: Sync {
    // What it is.

    /// Its names in the API.
    fn api(&self) -> KnownKind;

    // Size.

    /// Returns roles, minimum and other parts of the size of `template` that only the kind knows.
    fn size(&self, template: &Field<'_>, priority_of: PriorityOf<'_>) -> Result<Size, SpecError>;

    /// Returns the pod templates of `template`.
    fn pod_templates<'a>(&self, template: &'a Value) -> Vec<&'a Value>;

    /// Returns the pod specs in `spec`, the spec of a template, each with the role of its pods.
    fn pod_specs<'a>(&self, spec: &'a mut Value) -> Vec<(String, &'a mut Value)>;

    /// Returns the init container that its operator adds to pods of `template`. One that requests nothing need not be
    /// known, such as that of Volcano's plugin pytorch (v1.14). The operators of the other kinds add none (mpi-operator
    /// v0.8, JobSet v0.11, LeaderWorkerSet v0.8).
    fn added_init(&self, _template: &Value) -> Option<AddedInit> {
        None
    }

    // Status.

    /// Returns the outcome of a part, from the status that its member reports.
    fn part_outcome(&self, status: &Value) -> Outcome;

    /// Returns the pods of a part, from the status that its member reports.
    fn counts(&self, status: &Value) -> PodCounts;

    /// Returns when a part ended (RFC 3339), if its status says so; `None` while it runs.
    fn ended_at<'a>(&self, _status: &'a Value) -> Option<&'a str> {
        None
    }

    /// Returns how the status of its template shows that it is queued; `None` if its status has no place for
    /// it.
    fn queued_status(&self) -> Option<QueuedStatus> {
        None
    }

    /// Returns true if its operator may forget a job of a name for as long after the pods of the former one are gone as
    /// these took to end.
    fn may_be_forgotten(&self) -> bool {
        false
    }

    // Fields that kinds have in different places.

    /// Returns the path of the field that names its queue.
    fn queue_field(&self) -> Option<&'static str> {
        None
    }

    /// Returns the field that says how long it stays after its end.
    fn ttl_field(&self) -> Option<TtlField> {
        None
    }

    /// Adds objects that `template` names outside its pod templates.
    fn add_dependencies<'a>(&self, _template: &'a Value, _named: &mut NamedObjects<'a>) {}

    /// Returns names of PersistentVolumeClaims that its controller creates in the member.
    fn own_claims<'a>(&self, _template: &'a Value) -> Vec<&'a str> {
        Vec::new()
    }

    /// Returns warnings about fields of `template` that are valid and cause a later failure.
    fn warnings(&self, _template: &Value) -> Vec<String> {
        Vec::new()
    }

    // Changes while it runs.

    /// Returns true if Karmada starts exactly `spec.clusters[].replicas` of it in each member, whatever its
    /// template says, so that growth waits until it is granted.
    fn holds_replicas(&self) -> bool {
        false
    }

    /// Returns true if `template`, which asks for no pods, was scaled to zero by its user and has nothing to do
    /// until it asks for some; false for a kind that a member completes, or starts, without pods of its own.
    fn is_scaled_to_zero(&self, _template: &Value) -> bool {
        false
    }

    /// Returns true if it is always one pod.
    fn is_one_pod(&self) -> bool {
        false
    }

    /// Returns true if Karmada may divide `template` over clusters by replicas alone.
    fn is_divisible(&self, _template: &Value) -> bool {
        false
    }

    /// Returns true if it cannot be resized while it runs once Karmada has divided it.
    fn is_fixed_once_divided(&self) -> bool {
        false
    }

    /// Returns how its parts are resized while they run, if that is possible.
    fn part_resizing(&self) -> Option<PartResizing> {
        None
    }

    /// Returns fields that limit members to the pods in `admitted`. `capped` is `template` with the admitted
    /// requests. `None` if the kind does not support it.
    fn cap_to_admitted(
        &self,
        _template: &Value,
        _capped: &Value,
        _admitted: &BTreeMap<String, u32>,
    ) -> Option<Fields> {
        None
    }

    // Parts in several clusters.

    /// Returns how it is split; `None` if it always runs in one cluster.
    fn part_fields(&self) -> Option<PartFields> {
        None
    }

    /// Returns why `template` cannot be split over clusters; `None` if it can be.
    fn unsplittable(&self, _template: &Value) -> Option<String> {
        Some(only_one_cluster_resolves(self.api().kind))
    }

    /// Returns which pods its pods have to find in other clusters.
    fn meeting(&self, _template: &Field<'_>) -> Result<Meeting, SpecError> {
        Ok(Meeting::Nobody)
    }

    /// Returns the role of one pod whose success is the success of the whole job.
    fn leading_role(&self, _template: &Value) -> Option<String> {
        None
    }

    /// Returns its policies, as far as they concern the whole gang if it is in several parts.
    fn gang_policies(&self, _template: &Value) -> Option<GangPolicies> {
        None
    }

    /// Returns what a part asks of its gang, from the status that its member reports.
    fn gang_action(&self, _status: &Value, _policies: &GangPolicies) -> Option<GangAction> {
        None
    }

    /// Returns how many pods of a role have succeeded in a part.
    fn succeeded(&self, _status: &Value, _role: &str) -> u32 {
        0
    }

    /// Returns how often its member's operator has restarted a part or pods of it.
    fn retries(&self, _status: &Value) -> u32 {
        0
    }

    /// Returns which rule of its own template has ended a part that failed, from the status that its member
    /// reports; `None` if it failed for another reason.
    fn ended_by_rule(&self, _status: &Value, _policies: Option<&GangPolicies>) -> Option<String> {
        None
    }

    /// Returns true if `template` says that a pod with an exit code below 128 must not be tried again.
    fn has_permanent_exit_codes(&self, _template: &Value) -> bool {
        false
    }

    /// Lowers the retries that `template` allows by those `used` in earlier attempts.
    fn limit_retries(&self, _template: &mut Value, _used: u32) {}

    /// Returns the name by which pods of the same cluster and namespace reach the pod of rank 0.
    fn first_host(&self, _template: &Value) -> Option<String> {
        None
    }

    /// Returns the labels that all pods of a role have besides those of their template, as far as a selector of
    /// the job may name them.
    fn gang_labels(&self, _template: &Value, _role: &str) -> BTreeMap<String, String> {
        BTreeMap::new()
    }

    /// Returns the labels that its operator sets only on the pod with this index of a role; `None` if no
    /// labels identify a pod.
    fn pod_labels(
        &self,
        _template: &Value,
        _role: &str,
        _index: u32,
    ) -> Option<BTreeMap<String, String>> {
        None
    }

    /// Returns the scheduling gate of a stand-in for a pod in another cluster; it never starts.
    fn stand_in_gate(&self) -> Option<&'static str> {
        None
    }

    /// Returns the role without which pods of `role` are not started in a cluster.
    fn role_started_by(&self, _role: &str) -> Option<&'static str> {
        None
    }
}

/// Returns the default reason why a job of `kind` stays in one cluster.
pub(crate) fn only_one_cluster_resolves(kind: &str) -> String {
    format!("the pods of a {kind} find each other by names that only one cluster resolves")
}
