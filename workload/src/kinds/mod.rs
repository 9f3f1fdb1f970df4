//! The kinds of workload: a table of the known kinds, and the names of other kinds that start pods.
//!
//! ```text
//! apiVersion, kind ──► table ──► WorkloadKind: size, status, parts, ...
//! ```
//!
//! To add a kind, create a folder that implements [`WorkloadKind`] and add one line to [`KINDS`]. No other
//! module matches on API groups or names of kinds.

pub(crate) mod apps;
pub(crate) mod batch;
pub(crate) mod jobset;
mod kind;
pub(crate) mod kubeflow;
mod leader_worker_set;
mod plain_pod;
pub(crate) mod ray;
mod unselected;
pub(crate) mod volcano;

pub(crate) use kind::{PartFields, WorkloadKind, only_one_cluster_resolves};
pub(crate) use unselected::maker_advice;
pub use unselected::{unqueued_advice, unselected_advice, unselected_kinds};

use serde_json::Value;

/// The known kinds. The first of a group also stands for fields that kinds of its group share
/// ([`of_group`]).
static KINDS: [&dyn WorkloadKind; 17] = [
    &batch::BatchJobKind,
    &volcano::VolcanoJobKind,
    &kubeflow::pytorch::PYTORCH_JOB,
    &kubeflow::tensorflow::TF_JOB,
    &kubeflow::mpi::MPI_JOB,
    &kubeflow::jax::JAX_JOB,
    &kubeflow::paddle::PADDLE_JOB,
    &kubeflow::xgboost::XGBOOST_JOB,
    &ray::RayJobKind,
    &ray::RayClusterKind,
    &ray::RayServiceKind,
    &jobset::JobSetKind,
    &leader_worker_set::LeaderWorkerSetKind,
    &apps::DEPLOYMENT,
    &apps::STATEFUL_SET,
    &apps::REPLICA_SET,
    &plain_pod::PlainPodKind,
];

/// Kinds that start pods and whose size only their binding has: group, names.
const OTHER_KINDS: [(&str, &[&str]); 16] = [
    ("", &["ReplicationController"]),
    ("apps", &["DaemonSet"]),
    ("batch", &["CronJob"]),
    ("batch.volcano.sh", &["CronJob"]),
    ("flow.volcano.sh", &["JobFlow"]),
    ("training.volcano.sh", &["HyperJob"]),
    ("trainer.kubeflow.org", &["TrainJob"]),
    ("kubeflow.org", &["MXJob", "Notebook"]),
    ("ray.io", &["RayCronJob"]),
    (
        "sparkoperator.k8s.io",
        &["SparkApplication", "ScheduledSparkApplication"],
    ),
    ("flink.apache.org", &["FlinkDeployment", "FlinkSessionJob"]),
    ("argoproj.io", &["Workflow", "CronWorkflow", "Rollout"]),
    ("serving.kserve.io", &["InferenceService"]),
    ("workload.codeflare.dev", &["AppWrapper"]),
    ("apps.kruise.io", &KRUISE_WITH_REPLICAS),
    (
        "apps.kruise.io",
        &[
            "DaemonSet",
            "BroadcastJob",
            "AdvancedCronJob",
            "UnitedDeployment",
        ],
    ),
];

/// Kinds of OpenKruise whose replicas Karmada revises.
const KRUISE_WITH_REPLICAS: [&str; 2] = ["CloneSet", "StatefulSet"];

/// Returns the rules of this kind. The version does not matter: all served versions agree in the fields
/// that are read.
pub(crate) fn of(api_version: &str, kind: &str) -> Option<&'static dyn WorkloadKind> {
    let group = group(api_version);
    find(|api| api.group == group && api.kind == kind)
}

/// Returns the rules of the kind of `template`.
pub(crate) fn of_template(template: &Value) -> Option<&'static dyn WorkloadKind> {
    let text = |key| {
        template
            .get(key)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    of(text("apiVersion"), text("kind"))
}

/// Returns the rules of the kind `api` (`batch/v1/Job`).
pub(crate) fn of_api(api: &str) -> Option<&'static dyn WorkloadKind> {
    let (api_version, kind) = api.rsplit_once('/').unwrap_or(("", api));
    of(api_version, kind)
}

/// Returns the rules of this kind, or else of the first kind of its group: kinds of unknown size share
/// fields with their siblings (an MXJob has the runPolicy of a PyTorchJob).
pub(crate) fn of_group(api_version: &str, kind: &str) -> Option<&'static dyn WorkloadKind> {
    let group = group(api_version);
    of(api_version, kind).or_else(|| find(|api| api.group == group))
}

fn find(is_it: impl Fn(&KnownKind) -> bool) -> Option<&'static dyn WorkloadKind> {
    KINDS.into_iter().find(|kind| is_it(&kind.api()))
}

/// Returns all rules.
pub(crate) fn all() -> impl Iterator<Item = &'static dyn WorkloadKind> {
    KINDS.into_iter()
}

/// Returns the API group of an apiVersion; empty for the core group.
fn group(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}

/// The names of a known kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KnownKind {
    /// API group; empty for the core group.
    pub group: &'static str,
    /// API version: the current one.
    pub version: &'static str,
    /// Kind.
    pub kind: &'static str,
    /// The name of its resource in URLs.
    pub plural: &'static str,
}

impl KnownKind {
    /// Returns its apiVersion.
    #[must_use]
    pub fn api_version(&self) -> String {
        match self.group {
            "" => self.version.to_owned(),
            group => format!("{group}/{}", self.version),
        }
    }
}

const fn known(
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    plural: &'static str,
) -> KnownKind {
    KnownKind {
        group,
        version,
        kind,
        plural,
    }
}

/// Returns the kinds whose size is read from their templates, in any version. The default PropagationPolicy
/// of a managed namespace selects them in their current version.
pub fn known_kinds() -> impl Iterator<Item = KnownKind> {
    all().map(WorkloadKind::api)
}

/// Returns the name by which ResourceQuotas count objects of a kind (`jobs.batch`), if the kind is known.
#[must_use]
pub(crate) fn counted_as(api_version: &str, kind: &str) -> Option<String> {
    let api = of(api_version, kind)?.api();
    Some(match api.group {
        "" => api.plural.to_owned(),
        group => format!("{}.{group}", api.plural),
    })
}

/// Returns true if the size of this kind is read from its template ([`known_kinds`]).
#[must_use]
pub fn is_known_kind(api_version: &str, kind: &str) -> bool {
    of(api_version, kind).is_some()
}

/// Returns true if a pod with this scheduling gate is a stand-in for one in another cluster, which never starts.
#[must_use]
pub fn is_stand_in(gate: &str) -> bool {
    all().any(|kind| kind.stand_in_gate() == Some(gate))
}

/// Returns true if objects of this kind start pods, as far as its name says: the known kinds, and others
/// whose size only their binding may have. Such an object is gated even if its size is unknown, because
/// otherwise its pods would not be counted.
#[must_use]
pub fn may_start_pods(api_version: &str, kind: &str) -> bool {
    let group = group(api_version);
    let is_other = || {
        let mut others = OTHER_KINDS.iter();
        others.any(|(other, names)| *other == group && names.contains(&kind))
    };
    is_known_kind(api_version, kind) || is_other()
}

/// Returns true if Karmada starts exactly `spec.clusters[].replicas` of this kind in each member, whatever
/// its template says (its interpreters that revise replicas: karmada v1.18,
/// pkg/resourceinterpreter/default), so that growth waits until it is granted. Template edits of all other
/// kinds go straight to the members.
#[must_use]
pub fn holds_replicas(api_version: &str, kind: &str) -> bool {
    match of(api_version, kind) {
        Some(known) => known.holds_replicas(),
        None => group(api_version) == "apps.kruise.io" && KRUISE_WITH_REPLICAS.contains(&kind),
    }
}

/// Returns true if Karmada may divide `template` over clusters by replicas alone, as far as its policy
/// allows: one role of equal pods without identities.
#[must_use]
pub fn divisible_kind(template: &Value) -> bool {
    of_template(template).is_some_and(|kind| kind.is_divisible(template))
}
