//! A member that returns empty: Karmada recreates the jobs that ran there, and those that had ended
//! there. A job that ran continues with its charge. A job that had ended is charged again, as far
//! as the quota of its queue allows; beyond that it is evicted.

use anyhow::ensure;
use e2e::harness::jobs::{self, TestGang};
use e2e::harness::kinds::QUEUE;
use e2e::harness::wait::{eventually, never_within};

use crate::case::{A_WHILE, Case, SOON};
use crate::job::{Job, record};
use crate::plane::SPARES;
use crate::split::pods_in;

/// The member that is emptied.
pub(crate) const EMPTIED: &str = SPARES[1];

/// The quota of the first queue in GPUs: those of three jobs of this story.
const BOUND: u32 = 3 * EACH;
const EACH: u32 = 4;

/// Returns the UIDs of a job's pods that run in the member.
async fn pods(case: &Case, job: &Job) -> Result<Vec<String>, String> {
    let pods = pods_in(case, job, &[EMPTIED]).await;
    let pods = pods.map_err(|error| error.to_string())?;
    let running = pods
        .values()
        .flatten()
        .filter(|pod| pod["status"]["phase"] == "Running");
    Ok(running
        .map(|pod| pod["metadata"]["uid"].to_string())
        .collect())
}

/// Waits until a running job has been recreated with other pods, in the same attempt.
async fn goes_on(case: &Case, job: &Job, before: &[String]) -> anyhow::Result<()> {
    eventually(SOON, &format!("{} runs again", job.name), async || {
        let now = pods(case, job).await?;
        match !now.is_empty() && now.iter().all(|uid| !before.contains(uid)) {
            true => Ok(()),
            false => Err(format!("pods {now:?}, before {before:?}")),
        }
    })
    .await?;
    let binding = case.binding(job).await.map_err(anyhow::Error::msg)?;
    let record = record(&binding.unwrap_or_default());
    ensure!(record["attempt"] == 1, "{}: {record}", job.name);
    Ok(())
}

/// Returns a job that has ended, in this queue.
async fn ended(case: &Case, name: &str, queue: &str) -> anyhow::Result<Job> {
    let gang = TestGang {
        queue: Some(queue.to_owned()),
        ..case.gang(name, 1, EACH)
    };
    let job = case.submit(&gang.batch()).await?;
    case.running(&job).await?;
    case.end(&job).await?;
    case.finished(&job, "Succeeded").await?;
    Ok(job)
}

/// Waits until a job that had ended is removed from the member, and watches that it stays ended.
async fn is_evicted(case: &Case, job: &Job) -> anyhow::Result<()> {
    case.binding_when(job, "evicted", |binding| {
        record(binding)["state"] == "Requeued"
    })
    .await?;
    case.finished(job, "Succeeded").await?;
    let what = format!("{} that runs", job.name);
    eventually(SOON, "its pods are gone", async || {
        match &*pods(case, job).await? {
            [] => Ok(()),
            pods => Err(format!("{pods:?}")),
        }
    })
    .await?;
    never_within(A_WHILE, &what, async || match &*pods(case, job).await? {
        [] => Ok(()),
        pods => Err(format!("{pods:?}")),
    })
    .await
}

pub(crate) async fn emptied(case: &Case) -> anyhow::Result<()> {
    let words = "of its 12 devices run";
    let why = "a member runs a job again, and Muster sees it later";
    case.audit_may_find(words, why);
    case.audit_may_find(" in pods: ", why);
    let roomy = format!("{}-roomy", case.name);
    case.queue(BOUND).await?;
    case.cluster_object(QUEUE, &jobs::queue(&roomy, EACH))
        .await?;
    case.nodes(EMPTIED, 3).await?;
    let over = ended(case, "over", &case.name).await?;
    let again = ended(case, "again", &roomy).await?;
    let mut running = Vec::new();
    for template in [
        case.gang("gang", 1, EACH).volcano(),
        case.gang("array", 1, EACH).batch(),
        case.gang("next", 1, EACH).batch(),
    ] {
        let job = case.submit(&template).await?;
        case.running(&job).await?;
        running.push(job);
    }
    case.shows_gpus(&case.name, "allocated", BOUND).await?;
    case.shows_gpus(&roomy, "allocated", 0).await?;
    let mut before = Vec::new();
    for job in &running {
        before.push(pods(case, job).await.map_err(anyhow::Error::msg)?);
    }

    let testbed = &case.plane.testbed;
    let mut members = testbed.spec().members.iter();
    let spec = members.find(|member| member.name == EMPTIED).unwrap();
    testbed.empty_member(spec).await?;
    case.nodes(EMPTIED, 3).await?;

    is_evicted(case, &over).await?;
    case.shows_gpus(&case.name, "allocated", BOUND).await?;
    // A job whose queue has quota for it is charged again, and ends once more.
    case.shows_gpus(&roomy, "allocated", EACH).await?;
    for (job, before) in running.iter().zip(&before) {
        goes_on(case, job, before).await?;
    }
    goes_on(case, &again, &[]).await?;
    case.end(&again).await?;
    case.finished(&again, "Succeeded").await?;
    case.shows_gpus(&roomy, "allocated", 0).await?;
    case.shows_gpus(&case.name, "allocated", BOUND).await
}
