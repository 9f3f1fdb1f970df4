//! Whether a process of Muster leads, by its Lease, and whether its clock agrees with the API server's.

use crate::skew;
use crate::{CheckError, CheckFinding, CheckReport};
use crds::names::{LEASE, SYSTEM_NAMESPACE};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use kube::{Api, Client};
use runtime::with_deadline;
use std::time::Duration;

const CHECK: &str = "leader";
/// Deadline of one call.
const LIMIT: Duration = Duration::from_secs(10);
/// A Lease that was renewed later than that from now has another clock. Dates have whole seconds.
const AHEAD_SECONDS: i64 = 5;

pub(crate) async fn check(client: &Client, report: &mut CheckReport) -> Result<(), CheckError> {
    let found = lease(client).await;
    report.absorb(CHECK, found)
}

async fn lease(client: &Client) -> Result<Vec<CheckFinding>, CheckError> {
    let leases: Api<Lease> = Api::namespaced(client.clone(), SYSTEM_NAMESPACE);
    let lease = with_deadline(leases.get_opt(LEASE), LIMIT).await;
    let lease = lease.map_err(CheckError::call("the Lease of the leader"))?;
    let spec = lease.and_then(|lease| lease.spec).unwrap_or_default();
    // The clock of the API server decides: that of a user's machine does not matter.
    let now = skew::date(client).await.unwrap_or_else(Timestamp::now);
    Ok(Vec::from_iter(finding(&spec, now)))
}

/// Returns what a Lease at `now` says about its holder.
pub(crate) fn finding(lease: &LeaseSpec, now: Timestamp) -> Option<CheckFinding> {
    let holder = lease.holder_identity.as_deref().unwrap_or_default();
    if holder.is_empty() || !is_fresh(lease, now) {
        let found = match holder {
            "" => format!("nothing holds the Lease {SYSTEM_NAMESPACE}/{LEASE}"),
            holder => format!("{holder} no longer renews the Lease {SYSTEM_NAMESPACE}/{LEASE}"),
        };
        return Some(CheckFinding::blocks(
            CHECK,
            found,
            "no process of Muster decides: jobs wait, and what runs goes on",
            "start `muster all`, or read its log where it runs; /readyz says what it waits for",
        ));
    }
    let ahead = lease.renew_time.as_ref()?.0.as_second() - now.as_second();
    (ahead > AHEAD_SECONDS).then(|| {
        CheckFinding::warns(
            "clock",
            format!("the clock of {holder} is {ahead} s ahead of the API server's"),
            "deadlines, times to live and the times that users see are wrong by as much",
            "synchronize the clocks (NTP) of both machines",
        )
    })
}

/// Returns true if the Lease was renewed within its duration before `now`, or after it.
#[must_use]
pub fn is_fresh(lease: &LeaseSpec, now: Timestamp) -> bool {
    let lasts = i64::from(lease.lease_duration_seconds.unwrap_or(15));
    lease
        .renew_time
        .as_ref()
        .is_some_and(|renewed| now.as_second() - renewed.0.as_second() <= lasts)
}
