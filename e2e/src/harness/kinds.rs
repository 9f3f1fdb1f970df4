//! The kinds of objects that are read and written, as discovery would name them.

use kube::discovery::ApiResource;

/// A kind with all that a request for it needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kind {
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
) -> Kind {
    Kind {
        group,
        version,
        name,
        plural,
    }
}

/// Kubernetes' own.
pub const CONFIG_MAP: Kind = kind("", "v1", "ConfigMap", "configmaps");
/// Kubernetes' own.
pub const EVENT: Kind = kind("", "v1", "Event", "events");
/// Kubernetes' own.
pub const NAMESPACE: Kind = kind("", "v1", "Namespace", "namespaces");
/// Kubernetes' own.
pub const NODE: Kind = kind("", "v1", "Node", "nodes");
/// Kubernetes' own.
pub const POD: Kind = kind("", "v1", "Pod", "pods");
/// Kubernetes' own.
pub const SECRET: Kind = kind("", "v1", "Secret", "secrets");
/// Kubernetes' own.
pub const SERVICE: Kind = kind("", "v1", "Service", "services");
/// What a Service leads to.
pub const ENDPOINT_SLICE: Kind = kind("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices");
/// Karmada's way of a Service to other members.
pub const MULTI_CLUSTER_SERVICE: Kind = kind(
    "networking.karmada.io",
    "v1alpha1",
    "MultiClusterService",
    "multiclusterservices",
);
/// Kubernetes' own.
pub const PVC: Kind = kind("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims");
/// Kubernetes' own.
pub const RESOURCE_QUOTA: Kind = kind("", "v1", "ResourceQuota", "resourcequotas");
/// Kubernetes' own.
pub const DEPLOYMENT: Kind = kind("apps", "v1", "Deployment", "deployments");
/// Kubernetes' StatefulSet.
pub const STATEFUL_SET: Kind = kind("apps", "v1", "StatefulSet", "statefulsets");
/// Kubernetes' CronJob.
pub const CRON_JOB: Kind = kind("batch", "v1", "CronJob", "cronjobs");
/// Karmada's autoscaler by the clock.
pub const CRON_FEDERATED_HPA: Kind = kind(
    "autoscaling.karmada.io",
    "v1alpha1",
    "CronFederatedHPA",
    "cronfederatedhpas",
);
/// Kubernetes' own.
pub const BATCH_JOB: Kind = kind("batch", "v1", "Job", "jobs");
/// Kubernetes' own.
pub const PRIORITY_CLASS: Kind = kind(
    "scheduling.k8s.io",
    "v1",
    "PriorityClass",
    "priorityclasses",
);
/// What a role allows, for the whole control plane or where a RoleBinding names it.
pub const CLUSTER_ROLE: Kind = kind(
    "rbac.authorization.k8s.io",
    "v1",
    "ClusterRole",
    "clusterroles",
);
/// Binds a role to users in a namespace.
pub const ROLE_BINDING: Kind = kind(
    "rbac.authorization.k8s.io",
    "v1",
    "RoleBinding",
    "rolebindings",
);
/// Binds a role to users on the whole cluster.
pub const CLUSTER_ROLE_BINDING: Kind = kind(
    "rbac.authorization.k8s.io",
    "v1",
    "ClusterRoleBinding",
    "clusterrolebindings",
);
/// Kubernetes' own rules of what may be written.
pub const ADMISSION_POLICY: Kind = kind(
    "admissionregistration.k8s.io",
    "v1",
    "ValidatingAdmissionPolicy",
    "validatingadmissionpolicies",
);
/// What puts such rules into force.
pub const ADMISSION_POLICY_BINDING: Kind = kind(
    "admissionregistration.k8s.io",
    "v1",
    "ValidatingAdmissionPolicyBinding",
    "validatingadmissionpolicybindings",
);
/// Asks what the caller may do.
pub const SELF_ACCESS_REVIEW: Kind = kind(
    "authorization.k8s.io",
    "v1",
    "SelfSubjectAccessReview",
    "selfsubjectaccessreviews",
);
/// What one of several replicas holds to lead.
pub const LEASE: Kind = kind("coordination.k8s.io", "v1", "Lease", "leases");
/// What makes a class of devices.
pub const DEVICE_CLASS: Kind = kind("resource.k8s.io", "v1", "DeviceClass", "deviceclasses");
/// Devices of a node.
pub const RESOURCE_SLICE: Kind = kind("resource.k8s.io", "v1", "ResourceSlice", "resourceslices");
/// A claim of devices.
pub const RESOURCE_CLAIM: Kind = kind("resource.k8s.io", "v1", "ResourceClaim", "resourceclaims");
/// What claims of pods are made from.
pub const RESOURCE_CLAIM_TEMPLATE: Kind = kind(
    "resource.k8s.io",
    "v1",
    "ResourceClaimTemplate",
    "resourceclaimtemplates",
);
/// Volcano's job.
pub const VOLCANO_JOB: Kind = kind("batch.volcano.sh", "v1alpha1", "Job", "jobs");
/// Volcano's queue.
pub const QUEUE: Kind = kind("scheduling.volcano.sh", "v1beta1", "Queue", "queues");
/// One per job on the control plane, Muster's; in members Volcano's.
pub const POD_GROUP: Kind = kind("scheduling.volcano.sh", "v1beta1", "PodGroup", "podgroups");
/// Kubeflow's job for PyTorch.
pub const PYTORCH_JOB: Kind = kind("kubeflow.org", "v1", "PyTorchJob", "pytorchjobs");
/// Kubeflow's job for TensorFlow.
pub const TF_JOB: Kind = kind("kubeflow.org", "v1", "TFJob", "tfjobs");
/// Kubeflow's job for MPI.
pub const MPI_JOB: Kind = kind("kubeflow.org", "v2beta1", "MPIJob", "mpijobs");
/// A set of batch Jobs.
pub const JOB_SET: Kind = kind("jobset.x-k8s.io", "v1alpha2", "JobSet", "jobsets");
/// Ray's nodes.
pub const RAY_CLUSTER: Kind = kind("ray.io", "v1", "RayCluster", "rayclusters");
/// Ray's nodes, and what they run.
pub const RAY_JOB: Kind = kind("ray.io", "v1", "RayJob", "rayjobs");
/// What a queue may use where.
pub const CAPACITY_POLICY: Kind = kind(
    "muster.io",
    "v1alpha1",
    "CapacityPolicy",
    "capacitypolicies",
);
/// Nodes of one GPU class in a member.
pub const GPU_POOL: Kind = kind("muster.io", "v1alpha1", "GpuPool", "gpupools");
/// Karmada's member cluster.
pub const CLUSTER: Kind = kind("cluster.karmada.io", "v1alpha1", "Cluster", "clusters");
/// Karmada's policy.
pub const PROPAGATION_POLICY: Kind = kind(
    "policy.karmada.io",
    "v1alpha1",
    "PropagationPolicy",
    "propagationpolicies",
);
/// Karmada's policy for all namespaces.
pub const CLUSTER_PROPAGATION_POLICY: Kind = kind(
    "policy.karmada.io",
    "v1alpha1",
    "ClusterPropagationPolicy",
    "clusterpropagationpolicies",
);
/// Karmada's override.
pub const OVERRIDE_POLICY: Kind = kind(
    "policy.karmada.io",
    "v1alpha1",
    "OverridePolicy",
    "overridepolicies",
);
/// Karmada's override for all namespaces.
pub const CLUSTER_OVERRIDE_POLICY: Kind = kind(
    "policy.karmada.io",
    "v1alpha1",
    "ClusterOverridePolicy",
    "clusteroverridepolicies",
);
/// Karmada's binding.
pub const BINDING: Kind = kind(
    "work.karmada.io",
    "v1alpha2",
    "ResourceBinding",
    "resourcebindings",
);
/// Karmada's work.
pub const WORK: Kind = kind("work.karmada.io", "v1alpha1", "Work", "works");
/// Kubernetes' registration of webhooks that change.
pub const MUTATING_WEBHOOKS: Kind = kind(
    "admissionregistration.k8s.io",
    "v1",
    "MutatingWebhookConfiguration",
    "mutatingwebhookconfigurations",
);
/// Kubernetes' registration of webhooks that validate.
pub const VALIDATING_WEBHOOKS: Kind = kind(
    "admissionregistration.k8s.io",
    "v1",
    "ValidatingWebhookConfiguration",
    "validatingwebhookconfigurations",
);

/// Kinds of templates that can be found again from an object's apiVersion and kind.
const TEMPLATES: [Kind; 11] = [
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

impl Kind {
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
