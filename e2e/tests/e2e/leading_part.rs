//! Gangs over clusters that end when their leader succeeds, whatever their other pods do.

use anyhow::ensure;
use e2e::harness::wait::eventually;
use serde_json::{Value, json};

use crate::case::{Case, SOON};
use crate::job::Job;
use crate::rendezvous::ADDRESSES;
use crate::split::{no_pods, play, pods_of};
use crate::story::{managed, managed_and_killed};
use crate::ttl::SECONDS;

/// Returns true if a pod is the master of a PyTorchJob, an XGBoostJob or a Volcano Job, the chief of
/// a TFJob, the driver of a JobSet, or the launcher of an MPIJob (but not a placeholder for it).
pub(crate) fn leads(pod: &Value) -> bool {
    let labels = &pod["metadata"]["labels"];
    let group = &labels["training.kubeflow.org/replica-type"];
    let driver = &labels["jobset.sigs.k8s.io/replicatedjob-name"];
    let launcher = labels["training.kubeflow.org/job-role"] == "launcher";
    let leader = group == "master"
        || group == "chief"
        || labels["volcano.sh/task-spec"] == "master"
        || driver == "driver"
        || launcher;
    leader && pod["spec"]["schedulingGates"].is_null()
}

/// Returns the cluster with the master.
pub(crate) async fn leading(case: &Case, job: &Job) -> anyhow::Result<String> {
    let pods = pods_of(case, job).await?;
    ensure!(pods.len() == 2, "{} is in {:?}", job.name, pods.keys());
    let first = pods.iter().find(|(_, pods)| pods.iter().any(leads));
    Ok(first
        .map(|(cluster, _)| cluster.clone())
        .unwrap_or_default())
}

/// Makes the leader's pod succeed.
pub(crate) async fn end_leader(case: &Case, job: &Job) -> anyhow::Result<()> {
    let well = json!({"muster.io/run-for": "1ms"});
    play(case, job, |_, pod| leads(pod), well).await
}

/// Waits until the last condition of a job's template, which kubectl shows, has this type.
pub(crate) async fn shows(case: &Case, job: &Job, state: &str) -> anyhow::Result<()> {
    let what = format!("the template says {state}");
    eventually(SOON, &what, async || {
        let template = case.template(job).await?.unwrap_or_default();
        let status = &template["status"];
        let conditions = status["conditions"].as_array();
        let last = conditions.and_then(|conditions| conditions.last());
        let last = last.filter(|last| last["status"] == "True");
        let phase = last.map_or(&status["state"]["phase"], |last| &last["type"]);
        match phase == state {
            true => Ok(()),
            false => Err(status.to_string()),
        }
    })
    .await
}

/// Creates a queue and nodes for exactly one gang of seven over two clusters.
pub(crate) async fn room_for_seven(case: &Case) -> anyhow::Result<()> {
    case.queue(14).await?;
    case.nodes("member1", 1).await?;
    case.nodes("member2", 1).await?;
    let addresses = json!({"spec": {"placement": {"addresses": {"*": ADDRESSES}}}});
    case.capacity_policy(addresses).await
}

/// The point in [`succeeds_with_its_master`] at which the story has its middle.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Middle {
    /// Its master has ended, and the others still run.
    Ended,
    /// It has succeeded, and its time to live has started.
    Succeeded,
}

/// The master succeeds while workers in both clusters would run for ever: the job has succeeded,
/// its pods go, the next job gets its quota, and it is deleted after its time to live.
pub(crate) async fn succeeds_with_its_master(
    case: &Case,
    training: Value,
    state: &str,
    middle: Middle,
) -> anyhow::Result<()> {
    let mut next = training.clone();
    next["metadata"]["name"] = json!("next");
    let job = case.submit(&training).await?;
    case.running(&job).await?;
    let next = case.submit(&next).await?;
    case.waits(&next, &["WaitingForQuota", "NextInLine"])
        .await?;
    end_leader(case, &job).await?;
    if middle == Middle::Ended {
        case.midway().await?;
    }
    case.finished(&job, "Succeeded").await?;
    shows(case, &job, state).await?;
    no_pods(case, &job).await?;
    case.running(&next).await?;
    if middle == Middle::Succeeded {
        case.midway().await?;
    }
    case.gone(&job).await?;
    let report = case.audit(14, [&job, &next])?;
    assert_eq!(report.violations, Vec::<String>::new());
    Ok(())
}

pub(crate) async fn pytorch(case: &Case) -> anyhow::Result<()> {
    room_for_seven(case).await?;
    let mut training = crate::rendezvous::training(case, "train", 6, 23456);
    training["spec"]["runPolicy"]["ttlSecondsAfterFinished"] = json!(SECONDS);
    succeeds_with_its_master(case, training, "Succeeded", Middle::Ended).await
}

pub(crate) async fn volcano(case: &Case) -> anyhow::Result<()> {
    room_for_seven(case).await?;
    let mut training = crate::split::training(case, "train", 6);
    training["spec"]["tasks"][0]["policies"] =
        json!([{"event": "TaskCompleted", "action": "CompleteJob"}]);
    training["spec"]["ttlSecondsAfterFinished"] = json!(SECONDS);
    succeeds_with_its_master(case, training, "Completed", Middle::Succeeded).await
}

/// A worker that fails after the master has succeeded changes nothing; one that fails while the
/// master runs fails the job.
pub(crate) async fn workers_fail(case: &Case) -> anyhow::Result<()> {
    room_for_seven(case).await?;
    let badly = || json!({"muster.io/fail": "true"});
    let late = crate::rendezvous::training(case, "late", 6, 23456);
    let late = case.submit(&late).await?;
    case.running(&late).await?;
    let first = leading(case, &late).await?;
    end_leader(case, &late).await?;
    shows(case, &late, "Succeeded").await?;
    play(case, &late, |cluster, _| cluster != first, badly()).await?;
    case.finished(&late, "Succeeded").await?;
    shows(case, &late, "Succeeded").await?;
    case.delete(&late).await?;
    case.gone(&late).await?;

    let early = crate::rendezvous::training(case, "early", 6, 23456);
    let early = case.submit(&early).await?;
    case.running(&early).await?;
    let first = leading(case, &early).await?;
    play(case, &early, |cluster, _| cluster != first, badly()).await?;
    case.finished(&early, "Failed").await?;
    shows(case, &early, "Failed").await?;
    no_pods(case, &early).await?;
    counts_no_pods(case, &early).await
}

/// Waits until the template's status counts no active pods in any of its groups.
async fn counts_no_pods(case: &Case, job: &Job) -> anyhow::Result<()> {
    eventually(SOON, "the template counts no active pods", async || {
        let template = case.template(job).await?.unwrap_or_default();
        let groups = template["status"]["replicaStatuses"].as_object();
        let mut groups = groups.into_iter().flat_map(|groups| groups.values());
        match groups.all(|group| group["active"].as_u64().unwrap_or_default() == 0) {
            true => Ok(()),
            false => Err(template["status"].to_string()),
        }
    })
    .await
}

#[test]
fn a_pytorchjob_over_two_clusters_succeeds_with_its_master() {
    managed("leadtorch", pytorch);
}

#[test]
#[ignore = "soak"]
fn a_pytorchjob_over_two_clusters_succeeds_with_its_master_though_muster_is_killed() {
    managed_and_killed("leadkilled", pytorch);
}

#[test]
fn a_volcano_job_over_two_clusters_succeeds_with_the_task_that_completes_it() {
    managed("leadvolcano", volcano);
}

#[test]
fn workers_that_fail_after_the_master_has_ended_change_nothing() {
    managed("leadfailed", workers_fail);
}
