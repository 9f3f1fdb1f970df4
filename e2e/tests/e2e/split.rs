//! Gangs over several clusters: each cluster gets its part, every pod its rank, and the gang is all
//! or nothing.

use std::collections::BTreeMap;

use anyhow::{Context as _, ensure};
use e2e::harness::jobs::annotated;
use e2e::harness::kinds::{BATCH_JOB, BINDING, OVERRIDE_POLICY, POD, QUEUE};
use e2e::harness::wait::eventually;
use serde_json::{Value, json};

use crate::case::{Case, SOON};
use crate::job::{Job, clusters, record};
use crate::refusals::refuses_jobs;
use crate::story::{managed, managed_long};

/// Returns a Volcano Job of a master and `workers` workers with two GPUs each, which may be split.
pub(crate) fn training(case: &Case, name: &str, workers: u32) -> Value {
    let mut job = annotated(
        case.gang(name, workers, 2).volcano(),
        "muster.io/split",
        "Allowed",
    );
    let mut master = job["spec"]["tasks"][0].clone();
    master["name"] = json!("master");
    master["replicas"] = json!(1);
    let tasks = job["spec"]["tasks"].as_array_mut().unwrap();
    tasks.insert(0, master);
    job["spec"]["minAvailable"] = json!(workers + 1);
    job["spec"]["plugins"] = json!({"env": []});
    job
}

/// Returns the pods of a job by cluster.
pub(crate) async fn pods_of(
    case: &Case,
    job: &Job,
) -> anyhow::Result<BTreeMap<String, Vec<Value>>> {
    pods_in(case, job, &case.members()).await
}

/// Returns the pods of a job in these clusters.
pub(crate) async fn pods_in(
    case: &Case,
    job: &Job,
    members: &[&str],
) -> anyhow::Result<BTreeMap<String, Vec<Value>>> {
    let mut pods = BTreeMap::new();
    for &member in members {
        let all = case.pods(member).await?;
        let own: Vec<Value> = all.into_iter().filter(|pod| job.owns(pod)).collect();
        if !own.is_empty() {
            pods.insert(member.to_owned(), own);
        }
    }
    Ok(pods)
}

/// Waits until the members have no pod of the job.
pub(crate) async fn no_pods(case: &Case, job: &Job) -> anyhow::Result<()> {
    eventually(SOON, "no pod of it is left", async || {
        let pods = pods_of(case, job).await;
        let pods = pods.map_err(|error| error.to_string())?;
        match pods.is_empty() {
            true => Ok(()),
            false => Err(format!("{:?}", pods.keys())),
        }
    })
    .await
}

/// Annotates those pods of a job for which `are` is true; the annotations make the testbed end or
/// fail them.
pub(crate) async fn play(
    case: &Case,
    job: &Job,
    are: impl Fn(&str, &Value) -> bool,
    annotations: Value,
) -> anyhow::Result<()> {
    let patch = json!({"metadata": {"annotations": annotations}});
    let mut simulated = 0;
    for (cluster, pods) in pods_of(case, job).await? {
        let member = case.plane.member(&cluster).await?;
        for pod in pods.iter().filter(|pod| are(&cluster, pod)) {
            let name = pod["metadata"]["name"].as_str().unwrap_or_default();
            member.merge(POD, Some(&case.name), name, &patch).await?;
            simulated += 1;
        }
    }
    ensure!(simulated > 0, "{} has no such pods", job.name);
    Ok(())
}

pub(crate) fn environment<'a>(pod: &'a Value, name: &str) -> Option<&'a str> {
    let containers = pod["spec"]["containers"].as_array()?;
    let environment = containers.first()?["env"].as_array()?;
    let variable = environment
        .iter()
        .find(|variable| variable["name"] == name)?;
    variable["value"].as_str()
}

/// Returns a variable that a kubelet would set from a label or an annotation.
pub(crate) fn of_metadata<'a>(pod: &'a Value, name: &str) -> Option<&'a str> {
    let environment = pod["spec"]["containers"][0]["env"].as_array()?;
    let variable = environment
        .iter()
        .find(|variable| variable["name"] == name)?;
    let path = variable["valueFrom"]["fieldRef"]["fieldPath"].as_str()?;
    let (map, key) = path.strip_prefix("metadata.")?.split_once("['")?;
    pod["metadata"][map][key.trim_end_matches("']")].as_str()
}

/// Returns the rank of a pod in the whole gang, as its program computes it.
pub(crate) fn rank(pod: &Value) -> anyhow::Result<u64> {
    let offset = environment(pod, "MUSTER_RANK_OFFSET").context("no offset")?;
    let completion = "batch.kubernetes.io/job-completion-index";
    let index = environment(pod, "VC_TASK_INDEX")
        .or_else(|| of_metadata(pod, "MUSTER_REPLICA_INDEX"))
        .or_else(|| environment(pod, "MUSTER_REPLICA_INDEX"))
        .or_else(|| pod["metadata"]["annotations"][completion].as_str());
    Ok(offset.parse::<u64>()? + index.context("no index")?.parse::<u64>()?)
}

/// Ensures that the pods of a gang of `size` have every rank once, and the same values of the whole
/// gang.
pub(crate) async fn ranks_are_whole(
    case: &Case,
    job: &Job,
    size: u64,
) -> anyhow::Result<Vec<usize>> {
    let pods = pods_of(case, job).await?;
    let binding = case.binding(job).await.map_err(anyhow::Error::msg)?;
    let names = clusters(&binding.unwrap_or_default()).join(",");
    let mut ranks = Vec::new();
    for (cluster, pods) in &pods {
        for pod in pods {
            ranks.push(rank(pod)?);
            let told = |name| environment(pod, name).unwrap_or_default();
            assert_eq!(told("MUSTER_CLUSTER"), cluster);
            assert_eq!(told("MUSTER_CLUSTERS"), names);
            assert_eq!(told("MUSTER_GANG_SIZE"), size.to_string());
        }
    }
    ranks.sort_unstable();
    assert_eq!(ranks, (0..size).collect::<Vec<_>>());
    Ok(pods.values().map(Vec::len).collect())
}

/// Waits until no override of the job is left.
async fn override_gone(case: &Case, job: &Job) -> anyhow::Result<()> {
    let name = format!("muster-{}", job.binding());
    eventually(SOON, "its override is gone", async || {
        let found = case
            .karmada()
            .get(OVERRIDE_POLICY, Some(&case.name), &name)
            .await;
        match found.map_err(|error| error.to_string())? {
            None => Ok(()),
            Some(policy) => Err(policy["metadata"].to_string()),
        }
    })
    .await
}

/// A master and nine workers run over two clusters with capacity for eight and four.
pub(crate) async fn volcano(case: &Case) -> anyhow::Result<()> {
    case.queue(24).await?;
    case.nodes("member1", 2).await?;
    case.nodes("member2", 1).await?;
    let job = case.submit(&training(case, "train", 9)).await?;
    let group = case.running(&job).await?;
    let parts = ranks_are_whole(case, &job, 10).await?;
    assert_eq!(parts, [8, 2]);
    let placement = &group["status"]["federation"]["placementSummary"];
    assert_eq!(placement, "member1:8,member2:2");
    let binding = case.binding(&job).await.map_err(anyhow::Error::msg)?;
    let binding = binding.context("no binding")?;
    assert_eq!(record(&binding)["parts"], "Dispatched");
    case.midway().await?;
    // The template's status shows the whole gang in the kind's own fields.
    eventually(SOON, "the template says that it runs", async || {
        let template = case.template(&job).await?.unwrap_or_default();
        let status = &template["status"];
        let whole = (
            &status["state"]["phase"],
            &status["running"],
            &status["minAvailable"],
        );
        match whole == (&json!("Running"), &json!(10), &json!(10)) {
            true => Ok(()),
            false => Err(status.to_string()),
        }
    })
    .await?;
    case.end(&job).await?;
    case.finished(&job, "Succeeded").await?;
    eventually(SOON, "the template says that it is over", async || {
        let template = case.template(&job).await?.unwrap_or_default();
        match template["status"]["state"]["phase"] == "Completed" {
            true => Ok(()),
            false => Err(template["status"].to_string()),
        }
    })
    .await?;
    case.shows_gpus(&case.name, "allocated", 0).await?;
    case.delete(&job).await?;
    case.gone(&job).await?;
    override_gone(case, &job).await?;
    let report = case.audit(24, [&job])?;
    assert_eq!(report.violations, Vec::<String>::new());
    Ok(())
}

/// Ten indexed pods run over three clusters with capacity for four each.
pub(crate) async fn indexed(case: &Case) -> anyhow::Result<()> {
    case.queue(24).await?;
    for member in crate::plane::MEMBERS {
        case.nodes(member, 1).await?;
    }
    // The job does not say whether it may be split; its queue does.
    let split = json!({"spec": {"placement": {"split": "Allowed"}}});
    case.capacity_policy(split).await?;
    let mut template = case.gang("array", 10, 2).batch();
    template["spec"]["completionMode"] = json!("Indexed");
    let job = case.submit(&template).await?;
    case.running(&job).await?;
    let mut parts = ranks_are_whole(case, &job, 10).await?;
    parts.sort_unstable();
    assert_eq!(parts, [2, 4, 4]);
    case.midway().await?;
    case.end(&job).await?;
    case.finished(&job, "Succeeded").await?;
    let ended = "the template says that it is over";
    eventually(SOON, ended, async || {
        let template = case.template(&job).await?.unwrap_or_default();
        match template["status"]["succeeded"] == 10 {
            true => Ok(()),
            false => Err(template["status"].to_string()),
        }
    })
    .await
}

/// A member refuses its part: the whole gang is evicted, and runs elsewhere.
pub(crate) async fn refused(case: &Case) -> anyhow::Result<()> {
    case.queue(24).await?;
    case.nodes("member1", 1).await?;
    case.nodes("member2", 1).await?;
    refuses_jobs(case, "member2").await?;
    let job = case.submit(&training(case, "train", 5)).await?;
    // The gang was placed in both clusters, and evicted because one refused. The reason matters: a
    // job that was never placed also waits for capacity.
    let refused = |binding: &Value| {
        let record = record(binding);
        let message = record["message"].as_str().unwrap_or_default();
        clusters(binding).is_empty()
            && record["reason"] == "MemberRefused"
            && message.starts_with("member2 refused its part: ")
            && record["clusters"].as_array().map(Vec::len) == Some(2)
    };
    case.binding_when(&job, "evicted as refused", refused)
        .await?;
    let told = |group: &Value| {
        let federation = &group["status"]["federation"];
        federation["eviction"]["reason"] == "MemberRefused"
    };
    case.pod_group_when(&job, "says that it was refused", told)
        .await?;
    case.waits(&job, &["BackingOff", "WaitingForRoom"]).await?;
    no_pods(case, &job).await?;
    case.node_group("member1", "more", 1).await?;
    case.running(&job).await?;
    let parts = ranks_are_whole(case, &job, 6).await?;
    assert_eq!(parts, [6], "the whole gang runs where it is accepted");
    ensure!(case.placements(&job)? >= 2, "it was not placed before");
    Ok(())
}

/// A part fails for good: the other parts are stopped, the gang has failed, and is not retried.
pub(crate) async fn failed(case: &Case) -> anyhow::Result<()> {
    case.queue(24).await?;
    case.nodes("member1", 1).await?;
    case.nodes("member2", 1).await?;
    let job = case.submit(&training(case, "train", 5)).await?;
    case.running(&job).await?;
    let badly = json!({"muster.io/fail": "true"});
    play(case, &job, |cluster, _| cluster == "member2", badly).await?;
    case.finished(&job, "Failed").await?;
    let group = case.pod_group(&job).await.map_err(anyhow::Error::msg)?;
    let group = group.context("no PodGroup")?;
    let message = group["status"]["federation"]["message"].to_string();
    ensure!(message.contains("member2"), "{message}");
    no_pods(case, &job).await?;
    case.shows_gpus(&case.name, "allocated", 0).await?;
    case.midway().await?;
    case.stays_unplaced(&job, crate::case::A_WHILE).await
}

/// A part never starts: all parts are evicted at the deadline.
pub(crate) async fn stuck(case: &Case) -> anyhow::Result<()> {
    case.queue(24).await?;
    case.capacity_policy(json!({"spec": {"placement": {"startDeadlineSeconds": 20}}}))
        .await?;
    case.nodes("member1", 1).await?;
    case.nodes("member2", 1).await?;
    let closed = json!({
        "apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue",
        "metadata": {"name": case.name},
        "spec": {"weight": 1, "capability": {"nvidia.com/gpu": 1}},
    });
    case.plane
        .member("member2")
        .await?
        .create(QUEUE, &closed)
        .await?;
    let job = case.submit(&training(case, "train", 5)).await?;
    case.placed(&job).await?;
    let back = |binding: &Value| record(binding)["reason"] == "StartDeadlineExceeded";
    case.binding_when(&job, "evicted", back).await?;
    case.node_group("member1", "more", 1).await?;
    case.running(&job).await?;
    let binding = case
        .karmada()
        .get(BINDING, Some(&case.name), &job.binding())
        .await?;
    assert_eq!(clusters(&binding.unwrap_or_default()), ["member1"]);
    Ok(())
}

/// In each round two gangs contend for capacity for one: one of them runs whole, the other not at
/// all.
pub(crate) async fn contended_for(case: &Case, rounds: u32) -> anyhow::Result<()> {
    case.queue(100).await?;
    case.nodes("member1", 1).await?;
    case.nodes("member2", 1).await?;
    for round in 0..rounds {
        let names = ["a", "b"].map(|word| format!("{word}{round}"));
        let (a, b) = tokio::try_join!(
            async { case.submit(&training(case, &names[0], 5)).await },
            async { case.submit(&training(case, &names[1], 5)).await },
        )?;
        let first = eventually(SOON, "one of them runs", async || {
            for job in [&a, &b] {
                let group = case.pod_group(job).await?.unwrap_or_default();
                if crate::job::condition(&group, "Ready")["status"] == "True" {
                    return Ok(job);
                }
            }
            Err("none".to_owned())
        })
        .await?;
        let second = if first.name == a.name { &b } else { &a };
        case.stays_unplaced(second, crate::case::A_WHILE).await?;
        let pods = pods_of(case, second).await?;
        ensure!(
            pods.is_empty(),
            "{} has pods in {:?}",
            second.name,
            pods.keys()
        );
        case.end(first).await?;
        case.running(second).await?;
        ranks_are_whole(case, second, 6).await?;
        case.end(second).await?;
        case.finished(second, "Succeeded").await?;
    }
    Ok(())
}

/// A hundred gangs at once, each over as many clusters as its policy allows: all of them run, with
/// every rank once.
pub(crate) async fn hundred(case: &Case) -> anyhow::Result<()> {
    const GANGS: usize = 100;
    case.queue(1_000).await?;
    for member in crate::plane::MEMBERS {
        case.nodes(member, 30).await?;
    }
    let spread = json!({
        "placement": {"spreadConstraints": [
            {"spreadByField": "cluster", "minGroups": 2, "maxGroups": 2},
        ]},
    });
    case.policy("spread", BATCH_JOB, "muster", spread).await?;
    let start = std::time::Instant::now();
    let mut jobs = Vec::new();
    for index in 0..GANGS {
        let gang = case.gang(&format!("gang-{index:02}"), 4, 1).batch();
        let mut gang = annotated(gang, "muster.io/split", "Allowed");
        gang["spec"]["completionMode"] = json!("Indexed");
        jobs.push(case.submit(&gang).await?);
    }
    println!(
        "MEASURED submit_of_{GANGS} {} ms",
        start.elapsed().as_millis()
    );
    for job in &jobs {
        case.running(job).await?;
        assert_eq!(case.placed(job).await?.len(), 2);
    }
    println!(
        "MEASURED all_of_{GANGS}_run {} ms",
        start.elapsed().as_millis()
    );
    for job in jobs.iter().step_by(10) {
        ranks_are_whole(case, job, 4).await?;
    }
    let report = case.audit(1_000, &jobs)?;
    assert_eq!(report.violations, Vec::<String>::new());
    Ok(())
}

#[test]
fn a_gang_is_split_unevenly_and_every_rank_is_there_once() {
    managed("split", volcano);
}

#[test]
fn an_indexed_job_is_split_over_three_clusters() {
    managed("splitindexed", indexed);
}

#[test]
fn a_part_that_is_refused_takes_all_back() {
    managed("splitrefused", refused);
}

#[test]
fn a_part_that_fails_ends_all_of_them() {
    managed("splitfailed", failed);
}

#[test]
fn a_part_that_is_stuck_takes_all_back_at_the_deadline() {
    managed("splitstuck", stuck);
}

#[test]
fn of_two_gangs_with_room_for_one_one_runs_whole() {
    managed_long("splittwo", async |case| contended_for(case, 5).await);
}
