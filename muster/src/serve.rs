//! Long-running processes: which parts run, and what they share.

use crate::args::{CompatMetrics, ConnectionArgs, MetricsAuth, ProcessArgs};
use crate::token::renewal::TokenRenewal;
use crate::{token, webhook_reach};
use anyhow::{Context as _, bail};
use binding_writer::CommitOptions;
use controller::{AlertIntake, ControllerContext, ControllerOptions};
use crds::node_alert::AlertLabels;
use engine::EngineConfig;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use runtime::alerts::Routes;
use runtime::lease::ledger::LedgerOptions;
use runtime::lease::{self, LeaseOptions};
use runtime::process_metrics::ProcessMetrics;
use runtime::telemetry::OtlpOptions;
use runtime::traces::TraceSink;
use runtime::watch::WatchMetrics;
use runtime::{Health, Leadership, MetricsAccess, Registry};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// How long the process drains after one of its tasks panicked.
const AFTER_A_PANIC: std::time::Duration = std::time::Duration::from_secs(5);

/// The parts of a process.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ProcessParts {
    webhook: bool,
    controller: bool,
    scheduler: bool,
    name: &'static str,
    /// The Lease that its replicas compete for. If controller and scheduler are separate processes, each has a
    /// leader of its own.
    lease: &'static str,
}

impl ProcessParts {
    pub(crate) const ALL: Self = Self {
        webhook: true,
        controller: true,
        scheduler: true,
        name: "muster",
        lease: crds::names::LEASE,
    };
    pub(crate) const WEBHOOK: Self = Self {
        webhook: true,
        controller: false,
        scheduler: false,
        name: "muster-webhook",
        lease: "",
    };
    pub(crate) const CONTROLLER: Self = Self {
        webhook: false,
        controller: true,
        scheduler: false,
        name: "muster-controller",
        lease: crds::names::LEASE,
    };
    pub(crate) const SCHEDULER: Self = Self {
        webhook: false,
        controller: false,
        scheduler: true,
        name: "muster-scheduler",
        lease: "muster-scheduler",
    };
}

/// Runs `parts` until a signal, then drains.
pub(crate) async fn serve(
    connection: &ConnectionArgs,
    parts: ProcessParts,
    process: ProcessArgs,
) -> anyhow::Result<()> {
    let otlp = OtlpOptions {
        endpoint: process.otlp_endpoint.clone(),
        ca: process.otlp_ca.clone(),
        client_certificate: process.otlp_client_certificate.clone(),
        client_key: process.otlp_client_key.clone(),
    };
    let telemetry = runtime::telemetry::init(process.log_format, otlp, parts.name)?;
    let cancel = runtime::shutdown::on_signal()?;
    let agent = format!("{}/{}", parts.name, env!("CARGO_PKG_VERSION"));
    let client = connect(connection, &agent).await?;
    let registry = Registry::new();
    describe_process(connection, &registry, &cancel);
    let health = Health::new();
    let readers = readers(&process, &client, &agent)?;
    let alerts = AlertIntake::default();
    let more = match parts.controller {
        true => alerts_route(&process, &readers, &alerts, &registry),
        false => Routes::new(),
    };
    let (address, _probes) = runtime::health::serve(
        process.metrics_bind,
        health.clone(),
        registry.clone(),
        readers,
        more,
        cancel.clone(),
    )
    .await?;
    tracing::info!(%address, parts = parts.name, version = env!("CARGO_PKG_VERSION"), "serving");

    // The webhook runs a little longer than the rest: it must answer while the others drain.
    let mut tasks: JoinSet<anyhow::Result<&'static str>> = JoinSet::new();
    if parts.webhook {
        let options = webhook_options(&process)?;
        let (registry, health) = (registry.clone(), health.clone());
        let (connection, agent, cancel) = (connection.clone(), agent.clone(), cancel.clone());
        // On threads and with a client of its own: requests of users must not delay the rest.
        let serving = webhook::run_apart(async move {
            let client = connect(&connection, &agent).await?;
            webhook::run(client, options, &registry, &health, cancel).await
        });
        tasks.spawn(async move {
            serving.await.context("webhook")?;
            Ok("webhook")
        });
    }
    if parts.controller || parts.scheduler {
        let renewal = token_renewal(connection, &process, &client, &agent).await?;
        let shared = ProcessShared {
            client,
            renewal,
            registry,
            health,
            traces: telemetry.traces(),
            alerts,
        };
        spawn_leader(&mut tasks, parts, &process, shared, &cancel);
    }
    drain(tasks, &cancel).await
}

async fn connect(connection: &ConnectionArgs, agent: &str) -> anyhow::Result<kube::Client> {
    let ConnectionArgs {
        kubeconfig,
        context,
    } = connection;
    runtime::connect(kubeconfig.as_deref(), context.as_deref(), agent).await
}

/// Exports what is true of every process, whatever its parts are.
fn describe_process(connection: &ConnectionArgs, registry: &Registry, cancel: &CancellationToken) {
    let builds: Family<[(&str, &str); 1], Gauge> = registry.register(
        "build_info",
        "1, with the version of the process as its label",
        Family::default(),
    );
    let version = [("version", env!("CARGO_PKG_VERSION"))];
    builds.get_or_create(&version).set(1);
    registry.register_unprefixed(ProcessMetrics);
    token::follow(connection.clone(), registry, cancel.clone());
}

/// Returns what renews the token of the kubeconfig, if a flag asks for it.
async fn token_renewal(
    connection: &ConnectionArgs,
    process: &ProcessArgs,
    control_plane: &kube::Client,
    agent: &str,
) -> anyhow::Result<Option<TokenRenewal>> {
    let Some(secret) = process.renew_token.clone() else {
        return Ok(None);
    };
    let host = match &process.host_kubeconfig {
        Some(path) => Some(runtime::connect(Some(path), None, agent).await?),
        None => runtime::client::of_own_cluster(agent)?,
    };
    let host = host.context(
        "--renew-token needs the token of the pod's account (automountServiceAccountToken), or --host-kubeconfig",
    )?;
    Ok(Some(TokenRenewal {
        connection: connection.clone(),
        control_plane: control_plane.clone(),
        host,
        secret,
        seconds: i64::from(process.token_hours) * 3600,
    }))
}

/// Returns who may read the metrics. The cluster in which Muster runs as a pod decides, because it is the one
/// that gives Prometheus its token; outside of a pod the control plane does.
fn readers(
    process: &ProcessArgs,
    control_plane: &kube::Client,
    agent: &str,
) -> anyhow::Result<MetricsAccess> {
    let loopback = process.metrics_bind.ip().is_loopback();
    if loopback || process.metrics_auth == MetricsAuth::None {
        return Ok(MetricsAccess::Anyone);
    }
    let own = runtime::client::of_own_cluster(agent)?;
    let decides = match &own {
        Some(_) => "the cluster of this pod",
        None => "the control plane",
    };
    tracing::info!(decides, "the metrics need a token");
    let client = own.unwrap_or_else(|| control_plane.clone());
    Ok(MetricsAccess::reviewed_by(client))
}

/// Returns the route that takes alerts. The API server that decides who may read the metrics decides who may post
/// them; beyond loopback there is no route without its decision, because alerts take nodes out of use.
fn alerts_route(
    process: &ProcessArgs,
    readers: &MetricsAccess,
    alerts: &AlertIntake,
    registry: &Registry,
) -> Routes {
    let posters = match readers {
        MetricsAccess::Anyone if process.metrics_bind.ip().is_loopback() => MetricsAccess::Anyone,
        MetricsAccess::Anyone => return Routes::new(),
        MetricsAccess::Reviewed(reviewer) => reviewer.of_url(runtime::alerts::PATH, "post"),
    };
    let labels = AlertLabels {
        cluster: process.alerts_cluster_label.clone(),
        node: process.alerts_node_label.clone(),
    };
    let alerts = alerts.clone();
    let take = std::sync::Arc::new(move |posted| alerts.take(posted));
    runtime::alerts::router(labels, posters, take, registry)
}

/// What the parts of a process share.
struct ProcessShared {
    client: kube::Client,
    renewal: Option<TokenRenewal>,
    registry: Registry,
    health: Health,
    traces: TraceSink,
    alerts: AlertIntake,
}

/// Starts the parts that only one replica may run.
fn spawn_leader(
    tasks: &mut JoinSet<anyhow::Result<&'static str>>,
    parts: ProcessParts,
    process: &ProcessArgs,
    shared: ProcessShared,
    cancel: &CancellationToken,
) {
    let ProcessShared {
        client,
        renewal,
        registry,
        health,
        traces,
        alerts,
    } = shared;
    let identity = identity(process);
    let ledger = LedgerOptions::beside(parts.lease, &identity);
    let lease_options = LeaseOptions {
        name: parts.lease.to_owned(),
        ..LeaseOptions::new(identity)
    };
    let (leadership, lease) =
        lease::spawn(client.clone(), lease_options, &registry, cancel.clone());
    tasks.spawn(async move {
        lease.await?;
        Ok("lease")
    });
    if let Some(renewal) = renewal {
        renewal.spawn(leadership.clone(), cancel.clone());
    }
    let context = ControllerContext {
        client,
        health,
        watches: WatchMetrics::new(&registry),
        registry,
        leadership,
    };
    let options = ControllerOptions {
        ledger: (!process.tuning.without_ledger).then_some(ledger),
        traces,
        alerts,
        ..options(process)
    };
    let cancel = cancel.clone();
    if parts.controller {
        let (client, leadership) = (context.client.clone(), context.leadership.clone());
        webhook_reach::follow(client, leadership, &context.registry, cancel.clone());
        tasks.spawn(async move {
            controller::run(context, options, parts.scheduler, cancel).await;
            Ok("controller")
        });
    } else {
        tasks.spawn(async move {
            run_scheduler(context, options, cancel).await;
            Ok("scheduler")
        });
    }
}

async fn run_scheduler(
    context: ControllerContext,
    options: ControllerOptions,
    cancel: CancellationToken,
) {
    let leadership: Leadership = context.leadership;
    let members = members::MembersOptions {
        registry: context.registry.clone(),
        watch_metrics: context.watches.clone(),
        ..options.members
    };
    let process = scheduler::process::SchedulerProcessOptions {
        members,
        commit: options.commit,
        ledger: options.ledger,
    };
    scheduler::process::run(
        context.client,
        process,
        &context.health,
        &context.registry,
        leadership,
        cancel,
    )
    .await;
}

/// Waits for every part; the first failure ends the others.
async fn drain(
    mut tasks: JoinSet<anyhow::Result<&'static str>>,
    cancel: &CancellationToken,
) -> anyhow::Result<()> {
    let mut first_error = None;
    loop {
        let ended = tokio::select! {
            ended = tasks.join_next() => ended,
            () = runtime::task::panicked() => {
                cancel.cancel();
                // Its work will not be done here: another replica leads as soon as this process ends.
                let drained = async { while tasks.join_next().await.is_some() {} };
                let _ = tokio::time::timeout(AFTER_A_PANIC, drained).await;
                bail!("a task panicked; see the log");
            }
        };
        let Some(ended) = ended else {
            break;
        };
        match ended.map_err(anyhow::Error::from).and_then(|result| result) {
            Ok(part) => {
                tracing::info!(part, "ended");
                if !cancel.is_cancelled() {
                    first_error.get_or_insert_with(|| anyhow::anyhow!("{part} ended by itself"));
                }
            }
            Err(error) => {
                tracing::error!(error = format!("{error:#}"), "a part failed");
                first_error.get_or_insert(error);
            }
        }
        cancel.cancel();
    }
    first_error.map_or(Ok(()), Err)
}

fn options(process: &ProcessArgs) -> ControllerOptions {
    ControllerOptions {
        engine: EngineConfig {
            backoff_base_ms: i64::from(process.tuning.backoff_seconds) * 1_000,
            recovery_deadline_ms: Some(controller::live::RECOVERY_DEADLINE_MS),
            ..EngineConfig::default()
        },
        commit: CommitOptions {
            in_flight: process.tuning.writes_in_flight,
            ..CommitOptions::default()
        },
        override_grace: std::time::Duration::from_secs(
            process.tuning.override_grace_seconds.into(),
        ),
        pods_end_within: std::time::Duration::from_secs(
            process.tuning.pods_end_within_seconds.into(),
        ),
        members: members::MembersOptions {
            uncharged_pods: process.uncharged_pods.clone(),
            ..members::MembersOptions::default()
        },
        invariant_checks_every: std::time::Duration::from_secs(
            process.tuning.invariant_check_seconds.into(),
        ),
        notices: process.notices.clone(),
        volcano_metrics: process.compat_metrics == Some(CompatMetrics::Volcano),
        without_admission_policies: process.without_admission_policies,
        ..ControllerOptions::default()
    }
}

fn webhook_options(process: &ProcessArgs) -> anyhow::Result<webhook::WebhookOptions> {
    let flags = &process.webhook;
    let target = match &flags.webhook_url {
        Some(url) => webhook::WebhookTarget::Url(url.clone()),
        None => match flags.webhook_service.split_once('/') {
            Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() => {
                webhook::WebhookTarget::Service {
                    namespace: namespace.to_owned(),
                    name: name.to_owned(),
                    port: 443,
                }
            }
            _ => bail!(
                "--webhook-service {:?} is not NAMESPACE/NAME",
                flags.webhook_service
            ),
        },
    };
    Ok(webhook::WebhookOptions {
        bind: flags.webhook_bind,
        target,
        register: flags.register,
        limits: webhook::load::RequestLimits::default(),
    })
}

/// Unique for every process, also on one pod or host: two processes with the same identity would both lead.
fn identity(process: &ProcessArgs) -> String {
    let name = process.identity.clone();
    let host = || std::env::var("HOSTNAME").unwrap_or_else(|_| "localhost".to_owned());
    runtime::lease::identity(&name.unwrap_or_else(host))
}

#[cfg(test)]
mod tests;
