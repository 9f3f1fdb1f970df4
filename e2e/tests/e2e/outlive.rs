//! A charge remains when a tenant removes the job's policy, claim, record or finalizer. The tests
//! compare the GPUs of running pods in members with the quota of the queue.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use e2e::harness::kinds::{
    BATCH_JOB, BINDING, CLUSTER_PROPAGATION_POLICY, ObjectKind, PROPAGATION_POLICY,
};
use e2e::harness::objects::Objects;
use e2e::harness::wait::never_within;
use serde_json::{Value, json};

use crate::case::Case;
use crate::job::{Job, record};
use crate::plane::MEMBERS;
use crate::story::managed;

/// The quota of each story's queue; the nodes have twice as much.
const BOUND: u64 = 8;
/// The time for which the members' pods are watched after each attempt.
const LOOK: Duration = Duration::from_secs(5);

/// Returns the GPUs of this test's pods in members that have not ended.
async fn gpus(case: &Case) -> Result<u64, String> {
    let mut sum = 0;
    for member in MEMBERS {
        let pods = case.pods(member).await.map_err(|error| error.to_string())?;
        for pod in pods.iter().filter(|pod| is_live(pod)) {
            sum += requested(pod);
        }
    }
    Ok(sum)
}

fn is_live(pod: &Value) -> bool {
    !matches!(
        pod["status"]["phase"].as_str(),
        Some("Succeeded" | "Failed")
    )
}

fn requested(pod: &Value) -> u64 {
    let containers = pod["spec"]["containers"].as_array().into_iter().flatten();
    let of = |container: &Value| {
        let amount = &container["resources"]["requests"]["nvidia.com/gpu"];
        amount.as_str().and_then(|text| text.parse::<u64>().ok())
    };
    containers.filter_map(of).sum()
}

/// Watches for a while that pods stay within the quota of the queue.
async fn stays_within(case: &Case, what: &str) -> anyhow::Result<()> {
    let what = format!("more than {BOUND} GPUs after {what}");
    never_within(LOOK, &what, async || match gpus(case).await? {
        gpus if gpus > BOUND => Err(format!("{gpus} GPUs run")),
        _ => Ok(()),
    })
    .await
}

/// Checks that the job is still admitted, in its first attempt, and was not adopted.
async fn runs_on(case: &Case, job: &Job) -> anyhow::Result<()> {
    let binding = case.binding(job).await.map_err(anyhow::Error::msg)?;
    let record = record(&binding.context("its binding is gone")?);
    assert_eq!(record["state"], "Admitted", "{record}");
    assert_eq!(
        (&record["attempt"], record["adopted"].as_bool()),
        (&json!(1), None)
    );
    Ok(())
}

/// Submits a job that uses the whole quota, and one that waits for it.
async fn full(case: &Case, tenant: &Objects) -> anyhow::Result<(Job, Job)> {
    case.queue(8).await?;
    case.nodes("member1", 2).await?;
    let runs = case.gang("runs", 1, 8).batch();
    let runs = case.submit_by(tenant, &runs).await?;
    case.running(&runs).await?;
    let waits = case.gang("waits", 1, 8).batch();
    let waits = case.submit_by(tenant, &waits).await?;
    case.waits(&waits, &["WaitingForQuota", "NextInLine"])
        .await?;
    Ok((runs, waits))
}

/// Deletes a policy, waits until it is recreated, and returns how long it was missing.
async fn comes_back(
    case: &Case,
    by: &Objects,
    kind: ObjectKind,
    name: &str,
) -> anyhow::Result<Duration> {
    let namespace = Some(case.name.as_str());
    let before = case.karmada().get(kind, namespace, name).await?;
    let before = before.context("it is not there")?["metadata"]["uid"].clone();
    by.delete(kind, namespace, name).await?;
    let mut gone = Instant::now();
    loop {
        match case.karmada().get(kind, namespace, name).await? {
            Some(policy) if policy["metadata"]["uid"] != before => return Ok(gone.elapsed()),
            // Karmada keeps the policy until it has removed its claims from the bindings.
            Some(_) => gone = Instant::now(),
            None => {}
        }
        anyhow::ensure!(
            gone.elapsed() < crate::case::SOON,
            "policy {name} stays away"
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[test]
fn a_job_whose_policy_goes_stays_charged() {
    managed("policygoes", async |case| {
        let tenant = case.tenant().await?.objects;
        let own = json!({"placement": {"clusterAffinity": {"clusterNames": ["member1"]}}});
        case.policy("own", BATCH_JOB, "muster", own).await?;
        let (runs, waits) = full(case, &tenant).await?;
        let namespace = Some(case.name.as_str());
        tenant.delete(PROPAGATION_POLICY, namespace, "own").await?;
        stays_within(case, "its own policy was deleted").await?;
        runs_on(case, &runs).await?;

        let took = comes_back(case, case.karmada(), PROPAGATION_POLICY, "muster").await?;
        assert!(
            took < Duration::from_secs(10),
            "policy muster was away for {took:?}"
        );
        println!("MEASURED policy_muster_back {} ms", took.as_millis());
        stays_within(case, "policy muster was deleted").await?;
        runs_on(case, &runs).await?;

        // A ClusterPropagationPolicy claims what policy muster loses.
        let other = json!({
            "metadata": {"name": case.name},
            "spec": {
                "schedulerName": "muster",
                "placement": {},
                "resourceSelectors": [
                    {"apiVersion": "batch/v1", "kind": "Job", "namespace": case.name},
                ],
            },
        });
        case.cluster_object(CLUSTER_PROPAGATION_POLICY, &other)
            .await?;
        comes_back(case, case.karmada(), PROPAGATION_POLICY, "muster").await?;
        stays_within(case, "another policy took it").await?;
        runs_on(case, &runs).await?;

        case.delete(&runs).await?;
        case.running(&waits).await?;
        Ok(())
    });
}

/// Returns true if a patch succeeded, false if admission refused it.
fn tried(patched: Result<Value, kube::Error>) -> anyhow::Result<bool> {
    match patched {
        Err(kube::Error::Api(status)) if matches!(status.code, 403 | 422) => Ok(false),
        other => other.map(|_| true).map_err(Into::into),
    }
}

#[test]
fn a_job_that_loses_its_marks_stays_charged() {
    managed("marks", async |case| {
        let words = "placed without a record of its own";
        case.audit_may_find(words, "the tenant takes the record off for a moment");
        let tenant = case.tenant().await?.objects;
        let (runs, waits) = full(case, &tenant).await?;
        let namespace = Some(case.name.as_str());
        let claim = "propagationpolicy.karmada.io/permanent-id";
        for taken in [
            json!({"annotations": {"muster.io/admission": null}}),
            json!({"finalizers": []}),
            json!({"labels": {claim: null}}),
            json!({"annotations": {"muster.io/admission": null}, "finalizers": [], "labels": {claim: null}}),
        ] {
            let patch = json!({"metadata": taken});
            let patched = tenant
                .merge(BINDING, namespace, &runs.binding(), &patch)
                .await;
            let done = tried(patched)?;
            stays_within(case, &format!("{patch} (done: {done})")).await?;
            runs_on(case, &runs).await?;
        }
        // The test forges an admission of the pending job.
        let binding = case.binding(&runs).await.map_err(anyhow::Error::msg)?;
        let mut forged = record(&binding.context("its binding is gone")?);
        forged["templateUID"] = json!(waits.uid());
        let patch = json!({
            "metadata": {"annotations": {"muster.io/admission": forged.to_string()}},
        });
        let patched = tenant
            .merge(BINDING, namespace, &waits.binding(), &patch)
            .await;
        println!("a record was forged: {}", tried(patched)?);
        stays_within(case, "a record was forged").await?;
        runs_on(case, &runs).await?;
        case.delete(&runs).await?;
        case.running(&waits).await?;
        Ok(())
    });
}
