//! Muster is uninstalled from a control plane of its own with jobs that run and jobs that wait: the pods
//! that run are the same afterwards, Karmada's scheduler places the rest, and nothing names Muster. `muster check`
//! is right before and after.

use std::collections::BTreeSet;

use anyhow::{Context as _, ensure};
use e2e::harness::jobs::{self, TestGang};
use e2e::harness::kinds::{BATCH_JOB, BINDING, NAMESPACE, POD, PROPAGATION_POLICY, QUEUE};
use e2e::harness::muster::ProcessRole;
use e2e::harness::wait::eventually;
use kube::api::{Api, DynamicObject, ListParams};
use kube::discovery::{Discovery, verbs};
use serde_json::{Value, json};

use crate::case::SOON;
use crate::crash::CLEANED;
use crate::job::clusters;
use crate::plane::{Plane, of_one_member, on_own_plane};

/// The managed namespace, and its queue.
pub(crate) const MANAGED: &str = "managed";
/// A namespace that is not managed, in which a policy of its own, or of the cluster, names Muster's scheduler.
pub(crate) const OWN: &str = "own";
const MEMBER: &str = "member1";
/// What users wrote, and what the webhook stamped on templates, ends with the object.
const STAYS: [&str; 5] = [
    "muster.io/queue",
    "muster.io/split",
    "muster.io/access",
    "muster.io/user",
    "muster.io/permitted-queue",
];

pub(crate) fn uninstalled() {
    on_own_plane("uninstalled", of_one_member(MEMBER), async |plane| {
        handed_to_karmada(plane).await
    });
}

/// Returns a job of one pod with two GPUs.
pub(crate) fn job(namespace: &str, name: &str) -> Value {
    let gang = TestGang {
        namespace: namespace.into(),
        name: name.into(),
        queue: Some(MANAGED.into()),
        pods: 1,
        gpus: 2,
        product: None,
        run_for: None,
        fail: false,
        priority_class: None,
    };
    gang.batch()
}

async fn handed_to_karmada(plane: &Plane) -> anyhow::Result<()> {
    let (karmada, testbed) = (&plane.karmada, &plane.testbed);
    plane.muster.start(testbed, ProcessRole::All).await?;
    checked(plane).await?;
    submit(plane).await?;
    let before = pods(plane).await?;
    ensure!(before.len() == 1, "{before:?}");

    called_by_the_api_server(plane).await?;
    let refused = plane.muster.uninstall(testbed, &[]).await.unwrap_err();
    ensure!(format!("{refused:#}").contains("still runs"), "{refused:#}");
    plane.muster.stop(testbed, ProcessRole::All).await?;
    without_a_process(plane).await?;
    let dry = plane.muster.uninstall(testbed, &["--dry-run"]).await?;
    ensure!(
        dry.contains("propagationpolicy managed/muster deleted (dry run)"),
        "{dry}"
    );
    let policy = karmada
        .get(PROPAGATION_POLICY, Some(MANAGED), "muster")
        .await?;
    ensure!(policy.is_some(), "the dry run deleted the policy");

    let said = plane.muster.uninstall(testbed, &[]).await?;
    println!("{said}");
    karmada.create(BATCH_JOB, &job(MANAGED, "new")).await?;
    for (namespace, name) in [(MANAGED, "waits"), (MANAGED, "new"), (OWN, "waits")] {
        placed_by_karmada(plane, namespace, name).await?;
    }
    let after = pods(plane).await?;
    ensure!(after.is_superset(&before), "{before:?} became {after:?}");
    let runs = karmada.get(BINDING, Some(MANAGED), "runs-job").await?;
    let runs = runs.context("the binding of the running job")?;
    ensure!(clusters(&runs) == [MEMBER], "{runs}");

    names_muster_only_in(plane, &["muster-job"], &["muster.io"]).await?;
    let again = plane.muster.uninstall(testbed, &[]).await?;
    ensure!(again.contains("nothing was left to do"), "{again}");
    karmada.delete(BATCH_JOB, Some(MANAGED), "runs").await?;
    eventually(
        CLEANED,
        "the binding of the deleted job is gone",
        async || {
            let seen = karmada.get(BINDING, Some(MANAGED), "runs-job").await;
            match seen.map_err(|error| error.to_string())? {
                None => Ok(()),
                Some(binding) => Err(binding["metadata"].to_string()),
            }
        },
    )
    .await?;
    plane.muster.uninstall(testbed, &["--delete-crds"]).await?;
    names_muster_only_in(plane, &[], &[]).await
}

/// `muster check` finds nothing on a healthy plane, and names a plain cluster and one that does not answer.
async fn checked(plane: &Plane) -> anyhow::Result<()> {
    let (testbed, muster) = (&plane.testbed, &plane.muster);
    let (code, said) = muster.check(&testbed.karmada().kubeconfig).await?;
    ensure!(
        code == Some(0) && said.contains("\"findings\": []"),
        "{code:?} {said}"
    );
    let member = testbed.cluster(MEMBER)?.kubeconfig;
    let (code, said) = muster.check(&member).await?;
    ensure!(
        code == Some(1) && said.contains("serves no work.karmada.io"),
        "{code:?} {said}"
    );
    let nothing = testbed.dir().join("no-kubeconfig");
    let (code, said) = muster.check(&nothing).await?;
    ensure!(code == Some(2), "{code:?} {said}");
    Ok(())
}

/// `muster check` has the API server call the webhook, now that there is a managed namespace.
async fn called_by_the_api_server(plane: &Plane) -> anyhow::Result<()> {
    let karmada = plane.testbed.karmada().kubeconfig;
    let (code, said) = plane.muster.check(&karmada).await?;
    let report: Value = serde_json::from_str(&said)?;
    let unchecked = report["unchecked"].as_array().map(Vec::len);
    // What is left are the flags of Karmada's processes.
    ensure!(
        code == Some(0) && report["findings"] == json!([]) && unchecked == Some(1),
        "{code:?} {said}"
    );
    Ok(())
}

/// `muster check` names what no longer works without a process of Muster.
async fn without_a_process(plane: &Plane) -> anyhow::Result<()> {
    let karmada = plane.testbed.karmada().kubeconfig;
    let (code, said) = plane.muster.check(&karmada).await?;
    let named = ["accepts no connection", "cannot call it", "holds the Lease"];
    ensure!(
        code == Some(1) && named.iter().all(|part| said.contains(part)),
        "{code:?} {said}"
    );
    Ok(())
}

/// Submits a job that runs, one that waits for its quota, and one under a policy of its own that waits too.
async fn submit(plane: &Plane) -> anyhow::Result<()> {
    let karmada = &plane.karmada;
    karmada.create(QUEUE, &jobs::queue(MANAGED, 2)).await?;
    let labels = json!({"muster.io/managed": "true"});
    let managed = json!({"metadata": {"name": MANAGED, "labels": labels}});
    karmada.create(NAMESPACE, &managed).await?;
    karmada
        .create(NAMESPACE, &json!({"metadata": {"name": OWN}}))
        .await?;
    let policy = json!({
        "metadata": {"name": "mine", "namespace": OWN},
        "spec": {
            "schedulerName": "muster",
            "resourceSelectors": [{"apiVersion": "batch/v1", "kind": "Job"}],
            "placement": {"clusterAffinity": {"clusterNames": [MEMBER]}},
        },
    });
    karmada.create(PROPAGATION_POLICY, &policy).await?;
    karmada.create(BATCH_JOB, &job(MANAGED, "runs")).await?;
    eventually(SOON, "a pod runs", async || {
        match pods(plane).await.map_err(|error| error.to_string())?.len() {
            1 => Ok(()),
            other => Err(format!("{other} pods")),
        }
    })
    .await?;
    for namespace in [MANAGED, OWN] {
        karmada.create(BATCH_JOB, &job(namespace, "waits")).await?;
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

async fn placed_by_karmada(plane: &Plane, namespace: &str, job: &str) -> anyhow::Result<()> {
    let what = format!("Karmada places {namespace}/{job}");
    eventually(SOON, &what, async || {
        let name = format!("{job}-job");
        let seen = plane.karmada.get(BINDING, Some(namespace), &name).await;
        let seen = seen.map_err(|error| error.to_string())?.unwrap_or_default();
        let is_karmadas = seen["spec"]["schedulerName"] == "default-scheduler";
        match is_karmadas && clusters(&seen) == [MEMBER] {
            true => Ok(()),
            false => Err(format!("{} {}", seen["spec"], seen["status"])),
        }
    })
    .await
}

/// Returns the UIDs of the running pods in the member.
async fn pods(plane: &Plane) -> anyhow::Result<BTreeSet<String>> {
    let all = plane.member(MEMBER).await?.list(POD, None).await?;
    let running = all.iter().filter(|pod| pod["status"]["phase"] == "Running");
    Ok(running
        .map(|pod| pod["metadata"]["uid"].to_string())
        .collect())
}

/// Waits until no object is named after Muster or has its group in it, besides the named ones, and those
/// whose kind belongs to a group of `kinds` or defines it.
pub(crate) async fn names_muster_only_in(
    plane: &Plane,
    names: &[&str],
    kinds: &[&str],
) -> anyhow::Result<()> {
    let client = plane.testbed.karmada().client().await?;
    left_of_muster(&client, names, kinds).await
}

/// Does the same for the objects of any cluster.
pub(crate) async fn left_of_muster(
    client: &kube::Client,
    names: &[&str],
    kinds: &[&str],
) -> anyhow::Result<()> {
    eventually(CLEANED, "nothing names Muster", async || {
        let found = named(client).await.map_err(|error| error.to_string())?;
        let left = found.into_iter().filter(|(kind, name)| {
            let of_kind = kinds
                .iter()
                .any(|group| kind.ends_with(group) || name.ends_with(group));
            !of_kind && !names.contains(&name.as_str())
        });
        let left: Vec<_> = left.collect();
        match left.is_empty() {
            true => Ok(()),
            false => Err(format!("{left:?}")),
        }
    })
    .await
}

/// Returns kind and name of each object that names Muster.
#[expect(clippy::disallowed_methods, reason = "lists a testbed, which is small")]
async fn named(client: &kube::Client) -> anyhow::Result<Vec<(String, String)>> {
    let discovery = Discovery::new(client.clone()).run().await?;
    let mut found = Vec::new();
    for group in discovery.groups() {
        for (resource, capabilities) in group.recommended_resources() {
            if !capabilities.supports_operation(verbs::LIST) || resource.kind == "Event" {
                continue;
            }
            let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
            let all = match api.list(&ListParams::default()).await {
                Err(kube::Error::Api(status)) if status.code == 404 || status.code == 405 => {
                    continue;
                }
                other => other?,
            };
            for mut object in all.items {
                object.metadata.managed_fields = None;
                let name = object.metadata.name.clone().unwrap_or_default();
                let mut text = serde_json::to_string(&object)?;
                for allowed in STAYS {
                    text = text.replace(allowed, "");
                }
                if name.starts_with("muster") || text.contains("muster.io") {
                    let kind = format!("{}.{}", resource.kind, resource.group);
                    found.push((kind, name));
                }
            }
        }
    }
    Ok(found)
}
