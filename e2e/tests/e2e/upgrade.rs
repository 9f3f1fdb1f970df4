//! Upgrade and roll-back: the binary of an earlier commit and this one take turns, over jobs that
//! run, run in parts, wait and are being taken back. Nothing of them moves but what would anyway.

use anyhow::ensure;
use e2e::harness::earlier;
use e2e::harness::muster::Part;
use e2e::harness::wait::never_within;
use serde_json::json;

use crate::case::{A_WHILE, Case};
use crate::contest::SHORT;
use crate::job::{Job, record};
use crate::split::{no_pods, pods_of, training};

/// GPUs that the queue may hold: all of the jobs but the one that waits.
const BOUND: u32 = 26;

/// The jobs of the story.
struct Jobs {
    runs: Job,
    in_parts: Job,
    ends: Job,
    waits: Job,
}

impl Jobs {
    async fn submit(case: &Case) -> anyhow::Result<Self> {
        case.queue(BOUND).await?;
        case.nodes("member1", 2).await?;
        case.nodes("member2", 2).await?;
        let runs = case.submit(&case.gang("runs", 2, 2).volcano()).await?;
        case.running(&runs).await?;
        let ends = case.submit(&case.gang("ends", 2, 2).batch()).await?;
        case.running(&ends).await?;
        // Nine pods of two GPUs, on what either member has left of sixteen.
        let in_parts = case.submit(&training(case, "parts", 8)).await?;
        case.running(&in_parts).await?;
        let waits = case.submit(&case.gang("waits", 4, 2).volcano()).await?;
        case.waits(&waits, &SHORT).await?;
        Ok(Self {
            runs,
            in_parts,
            ends,
            waits,
        })
    }

    /// How all of them stand: attempts, states, and the pods that run.
    async fn stand(&self, case: &Case) -> Result<Vec<String>, String> {
        let mut lines = Vec::new();
        for job in [&self.runs, &self.in_parts, &self.ends, &self.waits] {
            let binding = case.binding(job).await?.unwrap_or_default();
            let record = record(&binding);
            let pods = pods_of(case, job)
                .await
                .map_err(|error| error.to_string())?;
            let pods = pods.values().flatten();
            let mut uids: Vec<String> =
                pods.map(|pod| pod["metadata"]["uid"].to_string()).collect();
            uids.sort();
            lines.push(format!(
                "{}: {} {} gated {} in {} with {uids:?}",
                job.name,
                record["attempt"],
                record["state"],
                binding["spec"]["suspension"]["scheduling"],
                binding["spec"]["clusters"],
            ));
        }
        Ok(lines)
    }
}

pub(crate) async fn back_and_forth(case: &Case) -> anyhow::Result<()> {
    let (plane, testbed) = (case.plane, &case.plane.testbed);
    let first = earlier::first()?;
    let first = plane.muster.earlier(first, &earlier::FIRST_FLAGS);
    plane.muster.stop(testbed, Part::All).await?;
    first.start(testbed, Part::Earlier).await?;
    let result = turns(case, &first).await;
    // Stories that follow have the plane's own.
    first.stop(testbed, Part::Earlier).await?;
    plane.muster.stop(testbed, Part::All).await?;
    plane.muster.start(testbed, Part::All).await?;
    result
}

async fn turns(case: &Case, first: &e2e::harness::muster::Muster) -> anyhow::Result<()> {
    let (now, testbed) = (&case.plane.muster, &case.plane.testbed);
    let jobs = Jobs::submit(case).await?;
    // One is taken back, and its Works stay, as a slow member's do.
    let held = case.hold_works([&jobs.ends]).await?;
    let suspend = json!({"spec": {"suspend": true}});
    case.karmada()
        .merge(jobs.ends.kind, Some(&case.name), &jobs.ends.name, &suspend)
        .await?;
    case.binding_when(&jobs.ends, "ends", |binding| {
        record(binding)["state"] == "Ending"
    })
    .await?;
    no_pods(case, &jobs.ends).await?;
    let before = jobs.stand(case).await.map_err(anyhow::Error::msg)?;
    for turn in 0..4 {
        match turn % 2 {
            0 => {
                first.stop(testbed, Part::Earlier).await?;
                now.start(testbed, Part::All).await?;
            }
            _ => {
                now.stop(testbed, Part::All).await?;
                first.start(testbed, Part::Earlier).await?;
            }
        }
        never_within(A_WHILE, "a job that moves", async || {
            let stand = jobs.stand(case).await?;
            match stand == before {
                true => Ok(()),
                false => Err(format!("turn {turn}: {stand:#?}, not {before:#?}")),
            }
        })
        .await?;
        case.shows_gpus(&case.name, "allocated", BOUND).await?;
    }
    // The earlier one leads, and hands over in the middle of what moves again.
    case.let_go(&held).await?;
    first.stop(testbed, Part::Earlier).await?;
    now.start(testbed, Part::All).await?;
    case.delete(&jobs.runs).await?;
    case.running(&jobs.waits).await?;
    let report = case.audit(
        u64::from(BOUND),
        [&jobs.runs, &jobs.in_parts, &jobs.ends, &jobs.waits],
    )?;
    ensure!(report.violations.is_empty(), "{report:#?}");
    Ok(())
}
