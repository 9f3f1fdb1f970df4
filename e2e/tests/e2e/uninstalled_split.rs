//! Muster is uninstalled while a gang runs in parts over two clusters, one of which is reached through Karmada's
//! cluster proxy, and while jobs wait under policies of their namespace and of the cluster. The command is killed
//! after every few changes and run again: the parts keep their pods, and in the end nothing names Muster.

use std::collections::BTreeSet;

use anyhow::{Context as _, ensure};
use e2e::harness::jobs::{self, TestGang, annotated};
use e2e::harness::kinds::{
    BATCH_JOB, BINDING, CLUSTER, CLUSTER_PROPAGATION_POLICY, NAMESPACE, POD, QUEUE, VOLCANO_JOB,
};
use e2e::harness::muster::ProcessRole;
use e2e::harness::wait::eventually;
use serde_json::{Value, json};
use testbed::{TestbedCluster, TestbedSpec};

use crate::case::SOON;
use crate::crash::CLEANED;
use crate::job::clusters;
use crate::plane::{Plane, on_own_plane};
use crate::uninstalled::{MANAGED, OWN, job, left_of_muster, names_muster_only_in};

const MEMBERS: [&str; 2] = ["member1", "member2"];
/// The member that is reached through the proxy.
const PROXIED: &str = "member2";
/// How many lines a run of the command prints before it is killed: about as many changes.
const LINES: usize = 3;
/// More runs than there can be changes to make.
const RUNS: usize = 100;

pub(crate) fn uninstalled_with_parts() {
    // One node of eight GPUs in each.
    let spec = TestbedSpec::fleet(MEMBERS.len(), 1, 8, &["NVIDIA-H100-80GB"]);
    on_own_plane("uninstalled-split", spec, async |plane| {
        handed_over_with_parts(plane).await
    });
}

/// Returns a gang of five pods with two GPUs each, more than one member has.
fn in_parts(name: &str) -> Value {
    let gang = TestGang {
        namespace: MANAGED.into(),
        name: name.into(),
        queue: Some(MANAGED.into()),
        pods: 5,
        gpus: 2,
        product: None,
        run_for: None,
        fail: false,
        priority_class: None,
    };
    annotated(gang.volcano(), "muster.io/split", "Allowed")
}

async fn handed_over_with_parts(plane: &Plane) -> anyhow::Result<()> {
    let (karmada, testbed, muster) = (&plane.karmada, &plane.testbed, &plane.muster);
    let proxy = json!({"metadata": {"annotations": {"muster.io/access": "Proxy"}}});
    karmada.merge(CLUSTER, None, PROXIED, &proxy).await?;
    muster.install_in_member(testbed, PROXIED).await?;
    muster.start(testbed, ProcessRole::All).await?;
    submit(plane).await?;
    let before = running(plane).await?;

    muster.stop(testbed, ProcessRole::All).await?;
    let ended = "CRDs and their objects stay";
    let runs = killed_until(plane, &testbed.karmada(), &[], ended).await?;
    ensure!(runs > 3, "it was killed {runs} times only");
    let said = muster.uninstall(testbed, &[]).await?;
    ensure!(said.contains("nothing was left to do"), "{said}");
    for (namespace, name) in [(MANAGED, "waits"), (OWN, "waits")] {
        placed_in_one(plane, namespace, name).await?;
    }
    go_on(plane, &before).await?;
    let stays = ["muster-volcano-job", "muster-job", "muster-parts-job"];
    names_muster_only_in(plane, &stays, &["muster.io"]).await?;

    // Its queue stays in the member while its part runs there.
    let refused = muster.uninstall_in_member(testbed, PROXIED).await;
    let refused = format!("{:#}", refused.unwrap_err());
    ensure!(
        refused.contains(&format!("jobs still use queue {MANAGED}")),
        "{refused}"
    );
    go_on(plane, &before).await?;
    ended_and_removed(plane).await
}

/// Creates the queue and the policies, a gang that runs in parts, and three jobs of which one runs.
async fn submit(plane: &Plane) -> anyhow::Result<()> {
    let karmada = &plane.karmada;
    karmada.create(QUEUE, &jobs::queue(MANAGED, 12)).await?;
    let labels = json!({"muster.io/managed": "true"});
    let managed = json!({"metadata": {"name": MANAGED, "labels": labels}});
    karmada.create(NAMESPACE, &managed).await?;
    let own = json!({"metadata": {"name": OWN}});
    karmada.create(NAMESPACE, &own).await?;
    let policy = json!({
        "metadata": {"name": "theirs"},
        "spec": {
            "schedulerName": "muster",
            "resourceSelectors": [{"apiVersion": "batch/v1", "kind": "Job", "namespace": OWN}],
            "placement": {
                "clusterAffinity": {"clusterNames": MEMBERS},
                "spreadConstraints": [{"spreadByField": "cluster", "minGroups": 1, "maxGroups": 1}],
            },
        },
    });
    karmada.create(CLUSTER_PROPAGATION_POLICY, &policy).await?;
    karmada.create(VOLCANO_JOB, &in_parts("parts")).await?;
    pods_run(plane, 5).await?;
    karmada.create(BATCH_JOB, &job(OWN, "runs")).await?;
    pods_run(plane, 6).await?;
    // The quota is used up.
    karmada.create(VOLCANO_JOB, &in_parts("waits")).await?;
    karmada.create(BATCH_JOB, &job(OWN, "waits")).await?;
    for namespace in [MANAGED, OWN] {
        eventually(SOON, "a job is gated", async || {
            let seen = karmada.get(BINDING, Some(namespace), "waits-job").await;
            let seen = seen.map_err(|error| error.to_string())?.unwrap_or_default();
            match seen["spec"]["suspension"]["scheduling"] == true {
                true => Ok(()),
                false => Err(seen["spec"].to_string()),
            }
        })
        .await?;
    }
    Ok(())
}

/// Returns the UIDs of the running pods of both members.
async fn running(plane: &Plane) -> anyhow::Result<BTreeSet<String>> {
    let mut uids = BTreeSet::new();
    for member in MEMBERS {
        let pods = plane.member(member).await?.list(POD, None).await?;
        let pods = pods
            .iter()
            .filter(|pod| pod["status"]["phase"] == "Running");
        uids.extend(pods.map(|pod| pod["metadata"]["uid"].to_string()));
    }
    Ok(uids)
}

async fn pods_run(plane: &Plane, count: usize) -> anyhow::Result<()> {
    eventually(SOON, &format!("{count} pods run"), async || {
        let pods = running(plane).await.map_err(|error| error.to_string())?;
        (pods.len() == count)
            .then_some(())
            .ok_or_else(|| format!("{pods:?}"))
    })
    .await
}

/// Checks that these pods run, and that the gang is in both members.
async fn go_on(plane: &Plane, before: &BTreeSet<String>) -> anyhow::Result<()> {
    let after = running(plane).await?;
    ensure!(after.is_superset(before), "{before:?} became {after:?}");
    let binding = plane
        .karmada
        .get(BINDING, Some(MANAGED), "parts-job")
        .await?;
    let binding = binding.context("the binding of the gang in parts")?;
    ensure!(clusters(&binding) == MEMBERS, "{binding}");
    Ok(())
}

/// Runs the command in a cluster and kills it after a few lines, until it prints a line that begins with `ended`.
/// Returns how often it was killed.
async fn killed_until(
    plane: &Plane,
    cluster: &TestbedCluster,
    flags: &[&str],
    ended: &str,
) -> anyhow::Result<usize> {
    for run in 0..RUNS {
        let printed = plane.muster.uninstall_killed(cluster, flags, LINES).await?;
        if printed.iter().any(|line| line.starts_with(ended)) {
            return Ok(run);
        }
        ensure!(
            !printed.is_empty(),
            "run {run} printed nothing, which is a failure"
        );
    }
    anyhow::bail!("{RUNS} runs did not reach the end")
}

async fn placed_in_one(plane: &Plane, namespace: &str, job: &str) -> anyhow::Result<()> {
    let what = format!("Karmada places {namespace}/{job}");
    eventually(SOON, &what, async || {
        let name = format!("{job}-job");
        let seen = plane.karmada.get(BINDING, Some(namespace), &name).await;
        let seen = seen.map_err(|error| error.to_string())?.unwrap_or_default();
        let is_karmadas = seen["spec"]["schedulerName"] == "default-scheduler";
        match is_karmadas && clusters(&seen).len() == 1 {
            true => Ok(()),
            false => Err(format!("{} {}", seen["spec"], seen["status"])),
        }
    })
    .await
}

/// Deletes the jobs, and removes what had to stay for them.
async fn ended_and_removed(plane: &Plane) -> anyhow::Result<()> {
    let (karmada, testbed, muster) = (&plane.karmada, &plane.testbed, &plane.muster);
    for (kind, namespace, names) in [
        (VOLCANO_JOB, MANAGED, ["parts", "waits"]),
        (BATCH_JOB, OWN, ["runs", "waits"]),
    ] {
        for name in names {
            karmada.delete(kind, Some(namespace), name).await?;
        }
    }
    pods_run(plane, 0).await?;
    eventually(CLEANED, "no binding is left", async || {
        let left = karmada.list(BINDING, None).await;
        let left = left.map_err(|error| error.to_string())?;
        left.is_empty()
            .then_some(())
            .ok_or_else(|| format!("{left:?}"))
    })
    .await?;
    muster.uninstall(testbed, &["--delete-crds"]).await?;
    names_muster_only_in(plane, &[], &[]).await?;
    let member = testbed.cluster(PROXIED)?;
    let runs = killed_until(plane, &member, &["--member"], "nothing was left").await?;
    println!("removed from {PROXIED} after {runs} kills");
    left_of_muster(&member.client().await?, &[], &[]).await
}
