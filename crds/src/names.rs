//! Every label, annotation, finalizer and well-known name that Muster reads or writes.

/// The API group of Muster's own objects.
pub const GROUP: &str = "muster.io";
/// The scheduler name in a policy that hands its jobs to Muster.
pub const SCHEDULER_NAME: &str = "muster";
/// Namespace of what Muster keeps for itself.
pub const SYSTEM_NAMESPACE: &str = "muster-system";
/// Name of the Lease by which one replica leads, in [`SYSTEM_NAMESPACE`].
pub const LEASE: &str = "muster";
/// Annotation of a ledger (`runtime::lease::ledger`): the bindings and OverridePolicies that are about
/// to be written (JSON, UID or `override:` and UID to `namespace/name`).
pub const LEDGER_OPEN: &str = "muster.io/ledger-open";
/// Annotation of a ledger: counts its writes within one epoch.
pub const LEDGER_SEQUENCE: &str = "muster.io/ledger-sequence";
/// Annotation of a ledger: the newest resourceVersion that a closed write led to.
pub const LEDGER_NEWEST: &str = "muster.io/ledger-newest";
/// Name of the PropagationPolicy that Muster keeps in managed namespaces.
pub const DEFAULT_POLICY: &str = "muster";
/// Name of the queue of jobs that name none.
pub const DEFAULT_QUEUE: &str = "default";
/// Name of the CapacityPolicy that says what holds where a queue's own says nothing (`spec.tenancy`).
pub const ROOT_POLICY: &str = crate::queue::ROOT;
/// The verb of the right to submit to a Queue.
pub const USE_VERB: &str = "use";

/// Namespace label: `true` hands the namespace's workloads to Muster.
pub const MANAGED_LABEL: &str = "muster.io/managed";
/// Annotation of a managed namespace: when all that ran there before was adopted (RFC 3339).
/// What is found placed without an admission from then on is evicted.
pub const ADOPTED_AT_ANNOTATION: &str = "muster.io/adopted-at";
/// Label or annotation of a job: its queue.
pub const QUEUE_KEY: &str = "muster.io/queue";
/// Namespace annotation or label: the queue of jobs that name none.
pub const DEFAULT_QUEUE_KEY: &str = "muster.io/default-queue";
/// Annotation of a binding: the admission record (JSON, [`crate::record::AdmissionRecord`]).
pub const ADMISSION_ANNOTATION: &str = "muster.io/admission";
/// Annotation of a binding or an OverridePolicy: the epoch of the leader that last wrote it for no
/// other purpose than that writes which an earlier leader has in flight fail.
pub const FENCE_ANNOTATION: &str = "muster.io/fence";
/// Annotation of an OverridePolicy that Muster writes: which write of which epoch, so that each
/// changes its resourceVersion.
pub const WRITE_ANNOTATION: &str = "muster.io/write";
/// Annotation of a template: who submitted it. Written by the webhook, and by nobody else.
pub const USER_ANNOTATION: &str = "muster.io/user";
/// Annotation of a template: the queue that who submitted it may use (verb `use` on the Queue), where its
/// namespace may not. The webhook writes it; an admission policy lets nobody write what is not true.
pub const PERMITTED_QUEUE_ANNOTATION: &str = "muster.io/permitted-queue";
/// Annotation of a template: when its job last saved its work (RFC 3339).
pub const CHECKPOINTED_AT_ANNOTATION: &str = "muster.io/checkpointed-at";
/// Annotation of a Cluster: the price of one device for one hour, in whatever the operator
/// counts in (`2.50`).
pub const PRICE_ANNOTATION: &str = "muster.io/price";
/// Annotation of a Cluster: the time to other clusters and back (`gpu-b=0.4ms,gpu-c=12ms`).
/// What one of two tells holds for both; of two that differ the longer.
pub const NETWORK_ANNOTATION: &str = "muster.io/network";
/// Annotation of what runs in a member for a job that is placed in parts: which part it is.
pub const PART_ANNOTATION: &str = "muster.io/part";
/// Label of pods that are found by Services from other clusters: which part of which attempt they
/// are of.
pub use workload::PART_LABEL;
/// Label of the Services by which pods of a split job are found: the UID of its binding.
pub const JOB_LABEL: &str = "muster.io/job-uid";
/// Label of the same: the attempt that they are of.
pub const ATTEMPT_LABEL: &str = "muster.io/attempt";
/// Annotation of a Cluster: `true` keeps new jobs out and evicts those that are there.
pub const DRAIN_ANNOTATION: &str = "muster.io/drain";
/// Annotation of a Cluster: `true` says that nothing runs there any more, so that nobody waits
/// for it to say so itself. Heeded only while it does not answer.
pub const OUT_OF_SERVICE_ANNOTATION: &str = "muster.io/out-of-service";
/// Annotation of a Cluster: `Direct` or `Proxy`, how Muster reaches it. Without it a Push cluster
/// is reached directly, and a Pull cluster through Karmada's cluster proxy.
pub const ACCESS_ANNOTATION: &str = "muster.io/access";
/// Finalizer of a managed binding: keeps it, and with it the charge, until its Works are gone.
pub const ACCOUNTING_FINALIZER: &str = "muster.io/accounting";

/// Karmada's annotation on a Work: the OverridePolicies that it was made with.
pub const APPLIED_OVERRIDES: &str = "policy.karmada.io/applied-overrides";
/// Karmada's annotation on a Work: the ClusterOverridePolicies that it was made with.
pub const APPLIED_CLUSTER_OVERRIDES: &str = "policy.karmada.io/applied-cluster-overrides";
/// Karmada's annotation on a binding: the placement its clusters were chosen by.
pub const APPLIED_PLACEMENT: &str = "policy.karmada.io/applied-placement";
/// Karmada's label on bindings and Works: the binding's permanent id.
pub const BINDING_PERMANENT_ID: &str = "resourcebinding.karmada.io/permanent-id";
/// Karmada's label on a binding claimed by a PropagationPolicy.
pub const POLICY_PERMANENT_ID: &str = "propagationpolicy.karmada.io/permanent-id";
/// Karmada's label on a binding claimed by a ClusterPropagationPolicy.
pub const CLUSTER_POLICY_PERMANENT_ID: &str = "clusterpropagationpolicy.karmada.io/permanent-id";
/// Karmada's annotations on what it applies in a member, and on Works: the binding.
pub const BINDING_NAME_ANNOTATION: &str = "resourcebinding.karmada.io/name";
/// See [`BINDING_NAME_ANNOTATION`].
pub const BINDING_NAMESPACE_ANNOTATION: &str = "resourcebinding.karmada.io/namespace";
/// Prefix of the namespaces in which Karmada keeps a member's Works.
pub const EXECUTION_NAMESPACE_PREFIX: &str = "karmada-es-";
/// Karmada's finalizer on Works, removed once the member has none of it left.
pub const EXECUTION_FINALIZER: &str = "karmada.io/execution-controller";

/// Node label that names the product of a node's GPUs.
pub const GPU_PRODUCT_LABEL: &str = "nvidia.com/gpu.product";

/// Node labels that name the topology domain a node is in, outermost first; Volcano's are those
/// that its HyperNodes are discovered by.
pub const DOMAIN_LABELS: [&str; 5] = [
    "topology.kubernetes.io/zone",
    "volcano.sh/hypercluster",
    "volcano.sh/hypernode",
    "topology.kubernetes.io/rack",
    "volcano.sh/tor",
];

/// Namespaces that Muster never manages.
#[must_use]
pub fn is_system_namespace(namespace: &str) -> bool {
    matches!(
        namespace,
        "kube-system"
            | "kube-public"
            | "kube-node-lease"
            | "karmada-system"
            | "karmada-cluster"
            | SYSTEM_NAMESPACE
    ) || namespace.starts_with(EXECUTION_NAMESPACE_PREFIX)
}

/// The namespace of a member's Works.
#[must_use]
pub fn execution_namespace(cluster: &str) -> String {
    format!("{EXECUTION_NAMESPACE_PREFIX}{cluster}")
}

/// The name Karmada gives the binding of an object (pkg/util/names, `GenerateBindingName`):
/// the API group is not in it, so two kinds of one name collide.
#[must_use]
pub fn binding_name(kind: &str, name: &str) -> String {
    format!("{name}-{kind}").to_lowercase().replace(':', ".")
}
