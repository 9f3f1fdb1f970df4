//! When the token of the kubeconfig is no longer valid: a finding of `muster check`.

use super::CheckFinding;
use crate::args::ConnectionArgs;
use crate::token;
use jiff::Timestamp;

/// A token that lasts shorter is reported.
const SOON_SECONDS: i64 = 24 * 3600;
const CHECK: &str = "token";

pub(super) async fn check(connection: &ConnectionArgs, now: Timestamp) -> Vec<CheckFinding> {
    let expires = token::expires(connection).await;
    expires
        .and_then(|at| finding(at, now))
        .into_iter()
        .collect()
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
