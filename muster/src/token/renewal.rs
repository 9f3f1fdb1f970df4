//! Renews the token for the control plane long before it expires.
//!
//! ```text
//! leader ─ TokenRequest for its own account (control plane) ─► Secret (host cluster) ─► kubelet ─► file ─► clients
//! ```
//!
//! The Secret is where the token comes from, so that a pod that starts later has it too. Clients and this module read
//! the file again. It never deletes or revokes a token: the previous one stays valid until it expires.

use crate::args::ConnectionArgs;
use crate::token;
use anyhow::{Context as _, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use checks::{TokenLifetime, account_of_token};
use jiff::Timestamp;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use runtime::{Leadership, with_deadline};
use serde_json::json;
use std::str::FromStr;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Time between two looks at the token.
const LOOK: Duration = Duration::from_secs(3600);
/// Pause after a failure.
const RETRY: Duration = Duration::from_secs(60);
/// Deadline of one call.
const LIMIT: Duration = Duration::from_secs(10);

/// Where in the host cluster the token is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TokenSecret {
    namespace: String,
    name: String,
    key: String,
}

/// A text names no key of a Secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not NAMESPACE/SECRET/KEY, such as muster/muster-karmada/token")]
pub(crate) struct NoTokenSecret(String);

impl FromStr for TokenSecret {
    type Err = NoTokenSecret;

    fn from_str(text: &str) -> Result<Self, NoTokenSecret> {
        match text.split('/').collect::<Vec<_>>()[..] {
            [namespace, name, key] if ![namespace, name, key].contains(&"") => Ok(Self {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
                key: key.to_owned(),
            }),
            _ => Err(NoTokenSecret(text.to_owned())),
        }
    }
}

/// Renews the token of one kubeconfig.
pub(crate) struct TokenRenewal {
    /// The kubeconfig whose token is renewed.
    pub(crate) connection: ConnectionArgs,
    pub(crate) control_plane: Client,
    /// The cluster that has the Secret.
    pub(crate) host: Client,
    pub(crate) secret: TokenSecret,
    /// The seconds that a token is to last. The API server may issue one for less.
    pub(crate) seconds: i64,
}

impl TokenRenewal {
    /// Renews the token while this process leads, until `cancel`.
    pub(crate) fn spawn(self, mut leadership: Leadership, cancel: CancellationToken) {
        // A token that was made for a shorter time is replaced at once. What the API server then issues may be
        // shorter too, so that is tried once.
        let mut may_be_short = false;
        let renew = async move {
            loop {
                let mut pause = LOOK;
                if leadership.is_leading() {
                    match self.check(may_be_short).await {
                        Ok(()) => may_be_short = true,
                        Err(error) => {
                            let error = format!("{error:#}");
                            tracing::warn!(
                                error,
                                "the token for the control plane is not renewed; trying again"
                            );
                            pause = RETRY;
                        }
                    }
                }
                leadership.changed_within(pause).await;
            }
        };
        runtime::task::spawn(cancel.run_until_cancelled_owned(renew));
    }

    /// Renews the token if that is due.
    async fn check(&self, may_be_short: bool) -> anyhow::Result<()> {
        let token = token::read(&self.connection).await?.unwrap_or_default();
        // Without a token, or with one that does not expire, there is nothing to renew.
        let Some(lifetime) = TokenLifetime::of(&token) else {
            return Ok(());
        };
        let is_due = |lifetime| is_due(lifetime, Timestamp::now(), self.seconds, may_be_short);
        if !is_due(lifetime) {
            return Ok(());
        }
        let secrets: Api<Secret> = Api::namespaced(self.host.clone(), &self.secret.namespace);
        let TokenSecret { name, key, .. } = &self.secret;
        let secret = with_deadline(secrets.get(name), LIMIT).await;
        let secret = secret.with_context(|| format!("read the Secret {name}"))?;
        let stored = secret.data.as_ref().and_then(|data| data.get(key));
        let stored = stored.with_context(|| format!("the Secret {name} has no key {key}"))?;
        let stored = TokenLifetime::of(&String::from_utf8_lossy(&stored.0));
        // The kubelet has yet to write a renewed one into the file.
        if stored.is_some_and(|stored| stored.issued > lifetime.issued && !is_due(stored)) {
            return Ok(());
        }
        let (token, expires) = self.request(&token).await?;
        let patch = json!({
            "metadata": {"resourceVersion": secret.metadata.resource_version},
            "data": {(key): STANDARD.encode(token)},
        });
        let (params, patch) = (PatchParams::default(), Patch::Merge(&patch));
        let written = with_deadline(secrets.patch(name, &params, &patch), LIMIT).await;
        written.with_context(|| format!("write the Secret {name}"))?;
        tracing::info!(%expires, secret = name, "the token for the control plane was renewed");
        Ok(())
    }

    /// Has the control plane issue a token for the account that `token` is for; returns it with its end.
    async fn request(&self, token: &str) -> anyhow::Result<(String, Timestamp)> {
        let account = account_of_token(token);
        let (namespace, name) = account.context("the token is not one of a ServiceAccount")?;
        let accounts: Api<ServiceAccount> = Api::namespaced(self.control_plane.clone(), &namespace);
        let request = TokenRequest {
            spec: TokenRequestSpec {
                expiration_seconds: Some(self.seconds),
                ..TokenRequestSpec::default()
            },
            ..TokenRequest::default()
        };
        let params = PostParams::default();
        let issued = with_deadline(
            accounts.create_token_request(&name, &params, &request),
            LIMIT,
        );
        let issued = issued.await;
        let issued = issued
            .with_context(|| format!("request a token of the ServiceAccount {namespace}/{name}"))?;
        let token = issued.status.map(|status| status.token).unwrap_or_default();
        ensure!(!token.is_empty(), "the API server issued an empty token");
        let lifetime =
            TokenLifetime::of(&token).context("the API server issued no JSON web token")?;
        Ok((token, lifetime.expires))
    }
}

/// Returns true if a token has less than two thirds of its time left, or was issued for less than `wanted` seconds by
/// far and may not be.
fn is_due(token: TokenLifetime, now: Timestamp, wanted: i64, may_be_short: bool) -> bool {
    let is_short = token.seconds() < wanted / 10 * 9;
    token.seconds_left(now) < token.seconds() / 3 * 2 || (is_short && !may_be_short)
}

#[cfg(test)]
mod tests;
