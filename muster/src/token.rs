//! When the token of the kubeconfig expires, and the metric that says so.

use crate::args::ConnectionArgs;
use jiff::Timestamp;
use kube::config::{KubeConfigOptions, Kubeconfig};
use prometheus_client::metrics::gauge::Gauge;
use runtime::Registry;
use std::sync::atomic::AtomicU64;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Time between two looks at the token, which may be renewed in its file.
const LOOK: Duration = Duration::from_secs(60);

/// Exports when the token of the kubeconfig expires, until `cancel`; infinity if it does not.
pub(crate) fn follow(connection: ConnectionArgs, registry: &Registry, cancel: CancellationToken) {
    let gauge: Gauge<f64, AtomicU64> = registry.register(
        "control_plane_token_expiry_timestamp_seconds",
        "When the token for the control plane expires",
        Gauge::default(),
    );
    gauge.set(f64::INFINITY);
    let look = async move {
        loop {
            let expires = expires(&connection).await;
            // For display only.
            #[allow(clippy::cast_precision_loss)]
            gauge.set(expires.map_or(f64::INFINITY, |at| at.as_second() as f64));
            tokio::time::sleep(LOOK).await;
        }
    };
    runtime::task::spawn(cancel.run_until_cancelled_owned(look));
}

/// Returns when the token of the kubeconfig expires; `None` if it does not, or there is none.
pub(crate) async fn expires(connection: &ConnectionArgs) -> Option<Timestamp> {
    let read = match &connection.kubeconfig {
        Some(path) => Kubeconfig::read_from(path),
        None => Kubeconfig::read(),
    };
    // Without a file the account of the pod is used, whose token the kubelet renews.
    let options = KubeConfigOptions {
        context: connection.context.clone(),
        ..KubeConfigOptions::default()
    };
    let config = kube::Config::from_custom_kubeconfig(read.ok()?, &options).await;
    // A secret shows its text only when it is written as in a kubeconfig.
    let account = serde_json::to_value(&config.ok()?.auth_info).ok()?;
    // As in clients, the token comes before its file.
    let token = match (account["token"].as_str(), account["tokenFile"].as_str()) {
        (Some(token), _) => token.to_owned(),
        (None, Some(file)) => std::fs::read_to_string(file).ok()?,
        (None, None) => return None,
    };
    checks::token_expiry(token.trim())
}
