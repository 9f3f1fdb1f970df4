//! Quotas of a queue for a class of GPUs, in all clusters and in some.

use serde_json::{Value, json};

use crate::case::{A_WHILE, Case};
use crate::contest::SHORT;
use crate::job::Job;
use crate::story::managed;

/// The queue has a quota of eight GPUs of this test's class in all clusters, and of four in the
/// first member.
pub(crate) async fn of_class_and_cluster(case: &Case) -> anyhow::Result<()> {
    case.queue(64).await?;
    bound(case, 8).await?;
    case.nodes("member1", 2).await?;
    case.nodes("member2", 1).await?;
    let mut jobs = Vec::new();
    for index in 0..3 {
        let gang = case.gang(&format!("job-{index}"), 1, 4);
        jobs.push(case.submit(&gang.volcano()).await?);
    }
    case.settles(&jobs, 2, A_WHILE).await?;
    assert!(
        in_first(case, &jobs).await? <= 1,
        "more than four GPUs in member1"
    );
    case.midway().await?;
    let released = case.released(&jobs).await.map_err(anyhow::Error::msg)?;
    let waits = jobs
        .iter()
        .find(|job| released.iter().all(|other| other.name != job.name));
    let message = case
        .waits(
            waits.expect("one of three waits"),
            &["WaitingForQuota", "NextInLine"],
        )
        .await?;
    assert!(
        message.contains(&class(case)),
        "does not name the class: {message}"
    );

    // A higher quota of the class, with that of the first member unchanged, admits all that member2
    // has and one job in the first.
    bound(case, 64).await?;
    for index in 3..5 {
        let gang = case.gang(&format!("job-{index}"), 1, 4);
        jobs.push(case.submit(&gang.volcano()).await?);
    }
    case.settles(&jobs, 3, A_WHILE).await?;
    assert_eq!(in_first(case, &jobs).await?, 1);
    // A job that exceeds the quota of one cluster goes to a cluster without a quota.
    let large = case.submit(&case.gang("large", 1, 8).volcano()).await?;
    case.waits(&large, &SHORT).await?;
    for job in &jobs {
        if !is_in_first(case, job).await? {
            case.delete(job).await?;
        }
    }
    assert_eq!(case.placed(&large).await?, ["member2"]);
    Ok(())
}

fn class(case: &Case) -> String {
    case.product.to_lowercase()
}

async fn bound(case: &Case, gpus: u32) -> anyhow::Result<()> {
    let pool = |clusters: Value, gpus: u32| {
        let name = if clusters.is_null() { "all" } else { "first" };
        let resources = json!([{"name": "nvidia.com/gpu", "capability": gpus.to_string()}]);
        let mut pool = json!({"name": name, "class": class(case), "resources": resources});
        if !clusters.is_null() {
            pool["clusters"] = clusters;
        }
        pool
    };
    let pools = [pool(Value::Null, gpus), pool(json!(["member1"]), 4)];
    case.capacity_policy(json!({"spec": {"pools": pools}}))
        .await
}

/// Returns the number of `jobs` in the first member.
async fn in_first(case: &Case, jobs: &[Job]) -> anyhow::Result<usize> {
    let mut count = 0;
    for job in jobs {
        count += usize::from(is_in_first(case, job).await?);
    }
    Ok(count)
}

async fn is_in_first(case: &Case, job: &Job) -> anyhow::Result<bool> {
    let binding = case.binding(job).await.map_err(anyhow::Error::msg)?;
    Ok(crate::job::clusters(&binding.unwrap_or_default()) == ["member1"])
}

#[test]
fn bounds_of_a_class_and_of_a_cluster_hold_together() {
    managed("bounds", of_class_and_cluster);
}
