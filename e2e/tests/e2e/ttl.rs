//! Jobs that go by themselves some time after they have ended: once, and not sooner.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::ensure;
use serde_json::{Value, json};

use crate::case::{Case, managed};
use crate::job::Job;

/// How long after its end a job of these tests goes.
const SECONDS: u64 = 6;

/// UIDs of the job's pods, in whatever member.
async fn pods(case: &Case, job: &Job) -> anyhow::Result<BTreeSet<String>> {
    let pods = crate::split::pods_of(case, job).await?;
    let uid = |pod: &Value| pod["metadata"]["uid"].to_string();
    Ok(pods.values().flatten().map(uid).collect())
}

/// It runs once, stays for as long as it says, and then is gone.
async fn goes_once(case: &Case, name: &str, template: Value) -> anyhow::Result<()> {
    let job = case.submit(&template).await?;
    case.running(&job).await?;
    let before = pods(case, &job).await?;
    case.midway().await?;
    case.end(&job).await?;
    case.finished(&job, "Succeeded").await?;
    let ended = tokio::time::Instant::now();
    let mut seen = before.clone();
    while case
        .template(&job)
        .await
        .map_err(anyhow::Error::msg)?
        .is_some()
    {
        seen.extend(pods(case, &job).await?);
        ensure!(
            ended.elapsed() < Duration::from_secs(60),
            "{name} is still there"
        );
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
    println!(
        "MEASURED {name} went after {} ms",
        ended.elapsed().as_millis()
    );
    ensure!(
        ended.elapsed() > Duration::from_secs(SECONDS - 3),
        "{name} went after {:?}",
        ended.elapsed()
    );
    assert_eq!(seen, before, "{name} ran again");
    case.gone(&job).await
}

pub(crate) async fn ttl(case: &Case) -> anyhow::Result<()> {
    case.queue(24).await?;
    case.nodes("member1", 1).await?;
    case.nodes("member2", 1).await?;
    let mut volcano = case.gang("volcano", 2, 1).volcano();
    volcano["spec"]["ttlSecondsAfterFinished"] = json!(SECONDS);
    let mut split = crate::split::training(case, "split", 5);
    split["spec"]["ttlSecondsAfterFinished"] = json!(SECONDS);
    let mut torch = case.gang("torch", 2, 1).pytorch();
    torch["spec"]["runPolicy"]["ttlSecondsAfterFinished"] = json!(SECONDS);
    let mut batch = case.gang("batch", 2, 1).batch();
    batch["spec"]["ttlSecondsAfterFinished"] = json!(SECONDS);
    for (name, template) in [
        ("a Volcano Job", volcano),
        ("a Volcano Job in parts", split),
        ("a PyTorchJob", torch),
        ("a batch Job", batch),
    ] {
        goes_once(case, name, template).await?;
    }
    Ok(())
}

#[test]
fn a_job_with_a_time_to_live_runs_once_and_goes_after_it() {
    managed("ttl", ttl);
}
