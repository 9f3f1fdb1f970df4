//! Jobs that go by themselves some time after they have ended: once, and not sooner.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::ensure;
use e2e::harness::wait::eventually;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::case::{Case, SOON, brief, managed};
use crate::job::Job;

/// How long after its end a job of these tests goes.
const SECONDS: i64 = 6;

/// UIDs of the job's pods, in whatever member.
async fn pods(case: &Case, job: &Job) -> anyhow::Result<BTreeSet<String>> {
    let pods = crate::split::pods_of(case, job).await?;
    let uid = |pod: &Value| pod["metadata"]["uid"].to_string();
    Ok(pods.values().flatten().map(uid).collect())
}

/// When the last part of a job ended, as its members say, in whole seconds.
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

/// It runs once, stays for as long as it says, and then is gone.
async fn goes_once(case: &Case, name: &str, template: Value) -> anyhow::Result<()> {
    let job = case.submit(&template).await?;
    case.running(&job).await?;
    let before = pods(case, &job).await?;
    case.midway().await?;
    case.end(&job).await?;
    let end = eventually(SOON, &format!("{name} shows its end"), async || {
        let binding = case.binding(&job).await?.unwrap_or_default();
        end(&binding).ok_or_else(|| brief(&binding["status"]))
    })
    .await?;
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
    let stayed = Timestamp::now().duration_since(end);
    println!("MEASURED {name} went after {} ms", stayed.as_millis());
    ensure!(stayed.as_secs() >= SECONDS, "{name} went after {stayed:?}");
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
