//! A cluster that stops answering with a part of a gang: the gang is unchanged while the cluster
//! may return. Once it is out of service, the gang continues elsewhere, and the pods that return
//! with it are removed.

use e2e::harness::jobs::annotated;
use e2e::harness::kinds::{BINDING, CLUSTER, GPU_POOL};
use e2e::harness::wait::{eventually, never_within};
use serde_json::{Value, json};

use crate::case::{A_WHILE, Case, SOON};
use crate::crash::{CLEANED, bring_back};
use crate::job::{Job, clusters, condition, record};
use crate::plane::SPARES;
use crate::split::{environment, pods_of, ranks_are_whole};
use crate::story::managed_with_spare;

/// The cluster that is lost; Karmada reports it after some 33 s.
pub(crate) const LOST: &str = SPARES[0];

/// Submits an indexed Job of six pods with two GPUs each, over two clusters.
async fn gang(case: &Case) -> anyhow::Result<Job> {
    case.queue(12).await?;
    case.nodes("member1", 1).await?;
    case.nodes(LOST, 1).await?;
    let mut template = annotated(case.gang("array", 6, 2).batch(), "muster.io/split", "2");
    template["spec"]["completionMode"] = json!("Indexed");
    let job = case.submit(&template).await?;
    case.running(&job).await?;
    case.nodes("member3", 1).await?;
    Ok(job)
}

async fn out_of_service(case: &Case, on: Value) -> anyhow::Result<()> {
    let patch = json!({"metadata": {"annotations": {"muster.io/out-of-service": on}}});
    case.karmada().merge(CLUSTER, None, LOST, &patch).await?;
    Ok(())
}

async fn attempt(case: &Case, job: &Job) -> anyhow::Result<(u64, Vec<String>)> {
    let binding = case
        .karmada()
        .get(BINDING, Some(&case.name), &job.binding())
        .await?
        .unwrap_or_default();
    let attempt = record(&binding)["attempt"].as_u64().unwrap_or_default();
    Ok((attempt, clusters(&binding)))
}

/// While the cluster does not answer, the whole gang is evicted. The eviction waits for the slow
/// part in the reachable cluster, not for the lost part.
async fn while_lost(case: &Case, job: &Job) -> anyhow::Result<()> {
    let held = case.hold_works([job]).await?;
    out_of_service(case, json!("true")).await?;
    case.amid_evict(None, &[job]).await?;
    case.lift(&held).await?;
    let elsewhere = |binding: &Value| clusters(binding) == ["member1", "member3"];
    case.binding_when(job, "elsewhere", elsewhere).await?;
    case.running(job).await?;
    Ok(())
}

/// The cluster stays away until Karmada and Muster report it, and returns: the gang is unchanged.
async fn back_in_time(case: &Case, job: &Job) -> anyhow::Result<()> {
    let before = uids(case, job).await?;
    let testbed = &case.plane.testbed;
    testbed.stop_member_apiserver(LOST)?;
    let seen = answers(case, false).await;
    testbed.start_member_apiserver(LOST).await?;
    seen?;
    answers(case, true).await?;
    never_within(A_WHILE, "a change of the gang", async || {
        let attempt = attempt(case, job).await;
        let (attempt, _) = attempt.map_err(|error| error.to_string())?;
        let now = uids(case, job).await.map_err(|error| error.to_string())?;
        match attempt == 1 && now == before {
            true => Ok(()),
            false => Err(format!("attempt {attempt}, pods {now:?}, not {before:?}")),
        }
    })
    .await?;
    case.running(job).await.map(drop)
}

/// Waits until Karmada reports whether the cluster is Ready, and Muster whether it sees its nodes.
async fn answers(case: &Case, does: bool) -> anyhow::Result<()> {
    let pool = format!("{LOST}.{}", case.product.to_lowercase());
    eventually(SOON, &format!("{LOST} answers: {does}"), async || {
        let karmada = case.karmada();
        let cluster = karmada.get(CLUSTER, None, LOST).await;
        let cluster = cluster.map_err(|error| error.to_string())?;
        let cluster = cluster.unwrap_or_default();
        let ready = &condition(&cluster, "Ready")["status"];
        let pool = karmada.get(GPU_POOL, None, &pool).await;
        let pool = pool.map_err(|error| error.to_string())?.unwrap_or_default();
        let health = &pool["status"]["health"];
        match (ready == "True", health == "Ready") {
            both if both == (does, does) => Ok(()),
            _ => Err(format!("Ready is {ready}, its GpuPool {health}")),
        }
    })
    .await
}

async fn uids(case: &Case, job: &Job) -> anyhow::Result<Vec<String>> {
    let pods = pods_of(case, job).await?;
    let pods = pods.values().flatten();
    let mut uids: Vec<String> = pods.map(|pod| pod["metadata"]["uid"].to_string()).collect();
    uids.sort();
    Ok(uids)
}

pub(crate) async fn lost(case: &Case) -> anyhow::Result<()> {
    case.gives_up(LOST);
    // Both run for as long as the cluster stays away after the gang runs elsewhere: longer than the
    // audit's tolerance on a busy machine only.
    let words = "pods with 16 of its 12 devices run";
    let why = "the operator gives up a cluster whose pods still run";
    case.audit_may_find(words, why);
    let job = gang(case).await?;
    back_in_time(case, &job).await?;
    let testbed = &case.plane.testbed;
    testbed.stop_member_apiserver(LOST)?;
    let outcome = while_lost(case, &job).await;
    bring_back(case, LOST).await?;
    let back = out_of_service(case, Value::Null).await;
    outcome?;
    back?;
    // The pods of the cluster return with it and are removed; the gang is unchanged.
    eventually(CLEANED, "its old pods are gone", async || {
        let pods = pods_of(case, &job)
            .await
            .map_err(|error| error.to_string())?;
        match pods.contains_key(LOST) {
            false => Ok(()),
            true => Err(format!("{:?}", pods.keys())),
        }
    })
    .await?;
    let (attempt, clusters) = attempt(case, &job).await?;
    assert_eq!(clusters, ["member1", "member3"]);
    ranks_are_whole(case, &job, 6).await?;
    for pod in pods_of(case, &job).await?.values().flatten() {
        assert_eq!(
            environment(pod, "MUSTER_ATTEMPT"),
            Some(&*attempt.to_string())
        );
    }
    case.end(&job).await?;
    case.finished(&job, "Succeeded").await
}

#[test]
fn a_gang_goes_on_elsewhere_once_its_cluster_is_out_of_service() {
    managed_with_spare(LOST, "lostcluster", lost);
}
