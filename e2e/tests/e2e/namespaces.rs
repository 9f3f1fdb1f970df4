//! The effects of the label `muster.io/managed=true` on a namespace, and of its removal.

use e2e::harness::jobs::TestGang;
use e2e::harness::kinds::{
    BATCH_JOB, CAPACITY_POLICY, NAMESPACE, NAMESPACE_QUEUE, PROPAGATION_POLICY,
};
use e2e::harness::wait::eventually;
use serde_json::{Value, json};

use crate::case::{A_WHILE, Case, SOON, brief};
use crate::job::{clusters, is_gated, record};
use crate::story::{managed, unmanaged};

async fn label(case: &Case, value: Value) -> anyhow::Result<()> {
    let patch = json!({"metadata": {"labels": {"muster.io/managed": value}}});
    case.karmada()
        .merge(NAMESPACE, None, &case.name, &patch)
        .await?;
    Ok(())
}

#[test]
fn jobs_of_all_kinds_run_without_a_policy_of_their_own() {
    managed("kinds", async |case| {
        case.queue(32).await?;
        case.nodes("member1", 2).await?;
        case.nodes("member3", 1).await?;
        let ends = [
            case.short_gang("volcano", 2, 2, 2).volcano(),
            case.short_gang("batch", 2, 2, 2).batch(),
            case.short_gang("pytorch", 3, 2, 2).pytorch(),
            case.short_gang("pod", 1, 2, 2).pod(),
        ];
        let mut jobs = Vec::new();
        for template in &ends {
            jobs.push(case.submit(template).await?);
        }
        let deployment = case
            .submit(&case.gang("deployment", 2, 2).deployment())
            .await?;
        case.running(&deployment).await?;
        for job in &jobs {
            case.finished(job, "Succeeded").await?;
        }
        case.delete(&deployment).await?;
        case.gone(&deployment).await
    });
}

#[test]
fn a_volcano_job_goes_only_where_volcano_is() {
    managed("enabled", async |case| {
        case.queue(32).await?;
        case.nodes("member3", 1).await?;
        let job = case
            .submit(&case.short_gang("train", 1, 8, 2).volcano())
            .await?;
        case.waits(
            &job,
            &[
                "NoEligibleCluster",
                "ExceedsFleet",
                "WaitingForRoom",
                "NextInLine",
            ],
        )
        .await?;
        let batch = case
            .submit(&case.short_gang("batch", 1, 8, 2).batch())
            .await?;
        assert_eq!(case.placed(&batch).await?, ["member3"]);
        case.nodes("member2", 1).await?;
        assert_eq!(case.placed(&job).await?, ["member2"]);
        case.finished(&job, "Succeeded").await
    });
}

#[test]
fn a_job_without_a_queue_goes_to_its_namespaces() {
    managed("namespacequeue", async |case| {
        case.queue(8).await?;
        case.nodes("member1", 1).await?;
        let annotate = json!({"metadata": {"annotations": {"muster.io/default-queue": case.name}}});
        case.karmada()
            .merge(NAMESPACE, None, &case.name, &annotate)
            .await?;
        let gang = TestGang {
            queue: None,
            ..case.short_gang("train", 1, 8, 2)
        };
        let job = case.submit(&gang.volcano()).await?;
        case.finished(&job, "Succeeded").await?;
        let group = case.pod_group(&job).await.unwrap().unwrap();
        assert_eq!(group["spec"]["queue"], case.name.as_str());
        Ok(())
    });
}

#[test]
fn a_job_whose_own_policy_names_another_scheduler_says_so_and_waits() {
    managed("wrong", async |case| {
        case.queue(8).await?;
        case.nodes("member1", 1).await?;
        case.policy("own", BATCH_JOB, "default-scheduler", json!({}))
            .await?;
        let job = case
            .submit(&case.short_gang("train", 1, 8, 2).batch())
            .await?;
        let message = case.waits(&job, &["WrongScheduler"]).await?;
        assert!(message.contains("default-scheduler"), "{message}");
        case.stays_unplaced(&job, A_WHILE).await?;
        // The user must delete the policy, since Karmada does not let a policy's scheduler change.
        let namespace = Some(case.name.as_str());
        case.karmada()
            .delete(PROPAGATION_POLICY, namespace, "own")
            .await?;
        case.finished(&job, "Succeeded").await
    });
}

#[test]
fn what_runs_when_a_namespace_is_labelled_is_charged_and_left_running() {
    unmanaged("adopted", async |case| {
        let words = "placed without a record of its own";
        case.audit_finds(words, "it was placed before Muster managed it");
        case.queue(8).await?;
        case.nodes("member1", 2).await?;
        let placement = json!({"placement": {"clusterAffinity": {"clusterNames": ["member1"]}}});
        case.policy("own", BATCH_JOB, "default-scheduler", placement)
            .await?;
        let runs = case.submit(&case.gang("runs", 1, 8).batch()).await?;
        case.placed(&runs).await?;
        eventually(SOON, "its pod runs", async || {
            let pods = case
                .pods("member1")
                .await
                .map_err(|error| error.to_string())?;
            match pods.first().map(|pod| pod["status"]["phase"] == "Running") {
                Some(true) => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })
        .await?;
        label(case, json!("true")).await?;
        let charged = |binding: &Value| record(binding)["adopted"] == true;
        case.binding_when(&runs, "adopted", charged).await?;
        let waiter = case
            .submit(&case.short_gang("waiter", 1, 8, 2).volcano())
            .await?;
        case.waits(&waiter, &["WaitingForQuota", "NextInLine"])
            .await?;
        allocated(case, "8").await?;
        let binding = case.binding(&runs).await.unwrap().unwrap();
        assert!(
            !is_gated(&binding) && clusters(&binding) == ["member1"],
            "{}",
            brief(&binding)
        );
        case.delete(&runs).await?;
        case.finished(&waiter, "Succeeded").await
    });
}

/// Waits until the queue's status shows this many GPUs allocated.
async fn allocated(case: &Case, gpus: &str) -> anyhow::Result<()> {
    eventually(
        SOON,
        &format!("{gpus} GPUs allocated in the status"),
        async || {
            let policy = case.karmada().get(CAPACITY_POLICY, None, &case.name).await;
            let policy = policy
                .map_err(|error| error.to_string())?
                .unwrap_or_default();
            let resources = policy["status"]["resources"].as_array();
            let mut resources = resources.into_iter().flatten();
            let shown = resources.find(|resource| resource["name"] == "nvidia.com/gpu");
            match shown.is_some_and(|resource| resource["allocated"] == gpus) {
                true => Ok(()),
                false => Err(policy["status"].to_string()),
            }
        },
    )
    .await
}

/// Waits until the namespace shows the queue of its jobs, or until it shows none any more.
async fn queue_shown(case: &Case, wanted: bool) -> anyhow::Result<()> {
    eventually(SOON, "the namespace's queue", async || {
        let name = Some(case.name.as_str());
        let queue = case.karmada().get(NAMESPACE_QUEUE, name, &case.name).await;
        match queue.map_err(|error| error.to_string())? {
            Some(queue) if wanted => {
                let status = &queue["status"];
                match status["counts"]["pending"] == 2 {
                    true => Ok(()),
                    false => Err(status.to_string()),
                }
            }
            found if found.is_some() == wanted => Ok(()),
            found => Err(format!("{found:?}")),
        }
    })
    .await
}

#[test]
fn what_waits_when_the_label_goes_becomes_unmanaged() {
    managed("letgo", async |case| {
        let why = "Muster no longer manages the namespace";
        case.audit_finds("opened without a placement", why);
        case.audit_finds("placed without a record of its own", why);
        case.audit_finds("holds 8 of 0 nvidia.com/gpu", why);
        case.queue(0).await?;
        case.nodes("member1", 1).await?;
        let plain = case.submit(&case.gang("plain", 1, 8).volcano()).await?;
        let placement = json!({"placement": {"clusterAffinity": {"clusterNames": ["member1"]}}});
        case.policy("own", BATCH_JOB, "default-scheduler", placement)
            .await?;
        let own = case.submit(&case.gang("own", 1, 8).batch()).await?;
        case.waits(&plain, &["WaitingForQuota", "ExceedsCapability"])
            .await?;
        case.waits(&own, &["WrongScheduler"]).await?;
        queue_shown(case, true).await?;
        label(case, Value::Null).await?;
        for job in [&plain, &own] {
            let free = |binding: &Value| {
                let finalizers = binding["metadata"]["finalizers"].to_string();
                !is_gated(binding) && !finalizers.contains("muster.io")
            };
            case.binding_when(job, "unmanaged", free).await?;
        }
        queue_shown(case, false).await?;
        // Karmada's scheduler places the bindings that name it.
        assert_eq!(case.placed(&own).await?, ["member1"]);
        eventually(SOON, "the policy `muster` gone", async || {
            let policy = case
                .karmada()
                .get(PROPAGATION_POLICY, Some(&case.name), "muster")
                .await;
            match policy.map_err(|error| error.to_string())? {
                None => Ok(()),
                Some(policy) => Err(brief(&policy["metadata"])),
            }
        })
        .await
    });
}
