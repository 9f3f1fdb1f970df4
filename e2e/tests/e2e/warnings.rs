//! What `kubectl apply` prints beside its answer: the position of a job and what would start it, why it cannot start,
//! and what looks as if it were queued and is not.
//!
//! Most of it is applied as a dry run, which is answered as the real one is: it can be repeated until Muster has
//! published what the answer needs.

use std::process::Stdio;

use anyhow::{Context as _, ensure};
use e2e::harness::kinds::BATCH_JOB;
use e2e::harness::wait::eventually;
use serde_json::{Value, json};
use testbed::tools::Tool;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

use crate::case::{Case, SOON};
use crate::job::Job;
use crate::story::managed;

/// Applies an object with kubectl, and returns what it prints on standard error.
async fn apply(case: &Case, object: &Value, flags: &[&str]) -> anyhow::Result<String> {
    let mut command = Command::new(case.plane.tools.program(Tool::Kubectl)?);
    let kubeconfig = case.plane.testbed.karmada().kubeconfig;
    let command = command
        .arg("--kubeconfig")
        .arg(kubeconfig)
        .args(["apply", "-f", "-"])
        .args(flags);
    let pipes = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut kubectl = pipes.kill_on_drop(true).spawn().context("run kubectl")?;
    let mut input = kubectl.stdin.take().context("its input")?;
    input.write_all(object.to_string().as_bytes()).await?;
    drop(input);
    let output = kubectl.wait_with_output().await?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success(), "{said}");
    Ok(said)
}

/// Waits until a dry run of an apply prints these words, and returns what it prints.
async fn warns(case: &Case, object: &Value, words: &str) -> anyhow::Result<String> {
    let said = eventually(SOON, &format!("{words:?} is printed"), async || {
        let said = apply(case, object, &["--dry-run=server"]).await;
        let said = said.map_err(|error| format!("{error:#}"))?;
        match said.contains(words) {
            true => Ok(said),
            false => Err(said),
        }
    })
    .await?;
    println!("{said}");
    Ok(said)
}

async fn of_jobs(case: &Case) -> anyhow::Result<()> {
    case.queue(8).await?;
    case.nodes("member1", 1).await?;
    let queue = &case.name;
    let gang = |name: &str, gpus| case.gang(name, 1, gpus).batch();
    let at_once = format!("Warning: queue {queue}: position 1, expected to start at once");
    warns(case, &gang("first", 8), &at_once).await?;
    let above = "nvidia.com/gpu 8 at most, and it requests 16: it cannot start";
    warns(case, &gang("large", 16), above).await?;

    let runs = case.submit(&gang("runs", 6)).await?;
    case.running(&runs).await?;
    let waits = case.submit(&gang("waits", 8)).await?;
    case.waits(&waits, &["WaitingForQuota", "NextInLine"])
        .await?;
    let second = format!("Warning: queue {queue}: position 2");
    let said = warns(case, &gang("next", 4), &second).await?;
    let lacks = "would start now with 2 more nvidia.com/gpu of quota";
    ensure!(said.contains(lacks), "{said}");
    // It is printed by an apply that stores the object, too.
    let said = apply(case, &gang("next", 4), &[]).await?;
    ensure!(said.contains(&second), "{said}");
    let stored = case.karmada().get(BATCH_JOB, Some(queue), "next").await?;
    let next = Job::of(BATCH_JOB, stored.context("it is stored")?);
    case.submitted(&next);

    let stop = |word: &str| json!({"spec": {"stopPolicy": word}});
    case.capacity_policy(stop("Hold")).await?;
    let stopped =
        format!("queue {queue} is stopped (spec.stopPolicy of capacitypolicy {queue} is Hold)");
    warns(case, &gang("later", 4), &stopped).await?;
    case.capacity_policy(stop("None")).await?;

    let mut lost = gang("lost", 1);
    lost["metadata"]["labels"]["muster.io/queue"] = json!("no-such-queue");
    warns(case, &lost, "queue no-such-queue does not exist").await?;
    for job in [&runs, &waits, &next] {
        case.running(job).await?;
        case.end(job).await?;
        case.finished(job, "Succeeded").await?;
    }
    of_queues_and_namespaces(case).await
}

async fn of_queues_and_namespaces(case: &Case) -> anyhow::Result<()> {
    let queue = &case.name;
    let child = json!({
        "apiVersion": "muster.io/v1alpha2", "kind": "CapacityPolicy",
        "metadata": {"name": format!("{queue}-child")},
        "spec": {"parent": queue, "resources": [{"name": "nvidia.com/gpu", "capability": "64"}]},
    });
    let parent = format!("is 64 and that of queue {queue} above it is 8");
    warns(case, &child, &parent).await?;

    let job = case.gang("nightly", 1, 1).batch();
    let nightly = json!({
        "apiVersion": "batch/v1", "kind": "CronJob",
        "metadata": {"name": "nightly", "namespace": queue, "labels": {"muster.io/queue": queue}},
        "spec": {"schedule": "0 3 * * *", "jobTemplate": {"spec": job["spec"].clone()}},
    });
    warns(
        case,
        &nightly,
        "CronJob nightly: Muster queues the Jobs that it makes",
    )
    .await?;
    let namespace = json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": format!("{queue}-typo"), "labels": {"muster.io/managed": "yes"}},
    });
    warns(
        case,
        &namespace,
        "label muster.io/managed is \"yes\", and only \"true\" has jobs queued",
    )
    .await?;
    let mut elsewhere = case.gang("elsewhere", 1, 1).batch();
    elsewhere["metadata"]["namespace"] = json!("default");
    warns(case, &elsewhere, "namespace default is not managed").await?;
    Ok(())
}

#[test]
fn an_apply_prints_what_becomes_of_a_job_and_what_is_not_queued() {
    managed("warnings", of_jobs);
}
