//! What is refused holds its own job, and evicts no other one: a placement that is too large or that the API server
//! does not take, an override that it does not take, a member that refuses a whole job, a job that its owner has
//! deleted.

use anyhow::ensure;
use e2e::harness::jobs::{TestGang, annotated};
use e2e::harness::kinds::{
    ADMISSION_POLICY, ADMISSION_POLICY_BINDING, BATCH_JOB, BINDING, OVERRIDE_POLICY, ObjectKind,
    PROPAGATION_POLICY, VOLCANO_JOB,
};
use e2e::harness::objects::Objects;
use e2e::harness::wait::eventually;
use serde_json::{Value, json};

use crate::case::{A_WHILE, Case, SOON};
use crate::job::{clusters, record};
use crate::story::managed;

#[test]
fn a_policy_with_many_exclusions_holds_its_job_and_evicts_nobody() {
    managed("exclusions", async |case| {
        case.queue(8).await?;
        case.capacity_policy(json!({"spec": {"preemption": {"withinQueue": "LowerPriority"}}}))
            .await?;
        case.nodes("member1", 1).await?;
        let running = case.submit(&case.gang("running", 1, 8).volcano()).await?;
        case.running(&running).await?;
        let urgent = case.preempting_class("urgent", 1_000).await?;
        let exclude = async |names: Value| {
            let placement = json!({"clusterAffinity": {"exclude": names}});
            let policy = json!({"spec": {"placement": placement}});
            let policies = case.karmada();
            policies
                .merge(PROPAGATION_POLICY, Some(&case.name), "muster", &policy)
                .await
        };
        let names: Vec<String> = (0..20_000)
            .map(|n| format!("no-such-cluster-{n}"))
            .collect();
        exclude(json!(names)).await?;
        // Karmada brings it to the binding of a job that it has claimed before.
        let placed_by = |binding: &Value| binding["spec"]["placement"].to_string().len() > 400_000;
        case.binding_when(&running, "has the placement", placed_by)
            .await?;
        let gang = TestGang {
            priority_class: Some(urgent),
            ..case.gang("large", 1, 8)
        };
        let job = case.submit(&gang.volcano()).await?;
        let message = case.waits(&job, &["PlacementRefused"]).await?;
        let field =
            "spec.placement.clusterAffinity.exclude has 20000 entries; at most 1000 are allowed";
        ensure!(message.starts_with(field), "{message}");
        case.stays_unplaced(&job, A_WHILE).await?;
        ensure!(case.placements(&running)? == 1, "it was evicted");
        case.running(&running).await?;
        // With a smaller placement it competes.
        exclude(json!(["no-such-cluster"])).await?;
        case.placed(&job).await?;
        Ok(())
    });
}

#[test]
fn a_placement_that_the_api_server_refuses_is_tried_once() {
    managed("refusedwrite", async |case| {
        case.queue(8).await?;
        case.nodes("member1", 1).await?;
        let mut template = case.gang("job", 1, 8).volcano();
        template["metadata"]["labels"]["muster.io/hold"] = json!("true");
        let job = case.submit(&template).await?;
        case.waits(&job, &["OnHold"]).await?;
        // All annotations of an object have 256 KiB: those of the placement do not fit.
        let all = 256 * 1024;
        let binding = case.gated(&job).await?;
        let there = binding["metadata"]["annotations"].to_string().len();
        let large = "x".repeat(all - there - 200);
        let patch = json!({"metadata": {"annotations": {"example.com/large": large}}});
        let namespace = Some(case.name.as_str());
        case.karmada()
            .merge(BINDING, namespace, &job.binding(), &patch)
            .await?;
        let open = json!({"metadata": {"labels": {"muster.io/hold": null}}});
        case.karmada()
            .merge(VOLCANO_JOB, namespace, &job.name, &open)
            .await?;
        let message = case.waits(&job, &["PlacementRefused"]).await?;
        ensure!(
            message.contains("(422): ") && message.contains("Too long"),
            "{message}"
        );
        case.stays_unplaced(&job, 5 * A_WHILE).await?;
        ensure!(case.placements(&job)? == 0, "it was placed");
        let small = json!({"metadata": {"annotations": {"example.com/large": null}}});
        case.karmada()
            .merge(BINDING, namespace, &job.binding(), &small)
            .await?;
        // Its user edits the template, and it is tried again.
        let edit = json!({"spec": {"maxRetry": 7}});
        case.karmada()
            .merge(VOLCANO_JOB, namespace, &job.name, &edit)
            .await?;
        case.running(&job).await?;
        Ok(())
    });
}

/// Makes a member refuse all Volcano Jobs of the case, as a webhook there may. Muster cannot know of it before.
pub(crate) async fn refuses_jobs(case: &Case, member: &str) -> anyhow::Result<()> {
    let member = case.plane.member(member).await?;
    let mut template = case.gang("refused", 1, 1).volcano();
    template["spec"]["schedulerName"] = json!("none");
    refuses(case, &member, VOLCANO_JOB, &template).await
}

/// Makes the API server of `objects` refuse all new objects of a kind in the case's namespace. Returns
/// once it refuses `probe`.
async fn refuses(
    case: &Case,
    objects: &Objects,
    kind: ObjectKind,
    probe: &Value,
) -> anyhow::Result<()> {
    let name = format!("refuses-{}", case.name);
    let rule = json!({
        "apiGroups": [kind.group], "apiVersions": ["*"], "operations": ["CREATE"], "resources": [kind.plural],
    });
    let policy = json!({
        "metadata": {"name": name},
        "spec": {
            "matchConstraints": {
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": case.name}},
                "resourceRules": [rule],
            },
            "validations": [{"expression": "false", "message": "none of these here"}],
        },
    });
    objects.create(ADMISSION_POLICY, &policy).await?;
    let binding = json!({
        "metadata": {"name": name},
        "spec": {"policyName": name, "validationActions": ["Deny"]},
    });
    objects.create(ADMISSION_POLICY_BINDING, &binding).await?;
    // The API server enforces it a moment later.
    let what = format!("{} are refused", kind.plural);
    let probe_name = probe["metadata"]["name"].as_str().unwrap_or_default();
    eventually(SOON, &what, async || {
        match objects.create(kind, probe).await {
            Err(error) if error.to_string().contains("none of these here") => Ok(()),
            Err(error) => Err(error.to_string()),
            Ok(_) => {
                let made = objects.delete(kind, Some(&case.name), probe_name).await;
                Err(format!("made, and deleted: {made:?}"))
            }
        }
    })
    .await
}

#[test]
fn a_split_job_whose_override_is_refused_is_held_and_evicts_nobody() {
    managed("refusedoverride", async |case| {
        case.queue(16).await?;
        case.capacity_policy(json!({"spec": {"preemption": {"withinQueue": "LowerPriority"}}}))
            .await?;
        case.nodes("member1", 1).await?;
        case.nodes("member2", 1).await?;
        let running = case.submit(&case.gang("running", 1, 8).volcano()).await?;
        case.running(&running).await?;
        let probe = json!({
            "metadata": {"name": "probe", "namespace": case.name},
            "spec": {"overrideRules": []},
        });
        refuses(case, case.karmada(), OVERRIDE_POLICY, &probe).await?;
        let urgent = case.preempting_class("urgent", 1_000).await?;
        let gang = TestGang {
            priority_class: Some(urgent),
            ..case.gang("array", 4, 4)
        };
        let mut template = annotated(gang.batch(), "muster.io/split", "2");
        template["spec"]["completionMode"] = json!("Indexed");
        let job = case.submit(&template).await?;
        let message = case.waits(&job, &["PlacementRefused"]).await?;
        ensure!(
            message.starts_with("the API server refused its OverridePolicy (422): ")
                && message.contains("none of these here"),
            "{message}"
        );
        case.stays_unplaced(&job, 5 * A_WHILE).await?;
        let attempt = record(&case.gated(&job).await?)["attempt"].clone();
        ensure!(attempt == 1, "attempt {attempt}");
        // What was evicted for it runs again, and once only.
        case.running(&running).await?;
        ensure!(case.placements(&running)? <= 2, "evicted again");
        let (karmada, name) = (case.karmada(), format!("refuses-{}", case.name));
        karmada
            .delete(ADMISSION_POLICY_BINDING, None, &name)
            .await?;
        // The API server forgets it a moment later.
        eventually(SOON, "overrides are allowed", async || {
            let made = karmada.create(OVERRIDE_POLICY, &probe).await;
            made.map(drop).map_err(|error| error.to_string())
        })
        .await?;
        let edit = json!({"spec": {"backoffLimit": 7}});
        case.karmada()
            .merge(BATCH_JOB, Some(&case.name), &job.name, &edit)
            .await?;
        case.running(&job).await?;
        Ok(())
    });
}

#[test]
fn a_whole_job_leaves_a_member_that_refuses_it() {
    managed("wholerefused", async |case| {
        case.queue(8).await?;
        case.nodes("member2", 1).await?;
        refuses_jobs(case, "member2").await?;
        let job = case.submit(&case.gang("train", 2, 4).volcano()).await?;
        let refused = |binding: &Value| {
            let record = record(binding);
            let message = record["message"].as_str().unwrap_or_default();
            clusters(binding).is_empty()
                && record["reason"] == "MemberRefused"
                && message.starts_with("member2 refused it: ")
        };
        case.binding_when(&job, "evicted as refused", refused)
            .await?;
        case.nodes("member1", 1).await?;
        case.running(&job).await?;
        let binding = case.binding(&job).await.map_err(anyhow::Error::msg)?;
        assert_eq!(clusters(&binding.unwrap()), ["member1"]);
        Ok(())
    });
}

#[test]
fn a_job_that_was_deleted_while_it_waits_is_not_started() {
    managed("deletedwaits", async |case| {
        case.queue(8).await?;
        case.nodes("member1", 1).await?;
        let first = case.submit(&case.gang("first", 1, 8).volcano()).await?;
        case.running(&first).await?;
        let mut template = case.gang("second", 1, 8).volcano();
        template["metadata"]["finalizers"] = json!(["example.com/keep"]);
        let second = case.submit(&template).await?;
        case.waits(
            &second,
            &["WaitingForQuota", "NextInLine", "WaitingForRoom"],
        )
        .await?;
        case.delete(&second).await?;
        let message = case.waits(&second, &["Deleting"]).await?;
        ensure!(message.contains("finalizer example.com/keep"), "{message}");
        case.end(&first).await?;
        case.finished(&first, "Succeeded").await?;
        case.stays_unplaced(&second, 2 * A_WHILE).await?;
        let free = json!({"metadata": {"finalizers": null}});
        case.karmada()
            .merge(VOLCANO_JOB, Some(&case.name), &second.name, &free)
            .await?;
        case.gone(&second).await?;
        Ok(())
    });
}
