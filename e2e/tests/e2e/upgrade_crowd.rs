//! An upgrade over a crowd: jobs run, wait and end while the previous version is replaced by the current one. Each
//! of them ends once, none is placed twice, and no quota is exceeded.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::ensure;
use e2e::harness::earlier;
use e2e::harness::kinds::POD_GROUP;
use e2e::harness::muster::ProcessRole;
use e2e::harness::wait::eventually;
use serde_json::Value;

use crate::case::Case;
use crate::job::{Job, condition};
use crate::plane::MEMBERS;
use crate::upgrade::{Leads, Versions, install_first};

/// The quota of the queue in GPUs, as many jobs run at once. The nodes have more.
const BOUND: u32 = 40;
/// How long each job runs, in seconds.
const RUNS_FOR: u32 = 3;
/// The timeout for each job of the crowd: Karmada handles a few each second, on a busy machine fewer.
const EACH: Duration = Duration::from_secs(2);

/// Submits `count` jobs to the previous version, half of them before the upgrade begins and half while it goes on,
/// and waits until all have ended under the current version.
pub(crate) async fn upgraded(case: &Case, previous: &Path, count: u32) -> anyhow::Result<()> {
    let plane = case.plane;
    let first = plane
        .muster
        .earlier(previous.to_owned(), &earlier::PREVIOUS_FLAGS);
    let versions = Versions { case, first };
    let result = over(&versions, count).await;
    if result.is_err() {
        // Later stories need the plane's own version.
        plane.muster.install_again(&plane.testbed, &[]).await?;
        versions.replace(Leads::Now).await?;
    }
    result
}

async fn over(versions: &Versions<'_>, count: u32) -> anyhow::Result<()> {
    let case = versions.case;
    let plane = case.plane;
    install_first(versions).await?;
    versions.replace(Leads::First).await?;
    case.queue(BOUND).await?;
    for member in MEMBERS {
        case.nodes(member, BOUND.div_ceil(8 * 2)).await?;
    }
    let start = Instant::now();
    let half = count / 2;
    let mut jobs = case.submit_short_crowd(0..half, RUNS_FOR).await?;
    // Some have ended, some run, some wait.
    ended(case, half as usize / 5, EACH * count).await?;
    // An upgrade installs first, while the previous version leads.
    plane.muster.install_again(&plane.testbed, &[]).await?;
    let before = succeeded(case).await.map_err(anyhow::Error::msg)?;
    ensure!(
        before.len() < half as usize,
        "nothing is left to be upgraded over"
    );
    let stopped = Instant::now();
    let (submitted, replaced) = tokio::join!(
        case.submit_short_crowd(half..count, RUNS_FOR),
        versions.replace(Leads::Now)
    );
    replaced?;
    let without_leader = stopped.elapsed();
    jobs.extend(submitted?);
    ended(case, jobs.len(), EACH * count).await?;
    let after = succeeded(case).await.map_err(anyhow::Error::msg)?;
    ensure!(
        after.is_superset(&before),
        "jobs that had ended no longer say so: {:?}",
        before.difference(&after)
    );
    println!(
        "MEASURED upgrade_of_{count} {} ms, {} ms of them without a leader; {} had ended before",
        start.elapsed().as_millis(),
        without_leader.as_millis(),
        before.len()
    );
    once(case, &jobs)?;
    plane
        .muster
        .wait_leading(&plane.testbed, ProcessRole::All)
        .await
}

/// Checks with the auditor that each job was placed exactly once.
fn once(case: &Case, jobs: &[Job]) -> anyhow::Result<()> {
    let report = case.audit(BOUND.into(), jobs)?;
    ensure!(report.violations.is_empty(), "{:#?}", report.violations);
    let placed = report.placements.len();
    ensure!(
        placed == jobs.len(),
        "{placed} of {} were placed",
        jobs.len()
    );
    let mut again = report.placements.iter().filter(|(_, times)| **times != 1);
    ensure!(again.next().is_none(), "placed again: {again:?}");
    Ok(())
}

/// Returns the names of the jobs that have succeeded.
async fn succeeded(case: &Case) -> Result<BTreeSet<String>, String> {
    let groups = case.karmada().list(POD_GROUP, Some(&case.name)).await;
    let groups = groups.map_err(|error| error.to_string())?;
    let done = groups.iter().filter(|group| {
        let finished = condition(group, "Finished");
        finished["status"] == "True" && finished["reason"] == "Succeeded"
    });
    let name = |group: &Value| group["metadata"]["name"].as_str().map(str::to_owned);
    Ok(done.filter_map(name).collect())
}

async fn ended(case: &Case, count: usize, within: Duration) -> anyhow::Result<()> {
    eventually(
        within,
        &format!("{count} jobs have succeeded"),
        async || {
            let done = succeeded(case).await?.len();
            (done >= count)
                .then_some(())
                .ok_or_else(|| format!("{done}"))
        },
    )
    .await
}
