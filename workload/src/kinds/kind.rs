//! The rules of one kind of workload: everything that differs between a Volcano Job and a
//! RayCluster.
//!
//! ```text
//! generic module (size, outcome, parts, services, ...) ──► table ──► WorkloadKind of the template
//! ```
//!
//! A kind implements this trait in its own folder and has one line in the table of [`super`].
//! What a method's default says holds for a kind that runs in one cluster and has no fields of
//! its own for queue, time to live and the like, so that a new kind needs six methods.
//!
//! A kind is pure: it reads templates and statuses, keeps nothing, and never panics, whatever
//! it is given.

use super::KnownKind;
use crate::dependencies::NamedObjects;
use crate::error::SpecError;
use crate::field::Field;
use crate::outcome::{Outcome, PodCounts};
use crate::parts::{Fields, Gang, PartResizing};
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

    /// Whether the default PropagationPolicy of a managed namespace selects it.
    fn in_default_policy(&self) -> bool {
        true
    }

    // Size.

    /// Returns roles, minimum and what else only the kind knows of the size of `template`.
    fn size(&self, template: &Field<'_>, priority_of: PriorityOf<'_>) -> Result<Size, SpecError>;

    /// The pod templates of `template`.
    fn pod_templates<'a>(&self, template: &'a Value) -> Vec<&'a Value>;

    /// The pod specs in `spec`, the spec of a template, each with the role of its pods.
    fn pod_specs<'a>(&self, spec: &'a mut Value) -> Vec<(String, &'a mut Value)>;

    // Status.

    /// Where a part is, by the status that its member reports.
    fn part_outcome(&self, status: &Value) -> Outcome;

    /// The pods of a part, by the status that its member reports.
    fn counts(&self, status: &Value) -> PodCounts;

    /// When a part ended (RFC 3339), where its status tells; `None` while it runs.
    fn ended_at<'a>(&self, _status: &'a Value) -> Option<&'a str> {
        None
    }

    // Fields that kinds have in different places.

    /// Path of the field that names its queue.
    fn queue_field(&self) -> Option<&'static str> {
        None
    }

    /// The field that says how long it stays after its end.
    fn ttl_field(&self) -> Option<TtlField> {
        None
    }

    /// Adds objects that `template` names outside its pod templates.
    fn add_dependencies<'a>(&self, _template: &'a Value, _named: &mut NamedObjects<'a>) {}

    /// Names of PersistentVolumeClaims that its controller makes in the member.
    fn own_claims<'a>(&self, _template: &'a Value) -> Vec<&'a str> {
        Vec::new()
    }

    /// Sentences about what is legal in `template` and goes wrong further on.
    fn warnings(&self, _template: &Value) -> Vec<String> {
        Vec::new()
    }

    // Changes while it runs.

    /// Whether Karmada starts exactly `spec.clusters[].replicas` of it in each member, whatever
    /// its template says, so that growth is held until it is granted.
    fn holds_replicas(&self) -> bool {
        false
    }

    /// Whether it is always one pod.
    fn is_one_pod(&self) -> bool {
        false
    }

    /// Whether Karmada may divide `template` over clusters by replicas alone.
    fn is_divisible(&self, _template: &Value) -> bool {
        false
    }

    /// Whether one that Karmada has divided cannot be resized while it runs.
    fn is_fixed_once_divided(&self) -> bool {
        false
    }

    /// How its parts are resized while they run, where they can be.
    fn part_resizing(&self) -> Option<PartResizing> {
        None
    }

    /// Fields that hold members to the pods in `admitted`. `capped` is `template` with the
    /// requests that were admitted. `None` where the kind is not known to take it.
    fn cap_to_admitted(
        &self,
        _template: &Value,
        _capped: &Value,
        _admitted: &BTreeMap<String, u32>,
    ) -> Option<Fields> {
        None
    }

    // Parts in several clusters.

    /// How it is taken apart; `None` where it always runs in one cluster.
    fn part_fields(&self) -> Option<PartFields> {
        None
    }

    /// Why `template` cannot be split over clusters; `None` where it can be.
    fn unsplittable(&self, _template: &Value) -> Option<String> {
        Some(only_one_cluster_resolves(self.api().kind))
    }

    /// Whom its pods have to find from other clusters.
    fn meeting(&self, _template: &Field<'_>) -> Result<Meeting, SpecError> {
        Ok(Meeting::Nobody)
    }

    /// The role of one pod whose good end is that of the whole job.
    fn leading_role(&self, _template: &Value) -> Option<String> {
        None
    }

    /// The name by which pods of the same cluster and namespace reach the pod of rank 0.
    fn first_host(&self, _template: &Value) -> Option<String> {
        None
    }

    /// The labels that its operator writes on the pod with this index of a role, and on no
    /// other; `None` where no labels tell a pod apart.
    fn pod_labels(
        &self,
        _template: &Value,
        _role: &str,
        _index: u32,
    ) -> Option<BTreeMap<String, String>> {
        None
    }

    /// The scheduling gate of a pod that stands in for one in another cluster and never starts.
    fn stand_in_gate(&self) -> Option<&'static str> {
        None
    }

    /// The role without which pods of `role` are not started in a cluster.
    fn role_started_by(&self, _role: &str) -> Option<&'static str> {
        None
    }
}

/// Why a job of `kind` stays in one cluster unless its kind says otherwise.
pub(crate) fn only_one_cluster_resolves(kind: &str) -> String {
    format!("the pods of a {kind} find each other by names that only one cluster resolves")
}
