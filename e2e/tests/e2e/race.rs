//! Many jobs at once: no quota is exceeded, and all jobs succeed.

use std::time::Duration;

use e2e::harness::audit::AuditReport;
use e2e::harness::wait::eventually;

use crate::case::Case;
use crate::job::{Job, condition};
use crate::plane::MEMBERS;
use crate::story::managed_long;

/// The timeout of a crowd of jobs.
pub(crate) const CROWD: Duration = Duration::from_secs(240);

/// The quota of a crowd's queue; the nodes have more.
pub(crate) const CAPABILITY: u32 = 36;

/// Adds nodes for a crowd: 48 GPUs over the three members.
pub(crate) async fn crowd_nodes(case: &Case) -> anyhow::Result<()> {
    case.queue(CAPABILITY).await?;
    for member in MEMBERS {
        case.nodes(member, 2).await?;
    }
    Ok(())
}

/// Returns the n-th job of a crowd: kinds and sizes alternate, each runs 1 to 3 s.
pub(crate) fn member_of_crowd(case: &Case, index: u32) -> serde_json::Value {
    let sizes = [(1, 1), (2, 2), (1, 8), (3, 4), (4, 1)];
    let (pods, gpus) = sizes[index as usize % sizes.len()];
    let gang = case.short_gang(&format!("job-{index:02}"), pods, gpus, 1 + index % 3);
    match index % 2 {
        0 => gang.volcano(),
        _ => gang.batch(),
    }
}

/// Waits until all jobs have succeeded.
pub(crate) async fn all_done(case: &Case, jobs: &[Job]) -> anyhow::Result<()> {
    let groups = e2e::harness::kinds::POD_GROUP;
    eventually(CROWD, "all jobs done", async || {
        let listed = case.karmada().list(groups, Some(&case.name)).await;
        let listed = listed.map_err(|error| error.to_string())?;
        let done = |job: &&Job| {
            let name = job.binding();
            let mut own = listed
                .iter()
                .filter(|group| group["metadata"]["name"] == name);
            own.any(|group| {
                let finished = condition(group, "Finished");
                finished["status"] == "True" && finished["reason"] == "Succeeded"
            })
        };
        let left: Vec<&str> = jobs
            .iter()
            .filter(|job| !done(job))
            .map(|job| job.name.as_str())
            .collect();
        match left.is_empty() {
            true => Ok(()),
            false => Err(format!("{} left: {left:?}", left.len())),
        }
    })
    .await
}

/// Checks that no quota was exceeded, and that every job was placed once per attempt.
pub(crate) fn check(case: &Case, jobs: &[Job], report: &AuditReport) {
    assert_eq!(report.violations, Vec::<String>::new());
    assert_eq!(report.placements.len(), jobs.len(), "not all were placed");
    let peak = report.peak(&case.name);
    println!(
        "MEASURED peak_of_{}_in_{} {peak} GPUs",
        CAPABILITY, case.name
    );
    assert!(
        peak > u64::from(CAPABILITY) / 2,
        "only {peak} were ever used"
    );
}

#[test]
fn capability_is_never_passed_with_60_jobs_racing_over_3_clusters() {
    managed_long("race", async |case| {
        crowd_nodes(case).await?;
        let mut jobs = Vec::new();
        for index in 0..60 {
            jobs.push(case.submit(&member_of_crowd(case, index)).await?);
        }
        all_done(case, &jobs).await?;
        let report = case.audit(CAPABILITY.into(), &jobs)?;
        check(case, &jobs, &report);
        placed_once_unless_room_was_lost(&report);
        Ok(())
    });
}

/// A job is placed once. It is placed again only if its member had no node for it: the schedulers of the members may
/// spread small pods over all nodes, and on a busy machine these end late.
fn placed_once_unless_room_was_lost(report: &AuditReport) {
    for (job, &times) in &report.placements {
        let evictions = report.evictions.get(job).map_or(&[][..], Vec::as_slice);
        let lost = evictions.iter().all(|reason| reason == "RoomLost");
        assert!(lost, "{job} was evicted for {evictions:?}");
        assert_eq!(times as usize, evictions.len() + 1, "{job}: {evictions:?}");
        if !evictions.is_empty() {
            println!("MEASURED {job} was evicted for {evictions:?}");
        }
    }
}
