//! What runs is what is charged: pods that outlive what made them, request more than their template,
//! or belong to no job, hold their quota until they are gone.
//!
//! Each story has a queue of 8. What runs uses it, without that a document says so; a job that fits
//! by the documents waits until the pods are gone, and then runs.

use std::time::Duration;

use anyhow::ensure;
use e2e::harness::jobs;
use e2e::harness::kinds::{BATCH_JOB, DEPLOYMENT, NAMESPACE, ObjectKind, POD, QUEUE, WORK};
use e2e::harness::muster::ProcessRole;
use e2e::harness::wait::eventually;
use serde_json::{Value, json};

use crate::case::{Case, SOON};
use crate::cli::MusterCli;
use crate::contest::SHORT;
use crate::job::Job;
use crate::leading_part::{end_leader, shows};
use crate::past_quota::members_hold;
use crate::plane::Change;
use crate::story::{managed, managed_and_killed};

/// The quota of each queue.
const BOUND: u64 = 8;
/// The time for which a job that waits for pods is watched.
const WATCHED: Duration = Duration::from_secs(6);
/// The finalizer by which a story keeps pods that are being deleted.
const HELD: &str = "e2e.muster.io/held";
const MEMBER: &str = "member1";

impl Case {
    /// Adds the finalizer to all pods of the story, or removes it: they end only without it.
    async fn hold_pods(&self, hold: bool) -> anyhow::Result<()> {
        let member = self.plane.member(MEMBER).await?;
        eventually(SOON, &format!("pods held: {hold}"), async || {
            let pods = member.list(POD, Some(&self.name)).await;
            for pod in pods.map_err(|error| error.to_string())? {
                let finalizers = pod["metadata"]["finalizers"].as_array();
                let mut finalizers = finalizers.cloned().unwrap_or_default();
                let held = finalizers.iter().any(|name| name == HELD);
                // A finalizer cannot be added to an object that is being deleted.
                if held == hold || (hold && !pod["metadata"]["deletionTimestamp"].is_null()) {
                    continue;
                }
                finalizers.retain(|name| name != HELD);
                finalizers.extend(hold.then(|| json!(HELD)));
                let patch = json!({"metadata": {
                    "finalizers": finalizers,
                    "resourceVersion": pod["metadata"]["resourceVersion"],
                }});
                let name = pod["metadata"]["name"].as_str().unwrap_or_default();
                let patched = member.merge(POD, Some(&self.name), name, &patch).await;
                patched.map_err(|error| error.to_string())?;
            }
            Ok(())
        })
        .await
    }

    /// Waits until so many of the story's pods are being deleted.
    async fn terminating(&self, wanted: usize) -> anyhow::Result<()> {
        let what = format!("{wanted} pods are being deleted");
        eventually(SOON, &what, async || {
            let pods = self.pods(MEMBER).await.map_err(|error| error.to_string())?;
            let deleted = |pod: &&Value| !pod["metadata"]["deletionTimestamp"].is_null();
            match pods.iter().filter(deleted).count() {
                found if found == wanted => Ok(()),
                found => Err(format!("{found} of {} pods", pods.len())),
            }
        })
        .await
    }

    /// Checks that a job waits for quota while the pods are there.
    async fn waits_for_pods(&self, job: &Job) -> anyhow::Result<()> {
        self.stays_unplaced(job, WATCHED).await?;
        self.waits(job, &SHORT).await.map(drop)
    }

    /// Waits until an object of the story is gone from the member.
    async fn gone_from_member(&self, kind: ObjectKind, name: &str) -> anyhow::Result<()> {
        let member = self.plane.member(MEMBER).await?;
        let what = format!("{name} gone from the member");
        eventually(SOON, &what, async || {
            let found = member.get(kind, Some(&self.name), name).await;
            match found.map_err(|error| error.to_string())? {
                None => Ok(()),
                Some(object) => Err(object["metadata"].to_string()),
            }
        })
        .await
    }

    /// Makes the queue of the story that of its namespace.
    async fn queue_of_namespace(&self) -> anyhow::Result<()> {
        let annotate = json!({"metadata": {"annotations": {"muster.io/default-queue": self.name}}});
        let namespaces = self.karmada();
        namespaces
            .merge(NAMESPACE, None, &self.name, &annotate)
            .await?;
        Ok(())
    }

    /// Waits until the member has the namespace of the story.
    async fn namespace_in_member(&self) -> anyhow::Result<()> {
        let member = self.plane.member(MEMBER).await?;
        eventually(SOON, "the member has the namespace", async || {
            let found = member.get(NAMESPACE, None, &self.name).await;
            let found = found.map_err(|error| error.to_string())?;
            found.map(drop).ok_or_else(|| "none".to_owned())
        })
        .await
    }
}

async fn room(case: &Case) -> anyhow::Result<()> {
    case.queue(8).await?;
    case.nodes(MEMBER, 4).await?;
    Ok(())
}

/// Deletes the job `first`, a gang of two, whose pods end slowly. The next one, which fits by the documents, waits for
/// them. Returns both.
async fn deleted_for_next(case: &Case, template: &Value) -> anyhow::Result<(Job, Job)> {
    room(case).await?;
    let first = case.submit(template).await?;
    case.running(&first).await?;
    case.hold_pods(true).await?;
    case.delete(&first).await?;
    case.gone_from_member(BATCH_JOB, "first").await?;
    case.terminating(2).await?;
    let next = case.submit(&case.gang("next", 1, 8).batch()).await?;
    case.waits_for_pods(&next).await?;
    Ok((first, next))
}

/// A job is deleted, and its pods end slowly; Muster is killed meanwhile.
async fn deleted(case: &Case) -> anyhow::Result<()> {
    let template = case.gang("first", 2, 4).batch();
    let (first, next) = deleted_for_next(case, &template).await?;
    case.midway().await?;
    case.waits_for_pods(&next).await?;
    case.shows_gpus(&case.name, "allocated", 8).await?;
    ensure!(case.gpus_in_members().await? == BOUND);
    case.hold_pods(false).await?;
    case.running(&next).await?;
    case.never_holds_more(BOUND, WATCHED).await?;
    case.gone(&first).await
}

/// Pods of a job say by annotations that they are another's, of whose name there is none: that moves no charge.
async fn says_otherwise(case: &Case) -> anyhow::Result<()> {
    let mut template = case.gang("first", 2, 4).batch();
    template["spec"]["template"]["metadata"]["annotations"]["resourcebinding.karmada.io/namespace"] =
        json!(case.name);
    template["spec"]["template"]["metadata"]["annotations"]["resourcebinding.karmada.io/name"] =
        json!("nobody-job");
    let (_, next) = deleted_for_next(case, &template).await?;
    case.shows_gpus(&case.name, "allocated", 8).await?;
    case.hold_pods(false).await?;
    case.running(&next).await?;
    case.never_holds_more(BOUND, WATCHED).await
}

/// A job that succeeds with its leader, while other pods run on.
async fn leader_ends(case: &Case, template: Value) -> anyhow::Result<()> {
    room(case).await?;
    let first = case.submit(&template).await?;
    case.running(&first).await?;
    let next = case.submit(&case.gang("next", 1, 8).batch()).await?;
    case.waits(&next, &SHORT).await?;
    end_leader(case, &first).await?;
    shows(case, &first, "Succeeded").await?;
    let left = case.gpus_in_members().await?;
    ensure!(left > 0, "no pod runs on");
    case.waits_for_pods(&next).await?;
    case.shows_gpus(&case.name, "allocated", u32::try_from(left)?)
        .await?;
    case.end(&first).await?;
    case.running(&next).await?;
    case.never_holds_more(BOUND, WATCHED).await
}

/// Returns a Deployment that replaces all pods at once, and never has more beside those that end.
fn replaced_at_once(case: &Case, pods: u32, gpus: u32) -> Value {
    let mut template = case.gang("serve", pods, gpus).deployment();
    template["spec"]["strategy"] = json!({
        "type": "RollingUpdate",
        "rollingUpdate": {"maxSurge": 0, "maxUnavailable": "100%"},
    });
    template
}

/// Returns a patch of a Deployment's environment.
fn with_environment(template: &Value, value: &str) -> Value {
    let mut pods = template["spec"]["template"].clone();
    pods["spec"]["containers"][0]["env"] = json!([{"name": "EDIT", "value": value}]);
    json!({"spec": {"template": pods}})
}

/// A Deployment is edited twice while its pods end slowly.
async fn edited(case: &Case) -> anyhow::Result<()> {
    let why = "pods that end slowly run beside those that replace them";
    case.audit_may_find("/serve: pods with ", why);
    room(case).await?;
    let template = replaced_at_once(case, 2, 2);
    let serve = case.submit(&template).await?;
    case.running(&serve).await?;
    case.hold_pods(true).await?;
    let edit = async |value: &str| {
        let patch = with_environment(&template, value);
        let deployments = case.karmada();
        deployments
            .merge(DEPLOYMENT, Some(&case.name), "serve", &patch)
            .await
    };
    edit("1").await?;
    case.terminating(2).await?;
    case.shows_gpus(&case.name, "allocated", 8).await?;
    let next = case.submit(&case.gang("next", 1, 4).batch()).await?;
    case.waits_for_pods(&next).await?;
    members_hold(case, BOUND).await?;
    case.hold_pods(true).await?;
    edit("2").await?;
    case.terminating(4).await?;
    case.shows_gpus(&case.name, "allocated", 12).await?;
    case.waits_for_pods(&next).await?;
    case.hold_pods(false).await?;
    case.running(&next).await?;
    case.never_holds_more(BOUND, WATCHED).await?;
    case.running(&serve).await.map(drop)
}

/// A Deployment's surge is raised while no webhook answers.
async fn raised_surge(case: &Case) -> anyhow::Result<()> {
    room(case).await?;
    let template = replaced_at_once(case, 2, 2);
    let serve = case.submit(&template).await?;
    case.running(&serve).await?;
    let surge = |pods: u32| json!({"spec": {"strategy": {"rollingUpdate": {"maxSurge": pods, "maxUnavailable": 1}}}});
    let raised = Change {
        kind: DEPLOYMENT,
        namespace: case.name.clone(),
        name: "serve".to_owned(),
        patch: surge(2),
    };
    case.plane.change_while_away([raised]).await;
    case.midway().await?;
    case.shows_gpus(&case.name, "allocated", 8).await?;
    let next = case.submit(&case.gang("next", 1, 4).batch()).await?;
    case.waits_for_pods(&next).await?;
    let deployments = case.karmada();
    let namespace = Some(case.name.as_str());
    deployments
        .merge(DEPLOYMENT, namespace, "serve", &surge(0))
        .await?;
    case.running(&next).await?;
    case.never_holds_more(BOUND, WATCHED).await
}

/// A pod requests more than its template: it is resized in its member.
async fn resized(case: &Case) -> anyhow::Result<()> {
    let mut queue = jobs::queue(&case.name, 8);
    queue["spec"]["capability"] = json!({"cpu": BOUND});
    case.cluster_object(QUEUE, &queue).await?;
    case.nodes(MEMBER, 2).await?;
    let of_cpus = |name: &str| {
        let mut template = case.gang(name, 1, 1).batch();
        let container = &mut template["spec"]["template"]["spec"]["containers"][0];
        container["resources"]["requests"]["cpu"] = json!("4");
        template
    };
    let first = case.submit(&of_cpus("first")).await?;
    case.running(&first).await?;
    let member = case.plane.member(MEMBER).await?;
    let pod = case.pods(MEMBER).await?.pop().unwrap_or_default();
    let name = pod["metadata"]["name"].as_str().unwrap_or_default();
    let namespace = Some(case.name.as_str());
    // By this a kubelet says that it resizes containers.
    let mut statuses = pod["status"]["containerStatuses"].clone();
    statuses[0]["resources"] = pod["spec"]["containers"][0]["resources"].clone();
    let statuses = json!({"status": {"containerStatuses": statuses}});
    member.merge_status(POD, namespace, name, &statuses).await?;
    let mut containers = pod["spec"]["containers"].clone();
    containers[0]["resources"]["requests"]["cpu"] = json!("8");
    let patch = json!({"spec": {"containers": containers}});
    let resize = member.merge_subresource(POD, namespace, name, "resize", &patch);
    resize.await?;
    // Muster hears of it.
    tokio::time::sleep(Duration::from_secs(4)).await;
    let next = case.submit(&of_cpus("next")).await?;
    case.waits_for_pods(&next).await?;
    case.end(&first).await?;
    case.running(&next).await.map(drop)
}

/// Pods that a job's pods make themselves, and pods of a Work without a job.
async fn of_no_job(
    case: &Case,
    how: impl AsyncFnOnce(&Value) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    room(case).await?;
    case.queue_of_namespace().await?;
    case.namespace_in_member().await?;
    how(&case.gang("bare", 1, 8).pod()).await?;
    eventually(SOON, "the pod runs", async || {
        let pods = case.pods(MEMBER).await.map_err(|error| error.to_string())?;
        match pods.first() {
            Some(pod) if pod["status"]["phase"] == "Running" => Ok(()),
            pod => Err(format!("{pod:?}")),
        }
    })
    .await?;
    tokio::time::sleep(Duration::from_secs(4)).await;
    let next = case.submit(&case.gang("next", 1, 8).batch()).await?;
    case.waits_for_pods(&next).await?;
    case.shows_gpus(&case.name, "allocated", 8).await?;
    shows_unadmitted(case).await?;
    let member = case.plane.member(MEMBER).await?;
    let works = case.karmada();
    works
        .delete(WORK, Some("karmada-es-member1"), &case.name)
        .await?;
    member.delete(POD, Some(&case.name), "bare").await?;
    case.running(&next).await?;
    case.never_holds_more(BOUND, WATCHED).await
}

/// The pods that no admission covers are listed by `kubectl muster`, and counted by a metric.
async fn shows_unadmitted(case: &Case) -> anyhow::Result<()> {
    let cli = MusterCli::of_admin(case);
    let row = [case.name.as_str(), "-", MEMBER, "nvidia.com/gpu", "8"];
    for command in ["jobs".to_owned(), format!("queue get {}", case.name)] {
        eventually(SOON, &format!("{command} lists the pod"), async || {
            let said = cli
                .done(&command)
                .await
                .map_err(|error| error.to_string())?;
            let mut lines = said.lines();
            let is_listed = lines.any(|line| line.split_whitespace().eq(row));
            is_listed.then_some(()).ok_or(said)
        })
        .await?;
    }
    let metrics = &case.plane.muster;
    let metrics = metrics
        .metrics(&case.plane.testbed, ProcessRole::All)
        .await?;
    let of_namespace = format!("namespace=\"{}\"", case.name);
    let sample = metrics.lines().find(|line| {
        line.starts_with("muster_queue_unadmitted_resources{")
            && line.contains(&of_namespace)
            && line.contains("\"nvidia.com/gpu\"")
    });
    let value = sample.and_then(|sample| sample.rsplit(' ').next()?.parse().ok());
    ensure!(value == Some(8.0), "{sample:?}");
    Ok(())
}

async fn made_in_member(case: &Case) -> anyhow::Result<()> {
    of_no_job(case, async |pod| {
        let member = case.plane.member(MEMBER).await?;
        member.create(POD, pod).await?;
        Ok(())
    })
    .await
}

async fn made_by_a_work(case: &Case) -> anyhow::Result<()> {
    of_no_job(case, async |pod| {
        let work = json!({
            "metadata": {"name": case.name, "namespace": "karmada-es-member1"},
            "spec": {"workload": {"manifests": [pod]}},
        });
        case.karmada().create(WORK, &work).await?;
        Ok(())
    })
    .await
}

#[test]
fn a_deleted_job_holds_its_quota_until_its_pods_are_gone() {
    managed_and_killed("slowend", deleted);
}

#[test]
fn pods_that_say_whose_they_are_are_charged_to_their_own_job() {
    managed("saysotherwise", says_otherwise);
}

#[test]
fn workers_of_a_pytorchjob_that_has_succeeded_hold_their_quota() {
    managed("runon", async |case| {
        leader_ends(case, case.gang("first", 4, 2).pytorch()).await
    });
}

#[test]
fn workers_of_an_mpijob_that_has_succeeded_hold_their_quota() {
    managed("mpirunon", async |case| {
        let mut template = case.gang("first", 4, 2).mpi();
        // By default its operator cleans no pods up.
        template["spec"]["runPolicy"] = json!({"backoffLimit": 0});
        leader_ends(case, template).await
    });
}

#[test]
fn pods_that_end_slowly_hold_their_quota_beside_those_that_replace_them() {
    managed("replaced", edited);
}

#[test]
fn a_surge_that_is_raised_while_muster_is_away_is_charged() {
    managed_and_killed("raisedsurge", raised_surge);
}

#[test]
fn what_a_pod_requests_beyond_its_template_is_charged() {
    managed("resized", resized);
}

#[test]
fn a_pod_of_no_job_holds_the_quota_of_its_namespaces_queue() {
    managed("ofnojob", made_in_member);
}

#[test]
fn a_pod_of_a_work_without_a_job_holds_the_quota_of_its_namespaces_queue() {
    managed("ofawork", made_by_a_work);
}
