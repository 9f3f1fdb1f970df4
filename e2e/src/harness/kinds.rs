//! The kinds of objects that are read and written, with their names in discovery.

use kube::discovery::ApiResource;

/// A kind, with everything that a request needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ObjectKind {
    /// The API group; empty for the core.
    pub group: &'static str,
    /// Its version.
    pub version: &'static str,
    /// The CamelCase name.
    pub name: &'static str,
    /// The name in URLs.
    pub plural: &'static str,
}

const fn kind(
    group: &'static str,
    version: &'static str,
    name: &'static str,
    plural: &'static str,
) -> ObjectKind {
    ObjectKind {
        group,
        version,
        name,
        plural,
    }
}

/// A ConfigMap of Kubernetes.
pub const CONFIG_MAP: ObjectKind = kind("", "v1", "ConfigMap", "configmaps");
/// An Event of Kubernetes.
pub const EVENT: ObjectKind = kind("", "v1", "Event", "events");
/// A Namespace of Kubernetes.
pub const NAMESPACE: ObjectKind = kind("", "v1", "Namespace", "namespaces");
/// A Node of Kubernetes.
pub const NODE: ObjectKind = kind("", "v1", "Node", "nodes");
/// Defaults and bounds for the containers of a namespace.
pub const LIMIT_RANGE: ObjectKind = kind("", "v1", "LimitRange", "limitranges");
/// A quota of Kubernetes for a namespace.
pub const RESOURCE_QUOTA: ObjectKind = kind("", "v1", "ResourceQuota", "resourcequotas");
/// A runtime of containers.
pub const RUNTIME_CLASS: ObjectKind = kind("node.k8s.io", "v1", "RuntimeClass", "runtimeclasses");
/// A Pod of Kubernetes.
pub const POD: ObjectKind = kind("", "v1", "Pod", "pods");
/// A Secret of Kubernetes.
pub const SECRET: ObjectKind = kind("", "v1", "Secret", "secrets");
/// A Service of Kubernetes.
pub const SERVICE: ObjectKind = kind("", "v1", "Service", "services");
/// The endpoints of a Service.
pub const ENDPOINT_SLICE: ObjectKind =
    kind("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices");
/// Karmada's propagation of a Service to other members.
pub const MULTI_CLUSTER_SERVICE: ObjectKind = kind(
    "networking.karmada.io",
    "v1alpha1",
    "MultiClusterService",
    "multiclusterservices",
);
/// A PersistentVolumeClaim of Kubernetes.
pub const PVC: ObjectKind = kind("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims");
/// A Deployment of Kubernetes.
pub const DEPLOYMENT: ObjectKind = kind("apps", "v1", "Deployment", "deployments");
/// A StatefulSet of Kubernetes.
pub const STATEFUL_SET: ObjectKind = kind("apps", "v1", "StatefulSet", "statefulsets");
/// A CronJob of Kubernetes.
pub const CRON_JOB: ObjectKind = kind("batch", "v1", "CronJob", "cronjobs");
/// An autoscaler of Karmada with a schedule.
pub const CRON_FEDERATED_HPA: ObjectKind = kind(
    "autoscaling.karmada.io",
    "v1alpha1",
    "CronFederatedHPA",
    "cronfederatedhpas",
);
/// A batch Job of Kubernetes.
pub const BATCH_JOB: ObjectKind = kind("batch", "v1", "Job", "jobs");
/// A PriorityClass of Kubernetes.
pub const PRIORITY_CLASS: ObjectKind = kind(
    "scheduling.k8s.io",
    "v1",
    "PriorityClass",
    "priorityclasses",
);
/// The rights of a role, for the whole control plane or for the namespace of a RoleBinding.
pub const CLUSTER_ROLE: ObjectKind = kind(
    "rbac.authorization.k8s.io",
    "v1",
    "ClusterRole",
    "clusterroles",
);
/// The binding of a role to users in a namespace.
pub const ROLE_BINDING: ObjectKind = kind(
    "rbac.authorization.k8s.io",
    "v1",
    "RoleBinding",
    "rolebindings",
);
/// The binding of a role to users in the whole cluster.
pub const CLUSTER_ROLE_BINDING: ObjectKind = kind(
    "rbac.authorization.k8s.io",
    "v1",
    "ClusterRoleBinding",
    "clusterrolebindings",
);
/// A ValidatingAdmissionPolicy of Kubernetes.
pub const ADMISSION_POLICY: ObjectKind = kind(
    "admissionregistration.k8s.io",
    "v1",
    "ValidatingAdmissionPolicy",
    "validatingadmissionpolicies",
);
/// The binding that puts an admission policy into force.
pub const ADMISSION_POLICY_BINDING: ObjectKind = kind(
    "admissionregistration.k8s.io",
    "v1",
    "ValidatingAdmissionPolicyBinding",
    "validatingadmissionpolicybindings",
);
/// A request for the caller's own rights.
pub const SELF_ACCESS_REVIEW: ObjectKind = kind(
    "authorization.k8s.io",
    "v1",
    "SelfSubjectAccessReview",
    "selfsubjectaccessreviews",
);
/// The lease by which one of several replicas leads.
pub const LEASE: ObjectKind = kind("coordination.k8s.io", "v1", "Lease", "leases");
/// A class of devices.
pub const DEVICE_CLASS: ObjectKind = kind("resource.k8s.io", "v1", "DeviceClass", "deviceclasses");
/// Devices of a node.
pub const RESOURCE_SLICE: ObjectKind =
    kind("resource.k8s.io", "v1", "ResourceSlice", "resourceslices");
/// A taint that an administrator gives to devices.
pub const DEVICE_TAINT_RULE: ObjectKind = kind(
    "resource.k8s.io",
    "v1alpha3",
    "DeviceTaintRule",
    "devicetaintrules",
);
/// A claim of devices.
pub const RESOURCE_CLAIM: ObjectKind =
    kind("resource.k8s.io", "v1", "ResourceClaim", "resourceclaims");
/// A template of claims, for pods.
pub const RESOURCE_CLAIM_TEMPLATE: ObjectKind = kind(
    "resource.k8s.io",
    "v1",
    "ResourceClaimTemplate",
    "resourceclaimtemplates",
);
/// A Job of Volcano.
pub const VOLCANO_JOB: ObjectKind = kind("batch.volcano.sh", "v1alpha1", "Job", "jobs");
/// A Queue of Volcano.
pub const QUEUE: ObjectKind = kind("scheduling.volcano.sh", "v1beta1", "Queue", "queues");
/// A PodGroup: on the control plane one of Muster's per job, in members one of Volcano's.
pub const POD_GROUP: ObjectKind = kind("scheduling.volcano.sh", "v1beta1", "PodGroup", "podgroups");
/// Kubeflow's job for PyTorch.
pub const PYTORCH_JOB: ObjectKind = kind("kubeflow.org", "v1", "PyTorchJob", "pytorchjobs");
/// Kubeflow's job for TensorFlow.
pub const TF_JOB: ObjectKind = kind("kubeflow.org", "v1", "TFJob", "tfjobs");
/// Kubeflow's job for MPI.
pub const MPI_JOB: ObjectKind = kind("kubeflow.org", "v2beta1", "MPIJob", "mpijobs");
/// Kubeflow's job for JAX.
pub const JAX_JOB: ObjectKind = kind("kubeflow.org", "v1", "JAXJob", "jaxjobs");
/// Kubeflow's job for PaddlePaddle.
pub const PADDLE_JOB: ObjectKind = kind("kubeflow.org", "v1", "PaddleJob", "paddlejobs");
/// Kubeflow's job for XGBoost and LightGBM.
pub const XGBOOST_JOB: ObjectKind = kind("kubeflow.org", "v1", "XGBoostJob", "xgboostjobs");
/// A set of batch Jobs.
pub const JOB_SET: ObjectKind = kind("jobset.x-k8s.io", "v1alpha2", "JobSet", "jobsets");
/// A set of groups, each of a leader and its workers.
pub const LEADER_WORKER_SET: ObjectKind = kind(
    "leaderworkerset.x-k8s.io",
    "v1",
    "LeaderWorkerSet",
    "leaderworkersets",
);
/// A cluster of Ray nodes.
pub const RAY_CLUSTER: ObjectKind = kind("ray.io", "v1", "RayCluster", "rayclusters");
/// A RayJob, which runs a program on a RayCluster.
pub const RAY_JOB: ObjectKind = kind("ray.io", "v1", "RayJob", "rayjobs");
/// A RayService, which serves from a RayCluster.
pub const RAY_SERVICE: ObjectKind = kind("ray.io", "v1", "RayService", "rayservices");
/// Muster's policy of a queue, with its quotas by pool.
pub const CAPACITY_POLICY: ObjectKind = kind(
    "muster.io",
    "v1alpha2",
    "CapacityPolicy",
    "capacitypolicies",
);
/// Nodes of one GPU class in a member.
pub const GPU_POOL: ObjectKind = kind("muster.io", "v1alpha2", "GpuPool", "gpupools");
/// A queue as a namespace sees it.
pub const NAMESPACE_QUEUE: ObjectKind =
    kind("muster.io", "v1alpha2", "NamespaceQueue", "namespacequeues");
/// Settings for all queues.
pub const MUSTER_CONFIG: ObjectKind =
    kind("muster.io", "v1alpha2", "MusterConfig", "musterconfigs");
/// A NodeRemediation.
pub const NODE_REMEDIATION: ObjectKind = kind(
    "muster.io",
    "v1alpha2",
    "NodeRemediation",
    "noderemediations",
);
/// A FaultPolicy.
pub const FAULT_POLICY: ObjectKind = kind("muster.io", "v1alpha2", "FaultPolicy", "faultpolicies");
/// A member cluster of Karmada.
pub const CLUSTER: ObjectKind = kind("cluster.karmada.io", "v1alpha1", "Cluster", "clusters");
/// A PropagationPolicy of Karmada.
pub const PROPAGATION_POLICY: ObjectKind = kind(
    "policy.karmada.io",
    "v1alpha1",
    "PropagationPolicy",
    "propagationpolicies",
);
/// A PropagationPolicy of Karmada for all namespaces.
pub const CLUSTER_PROPAGATION_POLICY: ObjectKind = kind(
    "policy.karmada.io",
    "v1alpha1",
    "ClusterPropagationPolicy",
    "clusterpropagationpolicies",
);
/// An OverridePolicy of Karmada.
pub const OVERRIDE_POLICY: ObjectKind = kind(
    "policy.karmada.io",
    "v1alpha1",
    "OverridePolicy",
    "overridepolicies",
);
/// An OverridePolicy of Karmada for all namespaces.
pub const CLUSTER_OVERRIDE_POLICY: ObjectKind = kind(
    "policy.karmada.io",
    "v1alpha1",
    "ClusterOverridePolicy",
    "clusteroverridepolicies",
);
/// A ResourceBinding of Karmada.
pub const BINDING: ObjectKind = kind(
    "work.karmada.io",
    "v1alpha2",
    "ResourceBinding",
    "resourcebindings",
);
/// A Work of Karmada.
pub const WORK: ObjectKind = kind("work.karmada.io", "v1alpha1", "Work", "works");
/// The registration of mutating webhooks.
pub const MUTATING_WEBHOOKS: ObjectKind = kind(
    "admissionregistration.k8s.io",
    "v1",
    "MutatingWebhookConfiguration",
    "mutatingwebhookconfigurations",
);
/// The registration of validating webhooks.
pub const VALIDATING_WEBHOOKS: ObjectKind = kind(
    "admissionregistration.k8s.io",
    "v1",
    "ValidatingWebhookConfiguration",
    "validatingwebhookconfigurations",
);

/// Kinds of templates, which are looked up by an object's apiVersion and kind.
const TEMPLATES: [ObjectKind; 16] = [
    BATCH_JOB,
    VOLCANO_JOB,
    PYTORCH_JOB,
    TF_JOB,
    MPI_JOB,
    JAX_JOB,
    PADDLE_JOB,
    XGBOOST_JOB,
    JOB_SET,
    LEADER_WORKER_SET,
    RAY_CLUSTER,
    RAY_JOB,
    RAY_SERVICE,
    DEPLOYMENT,
    STATEFUL_SET,
    POD,
];

impl ObjectKind {
    /// Returns `group/version`, or only the version in the core group.
    pub fn api_version(self) -> String {
        match self.group {
            "" => self.version.to_owned(),
            group => format!("{group}/{}", self.version),
        }
    }

    /// Returns the kind of a template, by its apiVersion and kind.
    pub fn of_template(api_version: &str, kind: &str) -> Option<Self> {
        TEMPLATES
            .into_iter()
            .find(|template| template.api_version() == api_version && template.name == kind)
    }

    pub(crate) fn resource(self) -> ApiResource {
        ApiResource {
            group: self.group.to_owned(),
            version: self.version.to_owned(),
            api_version: self.api_version(),
            kind: self.name.to_owned(),
            plural: self.plural.to_owned(),
        }
    }
}
