//! The gate: which bindings have it, from when on, and that their other fields are unchanged.

use e2e::harness::audit;
use e2e::harness::kinds::{
    BATCH_JOB, DEPLOYMENT, OVERRIDE_POLICY, PROPAGATION_POLICY, VOLCANO_JOB,
};
use e2e::harness::muster::{ProcessRole, registrations};
use e2e::harness::wait::{eventually, never_within};
use serde_json::{Value, json};

use crate::case::{A_WHILE, Case, SOON};
use crate::job::{Job, clusters, is_gated, is_placed, record};
use crate::past_quota::raised;
use crate::story::{managed, managed_alone, unmanaged};

/// Returns every version of a job's binding that the API server stored.
fn history(case: &Case, job: &Job) -> anyhow::Result<Vec<Value>> {
    audit::history(case.plane.audit_log()?, job.uid())
}

#[test]
fn gated_before_karmadas_scheduler_can_see_it() {
    managed("gate", async |case| {
        case.holds_nothing("its queue has no quota");
        case.queue(0).await?;
        case.nodes("member1", 1).await?;
        let job = case.submit(&case.gang("train", 1, 8).volcano()).await?;
        let binding = case.gated(&job).await?;
        assert_eq!(binding["spec"]["schedulerName"], "muster");
        case.stays_unplaced(&job, A_WHILE).await?;
        let history = history(case, &job)?;
        let born = &history[0];
        assert!(is_gated(born), "born open: {born}");
        let finalizers = born["metadata"]["finalizers"].as_array().unwrap();
        assert!(
            finalizers.contains(&json!("muster.io/accounting")),
            "{born}"
        );
        assert!(
            history.iter().all(is_gated),
            "the gate was removed in between"
        );
        Ok(())
    });
}

#[test]
fn a_policy_that_names_muster_gates_where_the_namespace_is_not_managed() {
    unmanaged("policygate", async |case| {
        case.holds_nothing("queues take jobs of managed namespaces only");
        case.queue(8).await?;
        case.nodes("member1", 1).await?;
        case.policy("own", BATCH_JOB, "muster", json!({})).await?;
        let job = case
            .submit(&case.short_gang("train", 2, 4, 2).batch())
            .await?;
        let message = case.waits(&job, &["QueueNotPermitted"]).await?;
        assert!(message.contains("muster.io/managed=true"), "{message}");
        case.stays_unplaced(&job, A_WHILE).await?;
        assert!(is_gated(&history(case, &job)?[0]), "born open");
        Ok(())
    });
}

#[test]
fn what_is_not_managed_is_left_alone() {
    unmanaged("others", async |case| {
        let words = "placed without a record of its own";
        case.audit_finds(words, "Karmada's own scheduler places it");
        case.nodes("member1", 1).await?;
        let placement = json!({"placement": {"clusterAffinity": {"clusterNames": ["member1"]}}});
        case.policy("own", BATCH_JOB, "default-scheduler", placement)
            .await?;
        let job = case
            .submit(&case.short_gang("train", 1, 8, 2).batch())
            .await?;
        case.placed(&job).await?;
        // The job runs to its end, so that the audit sees devices in use for a while.
        eventually(SOON, "runs to its end", async || {
            match case.template(&job).await?.unwrap_or_default()["status"]["succeeded"].as_u64() {
                Some(1) => Ok(()),
                other => Err(format!("succeeded {other:?}")),
            }
        })
        .await?;
        for binding in history(case, &job)? {
            assert!(!is_gated(&binding), "{binding}");
            assert!(record(&binding).is_null(), "{binding}");
            assert!(
                !binding["metadata"]["finalizers"]
                    .to_string()
                    .contains("muster.io")
            );
        }
        Ok(())
    });
}

#[test]
fn nothing_is_placed_without_an_admission_record() {
    managed_alone("nowebhook", async |case| {
        let plane = case.plane;
        case.queue(0).await?;
        case.nodes("member1", 1).await?;
        plane.muster.stop(&plane.testbed, ProcessRole::All).await?;
        plane.muster.unregister(case.karmada()).await?;
        plane
            .muster
            .start(&plane.testbed, ProcessRole::AllUnregistered)
            .await?;
        let outcome = without_webhook(case).await;
        plane
            .muster
            .stop(&plane.testbed, ProcessRole::AllUnregistered)
            .await?;
        plane.muster.start(&plane.testbed, ProcessRole::All).await?;
        outcome?;
        let kind = e2e::harness::kinds::MUTATING_WEBHOOKS;
        eventually(
            SOON,
            "the webhook registered again",
            async || match registrations(case.karmada(), kind).await {
                Ok(names) if !names.is_empty() => Ok(()),
                other => Err(format!("{other:?}")),
            },
        )
        .await
    });
}

async fn without_webhook(case: &Case) -> anyhow::Result<()> {
    let job = case
        .submit(&case.short_gang("train", 1, 8, 2).volcano())
        .await?;
    case.waits(&job, &["WaitingForQuota", "ExceedsCapability"])
        .await?;
    case.stays_unplaced(&job, A_WHILE).await?;
    let raise = json!({"spec": {"capability": {"nvidia.com/gpu": 8}}});
    let queues = e2e::harness::kinds::QUEUE;
    case.karmada()
        .merge(queues, None, &case.name, &raise)
        .await?;
    case.finished(&job, "Succeeded").await?;
    let history = history(case, &job)?;
    for binding in history
        .iter()
        .filter(|binding| !clusters(binding).is_empty())
    {
        assert_eq!(record(binding)["templateUID"], job.uid(), "{binding}");
    }
    assert!(history.iter().any(is_placed));
    raised_past_webhook(case).await
}

/// Requests that are raised while the webhook is unavailable are charged, and do not stay in any
/// member.
async fn raised_past_webhook(case: &Case) -> anyhow::Result<()> {
    let template = case.gang("serve", 1, 4).deployment();
    let serve = case.submit(&template).await?;
    case.placed(&serve).await?;
    case.shows_gpus(&case.name, "allocated", 4).await?;
    let namespace = Some(case.name.as_str());
    let raised = raised(&template, 8);
    case.karmada()
        .merge(DEPLOYMENT, namespace, &serve.name, &raised)
        .await?;
    case.shows_gpus(&case.name, "allocated", 8).await?;
    let member = case.plane.member("member1").await?;
    eventually(SOON, "the member has what was admitted", async || {
        let pin = format!("muster-{}", serve.binding());
        let pin = case.karmada().get(OVERRIDE_POLICY, namespace, &pin).await;
        let pin = pin.map_err(|error| error.to_string())?;
        let held = member.get(DEPLOYMENT, namespace, &serve.name).await;
        let held = held.map_err(|error| error.to_string())?.unwrap_or_default();
        let container = &held["spec"]["template"]["spec"]["containers"][0];
        let gpus = &container["resources"]["limits"]["nvidia.com/gpu"];
        match (pin.is_some(), gpus.to_string().as_str()) {
            (true, "4" | "\"4\"") => Ok(()),
            other => Err(format!("pinned, GPUs: {other:?}")),
        }
    })
    .await
}

#[test]
fn a_binding_opened_by_hand_is_closed_again_and_never_runs() {
    managed("byhand", async |case| {
        let why = "the test removes a binding's gate";
        case.audit_finds("placed without a record of its own", why);
        case.audit_finds("holds 8 of 0 nvidia.com/gpu", why);
        case.queue(0).await?;
        case.nodes("member1", 1).await?;
        let job = case.submit(&case.gang("train", 1, 8).volcano()).await?;
        case.gated(&job).await?;
        let open = json!({"spec": {
            "suspension": {"scheduling": false},
            "clusters": [{"name": "member1"}],
        }});
        let bindings = e2e::harness::kinds::BINDING;
        let name = job.binding();
        case.karmada()
            .merge(bindings, Some(&case.name), &name, &open)
            .await?;
        let closed = |binding: &Value| is_gated(binding) && clusters(binding).is_empty();
        case.binding_when(&job, "closed again", closed).await?;
        never_within(A_WHILE, "a running pod", async || {
            let pods = case
                .pods("member1")
                .await
                .map_err(|error| error.to_string())?;
            match pods.iter().find(|pod| pod["status"]["phase"] == "Running") {
                Some(pod) => Err(pod["metadata"]["name"].to_string()),
                None => Ok(()),
            }
        })
        .await
    });
}

#[test]
fn dispatching_that_a_policy_suspends_stays_suspended() {
    managed("dispatching", async |case| {
        case.queue(8).await?;
        case.nodes("member1", 1).await?;
        let suspended = json!({"suspension": {"dispatching": true}});
        case.policy("own", VOLCANO_JOB, "muster", suspended).await?;
        let job = case
            .submit(&case.short_gang("train", 1, 8, 2).volcano())
            .await?;
        let dispatching = |binding: &Value| binding["spec"]["suspension"]["dispatching"] == true;
        let binding = case.binding_when(&job, "placed", is_placed).await?;
        assert!(
            dispatching(&binding),
            "lost at release: {}",
            binding["spec"]
        );
        let history = history(case, &job)?;
        assert!(is_gated(&history[0]), "born open");
        assert!(history.iter().all(dispatching), "lost in between");
        never_within(A_WHILE, "a pod", async || {
            let pods = case
                .pods("member1")
                .await
                .map_err(|error| error.to_string())?;
            match pods.is_empty() {
                true => Ok(()),
                false => Err(format!("{} pods", pods.len())),
            }
        })
        .await?;
        let resume = json!({"spec": {"suspension": {"dispatching": false}}});
        let namespace = Some(case.name.as_str());
        case.karmada()
            .merge(PROPAGATION_POLICY, namespace, "own", &resume)
            .await?;
        case.finished(&job, "Succeeded").await
    });
}
