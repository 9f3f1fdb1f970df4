//! Devices that a device plugin offers to a kubelet: each container gets its own, a refused pod says so, and so does
//! one whose device is not healthy any more.

use std::collections::BTreeSet;

use anyhow::ensure;
use e2e::harness::jobs::TestGang;
use serde_json::{Value, json};
use testbed::DeviceOffer;
use testbed::tools::BUSYBOX_IMAGE;

use super::{AMPLE, GPUS, REAL, not_on};
use crate::case::Case;
use crate::job::{Job, record};

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

/// Two pods have devices of their own. One of these fails: the job runs again, with others. Then the plugin refuses to
/// give any device to a pod that has been bound: that is no fault of its job, which runs again too. At last a Volcano
/// Job gets devices by Volcano's scheduler.
pub(super) async fn given_refused_and_lost(case: &Case) -> anyhow::Result<()> {
    case.queue(16).await?;
    let policy = json!({"spec": {"placement": {
        "preferredClusters": [REAL], "startDeadlineSeconds": AMPLE, "recoveryDeadlineSeconds": 5,
    }}});
    case.capacity_policy(policy).await?;
    let testbed = &case.plane.testbed;
    let mut trains = gang(case, "trains", 2).batch();
    that_prints(case, &mut trains["spec"]["template"])?;
    let job = case.submit(&trains).await?;
    case.running(&job).await?;
    let failed = given(case, &job).await?.pop_first().unwrap_or_default();
    let mut offer = DeviceOffer::of(GPUS);
    offer.healthy.retain(|id| *id != failed);
    offer.unhealthy.push(failed.clone());
    testbed.offer_devices(REAL, 1, &offer)?;
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

    let mut volcano = gang(case, "volcano", 2).volcano();
    that_prints(case, &mut volcano["spec"]["tasks"][0]["template"])?;
    let volcano = case.submit(&volcano).await?;
    case.running(&volcano).await?;
    given(case, &volcano).await.map(drop)
}
