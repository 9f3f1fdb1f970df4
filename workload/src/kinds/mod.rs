//! The kinds of workload that are understood exactly, and those that at least are known to
//! start pods.

pub(crate) mod apps;
pub(crate) mod batch;
pub(crate) mod jobset;
pub(crate) mod kubeflow;
mod plain_pod;
pub(crate) mod ray;
pub(crate) mod volcano;

use crate::error::AskError;
use crate::field::Field;
use crate::outcome::{Outcome, PodCounts};
use crate::size::{PriorityOf, Size};

use serde_json::Value;

/// What is known of one kind: how its size is read, and how its parts report.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Kind {
    pub(crate) size: fn(&Field<'_>, PriorityOf<'_>) -> Result<Size, AskError>,
    pub(crate) pod_templates: fn(&Value) -> Vec<&Value>,
    pub(crate) part: fn(&Value) -> Outcome,
    pub(crate) counts: fn(&Value) -> PodCounts,
}

const BATCH_JOB: Kind = Kind {
    size: batch::size,
    pod_templates: batch::pod_templates,
    part: batch::part,
    counts: batch::counts,
};
const SERVICE: Kind = Kind {
    size: apps::size,
    pod_templates: batch::pod_templates,
    part: apps::part,
    counts: apps::counts,
};
const DEPLOYMENT: Kind = Kind {
    size: apps::deployment,
    ..SERVICE
};
const POD: Kind = Kind {
    size: plain_pod::size,
    pod_templates: plain_pod::pod_templates,
    part: plain_pod::part,
    counts: plain_pod::counts,
};
const VOLCANO_JOB: Kind = Kind {
    size: volcano::size,
    pod_templates: volcano::pod_templates,
    part: volcano::part,
    counts: volcano::counts,
};
const KUBEFLOW: Kind = Kind {
    size: kubeflow::size,
    pod_templates: kubeflow::pod_templates,
    part: kubeflow::part,
    counts: kubeflow::counts,
};
const RAY_CLUSTER: Kind = Kind {
    size: ray::cluster_size,
    pod_templates: ray::cluster_pod_templates,
    part: ray::cluster_part,
    counts: ray::cluster_counts,
};
const RAY_JOB: Kind = Kind {
    size: ray::job_size,
    pod_templates: ray::job_pod_templates,
    part: ray::job_part,
    counts: ray::job_counts,
};
const JOB_SET: Kind = Kind {
    size: jobset::size,
    pod_templates: jobset::pod_templates,
    part: jobset::part,
    counts: jobset::counts,
};

/// What is known of this kind; its version does not matter, as all that are served agree in
/// what is read.
pub(crate) fn of(api_version: &str, kind: &str) -> Option<Kind> {
    Some(match (group(api_version), kind) {
        ("batch", "Job") => BATCH_JOB,
        ("batch.volcano.sh", "Job") => VOLCANO_JOB,
        ("apps", "Deployment") => DEPLOYMENT,
        ("apps", "StatefulSet" | "ReplicaSet") => SERVICE,
        ("", "Pod") => POD,
        (
            "kubeflow.org",
            "PyTorchJob" | "TFJob" | "MPIJob" | "XGBoostJob" | "PaddleJob" | "JAXJob",
        ) => KUBEFLOW,
        ("ray.io", "RayCluster") => RAY_CLUSTER,
        ("ray.io", "RayJob") => RAY_JOB,
        ("jobset.x-k8s.io", "JobSet") => JOB_SET,
        _ => return None,
    })
}

/// The API group of an apiVersion; empty for the core group.
pub(crate) fn group(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}

/// A kind that the default PropagationPolicy of a managed namespace takes along.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KnownKind {
    /// API group; empty for the core group.
    pub group: &'static str,
    /// API version.
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

/// The kinds that people train and serve with, each in the version that is current.
pub const KNOWN_KINDS: &[KnownKind] = &[
    known("batch", "v1", "Job", "jobs"),
    known("batch.volcano.sh", "v1alpha1", "Job", "jobs"),
    known("kubeflow.org", "v1", "PyTorchJob", "pytorchjobs"),
    known("kubeflow.org", "v1", "TFJob", "tfjobs"),
    known("kubeflow.org", "v2beta1", "MPIJob", "mpijobs"),
    known("ray.io", "v1", "RayJob", "rayjobs"),
    known("ray.io", "v1", "RayCluster", "rayclusters"),
    known("jobset.x-k8s.io", "v1alpha2", "JobSet", "jobsets"),
    known("apps", "v1", "Deployment", "deployments"),
    known("apps", "v1", "StatefulSet", "statefulsets"),
    known("", "v1", "Pod", "pods"),
];

/// Kinds that are understood as well, and that no default PropagationPolicy takes along.
pub const RELATED_KINDS: &[KnownKind] = &[
    known("apps", "v1", "ReplicaSet", "replicasets"),
    known("kubeflow.org", "v1", "XGBoostJob", "xgboostjobs"),
    known("kubeflow.org", "v1", "PaddleJob", "paddlejobs"),
    known("kubeflow.org", "v1", "JAXJob", "jaxjobs"),
];

/// Whether the size of this kind is read from its template: [`KNOWN_KINDS`] and
/// [`RELATED_KINDS`] in any version.
#[must_use]
pub fn is_known_kind(api_version: &str, kind: &str) -> bool {
    of(api_version, kind).is_some()
}

/// Whether objects of this kind start pods, as far as its name tells: the known kinds, and
/// others whose size only their binding may tell. Such an object is gated even where nothing
/// tells its size, because nothing would count what it starts.
#[must_use]
pub fn may_start_pods(api_version: &str, kind: &str) -> bool {
    is_known_kind(api_version, kind)
        || matches!(
            (group(api_version), kind),
            ("", "ReplicationController")
                | ("apps", "DaemonSet")
                | ("batch", "CronJob")
                | ("batch.volcano.sh", "CronJob")
                | ("flow.volcano.sh", "JobFlow")
                | ("training.volcano.sh", "HyperJob")
                | ("trainer.kubeflow.org", "TrainJob")
                | ("kubeflow.org", "MXJob" | "Notebook")
                | ("ray.io", "RayService" | "RayCronJob")
                | ("leaderworkerset.x-k8s.io", "LeaderWorkerSet")
                | (
                    "sparkoperator.k8s.io",
                    "SparkApplication" | "ScheduledSparkApplication"
                )
                | ("flink.apache.org", "FlinkDeployment" | "FlinkSessionJob")
                | ("argoproj.io", "Workflow" | "CronWorkflow" | "Rollout")
                | ("serving.kserve.io", "InferenceService")
                | ("workload.codeflare.dev", "AppWrapper")
                | (
                    "apps.kruise.io",
                    "CloneSet"
                        | "StatefulSet"
                        | "DaemonSet"
                        | "BroadcastJob"
                        | "AdvancedCronJob"
                        | "UnitedDeployment"
                )
        )
}

/// Whether Karmada starts exactly `spec.clusters[].replicas` of this kind in each member,
/// whatever its template says (its interpreters that revise replicas: karmada v1.18,
/// pkg/resourceinterpreter/default), so that growth is held until it is granted. Template edits
/// of all other kinds go straight to the members.
#[must_use]
pub fn holds_replicas(api_version: &str, kind: &str) -> bool {
    matches!(
        (group(api_version), kind),
        ("batch", "Job")
            | ("apps", "Deployment" | "StatefulSet" | "ReplicaSet")
            // Has no replicas to raise.
            | ("", "Pod")
            | ("apps.kruise.io", "CloneSet" | "StatefulSet")
    )
}

/// Whether Karmada may divide `template` over clusters by replicas alone, its policy
/// permitting: one role of equal pods without identities. A Deployment whose update starts more
/// than its replicas cannot be divided exactly, because each part rounds its surge up.
#[must_use]
pub fn divisible_kind(template: &Value) -> bool {
    let text = |key| {
        template
            .get(key)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    match (group(text("apiVersion")), text("kind")) {
        ("batch", "Job") => !batch::is_indexed(template),
        ("apps", "Deployment") => !apps::surges(template),
        _ => false,
    }
}
