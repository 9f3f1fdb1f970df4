#![allow(clippy::unwrap_used)]
use super::*;
use crate::args::{ActArgs, JobFilter};
use crate::jobs::tests::{client, plane};
use runtime::testing::{FakeApi, Fault};

const NEXT: &str = "/apis/batch/v1/namespaces/vision/jobs/next";
const RUNS: &str = "/apis/batch.volcano.sh/v1alpha1/namespaces/vision/jobs/runs";

fn named(jobs: &[&str]) -> NamedJobs {
    NamedJobs {
        jobs: jobs.iter().map(|&job| job.to_owned()).collect(),
        act: ActArgs::default(),
    }
}

/// Acts on one job and returns the line or the error.
async fn act(api: &FakeApi, act: &JobAct, job: &str, dry_run: DryRun) -> String {
    let client = client(api);
    let (jobs, _) = chosen(&named(&[job]), &client).await.unwrap();
    let kinds = KindCache::new(client);
    match write(act, &jobs[0], dry_run, &kinds).await {
        Ok(Some((line, _))) => line,
        Ok(None) => "gone".to_owned(),
        Err(error) => format!("error: {error:#}"),
    }
}

fn labels(api: &FakeApi, path: &str) -> Value {
    api.get(path).unwrap()["metadata"]["labels"].clone()
}

#[tokio::test]
async fn a_job_is_held_and_released_once() {
    let api = plane();
    let lines = [
        act(&api, &JobAct::Release, "next", DryRun::None).await,
        act(&api, &JobAct::Hold, "next", DryRun::None).await,
        act(&api, &JobAct::Hold, "job/next", DryRun::None).await,
    ];
    insta::assert_snapshot!(lines.join("\n"), @r"
    job.batch/next unchanged (it is not held)
    job.batch/next held
    job.batch/next unchanged (it is held already)
    ");
    assert_eq!(labels(&api, NEXT), json!({"muster.io/hold": "true"}));
    let line = act(&api, &JobAct::Release, "next-job", DryRun::None).await;
    assert_eq!(line, "job.batch/next released");
    assert_eq!(labels(&api, NEXT), json!({}));
    let patches = api.requests_of("PATCH");
    assert_eq!(patches.len(), 2, "what changes nothing is not sent");
    assert_eq!(patches[0].query["fieldManager"], "kubectl-muster");
    assert_eq!(patches[0].body["metadata"]["uid"], "next-job");
}

#[tokio::test]
async fn a_hold_of_a_running_job_says_when_it_acts() {
    let api = plane();
    let line = act(&api, &JobAct::Hold, "runs", DryRun::None).await;
    insta::assert_snapshot!(line, @"job.batch.volcano.sh/runs held (it is Running: the hold acts only once it is queued again)");
    assert_eq!(labels(&api, RUNS)["muster.io/hold"], "true");
    let line = act(&api, &JobAct::Hold, "ended", DryRun::None).await;
    assert_eq!(line, "job.batch/ended held (it has ended)");
}

#[tokio::test]
async fn suspended_and_aborted_jobs_are_resumed() {
    let api = plane();
    let mut lines = vec![act(&api, &JobAct::Resume, "next", DryRun::None).await];
    api.merge(NEXT, &json!({"spec": {"suspend": true}}));
    lines.push(act(&api, &JobAct::Resume, "next", DryRun::None).await);
    assert_eq!(api.get(NEXT).unwrap()["spec"]["suspend"], false);
    api.merge(
        NEXT,
        &json!({"metadata": {"labels": {"muster.io/hold": "true"}}}),
    );
    lines.push(act(&api, &JobAct::Resume, "next", DryRun::None).await);
    // Kubeflow's kinds have the field elsewhere.
    api.merge(
        RUNS,
        &json!({"spec": {"runPolicy": {"suspend": true, "ttl": 1}}}),
    );
    lines.push(act(&api, &JobAct::Resume, "runs", DryRun::None).await);
    let policy = api.get(RUNS).unwrap()["spec"]["runPolicy"].clone();
    assert_eq!(policy, json!({"suspend": false, "ttl": 1}));
    let group = "/apis/scheduling.volcano.sh/v1beta1/namespaces/vision/podgroups/runs-job";
    for reason in ["Aborted", "Suspended"] {
        api.merge(
            group,
            &json!({"status": {"federation": {"reason": reason}}}),
        );
        lines.push(act(&api, &JobAct::Resume, "runs", DryRun::None).await);
    }
    let annotations = api.get(RUNS).unwrap()["metadata"]["annotations"].clone();
    assert_eq!(annotations, json!({"muster.io/resume-attempt": "1"}));
    insta::assert_snapshot!(lines.join("\n"), @r"
    job.batch/next unchanged (it is not suspended)
    job.batch/next resumed
    job.batch/next unchanged (it is held, and not suspended: `kubectl muster release` releases it)
    job.batch.volcano.sh/runs resumed
    job.batch.volcano.sh/runs resumed (as attempt 2)
    error: it was aborted in its member: resume it there (`vcctl job resume`)
    ");
}

#[tokio::test]
async fn pending_jobs_get_another_class_and_queue() {
    let api = plane();
    let high = JobAct::Priority("high".to_owned());
    let night = JobAct::Move("night".to_owned());
    let lines = [
        act(&api, &high, "next", DryRun::None).await,
        act(&api, &night, "next", DryRun::None).await,
        act(&api, &night, "next", DryRun::None).await,
        act(&api, &night, "runs", DryRun::None).await,
    ];
    insta::assert_snapshot!(lines.join("\n"), @r"
    job.batch/next given the PriorityClass high
    job.batch/next moved to the queue night
    job.batch/next unchanged (it is in that queue already)
    error: it is Running and charged to queue vision; only pending jobs can be moved
    ");
    let wanted = json!({"muster.io/priority-class": "high", "muster.io/queue": "night"});
    assert_eq!(labels(&api, NEXT), wanted);
}

#[tokio::test]
async fn exactly_the_object_that_was_listed_is_cancelled() {
    let api = plane();
    let line = act(&api, &JobAct::Cancel, "next", DryRun::None).await;
    assert_eq!(line, "job.batch/next cancelled");
    assert_eq!(api.get(NEXT), None);
    let delete = &api.requests_of("DELETE")[0].body;
    assert_eq!(delete["preconditions"]["uid"], "next-job");
    assert_eq!(delete["propagationPolicy"], "Background");
    api.put(NEXT, json!({"metadata": {"uid": "another"}}));
    let line = act(&api, &JobAct::Cancel, "next", DryRun::None).await;
    assert_eq!(line, "error: it was created again meanwhile");
}

#[tokio::test]
async fn a_dry_run_changes_nothing() {
    let api = plane();
    for verb in [JobAct::Hold, JobAct::Cancel] {
        let before = api.requests().len();
        let line = act(&api, &verb, "next", DryRun::Client).await;
        assert_eq!(line, format!("job.batch/next {} (dry run)", verb.done()));
        let sent = api.requests();
        let sent = sent[before..]
            .iter()
            .filter(|request| request.verb != "GET");
        assert_eq!(sent.count(), 0);
    }
    let line = act(&api, &JobAct::Hold, "next", DryRun::Server).await;
    assert_eq!(line, "job.batch/next held (server dry run)");
    assert_eq!(api.requests_of("PATCH")[0].query["dryRun"], "All");
    let line = act(&api, &JobAct::Cancel, "tenth", DryRun::Server).await;
    assert_eq!(line, "job.batch/tenth cancelled (server dry run)");
    assert_eq!(api.requests_of("DELETE")[0].body["dryRun"], json!(["All"]));
}

#[tokio::test]
async fn several_jobs_are_shown_first_and_each_succeeds_or_fails_by_itself() {
    let api = plane();
    let client = client(&api);
    let (jobs, errors) = chosen(&named(&["next", "gone", "tenth"]), &client)
        .await
        .unwrap();
    assert_eq!(errors.len(), 1);
    let preview = preview(&JobAct::Cancel, &jobs, false);
    let lines = preview.lines().map(|line| {
        line.rsplit_once("  ")
            .map_or(line, |(line, _)| line.trim_end())
    });
    insta::assert_snapshot!(lines.collect::<Vec<_>>().join("\n"), @r"
    2 jobs will be cancelled:
    NAME    KIND        QUEUE    USER     STATUS   REASON            POS   GPUS     PODS   CLUSTERS   RUNTIME
    next    job.batch   vision   bob      Queued   WaitingForQuota   1     16       0/4    <none>     0s/90s
    tenth   job.batch   vision   <none>   Queued   BehindHead        10+   <none>   0/4    <none>     <none>
    ");
    api.fault(1, Fault::Status(403, "forbidden"), |request| {
        request.verb == "DELETE"
    });
    let (cancel, args) = (JobAct::Cancel, ActArgs::default());
    let done = write_all(&cancel, &jobs, true, &args, &client).await;
    assert!(!done.unwrap(), "one was refused");
    let left = [
        api.get(NEXT).is_some(),
        api.get(&NEXT.replace("next", "tenth")).is_some(),
    ];
    assert_eq!(left, [true, false]);
}

#[tokio::test]
async fn jobs_are_selected_or_named() {
    let api = plane();
    let filter = JobFilter {
        queue: Some("a-queue".to_owned()),
        ..JobFilter::default()
    };
    let selected = NamedJobs {
        jobs: Vec::new(),
        act: ActArgs {
            filter,
            ..ActArgs::default()
        },
    };
    assert!(selected.is_bulk());
    selected.check().unwrap();
    let (jobs, errors) = chosen(&selected, &client(&api)).await.unwrap();
    let names: Vec<String> = jobs.iter().map(ListedJob::reference).collect();
    assert_eq!((names, errors.len()), (vec!["pod/pod".to_owned()], 0));
    let both = NamedJobs {
        jobs: vec!["next".to_owned()],
        ..selected
    };
    both.check().unwrap_err();
    named(&[]).check().unwrap_err();
    assert!(!named(&["next"]).is_bulk() && named(&["next", "tenth"]).is_bulk());
}

#[tokio::test]
async fn the_queue_and_the_class_must_exist() {
    let api = plane();
    let client = client(&api);
    let night = JobAct::Move("night".to_owned());
    let error = night.check(&client).await.unwrap_err().to_string();
    assert_eq!(error, "queue \"night\" does not exist");
    api.put(
        "/apis/scheduling.volcano.sh/v1beta1/queues/night",
        json!({}),
    );
    night.check(&client).await.unwrap();
    let high = JobAct::Priority("high".to_owned());
    let error = high.check(&client).await.unwrap_err().to_string();
    assert_eq!(error, "PriorityClass \"high\" does not exist");
    // Who may not read it may still name it: the webhook decides.
    api.fault(1, Fault::Status(403, "forbidden"), |_| true);
    high.check(&client).await.unwrap();
}

#[tokio::test]
async fn a_workload_that_is_gone_is_an_error_only_if_it_was_named_to_be_kept() {
    let api = plane();
    api.remove(NEXT);
    let client = client(&api);
    let (jobs, _) = chosen(&named(&["next"]), &client).await.unwrap();
    let selected = ActArgs {
        filter: JobFilter {
            queue: Some("vision".to_owned()),
            ..JobFilter::default()
        },
        ..ActArgs::default()
    };
    let by_name = ActArgs::default();
    for (act, args, wanted) in [
        (JobAct::Cancel, &by_name, true),
        (JobAct::Hold, &by_name, false),
        (JobAct::Hold, &selected, true),
    ] {
        let done = write_all(&act, &jobs, true, args, &client).await.unwrap();
        assert_eq!(done, wanted, "{act:?}");
    }
}
