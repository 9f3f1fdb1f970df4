//! Refuses to go on while a controller or a scheduler of Muster runs. It would write again what an uninstallation
//! removes, and does not know what an installation converts.

use anyhow::{Context as _, bail};
use checks::is_fresh;
use crds::names::{LEASE, SYSTEM_NAMESPACE};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use kube::{Api, Client};
use runtime::with_deadline;
use std::time::Duration;

/// The Leases of processes that write: `muster all` or `muster controller`, and `muster scheduler`.
const LEASES: [&str; 2] = [LEASE, "muster-scheduler"];
/// Deadline of one call.
const LIMIT: Duration = Duration::from_secs(10);
/// Longer than the time between two renewals.
const RENEWED: Duration = Duration::from_secs(5);

/// Returns an error if a process holds a Lease and renews it.
pub(crate) async fn ensure_stopped(client: &Client) -> anyhow::Result<()> {
    for name in LEASES {
        let Some(before) = read(client, name).await? else {
            continue;
        };
        let Some(holder) = holder(&before) else {
            continue;
        };
        let mut runs = is_fresh(&before, Timestamp::now());
        if !runs {
            // The clocks may differ: only a Lease that does not change is abandoned.
            tokio::time::sleep(RENEWED).await;
            runs = read(client, name)
                .await?
                .is_some_and(|after| after != before);
        }
        if runs {
            bail!(
                "Muster still runs: {holder} holds Lease {SYSTEM_NAMESPACE}/{name}. Stop every process of Muster first \
                 (kubectl -n muster scale deployment muster --replicas=0, where it runs); a process that was killed holds its \
                 Lease for 15 s"
            );
        }
    }
    Ok(())
}

async fn read(client: &Client, name: &str) -> anyhow::Result<Option<LeaseSpec>> {
    let leases: Api<Lease> = Api::namespaced(client.clone(), SYSTEM_NAMESPACE);
    let lease = with_deadline(leases.get_opt(name), LIMIT)
        .await
        .with_context(|| format!("cannot read Lease {SYSTEM_NAMESPACE}/{name}"))?;
    Ok(lease.and_then(|lease| lease.spec))
}

fn holder(lease: &LeaseSpec) -> Option<&str> {
    let holder = lease.holder_identity.as_deref();
    holder.filter(|holder| !holder.is_empty())
}
