//! The flags of `muster`.

use crate::install::accounts::RbacAccount;
use crate::token::renewal::TokenSecret;
use clap::{Args as Group, Parser, Subcommand};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::Selector;
use runtime::telemetry::LogFormat;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Muster queues AI and batch jobs across the member clusters of a Karmada control plane.
#[derive(Debug, Parser)]
#[command(name = "muster", version, about)]
pub(crate) struct MusterArgs {
    #[command(flatten)]
    pub(crate) connection: ConnectionArgs,
    #[command(subcommand)]
    pub(crate) command: MusterCommand,
}

/// How to reach the Karmada control plane.
#[derive(Debug, Clone, Group)]
pub(crate) struct ConnectionArgs {
    /// Kubeconfig of the Karmada control plane; else KUBECONFIG, ~/.kube/config, in-cluster.
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Context in the kubeconfig.
    #[arg(long, global = true)]
    pub(crate) context: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum MusterCommand {
    /// Webhook, controller and scheduler in one process; replicas elect a leader.
    All(ProcessArgs),
    /// The admission webhook alone.
    Webhook(ProcessArgs),
    /// The queue controller alone; plans are handed to `muster scheduler` by admission records.
    Controller(ProcessArgs),
    /// The scheduler alone: places what the controller planned.
    Scheduler(ProcessArgs),
    /// Finds what keeps Muster from working, and says how to mend it. Exit codes: 0 nothing blocks, 1 a finding
    /// blocks, 2 the control plane could not be asked.
    Check(CheckArgs),
    /// Installs CRDs, RBAC, interpreter customizations and the default queue; safe to repeat.
    Install(Install),
    /// Hands every job to Karmada's scheduler and removes what Muster wrote; what runs goes on. Safe to repeat.
    Uninstall(Uninstall),
    /// Simulates jobs on a fleet in virtual time, with the engine that runs live.
    Simulate(Box<sim::Simulate>),
}

/// Flags of a long-running process.
#[derive(Debug, Clone, Group)]
pub(crate) struct ProcessArgs {
    /// How log lines are written.
    #[arg(long, default_value = "text", value_name = "json|text")]
    pub(crate) log_format: LogFormat,
    /// Address of /healthz, /readyz and /metrics.
    #[arg(long, default_value = "127.0.0.1:8080", value_name = "ADDRESS")]
    pub(crate) metrics_bind: SocketAddr,
    /// Who may read /metrics on an address other than loopback. `token`: accounts with the right `get` on the
    /// URL /metrics, by a bearer token that the API server of the pod's cluster checks; outside of a pod, the
    /// control plane. `none`: every client that reaches the port. Probes are always open.
    #[arg(long, value_enum, default_value = "token", value_name = "token|none")]
    pub(crate) metrics_auth: MetricsAuth,
    /// Exports the metrics of queues by Volcano's names too, for dashboards that ask for those.
    #[arg(long, value_enum, value_name = "volcano")]
    pub(crate) compat_metrics: Option<CompatMetrics>,
    /// gRPC endpoint for the traces of jobs (OpenTelemetry); else OTEL_EXPORTER_OTLP_ENDPOINT; else none.
    #[arg(long, value_name = "URL")]
    pub(crate) otlp_endpoint: Option<String>,
    /// File with the certificates (PEM) of the authorities that may have signed the collector's, for an endpoint
    /// that begins with https://; else OTEL_EXPORTER_OTLP_CERTIFICATE; else those of the system.
    #[arg(long, value_name = "FILE")]
    pub(crate) otlp_ca: Option<PathBuf>,
    /// File with the certificate (PEM) that a collector asks for which accepts known clients only (mutual TLS);
    /// else OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE; else none. It needs the key.
    #[arg(long, value_name = "FILE")]
    pub(crate) otlp_client_certificate: Option<PathBuf>,
    /// File with the key (PEM) of that certificate; else OTEL_EXPORTER_OTLP_CLIENT_KEY.
    #[arg(long, value_name = "FILE")]
    pub(crate) otlp_client_key: Option<PathBuf>,
    /// Label of Alertmanager's alerts with the member cluster, for those posted to /alerts. Alerts without it are of
    /// the cluster that the URL names: /alerts?cluster=NAME.
    #[arg(long, default_value = "cluster", value_name = "LABEL")]
    pub(crate) alerts_cluster_label: String,
    /// Label of Alertmanager's alerts with the node.
    #[arg(long, default_value = "node", value_name = "LABEL")]
    pub(crate) alerts_node_label: String,
    /// Label selector in JSON, as in a Deployment: pods in managed namespaces that match it and belong to no job are
    /// not charged. Who may create pods in a member may label them so.
    #[arg(long, value_name = "JSON", value_parser = label_selector)]
    pub(crate) uncharged_pods: Option<Selector>,
    /// JSON file that says where notices about nodes and clusters are posted: url, template, perMinute.
    #[arg(long, value_name = "FILE")]
    pub(crate) notices: Option<PathBuf>,
    /// Renews the token of the kubeconfig in this Secret of the cluster in which the process runs as a pod, after a
    /// third of its time. The kubeconfig names the token as a file from the same Secret.
    #[arg(long, value_name = "NAMESPACE/SECRET/KEY")]
    pub(crate) renew_token: Option<TokenSecret>,
    /// Hours that a renewed token is to last; the API server may issue it for less.
    #[arg(long, default_value_t = 8760, value_name = "HOURS", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) token_hours: u32,
    /// Kubeconfig of the cluster that has the Secret of --renew-token; else the cluster of the pod.
    #[arg(long, value_name = "FILE", requires = "renew_token")]
    pub(crate) host_kubeconfig: Option<PathBuf>,
    /// Name of this replica in the Lease; else the host's name and the process id.
    #[arg(long)]
    pub(crate) identity: Option<String>,
    /// Serves managed namespaces although the admission policies may not be in force: editors of a
    /// namespace can then exceed its quota.
    #[arg(long)]
    pub(crate) without_admission_policies: bool,
    #[command(flatten)]
    pub(crate) webhook: Webhook,
    #[command(flatten)]
    pub(crate) tuning: Tuning,
}

/// Who may read the metrics beyond loopback.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum MetricsAuth {
    /// Accounts with the right, by their tokens.
    Token,
    /// Every client that reaches the port.
    None,
}

/// A program whose names of metrics Muster exports too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum CompatMetrics {
    /// Volcano.
    Volcano,
}

/// Flags of the webhook.
#[derive(Debug, Clone, Group)]
pub(crate) struct Webhook {
    /// Address the webhook listens on.
    #[arg(long, default_value = "0.0.0.0:9443", value_name = "ADDRESS")]
    pub(crate) webhook_bind: SocketAddr,
    /// URL by which the API server reaches the webhook, if it is not a Service.
    #[arg(long, value_name = "URL", conflicts_with = "webhook_service")]
    pub(crate) webhook_url: Option<String>,
    /// Service by which the API server reaches the webhook.
    #[arg(
        long,
        default_value = "muster-system/muster-webhook",
        value_name = "NAMESPACE/NAME"
    )]
    pub(crate) webhook_service: String,
    /// Registers the webhook at start, and updates its CA bundle when that rotates.
    #[arg(long)]
    pub(crate) register: bool,
}

/// Reads a label selector.
///
/// # Errors
/// Returns what is wrong with it, and what would be right.
fn label_selector(text: &str) -> Result<Selector, String> {
    let example = r#"{"matchLabels": {"app": "agent"}}"#;
    let read: LabelSelector = serde_json::from_str(text)
        .map_err(|error| format!("not a label selector such as {example}: {error}"))?;
    if read == LabelSelector::default() {
        return Err(format!(
            "it would match all pods; name labels, as in {example}"
        ));
    }
    Selector::try_from(read).map_err(|error| error.to_string())
}

/// Flags that affect speed and never decisions.
#[derive(Debug, Clone, Group)]
pub(crate) struct Tuning {
    /// Binding writes in flight.
    #[arg(long, default_value_t = 16, value_name = "N")]
    pub(crate) writes_in_flight: usize,
    /// Seconds until an evicted job may be admitted again; doubles with each attempt.
    #[arg(long, default_value_t = 10, value_name = "SECONDS")]
    pub(crate) backoff_seconds: u32,
    /// Grace period in seconds for a job whose Works request more than was admitted because of an
    /// override. The excess is charged at once; after the grace period the job is evicted.
    #[arg(long, default_value_t = controller::OVERRIDE_GRACE_SECONDS, value_name = "SECONDS")]
    pub(crate) override_grace_seconds: u32,
    /// Seconds for which an evicted job is charged at most until its pods have ended, however long their grace
    /// periods are. After that its quota is free, and another job may be evicted in its place.
    #[arg(long, default_value_t = controller::PODS_END_WITHIN_SECONDS, value_name = "SECONDS")]
    pub(crate) pods_end_within_seconds: u32,
    /// Seconds at least from one check of the engine's numbers to the next. A check runs on a copy, and copying
    /// takes at most a thousandth of the time, so that with very many jobs checks are rarer.
    #[arg(long, default_value_t = controller::INVARIANT_CHECK_SECONDS, value_name = "SECONDS",
        value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) invariant_check_seconds: u32,
    /// Writes bindings without opening them in the ledger first, to measure the cost of the ledger.
    /// A replica that is stopped in the middle of a write may then exceed the quota of a queue.
    #[arg(long, hide = true)]
    pub(crate) without_ledger: bool,
}

/// Flags of `muster check`.
#[derive(Debug, Clone, Group)]
pub(crate) struct CheckArgs {
    /// How the findings are printed.
    #[arg(long, short, value_enum, default_value = "text")]
    pub(crate) output: CheckOutput,
}

/// The format of findings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum CheckOutput {
    /// Lines for people.
    Text,
    /// One object with all findings.
    Json,
}

/// Flags of `muster install`.
#[derive(Debug, Clone, Group)]
pub(crate) struct Install {
    /// Prints what would be applied, and applies nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// The kubeconfig is that of a member which is reached through Karmada's cluster proxy: applies
    /// the rights that Muster needs there, and nothing else.
    #[arg(long)]
    pub(crate) member: bool,
    /// Who may use a queue whose CapacityPolicy does not say so: every managed namespace (open), or only
    /// namespaces and users with the verb `use` on it (closed). Written to the MusterConfig. Unset: no change;
    /// initially open.
    #[arg(long, value_name = "open|closed", conflicts_with = "member")]
    pub(crate) tenancy: Option<TenancyArg>,
    /// An account of Karmada that is exempt from the admission policies: the name of a user,
    /// `system:serviceaccount:NAMESPACE:NAME` or `group:NAME`. May be repeated. Not needed for
    /// members of the group system:masters and for accounts that are found by their names.
    #[arg(
        long = "karmada-account",
        value_name = "USER",
        conflicts_with = "member"
    )]
    pub(crate) karmada_accounts: Vec<RbacAccount>,
    /// Installs no admission policies: editors of a namespace can then exceed its quota.
    #[arg(long, conflicts_with = "member")]
    pub(crate) without_admission_policies: bool,
    /// Installs even if `muster check` finds something that blocks.
    #[arg(long)]
    pub(crate) skip_check: bool,
}

/// Flags of `muster uninstall`.
#[derive(Debug, Clone, Group)]
pub(crate) struct Uninstall {
    /// Prints each change, and makes none.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Also deletes Muster's CRDs, and with them the MusterConfig, all CapacityPolicies, GpuPools, FaultPolicies,
    /// NodeRemediations, NamespaceQueues and, unless the CRD is Volcano's own, PodGroups: the quotas of all queues
    /// are lost.
    #[arg(long, conflicts_with = "member")]
    pub(crate) delete_crds: bool,
    /// Creates no policy in place of Muster's own in managed namespaces: jobs that no other policy selects
    /// are then placed by nobody.
    #[arg(long, conflicts_with = "member")]
    pub(crate) without_successors: bool,
    /// The kubeconfig is that of a member: removes the rights that Muster has there, and the Queues and
    /// PriorityClasses that it created.
    #[arg(long)]
    pub(crate) member: bool,
}

/// Who may use a queue whose CapacityPolicy does not say so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum TenancyArg {
    /// Every managed namespace.
    Open,
    /// Only namespaces and users with the right.
    Closed,
}
