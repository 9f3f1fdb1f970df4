//! The shell around [`super::plan`]: the Secret, and the receivers of its content.

use super::{Action, IssueError, Keyring, Lifetimes, carry_out, plan};
use crds::names::SYSTEM_NAMESPACE;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use runtime::client::{CallError, CallFault};
use runtime::with_deadline;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Name of the Secret, in [`SYSTEM_NAMESPACE`].
pub const SECRET: &str = "muster-webhook-tls";
/// The key of the whole keyring; `tls.crt`, `tls.key` and `ca.crt` repeat what is in use, for people and
/// tools.
const KEYRING: &str = "keyring.json";
/// Deadline of one call.
const CALL_LIMIT: Duration = Duration::from_secs(10);
/// How often the Secret is read, since another replica may have changed it. Far below
/// [`Lifetimes::overlap`].
const POLL: SignedDuration = SignedDuration::from_secs(60);
/// Pause after a failure.
const RETRY: Duration = Duration::from_secs(2);
/// Least time between two checks.
const LEAST_PAUSE: Duration = Duration::from_millis(100);

/// Why the Secret could not be updated.
#[derive(Debug, thiserror::Error)]
pub enum KeeperError {
    /// The call failed.
    #[error("Secret {SYSTEM_NAMESPACE}/{SECRET}: {0}")]
    Call(#[from] CallError),
    /// A certificate cannot be created.
    #[error(transparent)]
    Issue(#[from] IssueError),
    /// The keyring cannot be serialized; possible by type only.
    #[error("the keyring cannot be serialized: {0}")]
    Serialize(#[from] serde_json::Error),
}

/// Maintains the Secret.
pub struct CertKeeper {
    client: Client,
    secrets: Api<Secret>,
    names: BTreeSet<String>,
    lifetimes: Lifetimes,
}

impl CertKeeper {
    /// Creates the keeper of a webhook that is reached by `names` (DNS names and addresses).
    #[must_use]
    pub fn new(client: Client, names: BTreeSet<String>, lifetimes: Lifetimes) -> Self {
        Self {
            secrets: Api::namespaced(client.clone(), SYSTEM_NAMESPACE),
            client,
            names,
            lifetimes,
        }
    }

    /// Does what is due at `now`. Returns the keyring and when the next step is due.
    ///
    /// # Errors
    /// Returns an error if the Secret cannot be read or written, or a certificate cannot be created.
    pub async fn reconcile(&self, now: Timestamp) -> Result<(Keyring, Timestamp), KeeperError> {
        loop {
            let stored = self.stored().await?;
            let keyring = stored.as_ref().and_then(read);
            let action = plan(now, keyring.as_ref(), &self.names, &self.lifetimes);
            if let (Action::Keep { until }, Some(keyring)) = (&action, keyring.clone()) {
                return Ok((keyring, *until));
            }
            let step = carry_out(&action, keyring.as_ref(), now, &self.names, &self.lifetimes)?;
            if let Some(next) = step {
                tracing::info!(?action, "certificates of the webhook change");
                self.write(stored.as_ref(), &next).await?;
            }
        }
    }

    /// Reconciles for ever and sends every change to `keyrings`. Failures are retried; the certificates in use
    /// stay in use meanwhile.
    pub async fn run(self, keyrings: watch::Sender<Option<Keyring>>, cancel: CancellationToken) {
        let keep = async {
            loop {
                let now = Timestamp::now();
                let pause = match self.reconcile(now).await {
                    Ok((keyring, until)) => {
                        keyrings.send_if_modified(|known| {
                            let changed = known.as_ref() != Some(&keyring);
                            *known = Some(keyring);
                            changed
                        });
                        pause(now, until)
                    }
                    Err(error) => {
                        tracing::warn!(%error, "certificates of the webhook are not up to date");
                        RETRY
                    }
                };
                tokio::time::sleep(pause).await;
            }
        };
        let _: Option<()> = cancel.run_until_cancelled(keep).await;
    }

    async fn stored(&self) -> Result<Option<Secret>, CallError> {
        match with_deadline(self.secrets.get(SECRET), CALL_LIMIT).await {
            Err(error) if error.fault() == CallFault::NotFound => Ok(None),
            other => other.map(Some),
        }
    }

    /// Writes `next` if the Secret has not changed since it was read. A conflict is no error: the caller reads
    /// again.
    async fn write(&self, stored: Option<&Secret>, next: &Keyring) -> Result<(), KeeperError> {
        let data = data(next)?;
        let written = match stored {
            None => self.create(data).await,
            Some(secret) => {
                let version = &secret.metadata.resource_version;
                let patch = json!({"metadata": {"resourceVersion": version}, "data": data});
                let params = PatchParams::default();
                let patch = Patch::Merge(&patch);
                with_deadline(self.secrets.patch(SECRET, &params, &patch), CALL_LIMIT)
                    .await
                    .map(drop)
            }
        };
        match written {
            Err(error) if error.fault() == CallFault::Conflict => Ok(()),
            other => other.map_err(KeeperError::from),
        }
    }

    async fn create(&self, data: BTreeMap<String, ByteString>) -> Result<(), CallError> {
        let secret = Secret {
            metadata: named(SECRET),
            type_: Some("kubernetes.io/tls".to_owned()),
            data: Some(data),
            ..Secret::default()
        };
        let params = PostParams::default();
        let create = || with_deadline(self.secrets.create(&params, &secret), CALL_LIMIT);
        match create().await {
            Err(error) if error.fault() == CallFault::NotFound => {
                self.create_namespace().await?;
                create().await.map(drop)
            }
            other => other.map(drop),
        }
    }

    /// For a control plane where nothing was installed yet.
    async fn create_namespace(&self) -> Result<(), CallError> {
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        let namespace = Namespace {
            metadata: named(SYSTEM_NAMESPACE),
            ..Namespace::default()
        };
        let params = PostParams::default();
        match with_deadline(namespaces.create(&params, &namespace), CALL_LIMIT).await {
            Err(error) if error.fault() == CallFault::Conflict => Ok(()),
            other => other.map(drop),
        }
    }
}

fn named(name: &str) -> kube::core::ObjectMeta {
    kube::core::ObjectMeta {
        name: Some(name.to_owned()),
        ..Default::default()
    }
}

/// Returns the content of the Secret; invalid content counts as none.
fn read(secret: &Secret) -> Option<Keyring> {
    let bytes = secret.data.as_ref()?.get(KEYRING)?;
    serde_json::from_slice(&bytes.0)
        .inspect_err(
            |error| tracing::warn!(%error, "{SECRET}[{KEYRING}] cannot be read and is replaced"),
        )
        .ok()
}

fn data(keyring: &Keyring) -> Result<BTreeMap<String, ByteString>, serde_json::Error> {
    let text = |text: &str| ByteString(text.as_bytes().to_vec());
    Ok(BTreeMap::from([
        (KEYRING.to_owned(), ByteString(serde_json::to_vec(keyring)?)),
        ("tls.crt".to_owned(), text(&keyring.serving.certificate)),
        ("tls.key".to_owned(), text(&keyring.serving.key.0)),
        ("ca.crt".to_owned(), text(&keyring.bundle())),
    ]))
}

/// Returns the pause until `until`, at most [`POLL`].
fn pause(now: Timestamp, until: Timestamp) -> Duration {
    let due = until.duration_since(now).min(POLL);
    Duration::try_from(due)
        .unwrap_or(LEAST_PAUSE)
        .max(LEAST_PAUSE)
}
