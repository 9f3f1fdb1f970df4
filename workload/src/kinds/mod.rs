//! The kinds of workload: a table of those that are understood, and the names of others that
//! are known to start pods.
//!
//! ```text
//! apiVersion, kind ──► table ──► WorkloadKind: size, status, parts, ...
//! ```
//!
//! To add a kind, make a folder that implements [`WorkloadKind`] and give it one line in
//! [`KINDS`]. No other module matches on API groups or names of kinds.

pub(crate) mod apps;
pub(crate) mod batch;
pub(crate) mod jobset;
mod kind;
pub(crate) mod kubeflow;
mod plain_pod;
pub(crate) mod ray;
pub(crate) mod volcano;

pub(crate) use kind::{PartFields, WorkloadKind, only_one_cluster_resolves};

use serde_json::Value;

/// The kinds that are understood. The first of a group also answers for fields that kinds of
/// its group share ([`of_group`]).
static KINDS: [&dyn WorkloadKind; 15] = [
    &batch::BatchJobKind,
    &volcano::VolcanoJobKind,
    &kubeflow::pytorch::PYTORCH_JOB,
    &kubeflow::tensorflow::TF_JOB,
    &kubeflow::mpi::MPI_JOB,
    &ray::RayJobKind,
    &ray::RayClusterKind,
    &jobset::JobSetKind,
    &apps::DEPLOYMENT,
    &apps::STATEFUL_SET,
    &plain_pod::PlainPodKind,
    &apps::REPLICA_SET,
    &kubeflow::XGBOOST_JOB,
    &kubeflow::PADDLE_JOB,
    &kubeflow::JAX_JOB,
];

/// Kinds that start pods and whose size only their binding tells: group, names.
const OTHER_KINDS: [(&str, &[&str]); 17] = [
    ("", &["ReplicationController"]),
    ("apps", &["DaemonSet"]),
    ("batch", &["CronJob"]),
    ("batch.volcano.sh", &["CronJob"]),
    ("flow.volcano.sh", &["JobFlow"]),
    ("training.volcano.sh", &["HyperJob"]),
    ("trainer.kubeflow.org", &["TrainJob"]),
    ("kubeflow.org", &["MXJob", "Notebook"]),
    ("ray.io", &["RayService", "RayCronJob"]),
    ("leaderworkerset.x-k8s.io", &["LeaderWorkerSet"]),
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

/// The rules of this kind. Its version does not matter, as all that are served agree in what is
/// read.
pub(crate) fn of(api_version: &str, kind: &str) -> Option<&'static dyn WorkloadKind> {
    let group = group(api_version);
    find(|api| api.group == group && api.kind == kind)
}

/// The rules of the kind of `template`.
pub(crate) fn of_template(template: &Value) -> Option<&'static dyn WorkloadKind> {
    let text = |key| {
        template
            .get(key)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    of(text("apiVersion"), text("kind"))
}

/// The rules of the kind `api` (`batch/v1/Job`).
pub(crate) fn of_api(api: &str) -> Option<&'static dyn WorkloadKind> {
    let (api_version, kind) = api.rsplit_once('/').unwrap_or(("", api));
    of(api_version, kind)
}

/// The rules of this kind, else those of the first kind of its group: kinds whose size is not
/// known share fields with their siblings (an MXJob has the runPolicy of a PyTorchJob).
pub(crate) fn of_group(api_version: &str, kind: &str) -> Option<&'static dyn WorkloadKind> {
    let group = group(api_version);
    of(api_version, kind).or_else(|| find(|api| api.group == group))
}

fn find(is_it: impl Fn(&KnownKind) -> bool) -> Option<&'static dyn WorkloadKind> {
    KINDS.into_iter().find(|kind| is_it(&kind.api()))
}

/// All rules.
pub(crate) fn all() -> impl Iterator<Item = &'static dyn WorkloadKind> {
    KINDS.into_iter()
}

/// The API group of an apiVersion; empty for the core group.
fn group(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}

/// The names of a kind that is understood.
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
    /// Its apiVersion.
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

/// The kinds whose size is read from their templates, in any version; those of
/// [`default_kinds`] come first.
pub fn known_kinds() -> impl Iterator<Item = KnownKind> {
    all().map(WorkloadKind::api)
}

/// The known kinds that the default PropagationPolicy of a managed namespace selects: those
/// that people train and serve with.
pub fn default_kinds() -> impl Iterator<Item = KnownKind> {
    all()
        .filter(|kind| kind.in_default_policy())
        .map(WorkloadKind::api)
}

/// Whether the size of this kind is read from its template ([`known_kinds`]).
#[must_use]
pub fn is_known_kind(api_version: &str, kind: &str) -> bool {
    of(api_version, kind).is_some()
}

/// Whether objects of this kind start pods, as far as its name tells: the known kinds, and
/// others whose size only their binding may tell. Such an object is gated even where nothing
/// tells its size, because nothing would count what it starts.
#[must_use]
pub fn may_start_pods(api_version: &str, kind: &str) -> bool {
    let group = group(api_version);
    let is_other = || {
        let mut others = OTHER_KINDS.iter();
        others.any(|(other, names)| *other == group && names.contains(&kind))
    };
    is_known_kind(api_version, kind) || is_other()
}

/// Whether Karmada starts exactly `spec.clusters[].replicas` of this kind in each member,
/// whatever its template says (its interpreters that revise replicas: karmada v1.18,
/// pkg/resourceinterpreter/default), so that growth is held until it is granted. Template edits
/// of all other kinds go straight to the members.
#[must_use]
pub fn holds_replicas(api_version: &str, kind: &str) -> bool {
    match of(api_version, kind) {
        Some(known) => known.holds_replicas(),
        None => group(api_version) == "apps.kruise.io" && KRUISE_WITH_REPLICAS.contains(&kind),
    }
}

/// Whether Karmada may divide `template` over clusters by replicas alone, its policy
/// permitting: one role of equal pods without identities.
#[must_use]
pub fn divisible_kind(template: &Value) -> bool {
    of_template(template).is_some_and(|kind| kind.is_divisible(template))
}
