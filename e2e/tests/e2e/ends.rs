//! What `kubectl get` prints of a job on the control plane, and its conditions, in each of its ends: the same as
//! of the same object in one cluster without Karmada.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::ensure;
use e2e::harness::jobs::{TestGang, annotated};
use e2e::harness::kinds::{BATCH_JOB, CAPACITY_POLICY, NAMESPACE, ObjectKind};
use e2e::harness::objects::Objects;
use e2e::harness::wait::{eventually, never_within};
use futures::future::join_all;
use serde_json::{Value, json};

use crate::case::{A_WHILE, Case, SOON};
use crate::job::{Job, condition};
use crate::leading_part::{leads, room_for_seven};
use crate::split::{no_pods, play, pods_of};
use crate::story::{managed, managed_long};

/// The member in which each object also runs without Karmada.
const ALONE: &str = "member1";

/// How a job ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Succeeded,
    Failed,
    Deadline,
    Suspended,
}

/// A kind, with the fields that end or suspend it; empty if it has none.
struct Row {
    name: &'static str,
    template: fn(&TestGang) -> Value,
    deadline: &'static str,
    suspend: &'static str,
}

const fn kubeflow(name: &'static str, template: fn(&TestGang) -> Value) -> Row {
    Row {
        name,
        template,
        // training-operator compares the time only when something happens to the job: of pods that run on, none ends
        // at its deadline, in one cluster neither.
        deadline: "",
        // A job that its owner has suspended is in no cluster, and its status has no place for it.
        suspend: "",
    }
}

const ROWS: &[Row] = &[
    Row {
        name: "job",
        template: TestGang::batch,
        deadline: "/spec/activeDeadlineSeconds",
        suspend: "/spec/suspend",
    },
    Row {
        name: "vcjob",
        template: TestGang::volcano,
        deadline: "",
        suspend: "",
    },
    Row {
        name: "jobset",
        template: TestGang::job_set,
        deadline: "",
        suspend: "",
    },
    Row {
        name: "pod",
        template: TestGang::pod,
        deadline: "",
        suspend: "",
    },
    kubeflow("paddle", paddle),
    kubeflow("torch", TestGang::pytorch),
    kubeflow("jax", TestGang::jax),
    kubeflow("xgb", TestGang::xgboost),
    kubeflow("tf", tensorflow),
    Row {
        deadline: "/spec/runPolicy/activeDeadlineSeconds",
        ..kubeflow("mpi", TestGang::mpi)
    },
];

fn tensorflow(gang: &TestGang) -> Value {
    let mut job = gang.jax();
    job["kind"] = json!("TFJob");
    let spec = job["spec"].as_object_mut().unwrap();
    let mut groups = spec.remove("jaxReplicaSpecs").unwrap();
    groups["Worker"]["template"]["spec"]["containers"][0]["name"] = json!("tensorflow");
    spec.insert("tfReplicaSpecs".to_owned(), groups);
    job
}

fn paddle(gang: &TestGang) -> Value {
    let mut job = gang.pytorch();
    job["kind"] = json!("PaddleJob");
    let spec = job["spec"].as_object_mut().unwrap();
    let mut groups = spec.remove("pytorchReplicaSpecs").unwrap();
    for group in groups.as_object_mut().unwrap().values_mut() {
        group["template"]["spec"]["containers"][0]["name"] = json!("paddle");
    }
    spec.insert("paddleReplicaSpecs".to_owned(), groups);
    job
}

impl Row {
    /// Returns the template of a job that ends so.
    fn ends(&self, case: &Case, end: End) -> Option<Value> {
        let name = format!("{}-{end:?}", self.name).to_lowercase();
        let run_for = matches!(end, End::Succeeded | End::Failed).then(|| "2s".to_owned());
        let gang = TestGang {
            run_for,
            fail: end == End::Failed,
            ..case.gang(&name, 2, 1)
        };
        let mut template = (self.template)(&gang);
        let (field, value) = match end {
            End::Deadline => (self.deadline, json!(5)),
            End::Suspended => (self.suspend, json!(true)),
            _ => return Some(template),
        };
        let (at, key) = field.rsplit_once('/')?;
        template.pointer_mut(at).unwrap()[key] = value;
        Some(template)
    }
}

/// What a person sees of an object: its columns without names and times, and its conditions.
#[derive(Debug, PartialEq)]
struct Seen {
    printed: BTreeMap<String, Value>,
    conditions: Vec<(String, String, String)>,
}

impl Seen {
    async fn of(objects: &Objects, kind: ObjectKind, at: (&str, &str)) -> Result<Self, String> {
        let (namespace, name) = at;
        let object = objects.get(kind, Some(namespace), name).await;
        let object = object
            .map_err(|error| error.to_string())?
            .ok_or("not there")?;
        let printed = objects.printed(kind, namespace, name).await;
        let mut printed = printed.map_err(|error| error.to_string())?;
        let timed = [
            "Name",
            "Age",
            "Duration",
            "Queue",
            "RunningDuration",
            "Selector",
            "IP",
            "Node",
        ];
        printed.retain(|column, value| {
            let is_time = value
                .as_str()
                .is_some_and(|text| text.contains("T") && text.ends_with('Z'));
            !is_time && !timed.iter().any(|timed| column.eq_ignore_ascii_case(timed))
        });
        let text = |condition: &Value, field: &str| {
            condition[field].as_str().unwrap_or_default().to_owned()
        };
        let conditions = object["status"]["conditions"]
            .as_array()
            .into_iter()
            .flatten();
        let mut conditions: Vec<_> = conditions
            // Whether it is queued is said on the control plane only.
            .filter(|of| of["reason"] != "NotQueued" && of["reason"] != "Queued")
            .map(|of| {
                ["type", "status", "reason"]
                    .map(|field| text(of, field))
                    .into()
            })
            .filter(|(type_, ..): &(String, String, String)| !type_.is_empty())
            // A controller that did not see the pods run has no such condition: to a job that has ended it is the same.
            .filter(|(type_, status, _)| (type_.as_str(), status.as_str()) != ("Running", "False"))
            .collect();
        conditions.sort();
        Ok(Self {
            printed,
            conditions,
        })
    }

    fn without_reasons(&self) -> (&BTreeMap<String, Value>, Vec<(&str, &str)>) {
        let conditions = self.conditions.iter();
        let conditions = conditions.map(|(type_, status, _)| (type_.as_str(), status.as_str()));
        (&self.printed, conditions.collect())
    }

    /// Returns true if it shows that the job has ended so.
    fn shows(&self, end: End) -> bool {
        let words: &[&str] = match end {
            End::Succeeded => &["Complete", "Completed", "Succeeded"],
            End::Failed | End::Deadline => &["Failed", "Error"],
            End::Suspended => &["Suspended"],
        };
        let printed = self
            .printed
            .values()
            .any(|cell| words.iter().any(|word| cell == *word));
        let holds = |(type_, status, _): &(String, String, String)| {
            words.contains(&type_.as_str()) && status == "True"
        };
        printed || self.conditions.iter().any(holds)
    }
}

/// Runs one job on the control plane and alone in a member, until both show the same end.
async fn same_end(case: &Case, alone: &str, template: &Value, end: End) -> anyhow::Result<()> {
    let job = case.submit(template).await?;
    let mut copy = template.clone();
    copy["metadata"]["namespace"] = json!(alone);
    copy["metadata"]["labels"] = json!({});
    if copy["spec"]["queue"].is_string() {
        copy["spec"]["queue"] = json!("default");
    }
    let member = case.plane.member(ALONE).await?;
    member.create(job.kind, &copy).await?;
    let mut last = String::new();
    let same = eventually(SOON, &format!("{} shows its end", job.name), async || {
        let there = Seen::of(&member, job.kind, (alone, &job.name)).await?;
        let here = Seen::of(case.karmada(), job.kind, (&case.name, &job.name)).await?;
        let is_same = match end {
            // The reason on the control plane is why it is queued.
            End::Suspended => there.printed == here.printed,
            // Whether the deadline or the back-off limit is named first is by chance.
            End::Deadline => there.without_reasons() == here.without_reasons(),
            _ => there == here,
        };
        match there.shows(end) && is_same {
            true => Ok(()),
            false => {
                last = format!(
                    "{} as {end:?}: alone {there:?}, on the control plane {here:?}",
                    job.name
                );
                Err(last.clone())
            }
        }
    })
    .await;
    same.map_err(|error| error.context(last))
}

/// All kinds in all of their ends, side by side.
async fn all_ends(case: &Case, rows: &[Row], ends: &[End]) -> anyhow::Result<()> {
    case.queue(200).await?;
    case.nodes(ALONE, 16).await?;
    let alone = format!("{}-alone", case.name);
    let member = case.plane.member(ALONE).await?;
    let namespace = json!({"metadata": {"name": alone}});
    member.create(NAMESPACE, &namespace).await?;
    let cases = rows
        .iter()
        .flat_map(|row| ends.iter().map(move |end| (row, *end)));
    let cases = cases.filter_map(|(row, end)| Some((row.ends(case, end)?, end)));
    let cases: Vec<(Value, End)> = cases.collect();
    let each = cases
        .iter()
        .map(|(template, end)| same_end(case, &alone, template, *end));
    let failures: Vec<String> = join_all(each)
        .await
        .into_iter()
        .filter_map(|outcome| outcome.err().map(|error| format!("{error:#}")))
        .collect();
    member.delete(NAMESPACE, None, &alone).await?;
    ensure!(failures.is_empty(), "{}", failures.join("\n"));
    Ok(())
}

/// Waits until the status of a Job on the control plane passes `check`.
async fn status_when(
    case: &Case,
    job: &Job,
    what: &str,
    check: impl Fn(&Value) -> bool,
) -> anyhow::Result<Value> {
    eventually(
        SOON,
        &format!("the status of {} {what}", job.name),
        async || {
            let template = case.template(job).await?.unwrap_or_default();
            match check(&template) {
                true => Ok(template["status"].clone()),
                false => Err(template["status"].to_string()),
            }
        },
    )
    .await
}

fn holds(job: &Value, type_: &str) -> bool {
    condition(job, type_)["status"] == "True"
}

/// One part of a split Job fails: so has the Job, with the words of the member, and its other pods are gone.
async fn part_fails(case: &Case) -> anyhow::Result<()> {
    case.queue(12).await?;
    case.nodes("member1", 1).await?;
    case.nodes("member2", 1).await?;
    let template = annotated(case.gang("array", 6, 2).batch(), "muster.io/split", "2");
    let job = case.submit(&template).await?;
    case.running(&job).await?;
    let badly = json!({"muster.io/fail": "true"});
    play(case, &job, |cluster, _| cluster == "member2", badly).await?;
    let status = status_when(case, &job, "says that it has failed", |job| {
        holds(job, "Failed")
    })
    .await?;
    case.finished(&job, "Failed").await?;
    ensure!(
        status["active"].is_null() && status["ready"] == 0,
        "{status}"
    );
    let failed = json!({"status": status});
    ensure!(holds(&failed, "FailureTarget"), "{status}");
    Ok(())
}

/// A worker of the part without the leader fails: the job fails as a whole, its object says so, and no pod of it is
/// left. (PyTorchJobs, JobSets and Volcano Jobs have stories of their own.)
async fn worker_fails(case: &Case) -> anyhow::Result<()> {
    room_for_seven(case).await?;
    let gang = case.gang("workerfails", 7, 2);
    let mut jax = gang.jax();
    let container = "/spec/jaxReplicaSpecs/Worker/template/spec/containers/0";
    if let Some(container) = jax.pointer_mut(container) {
        container["ports"] = json!([{"name": "jaxjob-port", "containerPort": 6666}]);
        container["command"] = json!(["train"]);
    }
    let mut boost = gang.xgboost();
    for group in ["Master", "Worker"] {
        let container = format!("/spec/xgbReplicaSpecs/{group}/template/spec/containers/0");
        if let Some(container) = boost.pointer_mut(&container) {
            container["command"] = json!(["train"]);
        }
    }
    for template in [jax, boost] {
        let kind = template["kind"].as_str().unwrap_or_default().to_owned();
        let job = case
            .submit(&annotated(template, "muster.io/split", "Allowed"))
            .await?;
        case.running(&job).await?;
        let pods = pods_of(case, &job).await?;
        ensure!(pods.len() == 2, "{kind} is in {:?}", pods.keys());
        let badly = json!({"muster.io/fail": "true"});
        let last = pods.iter().find(|(_, pods)| !pods.iter().any(leads));
        let last = last.map_or("member2", |(cluster, _)| cluster.as_str());
        play(case, &job, |cluster, _| cluster == last, badly).await?;
        status_when(case, &job, &format!("of {kind} has failed"), |job| {
            holds(job, "Failed") && !holds(job, "Running")
        })
        .await?;
        case.finished(&job, "Failed").await?;
        no_pods(case, &job).await?;
        case.delete(&job).await?;
        case.gone(&job).await?;
    }
    Ok(())
}

/// A Job that is evicted and queued again says so, starts again, and completes.
async fn evicted(case: &Case) -> anyhow::Result<()> {
    case.queue(8).await?;
    case.nodes("member1", 1).await?;
    case.capacity_policy(json!({"spec": {"stopPolicy": "None"}}))
        .await?;
    let mut template = case.gang("again", 2, 2).batch();
    template["spec"]["completions"] = json!(3);
    let job = case.submit(&template).await?;
    let first = status_when(case, &job, "has a start", |job| job["status"]["ready"] == 2).await?;
    let stop = async |policy: &str| {
        let patch = json!({"spec": {"stopPolicy": policy}});
        case.karmada()
            .merge(CAPACITY_POLICY, None, &case.name, &patch)
            .await
    };
    // Times are in seconds.
    tokio::time::sleep(Duration::from_millis(1100)).await;
    stop("HoldAndDrain").await?;
    let queued = |job: &Value| holds(job, "Suspended") && job["status"]["active"].is_null();
    status_when(case, &job, "says that it is queued again", queued).await?;
    let printed = case
        .karmada()
        .printed(BATCH_JOB, &case.name, &job.name)
        .await?;
    ensure!(printed["Status"] == "Suspended", "{printed:?}");
    stop("None").await?;
    let restarted = |job: &Value| {
        let start = job["status"]["startTime"].as_str();
        job["status"]["ready"] == 2
            && start > first["startTime"].as_str()
            && !holds(job, "Suspended")
    };
    status_when(case, &job, "has a new start", restarted).await?;
    eventually(SOON, "all pods of again end", async || {
        let ended = case.end(&job).await;
        ended.map_err(|error| format!("{error:#}"))?;
        let job = case.template(&job).await?.unwrap_or_default();
        let status = || job["status"].to_string();
        holds(&job, "Complete").then_some(()).ok_or_else(status)
    })
    .await?;
    case.finished(&job, "Succeeded").await
}

/// A Job that its queue retries never says that it has failed before its last retry has.
async fn retried(case: &Case) -> anyhow::Result<()> {
    case.queue(8).await?;
    case.nodes("member1", 1).await?;
    case.capacity_policy(json!({"spec": {"retries": {"user": 1}}}))
        .await?;
    let job = case.submit(&case.gang("retried", 2, 2).batch()).await?;
    case.running(&job).await?;
    case.fail(&job).await?;
    case.binding_when(&job, "runs again", |binding| {
        crate::job::record(binding)["attempt"].as_u64() == Some(2)
    })
    .await?;
    case.running(&job).await?;
    never_within(A_WHILE, "an end of a Job that runs again", async || {
        let job = case.template(&job).await?.unwrap_or_default();
        let over = holds(&job, "Failed") || holds(&job, "FailureTarget");
        if over {
            Err(job["status"].to_string())
        } else {
            Ok(())
        }
    })
    .await?;
    case.fail(&job).await?;
    status_when(case, &job, "says that it has failed", |job| {
        holds(job, "Failed")
    })
    .await?;
    let printed = case
        .karmada()
        .printed(BATCH_JOB, &case.name, &job.name)
        .await?;
    ensure!(printed["Status"] == "Failed", "{printed:?}");
    Ok(())
}

#[test]
fn jobs_of_all_kinds_show_their_ends_as_in_one_cluster() {
    managed_long("ends", async |case| {
        use End::{Deadline, Failed, Succeeded, Suspended};
        all_ends(case, ROWS, &[Succeeded, Failed, Deadline, Suspended]).await
    });
}

#[test]
fn a_job_of_which_one_part_fails_says_that_it_has_failed() {
    managed("endpart", part_fails);
}

#[test]
fn jobs_of_training_operators_of_which_a_worker_fails_say_that_they_have_failed() {
    managed("endworker", worker_fails);
}

#[test]
fn a_job_that_is_evicted_starts_again_and_completes() {
    managed("endagain", evicted);
}

#[test]
fn a_job_that_is_retried_fails_with_its_last_retry() {
    managed("endretried", retried);
}
