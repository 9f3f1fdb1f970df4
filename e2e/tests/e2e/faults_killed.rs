//! Faults of nodes and pods while Muster is killed again and again at moments that are not chosen: in the end each
//! job runs or has ended as it must, once, and its queue is charged for what runs.
//!
//! Each fault is a story of its own, with a namespace, a queue and nodes. They run side by side, and wait only for how
//! it ends: what is said on the way may be said by a process that is killed before anybody has read it.

use anyhow::{Context as _, ensure};
use e2e::harness::kinds::{FAULT_POLICY, NODE, VOLCANO_JOB};
use e2e::harness::muster::ProcessRole;
use e2e::harness::wait::eventually;
use serde_json::{Value, json};

use crate::case::{A_WHILE, Case, SOON};
use crate::job::{Job, clusters, condition, is_placed, record};
use crate::split::{play, pods_of, training};
use crate::stopped::Random;
use crate::story::beside;

/// The members of the faults.
const MEMBERS: [&str; 2] = ["member1", "member2"];
/// How often a job whose pods fail is queued again.
const RETRIES: u64 = 2;
/// How often Muster is killed. After that it has the time that its deadlines need: a new leader counts the time that
/// pods are missing from when it has seen that.
const KILLS: u32 = 10;
/// The most jobs that the failing node gets before it is avoided: a killed Muster forgets what failed there.
const MOST_JOBS: u32 = 6;

/// Runs all faults side by side, and kills Muster meanwhile.
pub(crate) async fn side_by_side(case: &Case, seed: u64) -> anyhow::Result<()> {
    let plane = case.plane;
    let name = |word: &str| format!("{}{word}", case.name);
    let faults = async {
        let names = ["device", "taint", "image", "part", "lemon", "fails"].map(name);
        let [device, taint, image, part, lemon, fails] = &names;
        let ended = tokio::join!(
            beside(plane, device, device_lost),
            beside(plane, taint, node_emptied),
            beside(plane, image, image_missing),
            beside(plane, part, part_dies),
            beside(plane, lemon, node_fails),
            beside(plane, fails, job_fails),
        );
        [ended.0, ended.1, ended.2, ended.3, ended.4, ended.5]
    };
    let kills = async {
        let mut random = Random::new(seed);
        for _ in 0..KILLS {
            tokio::time::sleep(random.millis(500, 9_000)).await;
            plane.ensure_healthy().await?;
            plane.muster.kill(&plane.testbed, ProcessRole::All).await?;
            tokio::time::sleep(random.millis(0, 3_000)).await;
            plane.muster.start(&plane.testbed, ProcessRole::All).await?;
        }
        anyhow::Ok(())
    };
    let (ended, killed) = tokio::join!(faults, kills);
    killed?;
    for end in ended {
        end?;
    }
    Ok(())
}

/// Submits a template; while Muster is down its webhook refuses it.
async fn submit(case: &Case, template: &Value) -> anyhow::Result<Job> {
    let name = template["metadata"]["name"].as_str().unwrap_or_default();
    eventually(SOON, &format!("{name} submitted"), async || {
        let submitted = case.submit(template).await;
        submitted.map_err(|error| format!("{error:#}"))
    })
    .await
}

/// Prepares the queue of a story, with `gpus`, and this many nodes in each of the members.
async fn prepare(case: &Case, gpus: u32, nodes: u32, spec: Value) -> anyhow::Result<Vec<String>> {
    case.queue(gpus).await?;
    let mut policy = json!({"spec": spec});
    policy["spec"]["placement"]["preferredClusters"] = json!(["member1"]);
    case.capacity_policy(policy).await?;
    let own = case.nodes(MEMBERS[0], nodes).await?;
    case.nodes(MEMBERS[1], nodes).await?;
    Ok(own)
}

/// Waits until the pods of a job that run are these, by cluster, and no others of it are there.
async fn runs_in(case: &Case, job: &Job, expected: &[(&str, usize)]) -> anyhow::Result<()> {
    let what = format!("{} of {} runs in {expected:?}", job.name, case.name);
    eventually(SOON, &what, async || {
        let pods = pods_of(case, job).await.map_err(|e| format!("{e:#}"))?;
        let runs = |pod: &&Value| {
            pod["metadata"]["deletionTimestamp"].is_null() && pod["status"]["phase"] == "Running"
        };
        let all_run = pods.values().flatten().all(|pod| runs(&pod));
        let found = pods
            .iter()
            .map(|(cluster, pods)| (cluster.as_str(), pods.len()));
        let found: Vec<_> = found.collect();
        let binding = case.binding(job).await?.unwrap_or_default();
        match found == expected && all_run && is_placed(&binding) {
            true => Ok(()),
            false => Err(format!("{found:?}, {}", record(&binding))),
        }
    })
    .await?;
    case.running(job).await.map(drop)
}

/// Waits until the queue is charged for this many GPUs, and checks that it stays so.
async fn is_charged(case: &Case, gpus: u32) -> anyhow::Result<()> {
    case.shows_gpus(&case.name, "allocated", gpus).await?;
    tokio::time::sleep(A_WHILE).await;
    case.shows_gpus(&case.name, "allocated", gpus).await
}

async fn record_of(case: &Case, job: &Job) -> anyhow::Result<Value> {
    let binding = case.binding(job).await.map_err(anyhow::Error::msg)?;
    Ok(record(&binding.context("its binding is gone")?))
}

/// Returns the node of a pod of the job in member1.
async fn a_node_of(case: &Case, job: &Job) -> anyhow::Result<String> {
    let pods = pods_of(case, job).await?;
    let pods = pods.get(MEMBERS[0]).into_iter().flatten();
    let mut nodes = pods.filter_map(|pod| pod["spec"]["nodeName"].as_str());
    let node = nodes.next().context("no pod in member1")?;
    Ok(node.to_owned())
}

/// A node of a gang offers a device less than the gang uses there: the gang goes elsewhere.
async fn device_lost(case: &Case) -> anyhow::Result<()> {
    let policy = json!({"placement": {"recoveryDeadlineSeconds": 15}});
    prepare(case, 16, 2, policy).await?;
    let job = submit(case, &case.gang("train", 2, 8).batch()).await?;
    runs_in(case, &job, &[(MEMBERS[0], 2)]).await?;
    let node = a_node_of(case, &job).await?;
    let fewer = json!({"status": {"allocatable": {"nvidia.com/gpu": "7"}}});
    let member = case.plane.member(MEMBERS[0]).await?;
    member.merge_status(NODE, None, &node, &fewer).await?;
    runs_in(case, &job, &[(MEMBERS[1], 2)]).await?;
    is_charged(case, 16).await?;
    let record = record_of(case, &job).await?;
    ensure!(record["attempt"] == 2, "more than once: {record}");
    Ok(())
}

/// A node of a gang gets a taint that the gang does not tolerate, with effect NoExecute: the gang goes elsewhere.
async fn node_emptied(case: &Case) -> anyhow::Result<()> {
    prepare(case, 16, 2, json!({})).await?;
    let job = submit(case, &case.gang("train", 2, 8).volcano()).await?;
    runs_in(case, &job, &[(MEMBERS[0], 2)]).await?;
    let node = a_node_of(case, &job).await?;
    let taint = json!({"spec": {"taints": [{
        "key": "nvidia.com/gpu-xid-error", "value": "79", "effect": "NoExecute",
    }]}});
    let member = case.plane.member(MEMBERS[0]).await?;
    member.merge(NODE, None, &node, &taint).await?;
    runs_in(case, &job, &[(MEMBERS[1], 2)]).await?;
    is_charged(case, 16).await?;
    let record = record_of(case, &job).await?;
    ensure!(record["attempt"] == 2, "more than once: {record}");
    Ok(())
}

/// An image does not exist: the job gives its GPUs back, is held, and runs once its template is mended.
async fn image_missing(case: &Case) -> anyhow::Result<()> {
    let policy = json!({"placement": {"startDeadlineSeconds": 15}});
    prepare(case, 8, 1, policy).await?;
    let right = case.gang("train", 1, 8).volcano();
    let mut wrong = right.clone();
    let annotations = &mut wrong["spec"]["tasks"][0]["template"]["metadata"]["annotations"];
    annotations["muster.io/wait-with"] = json!("ImagePullBackOff");
    annotations["muster.io/wait-message"] = json!("ErrImagePull: train:1: not found");
    let job = submit(case, &wrong).await?;
    case.pod_group_when(&job, "held with the reason", |group| {
        group["status"]["federation"]["reason"] == "PodsCannotStart"
    })
    .await?;
    is_charged(case, 0).await?;
    case.stays_unplaced(&job, A_WHILE).await?;
    let tasks = json!({"spec": {"tasks": right["spec"]["tasks"]}});
    eventually(SOON, "the template is mended", async || {
        let name = Some(case.name.as_str());
        let mended = case.karmada().merge(VOLCANO_JOB, name, &job.name, &tasks);
        mended.await.map(drop).map_err(|error| error.to_string())
    })
    .await?;
    case.running(&job).await?;
    is_charged(case, 8).await
}

/// The pods of a split gang die in one of its clusters. If Muster has seen that, the whole gang starts again; if it
/// was down, it cannot tell whose fault it was, and the gang has failed as a whole.
async fn part_dies(case: &Case) -> anyhow::Result<()> {
    prepare(case, 12, 1, json!({"retries": {"user": RETRIES}})).await?;
    let job = submit(case, &training(case, "train", 5)).await?;
    let both = [(MEMBERS[0], 4), (MEMBERS[1], 2)];
    runs_in(case, &job, &both).await?;
    let badly = json!({"muster.io/fail": "true"});
    play(case, &job, |cluster, _| cluster == MEMBERS[1], badly).await?;
    let attempts = settled(case, &job, 2).await?;
    println!("MEASURED part_dies {attempts} attempts");
    let over = has_failed(case, &job).await?;
    if over {
        crate::split::no_pods(case, &job).await?;
        return is_charged(case, 0).await;
    }
    runs_in(case, &job, &both).await?;
    is_charged(case, 12).await
}

/// Jobs fail on one node: it is avoided, and the next job runs elsewhere.
async fn node_fails(case: &Case) -> anyhow::Result<()> {
    let fault = format!("{} fell off the bus", case.name);
    let rule = json!({
        "name": "off-the-bus", "class": "Device", "match": {"pod": {"messages": [fault]}},
        "actions": [{"type": "AvoidNode", "avoidNode": {"jobs": 2, "namespaces": 1, "avoidSeconds": 3600}}],
    });
    let policy = json!({"metadata": {"name": case.name}, "spec": {"rules": [rule]}});
    case.cluster_object(FAULT_POLICY, &policy).await?;
    let nodes = prepare(case, 64, 1, json!({})).await?;
    let mut jobs = Vec::new();
    for index in 0..MOST_JOBS {
        let mut job = case.gang(&format!("lost-{index}"), 1, 8).batch();
        let annotations = &mut job["spec"]["template"]["metadata"]["annotations"];
        annotations["muster.io/wait-with"] = json!("CreateContainerError");
        annotations["muster.io/wait-message"] = json!(fault);
        let job = submit(case, &job).await?;
        let placed = case.placed(&job).await?;
        let elsewhere = placed != [MEMBERS[0]];
        if !elsewhere {
            case.pod_group_when(&job, "says what keeps its pod", |group| {
                let message = group["status"]["federation"]["message"].as_str();
                message.is_some_and(|message| message.contains("fell off the bus"))
            })
            .await?;
            // A node is compared with the rules every five seconds.
            tokio::time::sleep(A_WHILE).await;
        }
        case.delete(&job).await?;
        case.gone(&job).await?;
        jobs.push(job);
        if elsewhere {
            break;
        }
    }
    println!("MEASURED node_fails {} jobs", jobs.len());
    let member = case.plane.member(MEMBERS[0]).await?;
    let node = member.get(NODE, None, &nodes[0]).await?.unwrap_or_default();
    let taints = node["spec"]["taints"].as_array().into_iter().flatten();
    let avoided = taints.filter(|taint| taint["key"] == "muster.io/avoid");
    ensure!(avoided.count() == 1, "{}", node["spec"]);
    let job = submit(case, &case.gang("whole", 1, 8).batch()).await?;
    runs_in(case, &job, &[(MEMBERS[1], 1)]).await?;
    is_charged(case, 8).await
}

/// The pods of a job fail in each of its attempts: it is queued again as often as its queue says and not more often.
async fn job_fails(case: &Case) -> anyhow::Result<()> {
    prepare(case, 8, 1, json!({"retries": {"user": RETRIES}})).await?;
    let mut template = case.short_gang("fails", 1, 8, 4).batch();
    let pods = &mut template["spec"]["template"]["metadata"]["annotations"];
    pods["muster.io/fail"] = json!("true");
    let job = submit(case, &template).await?;
    case.finished(&job, "Failed").await?;
    is_charged(case, 0).await?;
    ensure!(has_failed(case, &job).await?, "it has failed no more");
    let record = record_of(case, &job).await?;
    println!("MEASURED job_fails {} attempts", record["attempt"]);
    let attempts = record["attempt"].as_u64().unwrap_or_default();
    let failures = record["ownFailures"].as_u64().unwrap_or_default();
    // A failure while Muster is down is final: it may be days old.
    ensure!(
        (1..=RETRIES + 1).contains(&attempts) && failures + 1 == attempts,
        "{record}"
    );
    ensure!(u64::from(case.placements(&job)?) == attempts, "{record}");
    Ok(())
}

/// Waits until a job is placed as this attempt, or has failed for good. Returns its attempt.
async fn settled(case: &Case, job: &Job, attempt: u64) -> anyhow::Result<u64> {
    let what = format!("{} is attempt {attempt} or has failed", job.name);
    eventually(SOON, &what, async || {
        let over = has_failed(case, job).await.map_err(|e| format!("{e:#}"))?;
        let binding = case.binding(job).await?.unwrap_or_default();
        let now = record(&binding)["attempt"].as_u64().unwrap_or_default();
        let again = now >= attempt && !clusters(&binding).is_empty();
        match over || again {
            true => Ok(now),
            false => Err(record(&binding).to_string()),
        }
    })
    .await
}

async fn has_failed(case: &Case, job: &Job) -> anyhow::Result<bool> {
    let group = case.pod_group(job).await.map_err(anyhow::Error::msg)?;
    let finished = condition(&group.unwrap_or_default(), "Finished").clone();
    Ok(finished["status"] == "True" && finished["reason"] == "Failed")
}
