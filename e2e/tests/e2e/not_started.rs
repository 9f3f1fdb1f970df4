//! Pods that are bound and never run: what keeps them is named, and a job that is itself at fault waits for
//! another template.

use anyhow::ensure;
use e2e::harness::kinds::VOLCANO_JOB;
use serde_json::{Value, json};
use std::time::Duration;

use crate::case::{A_WHILE, Case};
use crate::job::{clusters, record, says};
use crate::story::managed;

/// More than a scheduler has to bind pods.
const TWO_MINUTES: Duration = Duration::from_secs(120);

/// A Volcano Job of one whole node whose pod waits on it with ImagePullBackOff and this message.
fn waiting_with(case: &Case, message: &str) -> Value {
    let mut job = case.gang("train", 1, 8).volcano();
    let template = &mut job["spec"]["tasks"][0]["template"];
    template["metadata"]["annotations"]["muster.io/wait-with"] = json!("ImagePullBackOff");
    template["metadata"]["annotations"]["muster.io/wait-message"] = json!(message);
    job
}

async fn queue_and_nodes(case: &Case) -> anyhow::Result<()> {
    case.queue(16).await?;
    let policy = json!({"spec": {"placement": {
        "preferredClusters": ["member1"], "startDeadlineSeconds": 15,
    }}});
    case.capacity_policy(policy).await?;
    case.nodes("member1", 1).await?;
    case.nodes("member2", 1).await?;
    Ok(())
}

/// The image does not exist: the job gives its GPUs back at the start deadline, and runs once its template is
/// mended.
pub(crate) async fn no_such_image(case: &Case) -> anyhow::Result<()> {
    queue_and_nodes(case).await?;
    let message = "Back-off pulling image \"train:1\": ErrImagePull: train:1: not found";
    let job = case.submit(&waiting_with(case, message)).await?;
    case.pod_group_when(&job, "names what keeps its pod", |group| {
        says(group, "PodsNotStarting", "1 has ImagePullBackOff")
    })
    .await?;
    case.midway().await?;
    case.pod_group_when(&job, "held with the reason", |group| {
        says(group, "PodsCannotStart", "train:1: not found")
    })
    .await?;
    case.shows_gpus(&case.name, "allocated", 0).await?;
    case.stays_unplaced(&job, A_WHILE).await?;
    let mended = json!({"spec": {"tasks": [{
        "name": "worker", "replicas": 1, "template": case.gang("train", 1, 8).volcano()["spec"]["tasks"][0]["template"],
    }]}});
    case.karmada()
        .merge(VOLCANO_JOB, Some(&case.name), &job.name, &mended)
        .await?;
    case.running(&job).await?;
    Ok(())
}

/// The registry does not answer one cluster: that is not the job's fault, and it is tried in another.
async fn registry_unreachable(case: &Case) -> anyhow::Result<()> {
    queue_and_nodes(case).await?;
    let message =
        "Back-off pulling image \"train:1\": ErrImagePull: dial tcp 10.0.0.1:443: i/o timeout";
    let job = case.submit(&waiting_with(case, message)).await?;
    ensure!(case.placed(&job).await? == ["member1"]);
    let elsewhere = |binding: &Value| {
        clusters(binding) == ["member2"] && record(binding)["attempt"].as_u64() > Some(1)
    };
    case.binding_when(&job, "placed in member2", elsewhere)
        .await?;
    Ok(())
}

/// A claim does not exist: no scheduler binds the pods, and their jobs say what it says. A Volcano Job and a batch
/// Job, whose clusters have different schedulers.
async fn no_such_claim(case: &Case) -> anyhow::Result<()> {
    case.queue(16).await?;
    case.nodes("member1", 2).await?;
    let volumes = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]);
    let mut volcano = case.gang("volcano", 1, 8).volcano();
    volcano["spec"]["tasks"][0]["template"]["spec"]["volumes"] = volumes.clone();
    let mut batch = case.gang("batch", 1, 8).batch();
    batch["spec"]["template"]["spec"]["volumes"] = volumes;
    let jobs = [case.submit(&volcano).await?, case.submit(&batch).await?];
    for job in &jobs {
        let group = case
            .pod_group_within(TWO_MINUTES, job, "says what its scheduler says", |group| {
                says(
                    group,
                    "PodsNotScheduled",
                    "persistentvolumeclaim \"data\" not found",
                )
            })
            .await?;
        ensure!(
            says(&group, "PodsNotScheduled", "Unschedulable (pod "),
            "{group}"
        );
    }
    Ok(())
}

#[test]
#[ignore = "soak"]
fn a_job_whose_claim_does_not_exist_says_what_the_scheduler_of_its_cluster_says() {
    managed("noclaim", no_such_claim);
}

#[test]
fn a_job_whose_image_does_not_exist_waits_until_its_template_is_mended() {
    managed("noimage", no_such_image);
}

#[test]
fn a_job_whose_registry_does_not_answer_is_tried_in_another_cluster() {
    managed("noregistry", registry_unreachable);
}
