//! Starts a leader's term, so that no write that an earlier leader still has in flight takes effect during
//! it.
//!
//! ```text
//! the Lease ─► the ledger taken (compare-and-swap) ─► each binding, and each OverridePolicy,
//!                                                        │   that is open in it is written once
//!            decisions ◄── the mirror shows the newest version that any leader wrote
//! ```
//!
//! Why this is enough: the old leader opens a write in its ledger after it has read the version that guards
//! it. If it opened the write before the ledger was taken, the new leader finds it here and writes the
//! binding once. Either the old write came first, and the new mirror shows it before anything is decided,
//! or its version is outdated and it fails. After the ledger was taken, the old leader can open nothing
//! more. The argument needs no clock: the old leader may stop anywhere, for any time.
//!
//! Policies that determine the size of a job are guarded in the same way (`overrides/guarded.rs`). They are
//! not mirrored: the Works show their effect.
//!
//! Never allowed here: a return before everything that is open was written or is gone.

use crate::overrides::guarded;
use crds::karmada::ResourceBinding;
use crds::names::FENCE_ANNOTATION;
use futures::StreamExt;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client};
use runtime::client::{CallError, CallFault, with_deadline};
use runtime::lease::TermOver;
use runtime::lease::ledger::{Ledger, LedgerSubject};
use runtime::{Leadership, Term};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// Deadline of one call.
const LIMIT: Duration = Duration::from_secs(10);
/// Most writes at a time.
const AT_A_TIME: usize = 16;
/// Pause before a retry.
const PAUSE: Duration = Duration::from_millis(200);
/// How long a binding that cannot be written is tried. This is longer than any call of an earlier leader
/// can live in an API server.
const GIVE_UP_AFTER: Duration = Duration::from_secs(75);
/// Objects on one page of a list.
const PAGE: u32 = 500;

/// How long a mirror may take to show what leaders wrote, before a fresh read shows what still exists.
const CATCH_UP: Duration = Duration::from_secs(1);

/// The message to the owner of a mirror of bindings that the term has begun.
#[derive(Debug, Clone)]
pub struct Lead {
    /// The version that the mirror has to show before anything is decided.
    pub version: u64,
    caught_up: Arc<AtomicBool>,
}

impl Lead {
    /// Creates the message for a term that has begun, with the `version` to wait for.
    #[must_use]
    pub fn new(version: u64) -> Self {
        Self {
            version,
            caught_up: Arc::default(),
        }
    }

    /// Reports that the mirror shows the version.
    pub fn caught_up(&self) {
        self.caught_up.store(true, Ordering::Release);
    }
}

/// Waits until this process leads, begins `term`, tells `sink`, and returns when the term is over: another
/// process leads or has taken the ledger.
pub async fn hold<M>(
    client: &Client,
    leadership: &Leadership,
    term: &Term,
    sink: &mpsc::Sender<M>,
    wrap: impl Fn(Lead) -> M,
) {
    let mut leadership = leadership.clone();
    let Ok(version) = begin(client, &mut leadership, term).await else {
        return tokio::time::sleep(PAUSE).await;
    };
    let mut lead = Lead::new(version);
    let catching_up = async {
        while sink.send(wrap(lead.clone())).await.is_ok() {
            tokio::time::sleep(CATCH_UP).await;
            if lead.caught_up.load(Ordering::Acquire) {
                break;
            }
            // The object of that version may have been deleted, with only the deletion to be seen.
            match newest(client).await {
                Ok(newest) => lead.version = newest,
                Err(error) => tracing::warn!(error = error.message(), "bindings cannot be listed"),
            }
        }
        std::future::pending::<()>().await;
    };
    let lost = async {
        match &term.ledger {
            Some(ledger) => ledger.lost().await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        () = catching_up => {}
        () = leadership.changed() => {}
        () = lost => {}
    }
    tracing::warn!("this replica no longer leads; its assumptions are dropped");
}

/// Waits until this process leads and begins `term` of `leadership`: takes the ledger and makes the writes
/// fail that an earlier leader has in flight. Returns the version that a mirror of the bindings has to show
/// before anything may be decided.
///
/// # Errors
/// Returns an error if the term ends before that.
pub(crate) async fn begin(
    client: &Client,
    leadership: &mut Leadership,
    term: &Term,
) -> Result<u64, TermOver> {
    leadership.leading().await;
    let epoch = leadership.epoch().ok_or(TermOver)?;
    term.leadership.begin(epoch);
    let Some(ledger) = &term.ledger else {
        return Ok(0);
    };
    let found = ledger.take(&term.leadership).await?;
    let writer = term.client(client);
    let fences = found.open.into_iter().map(|(uid, subject)| {
        let (writer, leadership) = (writer.clone(), term.leadership.clone());
        fence(
            writer,
            leadership,
            ledger.clone(),
            (uid, subject),
            found.epoch,
        )
    });
    let mut seen = found.newest.unwrap_or_default();
    let mut fences = futures::stream::iter(fences).buffer_unordered(AT_A_TIME);
    while let Some(version) = fences.next().await {
        seen = seen.max(version?);
    }
    if found.newest.is_some() {
        return Ok(seen);
    }
    // The previous leader kept no ledger.
    loop {
        if term.leadership.permit().is_none() {
            return Err(TermOver);
        }
        match newest(client).await {
            Ok(newest) => return Ok(seen.max(newest)),
            Err(error) => tracing::warn!(error = error.message(), "bindings cannot be listed"),
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Writes a binding or a policy so that its version changes. Returns the version of a binding, or 0 if it
/// is gone.
async fn fence(
    client: Client,
    leadership: Leadership,
    ledger: Ledger,
    (uid, subject): (String, LedgerSubject),
    epoch: u64,
) -> Result<u64, TermOver> {
    let began = Instant::now();
    loop {
        if leadership.permit().is_none() {
            return Err(TermOver);
        }
        let fenced = match guarded::is_key(&uid) {
            true => guarded::fence(&client, &subject, epoch)
                .await
                .map(|()| None),
            false => fence_binding(&client, &subject, epoch).await,
        };
        let error = match fenced {
            Ok(version) => {
                ledger.close(&uid, version);
                return Ok(version.unwrap_or_default());
            }
            Err(error) => error,
        };
        if error.fault() == CallFault::NotFound {
            ledger.close(&uid, None);
            return Ok(0);
        }
        let (namespace, name, why) = (&subject.namespace, &subject.name, error.message());
        if error.fault() == CallFault::Refused && began.elapsed() >= GIVE_UP_AFTER {
            tracing::error!(namespace, name, why, "cannot be fenced; continuing without");
            return Ok(0);
        }
        tracing::warn!(namespace, name, why, "cannot be fenced yet; trying again");
        tokio::time::sleep(PAUSE).await;
    }
}

/// Writes the binding `subject` and returns its new version.
async fn fence_binding(
    client: &Client,
    subject: &LedgerSubject,
    epoch: u64,
) -> Result<Option<u64>, CallError> {
    let api: Api<ResourceBinding> = Api::namespaced(client.clone(), &subject.namespace);
    let patch = Patch::Merge(json!({
        "metadata": {"annotations": {FENCE_ANNOTATION: epoch.to_string()}},
    }));
    let params = PatchParams {
        field_manager: Some("muster".to_owned()),
        ..PatchParams::default()
    };
    let call = api.patch_metadata(&subject.name, &params, &patch);
    let written = with_deadline(call, LIMIT).await?;
    let version = written.metadata.resource_version;
    Ok(version.and_then(|version| version.parse().ok()))
}

/// Returns the newest version of any existing binding, by a fresh read.
///
/// # Errors
/// Returns an error if bindings cannot be listed.
#[expect(
    clippy::disallowed_methods,
    reason = "of one page, which is dropped before the next"
)]
async fn newest(client: &Client) -> Result<u64, CallError> {
    let api: Api<ResourceBinding> = Api::all(client.clone());
    let mut newest = 0;
    let mut params = ListParams::default().limit(PAGE);
    loop {
        let page = with_deadline(api.list_metadata(&params), LIMIT).await?;
        let versions = page.items.iter().filter_map(|binding| {
            let version = binding.metadata.resource_version.as_deref()?;
            version.parse().ok()
        });
        newest = versions.fold(newest, u64::max);
        params.continue_token = page.metadata.continue_.filter(|token| !token.is_empty());
        if params.continue_token.is_none() {
            return Ok(newest);
        }
    }
}
