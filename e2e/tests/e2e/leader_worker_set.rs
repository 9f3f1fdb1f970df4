//! LeaderWorkerSets, which upstream's own controller and webhooks run: an example of the project as it is, and what
//! the quota of a queue means for groups.

use std::collections::BTreeSet;

use anyhow::{Context as _, bail, ensure};
use e2e::harness::kinds::{CAPACITY_POLICY, LEADER_WORKER_SET, NAMESPACE, POD};
use e2e::harness::tenant::Tenant;
use e2e::harness::wait::eventually;
use serde_json::{Value, json};
use testbed::tools::Toolset;

use crate::case::{A_WHILE, Case, SOON};
use crate::contest::{SHORT, granted};
use crate::job::Job;
use crate::story::managed;

/// An example of the project: three groups of four pods, each of which requests 50m CPU.
const EXAMPLE: &str = "docs/examples/sample/lws.yaml";
/// The labels by which its controller numbers pods.
const NUMBERS: [&str; 2] = ["group-index", "worker-index"];

/// Returns the example for this test's namespace and nodes, otherwise as it is: the nodes of other tests go when those
/// end. `upstream_examples` has it without any change.
fn example(case: &Case) -> anyhow::Result<Value> {
    let module = case.plane.tools.module_dir(Toolset::LeaderWorkerSet)?;
    let text = std::fs::read_to_string(module.join(EXAMPLE))?;
    let documents: Vec<Value> = serde_saphyr::from_multiple(&text)?;
    let mut example = documents.into_iter().next().context("an empty example")?;
    example["metadata"]["namespace"] = json!(case.name);
    let pods = &mut example["spec"]["leaderWorkerTemplate"]["workerTemplate"]["spec"];
    pods["nodeSelector"] = json!({"nvidia.com/gpu.product": case.product});
    Ok(example)
}

/// Waits until the job has these groups with `size` running pods each, all numbered, and no other pods.
async fn groups_run(case: &Case, job: &Job, groups: u32, size: u32) -> anyhow::Result<()> {
    let member = case.placed(job).await?.join(" and ");
    let expected: BTreeSet<String> = (0..groups)
        .flat_map(|group| (0..size).map(move |pod| format!("{group}.{pod}")))
        .collect();
    let what = format!("{groups} groups of {} run", job.name);
    eventually(SOON, &what, async || {
        let pods = case.pods(&member).await;
        let pods = pods.map_err(|error| error.to_string())?;
        let own: Vec<&Value> = pods.iter().filter(|pod| job.owns(pod)).collect();
        let running = own
            .iter()
            .filter(|pod| pod["status"]["phase"] == "Running" && !is_ending(pod));
        let found: BTreeSet<String> = running.map(|pod| number(pod)).collect();
        let shown = case.pod_group(job).await?.unwrap_or_default();
        let counted = shown["status"]["running"] == groups * size;
        match own.len() == expected.len() && found == expected && counted {
            true => Ok(()),
            false => Err(format!("{found:?} of {}, {}", own.len(), shown["status"])),
        }
    })
    .await
}

fn is_ending(pod: &Value) -> bool {
    !pod["metadata"]["deletionTimestamp"].is_null()
}

/// Returns the numbers of a pod's group and of the pod in it.
fn number(pod: &Value) -> String {
    let label = |name: &str| {
        let key = format!("leaderworkerset.sigs.k8s.io/{name}");
        let label = pod["metadata"]["labels"][key].as_str();
        label.unwrap_or("none").to_owned()
    };
    NUMBERS.map(label).join(".")
}

/// Waits until the queue of this test has this much CPU charged.
async fn charges_cpu(case: &Case, cpu: &str) -> anyhow::Result<()> {
    eventually(SOON, &format!("{cpu} CPU are charged"), async || {
        let policy = case.karmada().get(CAPACITY_POLICY, None, &case.name).await;
        let policy = policy
            .map_err(|error| error.to_string())?
            .unwrap_or_default();
        let resources = policy["status"]["resources"].as_array();
        let mut resources = resources.into_iter().flatten();
        match resources.any(|of| of["name"] == "cpu" && of["allocated"] == cpu) {
            true => Ok(()),
            false => Err(policy["status"]["resources"].to_string()),
        }
    })
    .await
}

/// Checks that a running job can have neither more groups nor larger ones.
async fn cannot_grow(tenant: &Tenant, job: &Job, groups: u32) -> anyhow::Result<()> {
    let (namespace, more) = (Some(job.namespace.as_str()), groups + 1);
    let Tenant { objects, .. } = tenant;
    let edit = async |spec: Value| {
        objects
            .merge(
                LEADER_WORKER_SET,
                namespace,
                &job.name,
                &json!({"spec": spec}),
            )
            .await
    };
    let size = &job.template["spec"]["leaderWorkerTemplate"]["size"];
    let larger = size.as_u64().context("no size")? + 1;
    for (what, tried) in [
        (
            format!("replicas: {groups} -> {more}"),
            objects
                .scale(LEADER_WORKER_SET, namespace, &job.name, more)
                .await,
        ),
        (
            "pods of leader".to_owned(),
            edit(json!({"replicas": more})).await.map(drop),
        ),
        (
            "pods of worker".to_owned(),
            edit(json!({"leaderWorkerTemplate": {"size": larger}}))
                .await
                .map(drop),
        ),
    ] {
        let Err(error) = tried else {
            bail!("{}: {what} was accepted", job.name)
        };
        let (error, words) = (error.to_string(), format!("cannot grow: {what}"));
        ensure!(error.contains(&words), "{error}, not {words}");
    }
    Ok(())
}

/// Lowers the number of groups, which is always allowed.
async fn lower(tenant: &Tenant, job: &Job, groups: u32) -> anyhow::Result<()> {
    let namespace = Some(job.namespace.as_str());
    let Tenant { objects, .. } = tenant;
    let scaled = objects.scale(LEADER_WORKER_SET, namespace, &job.name, groups);
    scaled.await.context("lower the replicas")
}

/// The example runs in a queue with exactly the quota that it needs, can only become smaller, and tells its user
/// what its controller tells.
async fn as_it_is(case: &Case, tenant: &Tenant) -> anyhow::Result<()> {
    let job = case.submit_by(&tenant.objects, &example(case)?).await?;
    case.running(&job).await?;
    groups_run(case, &job, 3, 4).await?;
    let binding = case.binding(&job).await.map_err(anyhow::Error::msg)?;
    ensure!(granted(&binding.unwrap_or_default()) == 12, "not 12 pods");
    let group = case.pod_group(&job).await.map_err(anyhow::Error::msg)?;
    let group = group.unwrap_or_default();
    ensure!(group["spec"]["minMember"] == 4, "{}", group["spec"]);
    charges_cpu(case, "600m").await?;
    cannot_grow(tenant, &job, 3).await?;
    groups_run(case, &job, 3, 4).await?;
    lower(tenant, &job, 2).await?;
    groups_run(case, &job, 2, 4).await?;
    eventually(SOON, "its template has its status", async || {
        let template = case.template(&job).await?.unwrap_or_default();
        let status = &template["status"];
        let told = status["readyReplicas"] == 2 && status["size"].is_null();
        told.then_some(()).ok_or_else(|| status.to_string())
    })
    .await
}

/// Groups with GPUs wait for the quota that they need, and start as soon as others have fewer of them. A group that
/// loses a pod starts again as a whole, and stays where it is.
async fn by_groups(case: &Case, tenant: &Tenant) -> anyhow::Result<()> {
    let queue = json!({"capability": {"nvidia.com/gpu": 4}});
    let queue = case.queue_of("gpus", queue).await?;
    let submit = async |name: &str, groups: u32| {
        let set = case.gang_in(&queue, name, 2, 1).leader_worker_set(groups);
        case.submit_by(&tenant.objects, &set).await
    };
    let large = submit("large", 3).await?;
    let message = case.waits(&large, &["ExceedsCapability"]).await?;
    ensure!(
        message.contains('6') && message.contains('4'),
        "not 6 of 4 GPUs: {message}"
    );
    let serve = submit("serve", 2).await?;
    case.running(&serve).await?;
    groups_run(case, &serve, 2, 2).await?;
    let next = submit("next", 1).await?;
    case.waits(&next, &SHORT).await?;
    case.never_holds_more(4, A_WHILE / 2).await?;
    // What its record admits stays; what is charged is what its template asks for by now.
    let why =
        "the audit counts a LeaderWorkerSet as its record does, and by then it has fewer groups";
    case.audit_finds("queue lws-gpus holds 6 of 4 nvidia.com/gpu", why);
    lower(tenant, &serve, 1).await?;
    case.running(&next).await?;
    case.never_holds_more(4, A_WHILE / 4).await?;

    let namespace = Some(case.name.as_str());
    let member = case.plane.member("member1").await?;
    let leader = async || {
        let leader = member.get(POD, namespace, "next-0").await;
        let leader = leader.map_err(|error| error.to_string())?;
        let uid = leader.unwrap_or_default()["metadata"]["uid"].take();
        Ok::<_, String>(uid)
    };
    let before = leader().await.map_err(anyhow::Error::msg)?;
    member.delete(POD, namespace, "next-0-1").await?;
    eventually(SOON, "the group has another leader", async || {
        let now = leader().await?;
        match now != before && !now.is_null() {
            true => Ok(()),
            false => Err(format!("{now}, before {before}")),
        }
    })
    .await?;
    groups_run(case, &next, 1, 2).await?;
    case.delete(&serve).await?;
    case.gone(&serve).await?;
    case.shows_gpus(&queue, "allocated", 2).await
}

async fn groups(case: &Case) -> anyhow::Result<()> {
    case.parent_queue(json!({"capability": {"cpu": "600m"}}))
        .await?;
    let annotations = json!({"metadata": {"annotations": {"muster.io/default-queue": case.name}}});
    case.karmada()
        .merge(NAMESPACE, None, &case.name, &annotations)
        .await?;
    case.nodes("member1", 1).await?;
    let tenant = case.tenant().await?;
    as_it_is(case, &tenant).await?;
    by_groups(case, &tenant).await
}

#[test]
fn an_example_runs_as_it_is_and_groups_wait_for_their_quota() {
    managed("lws", groups);
}
