//! The release of quota: after a job finished although its object remains, failed, or was deleted.

use std::time::{Duration, Instant};

use e2e::harness::wait::eventually;
use serde_json::json;

use crate::case::{Case, SOON};
use crate::job::Job;
use crate::story::managed;

/// The timeout for freed quota: far more than expected (about 2 s), far less than any resync.
const FREE_WITHIN: Duration = Duration::from_secs(20);

/// Submits a job that uses the whole quota until it is made to end, and one that waits for it.
async fn holder_and_waiter(case: &Case) -> anyhow::Result<(Job, Job)> {
    case.queue(8).await?;
    // There are nodes for both: only the quota holds the second job.
    case.nodes("member1", 2).await?;
    let holder = case.submit(&case.gang("holder", 1, 8).volcano()).await?;
    case.running(&holder).await?;
    let waiter = case
        .submit(&case.short_gang("waiter", 1, 8, 1).volcano())
        .await?;
    case.waits(&waiter, &["WaitingForQuota", "NextInLine"])
        .await?;
    let raised = format!("the capability of queue {} raised", case.name);
    case.pod_group_when(&waiter, "learns what would help", |group| {
        let helps = group["status"]["federation"]["helps"].to_string();
        helps.contains(&raised) && helps.contains("nvidia.com/gpu 16")
    })
    .await?;
    Ok((holder, waiter))
}

/// Waits until the pods in the member ended, then measures until the waiting job is placed.
async fn measure_from_end(
    case: &Case,
    waiter: &Job,
    name: &str,
    phase: &str,
) -> anyhow::Result<()> {
    let member = case.plane.member("member1").await?;
    eventually(SOON, "the holder's pods ended", async || {
        let pods = member
            .list(e2e::harness::kinds::POD, Some(&case.name))
            .await;
        let pods = pods.map_err(|error| error.to_string())?;
        // Volcano removes the pods of an aborted job.
        let left = pods.iter().filter(|pod| pod["status"]["phase"] != phase);
        match left.count() {
            0 => Ok(()),
            count => Err(format!("{count} pods are not {phase}")),
        }
    })
    .await?;
    measure_until_placed(case, waiter, name).await
}

async fn measure_until_placed(case: &Case, waiter: &Job, name: &str) -> anyhow::Result<()> {
    let start = Instant::now();
    case.placed(waiter).await?;
    let took = start.elapsed();
    println!("MEASURED {name} {} ms", took.as_millis());
    assert!(took < FREE_WITHIN, "quota came back only after {took:?}");
    case.finished(waiter, "Succeeded").await
}

#[test]
fn quota_is_back_after_a_job_finished_though_its_object_stays() {
    managed("finish", async |case| {
        let (holder, waiter) = holder_and_waiter(case).await?;
        case.end(&holder).await?;
        measure_from_end(case, &waiter, "quota_back_after_finish", "Succeeded").await?;
        case.finished(&holder, "Succeeded").await?;
        assert!(case.template(&holder).await.unwrap().is_some());
        Ok(())
    });
}

#[test]
fn quota_is_back_after_a_job_failed() {
    managed("failure", async |case| {
        let (holder, waiter) = holder_and_waiter(case).await?;
        case.fail(&holder).await?;
        measure_from_end(case, &waiter, "quota_back_after_failure", "Failed").await?;
        case.finished(&holder, "Failed").await
    });
}

#[test]
fn quota_is_back_after_a_job_was_aborted() {
    managed("abort", async |case| {
        case.queue(8).await?;
        case.nodes("member1", 2).await?;
        let mut template = case.gang("holder", 1, 8).volcano();
        template["spec"]["policies"] = json!([{"event": "PodFailed", "action": "AbortJob"}]);
        let holder = case.submit(&template).await?;
        case.running(&holder).await?;
        let waiter = case
            .submit(&case.short_gang("waiter", 1, 8, 1).volcano())
            .await?;
        case.waits(&waiter, &["WaitingForQuota", "NextInLine"])
            .await?;
        case.fail(&holder).await?;
        case.finished(&waiter, "Succeeded").await
    });
}

#[test]
fn quota_is_back_after_a_job_was_deleted() {
    managed("deletion", async |case| {
        let (holder, waiter) = holder_and_waiter(case).await?;
        case.delete(&holder).await?;
        measure_until_placed(case, &waiter, "quota_back_after_deletion").await?;
        case.gone(&holder).await
    });
}

#[test]
fn a_job_suspended_by_its_owner_gives_its_quota_back() {
    managed("suspend", async |case| {
        case.queue(8).await?;
        case.nodes("member1", 2).await?;
        let holder = case.submit(&case.gang("holder", 2, 4).batch()).await?;
        case.running(&holder).await?;
        let waiter = case
            .submit(&case.short_gang("waiter", 1, 8, 1).volcano())
            .await?;
        case.waits(&waiter, &["WaitingForQuota", "NextInLine"])
            .await?;
        let suspend = json!({"spec": {"suspend": true}});
        let namespace = Some(case.name.as_str());
        case.karmada()
            .merge(holder.kind, namespace, &holder.name, &suspend)
            .await?;
        case.finished(&waiter, "Succeeded").await
    });
}
