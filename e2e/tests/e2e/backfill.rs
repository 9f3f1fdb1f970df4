//! Backfill: freed capacity is reserved for a pending job, and other jobs use it only if they end
//! in time.

use e2e::harness::jobs::{self, TestGang};
use e2e::harness::kinds::BATCH_JOB;
use e2e::harness::wait::eventually;
use serde_json::json;

use crate::case::{A_WHILE, Case, SOON};
use crate::contest::SHORT;
use crate::job::Job;
use crate::story::{managed, managed_long};

const EXPECTED: &str = "muster.io/expected-duration";

/// A gang of high priority gets capacity that frees in pieces, while small jobs keep arriving.
pub(crate) async fn delayed_scheduling(case: &Case) -> anyhow::Result<()> {
    case.queue(64).await?;
    case.nodes("member1", 2).await?;
    let mut running = Vec::new();
    for index in 0..4 {
        let job = submit(case, case.gang(&format!("old-{index}"), 1, 4), "1h").await?;
        case.running(&job).await?;
        running.push(job);
    }
    let gang = TestGang {
        priority_class: Some(case.priority_class("high", 100).await?),
        ..case.gang("gang", 2, 8)
    };
    let gang = submit(case, gang, "1h").await?;
    case.waits(&gang, &["NextInLine", "WaitingForRoom"]).await?;
    let mut small = Vec::new();
    for (index, job) in running.iter().enumerate() {
        let name = format!("new-{index}");
        small.push(submit(case, case.gang(&name, 1, 4), "2h").await?);
        case.waits(&small[index], &SHORT).await?;
        if index == 1 {
            case.midway().await?;
        }
        case.end(job).await?;
        case.finished(job, "Succeeded").await?;
        if index + 1 < running.len() {
            case.stays_unplaced(&small[index], A_WHILE).await?;
        }
    }
    case.running(&gang).await?;
    for job in &small {
        assert_eq!(case.placements(job)?, 0, "{} went first", job.name);
    }
    case.end(&gang).await?;
    case.settles(&small, 4, A_WHILE).await
}

/// A gang waits for a node that is busy for two more minutes. The other node runs only jobs that
/// end by then.
pub(crate) async fn short_job_passes(case: &Case) -> anyhow::Result<()> {
    case.queue(64).await?;
    case.nodes("member1", 2).await?;
    let holder = submit(case, case.gang("holder", 1, 8), "5m").await?;
    case.running(&holder).await?;
    let gang = submit(case, case.gang("gang", 2, 8), "1h").await?;
    case.waits(&gang, &["NextInLine", "WaitingForRoom"]).await?;
    let long = submit(case, case.gang("long", 1, 8), "1h").await?;
    case.waits(&long, &SHORT).await?;
    case.stays_unplaced(&long, A_WHILE).await?;
    case.midway().await?;
    let short = submit(case, case.gang("short", 1, 8), "1m").await?;
    case.running(&short).await?;
    case.waits(&gang, &["NextInLine", "WaitingForRoom"]).await?;
    case.end(&short).await?;
    case.end(&holder).await?;
    case.running(&gang).await?;
    assert_eq!(case.placements(&long)?, 0, "the long job was placed first");
    Ok(())
}

/// Submits a job with a declared run time, since otherwise similar jobs would predict it.
async fn submit(case: &Case, gang: TestGang, lasts: &str) -> anyhow::Result<Job> {
    case.submit(&jobs::annotated(gang.volcano(), EXPECTED, lasts))
        .await
}

#[test]
fn room_that_frees_in_pieces_is_kept_for_who_waits_for_all_of_it() {
    managed_long("delayed", delayed_scheduling);
}

#[test]
fn a_short_job_passes_where_it_ends_in_time() {
    managed("backfill", short_job_passes);
}

/// The nodes that a gang waits for pull its image, and nothing of that is left when it runs.
#[test]
fn reserved_nodes_pull_the_image_of_a_waiting_gang() {
    managed("pre-pull", async |case| {
        case.queue(64).await?;
        case.capacity_policy(json!({"spec": {"placement": {"prePull": "Reserved"}}}))
            .await?;
        case.nodes("member1", 2).await?;
        let holder = submit(case, case.gang("holder", 1, 8), "5m").await?;
        case.running(&holder).await?;
        let gang = submit(case, case.gang("gang", 2, 8), "1h").await?;
        case.waits(&gang, &["NextInLine", "WaitingForRoom"]).await?;
        let member = case.plane.member("member1").await?;
        let name = format!("muster-pre-pull-{}", gang.uid());
        let pull = async || {
            let pull = member.get(BATCH_JOB, Some(&case.name), &name).await;
            pull.map_err(|error| error.to_string())
        };
        // Pods of this testbed do not end by themselves, so that these are in the way of the gang as long as can be.
        eventually(SOON, "both nodes pull its image", async || {
            let pull = pull().await?.ok_or("no Job pulls it")?;
            let (wanted, there) = (&pull["spec"]["completions"], &pull["status"]["ready"]);
            match *wanted == 2 && *there == 2 {
                true => Ok(()),
                false => Err(pull["status"].to_string()),
            }
        })
        .await?;
        case.end(&holder).await?;
        case.running(&gang).await?;
        eventually(SOON, "nothing pulls it any more", async || {
            match pull().await? {
                None => Ok(()),
                Some(pull) => Err(pull["metadata"].to_string()),
            }
        })
        .await
    });
}
