//! The life of a job: deleted at any point, recreated under the same name, on a full cluster, moved
//! to another queue, and with its status mirrored.

use std::time::Duration;

use e2e::harness::kinds::{EVENT, NAMESPACE, NODE, POD, VOLCANO_JOB};
use e2e::harness::objects::Objects;
use e2e::harness::wait::eventually;
use serde_json::{Value, json};
use testbed::MemberProcess;

use crate::case::{Case, SOON, brief};
use crate::job::{Job, record};
use crate::story::{managed, managed_with_spare};

#[test]
fn a_job_deleted_while_pending_released_or_running_can_be_made_again() {
    managed("again", async |case| {
        case.queue(8).await?;
        case.nodes("member1", 2).await?;
        let forever = case.gang("train", 2, 4).volcano();

        let holder = case.submit(&case.gang("holder", 1, 8).batch()).await?;
        case.running(&holder).await?;
        let pending = case.submit(&forever).await?;
        case.waits(&pending, &["WaitingForQuota", "NextInLine"])
            .await?;
        case.delete(&pending).await?;

        let again = resubmit(case, &forever).await?;
        case.gone(&pending).await?;
        case.waits(&again, &["WaitingForQuota", "NextInLine"])
            .await?;
        case.delete(&holder).await?;
        case.placed(&again).await?;
        case.delete(&again).await?;

        let third = resubmit(case, &forever).await?;
        case.gone(&again).await?;
        case.running(&third).await?;
        case.delete(&third).await?;

        let last = resubmit(case, &case.short_gang("train", 2, 4, 1).volcano()).await?;
        case.gone(&third).await?;
        case.finished(&last, "Succeeded").await?;
        let report = case.audit(8, [&holder, &pending, &again, &third, &last])?;
        assert_eq!(report.violations, Vec::<String>::new());
        Ok(())
    });
}

/// Submits a template whose name may still belong to an object that is being deleted.
async fn resubmit(case: &Case, template: &Value) -> anyhow::Result<Job> {
    eventually(SOON, "submitted under the same name", async || {
        case.submit(template)
            .await
            .map_err(|error| format!("{error:#}"))
    })
    .await
}

#[test]
fn of_two_kinds_of_one_name_both_users_get_an_event_and_neither_is_lost() {
    managed("twins", async |case| {
        case.queue(16).await?;
        case.nodes("member1", 2).await?;
        let first = case.submit(&case.gang("twin", 1, 8).volcano()).await?;
        case.running(&first).await?;
        let second = case
            .submit(&case.short_gang("twin", 1, 8, 2).batch())
            .await?;
        for job in [&first, &second] {
            event(case, job, "BindingNameCollision").await?;
        }
        case.running(&first).await?;
        case.delete(&first).await?;
        case.finished(&second, "Succeeded").await
    });
}

/// Waits for an event with this reason on a template, and returns its message.
pub(crate) async fn event(case: &Case, job: &Job, reason: &str) -> anyhow::Result<String> {
    let what = format!("event {reason} on {} {}", job.kind.api_version(), job.name);
    eventually(SOON, &what, async || {
        let events = case.karmada().list(EVENT, Some(&case.name)).await;
        let events = events.map_err(|error| error.to_string())?;
        let own = events
            .iter()
            .filter(|event| event["involvedObject"]["uid"] == job.uid());
        let own: Vec<&Value> = own.collect();
        match own.iter().find(|event| event["reason"] == reason) {
            Some(event) => Ok(event["message"].as_str().unwrap_or_default().to_owned()),
            None => Err(own
                .iter()
                .map(|event| format!("{}: {}", event["reason"], event["message"]))
                .collect::<Vec<_>>()
                .join("; ")),
        }
    })
    .await
}

/// The member whose schedulers are paused while other pods take its nodes.
const FULL: &str = crate::plane::SPARES[0];

#[test]
fn a_placed_job_whose_cluster_turns_out_full_runs_elsewhere() {
    managed_with_spare(FULL, "full", async |case| {
        let testbed = &case.plane.testbed;
        case.queue(16).await?;
        let deadline = json!({"spec": {"placement": {"startDeadlineSeconds": 20}}});
        case.capacity_policy(deadline).await?;
        let nodes = case.nodes(FULL, 2).await?;
        let schedulers = [
            MemberProcess::KubeScheduler,
            MemberProcess::VolcanoScheduler,
        ];
        let schedulers = schedulers.map(|process| process.of(FULL));
        for scheduler in &schedulers {
            testbed.pause(scheduler)?;
        }
        let outcome = async {
            let job = case
                .submit(&case.short_gang("train", 2, 8, 2).volcano())
                .await?;
            assert_eq!(case.placed(&job).await?, [FULL]);
            fill(case, &nodes).await?;
            anyhow::Ok(job)
        };
        let outcome = outcome.await;
        for scheduler in &schedulers {
            testbed.resume(scheduler)?;
        }
        let job = outcome?;
        case.nodes("member2", 2).await?;
        case.finished(&job, "Succeeded").await?;
        let binding = case.binding(&job).await.unwrap().unwrap();
        let record = record(&binding);
        assert_eq!(record["clusters"][0]["name"], "member2", "{record}");
        assert!(record["attempt"].as_u64() >= Some(2), "{record}");
        let report = case.audit(16, [&job])?;
        assert_eq!(report.violations, Vec::<String>::new());
        Ok(())
    });
}

/// Fills nodes with pods that bypass the schedulers, in a namespace of the member that Muster does not
/// manage.
async fn fill(case: &Case, nodes: &[String]) -> anyhow::Result<()> {
    let member = case.plane.member(FULL).await?;
    let another = format!("{}-other", case.name);
    let namespace = json!({"metadata": {"name": another}});
    member.create(NAMESPACE, &namespace).await?;
    for node in nodes {
        let mut pod = case.gang(&format!("other-{node}"), 1, 8).pod();
        pod["metadata"]["namespace"] = json!(another);
        pod["spec"]["nodeName"] = json!(node);
        member.create(POD, &pod).await?;
    }
    Ok(())
}

/// Returns the fields of a Volcano Job's status that its user sees.
fn shown(status: &Value) -> Value {
    let fields = [
        "running",
        "pending",
        "succeeded",
        "failed",
        "terminating",
        "unknown",
    ];
    let mut counts = serde_json::Map::new();
    for field in fields {
        counts.insert(field.into(), json!(status[field].as_i64().unwrap_or(0)));
    }
    json!({"phase": status["state"]["phase"], "minAvailable": status["minAvailable"], "counts": counts})
}

#[test]
fn a_volcano_jobs_phases_and_counts_are_the_same_as_in_its_member() {
    managed("mirror", async |case| {
        case.queue(8).await?;
        case.nodes("member1", 1).await?;
        let mut template = case.gang("train", 2, 2).volcano();
        let mut second = template["spec"]["tasks"][0].clone();
        second["name"] = json!("master");
        second["replicas"] = json!(1);
        template["spec"]["tasks"]
            .as_array_mut()
            .unwrap()
            .push(second);
        template["spec"]["minAvailable"] = json!(3);
        let job = case.submit(&template).await?;
        same(case, &job, "Running").await?;
        case.end(&job).await?;
        same(case, &job, "Completed").await?;
        let failing = case.submit(&case.gang("failing", 2, 2).volcano()).await?;
        same(case, &failing, "Running").await?;
        case.fail(&failing).await?;
        same(case, &failing, "Failed").await
    });
}

/// Waits until the job has this phase and the same counts in its member and on the control plane.
async fn same(case: &Case, job: &Job, phase: &str) -> anyhow::Result<()> {
    let member = case.plane.member("member1").await?;
    let namespace = Some(case.name.as_str());
    let status =
        async |objects: &Objects| match objects.get(VOLCANO_JOB, namespace, &job.name).await {
            Ok(Some(job)) => Ok(shown(&job["status"])),
            Ok(None) => Err("not there".to_owned()),
            Err(error) => Err(error.to_string()),
        };
    eventually(
        SOON,
        &format!("{} {phase} on both sides", job.name),
        async || {
            let there = status(&member).await?;
            let here = status(case.karmada()).await?;
            match there["phase"] == phase && here == there {
                true => Ok(()),
                false => Err(format!("member {there}, control plane {here}")),
            }
        },
    )
    .await
}

#[test]
fn a_job_whose_node_is_cordoned_before_it_starts_is_not_placed_there() {
    managed("cordon", async |case| {
        case.queue(16).await?;
        let nodes = case.nodes("member1", 1).await?;
        case.plane
            .testbed
            .cordon("member1", &nodes[0], true)
            .await?;
        let job = case
            .submit(&case.short_gang("train", 1, 8, 2).volcano())
            .await?;
        case.stays_unplaced(&job, Duration::from_secs(3)).await?;
        case.nodes("member2", 1).await?;
        assert_eq!(case.placed(&job).await?, ["member2"]);
        let member = case.plane.member("member1").await?;
        let node = member.get(NODE, None, &nodes[0]).await?;
        assert!(node.is_some(), "{}", brief(&json!(node)));
        case.finished(&job, "Succeeded").await
    });
}

#[test]
fn growth_of_a_running_volcano_job_is_refused_with_what_to_do() {
    managed("growth", async |case| {
        case.queue(16).await?;
        case.nodes("member1", 2).await?;
        let job = case.submit(&case.gang("train", 1, 4).volcano()).await?;
        case.running(&job).await?;
        let mut tasks = job.template["spec"]["tasks"].clone();
        tasks[0]["replicas"] = json!(2);
        let patch = json!({"spec": {"tasks": tasks}});
        let namespace = Some(case.name.as_str());
        let refused = case
            .karmada()
            .merge(job.kind, namespace, &job.name, &patch)
            .await;
        let message = refused.expect_err("the job grew").to_string();
        assert!(message.contains("submit it again"), "{message}");
        Ok(())
    });
}

/// With `--cascade=orphan` Karmada keeps the binding or not, as it happens: the job ends, and nothing of it is left.
#[test]
fn a_job_that_is_deleted_without_what_belongs_to_it_ends() {
    managed("orphaned", async |case| {
        case.queue(8).await?;
        case.nodes("member1", 1).await?;
        let first = case.submit(&case.gang("first", 1, 8).batch()).await?;
        case.running(&first).await?;
        let second = case.submit(&case.gang("second", 1, 8).batch()).await?;
        case.waits(
            &second,
            &["WaitingForQuota", "NextInLine", "WaitingForRoom"],
        )
        .await?;
        let third = case.submit(&case.gang("third", 1, 8).batch()).await?;
        case.pod_group_when(&third, "seen", |_| true).await?;
        for job in [&third, &first] {
            let namespace = Some(case.name.as_str());
            case.karmada()
                .delete_alone(job.kind, namespace, &job.name)
                .await?;
        }
        case.running(&second).await?;
        for job in [&third, &first] {
            case.gone(job).await?;
            let what = format!("PodGroup of {} gone", job.name);
            eventually(SOON, &what, async || match case.pod_group(job).await? {
                None => Ok(()),
                Some(group) => Err(group["metadata"].to_string()),
            })
            .await?;
        }
        Ok(())
    });
}
