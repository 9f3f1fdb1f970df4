//! Devices that a device plugin offers to a kubelet: each container gets its own, a refused pod says so, and so does
//! one whose device is not healthy any more.

use std::collections::BTreeSet;

use anyhow::ensure;
use e2e::harness::jobs::TestGang;
use e2e::harness::kinds::POD;
use e2e::harness::wait::eventually;
use serde_json::{Value, json};
use testbed::DeviceOffer;
use testbed::tools::BUSYBOX_IMAGE;

use super::{AMPLE, GPUS, REAL, not_on};
use crate::case::{A_WHILE, Case, SOON};
use crate::job::{Job, record};

/// A finalizer that keeps the objects of pods, as a kubelet does for a moment.
const KEPT: &str = "e2e.muster.io/kept";

/// Has the pods of a template print their devices, and sleep.
fn that_prints(case: &Case, pods: &mut Value) -> anyhow::Result<()> {
    let spec = &mut pods["spec"];
    spec["terminationGracePeriodSeconds"] = json!(1);
    spec["affinity"] = not_on(&case.plane.testbed.real_node(REAL, 2)?);
    let container = &mut spec["containers"][0];
    container["image"] = json!(BUSYBOX_IMAGE);
    container["command"] = json!(["sh", "-c", "echo $NVIDIA_VISIBLE_DEVICES; sleep 1000000"]);
    container["resources"]["requests"] = json!({"cpu": "50m", "memory": "16Mi"});
    Ok(())
}

/// Returns a gang with two devices for each pod.
fn gang(case: &Case, name: &str, pods: u32) -> TestGang {
    TestGang {
        product: None,
        ..case.gang(name, pods, 2)
    }
}

/// Returns the devices that the pods of a job print.
async fn given(case: &Case, job: &Job) -> anyhow::Result<BTreeSet<String>> {
    let mut given = BTreeSet::new();
    for pod in case.real_pods(job, 2).await? {
        let printed = case.through_proxy(&["logs", &pod]).await?;
        given.extend(printed.trim().split(',').map(str::to_owned));
    }
    ensure!(given.len() == 4, "not two devices for each pod: {given:?}");
    Ok(given)
}

/// Waits until a job runs in a later attempt than its first.
async fn runs_again(case: &Case, job: &Job) -> anyhow::Result<()> {
    let again = |binding: &Value| record(binding)["attempt"].as_u64() > Some(1);
    case.binding_when(job, "in a later attempt", again).await?;
    case.running(job).await.map(drop)
}

/// Sets the finalizers of the pods of a job.
async fn stay(case: &Case, job: &Job, finalizers: Value) -> anyhow::Result<()> {
    let member = case.plane.member(REAL).await?;
    let pods = case.pods(REAL).await?;
    for pod in pods.iter().filter(|pod| job.owns(pod)) {
        let name = pod["metadata"]["name"].as_str().unwrap_or_default();
        let change = json!({"metadata": {"finalizers": finalizers}});
        member.merge(POD, Some(&case.name), name, &change).await?;
    }
    Ok(())
}

/// The pods of a job that is evicted have ended, and their objects are left: the next attempt waits until they are
/// gone. Volcano's controller would lose it.
async fn waits_for_former_pods(case: &Case, job: &Job) -> anyhow::Result<()> {
    eventually(SOON, "the pods have ended", async || {
        let pods = case
            .pods(REAL)
            .await
            .map_err(|error| format!("{error:#}"))?;
        let mut own = pods.iter().filter(|pod| job.owns(pod));
        match own.all(|pod| pod["status"]["phase"] == "Failed") {
            true => Ok(()),
            false => Err(pods.iter().map(|pod| pod["status"].to_string()).collect()),
        }
    })
    .await?;
    case.explains(
        job,
        "its former pods in cluster real still end (2 are left)",
    )
    .await?;
    case.stays_unplaced(job, A_WHILE).await?;
    stay(case, job, Value::Null).await
}

/// Two pods of a Volcano Job have devices of their own, by Volcano's scheduler. One of these fails: the job runs again,
/// with others. Then the plugin refuses to give any device to a pod that has been bound: that is no fault of its job,
/// which runs again too.
pub(super) async fn given_refused_and_lost(case: &Case) -> anyhow::Result<()> {
    case.queue(16).await?;
    let policy = json!({"spec": {"placement": {
        "preferredClusters": [REAL], "startDeadlineSeconds": AMPLE, "recoveryDeadlineSeconds": 5,
    }}});
    case.capacity_policy(policy).await?;
    let testbed = &case.plane.testbed;
    let mut trains = gang(case, "trains", 2).volcano();
    that_prints(case, &mut trains["spec"]["tasks"][0]["template"])?;
    let job = case.submit(&trains).await?;
    case.running(&job).await?;
    stay(case, &job, json!([KEPT])).await?;
    let failed = given(case, &job).await?.pop_first().unwrap_or_default();
    let mut offer = DeviceOffer::of(GPUS);
    offer.healthy.retain(|id| *id != failed);
    offer.unhealthy.push(failed.clone());
    testbed.offer_devices(REAL, 1, &offer)?;
    waits_for_former_pods(case, &job).await?;
    runs_again(case, &job).await?;
    let now = given(case, &job).await?;
    ensure!(!now.contains(&failed), "{failed} is given again: {now:?}");
    case.delete(&job).await?;
    case.gone(&job).await?;

    offer = DeviceOffer::of(GPUS);
    offer.refusal = Some("no healthy devices present".to_owned());
    testbed.offer_devices(REAL, 1, &offer)?;
    let mut refused = gang(case, "refused", 1).batch();
    that_prints(case, &mut refused["spec"]["template"])?;
    let refused = case.submit(&refused).await?;
    case.explains(&refused, "UnexpectedAdmissionError").await?;
    testbed.offer_devices(REAL, 1, &DeviceOffer::of(GPUS))?;
    runs_again(case, &refused).await?;
    case.shows_gpus(&case.name, "allocated", 2).await?;
    Ok(())
}
