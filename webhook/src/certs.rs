//! The webhook's certificates: a CA of its own and a serving certificate, in one Secret.
//!
//! ```text
//! Secret ──► Keyring ──► plan(now) ──► Action ──► issue ──► Secret (compare-and-swap)
//!                                                              └──► Material: server, caBundle
//! ```
//!
//! A certificate is replaced after 2/3 of its lifetime. A new CA is in the bundle for some time before it
//! signs, so that every API server trusts it when the server starts to use it. An old CA stays in the
//! bundle until the last certificate that it signed has expired. Any replica may carry out what is due: the
//! Secret's resourceVersion lets one of them win.

mod issue;
mod keeper;

pub use issue::{IssueError, carry_out};
pub use keeper::{CertKeeper, KeeperError, SECRET};

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;

/// Lifetimes of certificates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lifetimes {
    /// Lifetime of a CA.
    pub authority: SignedDuration,
    /// Lifetime of a serving certificate; at most the rest of its CA's lifetime.
    pub serving: SignedDuration,
    /// How long a new CA is in the bundle before it signs.
    pub overlap: SignedDuration,
}

impl Default for Lifetimes {
    fn default() -> Self {
        Self {
            authority: SignedDuration::from_hours(24 * 365),
            serving: SignedDuration::from_hours(24 * 90),
            overlap: SignedDuration::from_mins(10),
        }
    }
}

/// A private key, in PEM. It is not printed in logs.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PrivateKey(pub String);

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(private key)")
    }
}

/// A CA.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Authority {
    /// Its unique name.
    pub id: String,
    /// Its certificate, in PEM.
    pub certificate: String,
    /// Its key; dropped once it has a successor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<PrivateKey>,
    /// When it was created and added to the bundle.
    pub since: Timestamp,
    /// When it expires.
    pub until: Timestamp,
    /// When the last certificate that it signed expires.
    pub signed_until: Timestamp,
}

/// A serving certificate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServingCertificate {
    /// In PEM.
    pub certificate: String,
    /// Its key.
    pub key: PrivateKey,
    /// DNS names and addresses that it is valid for.
    pub names: BTreeSet<String>,
    /// The [`Authority::id`] of its CA.
    pub issuer: String,
    /// When it was issued.
    pub since: Timestamp,
    /// When it expires.
    pub until: Timestamp,
}

/// Content of the Secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Keyring {
    /// The trusted CAs, oldest first. The last one may not sign yet.
    pub authorities: Vec<Authority>,
    /// The certificate that the server uses.
    pub serving: ServingCertificate,
}

impl Keyring {
    /// Returns the PEM bundle that API servers have to trust.
    #[must_use]
    pub fn bundle(&self) -> String {
        self.authorities
            .iter()
            .map(|authority| authority.certificate.trim_end().to_owned() + "\n")
            .collect()
    }

    fn signing(&self) -> Option<&Authority> {
        self.authorities
            .iter()
            .find(|authority| authority.id == self.serving.issuer)
    }

    /// Returns the next CA, if there is one.
    fn successor(&self) -> Option<&Authority> {
        self.authorities
            .last()
            .filter(|authority| authority.id != self.serving.issuer)
    }
}

/// What is due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Nothing until this time.
    Keep {
        /// When to check again.
        until: Timestamp,
    },
    /// Create a CA and a serving certificate signed by it.
    Found,
    /// Add a new CA to the bundle.
    AddAuthority,
    /// Issue a serving certificate, signed by the CA with this id.
    Issue {
        /// Id of the CA.
        by: String,
    },
    /// Remove CAs from the bundle that signed no valid certificate.
    Drop {
        /// Their ids.
        ids: Vec<String>,
    },
}

/// Returns what is due at `now` for a webhook that is reached by `names`. This is one step: after carrying
/// it out, call again.
#[must_use]
pub fn plan(
    now: Timestamp,
    keyring: Option<&Keyring>,
    names: &BTreeSet<String>,
    lifetimes: &Lifetimes,
) -> Action {
    let Some(keyring) = keyring else {
        return Action::Found;
    };
    let able = |authority: &&Authority| authority.key.is_some() && now < authority.until;
    let successor = keyring.successor().filter(able);
    let Some(signing) = keyring.signing().filter(able).or(successor) else {
        return Action::Found;
    };
    let succeeds_at = successor.map(|next| after(next.since, lifetimes.overlap));
    if let Some(next) = successor
        .filter(|next| succeeds_at.is_some_and(|time| time <= now) || next.id == signing.id)
    {
        return Action::Issue {
            by: next.id.clone(),
        };
    }
    let serving = &keyring.serving;
    let renewal = two_thirds(serving.since, serving.until);
    if renewal <= now || !names.is_subset(&serving.names) {
        return Action::Issue {
            by: signing.id.clone(),
        };
    }
    let succession = two_thirds(signing.since, signing.until);
    if successor.is_none() && succession <= now {
        return Action::AddAuthority;
    }
    let spent = |authority: &&Authority| {
        let in_use = authority.id == signing.id || Some(authority) == successor.as_ref();
        !in_use
    };
    let old: Vec<&Authority> = keyring.authorities.iter().filter(spent).collect();
    let ids: Vec<String> = old
        .iter()
        .filter(|authority| authority.signed_until <= now)
        .map(|authority| authority.id.clone())
        .collect();
    if !ids.is_empty() {
        return Action::Drop { ids };
    }
    let until = old
        .iter()
        .map(|authority| authority.signed_until)
        .chain([renewal, succeeds_at.unwrap_or(succession)])
        .min()
        .unwrap_or(renewal);
    Action::Keep { until }
}

fn two_thirds(since: Timestamp, until: Timestamp) -> Timestamp {
    after(since, until.duration_since(since) / 3 * 2)
}

/// Returns `time + duration`, limited to the largest time.
fn after(time: Timestamp, duration: SignedDuration) -> Timestamp {
    time.saturating_add(duration).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests;
