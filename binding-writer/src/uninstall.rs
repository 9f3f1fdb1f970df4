//! Leaves all bindings unmanaged, for `muster uninstall`: removes gates, records and finalizers; running
//! jobs run on.
//!
//! Use it only when no Muster process runs, which would gate the bindings again.

use crate::commit::{CommitOptions, Committer, Intent, Write, WriteFailure};
use crate::overrides::LIMIT;
use crds::karmada::ResourceBinding;
use crds::kubernetes::Namespace;
use crds::names::{ACCOUNTING_FINALIZER, ADMISSION_ANNOTATION, ADOPTED_AT_ANNOTATION};
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use runtime::{Registry, pages};
use serde_json::json;
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// Removes the adoption mark from all namespaces, so that a new installation adopts the running jobs again.
/// Returns the number of namespaces. Call it before any binding is unmanaged.
///
/// # Errors
/// Returns an error if namespaces cannot be listed, or one cannot be written.
pub async fn unmark_namespaces(client: &Client) -> anyhow::Result<usize> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let all = pages::list(&namespaces, &ListParams::default(), LIMIT).await?;
    let marked: Vec<Namespace> = all
        .items
        .into_iter()
        .filter(Namespace::is_adopted)
        .collect();
    let patch = json!({"metadata": {"annotations": {ADOPTED_AT_ANNOTATION: null}}});
    let patch = Patch::Merge(patch);
    for namespace in &marked {
        let (name, params) = (namespace.name_any(), PatchParams::default());
        let patched = namespaces.patch_metadata(&name, &params, &patch);
        match patched.await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(marked.len())
}

/// Stops managing every binding with Muster's finalizer or record, and returns their number.
///
/// # Errors
/// Returns an error if bindings cannot be listed, or one cannot be written; those before it are unmanaged.
pub async fn unmanage_all(client: &Client) -> anyhow::Result<usize> {
    let bindings: Api<ResourceBinding> = Api::all(client.clone());
    let ours: Vec<Intent> = pages::list(&bindings, &ListParams::default(), LIMIT)
        .await?
        .items
        .into_iter()
        .filter(is_marked)
        .map(|binding| Intent {
            binding: Arc::new(binding),
            write: Write::StopManaging,
        })
        .collect();
    let count = ours.len();
    let (sink, mut outcomes) = mpsc::channel(count.max(1));
    let cancel = CancellationToken::new();
    let _stop = cancel.clone().drop_guard();
    Committer::spawn(
        client.clone(),
        CommitOptions::default(),
        None,
        sink,
        &Registry::new(),
        cancel,
    )
    .submit(ours);
    for _ in 0..count {
        let Some(outcome) = outcomes.recv().await else {
            break;
        };
        match outcome.result {
            Ok(_) | Err(WriteFailure::Gone) => {}
            Err(failure) => anyhow::bail!(
                "binding {} is still managed: {failure}; run it again",
                outcome.key
            ),
        }
    }
    Ok(count)
}

fn is_marked(binding: &ResourceBinding) -> bool {
    binding
        .finalizers()
        .iter()
        .any(|finalizer| finalizer == ACCOUNTING_FINALIZER)
        || binding.annotations().contains_key(ADMISSION_ANNOTATION)
}
