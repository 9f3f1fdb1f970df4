//! A member that is removed from the federation: jobs that ran there continue elsewhere, jobs that
//! had ended there stay ended, and Karmada removes the member.

use serde_json::{Value, json};
use testbed::SyncMode;

use crate::case::{A_WHILE, Case};
use crate::job::{Job, clusters, record};
use crate::story::managed_long;

const LEAVES: &str = "leaves";

/// Joins a member with one node of the test's class, to which its jobs go first.
async fn joined(case: &Case) -> anyhow::Result<()> {
    let member = case.own_member(LEAVES, SyncMode::default());
    case.plane.testbed.add_member(&member).await?;
    let first = json!({"spec": {"placement": {"preferredClusters": [LEAVES]}}});
    case.capacity_policy(first).await
}

async fn runs_there(case: &Case, template: &Value) -> anyhow::Result<Job> {
    let job = case.submit(template).await?;
    case.running(&job).await?;
    assert_eq!(case.placed(&job).await?, [LEAVES]);
    Ok(job)
}

async fn attempt(case: &Case, job: &Job) -> anyhow::Result<Value> {
    let binding = case.binding(job).await.map_err(anyhow::Error::msg)?;
    let binding = binding.unwrap_or_default();
    Ok(json!([record(&binding)["attempt"], clusters(&binding)]))
}

#[test]
fn a_member_that_is_removed_leaves_nothing_behind_and_nothing_runs_twice() {
    managed_long("unjoined", async |case| {
        case.queue(64).await?;
        joined(case).await?;
        let mut ended = Vec::new();
        for template in [
            case.gang("array", 1, 2).batch(),
            case.gang("gang", 1, 2).volcano(),
        ] {
            ended.push(runs_there(case, &template).await?);
        }
        case.end(&ended[0]).await?;
        case.finished(&ended[0], "Succeeded").await?;
        case.fail(&ended[1]).await?;
        case.finished(&ended[1], "Failed").await?;
        let goes_on = runs_there(case, &case.gang("goes-on", 1, 4).volcano()).await?;
        case.nodes("member1", 1).await?;

        // This returns when Karmada has removed its finalizer, which it does when no placement
        // names the member.
        case.plane.testbed.remove_member(LEAVES).await?;
        let elsewhere = |binding: &Value| clusters(binding) == ["member1"];
        case.binding_when(&goes_on, "elsewhere", elsewhere).await?;
        case.running(&goes_on).await?;

        case.finished(&ended[0], "Succeeded").await?;
        case.finished(&ended[1], "Failed").await?;
        case.shows_gpus(&case.name, "allocated", 4).await?;
        tokio::time::sleep(A_WHILE).await;
        for job in &ended {
            assert_eq!(attempt(case, job).await?, json!([1, []]), "{}", job.name);
        }
        Ok(())
    });
}
