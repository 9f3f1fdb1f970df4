//! Child queues, which share the capability of their parent by what each deserves.

use serde_json::json;

use crate::case::{A_WHILE, Case};
use crate::contest::SHORT;
use crate::job::Job;
use crate::plane::MEMBERS;
use crate::story::managed;

/// GPUs of each job; six jobs fill the three nodes.
const GPUS: u32 = 4;

/// Two queues share a parent whose capability is 20 of the 24 GPUs of three members.
pub(crate) async fn sharing_by_what_is_deserved(case: &Case) -> anyhow::Result<()> {
    case.parent_queue(json!({"capability": {"nvidia.com/gpu": 20}}))
        .await?;
    let child = |gpus: u32| json!({"parent": case.name, "deserved": {"nvidia.com/gpu": gpus}});
    let large = case.queue_of("large", child(12)).await?;
    let small = case.queue_of("small", child(8)).await?;
    let lost = case.gang_in(&case.name, "lost", 1, GPUS).batch();
    let lost = case.submit(&lost).await?;
    case.waits(&lost, &["QueueNotLeaf"]).await?;

    // All jobs wait while there are no nodes. Then each queue gets what it deserves, and the parent
    // stays within its capability, although four GPUs stay free.
    let (of_large, of_small) = (five(case, &large).await?, five(case, &small).await?);
    for member in MEMBERS {
        case.nodes(member, 1).await?;
    }
    case.midway().await?;
    case.settles(&of_large, 3, A_WHILE).await?;
    case.settles(&of_small, 2, A_WHILE).await?;
    case.shows_gpus(&large, "allocated", 12).await?;
    case.shows_gpus(&large, "deserved", 12).await?;
    case.shows_gpus(&small, "allocated", 8).await?;
    case.shows_gpus(&case.name, "allocated", 20).await?;

    // One queue borrows what the other does not use.
    let released = case.released(&of_large).await.map_err(anyhow::Error::msg)?;
    let stays = released[0];
    for job in of_large.iter().filter(|job| job.name != stays.name) {
        case.delete(job).await?;
    }
    case.settles(&of_small, 4, A_WHILE).await?;
    case.shows_gpus(&small, "borrowed", 8).await?;
    case.shows_gpus(&large, "lent", 8).await?;
    case.shows_gpus(&case.name, "allocated", 20).await?;
    let released = case.released(&of_small).await.map_err(anyhow::Error::msg)?;
    let waits = |job: &&Job| released.iter().all(|other| other.name != job.name);
    for job in of_small.iter().filter(waits) {
        case.waits(job, &SHORT).await?;
    }
    let report = case.audit(u64::MAX, of_large.iter().chain(&of_small))?;
    assert_eq!(report.violations, Vec::<String>::new());
    Ok(())
}

/// Submits five jobs to a queue, each of which waits at first.
async fn five(case: &Case, queue: &str) -> anyhow::Result<Vec<Job>> {
    let mut jobs = Vec::new();
    for index in 0..5 {
        let name = format!("{}-{index}", queue.rsplit('-').next().unwrap_or_default());
        let job = case
            .submit(&case.gang_in(queue, &name, 1, GPUS).batch())
            .await?;
        case.gated(&job).await?;
        jobs.push(job);
    }
    Ok(jobs)
}

#[test]
fn queues_share_three_members_by_what_they_deserve() {
    managed("hierarchy", sharing_by_what_is_deserved);
}
