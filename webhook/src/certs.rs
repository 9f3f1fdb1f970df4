//! The webhook's certificates: an own CA and a serving certificate, in one Secret.
//!
//! ```text
//! Secret ──► Keyring ──► plan(now) ──► Action ──► issue ──► Secret (compare-and-swap)
//!                                                              └──► Material: server, caBundle
//! ```
//!
//! A certificate is replaced at 2/3 of its life. A new CA is in the bundle for some time before
//! it signs, so that every API server trusts it when the server begins to use it; an old CA
//! stays in the bundle until the last certificate that it signed has expired. Any replica may
//! carry out what is due: the Secret's resourceVersion lets one of them win.

mod issue;
mod keeper;

pub use issue::{IssueError, carry_out};
pub use keeper::{CertKeeper, KeeperError, SECRET};

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;

/// How long certificates live.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lifetimes {
    /// Of a CA.
    pub authority: SignedDuration,
    /// Of a serving certificate; never longer than what is left of its CA.
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

/// A private key, PEM. It does not show itself in logs.
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
    /// Its name among the others.
    pub id: String,
    /// Its certificate, PEM.
    pub certificate: String,
    /// Its key; forgotten when it has been succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<PrivateKey>,
    /// When it was made, and so came into the bundle.
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
    /// PEM.
    pub certificate: String,
    /// Its key.
    pub key: PrivateKey,
    /// DNS names and addresses that it is for.
    pub names: BTreeSet<String>,
    /// The [`Authority::id`] of its CA.
    pub issuer: String,
    /// When it was issued.
    pub since: Timestamp,
    /// When it expires.
    pub until: Timestamp,
}

/// All that the Secret holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Keyring {
    /// The CAs that are trusted, oldest first. The last may be one that does not sign yet.
    pub authorities: Vec<Authority>,
    /// What the server shows.
    pub serving: ServingCertificate,
}

impl Keyring {
    /// The PEM bundle that API servers have to trust.
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

    /// The CA that is to follow, if there is one.
    fn successor(&self) -> Option<&Authority> {
        self.authorities
            .last()
            .filter(|authority| authority.id != self.serving.issuer)
    }
}

/// What is due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Nothing before this time.
    Keep {
        /// When to look again.
        until: Timestamp,
    },
    /// Start over: a CA, and a serving certificate signed by it.
    Found,
    /// Put a new CA into the bundle.
    AddAuthority,
    /// Issue a serving certificate, signed by the CA with this id.
    Issue {
        /// The CA.
        by: String,
    },
    /// Take CAs out of the bundle that nothing valid is signed by any more.
    Drop {
        /// Their ids.
        ids: Vec<String>,
    },
}

/// What is due at `now` for a webhook that is reached by `names`. One step at a time: after it
/// is carried out, ask again.
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

/// `time + duration`, at most the end of time.
fn after(time: Timestamp, duration: SignedDuration) -> Timestamp {
    time.saturating_add(duration).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests;
