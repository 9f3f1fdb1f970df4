//! How long the token of a kubeconfig is valid, and whether that is over soon.

use crate::CheckFinding;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use serde_json::Value;

/// A token that lasts shorter is reported, if less than half of its lifetime is left: tokens that are renewed every day
/// never last longer.
const SOON_SECONDS: i64 = 14 * 24 * 3600;
const CHECK: &str = "token";

/// The time for which a token is valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenLifetime {
    /// When it was issued; the epoch if it does not say.
    pub issued: Timestamp,
    /// When it expires.
    pub expires: Timestamp,
}

impl TokenLifetime {
    /// Reads a JSON web token; `None` if it is none, or does not expire.
    #[must_use]
    pub fn of(token: &str) -> Option<Self> {
        let claims = claims(token)?;
        let at = |claim: &str| Timestamp::from_second(claims[claim].as_i64()?).ok();
        Some(Self {
            issued: at("iat").unwrap_or(Timestamp::UNIX_EPOCH),
            expires: at("exp")?,
        })
    }

    /// Returns the seconds from its issue to its end.
    #[must_use]
    pub fn seconds(&self) -> i64 {
        self.expires.as_second() - self.issued.as_second()
    }

    /// Returns the seconds that are left at `now`; negative if it has expired.
    #[must_use]
    pub fn seconds_left(&self, now: Timestamp) -> i64 {
        self.expires.as_second() - now.as_second()
    }
}

/// Returns namespace and name of the service account that a JSON web token is for; `None` if it is for another.
#[must_use]
pub fn account_of_token(token: &str) -> Option<(String, String)> {
    let claims = claims(token)?;
    let account = claims["sub"]
        .as_str()?
        .strip_prefix("system:serviceaccount:")?;
    let (namespace, name) = account.split_once(':')?;
    Some((namespace.to_owned(), name.to_owned()))
}

fn claims(token: &str) -> Option<Value> {
    let claims = token.trim().split('.').nth(1)?;
    let claims = URL_SAFE_NO_PAD.decode(claims.trim_end_matches('=')).ok()?;
    serde_json::from_slice(&claims).ok()
}

pub(crate) fn finding(token: TokenLifetime, now: Timestamp) -> Option<CheckFinding> {
    let why = "Muster loses the control plane when its token expires";
    let fix = "kubectl -n muster-system create token muster --duration 8760h, into the file that the kubeconfig names as \
               tokenFile: it is read again. With --renew-token the leader does so itself; its log says what keeps it";
    let (expires, left) = (token.expires, token.seconds_left(now));
    match left {
        ..=0 => Some(CheckFinding::blocks(
            CHECK,
            format!("the token of the kubeconfig expired at {expires}"),
            why,
            fix,
        )),
        1..=SOON_SECONDS if left < token.seconds() / 2 => Some(CheckFinding::warns(
            CHECK,
            format!("the token of the kubeconfig expires at {expires}"),
            why,
            fix,
        )),
        _ => None,
    }
}
