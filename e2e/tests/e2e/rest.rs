//! At rest no component writes the objects of a running job.

use std::collections::BTreeMap;
use std::time::Duration;

use e2e::harness::kinds::{OVERRIDE_POLICY, QUEUE, WORK};
use serde_json::Value;

use crate::case::Case;
use crate::job::{Job, clusters};
use crate::split::training;
use crate::story::managed_long;

/// Returns the versions of all objects of a job on the control plane and in its members.
async fn versions(case: &Case, job: &Job) -> Result<BTreeMap<String, String>, String> {
    let mut all = BTreeMap::new();
    let mut note = |what: String, object: &Value| {
        let version = object["metadata"]["resourceVersion"].to_string();
        all.insert(what, version);
    };
    let binding = case.binding(job).await?.unwrap_or_default();
    note("binding".to_owned(), &binding);
    note(
        "template".to_owned(),
        &case.template(job).await?.unwrap_or_default(),
    );
    note(
        "podgroup".to_owned(),
        &case.pod_group(job).await?.unwrap_or_default(),
    );
    let policy = format!("muster-{}", job.binding());
    let namespace = Some(case.name.as_str());
    let policy = case
        .karmada()
        .get(OVERRIDE_POLICY, namespace, &policy)
        .await;
    let policy = policy.map_err(|error| error.to_string())?;
    note("override".to_owned(), &policy.unwrap_or_default());
    for cluster in clusters(&binding) {
        let works = format!("karmada-es-{cluster}");
        let works = case.karmada().list(WORK, Some(&works)).await;
        for work in works.map_err(|error| error.to_string())? {
            let of = &work["metadata"]["annotations"]["resourcebinding.karmada.io/namespace"];
            if *of == case.name.as_str() {
                note(format!("work in {cluster}"), &work);
            }
        }
        let member = case.plane.member(&cluster).await;
        let member = member.map_err(|error| error.to_string())?;
        let part = member.get(job.kind, namespace, &job.name).await;
        let part = part.map_err(|error| error.to_string())?;
        note(format!("part in {cluster}"), &part.unwrap_or_default());
        let queue = member.get(QUEUE, None, &case.name).await;
        let queue = queue.map_err(|error| error.to_string())?;
        note(format!("queue in {cluster}"), &queue.unwrap_or_default());
    }
    Ok(all)
}

/// Checks that no controllers compete over a gang in parts: when it runs, its objects are not
/// written for this time.
pub(crate) async fn at_rest_for(case: &Case, time: Duration) -> anyhow::Result<()> {
    case.queue(24).await?;
    case.nodes("member1", 1).await?;
    case.nodes("member2", 1).await?;
    let job = case.submit(&training(case, "train", 5)).await?;
    case.running(&job).await?;
    // Writes about the start end within this time.
    tokio::time::sleep(Duration::from_secs(15)).await;
    let before = versions(case, &job).await.map_err(anyhow::Error::msg)?;
    assert_eq!(before.len(), 10, "{before:?}");
    tokio::time::sleep(time).await;
    let after = versions(case, &job).await.map_err(anyhow::Error::msg)?;
    assert_eq!(after, before);
    Ok(())
}

#[test]
fn nothing_of_a_gang_in_parts_is_written_at_rest() {
    let minute = Duration::from_secs(60);
    managed_long("splitrest", async |case| at_rest_for(case, minute).await);
}
