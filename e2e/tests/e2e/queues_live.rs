//! Queues that change while jobs run and wait in them, and a queue with many pending jobs.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use e2e::harness::jobs;
use e2e::harness::kinds::{BINDING, CAPACITY_POLICY, POD_GROUP, QUEUE};
use e2e::harness::wait::eventually;
use serde_json::{Value, json};
use testbed::tools::Tool;
use tokio::process::Command;

use crate::case::{A_WHILE, Case, SOON};
use crate::job::{Job, condition};
use crate::story::{managed, managed_quiet};

/// A quota is lowered below the usage, and raised again.
pub(crate) async fn lowered_and_raised(case: &Case) -> anyhow::Result<()> {
    case.queue(16).await?;
    case.nodes("member1", 3).await?;
    let mut running = Vec::new();
    for index in 0..2 {
        let job = case
            .submit(&case.gang(&format!("runs-{index}"), 1, 8).volcano())
            .await?;
        case.running(&job).await?;
        running.push(job);
    }
    let gpus = |gpus: u32| json!({"capability": {"nvidia.com/gpu": gpus}});
    case.change_queue(&case.name, gpus(8)).await?;
    case.shows_gpus(&case.name, "capability", 8).await?;
    let waiter = case.submit(&case.gang("waiter", 1, 8).volcano()).await?;
    case.waits(&waiter, &["WaitingForQuota", "NextInLine"])
        .await?;
    case.midway().await?;
    // No job is evicted for it, and when a job ends the queue admits no more than its quota.
    case.settles(&running, 2, A_WHILE).await?;
    case.end(&running[0]).await?;
    case.finished(&running[0], "Succeeded").await?;
    case.shows_gpus(&case.name, "allocated", 8).await?;
    case.stays_unplaced(&waiter, A_WHILE).await?;
    case.change_queue(&case.name, gpus(16)).await?;
    case.running(&waiter).await?;
    let report = case.audit(16, running.iter().chain([&waiter]))?;
    assert_eq!(report.violations, Vec::<String>::new());
    case.change_queue(&case.name, gpus(8)).await?;
    case.ends_over("its bound is lowered below what runs");
    case.tells_over("nvidia.com/gpu", 8.0).await
}

/// A queue is closed and opened, deleted and recreated.
pub(crate) async fn closed_deleted_recreated(case: &Case) -> anyhow::Result<()> {
    case.queue(16).await?;
    case.nodes("member1", 2).await?;
    let runs = case.submit(&case.gang("runs", 1, 8).volcano()).await?;
    case.running(&runs).await?;
    state(case, "Closed").await?;
    let waiter = case.submit(&case.gang("waiter", 1, 8).volcano()).await?;
    case.waits(&waiter, &["QueueClosed"]).await?;
    case.stays_unplaced(&waiter, A_WHILE).await?;
    state(case, "Open").await?;
    case.running(&waiter).await?;

    // Its place remains while it has a charge, and admits nothing.
    case.karmada().delete(QUEUE, None, &case.name).await?;
    let orphan = case.submit(&case.gang("orphan", 1, 8).volcano()).await?;
    case.waits(&orphan, &["QueueClosed"]).await?;
    case.midway().await?;
    case.running(&runs).await?;
    case.end(&runs).await?;
    case.finished(&runs, "Succeeded").await?;
    case.stays_unplaced(&orphan, A_WHILE).await?;
    case.end(&waiter).await?;
    case.waits(&orphan, &["QueueNotFound"]).await?;
    eventually(SOON, "its policy goes with it", async || {
        let policy = case.karmada().get(CAPACITY_POLICY, None, &case.name).await;
        match policy.map_err(|error| error.to_string())? {
            None => Ok(()),
            Some(policy) => Err(policy["spec"].to_string()),
        }
    })
    .await?;

    case.karmada()
        .create(QUEUE, &jobs::queue(&case.name, 8))
        .await?;
    case.running(&orphan).await?;
    assert_eq!(case.placements(&waiter)?, 1);
    Ok(())
}

/// A queue is deleted while its job runs, and applied again at once with another quota, as GitOps tools do.
pub(crate) async fn applied_again(case: &Case) -> anyhow::Result<()> {
    case.queue(8).await?;
    case.nodes("member1", 2).await?;
    let runs = case.submit(&case.gang("runs", 1, 8).volcano()).await?;
    case.running(&runs).await?;
    let waiter = case.submit(&case.gang("waiter", 1, 8).volcano()).await?;
    case.waits(&waiter, &["WaitingForQuota", "NextInLine"])
        .await?;
    let karmada = case.karmada();
    karmada.delete(QUEUE, None, &case.name).await?;
    ensure!(
        karmada.get(QUEUE, None, &case.name).await?.is_none(),
        "the queue object is kept"
    );
    case.waits(&waiter, &["QueueClosed"]).await?;
    karmada.create(QUEUE, &jobs::queue(&case.name, 16)).await?;
    case.running(&waiter).await?;
    case.shows_gpus(&case.name, "allocated", 16).await?;
    case.running(&runs).await?;
    assert_eq!(case.placements(&runs)?, 1);
    Ok(())
}

/// Sets the state of the queue, and waits until Muster has seen it: a job that is submitted next could be
/// decided before.
async fn state(case: &Case, state: &str) -> anyhow::Result<()> {
    let patch = json!({"status": {"state": state}});
    let queues = case.karmada();
    queues.merge_status(QUEUE, None, &case.name, &patch).await?;
    let is_open = if state == "Open" { "True" } else { "False" };
    eventually(SOON, &format!("the policy says {state}"), async || {
        let policy = queues.get(CAPACITY_POLICY, None, &case.name).await;
        let policy = policy.map_err(|error| error.to_string())?;
        let conditions = policy.unwrap_or_default()["status"]["conditions"].clone();
        let mut all = conditions.as_array().into_iter().flatten();
        let said = all.any(|said| said["type"] == "Open" && said["status"] == is_open);
        said.then_some(()).ok_or_else(|| conditions.to_string())
    })
    .await
}

/// The number of pending jobs.
const CROWD: usize = 1_000;
/// The timeout until the last job has its message, and until the last job is gone.
const ALL_SAID: Duration = Duration::from_secs(240);
/// The longest time that `kubectl get` of all jobs may take, on a busy machine.
const AT_ONCE: Duration = Duration::from_secs(5);

/// A thousand jobs are pending, each has its message, and queries are answered quickly.
pub(crate) async fn crowd_waits(case: &Case) -> anyhow::Result<()> {
    case.queue(0).await?;
    case.holds_nothing("its queue has no quota");
    let start = Instant::now();
    let jobs = case.submit_crowd(CROWD).await?;
    println!(
        "MEASURED submit_of_{CROWD} {} ms",
        start.elapsed().as_millis()
    );
    eventually(ALL_SAID, "all say what they wait for", async || {
        let groups = case.karmada().list(POD_GROUP, Some(&case.name)).await;
        let groups = groups.map_err(|error| error.to_string())?;
        let said = groups.iter().filter(|group| {
            let federation = &group["status"]["federation"];
            federation["reason"].is_string() && federation["message"].is_string()
        });
        match said.count() {
            CROWD => Ok(()),
            count => Err(format!("{count} of {CROWD}")),
        }
    })
    .await?;
    println!(
        "MEASURED all_of_{CROWD}_said {} ms",
        start.elapsed().as_millis()
    );
    case.midway().await?;
    pending(case, jobs.len()).await?;
    let pod_groups = kubectl(case, &["get", "podgroups", "-n", &case.name]).await?;
    assert_eq!(
        pod_groups.lines().count(),
        CROWD + 1,
        "a line each and the head"
    );
    kubectl(case, &["get", "capacitypolicy", &case.name]).await?;
    let first = [&*jobs[0].binding(), "-n", &case.name];
    kubectl(case, &[&["get", "podgroup"][..], &first].concat()).await?;
    clear(case, &jobs).await
}

/// Deletes the jobs, and waits until Karmada has processed them: its detector sends a request for
/// each deleted job, some 15 a second, and handles later submissions after that.
async fn clear(case: &Case, jobs: &[Job]) -> anyhow::Result<()> {
    case.delete_crowd(jobs).await?;
    eventually(ALL_SAID, "the crowd is gone", async || {
        let bindings = case.karmada().list(BINDING, Some(&case.name)).await;
        match bindings.map_err(|error| error.to_string())?.len() {
            0 => Ok(()),
            count => Err(format!("{count} bindings")),
        }
    })
    .await?;
    let last = case.submit(&case.gang("last", 1, 1).batch()).await?;
    eventually(ALL_SAID, "Karmada binds who came last", async || {
        let binding = case.binding(&last).await?;
        binding.map(drop).ok_or_else(|| "no binding".to_owned())
    })
    .await?;
    case.delete(&last).await?;
    case.gone(&last).await
}

async fn pending(case: &Case, jobs: usize) -> anyhow::Result<()> {
    eventually(SOON, "all are counted", async || {
        let policy = case.karmada().get(CAPACITY_POLICY, None, &case.name).await;
        let policy = policy
            .map_err(|error| error.to_string())?
            .unwrap_or_default();
        match policy["status"]["counts"]["pending"] == json!(jobs) {
            true => Ok(()),
            false => Err(policy["status"]["counts"].to_string()),
        }
    })
    .await
}

/// Returns kubectl's output and prints its duration.
async fn kubectl(case: &Case, args: &[&str]) -> anyhow::Result<String> {
    let start = Instant::now();
    let mut command = Command::new(case.plane.tools.program(Tool::Kubectl)?);
    let command = command
        .arg("--kubeconfig")
        .arg(case.plane.testbed.karmada().kubeconfig)
        .args(args)
        .kill_on_drop(true);
    let output = command.output().await.context("run kubectl")?;
    let took = start.elapsed();
    println!(
        "MEASURED kubectl {}: {} ms",
        args.join(" "),
        took.as_millis()
    );
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "kubectl {}: {said}",
        args.join(" ")
    );
    ensure!(took < AT_ONCE, "kubectl {} took {took:?}", args.join(" "));
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn quota_lowered_below_use_takes_nothing_back_and_admits_again_when_raised() {
    managed("lowered", lowered_and_raised);
}

#[test]
fn a_queue_may_be_closed_deleted_and_made_again() {
    managed("closed", closed_deleted_recreated);
}

#[test]
fn a_queue_that_is_deleted_and_applied_again_takes_its_place_over_at_once() {
    managed("applied", applied_again);
}

#[test]
fn a_thousand_queued_jobs_say_why_and_queries_are_answered_at_once() {
    managed_quiet("crowd", crowd_waits);
}

/// A job that waits in front is deleted: those behind it show their new positions within seconds.
async fn positions(case: &Case) -> anyhow::Result<()> {
    case.queue(8).await?;
    case.nodes("member1", 1).await?;
    let holder = case.submit(&case.gang("holder", 1, 8).batch()).await?;
    case.running(&holder).await?;
    let mut waiting = Vec::new();
    for number in 1..=5 {
        let name = format!("w{number}");
        waiting.push(case.submit(&case.gang(&name, 1, 8).batch()).await?);
        let last = waiting.last().unwrap();
        at_position(case, last, number, SOON).await?;
    }
    case.delete(&waiting[0]).await?;
    let moved = waiting[1..].iter().zip(1..);
    let moved = moved.map(|(job, place)| at_position(case, job, place, Duration::from_secs(20)));
    let started = Instant::now();
    futures::future::try_join_all(moved).await?;
    println!("MEASURED positions {} ms", started.elapsed().as_millis());
    Ok(())
}

async fn at_position(case: &Case, job: &Job, place: u32, time: Duration) -> anyhow::Result<()> {
    let what = format!("is at position {place}");
    case.pod_group_within(time, job, &what, |group| {
        group["status"]["federation"]["position"] == json!(place)
    })
    .await
    .map(drop)
}

#[test]
fn jobs_show_their_new_positions_when_one_ahead_is_deleted() {
    managed("positions", positions);
}

/// A misspelt name bounds nothing: the policy of the queue says which, and what is meant.
async fn misspelt(case: &Case) -> anyhow::Result<()> {
    case.nodes("member1", 1).await?;
    let mut queue = e2e::harness::jobs::queue(&case.name, 8);
    queue["spec"]["capability"] = json!({"nvidia.com/gpus": 8});
    case.cluster_object(QUEUE, &queue).await?;
    let wrong = json!({"spec": {
        "pools": [{
            "name": "gpus", "class": "no-such-gpu",
            "resources": [{"name": "nvidia.com/gpu", "capability": 4}],
        }],
        "priorityClasses": ["no-such-class"],
        "placement": {"preferredClusters": ["member9"]},
    }});
    case.capacity_policy(wrong).await?;
    let says = async |what: &str, check: &dyn Fn(&Value) -> bool| {
        eventually(SOON, what, async || {
            let policies = case.karmada();
            let policy = policies.get(CAPACITY_POLICY, None, &case.name).await;
            let policy = policy
                .map_err(|error| error.to_string())?
                .unwrap_or_default();
            let told = condition(&policy, "Effective");
            if check(told) {
                Ok(())
            } else {
                Err(told.to_string())
            }
        })
        .await
    };
    let names = [
        "nvidia.com/gpu is meant?",
        "no-such-gpu has no effect",
        "no-such-class has no effect",
        "member9 has no effect",
    ];
    says("the policy lists each misspelt name", &|told| {
        let message = told["message"].as_str().unwrap_or_default();
        told["status"] == "False" && names.iter().all(|name| message.contains(name))
    })
    .await?;
    let right = json!({"spec": {"capability": {"nvidia.com/gpus": null, "nvidia.com/gpu": 8}}});
    let objects = case.karmada();
    objects.merge(QUEUE, None, &case.name, &right).await?;
    let right = json!({"spec": {"pools": null, "priorityClasses": null, "placement": null}});
    objects
        .merge(CAPACITY_POLICY, None, &case.name, &right)
        .await?;
    says("every name exists", &|told| told["status"] == "True").await
}

#[test]
fn misspelt_names_of_a_queue_are_listed() {
    managed("misspelt", misspelt);
}

/// A CapacityPolicy without a Queue is a queue; a Queue that states another quota is named beside it.
async fn policy_alone(case: &Case) -> anyhow::Result<()> {
    let resources = json!([{"name": "nvidia.com/gpu", "capability": 8}]);
    let policy = json!({"metadata": {"name": case.name}, "spec": {"resources": resources}});
    case.cluster_object(CAPACITY_POLICY, &policy).await?;
    case.nodes("member1", 2).await?;
    let runs = case.submit(&case.gang("runs", 1, 8).volcano()).await?;
    case.running(&runs).await?;
    case.shows_gpus(&case.name, "capability", 8).await?;
    let waiter = case.submit(&case.gang("waiter", 1, 8).volcano()).await?;
    case.waits(&waiter, &["WaitingForQuota", "NextInLine"])
        .await?;
    let gpus = |gpus: Value| json!({"capability": {"nvidia.com/gpu": gpus}});
    case.change_queue(&case.name, gpus(json!(16))).await?;
    let says = format!(
        "capability of nvidia.com/gpu is 16 in Queue {0} and 8 in spec.resources of CapacityPolicy {0}",
        case.name
    );
    eventually(SOON, "both objects are named", async || {
        let policy = case.karmada().get(CAPACITY_POLICY, None, &case.name).await;
        let policy = policy.map_err(|error| error.to_string())?;
        let policy = policy.ok_or("there is no policy")?;
        let conditions = policy["status"]["conditions"].as_array().into_iter();
        let mut said = conditions.flatten().filter(|of| of["type"] == "Consistent");
        match said.any(|of| {
            of["message"]
                .as_str()
                .is_some_and(|text| text.contains(&says))
        }) {
            true => Ok(()),
            false => Err(policy["status"]["conditions"].to_string()),
        }
    })
    .await?;
    case.stays_unplaced(&waiter, A_WHILE).await?;
    case.change_queue(&case.name, gpus(Value::Null)).await?;
    case.end(&runs).await?;
    case.running(&waiter).await?;
    case.end(&waiter).await?;
    case.finished(&waiter, "Succeeded").await?;
    let report = case.audit(8, [&runs, &waiter])?;
    assert_eq!(report.violations, Vec::<String>::new());
    case.karmada()
        .delete(CAPACITY_POLICY, None, &case.name)
        .await?;
    eventually(SOON, "the Queue goes with its policy", async || match case
        .karmada()
        .get(QUEUE, None, &case.name)
        .await
    {
        Ok(None) => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await
}

#[test]
fn a_policy_alone_is_a_queue() {
    managed("policyalone", policy_alone);
}
