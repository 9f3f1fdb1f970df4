//! The kinds of objects that are read and written, as discovery would name them.

use kube::discovery::ApiResource;

/// A kind with all that a request for it needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ObjectKind {
    /// The API group; empty for the core.
    pub group: &'static str,
    /// Its version.
    pub version: &'static str,
    /// CamelCase name.
    pub name: &'static str,
    /// Name in URLs.
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

/// Kubernetes' own.
pub const CONFIG_MAP: ObjectKind = kind("", "v1", "ConfigMap", "configmaps");
/// Kubernetes' own.
pub const EVENT: ObjectKind = kind("", "v1", "Event", "events");
/// Kubernetes' own.
pub const NAMESPACE: ObjectKind = kind("", "v1", "Namespace", "namespaces");
/// Kubernetes' own.
pub const NODE: ObjectKind = kind("", "v1", "Node", "nodes");
/// Kubernetes' own.
pub const POD: ObjectKind = kind("", "v1", "Pod", "pods");
/// Kubernetes' own.
pub const SECRET: ObjectKind = kind("", "v1", "Secret", "secrets");
/// Kubernetes' own.
pub const SERVICE: ObjectKind = kind("", "v1", "Service", "services");
/// What a Service leads to.
pub const ENDPOINT_SLICE: ObjectKind =
    kind("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices");
/// Karmada's way of a Service to other members.
pub const MULTI_CLUSTER_SERVICE: ObjectKind = kind(
    "networking.karmada.io",
    "v1alpha1",
    "MultiClusterService",
    "multiclusterservices",
);
/// Kubernetes' own.
pub const PVC: ObjectKind = kind("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims");
/// Kubernetes' own.
pub const RESOURCE_QUOTA: ObjectKind = kind("", "v1", "ResourceQuota", "resourcequotas");
/// Kubernetes' own.
pub const DEPLOYMENT: ObjectKind = kind("apps", "v1", "Deployment", "deployments");
/// Kubernetes' StatefulSet.
pub const STATEFUL_SET: ObjectKind = kind("apps", "v1", "StatefulSet", "statefulsets");
/// Kubernetes' CronJob.
pub const CRON_JOB: ObjectKind = kind("batch", "v1", "CronJob", "cronjobs");
/// Karmada's autoscaler by the clock.
pub const CRON_FEDERATED_HPA: ObjectKind = kind(
    "autoscaling.karmada.io",
    "v1alpha1",
    "CronFederatedHPA",
    "cronfederatedhpas",
);
/// Kubernetes' own.
pub const BATCH_JOB: ObjectKind = kind("batch", "v1", "Job", "jobs");
/// Kubernetes' own.
pub const PRIORITY_CLASS: ObjectKind = kind(
    "scheduling.k8s.io",
    "v1",
    "PriorityClass",
    "priorityclasses",
);
/// What a role allows, for the whole control plane or where a RoleBinding names it.
pub const CLUSTER_ROLE: ObjectKind = kind(
    "rbac.authorization.k8s.io",
    "v1",
    "ClusterRole",
    "clusterroles",
);
/// Binds a role to users in a namespace.
pub const ROLE_BINDING: ObjectKind = kind(
    "rbac.authorization.k8s.io",
    "v1",
    "RoleBinding",
    "rolebindings",
);
/// Binds a role to users on the whole cluster.
pub const CLUSTER_ROLE_BINDING: ObjectKind = kind(
    "rbac.authorization.k8s.io",
    "v1",
    "ClusterRoleBinding",
    "clusterrolebindings",
);
/// Kubernetes' own rules of what may be written.
pub const ADMISSION_POLICY: ObjectKind = kind(
    "admissionregistration.k8s.io",
    "v1",
    "ValidatingAdmissionPolicy",
    "validatingadmissionpolicies",
);
/// What puts such rules into force.
pub const ADMISSION_POLICY_BINDING: ObjectKind = kind(
    "admissionregistration.k8s.io",
    "v1",
    "ValidatingAdmissionPolicyBinding",
    "validatingadmissionpolicybindings",
);
/// Asks what the caller may do.
pub const SELF_ACCESS_REVIEW: ObjectKind = kind(
    "authorization.k8s.io",
    "v1",
    "SelfSubjectAccessReview",
    "selfsubjectaccessreviews",
);
/// What one of several replicas holds to lead.
pub const LEASE: ObjectKind = kind("coordination.k8s.io", "v1", "Lease", "leases");
/// What makes a class of devices.
pub const DEVICE_CLASS: ObjectKind = kind("resource.k8s.io", "v1", "DeviceClass", "deviceclasses");
/// Devices of a node.
pub const RESOURCE_SLICE: ObjectKind =
    kind("resource.k8s.io", "v1", "ResourceSlice", "resourceslices");
/// A claim of devices.
pub const RESOURCE_CLAIM: ObjectKind =
    kind("resource.k8s.io", "v1", "ResourceClaim", "resourceclaims");
/// What claims of pods are made from.
pub const RESOURCE_CLAIM_TEMPLATE: ObjectKind = kind(
    "resource.k8s.io",
    "v1",
    "ResourceClaimTemplate",
    "resourceclaimtemplates",
);
/// Volcano's job.
pub const VOLCANO_JOB: ObjectKind = kind("batch.volcano.sh", "v1alpha1", "Job", "jobs");
/// Volcano's queue.
pub const QUEUE: ObjectKind = kind("scheduling.volcano.sh", "v1beta1", "Queue", "queues");
/// One per job on the control plane, Muster's; in members Volcano's.
pub const POD_GROUP: ObjectKind = kind("scheduling.volcano.sh", "v1beta1", "PodGroup", "podgroups");
/// Kubeflow's job for PyTorch.
pub const PYTORCH_JOB: ObjectKind = kind("kubeflow.org", "v1", "PyTorchJob", "pytorchjobs");
/// Kubeflow's job for TensorFlow.
pub const TF_JOB: ObjectKind = kind("kubeflow.org", "v1", "TFJob", "tfjobs");
/// Kubeflow's job for MPI.
pub const MPI_JOB: ObjectKind = kind("kubeflow.org", "v2beta1", "MPIJob", "mpijobs");
/// A set of batch Jobs.
pub const JOB_SET: ObjectKind = kind("jobset.x-k8s.io", "v1alpha2", "JobSet", "jobsets");
/// Ray's nodes.
pub const RAY_CLUSTER: ObjectKind = kind("ray.io", "v1", "RayCluster", "rayclusters");
/// Ray's nodes, and what they run.
pub const RAY_JOB: ObjectKind = kind("ray.io", "v1", "RayJob", "rayjobs");
/// What a queue may use where.
pub const CAPACITY_POLICY: ObjectKind = kind(
    "muster.io",
    "v1alpha1",
    "CapacityPolicy",
    "capacitypolicies",
);
/// Nodes of one GPU class in a member.
pub const GPU_POOL: ObjectKind = kind("muster.io", "v1alpha1", "GpuPool", "gpupools");
/// Karmada's member cluster.
pub const CLUSTER: ObjectKind = kind("cluster.karmada.io", "v1alpha1", "Cluster", "clusters");
/// Karmada's policy.
pub const PROPAGATION_POLICY: ObjectKind = kind(
    "policy.karmada.io",
    "v1alpha1",
    "PropagationPolicy",
    "propagationpolicies",
);
/// Karmada's policy for all namespaces.
pub const CLUSTER_PROPAGATION_POLICY: ObjectKind = kind(
    "policy.karmada.io",
    "v1alpha1",
    "ClusterPropagationPolicy",
    "clusterpropagationpolicies",
);
/// Karmada's override.
pub const OVERRIDE_POLICY: ObjectKind = kind(
    "policy.karmada.io",
    "v1alpha1",
    "OverridePolicy",
    "overridepolicies",
);
/// Karmada's override for all namespaces.
pub const CLUSTER_OVERRIDE_POLICY: ObjectKind = kind(
    "policy.karmada.io",
    "v1alpha1",
    "ClusterOverridePolicy",
    "clusteroverridepolicies",
);
/// Karmada's binding.
pub const BINDING: ObjectKind = kind(
    "work.karmada.io",
    "v1alpha2",
    "ResourceBinding",
    "resourcebindings",
);
/// Karmada's work.
pub const WORK: ObjectKind = kind("work.karmada.io", "v1alpha1", "Work", "works");
/// Kubernetes' registration of webhooks that change.
pub const MUTATING_WEBHOOKS: ObjectKind = kind(
    "admissionregistration.k8s.io",
    "v1",
    "MutatingWebhookConfiguration",
    "mutatingwebhookconfigurations",
);
/// Kubernetes' registration of webhooks that validate.
pub const VALIDATING_WEBHOOKS: ObjectKind = kind(
    "admissionregistration.k8s.io",
    "v1",
    "ValidatingWebhookConfiguration",
    "validatingwebhookconfigurations",
);

/// Kinds of templates that can be found again from an object's apiVersion and kind.
const TEMPLATES: [ObjectKind; 11] = [
    BATCH_JOB,
    VOLCANO_JOB,
    PYTORCH_JOB,
    TF_JOB,
    MPI_JOB,
    JOB_SET,
    RAY_CLUSTER,
    RAY_JOB,
    DEPLOYMENT,
    STATEFUL_SET,
    POD,
];

impl ObjectKind {
    /// `group/version`, or the version alone in the core.
    pub fn api_version(self) -> String {
        match self.group {
            "" => self.version.to_owned(),
            group => format!("{group}/{}", self.version),
        }
    }

    /// The kind of a template, by its apiVersion and kind.
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
