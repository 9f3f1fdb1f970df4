//! Muster killed at any moment: same end, nothing lost, nothing doubled, no bound passed.

use std::time::Duration;

use e2e::harness::kinds::POD_GROUP;
use e2e::harness::muster::Part;
use e2e::harness::wait::eventually;
use e2e::testbed::MemberProcess;
use serde_json::Value;

use crate::case::{A_WHILE, Case};
use crate::job::Job;
use crate::plane::SPARES;
use crate::race::{CAPABILITY, all_done, check, crowd_nodes, member_of_crowd};
use crate::story::{killed_with_spare, managed_alone};

/// The member that is away.
const AWAY: &str = SPARES[1];

/// How long a member that was away may keep what was deleted meanwhile: Karmada tries again with
/// growing pauses.
pub(crate) const CLEANED: Duration = Duration::from_secs(180);

/// Submits a crowd and kills Muster with `pauses` between, each time starting it again.
pub(crate) async fn crowd_with_kills(
    case: &Case,
    crowd: u32,
    pauses: &[Duration],
) -> anyhow::Result<()> {
    crowd_nodes(case).await?;
    let submit = async {
        let mut jobs = Vec::new();
        for index in 0..crowd {
            jobs.push(submit_somehow(case, index).await?);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        anyhow::Ok(jobs)
    };
    let (jobs, killed) = tokio::join!(submit, kill_again_and_again(case, pauses));
    killed?;
    let jobs = jobs?;
    all_done(case, &jobs).await?;
    let report = case.audit(CAPABILITY.into(), &jobs)?;
    check(case, &jobs, &report);
    Ok(())
}

/// While Muster is away its webhook refuses what it should look at; a user tries again.
async fn submit_somehow(case: &Case, index: u32) -> anyhow::Result<Job> {
    let template = member_of_crowd(case, index);
    let minute = Duration::from_secs(60);
    eventually(minute, &format!("job {index} taken"), async || {
        case.submit(&template)
            .await
            .map_err(|error| format!("{error:#}"))
    })
    .await
}

/// Kills Muster after each pause, always one that leads. The first takes over as in production, once
/// the Lease of the killed process has passed; the others at once.
async fn kill_again_and_again(case: &Case, pauses: &[Duration]) -> anyhow::Result<()> {
    let plane = case.plane;
    for (index, &pause) in pauses.iter().enumerate() {
        tokio::time::sleep(pause).await;
        plane.ensure_healthy().await?;
        plane.muster.wait_leading(&plane.testbed, Part::All).await?;
        match index {
            0 => plane.muster.crash(&plane.testbed, Part::All)?,
            _ => plane.muster.kill(&plane.testbed, Part::All).await?,
        }
        let start = std::time::Instant::now();
        plane.muster.start(&plane.testbed, Part::All).await?;
        let took = start.elapsed();
        println!("MEASURED leads_after_kill {} ms", took.as_millis());
    }
    Ok(())
}

#[test]
fn kill_9_at_any_time_loses_nothing_and_doubles_nothing() {
    managed_alone("kill", async |case| {
        let pauses = [2_700, 900].map(Duration::from_millis);
        crowd_with_kills(case, 60, &pauses).await
    });
}

#[test]
fn a_charge_stays_until_the_works_are_gone_though_the_member_is_away() {
    killed_with_spare(AWAY, "away", async |case| {
        let testbed = &case.plane.testbed;
        case.queue(8).await?;
        case.nodes(AWAY, 1).await?;
        let job = case.submit(&case.gang("lost", 1, 8).volcano()).await?;
        case.running(&job).await?;
        case.nodes("member1", 1).await?;
        testbed.stop_member_apiserver(AWAY)?;
        let outcome = while_away(case, &job).await;
        bring_back(case, AWAY).await?;
        let waiter = outcome?;
        eventually(
            CLEANED,
            "quota back once the member is back",
            async || match case.binding(&waiter).await? {
                Some(binding) if crate::job::is_placed(&binding) => Ok(()),
                other => Err(format!(
                    "{:?}",
                    other.map(|binding| binding["spec"].to_string())
                )),
            },
        )
        .await?;
        case.gone(&job).await?;
        case.finished(&waiter, "Succeeded").await?;
        let report = case.audit(8, [&job, &waiter])?;
        assert_eq!(report.violations, Vec::<String>::new());
        Ok(())
    });
}

/// Brings a member's API server back, and its Volcano with it. The informers of Volcano's processes
/// come back one by one, pausing for up to half a minute, and what changes meanwhile they may never
/// act on: a job that is applied then can stay Pending in the member for ever. Muster would take it
/// back after its start deadline; tests that follow here need not wait for that.
pub(crate) async fn bring_back(case: &Case, member: &str) -> anyhow::Result<()> {
    let testbed = &case.plane.testbed;
    testbed.start_member_apiserver(member).await?;
    for process in [
        MemberProcess::VolcanoControllers,
        MemberProcess::VolcanoScheduler,
    ] {
        testbed.restart(&process.of(member)).await?;
    }
    Ok(())
}

/// The job is deleted and Muster killed while its member cannot be reached. What the dead process
/// said of the waiter is removed, so that what is read afterwards is the new one's word.
async fn while_away(case: &Case, job: &Job) -> anyhow::Result<Job> {
    case.delete(job).await?;
    let waiter = case
        .submit(&case.short_gang("waiter", 1, 8, 1).volcano())
        .await?;
    let reasons = ["WaitingForQuota", "Reserved"];
    case.waits(&waiter, &reasons).await?;
    case.midway().await?;
    // The new process leads: a charge that it forgot would let the waiter start at once.
    let (namespace, name) = (Some(case.name.as_str()), waiter.binding());
    case.karmada().delete(POD_GROUP, namespace, &name).await?;
    case.waits(&waiter, &reasons).await?;
    case.stays_unplaced(&waiter, A_WHILE).await?;
    case.waits(&waiter, &reasons).await?;
    let deleted = |binding: &Value| !binding["metadata"]["deletionTimestamp"].is_null();
    case.binding_when(job, "kept until its Works are gone", deleted)
        .await?;
    Ok(waiter)
}
