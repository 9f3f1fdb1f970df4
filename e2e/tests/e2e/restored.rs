//! A control plane whose etcd is restored from an earlier snapshot while Muster runs: Muster's
//! state is newer, so Muster drops it and lists everything again.

use std::path::Path;

use e2e::harness::jobs::{self, TestGang};
use e2e::harness::kinds::{BATCH_JOB, BINDING, NAMESPACE, QUEUE};
use e2e::harness::muster::{ProcessRole, metric};
use e2e::harness::wait::eventually;
use serde_json::{Value, json};
use testbed::{ETCD, KARMADA_APISERVER, MemberProcess};

use crate::case::SOON;
use crate::crash::CLEANED;
use crate::job::{clusters, record};
use crate::plane::{Plane, of_one_member, on_own_plane};

const NAME: &str = "restored";
const MEMBER: &str = "member1";

pub(crate) fn restored() {
    on_own_plane("restored", of_one_member(MEMBER), async |plane| {
        back_in_time(plane).await
    });
}

fn job(name: &str, gpus: u32) -> Value {
    let gang = TestGang {
        namespace: NAME.into(),
        name: name.into(),
        queue: Some(NAME.into()),
        pods: 1,
        gpus,
        product: None,
        run_for: None,
        fail: false,
        priority_class: None,
    };
    gang.batch()
}

async fn back_in_time(plane: &Plane) -> anyhow::Result<()> {
    let karmada = &plane.karmada;
    plane.muster.start(&plane.testbed, ProcessRole::All).await?;
    let labels = json!({"muster.io/managed": "true"});
    let namespace = json!({"metadata": {"name": NAME, "labels": labels}});
    karmada.create(NAMESPACE, &namespace).await?;
    karmada.create(QUEUE, &jobs::queue(NAME, 4)).await?;
    karmada.create(BATCH_JOB, &job("before", 2)).await?;
    placed(plane, "before").await?;
    shows(plane, 2).await?;

    let snapshot = plane.testbed.dir().join("etcd-snapshot");
    with_etcd_stopped(plane, |data| copy(data, &snapshot)).await?;
    karmada.create(BATCH_JOB, &job("after", 2)).await?;
    placed(plane, "after").await?;
    karmada.delete(BATCH_JOB, Some(NAME), "before").await?;
    gone(plane, "before").await?;
    shows(plane, 2).await?;

    with_etcd_stopped(plane, |data| {
        std::fs::remove_dir_all(data)?;
        copy(&snapshot, data)
    })
    .await?;
    restart_the_rest(plane).await?;
    eventually(
        CLEANED,
        "Muster sees that the API server went back",
        async || {
            let metrics = plane.muster.metrics(&plane.testbed, ProcessRole::All).await;
            let metrics = metrics.map_err(|error| error.to_string())?;
            match metric(&metrics, "muster_watch_went_back_total") {
                Some(times) if times > 0.0 => Ok(()),
                other => Err(format!("{other:?}")),
            }
        },
    )
    .await?;
    // The process is the same, and leads again.
    plane
        .muster
        .wait_leading(&plane.testbed, ProcessRole::All)
        .await?;
    placed(plane, "before").await?;
    gone(plane, "after").await?;
    shows(plane, 2).await?;
    // The rest of the quota is admitted, and no more.
    karmada.create(BATCH_JOB, &job("next", 2)).await?;
    placed(plane, "next").await?;
    karmada.create(BATCH_JOB, &job("waits", 1)).await?;
    shows(plane, 4).await?;
    let waits = karmada.get(BINDING, Some(NAME), "waits-job").await?;
    anyhow::ensure!(waits.is_none_or(|binding| clusters(&binding).is_empty()));
    Ok(())
}

/// Kills etcd, calls `act` on its data, and restarts it.
async fn with_etcd_stopped(
    plane: &Plane,
    act: impl FnOnce(&Path) -> std::io::Result<()>,
) -> anyhow::Result<()> {
    plane.testbed.kill(ETCD)?;
    act(&plane.testbed.dir().join("etcd"))?;
    plane.testbed.restart(ETCD).await?;
    // API servers serve again when they have reconnected.
    eventually(SOON, "the API server answers", async || {
        let read = plane.karmada.list(NAMESPACE, None).await;
        read.map(drop).map_err(|error| error.to_string())
    })
    .await?;
    Ok(plane.testbed.revive()?)
}

/// Restarts every process except etcd and Muster, as Kubernetes recommends after a restore.
async fn restart_the_rest(plane: &Plane) -> anyhow::Result<()> {
    let testbed = &plane.testbed;
    let member = MemberProcess::Apiserver.of(MEMBER);
    let first = [KARMADA_APISERVER, member.as_str()];
    for apiserver in first {
        testbed.restart(apiserver).await?;
    }
    let others = testbed.status().into_iter().map(|process| process.name);
    let keep = [ETCD, KARMADA_APISERVER, &member, ProcessRole::All.process()];
    for process in others.filter(|name| !keep.contains(&name.as_str())) {
        testbed.restart(&process).await?;
    }
    Ok(())
}

fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        match entry.file_type()?.is_dir() {
            true => copy(&entry.path(), &target)?,
            false => drop(std::fs::copy(entry.path(), &target)?),
        }
    }
    Ok(())
}

async fn placed(plane: &Plane, job: &str) -> anyhow::Result<()> {
    eventually(SOON, &format!("{job} placed"), async || {
        let binding = plane
            .karmada
            .get(BINDING, Some(NAME), &format!("{job}-job"))
            .await;
        let binding = binding
            .map_err(|error| error.to_string())?
            .unwrap_or_default();
        match clusters(&binding).is_empty() {
            false => Ok(()),
            true => Err(format!("record {}", record(&binding))),
        }
    })
    .await
}

async fn gone(plane: &Plane, job: &str) -> anyhow::Result<()> {
    eventually(CLEANED, &format!("{job} gone"), async || {
        let binding = plane
            .karmada
            .get(BINDING, Some(NAME), &format!("{job}-job"))
            .await;
        match binding.map_err(|error| error.to_string())? {
            None => Ok(()),
            Some(binding) => Err(binding["metadata"].to_string()),
        }
    })
    .await
}

/// Waits until the queue's status shows this many GPUs.
async fn shows(plane: &Plane, gpus: u32) -> anyhow::Result<()> {
    eventually(SOON, &format!("{gpus} GPUs are charged"), async || {
        let queue = plane.karmada.get(QUEUE, None, NAME).await;
        let queue = queue
            .map_err(|error| error.to_string())?
            .unwrap_or_default();
        let held = &queue["status"]["allocated"]["nvidia.com/gpu"];
        match held.as_str() == Some(gpus.to_string().as_str()) {
            true => Ok(()),
            false => Err(held.to_string()),
        }
    })
    .await
}
