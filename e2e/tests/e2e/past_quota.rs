//! Attempts to exceed a quota: compares what pods in members request with the quota.

use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use e2e::harness::kinds::{
    CLUSTER_OVERRIDE_POLICY, DEPLOYMENT, EVENT, NAMESPACE, OVERRIDE_POLICY, PROPAGATION_POLICY,
    QUEUE, WORK,
};
use e2e::harness::wait::{eventually, never_within};
use serde_json::{Value, json};

use crate::case::{A_WHILE, Case, SOON};
use crate::contest::SHORT;
use crate::job::{Job, condition};
use crate::split::training;
use crate::story::{managed, managed_and_killed};

/// The quota of a queue or its parent.
const BOUND: u64 = 8;
/// The time for which the members are watched.
const LOOK: Duration = Duration::from_secs(12);
/// The namespace of member1's Works.
const MEMBER1_WORKS: &str = "karmada-es-member1";

impl Case {
    /// Returns the GPUs of this test's pods that have not ended, in all members.
    pub(crate) async fn gpus_in_members(&self) -> anyhow::Result<u64> {
        let mut gpus = 0;
        for member in self.members() {
            let pods = self.pods(member).await?;
            let alive = pods.iter().filter(|pod| {
                let phase = pod["status"]["phase"].as_str().unwrap_or_default();
                !matches!(phase, "Succeeded" | "Failed")
            });
            gpus += alive.map(gpus_of).sum::<u64>();
        }
        Ok(gpus)
    }

    /// Watches that pods in members never request more than `bound` GPUs.
    pub(crate) async fn never_holds_more(&self, bound: u64, time: Duration) -> anyhow::Result<()> {
        never_within(time, "more GPUs than the bound", async || {
            let gpus = self.gpus_in_members().await;
            match gpus.map_err(|error| error.to_string())? {
                gpus if gpus <= bound => Ok(()),
                gpus => Err(format!("{gpus} GPUs of {bound}")),
            }
        })
        .await
    }
}

fn gpus_of(pod: &Value) -> u64 {
    let containers = pod["spec"]["containers"].as_array();
    let containers = containers.into_iter().flatten();
    let gpus = containers.map(|container| {
        let limit = &container["resources"]["limits"]["nvidia.com/gpu"];
        let text = limit.as_str().map(str::to_owned);
        text.unwrap_or_else(|| limit.to_string())
    });
    gpus.filter_map(|text| text.parse::<u64>().ok()).sum()
}

/// A queue below one with a quota of 8 GPUs is deleted while its job uses all of them. Then Muster is
/// killed. Its sibling gets nothing before the job has ended.
pub(crate) async fn deleted_child(case: &Case) -> anyhow::Result<()> {
    case.parent_queue(json!({"capability": {"nvidia.com/gpu": BOUND}}))
        .await?;
    let child = || json!({"parent": case.name});
    let (left, right) = (
        case.queue_of("left", child()).await?,
        case.queue_of("right", child()).await?,
    );
    case.nodes("member1", 2).await?;
    let holder = case.gang_in(&left, "holder", 1, 8).volcano();
    let holder = case.submit(&holder).await?;
    case.running(&holder).await?;

    case.karmada().delete(QUEUE, None, &left).await?;
    let orphan = case
        .submit(&case.gang_in(&left, "orphan", 1, 1).volcano())
        .await?;
    case.waits(&orphan, &["QueueClosed"]).await?;
    let waiter = case.gang_in(&right, "waiter", 1, 8).volcano();
    let waiter = case.submit(&waiter).await?;
    case.waits(&waiter, &SHORT).await?;
    case.shows_gpus(&case.name, "allocated", 8).await?;
    case.midway().await?;
    ensure!(
        case.karmada().get(QUEUE, None, &left).await?.is_none(),
        "the queue object is kept"
    );
    case.stays_unplaced(&waiter, A_WHILE).await?;
    case.shows_gpus(&case.name, "allocated", 8).await?;
    ensure!(case.gpus_in_members().await? <= BOUND);

    case.end(&holder).await?;
    case.running(&waiter).await?;
    case.waits(&orphan, &["QueueNotFound"]).await?;
    ensure!(case.gpus_in_members().await? <= BOUND);
    Ok(())
}

/// A Deployment that uses the whole quota of its queue requests more in each pod.
pub(crate) async fn raised_requests(case: &Case) -> anyhow::Result<()> {
    case.queue(8).await?;
    case.nodes("member1", 4).await?;
    let everywhere = json!({"placement": {}});
    case.policy("deployments", DEPLOYMENT, "muster", everywhere)
        .await?;
    let template = case.gang("serve", 2, 4).deployment();
    let serve = case.submit(&template).await?;
    eventually(SOON, "both pods run", async || {
        match case.gpus_in_members().await {
            Ok(8) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await?;
    let refusal = edited(case, &serve, &raised(&template, 8)).await;
    let Err(refusal) = refusal else {
        bail!("the edit was accepted")
    };
    let refusal = format!("{refusal:#}");
    ensure!(
        refusal.contains("cannot grow: nvidia.com/gpu of each pod of main: 4 -> 8"),
        "{refusal}"
    );
    // More replicas wait for quota, with or without other edits.
    edited(case, &serve, &json!({"spec": {"replicas": 4}})).await?;
    case.never_holds_more(BOUND, A_WHILE).await
}

/// Returns a patch that makes a Deployment request this many GPUs in each pod.
pub(crate) fn raised(template: &Value, gpus: u32) -> Value {
    let mut pods = template["spec"]["template"].clone();
    pods["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = json!(gpus);
    pods["spec"]["containers"][0]["resources"]["requests"] = Value::Null;
    json!({"spec": {"template": pods}})
}

async fn edited(case: &Case, job: &Job, patch: &Value) -> anyhow::Result<()> {
    let namespace = Some(case.name.as_str());
    let edited = case.karmada().merge(job.kind, namespace, &job.name, patch);
    edited.await.map(drop).context("edit the template")
}

/// Returns a ClusterOverridePolicy that sets the replicas of a Deployment of this test.
fn more_replicas(case: &Case, of: &Job, replicas: u32) -> Value {
    let value = json!({"path": "/spec/replicas", "operator": "replace", "value": replicas});
    json!({
        "apiVersion": CLUSTER_OVERRIDE_POLICY.api_version(),
        "kind": CLUSTER_OVERRIDE_POLICY.name,
        "metadata": {"name": case.name},
        "spec": {
            "resourceSelectors": [{
                "apiVersion": "apps/v1", "kind": "Deployment", "namespace": case.name, "name": of.name,
            }],
            "overrideRules": [{"overriders": {"plaintext": [value]}}],
        },
    })
}

/// Waits until pods of this test in members request this many GPUs.
pub(crate) async fn members_hold(case: &Case, gpus: u64) -> anyhow::Result<()> {
    let what = format!("{gpus} GPUs in members");
    eventually(SOON, &what, async || match case.gpus_in_members().await {
        Ok(held) if held == gpus => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await
}

/// An administrator's override triples the replicas of a running Deployment. Muster charges what
/// its members get at once, also beyond the quota, and admits nothing into it. The Deployment
/// continues if the override is removed soon; otherwise it is evicted, and waits until the override
/// changes.
pub(crate) async fn overridden(case: &Case) -> anyhow::Result<()> {
    let why = "an administrator's override has members run more than was admitted, for the grace";
    case.audit_finds("queue overridden holds", why);
    // The member starts the pods one by one: the audit finds 6, 8, 10 or 12 devices, depending on
    // when it counts.
    case.audit_may_find("/serve: pods with ", why);
    case.queue(8).await?;
    case.nodes("member1", 4).await?;
    let everywhere = json!({"placement": {}});
    case.policy("deployments", DEPLOYMENT, "muster", everywhere)
        .await?;
    let serve = case.submit(&case.gang("serve", 2, 2).deployment()).await?;
    members_hold(case, 4).await?;
    let raise = more_replicas(case, &serve, 6);

    case.cluster_object(CLUSTER_OVERRIDE_POLICY, &raise).await?;
    case.shows_gpus(&case.name, "allocated", 12).await?;
    case.tells_over("nvidia.com/gpu", 4.0).await?;
    let next = case.submit(&case.gang("next", 1, 4).batch()).await?;
    case.waits(&next, &SHORT).await?;
    let says = |within: &'static str| {
        move |group: &Value| condition(group, "WithinAdmission")["status"] == within
    };
    let group = case
        .pod_group_when(&serve, "says that it exceeds", says("False"))
        .await?;
    let message = condition(&group, "WithinAdmission")["message"].as_str();
    let message = message.unwrap_or_default().to_owned();
    ensure!(
        message.contains(&format!(
            "ClusterOverridePolicy {} makes its Works request more",
            case.name
        )),
        "{message}"
    );
    println!("EXCEEDS {message}");
    case.karmada()
        .delete(CLUSTER_OVERRIDE_POLICY, None, &case.name)
        .await?;
    case.pod_group_when(&serve, "is within its admission again", says("True"))
        .await?;
    // The job that waited because of the excess fits beside what was admitted.
    case.running(&next).await?;
    members_hold(case, BOUND).await?;
    case.end(&next).await?;

    let since = Instant::now();
    case.karmada()
        .create(CLUSTER_OVERRIDE_POLICY, &raise)
        .await?;
    let last = case.submit(&case.gang("last", 1, 8).batch()).await?;
    let message = case.waits(&serve, &["OverrideExceeds"]).await?;
    println!("WAITS after {:?}: {message}", since.elapsed());
    case.running(&last).await?;
    case.never_holds_more(BOUND, A_WHILE).await?;
    ensure!(case.gpus_in_members().await? == BOUND);
    case.end(&last).await?;
    case.stays_unplaced(&serve, A_WHILE).await?;

    case.karmada()
        .delete(CLUSTER_OVERRIDE_POLICY, None, &case.name)
        .await?;
    members_hold(case, 4).await
}

/// Returns the Work of a job in member1.
async fn work_of(case: &Case, job: &Job) -> Result<Value, String> {
    let works = case.karmada().list(WORK, Some(MEMBER1_WORKS)).await;
    let works = works.map_err(|error| error.to_string())?;
    let of = |work: &&Value| {
        let metadata = &work["spec"]["workload"]["manifests"][0]["metadata"];
        metadata["name"] == job.name.as_str() && metadata["namespace"] == job.namespace.as_str()
    };
    let work = works.iter().find(of).cloned();
    work.ok_or_else(|| format!("no Work of {}", job.name))
}

/// A policy makes members keep what they started; it is older than Muster or an administrator's. A
/// job under it is not admitted. A running job under it still ends with its Works. What a Work
/// leaves in its member holds its quota until it is deleted there.
pub(crate) async fn preserved(case: &Case) -> anyhow::Result<()> {
    case.queue(8).await?;
    case.nodes("member1", 2).await?;
    let namespace = Some(case.name.as_str());
    let keep = |keep: bool| json!({"placement": {}, "preserveResourcesOnDeletion": keep});
    case.policy("deployments", DEPLOYMENT, "muster", keep(true))
        .await?;
    let policy = async |keep: bool| {
        let patch = json!({"spec": {"preserveResourcesOnDeletion": keep}});
        let patched = case
            .karmada()
            .merge(PROPAGATION_POLICY, namespace, "deployments", &patch);
        patched.await.map(drop)
    };
    let first = case.submit(&case.gang("first", 2, 4).deployment()).await?;
    let message = case.waits(&first, &["ResourcesPreserved"]).await?;
    ensure!(
        message.contains("set it to false in the policy"),
        "{message}"
    );
    policy(false).await?;
    members_hold(case, BOUND).await?;

    policy(true).await?;
    eventually(SOON, "the binding is set back", async || {
        let events = case.karmada().list(EVENT, namespace).await;
        let events = events.map_err(|error| error.to_string())?;
        let told = events.iter().any(|event| {
            let note = event["message"].as_str().unwrap_or_default();
            note.contains("its binding is set back to false")
        });
        let preserves = &work_of(case, &first).await?["spec"]["preserveResourcesOnDeletion"];
        match told && *preserves == false {
            true => Ok(()),
            false => Err(format!("told: {told}, its Work says {preserves}")),
        }
    })
    .await?;
    case.delete(&first).await?;
    members_hold(case, 0).await?;
    case.gone(&first).await?;

    policy(false).await?;
    let left = case.submit(&case.gang("left", 2, 4).deployment()).await?;
    members_hold(case, BOUND).await?;
    let waits = case.submit(&case.gang("waits", 1, 8).batch()).await?;
    case.waits(&waits, &SHORT).await?;
    let work = work_of(case, &left).await.map_err(anyhow::Error::msg)?;
    let work = work["metadata"]["name"].as_str().unwrap_or_default();
    let patch = json!({"spec": {"preserveResourcesOnDeletion": true}});
    case.karmada()
        .merge(WORK, Some(MEMBER1_WORKS), work, &patch)
        .await?;
    case.delete(&left).await?;
    eventually(SOON, "its Work is gone", async || {
        match work_of(case, &left).await {
            Err(_) => Ok(()),
            Ok(work) => Err(work["metadata"].to_string()),
        }
    })
    .await?;
    case.stays_unplaced(&waits, A_WHILE).await?;
    case.never_holds_more(BOUND, A_WHILE).await?;
    ensure!(
        case.gpus_in_members().await? == BOUND,
        "the Work left no pods"
    );
    let member = case.plane.member("member1").await?;
    member.delete(DEPLOYMENT, namespace, "left").await?;
    case.running(&waits).await?;
    case.never_holds_more(BOUND, A_WHILE).await
}

/// The namespace of a gang that runs in two clusters is deleted. The override that divides the gang
/// may be removed before its Works are, but no member gets the whole gang meanwhile.
pub(crate) async fn split_namespace(case: &Case) -> anyhow::Result<()> {
    case.queue(12).await?;
    case.nodes("member1", 1).await?;
    case.nodes("member2", 1).await?;
    let job = case.submit(&training(case, "train", 5)).await?;
    case.running(&job).await?;
    members_hold(case, 12).await?;
    let tenant = case.tenant().await?;
    let all = tenant
        .objects
        .delete_collection(OVERRIDE_POLICY, &case.name);
    match all.await {
        Ok(()) => bail!("a tenant deleted the override that divides its job"),
        Err(error) => ensure!(error.to_string().contains("muster-train-job"), "{error}"),
    }
    case.karmada().delete(NAMESPACE, None, &case.name).await?;
    never_within(LOOK, "more GPUs than were admitted", async || {
        match case.gpus_in_members().await {
            Ok(gpus) if gpus > 12 => Err(format!("{gpus} GPUs")),
            // Members remove the namespace too.
            _ => Ok(()),
        }
    })
    .await?;
    members_hold(case, 0).await?;
    eventually(SOON, "the namespace gone", async || {
        match case.karmada().get(NAMESPACE, None, &case.name).await {
            Ok(None) => Ok(()),
            Ok(Some(namespace)) => Err(namespace["status"].to_string()),
            Err(error) => Err(error.to_string()),
        }
    })
    .await
}

#[test]
fn a_gang_whose_namespace_goes_is_never_whole_in_a_member() {
    managed("splitgoes", split_namespace);
}

#[test]
fn what_a_member_is_to_keep_holds_its_quota() {
    managed("preserved", preserved);
}

#[test]
fn what_an_override_adds_is_charged_and_evicted() {
    managed("overridden", overridden);
}

#[test]
fn a_deleted_queue_holds_its_parents_quota_while_its_job_runs() {
    managed_and_killed("deletedqueue", deleted_child);
}

#[test]
fn what_runs_cannot_ask_for_more_in_each_pod() {
    managed("raised", raised_requests);
}
