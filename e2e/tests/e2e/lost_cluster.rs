//! A cluster that stops answering with a gang on it: nothing happens while it may come back;
//! once it is out of service the gang goes on elsewhere; and what it brings back is removed.

use e2e::harness::jobs::annotated;
use e2e::harness::kinds::{BINDING, CLUSTER};
use e2e::harness::wait::eventually;
use serde_json::{Value, json};

use crate::case::{A_WHILE, Case, managed_alone};
use crate::crash::{CLEANED, bring_back};
use crate::job::{Job, clusters, record};
use crate::split::{environment, pods_of, ranks_are_whole};

const LOST: &str = "member2";

/// An indexed Job of six pods with two GPUs each, over two clusters.
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

/// What happens while the cluster does not answer.
async fn while_lost(case: &Case, job: &Job) -> anyhow::Result<()> {
    case.midway().await?;
    out_of_service(case, json!("true")).await?;
    let elsewhere = |binding: &Value| clusters(binding) == ["member1", "member3"];
    case.binding_when(job, "elsewhere", elsewhere).await?;
    case.running(job).await?;
    Ok(())
}

/// It is away for a moment: the gang stays where it is.
async fn back_in_time(case: &Case, job: &Job) -> anyhow::Result<()> {
    let before = uids(case, job).await?;
    let testbed = &case.plane.testbed;
    testbed.stop_member_apiserver(LOST)?;
    // Longer than it takes to see that it does not answer.
    tokio::time::sleep(A_WHILE * 4).await;
    testbed.start_member_apiserver(LOST).await?;
    tokio::time::sleep(A_WHILE).await;
    assert_eq!(attempt(case, job).await?.0, 1, "nobody gave it up");
    assert_eq!(uids(case, job).await?, before, "other pods run now");
    Ok(())
}

async fn uids(case: &Case, job: &Job) -> anyhow::Result<Vec<String>> {
    let pods = pods_of(case, job).await?;
    let pods = pods.values().flatten();
    let mut uids: Vec<String> = pods.map(|pod| pod["metadata"]["uid"].to_string()).collect();
    uids.sort();
    Ok(uids)
}

async fn lost(case: &Case) -> anyhow::Result<()> {
    let job = gang(case).await?;
    back_in_time(case, &job).await?;
    let testbed = &case.plane.testbed;
    testbed.stop_member_apiserver(LOST)?;
    let outcome = while_lost(case, &job).await;
    bring_back(case, LOST).await?;
    let back = out_of_service(case, Value::Null).await;
    outcome?;
    back?;
    // What the cluster had comes back with it, and is removed; the gang is not touched.
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
    managed_alone("lostcluster", lost);
}
