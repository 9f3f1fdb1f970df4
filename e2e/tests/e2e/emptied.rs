//! A member that comes back with nothing in it: Karmada makes what ran there and what had ended there
//! anew. What ran goes on under its charge; what had ended is charged again, as far as its queue's
//! bound allows, and is evicted beyond that.

use anyhow::ensure;
use e2e::harness::wait::{eventually, never_within};
use serde_json::Value;

use crate::case::{A_WHILE, Case, SOON};
use crate::job::{Job, record};
use crate::plane::SPARES;
use crate::split::pods_in;

/// The member that is emptied.
pub(crate) const EMPTIED: &str = SPARES[1];

/// GPUs that the queue may hold: four jobs of this story.
const BOUND: u32 = 16;
const EACH: u32 = 4;

/// UIDs of a job's pods that run in the member.
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

/// A running job that Karmada makes anew runs with other pods, in the same attempt.
async fn goes_on(case: &Case, job: &Job, before: &[String]) -> anyhow::Result<()> {
    eventually(SOON, &format!("{} runs anew", job.name), async || {
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

/// Which of two jobs that had ended runs again, and which is evicted: there is quota for one of them.
/// What has ended stays ended when it is evicted.
async fn one_of<'a>(case: &Case, ended: &'a [Job; 2]) -> anyhow::Result<[&'a Job; 2]> {
    eventually(
        SOON,
        "one of two runs again, and one is evicted",
        async || {
            let [first, second] = [&ended[0], &ended[1]];
            let pods = [pods(case, first).await?, pods(case, second).await?];
            let mut states = Vec::new();
            for job in ended {
                let binding = case.binding(job).await?.unwrap_or_default();
                states.push(record(&binding)["state"].clone());
            }
            let states: Vec<Option<&str>> = states.iter().map(Value::as_str).collect();
            match (pods.each_ref().map(Vec::len), &*states) {
                ([1, 0], [Some("Admitted"), Some("Requeued")]) => Ok([first, second]),
                ([0, 1], [Some("Requeued"), Some("Admitted")]) => Ok([second, first]),
                (pods, states) => Err(format!("{pods:?} pods, {states:?}")),
            }
        },
    )
    .await
}

pub(crate) async fn emptied(case: &Case) -> anyhow::Result<()> {
    let words = "pods with 20 of its 16 devices run";
    case.audit_may_find(words, "a member runs a job again, and Muster sees it after");
    case.queue(BOUND).await?;
    case.nodes(EMPTIED, 3).await?;
    let ended = [
        case.submit(&case.gang("ended", 1, EACH).batch()).await?,
        case.submit(&case.gang("over", 1, EACH).batch()).await?,
    ];
    for job in &ended {
        case.running(job).await?;
        case.end(job).await?;
        case.finished(job, "Succeeded").await?;
    }
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
    case.shows_gpus(&case.name, "allocated", 3 * EACH).await?;
    let mut before = Vec::new();
    for job in &running {
        before.push(pods(case, job).await.map_err(anyhow::Error::msg)?);
    }

    let testbed = &case.plane.testbed;
    let spec = testbed.spec().members.iter();
    let spec = spec.clone().find(|member| member.name == EMPTIED).unwrap();
    testbed.empty_member(spec).await?;
    ensure!(case.pods(EMPTIED).await?.is_empty(), "pods are left");
    case.nodes(EMPTIED, 3).await?;

    for (job, before) in running.iter().zip(&before) {
        goes_on(case, job, before).await?;
    }
    let [again, evicted] = one_of(case, &ended).await?;
    case.shows_gpus(&case.name, "allocated", BOUND).await?;
    case.finished(evicted, "Succeeded").await?;
    never_within(A_WHILE, "an evicted job that runs", async || {
        match pods(case, evicted).await?.is_empty() {
            true => Ok(()),
            false => Err(evicted.name.clone()),
        }
    })
    .await?;
    // The other one ends once more.
    case.end(again).await?;
    case.finished(again, "Succeeded").await?;
    case.shows_gpus(&case.name, "allocated", 3 * EACH).await
}
