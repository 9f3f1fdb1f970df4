//! JobSets over several clusters, which JobSet's own controller and webhook run.

use std::collections::BTreeSet;

use anyhow::{Context as _, ensure};
use e2e::harness::jobs::annotated;
use e2e::harness::kinds::JOB_SET;
use e2e::harness::wait::eventually;
use serde_json::{Value, json};

use crate::case::{Case, SOON};
use crate::job::Job;
use crate::leading_part::{Middle, room_for_seven, shows, succeeds_with_its_master};
use crate::rendezvous::told;
use crate::split::{environment, no_pods, of_metadata, play, pods_of, ranks_are_whole};
use crate::story::{managed, managed_and_killed};
use crate::ttl::SECONDS;

/// Returns a JobSet of a driver and `workers` workers with two GPUs each, which may be split.
fn training(case: &Case, name: &str, workers: u32) -> Value {
    let set = case.gang(name, workers + 1, 2).job_set();
    annotated(set, "muster.io/split", "Allowed")
}

/// Returns the same JobSet, with workers as pods of one Job, and the driver as coordinator and
/// success policy.
pub(crate) fn led(case: &Case, name: &str, workers: u32) -> Value {
    let mut set = training(case, name, workers);
    let spec = &mut set["spec"];
    let of_workers = &mut spec["replicatedJobs"][1];
    of_workers["replicas"] = json!(1);
    of_workers["template"]["spec"]["parallelism"] = json!(workers);
    of_workers["template"]["spec"]["completions"] = json!(workers);
    spec["coordinator"] = json!({"replicatedJob": "driver"});
    spec["successPolicy"] = json!({"operator": "All", "targetReplicatedJobs": ["driver"]});
    set
}

/// Waits until the template's status shows, for each replicated job, this number of Jobs in a
/// state.
async fn template_counts(case: &Case, job: &Job, state: &str, want: &Value) -> anyhow::Result<()> {
    let what = format!("the template counts {want} {state}");
    eventually(SOON, &what, async || {
        let template = case.template(job).await?.unwrap_or_default();
        let status = &template["status"]["replicatedJobsStatus"];
        let jobs = status.as_array().cloned().unwrap_or_default();
        let counts = jobs.iter().map(|job| json!([job["name"], job[state]]));
        match json!(counts.collect::<Vec<_>>()) == *want {
            true => Ok(()),
            false => Err(template["status"].to_string()),
        }
    })
    .await
}

/// Checks that an annotation added to a running JobSet reaches its members, whose webhook accepts
/// it.
async fn is_updated_in_its_members(case: &Case, job: &Job) -> anyhow::Result<()> {
    let (key, at) = ("muster.io/checkpointed-at", "2026-11-21T14:00:00Z");
    let patch = json!({"metadata": {"annotations": {(key): at}}});
    let namespace = Some(case.name.as_str());
    case.karmada()
        .merge(JOB_SET, namespace, &job.name, &patch)
        .await?;
    for cluster in pods_of(case, job).await?.keys() {
        let member = case.plane.member(cluster).await?;
        let what = format!("{cluster} has the annotation");
        eventually(SOON, &what, async || {
            let set = member.get(JOB_SET, namespace, &job.name).await;
            let set = set.map_err(|error| error.to_string())?.unwrap_or_default();
            match set["metadata"]["annotations"][key] == at {
                true => Ok(()),
                false => Err(set["metadata"].to_string()),
            }
        })
        .await?;
    }
    Ok(())
}

/// A driver and five workers run over two clusters with capacity for four each.
pub(crate) async fn by_jobs(case: &Case) -> anyhow::Result<()> {
    case.queue(24).await?;
    case.nodes("member1", 1).await?;
    case.nodes("member2", 1).await?;
    let job = case.submit(&training(case, "train", 5)).await?;
    case.running(&job).await?;
    assert_eq!(ranks_are_whole(case, &job, 6).await?, [4, 2]);
    let pods = pods_of(case, &job).await?;
    let indexes = pods["member1"]
        .iter()
        .filter(|pod| {
            pod["metadata"]["labels"]["jobset.sigs.k8s.io/replicatedjob-name"] == "workers"
        })
        .filter_map(|pod| of_metadata(pod, "MUSTER_REPLICA_INDEX"));
    assert_eq!(indexes.collect::<BTreeSet<_>>(), ["0", "1", "2"].into());
    template_counts(case, &job, "ready", &json!([["driver", 1], ["workers", 5]])).await?;
    is_updated_in_its_members(case, &job).await?;
    case.midway().await?;

    case.end(&job).await?;
    case.finished(&job, "Succeeded").await?;
    shows(case, &job, "Completed").await?;
    template_counts(
        case,
        &job,
        "succeeded",
        &json!([["driver", 1], ["workers", 5]]),
    )
    .await?;
    let template = case.template(&job).await.map_err(anyhow::Error::msg)?;
    let template = template.context("no template")?;
    assert_eq!(template["status"]["terminalState"], "Completed");
    case.shows_gpus(&case.name, "allocated", 0).await?;
    case.delete(&job).await?;
    case.gone(&job).await?;
    let report = case.audit(24, [&job])?;
    assert_eq!(report.violations, Vec::<String>::new());
    Ok(())
}

/// A driver and a Job of six pods: all pods have the driver's address, and end with it.
pub(crate) async fn by_pods(case: &Case) -> anyhow::Result<()> {
    room_for_seven(case).await?;
    let first = case.submit(&led(case, "first", 6)).await?;
    case.running(&first).await?;
    ranks_are_whole(case, &first, 7).await?;
    let own = "first-driver-0-0.first";
    for (cluster, pods) in &pods_of(case, &first).await? {
        let driver = pods.iter().any(|pod| {
            pod["metadata"]["labels"]["jobset.sigs.k8s.io/replicatedjob-name"] == "driver"
        });
        for pod in pods {
            let address = environment(pod, "MUSTER_LEADER_ADDRESS").unwrap_or_default();
            assert_eq!(address == own, driver, "{cluster} gets {address}");
            let known = &pod["metadata"]["annotations"]["jobset.sigs.k8s.io/coordinator"];
            assert_eq!(*known, address);
        }
    }
    case.delete(&first).await?;
    case.gone(&first).await?;

    let mut training = led(case, "train", 6);
    training["spec"]["ttlSecondsAfterFinished"] = json!(SECONDS);
    succeeds_with_its_master(case, training, "Completed", Middle::Ended).await
}

/// A worker fails for good: the gang has failed, reports where, and all of its pods go.
pub(crate) async fn fails(case: &Case) -> anyhow::Result<()> {
    case.queue(24).await?;
    case.nodes("member1", 1).await?;
    case.nodes("member2", 1).await?;
    let job = case.submit(&training(case, "train", 5)).await?;
    case.running(&job).await?;
    let badly = json!({"muster.io/fail": "true"});
    play(case, &job, |cluster, _| cluster == "member2", badly).await?;
    case.finished(&job, "Failed").await?;
    shows(case, &job, "Failed").await?;
    let template = case.template(&job).await.map_err(anyhow::Error::msg)?;
    let conditions = template.unwrap_or_default()["status"]["conditions"].to_string();
    ensure!(conditions.contains("in member2: "), "{conditions}");
    no_pods(case, &job).await?;
    let none = json!([["driver", 0], ["workers", 0]]);
    template_counts(case, &job, "active", &none).await?;
    template_counts(case, &job, "ready", &none).await?;
    case.shows_gpus(&case.name, "allocated", 0).await
}

/// A JobSet that would restart a part alone stays in one cluster, and reports why.
pub(crate) async fn refused(case: &Case) -> anyhow::Result<()> {
    case.queue(24).await?;
    case.nodes("member1", 1).await?;
    case.nodes("member2", 1).await?;
    let mut restarts = training(case, "restarts", 5);
    restarts["spec"]["failurePolicy"] = json!({"maxRestarts": 3});
    let job = case.submit(&restarts).await?;
    case.waits(&job, &["ExceedsFleet"]).await?;
    told(case, "spec.failurePolicy.maxRestarts would restart").await?;
    case.node_group("member1", "more", 1).await?;
    case.running(&job).await?;
    assert_eq!(pods_of(case, &job).await?.len(), 1);
    Ok(())
}

#[test]
fn a_jobset_is_split_by_jobs_and_every_rank_is_there_once() {
    managed("jobset", by_jobs);
}

#[test]
#[ignore = "soak"]
fn a_jobset_is_split_by_jobs_though_muster_is_killed() {
    managed_and_killed("jobsetkilled", by_jobs);
}

#[test]
fn a_jobset_over_two_clusters_knows_its_driver_and_succeeds_with_it() {
    managed("jobsetled", by_pods);
}

#[test]
fn a_jobset_whose_part_fails_has_failed() {
    managed("jobsetfailed", fails);
}

#[test]
fn a_jobset_that_restarts_runs_in_one_cluster_and_says_why() {
    managed("jobsetwhole", refused);
}
