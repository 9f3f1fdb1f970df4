//! Webhook, controller and scheduler as separate processes, with the same guarantees.

use crate::case::Case;
use crate::elastic_parts::grows_in_both;
use crate::race::{CAPABILITY, all_done, check, crowd_nodes, member_of_crowd};
use crate::split::{ranks_are_whole, training};
use crate::story::managed_separately;

#[test]
fn separate_processes_keep_the_same_bounds_and_finish_all_jobs() {
    managed_separately("separate", crowd);
}

#[test]
fn separate_processes_resize_a_gang_in_its_clusters() {
    managed_separately("separateelastic", grows_in_both);
}

#[test]
fn separate_processes_have_pods_found_by_services() {
    managed_separately("separateserve", crate::services::pytorch);
}

async fn crowd(case: &Case) -> anyhow::Result<()> {
    crowd_nodes(case).await?;
    in_parts(case).await?;
    let mut jobs = Vec::new();
    for index in 0..30 {
        jobs.push(case.submit(&member_of_crowd(case, index)).await?);
    }
    all_done(case, &jobs).await?;
    let report = case.audit(CAPABILITY.into(), &jobs)?;
    check(case, &jobs, &report);
    Ok(())
}

/// Runs a gang that does not fit in a single cluster.
async fn in_parts(case: &Case) -> anyhow::Result<()> {
    let job = case.submit(&training(case, "train", 8)).await?;
    case.running(&job).await?;
    ranks_are_whole(case, &job, 9).await?;
    case.end(&job).await?;
    case.finished(&job, "Succeeded").await?;
    case.delete(&job).await?;
    case.gone(&job).await
}
