//! Elastic gangs whose size overrides enforce: Volcano Jobs start with the pods that fit, grow in
//! place in each of their clusters, and shrink before a job is evicted.

use std::collections::BTreeSet;

use anyhow::{Context as _, ensure};
use e2e::harness::jobs::annotated;
use e2e::harness::kinds::VOLCANO_JOB;
use e2e::harness::wait::{eventually, never_within};
use serde_json::{Value, json};

use crate::case::{Case, SOON};
use crate::contest::{HELD_FOR, granted};
use crate::job::{Job, is_placed, record};
use crate::split::{environment, pods_of, rank, training};
use crate::story::{managed, managed_and_killed};

/// The policy of the test's Volcano Jobs.
const POLICY: &str = "volcano-jobs";

/// Returns a job of a master and `workers` workers with two GPUs each, which can run with `least`
/// of them.
fn elastic(case: &Case, name: &str, workers: u32, least: u32) -> Value {
    let mut job = annotated(training(case, name, workers), "muster.io/elastic", "true");
    job["spec"]["minAvailable"] = json!(least);
    job
}

/// Waits until the gang has and runs this many pods in each cluster, and returns them.
async fn runs_with(case: &Case, job: &Job, parts: &[(&str, usize)]) -> anyhow::Result<Vec<Value>> {
    let wanted: Vec<String> = parts
        .iter()
        .map(|(cluster, pods)| format!("{cluster}:{pods}"))
        .collect();
    eventually(
        SOON,
        &format!("{} is {}", job.name, wanted.join(",")),
        async || {
            let pods = pods_of(case, job)
                .await
                .map_err(|error| error.to_string())?;
            let group = case.pod_group(job).await?.unwrap_or_default();
            let summary = &group["status"]["federation"]["placementSummary"];
            let found: Vec<String> = pods
                .iter()
                .map(|(cluster, pods)| format!("{cluster}:{}", pods.len()))
                .collect();
            let pods: Vec<Value> = pods.into_values().flatten().collect();
            let run = pods.iter().all(|pod| pod["status"]["phase"] == "Running");
            match found == wanted && run && *summary == json!(wanted.join(",")) {
                true => Ok(pods),
                false => Err(format!("pods {found:?}, all run: {run}, told {summary}")),
            }
        },
    )
    .await
}

fn uids(pods: &[Value]) -> BTreeSet<String> {
    let uid = |pod: &Value| pod["metadata"]["uid"].to_string();
    pods.iter().map(uid).collect()
}

/// Ensures that no two pods have the same rank, and that all have the same values of the whole
/// gang.
fn ranks_are_apart(pods: &[Value], most: u64) -> anyhow::Result<()> {
    let ranks: Vec<u64> = pods.iter().map(rank).collect::<anyhow::Result<_>>()?;
    let apart: BTreeSet<&u64> = ranks.iter().collect();
    ensure!(apart.len() == ranks.len(), "ranks {ranks:?}");
    for pod in pods {
        assert_eq!(
            environment(pod, "MUSTER_GANG_SIZE"),
            Some(&*most.to_string())
        );
    }
    Ok(())
}

/// Puts all Volcano Jobs of the test under a policy of its own, by which the test delays what
/// members receive.
async fn under_policy(case: &Case) -> anyhow::Result<()> {
    let everywhere = json!({"placement": {}});
    case.policy(POLICY, VOLCANO_JOB, "muster", everywhere).await
}

/// Checks a resize that has not reached the members: there the gang runs on as it `was`, and the
/// preemptor gets nothing, before [`Case::midway`] and after it.
async fn amid_resize(
    case: &Case,
    job: &Job,
    becomes: u64,
    was: usize,
    preemptor: Option<&Job>,
) -> anyhow::Result<()> {
    let resized = |binding: &Value| granted(binding) == becomes;
    case.binding_when(job, &format!("is to have {becomes} pods"), resized)
        .await?;
    case.midway().await?;
    never_within(HELD_FOR, "an end of the change", async || {
        let pods = pods_of(case, job).await;
        let pods = pods.map_err(|error| error.to_string())?;
        let pods: usize = pods.values().map(Vec::len).sum();
        let granted = granted(&case.binding(job).await?.unwrap_or_default());
        let placed = match preemptor {
            Some(preemptor) => is_placed(&case.binding(preemptor).await?.unwrap_or_default()),
            None => false,
        };
        match (pods == was, granted == becomes, placed) {
            (true, true, false) => Ok(()),
            _ => Err(format!(
                "pods {pods}, granted {granted}, preemptor placed: {placed}"
            )),
        }
    })
    .await
}

/// A gang fills two nodes of which another queue deserves half: it shrinks, and grows again.
pub(crate) async fn shrinks_and_grows(case: &Case) -> anyhow::Result<()> {
    let half = json!({"deserved": {"nvidia.com/gpu": 8}});
    let deserving = case.queue_of("deserving", half.clone()).await?;
    let borrower = case.queue_of("borrower", half).await?;
    case.nodes("member1", 2).await?;
    under_policy(case).await?;
    let mut template = elastic(case, "train", 7, 2);
    template["spec"]["queue"] = json!(borrower);
    let job = case.submit(&template).await?;
    let full = runs_with(case, &job, &[("member1", 8)]).await?;
    ranks_are_apart(&full, 8)?;

    case.hold_dispatch(POLICY, &job, true).await?;
    let preemptor = case
        .submit(&case.gang_in(&deserving, "preemptor", 4, 2).volcano())
        .await?;
    let said = |group: &Value| group["status"]["federation"]["reason"].is_string();
    case.pod_group_when(&preemptor, "says what it waits for", said)
        .await?;
    amid_resize(case, &job, 4, 8, Some(&preemptor)).await?;
    case.hold_dispatch(POLICY, &job, false).await?;
    case.running(&preemptor).await?;
    let small = runs_with(case, &job, &[("member1", 4)]).await?;
    ensure!(uids(&small).is_subset(&uids(&full)), "pods were recreated");
    case.shows_gpus(&borrower, "allocated", 8).await?;

    case.end(&preemptor).await?;
    let grown = runs_with(case, &job, &[("member1", 8)]).await?;
    ensure!(uids(&small).is_subset(&uids(&grown)), "pods were recreated");
    ranks_are_apart(&grown, 8)?;
    case.shows_gpus(&borrower, "allocated", 16).await?;
    assert_eq!(case.placements(&job)?, 1, "it was evicted");

    // The template has its own counts: its minimum stays as written, and it counts all pods.
    let told = async || {
        let template = case.template(&job).await?.unwrap_or_default();
        let (spec, status) = (&template["spec"], &template["status"]);
        match (spec["minAvailable"] == 2, status["running"] == 8) {
            (true, true) => Ok(()),
            _ => Err(format!("{} {status}", spec["minAvailable"])),
        }
    };
    eventually(SOON, "the template tells of eight pods", told).await?;
    case.end(&job).await?;
    case.finished(&job, "Succeeded").await
}

/// A gang starts with three pods in two clusters, and grows in both when they have capacity.
pub(crate) async fn grows_in_both(case: &Case) -> anyhow::Result<()> {
    case.queue(64).await?;
    case.nodes("member1", 1).await?;
    case.nodes("member2", 1).await?;
    under_policy(case).await?;
    let mut holders = Vec::new();
    for (name, pods) in [("one", 2), ("two", 3)] {
        let holder = case.submit(&case.gang(name, pods, 2).volcano()).await?;
        case.running(&holder).await?;
        holders.push(holder);
    }
    let job = case.submit(&elastic(case, "train", 7, 3)).await?;
    let small = runs_with(case, &job, &[("member1", 2), ("member2", 1)]).await?;
    let binding = case.binding(&job).await.map_err(anyhow::Error::msg)?;
    let binding = binding.context("no binding")?;
    assert_eq!(record(&binding)["resizable"], true);
    case.hold_dispatch(POLICY, &job, true).await?;
    for holder in &holders {
        case.end(holder).await?;
    }
    amid_resize(case, &job, 8, 3, None).await?;
    case.hold_dispatch(POLICY, &job, false).await?;
    let full = runs_with(case, &job, &[("member1", 4), ("member2", 4)]).await?;
    ensure!(uids(&small).is_subset(&uids(&full)), "pods were recreated");
    ranks_are_apart(&full, 8)?;
    assert_eq!(case.placements(&job)?, 1, "it was evicted");
    case.end(&job).await?;
    case.finished(&job, "Succeeded").await?;
    case.shows_gpus(&case.name, "allocated", 0).await
}

#[test]
fn an_elastic_volcano_job_is_shrunk_and_grown_where_it_runs() {
    managed("elasticvolcano", shrinks_and_grows);
}

#[test]
#[ignore = "soak"]
fn an_elastic_volcano_job_is_shrunk_and_grown_though_muster_is_killed_meanwhile() {
    managed_and_killed("elasticvolcanokill", shrinks_and_grows);
}

#[test]
fn an_elastic_gang_grows_in_each_of_its_clusters() {
    managed("elasticboth", grows_in_both);
}
