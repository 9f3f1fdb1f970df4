//! Elastic jobs, which get more pods while capacity is free, and fewer, without an eviction, when
//! another queue is entitled to it.

use e2e::harness::jobs;
use e2e::harness::kinds::DEPLOYMENT;
use e2e::harness::wait::{eventually, never_within};
use serde_json::{Value, json};

use crate::case::{Case, SOON};
use crate::contest::{HELD_FOR, granted};
use crate::job::{Job, clusters, is_placed};
use crate::story::{managed, managed_and_killed};

/// The policy of the Deployment, by which the test delays what its member receives.
const POLICY: &str = "deployments";

/// A Deployment of one to four pods fills two nodes of a cluster. A queue that deserves half of
/// them gets it, and later gives it back. The member chooses which pods end; the preemptor fits
/// either way.
pub(crate) async fn shrinks_and_grows(case: &Case) -> anyhow::Result<()> {
    let deserving = case
        .queue_of("deserving", json!({"deserved": {"nvidia.com/gpu": 8}}))
        .await?;
    let borrower = case
        .queue_of("borrower", json!({"deserved": {"nvidia.com/gpu": 8}}))
        .await?;
    case.nodes("member1", 2).await?;
    let everywhere = json!({"placement": {}});
    case.policy(POLICY, DEPLOYMENT, "muster", everywhere)
        .await?;
    let template = case.gang_in(&borrower, "serve", 4, 4).deployment();
    let template = jobs::annotated(template, "muster.io/elastic", "true");
    let template = jobs::annotated(template, "muster.io/min-replicas", "1");
    let elastic = case.submit(&template).await?;
    runs_with(case, &elastic, 4).await?;

    case.hold_dispatch(POLICY, &elastic, true).await?;
    let preemptor = case
        .submit(&case.gang_in(&deserving, "preemptor", 2, 4).volcano())
        .await?;
    amid_shrink(case, &preemptor, &elastic).await?;
    case.hold_dispatch(POLICY, &elastic, false).await?;
    case.running(&preemptor).await?;
    runs_with(case, &elastic, 2).await?;
    case.shows_gpus(&borrower, "allocated", 8).await?;

    case.end(&preemptor).await?;
    runs_with(case, &elastic, 4).await?;
    case.shows_gpus(&borrower, "allocated", 16).await?;
    assert_eq!(case.placements(&elastic)?, 1, "it was evicted");
    Ok(())
}

/// Checks a shrink that has not reached its member: there the four pods run on, and no other job
/// gets their resources, before [`Case::midway`] and after it.
async fn amid_shrink(case: &Case, preemptor: &Job, elastic: &Job) -> anyhow::Result<()> {
    let shrinks = |binding: &Value| granted(binding) == 2;
    case.binding_when(elastic, "is being shrunk", shrinks)
        .await?;
    let said = |group: &Value| group["status"]["federation"]["reason"].is_string();
    case.pod_group_when(preemptor, "says what it waits for", said)
        .await?;
    case.midway().await?;
    never_within(HELD_FOR, "an end of the shrink", async || {
        let preemptor = case.binding(preemptor).await?.unwrap_or_default();
        let elastic = case.binding(elastic).await?.unwrap_or_default();
        let pods = case.pods("member1").await;
        let pods = pods.map_err(|error| error.to_string())?.len();
        match (is_placed(&preemptor), granted(&elastic), pods) {
            (false, 2, 4) => Ok(()),
            other => Err(format!(
                "preemptor placed, pods granted and there: {other:?}"
            )),
        }
    })
    .await
}

/// Waits until the job has exactly this many pods in its binding and running in the member.
async fn runs_with(case: &Case, job: &Job, pods: usize) -> anyhow::Result<()> {
    let what = format!("{} runs with {pods} pods", job.name);
    eventually(SOON, &what, async || {
        let binding = case.binding(job).await?.unwrap_or_default();
        let placed = &binding["spec"]["clusters"][0]["replicas"];
        let in_member = case.pods("member1").await;
        let in_member = in_member.map_err(|error| error.to_string())?;
        let prefix = format!("{}-", job.name);
        let own = in_member.iter().filter(|pod| {
            let name = pod["metadata"]["name"].as_str().unwrap_or_default();
            name.starts_with(&prefix)
        });
        let phases: Vec<&Value> = own.map(|pod| &pod["status"]["phase"]).collect();
        let all_run = phases.iter().all(|phase| **phase == "Running");
        match *placed == json!(pods) && phases.len() == pods && all_run {
            true => Ok(()),
            false => Err(format!(
                "clusters {:?} replicas {placed} pods {phases:?}",
                clusters(&binding)
            )),
        }
    })
    .await
}

/// A job that starts while there is capacity for a part of it starts with that part.
pub(crate) async fn starts_small(case: &Case) -> anyhow::Result<()> {
    case.queue(64).await?;
    case.nodes("member1", 2).await?;
    let holder = case.submit(&case.gang("holder", 1, 8).volcano()).await?;
    case.running(&holder).await?;
    let template = case.gang("train", 4, 4).deployment();
    let template = jobs::annotated(template, "muster.io/elastic", "true");
    let template = jobs::annotated(template, "muster.io/min-replicas", "2");
    let elastic = case.submit(&template).await?;
    runs_with(case, &elastic, 2).await?;
    case.midway().await?;
    case.end(&holder).await?;
    runs_with(case, &elastic, 4).await
}

#[test]
fn an_elastic_job_shrinks_for_who_deserves_it_and_grows_again() {
    managed("elastic", shrinks_and_grows);
}

#[test]
fn an_elastic_job_shrinks_and_grows_though_muster_is_killed_meanwhile() {
    managed_and_killed("elastickill", shrinks_and_grows);
}

#[test]
fn an_elastic_job_starts_with_what_fits_and_grows_when_room_frees() {
    managed("partly", starts_small);
}
