//! `muster uninstall`: hands every job to Karmada, and removes what `muster install` and the controller wrote.
//!
//! ```text
//! webhooks, admission policies ─► namespaces ─► overrides of waiting jobs ─► bindings
//!     ─► propagation policies ─► scheduler names ─► queues, PodGroups, NamespaceQueues
//!     ─► interpreters, RBAC, muster-system ─► CRDs
//! ```
//!
//! The order matters. Nothing gates a new job once the webhooks are gone. Placed bindings are closed for
//! Karmada's scheduler before it may see them, because it places a job without replicas again at every
//! event. A waiting job loses the overrides of its earlier attempts before another scheduler may place it.
//!
//! Each step looks for what is still there, so that a second run finishes the work of one that was stopped.

mod bindings;
mod copies;
mod objects;
mod overrides;
mod policies;
#[cfg(test)]
mod tests;

use crate::args::{ConnectionArgs, Uninstall};
use crate::install;
use anyhow::ensure;
#[cfg(test)]
use kube::Client;
use objects::Remover;

/// Uninstalls Muster from a control plane, or its rights from a member.
pub(crate) async fn uninstall(
    connection: &ConnectionArgs,
    options: &Uninstall,
) -> anyhow::Result<()> {
    let client = install::connect(connection).await?;
    let remover = Remover::new(client, options.dry_run);
    let removed = match options.member {
        true => from_member(&remover).await,
        false => from_control_plane(&remover, options).await,
    };
    removed?;
    let count = remover.count();
    match (options.dry_run, count) {
        (true, count) => println!("{count} changes, none of which was made: this is a dry run"),
        (false, 0) => println!("nothing was left to do"),
        (false, count) => println!("{count} changes"),
    }
    Ok(())
}

async fn from_control_plane(remover: &Remover, options: &Uninstall) -> anyhow::Result<()> {
    crate::leases::ensure_stopped(remover.client()).await?;
    ungate(remover).await?;
    let kept = bindings::hand_over(remover).await?;
    policies::replace_all(remover, !options.without_successors).await?;
    bindings::rename_scheduler(remover).await?;
    objects::release_queues(remover).await?;
    objects::remove_views(remover).await?;
    objects::remove_pre_pulls(remover).await?;
    objects::remove_installed(remover, &kept.kinds()).await?;
    match options.delete_crds {
        true => objects::remove_crds(remover).await?,
        false => println!(
            "CRDs and their objects stay (MusterConfig, CapacityPolicies, GpuPools, FaultPolicies, Queues, PodGroups); --delete-crds deletes them"
        ),
    }
    kept.tell();
    Ok(())
}

/// Removes what gates jobs and refuses requests.
async fn ungate(remover: &Remover) -> anyhow::Result<()> {
    objects::remove_registrations(remover).await?;
    objects::unmark_namespaces(remover).await
}

/// Removes the rights of a member that is reached by proxy, and the queues and classes that Muster created. Those in
/// use stay.
async fn from_member(remover: &Remover) -> anyhow::Result<()> {
    let kept = copies::remove(remover).await?;
    for manifest in install::IN_MEMBERS.iter().rev() {
        objects::remove_manifest(remover, manifest, &[]).await?;
    }
    ensure!(
        kept.is_empty() || remover.is_dry(),
        "{} changes; jobs still use {}: when they have ended, run the command again to remove that too",
        remover.count(),
        kept.join(", ")
    );
    kept.iter()
        .for_each(|name| println!("{name} stays: jobs still use it"));
    Ok(())
}

/// A client for the tests of this folder.
#[cfg(test)]
fn remover(client: Client) -> Remover {
    Remover::new(client, false)
}
