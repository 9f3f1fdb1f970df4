//! When the token of a kubeconfig is no longer valid.

use crate::CheckFinding;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use serde_json::Value;

/// A token that lasts shorter is reported.
const SOON_SECONDS: i64 = 24 * 3600;
const CHECK: &str = "token";

/// Returns when a JSON web token expires; `None` if it does not, or is none.
#[must_use]
pub fn expiry(token: &str) -> Option<Timestamp> {
    let claims = token.split('.').nth(1)?;
    let claims = URL_SAFE_NO_PAD.decode(claims.trim_end_matches('=')).ok()?;
    let claims: Value = serde_json::from_slice(&claims).ok()?;
    Timestamp::from_second(claims["exp"].as_i64()?).ok()
}

pub(crate) fn finding(expires: Timestamp, now: Timestamp) -> Option<CheckFinding> {
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
