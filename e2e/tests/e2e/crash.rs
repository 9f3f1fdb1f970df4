//! Kills of Muster at any moment: the outcome is the same, nothing is lost or doubled, and no quota
//! is exceeded.

use std::time::Duration;

use anyhow::Context as _;
use e2e::harness::kinds::{BINDING, POD_GROUP};
use e2e::harness::muster::ProcessRole;
use e2e::harness::wait::eventually;
use serde_json::{Value, json};
use testbed::MemberProcess;

use crate::case::{A_WHILE, Case};
use crate::job::{Job, condition, record};
use crate::plane::{Change, SPARES};
use crate::race::{CAPABILITY, all_done, check, crowd_nodes, member_of_crowd};
use crate::story::{killed_with_spare, managed_alone, managed_and_killed};

/// The member that is unreachable.
const AWAY: &str = SPARES[1];

/// The timeout until a member that was unreachable has deleted objects: Karmada retries with
/// growing intervals.
pub(crate) const CLEANED: Duration = Duration::from_secs(180);

/// Submits many jobs and kills Muster after each of `pauses`, restarting it each time.
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

/// Submits a job with retries, since the webhook is unavailable while Muster is down.
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

/// Kills the leading Muster after each pause. The first successor takes over as in production, when
/// the Lease of the killed process has expired; the others take over at once.
async fn kill_again_and_again(case: &Case, pauses: &[Duration]) -> anyhow::Result<()> {
    let plane = case.plane;
    for (index, &pause) in pauses.iter().enumerate() {
        tokio::time::sleep(pause).await;
        plane.ensure_healthy().await?;
        plane
            .muster
            .wait_leading(&plane.testbed, ProcessRole::All)
            .await?;
        match index {
            0 => plane.muster.crash(&plane.testbed, ProcessRole::All)?,
            _ => plane.muster.kill(&plane.testbed, ProcessRole::All).await?,
        }
        let start = std::time::Instant::now();
        plane.muster.start(&plane.testbed, ProcessRole::All).await?;
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

/// Restarts a member's API server and its Volcano. The informers of Volcano's processes reconnect
/// one by one, with pauses of up to half a minute, and may miss changes meanwhile: a job that is
/// applied then can stay Pending in the member for ever. Muster would evict it after its start
/// deadline; later tests need not wait for that.
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

/// Deletes the job and kills Muster while the member is unreachable. It removes the waiting job's
/// status, so that a later status comes from the new process.
async fn while_away(case: &Case, job: &Job) -> anyhow::Result<Job> {
    case.delete(job).await?;
    let waiter = case
        .submit(&case.short_gang("waiter", 1, 8, 1).volcano())
        .await?;
    let reasons = ["WaitingForQuota", "NextInLine"];
    case.waits(&waiter, &reasons).await?;
    case.midway().await?;
    // The new process leads: if it forgot the charge, the waiting job would start at once.
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

/// While no replica leads, an administrator lowers the record of one job, overwrites the record of
/// another that is being evicted, and removes the binding of a third before its Works. No charge
/// becomes smaller.
#[test]
fn what_changes_while_none_leads_lowers_no_charge() {
    managed_and_killed("meanwhile", async |case| {
        let words = "gone while a Work of it was there";
        case.audit_finds(words, "its finalizers are taken off while Muster is away");
        case.queue(24).await?;
        case.nodes("member1", 3).await?;
        let mut jobs = Vec::new();
        for name in ["less", "garbled", "ghost"] {
            jobs.push(case.submit(&case.gang(name, 1, 8).batch()).await?);
        }
        let [less, garbled, ghost] = [&jobs[0], &jobs[1], &jobs[2]];
        for job in &jobs {
            case.running(job).await?;
        }
        let waits = case
            .submit(&case.short_gang("waits", 1, 8, 1).batch())
            .await?;
        let reasons = ["WaitingForQuota", "NextInLine"];
        case.waits(&waits, &reasons).await?;
        let held = case.hold_works([garbled, ghost]).await?;
        let suspend = json!({"spec": {"suspend": true}});
        let namespace = Some(case.name.as_str());
        case.karmada()
            .merge(garbled.kind, namespace, &garbled.name, &suspend)
            .await?;
        case.binding_when(garbled, "ends", |binding| {
            record(binding)["state"] == "Ending"
        })
        .await?;
        case.delete(ghost).await?;
        case.binding_when(ghost, "is being deleted", |binding| {
            binding["metadata"]["deletionTimestamp"].is_string()
        })
        .await?;
        let mut lowered = record(&binding_of(case, less).await?);
        for charge in lowered["clusters"][0]["charge"]
            .as_object_mut()
            .unwrap()
            .values_mut()
        {
            charge["nvidia.com/gpu"] = json!("1");
        }
        let with =
            |record: String| json!({"metadata": {"annotations": {"muster.io/admission": record}}});
        let change = |job: &Job, patch| Change {
            kind: BINDING,
            namespace: case.name.clone(),
            name: job.binding(),
            patch,
        };
        let changes = [
            change(less, with(lowered.to_string())),
            change(garbled, with("hello".to_owned())),
            change(ghost, json!({"metadata": {"finalizers": null}})),
        ];
        case.plane.change_while_away(changes).await;
        case.midway().await?;

        // The status of the waiting job from the old process is removed, so that a later one comes
        // from the new process.
        case.karmada()
            .delete(POD_GROUP, namespace, &waits.binding())
            .await?;
        case.waits(&waits, &reasons).await?;
        case.gone(ghost).await?;
        case.pod_group_when(less, "says that its record was changed", |group| {
            condition(group, "RecordIntact")["status"] == "False"
        })
        .await?;
        case.pod_group_when(garbled, "says that its record cannot be read", |group| {
            condition(group, "RecordReadable")["status"] == "False"
        })
        .await?;
        case.stays_unplaced(&waits, A_WHILE).await?;
        case.waits(&waits, &reasons).await?;
        let restored = record(&binding_of(case, less).await?);
        let charges = restored["clusters"][0]["charge"]
            .as_object()
            .unwrap()
            .values();
        let gpus = charges.map(|charge| charge["nvidia.com/gpu"].as_str().unwrap_or("0"));
        let gpus: u32 = gpus.map(|gpus| gpus.parse::<u32>().unwrap()).sum();
        assert_eq!(gpus, 8, "{restored}");

        case.lift(&held).await?;
        case.finished(&waits, "Succeeded").await?;
        Ok(())
    });
}

async fn binding_of(case: &Case, job: &Job) -> anyhow::Result<Value> {
    let binding = case.binding(job).await.map_err(anyhow::Error::msg)?;
    binding.context("its binding is gone")
}
