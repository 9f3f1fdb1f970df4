//! Many charged jobs are deleted at once: their quota is free as soon as Karmada has removed their
//! Works, which takes it some time for each.

use std::time::{Duration, Instant};

use anyhow::ensure;
use e2e::harness::kinds::{CAPACITY_POLICY, WORK};
use e2e::harness::wait::eventually;
use serde_json::Value;

use crate::case::Case;

/// The number of jobs, of one GPU each.
const JOBS: u32 = 300;
/// The timeout until all are admitted, and until all are gone: Karmada handles a few each second.
const ALL: Duration = Duration::from_secs(300);
/// The timeout from the removal of the last Work until the quota is free.
const FREE_WITHIN: Duration = Duration::from_secs(30);

/// Returns the GPUs that the queue is charged.
async fn charged(case: &Case) -> Result<u32, String> {
    let policy = case.karmada().get(CAPACITY_POLICY, None, &case.name).await;
    let policy = policy.map_err(|error| error.to_string())?;
    let status = &policy.unwrap_or_default()["status"];
    let resources = status["resources"].as_array().into_iter().flatten();
    let mut gpus = resources.filter(|resource| resource["name"] == "nvidia.com/gpu");
    let charged = gpus.next().and_then(|gpu| gpu["allocated"].as_str());
    // A missing amount is zero.
    let charged = charged.unwrap_or("0");
    charged.parse().map_err(|_| charged.to_owned())
}

/// Returns the number of Works of the story's jobs.
async fn works(case: &Case) -> Result<usize, String> {
    let works = case.karmada().list(WORK, None).await;
    let works = works.map_err(|error| error.to_string())?;
    let of = "resourcebinding.karmada.io/namespace";
    let own = |work: &&Value| work["metadata"]["annotations"][of] == case.name.as_str();
    Ok(works.iter().filter(own).count())
}

pub(crate) async fn deleted(case: &Case) -> anyhow::Result<()> {
    case.queue(JOBS).await?;
    for member in crate::plane::MEMBERS {
        case.nodes(member, JOBS.div_ceil(3 * 8)).await?;
    }
    let jobs = case.submit_crowd(JOBS as usize).await?;
    eventually(ALL, "all are charged and have Works", async || {
        match (charged(case).await?, works(case).await?) {
            (JOBS, works) if works == JOBS as usize => Ok(()),
            (charged, works) => Err(format!("{charged} GPUs, {works} Works")),
        }
    })
    .await?;

    let start = Instant::now();
    case.delete_crowd(&jobs).await?;
    println!(
        "MEASURED delete_of_{JOBS} {} ms",
        start.elapsed().as_millis()
    );
    eventually(ALL, "no Work is left", async || match works(case).await? {
        0 => Ok(()),
        works => Err(format!("{works} Works")),
    })
    .await?;
    let gone = start.elapsed();
    println!("MEASURED works_of_{JOBS}_gone {} ms", gone.as_millis());
    eventually(ALL, "nothing is charged", async || {
        match charged(case).await? {
            0 => Ok(()),
            charged => Err(format!("{charged} GPUs")),
        }
    })
    .await?;
    let took = start.elapsed().saturating_sub(gone);
    println!(
        "MEASURED quota_of_{JOBS}_back_after_works {} ms",
        took.as_millis()
    );
    ensure!(
        took < FREE_WITHIN,
        "the quota came back only after {took:?}"
    );
    Ok(())
}
