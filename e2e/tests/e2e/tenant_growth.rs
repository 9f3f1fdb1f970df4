//! A tenant scales, generates or relabels objects of a running job: the members never run more than
//! the queue's quota, in whatever form the number is written. Part of the catalogue in
//! [`crate::tenants`].

use anyhow::{Context as _, ensure};
use e2e::harness::kinds::{CAPACITY_POLICY, CRON_FEDERATED_HPA, CRON_JOB, PROPAGATION_POLICY};
use e2e::harness::tenant::Tenant;
use e2e::harness::wait::{eventually, never_within};
use serde_json::{Value, json};

use crate::case::{A_WHILE, Case, SOON};
use crate::job::{Job, record};
use crate::story::managed;

/// The quota of the queue in GPUs; the nodes have four times as many.
const BOUND: u64 = 8;
/// The number of replicas to which every job is scaled.
const MANY: u32 = 16;

/// Returns the StatefulSet of a Deployment.
fn stateful_set(mut deployment: Value) -> Value {
    deployment["kind"] = json!("StatefulSet");
    let spec = deployment["spec"].as_object_mut().unwrap();
    spec.remove("strategy");
    spec.insert("serviceName".to_owned(), json!("none"));
    spec.insert("podManagementPolicy".to_owned(), json!("Parallel"));
    deployment
}

/// Makes Karmada scale the job each minute, as a FederatedHPA does by metrics.
async fn by_the_clock(tenant: &Tenant, job: &Job) -> anyhow::Result<()> {
    let scaler = json!({
        "metadata": {"name": "each-minute", "namespace": tenant.namespace},
        "spec": {
            "scaleTargetRef": {"apiVersion": job.kind.api_version(), "kind": job.kind.name, "name": job.name},
            "rules": [{"name": "many", "schedule": "* * * * *", "targetReplicas": MANY}],
        },
    });
    let made = tenant.objects.create(CRON_FEDERATED_HPA, &scaler).await;
    made.map(drop).context("a CronFederatedHPA")
}

/// Runs one job of each kind that scales, then scales all of them far beyond the quota.
async fn scaled(case: &Case) -> anyhow::Result<()> {
    case.queue(8).await?;
    case.nodes("member1", 4).await?;
    let tenant = case.tenant().await?;
    let submit = async |template: Value| case.submit_by(&tenant.objects, &template).await;
    let clocked = submit(case.gang("clocked", 1, 2).deployment()).await?;
    let scaled = submit(case.gang("scaled", 1, 2).deployment()).await?;
    let ordered = submit(stateful_set(case.gang("ordered", 1, 2).deployment())).await?;
    let batch = submit(case.gang("batch", 1, 2).batch()).await?;
    for job in [&clocked, &scaled, &ordered, &batch] {
        case.running(job).await?;
    }
    by_the_clock(&tenant, &clocked).await?;

    let namespace = Some(case.name.as_str());
    for job in [&scaled, &ordered] {
        let objects = &tenant.objects;
        objects
            .scale(job.kind, namespace, &job.name, MANY)
            .await
            .with_context(|| format!("scale {}", job.name))?;
    }
    // The edit may succeed or be refused: in neither case do more pods run.
    let wider = json!({"spec": {"parallelism": MANY}});
    let wider = tenant
        .objects
        .merge(batch.kind, namespace, &batch.name, &wider)
        .await;
    println!("PARALLELISM {:?}", wider.as_ref().map(brief_of));
    let bare = submit(case.gang("bare", 1, 2).pod()).await?;
    case.waits(
        &bare,
        &["WaitingForQuota", "ReservedForAnother", "NextInLine"],
    )
    .await?;
    never_holds_more(case).await?;

    eventually(SOON, "Karmada scales by the clock", async || {
        let template = case.template(&clocked).await?.unwrap_or_default();
        match template["spec"]["replicas"] == MANY {
            true => Ok(()),
            false => Err(template["spec"]["replicas"].to_string()),
        }
    })
    .await?;
    never_holds_more(case).await?;
    // A deletion frees quota for pending jobs.
    tenant
        .objects
        .delete(scaled.kind, namespace, &scaled.name)
        .await?;
    never_holds_more(case).await
}

fn brief_of(object: &Value) -> String {
    object["spec"]["parallelism"].to_string()
}

async fn never_holds_more(case: &Case) -> anyhow::Result<()> {
    case.never_holds_more(BOUND, A_WHILE).await
}

/// Moves a running job to another queue, and requests a class that the queue does not allow.
async fn relabelled(case: &Case) -> anyhow::Result<()> {
    let low = case.priority_class("low", 1).await?;
    let high = case.priority_class("high", 1_000).await?;
    let policy = json!({"metadata": {"name": case.name}, "spec": {"priorityClasses": [low]}});
    case.cluster_object(CAPACITY_POLICY, &policy).await?;
    case.queue(8).await?;
    let other = case
        .queue_of("other", json!({"capability": {"nvidia.com/gpu": 8}}))
        .await?;
    case.nodes("member1", 4).await?;
    let tenant = case.tenant().await?;
    let with_class = |name: &str, class: &str| {
        let mut gang = case.gang(name, 1, 8);
        gang.priority_class = Some(class.to_owned());
        gang
    };
    let holder = with_class("holder", &low).volcano();
    let holder = case.submit_by(&tenant.objects, &holder).await?;
    case.running(&holder).await?;

    // The charge stays at the queue that admitted the job.
    let moved =
        json!({"metadata": {"labels": {"muster.io/queue": other}}, "spec": {"queue": other}});
    let namespace = Some(case.name.as_str());
    let objects = &tenant.objects;
    let moved = objects
        .merge(holder.kind, namespace, &holder.name, &moved)
        .await;
    println!(
        "MOVED {:?}",
        moved.map(|object| object["spec"]["queue"].to_string())
    );
    let waiter = with_class("waiter", &low).volcano();
    let waiter = case.submit_by(&tenant.objects, &waiter).await?;
    case.waits(&waiter, &["WaitingForQuota", "NextInLine"])
        .await?;
    case.stays_unplaced(&waiter, A_WHILE).await?;
    let binding = case.binding(&holder).await.map_err(anyhow::Error::msg)?;
    let binding = binding.context("the holder's binding")?;
    ensure!(
        record(&binding)["queue"] == *case.name,
        "{}",
        record(&binding)
    );

    let inflated = with_class("inflated", &high).volcano();
    match case.submit_by(&tenant.objects, &inflated).await {
        Ok(job) => {
            let message = case.waits(&job, &["PriorityClassNotPermitted"]).await?;
            ensure!(message.contains(&high), "{message}");
        }
        Err(error) => ensure!(format!("{error:#}").contains(&high), "{error:#}"),
    }
    case.never_holds_more(BOUND, A_WHILE).await
}

/// Checks that objects which create jobs or pods in a member by themselves do not get there.
async fn generated(case: &Case) -> anyhow::Result<()> {
    case.queue(8).await?;
    case.nodes("member1", 4).await?;
    let tenant = case.tenant().await?;
    let policy = json!({
        "metadata": {"name": "cron", "namespace": case.name},
        "spec": {
            "schedulerName": "muster",
            "resourceSelectors": [{"apiVersion": "batch/v1", "kind": "CronJob"}],
            "placement": {},
        },
    });
    tenant.objects.create(PROPAGATION_POLICY, &policy).await?;
    let cron = json!({
        "metadata": {"name": "each-leap", "namespace": case.name, "labels": {"muster.io/queue": case.name}},
        "spec": {
            // Never: the control plane makes Jobs of it as well, and those run.
            "schedule": "0 0 30 2 *",
            "jobTemplate": {"spec": case.gang("made", 4, 8).batch()["spec"]},
        },
    });
    let cron = tenant.objects.create(CRON_JOB, &cron).await?;
    let cron = Job::of(CRON_JOB, cron);
    let message = case.waits(&cron, &["SizeUnknown"]).await?;
    println!("CRON {message}");
    case.stays_unplaced(&cron, A_WHILE).await?;
    let member = case.plane.member("member1").await?;
    never_within(A_WHILE, "a CronJob in the member", async || {
        let found = member.list(CRON_JOB, Some(&case.name)).await;
        match found.map_err(|error| error.to_string())?.len() {
            0 => Ok(()),
            many => Err(many.to_string()),
        }
    })
    .await?;

    // Neither Muster nor Karmada can count the pods of these kinds.
    for (what, api_version, kind) in [
        (
            "a release that starts what it likes",
            "helm.toolkit.fluxcd.io/v2",
            "HelmRelease",
        ),
        ("an application", "argoproj.io/v1alpha1", "Application"),
    ] {
        let policy = json!({
            "metadata": {"name": "generator", "namespace": case.name},
            "spec": {
                "schedulerName": "muster",
                "resourceSelectors": [{"apiVersion": api_version, "kind": kind}],
                "placement": {},
            },
        });
        let made = tenant.objects.create(PROPAGATION_POLICY, &policy).await;
        let Err(error) = made else {
            anyhow::bail!("a tenant could have {what} in the members");
        };
        let message = error.to_string();
        ensure!(message.contains(kind), "{message}");
        ensure!(message.contains("propagate"), "{message}");
    }
    Ok(())
}

#[test]
fn what_a_tenant_scales_stays_within_the_quota_of_its_queue() {
    managed("scaled", scaled);
}

#[test]
fn a_tenant_moves_no_charge_and_takes_no_priority_that_its_queue_does_not_allow() {
    managed("relabelled", relabelled);
}

#[test]
fn a_tenant_has_nothing_in_members_that_makes_pods_by_itself() {
    managed("generated", generated);
}
