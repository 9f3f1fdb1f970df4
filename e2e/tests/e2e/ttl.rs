//! Jobs with a time to live after their end: each is deleted once, and not earlier.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Error, ensure};
use e2e::harness::wait::eventually;
use futures::future::try_join_all;
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::case::{Case, SOON, brief};
use crate::job::Job;
use crate::story::managed;

/// The time to live of these tests' jobs after their end. A test must see the end first, which
/// takes seconds to arrive from a member on a busy machine.
pub(crate) const SECONDS: i64 = 30;

/// Returns the UIDs of the job's pods in all members.
async fn pods(case: &Case, job: &Job) -> anyhow::Result<BTreeSet<String>> {
    let pods = crate::split::pods_of(case, job).await?;
    let uid = |pod: &Value| pod["metadata"]["uid"].to_string();
    Ok(pods.values().flatten().map(uid).collect())
}

/// Returns when the last part of a job ended, by its members, in whole seconds.
fn end(binding: &Value) -> Option<Timestamp> {
    let parts = binding["status"]["aggregatedStatus"].as_array()?;
    let ends = parts.iter().map(|part| {
        let (status, state) = (&part["status"], &part["status"]["state"]);
        let volcano = (state["phase"] == "Completed").then(|| &state["lastTransitionTime"]);
        let time = volcano.unwrap_or(&status["completionTime"]).as_str()?;
        time.parse().ok()
    });
    ends.collect::<Option<Vec<Timestamp>>>()?.into_iter().max()
}

/// A running job.
struct Running {
    name: &'static str,
    job: Job,
    pods: BTreeSet<String>,
}

/// Checks that the job shows its end, stays for its time to live without running again, and then is
/// gone.
async fn goes_once(case: &Case, Running { name, job, pods }: &Running) -> anyhow::Result<()> {
    let end = eventually(SOON, &format!("{name} shows its end"), async || {
        let binding = case.binding(job).await?.unwrap_or_default();
        end(&binding).ok_or_else(|| brief(&binding["status"]))
    })
    .await?;
    case.finished(job, "Succeeded").await?;
    let ended = Instant::now();
    while case.template(job).await.map_err(Error::msg)?.is_some() {
        let again = &self::pods(case, job).await? - pods;
        ensure!(again.is_empty(), "{name} ran again: {again:?}");
        let waited = ended.elapsed();
        ensure!(waited < SOON, "{name} is still there");
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
    let stayed = Timestamp::now().duration_since(end);
    println!("MEASURED {name} went after {} ms", stayed.as_millis());
    ensure!(stayed.as_secs() >= SECONDS, "{name} went after {stayed:?}");
    case.gone(job).await
}

pub(crate) async fn ttl(case: &Case) -> anyhow::Result<()> {
    case.queue(24).await?;
    case.nodes("member1", 1).await?;
    case.nodes("member2", 1).await?;
    let mut split = crate::split::training(case, "split", 4);
    split["spec"]["ttlSecondsAfterFinished"] = json!(SECONDS);
    let mut volcano = case.gang("volcano", 2, 1).volcano();
    volcano["spec"]["ttlSecondsAfterFinished"] = json!(SECONDS);
    let mut torch = case.gang("torch", 2, 1).pytorch();
    torch["spec"]["runPolicy"]["ttlSecondsAfterFinished"] = json!(SECONDS);
    let mut batch = case.gang("batch", 2, 1).batch();
    batch["spec"]["ttlSecondsAfterFinished"] = json!(SECONDS);
    let mut all = Vec::new();
    for (name, template) in [
        ("a Volcano Job in parts", split),
        ("a Volcano Job", volcano),
        ("a PyTorchJob", torch),
        ("a batch Job", batch),
    ] {
        let job = case.submit(&template).await?;
        case.running(&job).await?;
        let pods = pods(case, &job).await?;
        all.push(Running { name, job, pods });
    }
    let parts = crate::split::pods_of(case, &all[0].job).await?;
    assert_eq!(parts.len(), 2, "clusters of the job in parts");
    case.midway().await?;
    for Running { job, .. } in &all {
        case.end(job).await?;
    }
    try_join_all(all.iter().map(|running| goes_once(case, running))).await?;
    Ok(())
}

#[test]
fn a_job_with_a_time_to_live_runs_once_and_goes_after_it() {
    managed("ttl", ttl);
}
