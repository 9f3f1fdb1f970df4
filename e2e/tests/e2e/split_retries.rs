//! Volcano Jobs over two clusters whose policies restart, abort or complete them: what follows in one
//! cluster follows in both.

use anyhow::ensure;
use e2e::harness::kinds::VOLCANO_JOB;
use e2e::harness::wait::eventually;
use serde_json::{Value, json};

use crate::case::{A_WHILE, Case, SOON};
use crate::job::{Job, clusters, condition, record};
use crate::leading_part::{leading, leads, room_for_seven, shows};
use crate::split::{environment, no_pods, play, pods_of, training};
use crate::story::managed;

/// Runs a gang of seven over two clusters with these policies.
async fn gang(case: &Case, policies: Value, max_retry: u32) -> anyhow::Result<Job> {
    room_for_seven(case).await?;
    let mut template = training(case, "train", 6);
    template["spec"]["policies"] = policies;
    template["spec"]["maxRetry"] = json!(max_retry);
    let job = case.submit(&template).await?;
    runs_as(case, &job, "1").await?;
    Ok(job)
}

/// Waits until all pods of the gang run, in both clusters and as this attempt.
async fn runs_as(case: &Case, job: &Job, attempt: &str) -> anyhow::Result<()> {
    let what = format!("{} runs as attempt {attempt}", job.name);
    eventually(SOON, &what, async || {
        let parts = pods_of(case, job).await.map_err(|e| e.to_string())?;
        let pods: Vec<&Value> = parts.values().flatten().collect();
        let runs = |pod: &&&Value| {
            pod["status"]["phase"] == "Running"
                && pod["metadata"]["deletionTimestamp"].is_null()
                && environment(pod, "MUSTER_ATTEMPT") == Some(attempt)
        };
        match (parts.len(), pods.len(), pods.iter().filter(runs).count()) {
            (2, 7, 7) => Ok(()),
            (clusters, all, run) => Err(format!("{run} of {all} pods in {clusters} clusters")),
        }
    })
    .await?;
    case.running(job).await.map(drop)
}

/// Makes the pods of one cluster fail.
async fn fail_in(case: &Case, job: &Job, there: &str) -> anyhow::Result<()> {
    let badly = json!({"muster.io/fail": "true"});
    play(case, job, |cluster, _| cluster == there, badly).await
}

/// Waits until the record of the job counts this number of retries.
async fn retried(case: &Case, job: &Job, retries: u64) -> anyhow::Result<()> {
    let counted = |binding: &Value| {
        let record = record(binding);
        record["retries"].as_u64().unwrap_or_default() == retries
    };
    let what = format!("was restarted {retries} times");
    case.binding_when(job, &what, counted).await.map(drop)
}

/// A pod fails, and `RestartJob` follows: the whole gang starts again as the next attempt, until its
/// `maxRetry` is reached.
pub(crate) async fn restarts(case: &Case) -> anyhow::Result<()> {
    let policies = json!([{"event": "PodFailed", "action": "RestartJob"}]);
    let job = gang(case, policies, 2).await?;
    fail_in(case, &job, "member2").await?;
    // Tools that wait for the job's end must not take the restart for it.
    shows(case, &job, "Restarting").await?;
    retried(case, &job, 1).await?;
    case.midway().await?;
    runs_as(case, &job, "2").await?;
    shows(case, &job, "Running").await?;
    let badly = json!({"muster.io/fail": "true"});
    play(case, &job, |_, pod| leads(pod), badly).await?;
    case.finished(&job, "Failed").await?;
    let group = case.pod_group_when(&job, "says why", |_| true).await?;
    let message = condition(&group, "Finished")["message"].as_str();
    let message = message.unwrap_or_default();
    ensure!(
        message.contains("its maxRetry of 2 is reached"),
        "{message}"
    );
    shows(case, &job, "Terminated").await?;
    no_pods(case, &job).await?;
    case.stays_unplaced(&job, A_WHILE).await?;
    let report = case.audit(14, [&job])?;
    assert_eq!(report.violations, Vec::<String>::new());
    Ok(())
}

/// `AbortJob` in one cluster stops the gang in both. It waits until its user resumes it.
async fn aborts(case: &Case) -> anyhow::Result<()> {
    let policies = json!([{"event": "PodFailed", "action": "AbortJob"}]);
    let job = gang(case, policies, 3).await?;
    fail_in(case, &job, "member2").await?;
    no_pods(case, &job).await?;
    case.pod_group_when(&job, "says how it is resumed", |group| {
        let federation = &group["status"]["federation"];
        let message = federation["message"].as_str().unwrap_or_default();
        federation["reason"] == "Aborted" && message.contains("muster.io/resume-attempt=1")
    })
    .await?;
    case.shows_gpus(&case.name, "allocated", 0).await?;
    case.stays_unplaced(&job, A_WHILE).await?;
    let resume = json!({"metadata": {"annotations": {"muster.io/resume-attempt": "1"}}});
    let namespace = Some(case.name.as_str());
    let templates = case.karmada();
    templates
        .merge(VOLCANO_JOB, namespace, &job.name, &resume)
        .await?;
    runs_as(case, &job, "2").await?;
    let binding = case.binding_when(&job, "placed", |_| true).await?;
    ensure!(clusters(&binding).len() == 2);
    ensure!(
        record(&binding)["retries"].is_null(),
        "{}",
        record(&binding)
    );
    Ok(())
}

/// `CompleteJob` in one cluster completes the gang in both, whichever pod it follows on.
async fn completes(case: &Case) -> anyhow::Result<()> {
    let policies = json!([{"event": "PodFailed", "action": "CompleteJob"}]);
    let job = gang(case, policies, 3).await?;
    fail_in(case, &job, "member2").await?;
    case.finished(&job, "Succeeded").await?;
    shows(case, &job, "Completed").await?;
    no_pods(case, &job).await
}

/// `CompleteJob` by `TaskCompleted` follows when the task has completed in both clusters, not in one. The part
/// without the master completes by itself, and its member counts no pods of it any more.
async fn completes_by_a_task(case: &Case) -> anyhow::Result<()> {
    room_for_seven(case).await?;
    let mut template = training(case, "train", 6);
    template["spec"]["tasks"][1]["policies"] =
        json!([{"event": "TaskCompleted", "action": "CompleteJob"}]);
    let job = case.submit(&template).await?;
    runs_as(case, &job, "1").await?;
    let first = leading(case, &job).await?;
    let well = || json!({"muster.io/run-for": "1ms"});
    play(case, &job, |cluster, _| cluster != first, well()).await?;
    case.binding_when(&job, "has a part that has completed", |binding| {
        let parts = binding["status"]["aggregatedStatus"].as_array();
        let mut parts = parts.into_iter().flatten();
        parts.any(|part| {
            let state = &part["status"]["state"];
            let counts = &part["status"]["taskStatusCount"]["worker"]["phase"];
            state["phase"] == "Completed" && counts["Succeeded"].as_u64() >= Some(3)
        })
    })
    .await?;
    case.running(&job).await?;
    play(case, &job, |_, pod| !leads(pod), well()).await?;
    case.finished(&job, "Succeeded").await?;
    shows(case, &job, "Completed").await?;
    no_pods(case, &job).await
}

#[test]
fn a_split_job_restarts_as_a_whole_until_its_max_retry() {
    managed("splitretry", restarts);
}

#[test]
fn a_split_job_is_aborted_as_a_whole_and_resumed() {
    managed("splitabort", aborts);
}

#[test]
fn a_split_job_is_completed_as_a_whole() {
    managed("splitcomplete", completes);
}

#[test]
fn a_split_job_is_completed_by_a_task_in_all_clusters() {
    managed("splittask", completes_by_a_task);
}
