//! The order of jobs, and the messages of pending jobs.

use e2e::harness::jobs::{self, TestGang};
use e2e::harness::kinds::{BATCH_JOB, CRON_JOB, QUEUE};
use e2e::harness::wait::eventually;
use serde_json::{Value, json};

use crate::case::{A_WHILE, Case, SOON};
use crate::job::{Job, record};
use crate::lifecycle::event;
use crate::story::managed;

#[test]
fn the_higher_priority_starts_first_when_capacity_frees() {
    managed("priority", async |case| {
        case.queue(8).await?;
        case.nodes("member1", 2).await?;
        let runs = case.submit(&case.gang("runs", 1, 8).volcano()).await?;
        case.running(&runs).await?;
        let mut jobs = Vec::new();
        for (word, value) in [("low", 1), ("mid", 10), ("high", 100), ("middle", 10)] {
            let class = case.priority_class(word, value).await?;
            let gang = TestGang {
                priority_class: Some(class),
                ..case.short_gang(word, 2, 4, 1)
            };
            let job = case.submit(&gang.volcano()).await?;
            case.waits(
                &job,
                &["WaitingForQuota", "ReservedForAnother", "NextInLine"],
            )
            .await?;
            jobs.push(job);
        }
        case.end(&runs).await?;
        let mut admitted = Vec::new();
        for job in &jobs {
            case.finished(job, "Succeeded").await?;
            let binding = case.binding(job).await.unwrap().unwrap();
            let time = record(&binding)["time"]
                .as_str()
                .unwrap_or_default()
                .to_owned();
            admitted.push((time, job.name.clone()));
        }
        admitted.sort();
        let order: Vec<&str> = admitted.iter().map(|(_, name)| name.as_str()).collect();
        assert_eq!(order, ["high", "mid", "middle", "low"]);
        Ok(())
    });
}

#[test]
fn a_gang_that_fits_nowhere_waits_while_a_smaller_one_runs() {
    managed("fit", async |case| {
        case.queue(64).await?;
        case.nodes("member1", 2).await?;
        case.nodes("member2", 1).await?;
        // The job needs three whole nodes in one cluster; the fleet has three, in two clusters.
        let large = case
            .submit(&case.short_gang("large", 3, 8, 2).volcano())
            .await?;
        let reasons = [
            "ExceedsFleet",
            "NoEligibleCluster",
            "WaitingForRoom",
            "NextInLine",
        ];
        let message = case.waits(&large, &reasons).await?;
        assert!(!message.is_empty(), "waits without a message");
        let small = case
            .submit(&case.short_gang("small", 1, 8, 2).volcano())
            .await?;
        case.finished(&small, "Succeeded").await?;
        case.stays_unplaced(&large, A_WHILE).await?;
        case.node_group("member1", "more", 1).await?;
        assert_eq!(case.placed(&large).await?, ["member1"]);
        case.finished(&large, "Succeeded").await
    });
}

#[test]
fn a_gang_that_fits_when_others_end_waits_for_them() {
    managed("room", async |case| {
        case.queue(64).await?;
        case.nodes("member1", 2).await?;
        let runs = case.submit(&case.gang("runs", 1, 8).volcano()).await?;
        case.running(&runs).await?;
        let gang = case
            .submit(&case.short_gang("gang", 2, 8, 2).volcano())
            .await?;
        case.waits(&gang, &["WaitingForRoom", "NextInLine"]).await?;
        let works_of_a_part = case.pods("member1").await?.len();
        assert_eq!(works_of_a_part, 1, "part of the gang started");
        case.end(&runs).await?;
        case.finished(&gang, "Succeeded").await
    });
}

#[test]
fn a_job_of_an_unknown_queue_says_so_and_goes_on_when_the_queue_appears() {
    managed("noqueue", async |case| {
        case.nodes("member1", 1).await?;
        let job = case
            .submit(&case.short_gang("train", 1, 8, 2).volcano())
            .await?;
        let message = case.waits(&job, &["QueueNotFound"]).await?;
        assert!(
            message.contains("noqueue"),
            "does not name the queue: {message}"
        );
        case.stays_unplaced(&job, A_WHILE).await?;
        case.queue(8).await?;
        case.finished(&job, "Succeeded").await
    });
}

#[test]
fn a_job_of_an_unknown_priority_class_says_so_and_goes_on_when_it_appears() {
    managed("noclass", async |case| {
        case.queue(8).await?;
        case.nodes("member1", 1).await?;
        let gang = TestGang {
            priority_class: Some("noclass-late".into()),
            ..case.short_gang("train", 1, 8, 2)
        };
        let job = case.submit(&gang.volcano()).await?;
        let message = case.waits(&job, &["PriorityClassNotFound"]).await?;
        assert!(
            message.contains("noclass-late"),
            "does not name the class: {message}"
        );
        case.priority_class("late", 7).await?;
        case.finished(&job, "Succeeded").await
    });
}

#[test]
fn a_job_may_change_its_queue_while_it_waits() {
    managed("move", async |case| {
        case.queue(0).await?;
        case.cluster_object(QUEUE, &jobs::queue("move-to", 8))
            .await?;
        case.nodes("member1", 1).await?;
        let job = case
            .submit(&case.short_gang("train", 1, 8, 2).batch())
            .await?;
        case.waits(&job, &["WaitingForQuota", "ExceedsCapability"])
            .await?;
        says_why_it_waits(case, &job).await?;
        a_cron_job_says_what_to_do(case).await?;
        let relabel = json!({"metadata": {"labels": {"muster.io/queue": "move-to"}}});
        let namespace = Some(case.name.as_str());
        case.karmada()
            .merge(job.kind, namespace, &job.name, &relabel)
            .await?;
        case.finished(&job, "Succeeded").await?;
        let group = case.pod_group(&job).await.unwrap().unwrap();
        assert_eq!(group["spec"]["queue"], "move-to");
        let template = case.template(&job).await.unwrap().unwrap();
        assert!(!is_suspended(&template), "{}", template["status"]);
        Ok(())
    });
}

/// The user's own object says in an event and in its status why its job waits.
async fn says_why_it_waits(case: &Case, job: &Job) -> anyhow::Result<()> {
    let group = case.pod_group(job).await.unwrap().unwrap();
    let reason = group["status"]["federation"]["reason"].clone();
    let reason = reason.as_str().unwrap_or_default();
    let note = event(case, job, reason).await?;
    let command = format!("kubectl muster explain job/{} -n {}", job.name, case.name);
    for words in [&format!("queue {}", case.name), &command] {
        assert!(note.contains(words), "does not say {words}: {note}");
    }
    let what = format!("{} shows that it is suspended", job.name);
    eventually(SOON, &what, async || match case.template(job).await? {
        Some(template) if is_suspended(&template) => Ok(()),
        other => Err(format!(
            "{:?}",
            other.map(|object| object["status"].clone())
        )),
    })
    .await
}

/// Returns true if the status of a batch Job has the condition that makes kubectl print `Suspended`.
fn is_suspended(template: &Value) -> bool {
    let conditions = template["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|condition| condition["type"] == "Suspended" && condition["status"] == "True")
}

/// No policy selects a CronJob: an event says what its user can do. The Jobs that its controller makes on the
/// control plane are queued like those of a user.
async fn a_cron_job_says_what_to_do(case: &Case) -> anyhow::Result<()> {
    let job = case.gang("nightly", 1, 1).batch();
    let metadata = json!({"labels": job["metadata"]["labels"]});
    let object = json!({
        "metadata": {"name": "nightly", "namespace": case.name},
        "spec": {
            "schedule": "0 3 * * *",
            "jobTemplate": {"metadata": metadata, "spec": job["spec"]},
        },
    });
    let created = case.karmada().create(CRON_JOB, &object).await?;
    let note = event(case, &Job::of(CRON_JOB, created), "KindNotSelected").await?;
    let command = "kubectl create job";
    assert!(note.contains(command), "does not say {command}: {note}");
    // Its controller makes at once what it has missed.
    let namespace = Some(case.name.as_str());
    let missed = json!({"status": {"lastScheduleTime": "2026-01-01T00:00:00Z"}});
    case.karmada()
        .merge_status(CRON_JOB, namespace, "nightly", &missed)
        .await?;
    let made = eventually(SOON, "nightly makes a Job", async || {
        let jobs = case.karmada().list(BATCH_JOB, namespace).await;
        let mut jobs = jobs.map_err(|error| error.to_string())?.into_iter();
        let made = jobs.find(|job| job["metadata"]["ownerReferences"][0]["kind"] == "CronJob");
        made.ok_or_else(|| "there is none".to_owned())
    })
    .await?;
    case.waits(
        &Job::of(BATCH_JOB, made),
        &["WaitingForQuota", "ExceedsCapability"],
    )
    .await?;
    case.karmada()
        .delete(CRON_JOB, namespace, "nightly")
        .await?;
    Ok(())
}
