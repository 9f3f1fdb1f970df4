//! The token of the kubeconfig: when it expires, the metrics that say so, and its renewal.

pub(crate) mod renewal;

use crate::args::ConnectionArgs;
use anyhow::Context as _;
use checks::TokenLifetime;
use jiff::Timestamp;
use kube::config::{KubeConfigOptions, Kubeconfig};
use prometheus_client::metrics::gauge::Gauge;
use runtime::Registry;
use std::sync::atomic::AtomicU64;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Time between two looks at the token, which may be renewed in its file.
const LOOK: Duration = Duration::from_secs(60);

/// Exports when the token of the kubeconfig was issued and expires, until `cancel`; infinity if it does not.
pub(crate) fn follow(connection: ConnectionArgs, registry: &Registry, cancel: CancellationToken) {
    let gauge = |name: &str, help: &str| -> Gauge<f64, AtomicU64> {
        registry.register(name, help, Gauge::default())
    };
    let issued = gauge(
        "control_plane_token_issued_timestamp_seconds",
        "When the token for the control plane was issued",
    );
    let expiry = gauge(
        "control_plane_token_expiry_timestamp_seconds",
        "When the token for the control plane expires",
    );
    expiry.set(f64::INFINITY);
    let look = async move {
        loop {
            let token = lifetime(&connection).await;
            issued.set(token.map_or(0.0, |token| seconds(token.issued)));
            expiry.set(token.map_or(f64::INFINITY, |token| seconds(token.expires)));
            tokio::time::sleep(LOOK).await;
        }
    };
    runtime::task::spawn(cancel.run_until_cancelled_owned(look));
}

/// For display only.
#[allow(clippy::cast_precision_loss)]
fn seconds(at: Timestamp) -> f64 {
    at.as_second() as f64
}

/// Returns how long the token of the kubeconfig is valid; `None` if it does not expire, or there is none.
pub(crate) async fn lifetime(connection: &ConnectionArgs) -> Option<TokenLifetime> {
    let token = read(connection).await.ok()??;
    TokenLifetime::of(&token)
}

/// Returns the token of the kubeconfig; `None` if it has none.
///
/// # Errors
/// Returns an error if the kubeconfig, or the file of the token, cannot be read.
async fn read(connection: &ConnectionArgs) -> anyhow::Result<Option<String>> {
    let read = match &connection.kubeconfig {
        Some(path) => Kubeconfig::read_from(path),
        None => Kubeconfig::read(),
    };
    // Without a file the account of the pod is used, whose token the kubelet renews.
    let options = KubeConfigOptions {
        context: connection.context.clone(),
        ..KubeConfigOptions::default()
    };
    let config = kube::Config::from_custom_kubeconfig(read?, &options).await?;
    // A secret shows its text only when it is written as in a kubeconfig.
    let account = serde_json::to_value(&config.auth_info)?;
    // As in clients, the token comes before its file.
    match (account["token"].as_str(), account["tokenFile"].as_str()) {
        (Some(token), _) => Ok(Some(token.to_owned())),
        (None, Some(file)) => {
            let token = std::fs::read_to_string(file).with_context(|| format!("read {file}"))?;
            Ok(Some(token))
        }
        (None, None) => Ok(None),
    }
}
