//! Members that are reached through Karmada's cluster proxy: one in pull mode, which its
//! karmada-agent joins and serves, and one in push mode whose Cluster asks for the proxy.
//!
//! The pods of a gang over both meet by a Service that Karmada propagates, in one of them through
//! karmada-agent.
//!
//! In both, Muster sees nothing before it is granted rights. This proves that it uses the proxy,
//! since the credentials in `secretRef` would give it all rights.

use e2e::harness::jobs::annotated;
use e2e::harness::kinds::{
    BATCH_JOB, CLUSTER, GPU_POOL, ObjectKind, PROPAGATION_POLICY, QUEUE, VOLCANO_JOB,
};
use e2e::harness::wait::eventually;
use serde_json::{Value, json};
use testbed::SyncMode;

use crate::case::{Case, SOON, brief};
use crate::job::Job;
use crate::plane::SPARES;
use crate::services;
use crate::story::managed_with_spare;

const PULLED: &str = "pulled";
const PUSHED: &str = SPARES[1];

/// Sets how Muster reaches the member in push mode.
async fn access(case: &Case, way: Value) -> anyhow::Result<()> {
    let patch = json!({"metadata": {"annotations": {"muster.io/access": way}}});
    case.karmada().merge(CLUSTER, None, PUSHED, &patch).await?;
    Ok(())
}

/// Restricts all jobs of a kind to one member.
async fn only_to(case: &Case, kind: ObjectKind, member: &str) -> anyhow::Result<()> {
    let spec = json!({"placement": {"clusterAffinity": {"clusterNames": [member]}}});
    case.policy(member, kind, "muster", spec).await
}

/// Waits until the job's message contains these words.
async fn waits_since(case: &Case, job: &Job, words: &[&str]) -> anyhow::Result<()> {
    let says = |group: &Value| {
        let message = group["status"]["federation"]["message"].as_str();
        message.is_some_and(|message| words.iter().all(|word| message.contains(word)))
    };
    let what = format!("waits and says {words:?}");
    case.pod_group_when(job, &what, says).await.map(drop)
}

/// Waits until the member's GpuPool shows `free` of eight devices free.
async fn shows_free(case: &Case, member: &str, free: u64) -> anyhow::Result<()> {
    let name = format!("{member}.{}", case.product.to_lowercase());
    let what = format!("GpuPool {name} with {free} free");
    eventually(SOON, &what, async || {
        let pool = case.karmada().get(GPU_POOL, None, &name).await;
        let pool = pool.map_err(|error| error.to_string())?.unwrap_or_default();
        let status = &pool["status"];
        let right = status["total"] == 8 && status["free"] == free && status["health"] == "Ready";
        right.then_some(()).ok_or_else(|| brief(&pool))
    })
    .await
}

/// Follows a member from a pool without nodes to one whose devices are used, and free again.
async fn is_used(case: &Case, member: &str, job: &Job) -> anyhow::Result<()> {
    let rights = ["through Karmada's cluster proxy", "muster install --member"];
    waits_since(case, job, &rights).await?;
    let plane = case.plane;
    plane
        .muster
        .install_in_member(&plane.testbed, member)
        .await?;
    case.running(job).await?;
    assert_eq!(case.placed(job).await?, [member]);
    let pods = case.pods(member).await?;
    assert_eq!(pods.iter().filter(|pod| job.owns(pod)).count(), 2);
    shows_free(case, member, 0).await?;
    case.shows_gpus(&case.name, "allocated", 8).await?;
    case.end(job).await?;
    case.finished(job, "Succeeded").await?;
    shows_free(case, member, 8).await?;
    case.shows_gpus(&case.name, "allocated", 0).await
}

async fn through_the_proxy(case: &Case) -> anyhow::Result<()> {
    only_to(case, VOLCANO_JOB, PULLED).await?;
    let job = case.submit(&case.gang("pulled", 2, 4).volcano()).await?;
    is_used(case, PULLED, &job).await?;
    // Karmada keeps a cluster while a binding names it.
    case.delete(&job).await?;
    case.gone(&job).await?;

    only_to(case, BATCH_JOB, PUSHED).await?;
    access(case, json!("Through")).await?;
    case.nodes(PUSHED, 1).await?;
    let job = case.submit(&case.gang("pushed", 2, 4).batch()).await?;
    waits_since(case, &job, &["muster.io/access is \"Through\""]).await?;
    access(case, json!("Proxy")).await?;
    is_used(case, PUSHED, &job).await?;
    case.delete(&job).await?;
    case.gone(&job).await?;
    found_by_services(case).await?;

    // Muster reaches the member directly again, without a restart.
    access(case, Value::Null).await?;
    let job = case.submit(&case.gang("direct", 2, 4).batch()).await?;
    case.running(&job).await?;
    case.end(&job).await?;
    case.finished(&job, "Succeeded").await
}

/// An indexed Job over both members, whose pods find the pod of rank 0 by a Service that Karmada
/// propagates.
async fn found_by_services(case: &Case) -> anyhow::Result<()> {
    let members = [PULLED, PUSHED];
    let namespace = Some(case.name.as_str());
    let both = json!({"spec": {"placement": {"clusterAffinity": {"clusterNames": members}}}});
    let quota = json!({"spec": {"capability": {"nvidia.com/gpu": 16}}});
    let addresses = json!({"spec": {"placement": {"addresses": {"*": services::ADDRESSES}}}});
    let karmada = case.karmada();
    karmada
        .merge(PROPAGATION_POLICY, namespace, PUSHED, &both)
        .await?;
    karmada.merge(QUEUE, None, &case.name, &quota).await?;
    case.capacity_policy(addresses).await?;
    let mut indexed = case.gang("both", 8, 2).batch();
    indexed["spec"]["completionMode"] = json!("Indexed");
    let indexed = annotated(indexed, "muster.io/split", "Allowed");
    let job = case.submit(&indexed).await?;
    case.running(&job).await?;
    services::first_is_found(case, &job, members).await?;
    case.delete(&job).await?;
    case.gone(&job).await?;
    services::nothing_left(case, members, None).await?;
    let one = json!({"spec": {"placement": {"clusterAffinity": {"clusterNames": [PUSHED]}}}});
    karmada
        .merge(PROPAGATION_POLICY, namespace, PUSHED, &one)
        .await?;
    Ok(())
}

#[test]
fn members_are_used_through_karmadas_proxy_in_pull_mode_and_where_push_clusters_ask_for_it() {
    managed_with_spare(PUSHED, "proxied", async |case| {
        case.queue(8).await?;
        let testbed = &case.plane.testbed;
        let pulled = case.own_member(PULLED, SyncMode::Pull);
        testbed.add_member(&pulled).await?;
        let outcome = through_the_proxy(case).await;
        let direct = access(case, Value::Null).await;
        let removed = testbed.remove_member(PULLED).await;
        outcome?;
        direct?;
        Ok(removed?)
    });
}
