//! When the token of the kubeconfig expires.

use super::CheckFinding;
use crate::args::ConnectionArgs;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::Value;

/// A token that lasts shorter is reported.
const SOON_SECONDS: i64 = 24 * 3600;
const CHECK: &str = "token";

pub(super) async fn check(connection: &ConnectionArgs, now: Timestamp) -> Vec<CheckFinding> {
    let read = match &connection.kubeconfig {
        Some(path) => Kubeconfig::read_from(path),
        None => Kubeconfig::read(),
    };
    // Without a file the account of the pod is used, whose token the kubelet renews.
    let Ok(kubeconfig) = read else {
        return Vec::new();
    };
    let options = KubeConfigOptions {
        context: connection.context.clone(),
        ..KubeConfigOptions::default()
    };
    let Ok(config) = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await else {
        return Vec::new();
    };
    // A secret shows its text only when it is written as in a kubeconfig.
    let account = serde_json::to_value(&config.auth_info).unwrap_or_default();
    let token = account["token"].as_str();
    let expires = token.and_then(expiry);
    expires
        .and_then(|at| finding(at, now))
        .into_iter()
        .collect()
}

/// Returns when a JSON web token expires; `None` if it does not, or is none.
pub(super) fn expiry(token: &str) -> Option<Timestamp> {
    let claims = token.split('.').nth(1)?;
    let claims = URL_SAFE_NO_PAD.decode(claims.trim_end_matches('=')).ok()?;
    let claims: Value = serde_json::from_slice(&claims).ok()?;
    Timestamp::from_second(claims["exp"].as_i64()?).ok()
}

pub(super) fn finding(expires: Timestamp, now: Timestamp) -> Option<CheckFinding> {
    let why = "Muster loses the control plane when its token expires";
    let fix = "kubectl -n muster-system create token muster --duration 8760h, or a kubeconfig with tokenFile, which is read again";
    let left = expires.as_second() - now.as_second();
    match left {
        ..=0 => Some(CheckFinding::blocks(
            CHECK,
            format!("the token of the kubeconfig expired at {expires}"),
            why,
            fix,
        )),
        1..=SOON_SECONDS => Some(CheckFinding::warns(
            CHECK,
            format!("the token of the kubeconfig expires at {expires}"),
            why,
            fix,
        )),
        _ => None,
    }
}
