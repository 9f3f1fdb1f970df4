//! All labels, annotations, finalizers and well-known names that Muster reads or writes.

/// The API group of Muster's own objects.
pub const GROUP: &str = "muster.io";
/// The scheduler name in a policy that hands its jobs to Muster.
pub const SCHEDULER_NAME: &str = "muster";
/// Namespace of Muster's own objects.
pub const SYSTEM_NAMESPACE: &str = "muster-system";
/// Name of the Lease for leader election, in [`SYSTEM_NAMESPACE`].
pub const LEASE: &str = "muster";
/// Name of both configurations by which the API server calls the webhook.
pub const WEBHOOK_CONFIGURATION: &str = "muster";
/// Name of the registered webhook that answers the dry run of a Lease with [`WEBHOOK_PROBE_LABEL`].
pub const WEBHOOK_PROBE: &str = "probe.muster.io";
/// Label of the Lease in [`SYSTEM_NAMESPACE`] whose dry run tests whether the API server reaches the webhook.
pub const WEBHOOK_PROBE_LABEL: &str = "muster.io/webhook-probe";
/// Annotation by which the webhook answers such a dry run: the version that answered.
pub const WEBHOOK_ANSWER_ANNOTATION: &str = "muster.io/webhook-answer";
/// Annotation of a ledger (`runtime::lease::ledger`): the bindings and OverridePolicies that are about
/// to be written (JSON, UID or `override:` and UID to `namespace/name`).
pub const LEDGER_OPEN: &str = "muster.io/ledger-open";
/// Annotation of a ledger: counts its writes within one epoch.
pub const LEDGER_SEQUENCE: &str = "muster.io/ledger-sequence";
/// Annotation of a ledger: the newest resourceVersion that a closed write led to.
pub const LEDGER_NEWEST: &str = "muster.io/ledger-newest";
/// Name of the PropagationPolicy that Muster maintains in managed namespaces.
pub const DEFAULT_POLICY: &str = "muster";
/// Name of the queue of jobs that name none.
pub const DEFAULT_QUEUE: &str = "default";
/// Annotation of a Queue: `true` if Muster created it for a CapacityPolicy that states the queue by itself.
pub const QUEUE_OF_POLICY_ANNOTATION: &str = "muster.io/queue-of-policy";
/// The verb of the right to submit to a Queue.
pub const USE_VERB: &str = "use";

/// Namespace label: `true` makes Muster manage the namespace's workloads.
pub const MANAGED_LABEL: &str = "muster.io/managed";
/// Annotation of a managed namespace: when all its earlier workloads were adopted (RFC 3339). A workload
/// that is found placed without an admission after that is evicted.
pub const ADOPTED_AT_ANNOTATION: &str = "muster.io/adopted-at";
/// Label or annotation of a job: its queue.
pub const QUEUE_KEY: &str = "muster.io/queue";
/// Labels of a job: whether it is on hold, and its PriorityClass in its queue.
pub use workload::{HOLD_LABEL, PRIORITY_CLASS_LABEL};
/// Namespace annotation or label: the queue of jobs that name none.
pub const DEFAULT_QUEUE_KEY: &str = "muster.io/default-queue";
/// Annotation of a binding: the admission record (JSON, [`crate::record::AdmissionRecord`]).
pub const ADMISSION_ANNOTATION: &str = "muster.io/admission";
/// Annotation of a PodGroup where the CRD is Volcano's own, which has no `status.federation`: its JSON
/// ([`crate::podgroup::FederationStatus`]).
pub const FEDERATION_ANNOTATION: &str = "muster.io/federation";
/// Annotation of a binding or an OverridePolicy: the epoch of the leader that last wrote it only to make
/// the open writes of an earlier leader fail.
pub const FENCE_ANNOTATION: &str = "muster.io/fence";
/// Annotation of an OverridePolicy that Muster writes: the number and epoch of the write, so that each
/// write changes its resourceVersion.
pub const WRITE_ANNOTATION: &str = "muster.io/write";
/// Annotation of a template: the user who submitted it. The webhook writes it; an admission policy refuses false
/// values and changes.
pub const USER_ANNOTATION: &str = "muster.io/user";
/// Annotation of a template: the queue that its user may use (verb `use` on the Queue), if its namespace
/// may not. The webhook writes it; an admission policy refuses false values.
pub const PERMITTED_QUEUE_ANNOTATION: &str = "muster.io/permitted-queue";
/// Annotation of a template: when its job last wrote a checkpoint (RFC 3339).
pub const CHECKPOINTED_AT_ANNOTATION: &str = "muster.io/checkpointed-at";
/// Annotation of a template: when its job last made progress (RFC 3339).
pub const HEARTBEAT_ANNOTATION: &str = "muster.io/heartbeat";
/// Annotation of a template: the time without a heartbeat after which its job is stuck (`20m`).
pub const HEARTBEAT_TIMEOUT_ANNOTATION: &str = "muster.io/heartbeat-timeout";
/// Annotation of a template: the span of another program of which its job is a part, as W3C Trace Context writes it.
pub const TRACEPARENT_ANNOTATION: &str = "traceparent";
/// Annotation of pods: `true` if the pod counts as lost while it runs and is not Ready.
pub const UNREADY_IS_LOST_ANNOTATION: &str = "muster.io/unready-is-lost";
/// Annotation of a template: the attempt in which its job was aborted, by a user who resumes it (`2`).
pub const RESUME_ANNOTATION: &str = "muster.io/resume-attempt";
/// Taint of a node that is avoided; its value is the class of the fault.
pub const AVOID_TAINT: &str = "muster.io/avoid";
/// Annotation of a node that Muster avoids: why, since when and until when (JSON,
/// [`crate::node_health::NodeAvoidance`]).
pub const AVOIDANCE_ANNOTATION: &str = "muster.io/avoidance";
/// Annotation of a Cluster: the nodes that a person has cleared, and when
/// (`node7=2026-11-25T18:00:00Z,node9=...`). What was seen of them before does not count.
pub const CLEARED_NODES_ANNOTATION: &str = "muster.io/cleared-nodes";
/// Annotation of a node: when it ends (RFC 3339), as spot capacity or for maintenance.
pub const ENDS_AT_ANNOTATION: &str = "muster.io/ends-at";
/// Label of a node of GKE: when its maintenance begins, in seconds of Unix time.
pub const GKE_MAINTENANCE_LABEL: &str = "cloud.google.com/scheduled-maintenance-time";
/// Annotation of a Cluster: the price of one device for one hour, in the operator's own unit (`2.50`).
pub const PRICE_ANNOTATION: &str = "muster.io/price";
/// Annotation of a Cluster: the round-trip time to other clusters (`gpu-b=0.4ms,gpu-c=12ms`). A value of
/// one cluster applies in both directions; of two different values the longer one.
pub const NETWORK_ANNOTATION: &str = "muster.io/network";
/// Annotation of the objects in a member of a job in parts: the part.
pub const PART_ANNOTATION: &str = "muster.io/part";
/// Label of pods that Services lead to from other clusters: their part and attempt.
pub use workload::PART_LABEL;
/// Label of the Services that lead to pods of a split job: the UID of its binding.
pub const JOB_LABEL: &str = "muster.io/job-uid";
/// Label of the same Services: their attempt.
pub const ATTEMPT_LABEL: &str = "muster.io/attempt";
/// Label of the Works, Jobs and pods that pull images for a waiting job: the UID of its template.
pub const PRE_PULL_LABEL: &str = "muster.io/pre-pull";
/// Annotation of a Cluster: `true` keeps new jobs out and evicts the present ones.
pub const DRAIN_ANNOTATION: &str = "muster.io/drain";
/// Annotation of a Cluster: `true` says that nothing runs there any more, so that its Works are not waited
/// for. It applies only while the cluster does not answer.
pub const OUT_OF_SERVICE_ANNOTATION: &str = facts::matching::OUT_OF_SERVICE;
/// Annotation of a Cluster: `Direct` or `Proxy`, how Muster reaches it. By default a Push cluster is
/// reached directly, and a Pull cluster through Karmada's cluster proxy.
pub const ACCESS_ANNOTATION: &str = "muster.io/access";
/// Finalizer of a managed binding: keeps it, and with it the charge, until its Works are gone.
pub const ACCOUNTING_FINALIZER: &str = "muster.io/accounting";

/// Karmada's annotation on a Work: the OverridePolicies that were applied to it.
pub const APPLIED_OVERRIDES: &str = "policy.karmada.io/applied-overrides";
/// Karmada's annotation on a Work: the ClusterOverridePolicies that were applied to it.
pub const APPLIED_CLUSTER_OVERRIDES: &str = "policy.karmada.io/applied-cluster-overrides";
/// Karmada's annotation on a binding: the placement for which its clusters were chosen.
pub const APPLIED_PLACEMENT: &str = "policy.karmada.io/applied-placement";
/// Karmada's label on bindings and Works: the binding's permanent id.
pub const BINDING_PERMANENT_ID: &str = "resourcebinding.karmada.io/permanent-id";
/// Karmada's label on a binding claimed by a PropagationPolicy.
pub const POLICY_PERMANENT_ID: &str = "propagationpolicy.karmada.io/permanent-id";
/// Karmada's label on a binding claimed by a ClusterPropagationPolicy.
pub const CLUSTER_POLICY_PERMANENT_ID: &str = "clusterpropagationpolicy.karmada.io/permanent-id";
/// Karmada's annotations on objects that it applies in a member, and on Works: the binding.
pub const BINDING_NAME_ANNOTATION: &str = "resourcebinding.karmada.io/name";
/// See [`BINDING_NAME_ANNOTATION`].
pub const BINDING_NAMESPACE_ANNOTATION: &str = "resourcebinding.karmada.io/namespace";
/// Prefix of the namespaces in which Karmada keeps a member's Works.
pub const EXECUTION_NAMESPACE_PREFIX: &str = "karmada-es-";
/// Karmada's finalizer on Works, which is removed once the member has deleted their objects.
pub const EXECUTION_FINALIZER: &str = "karmada.io/execution-controller";

/// Node label that names the product of a node's GPUs.
pub const GPU_PRODUCT_LABEL: &str = "nvidia.com/gpu.product";

/// Node labels that name the topology domain of a node, outermost first; Volcano's are those from which its
/// HyperNodes are discovered.
pub const DOMAIN_LABELS: [&str; 5] = [
    "topology.kubernetes.io/zone",
    "volcano.sh/hypercluster",
    "volcano.sh/hypernode",
    "topology.kubernetes.io/rack",
    "volcano.sh/tor",
];

/// Returns true for namespaces that Muster never manages.
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

/// Returns the user as which the jobs of a submitter count; empty if that is their namespace. Who may edit a namespace
/// may create any number of service accounts there and submit as each of them, so they count as one user, named as
/// their namespace. Kubernetes' own accounts submit for others: who created a CronJob is not known.
#[must_use]
pub fn counted_user(submitter: &str) -> &str {
    let account = submitter.strip_prefix("system:serviceaccount:");
    let namespace = account.and_then(|account| account.split(':').next());
    match namespace {
        Some(namespace) if !is_system_namespace(namespace) => namespace,
        None if !submitter.starts_with("system:") => submitter,
        _ => "",
    }
}

/// Returns the namespace of a member's Works.
#[must_use]
pub fn execution_namespace(cluster: &str) -> String {
    format!("{EXECUTION_NAMESPACE_PREFIX}{cluster}")
}

/// Returns a kind as kubectl prints and takes it: `job.batch`, and `pod` in the core group. Several groups
/// have a Job.
#[must_use]
pub fn kubectl_kind(api_version: &str, kind: &str) -> String {
    let kind = kind.to_lowercase();
    match api_version.split_once('/') {
        Some((group, _)) => format!("{kind}.{group}"),
        None => kind,
    }
}

/// Returns Karmada's name of the binding of an object (pkg/util/names, `GenerateBindingName`). It does not
/// contain the API group, so two kinds of the same name collide.
#[must_use]
pub fn binding_name(kind: &str, name: &str) -> String {
    format!("{name}-{kind}").to_lowercase().replace(':', ".")
}

#[cfg(test)]
mod tests {
    use super::counted_user;

    #[test]
    fn service_accounts_count_as_their_namespace_and_those_of_the_system_as_no_user() {
        for (submitter, user) in [
            ("ann", "ann"),
            ("oidc:ann@example.com", "oidc:ann@example.com"),
            ("", ""),
            ("system:serviceaccount:team-a:train-1", "team-a"),
            ("system:serviceaccount:team-a:train-2", "team-a"),
            ("system:serviceaccount:argo:workflows", "argo"),
            ("system:serviceaccount:kube-system:cronjob-controller", ""),
            ("system:serviceaccount:karmada-system:any", ""),
            ("system:kube-controller-manager", ""),
            ("system:admin", ""),
        ] {
            assert_eq!(counted_user(submitter), user, "{submitter}");
        }
    }
}
