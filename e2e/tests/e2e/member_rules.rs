//! What members add to the pods of a job before they store them counts before the job is admitted: the overhead of a
//! RuntimeClass, and the defaults of a LimitRange. A ResourceQuota of the namespace in a member sends jobs elsewhere.

use anyhow::ensure;
use e2e::harness::kinds::{LIMIT_RANGE, ObjectKind, QUEUE, RESOURCE_QUOTA, RUNTIME_CLASS};
use e2e::harness::wait::eventually;
use serde_json::{Value, json};

use crate::case::{A_WHILE, Case, SOON};
use crate::contest::SHORT;
use crate::job::Job;
use crate::story::managed;

const MEMBER: &str = "member1";

/// Creates an object in the story's namespace of a member, once Karmada has made the namespace there.
async fn create_in(case: &Case, member: &str, kind: ObjectKind, spec: Value) -> anyhow::Result<()> {
    let object = json!({"metadata": {"name": "rules", "namespace": case.name}, "spec": spec});
    let objects = case.plane.member(member).await?;
    let what = format!("{} in {member}", kind.name);
    eventually(SOON, &what, async || {
        let made = objects.create(kind, &object).await;
        made.map(drop).map_err(|error| error.to_string())
    })
    .await
}

async fn queue(case: &Case, capability: Value) -> anyhow::Result<()> {
    let object = json!({
        "metadata": {"name": case.name},
        "spec": {"weight": 1, "capability": capability},
    });
    case.cluster_object(QUEUE, &object).await
}

/// Returns a batch Job of one pod whose container has `resources`, with `change` in its pod spec.
fn job(case: &Case, name: &str, resources: Value, runtime_class: Option<&str>) -> Value {
    let mut job = case.gang(name, 1, 0).batch();
    let pod = &mut job["spec"]["template"]["spec"];
    pod["containers"][0]["resources"] = resources;
    if let Some(class) = runtime_class {
        pod["runtimeClassName"] = json!(class);
    }
    job
}

/// Submits jobs of these names: the first two run before the next one comes, and all others wait.
async fn two_run(
    case: &Case,
    names: &[&str],
    template: impl Fn(&str) -> Value,
) -> anyhow::Result<Vec<Job>> {
    let mut jobs = Vec::new();
    for name in names {
        let job = case.submit(&template(name)).await?;
        match jobs.len() {
            0 | 1 => _ = case.running(&job).await?,
            _ => _ = case.waits(&job, &SHORT).await?,
        }
        jobs.push(job);
    }
    Ok(jobs)
}

/// The pods have a RuntimeClass whose overhead is as large as their requests: a queue of 8 CPUs runs two pods that
/// state 2 CPUs, not four.
pub(crate) async fn overhead(case: &Case) -> anyhow::Result<()> {
    queue(case, json!({"cpu": "8"})).await?;
    case.nodes(MEMBER, 1).await?;
    let class = format!("{}-kata", case.name);
    let object = json!({
        "metadata": {"name": class},
        "handler": "kata",
        "overhead": {"podFixed": {"cpu": "2"}},
    });
    let members = case.members();
    for member in &members {
        let member = case.plane.member(member).await?;
        member.create(RUNTIME_CLASS, &object).await?;
    }
    let ran = async {
        let gpu = json!({"nvidia.com/gpu": 1});
        let resources = json!({"requests": {"cpu": "2", "nvidia.com/gpu": 1}, "limits": gpu});
        let template = |name: &str| job(case, name, resources.clone(), Some(&class));
        let jobs = two_run(case, &["a", "b", "c", "d"], template).await?;
        case.stays_unplaced(&jobs[3], A_WHILE).await?;
        let pods = case.pods(MEMBER).await?;
        ensure!(
            pods.len() == 2 && pods.iter().all(|pod| pod["spec"]["overhead"]["cpu"] == "2"),
            "{pods:?}"
        );
        case.end(&jobs[0]).await?;
        case.running(&jobs[2]).await?;
        anyhow::Ok(())
    };
    let ran = ran.await;
    for member in &members {
        let member = case.plane.member(member).await?;
        member.delete(RUNTIME_CLASS, None, &class).await?;
    }
    ran
}

/// The requests of the pods come from a LimitRange of the member's namespace, CPU and GPUs.
pub(crate) async fn defaults(case: &Case) -> anyhow::Result<()> {
    let why = "the audit knows jobs by their templates, which request no device";
    case.audit_may_find("of its 0 devices", why);
    queue(case, json!({"cpu": "8", "nvidia.com/gpu": 8})).await?;
    case.nodes(MEMBER, 2).await?;
    let default = json!({"cpu": "2", "nvidia.com/gpu": "4"});
    let limits =
        json!({"limits": [{"type": "Container", "default": default, "defaultRequest": default}]});
    for member in case.members() {
        create_in(case, member, LIMIT_RANGE, limits.clone()).await?;
    }
    let template = |name: &str| job(case, name, json!({}), None);
    let jobs = two_run(case, &["a", "b", "c"], template).await?;
    case.stays_unplaced(&jobs[2], A_WHILE).await?;
    case.shows_gpus(&case.name, "allocated", 8).await?;
    ensure!(
        case.gpus_in_members().await? <= 8,
        "more GPUs than the quota"
    );
    case.end(&jobs[0]).await?;
    case.running(&jobs[2]).await?;
    // What a template states itself is no other amount.
    case.end(&jobs[1]).await?;
    let stated = case.submit(&case.gang("stated", 1, 4).batch()).await?;
    case.running(&stated).await.map(drop)
}

/// A ResourceQuota in the member that jobs go to by default sends a job to the other; where both have one, the job
/// waits and names it.
pub(crate) async fn quota(case: &Case) -> anyhow::Result<()> {
    const OTHER: &str = "member2";
    case.queue(64).await?;
    case.nodes(MEMBER, 2).await?;
    case.nodes(OTHER, 1).await?;
    let hard = |gpus: u32| json!({"hard": {"requests.nvidia.com/gpu": gpus.to_string()}});
    create_in(case, MEMBER, RESOURCE_QUOTA, hard(4)).await?;
    // Its only sign is that jobs are placed elsewhere: the first may come before Muster has seen it.
    tokio::time::sleep(std::time::Duration::from_secs(5)).await;
    let elsewhere = case.submit(&case.gang("elsewhere", 1, 8).batch()).await?;
    ensure!(case.placed(&elsewhere).await? == [OTHER], "not {OTHER}");
    case.running(&elsewhere).await?;
    let waits = case.submit(&case.gang("waits", 1, 8).batch()).await?;
    let named = "its ResourceQuota rules refuses the pods: requests.nvidia.com/gpu: hard 4, used 0, needed 8";
    let says = |group: &Value| {
        let message = group["status"]["federation"]["message"].as_str();
        message.is_some_and(|message| message.contains("room") || message.contains(named))
    };
    case.pod_group_when(&waits, "waits", says).await?;
    let objects = case.plane.member(MEMBER).await?;
    objects
        .merge(
            RESOURCE_QUOTA,
            Some(&case.name),
            "rules",
            &json!({"spec": hard(8)}),
        )
        .await?;
    ensure!(case.placed(&waits).await? == [MEMBER], "not {MEMBER}");
    case.running(&waits).await.map(drop)
}

#[test]
fn the_overhead_of_a_runtime_class_counts_before_the_admission() {
    managed("overhead", overhead);
}

#[test]
fn the_defaults_of_a_limit_range_count_before_the_admission() {
    managed("limitrange", defaults);
}

#[test]
fn a_quota_of_a_member_sends_jobs_elsewhere() {
    managed("memberquota", quota);
}
