//! Objects that outlive one attempt: scaled to zero and back, with a surge that becomes replicas, and with replicas
//! that an autoscaler of the member sets.

use anyhow::{Context as _, ensure};
use e2e::harness::kinds::{DEPLOYMENT, RAY_CLUSTER, STATEFUL_SET};
use e2e::harness::wait::{eventually, never_within};
use serde_json::{Value, json};

use crate::case::{A_WHILE, Case, SOON};
use crate::contest::SHORT;
use crate::job::Job;
use crate::story::managed;

/// Karmada's label of templates whose replicas an autoscaler sets in members.
const RETAIN: &str = "resourcetemplate.karmada.io/retain-replicas";

/// Returns a StatefulSet with the pods of a Deployment.
fn stateful_set(mut deployment: Value) -> Value {
    deployment["kind"] = json!("StatefulSet");
    if let Some(spec) = deployment["spec"].as_object_mut() {
        spec.remove("strategy");
        spec.insert("serviceName".to_owned(), json!("none"));
        spec.insert("podManagementPolicy".to_owned(), json!("Parallel"));
    }
    deployment
}

/// Sends Deployments and StatefulSets to member1.
async fn services(case: &Case) -> anyhow::Result<()> {
    for (name, kind) in [("deployments", DEPLOYMENT), ("sets", STATEFUL_SET)] {
        let there = json!({"placement": {"clusterAffinity": {"clusterNames": ["member1"]}}});
        case.policy(name, kind, "muster", there).await?;
    }
    Ok(())
}

async fn edit(case: &Case, job: &Job, spec: Value) -> anyhow::Result<()> {
    let patch = json!({ "spec": spec });
    let namespace = Some(job.namespace.as_str());
    case.karmada()
        .merge(job.kind, namespace, &job.name, &patch)
        .await?;
    Ok(())
}

/// Waits until exactly so many pods of a job are in member1, and all run.
async fn pods_run(case: &Case, job: &Job, pods: usize) -> anyhow::Result<()> {
    let what = format!("{pods} pods of {} run", job.name);
    eventually(SOON, &what, async || {
        let all = case.pods("member1").await;
        let all = all.map_err(|error| error.to_string())?;
        let prefix = format!("{}-", job.name);
        let own = all.iter().filter(|pod| {
            let name = pod["metadata"]["name"].as_str().unwrap_or_default();
            name.starts_with(&prefix)
        });
        let phases: Vec<&Value> = own.map(|pod| &pod["status"]["phase"]).collect();
        match phases.len() == pods && phases.iter().all(|phase| **phase == "Running") {
            true => Ok(()),
            false => Err(format!("{phases:?}")),
        }
    })
    .await
}

/// Each kind holds nothing at zero, so that another job runs; it is queued again at its new size.
pub(crate) async fn to_zero_and_back(case: &Case) -> anyhow::Result<()> {
    case.queue(8).await?;
    case.nodes("member1", 2).await?;
    services(case).await?;
    let replicas = |count: u32| json!({ "replicas": count });
    let parallelism = |count: u32| json!({ "parallelism": count });
    let deployment = |name: &str| case.gang(name, 4, 2).deployment();
    for (template, size) in [
        (
            stateful_set(deployment("set")),
            replicas as fn(u32) -> Value,
        ),
        (deployment("serve"), replicas),
        (case.gang("train", 4, 2).batch(), parallelism),
        (case.gang("groups", 1, 2).leader_worker_set(4), replicas),
    ] {
        let job = case.submit(&template).await?;
        pods_run(case, &job, 4).await?;
        case.shows_gpus(&case.name, "allocated", 8).await?;
        edit(case, &job, size(0)).await?;
        let told = case.waits(&job, &["ScaledToZero"]).await?;
        ensure!(told.contains("asks for no pods"), "{told}");
        let other = case.gang(&format!("other-{}", job.name), 1, 8);
        let other = case.submit(&other.volcano()).await?;
        case.running(&other).await?;
        edit(case, &job, size(2)).await?;
        case.waits(&job, &SHORT).await?;
        case.never_holds_more(8, A_WHILE / 4).await?;
        case.end(&other).await?;
        pods_run(case, &job, 2).await?;
        case.shows_gpus(&case.name, "allocated", 4).await?;
        case.delete(&job).await?;
        case.gone(&job).await?;
    }
    Ok(())
}

/// Two replicas and two more in updates become four replicas.
pub(crate) async fn surge_becomes_replicas(case: &Case) -> anyhow::Result<()> {
    case.queue(8).await?;
    case.nodes("member1", 2).await?;
    services(case).await?;
    let updates = |surge: u32| json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": 1}});
    let mut template = case.gang("serve", 2, 2).deployment();
    template["spec"]["strategy"] = updates(2);
    let serve = case.submit(&template).await?;
    pods_run(case, &serve, 2).await?;
    case.shows_gpus(&case.name, "allocated", 8).await?;
    edit(case, &serve, json!({"replicas": 4, "strategy": updates(0)})).await?;
    pods_run(case, &serve, 4).await?;
    case.shows_gpus(&case.name, "allocated", 8).await?;
    assert_eq!(case.placements(&serve)?, 1, "it was evicted");
    Ok(())
}

/// Changes the member's object as an autoscaler there does.
async fn in_member(case: &Case, job: &Job, spec: Value) -> anyhow::Result<()> {
    let member = case.plane.member("member1").await?;
    let patch = json!({ "spec": spec });
    let namespace = Some(job.namespace.as_str());
    member.merge(job.kind, namespace, &job.name, &patch).await?;
    Ok(())
}

/// Waits until a field of the member's object has a value, and checks that it stays.
async fn keeps(case: &Case, job: &Job, path: &str, value: u32) -> anyhow::Result<()> {
    let member = case.plane.member("member1").await?;
    let (kind, namespace) = (job.kind, Some(job.namespace.as_str()));
    let is = async || {
        let object = member.get(kind, namespace, &job.name).await;
        let object = object.map_err(|error| error.to_string())?;
        let object = object.unwrap_or_default();
        match object.pointer(path) == Some(&json!(value)) {
            true => Ok(()),
            false => Err(object["spec"].to_string()),
        }
    };
    let what = format!("{path} of {} is {value}", job.name);
    eventually(SOON, &what, is).await?;
    never_within(A_WHILE / 2, &format!("not {what}"), is).await
}

/// What an autoscaler of the member sets stays there, within what was admitted.
pub(crate) async fn autoscaled(case: &Case) -> anyhow::Result<()> {
    let why = "an autoscaler asks for more than was admitted, and Karmada lowers it a moment later";
    for words in ["in pods: ", "/serve: pods with ", "/set: pods with "] {
        case.audit_may_find(words, why);
    }
    case.queue(16).await?;
    case.nodes("member1", 3).await?;
    services(case).await?;
    let deployment = |name: &str| {
        let mut template = case.gang(name, 2, 2).deployment();
        template["metadata"]["labels"][RETAIN] = json!("true");
        template
    };
    for template in [deployment("serve"), stateful_set(deployment("set"))] {
        let job = case.submit(&template).await?;
        pods_run(case, &job, 2).await?;
        in_member(case, &job, json!({"replicas": 1})).await?;
        keeps(case, &job, "/spec/replicas", 1).await?;
        pods_run(case, &job, 1).await?;
        // It gets no more than was admitted.
        in_member(case, &job, json!({"replicas": 9})).await?;
        keeps(case, &job, "/spec/replicas", 2).await?;
        pods_run(case, &job, 2).await?;
    }
    let mut template = case.gang("ray", 2, 2).ray_cluster();
    template["spec"]["enableInTreeAutoscaling"] = json!(true);
    let group = &mut template["spec"]["workerGroupSpecs"][0];
    (group["minReplicas"], group["maxReplicas"]) = (json!(0), json!(2));
    let ray = case.submit(&template).await?;
    let path = "/spec/workerGroupSpecs/0/replicas";
    keeps(case, &ray, path, 1).await?;
    // It is charged for the most that its autoscaler may start: head and two workers, beside the services.
    case.shows_gpus(&case.name, "allocated", 14).await?;
    let member = case.plane.member("member1").await?;
    let scaled = async |replicas: u32| {
        let own = member.get(RAY_CLUSTER, Some(&case.name), "ray").await?;
        let mut groups = own.context("it is not in member1")?["spec"]["workerGroupSpecs"].take();
        groups[0]["replicas"] = json!(replicas);
        in_member(case, &ray, json!({"workerGroupSpecs": groups})).await
    };
    for (asked, kept) in [(2, 2), (0, 0), (9, 2)] {
        scaled(asked).await?;
        keeps(case, &ray, path, kept).await?;
    }
    Ok(())
}

#[test]
fn a_job_scaled_to_zero_holds_nothing_and_is_queued_again_at_its_size() {
    managed("zero", to_zero_and_back);
}

#[test]
fn a_surge_that_becomes_replicas_runs_within_the_charge() {
    managed("surge", surge_becomes_replicas);
}

#[test]
fn what_an_autoscaler_sets_in_a_member_stays_within_what_was_admitted() {
    managed("autoscaled", autoscaled);
}
