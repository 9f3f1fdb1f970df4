//! Events on the user's own object for the reasons why a job waits.

use super::*;

/// The events on the template of `job` so far: type, reason, note.
fn events(stage: &Stage, job: &str) -> Vec<String> {
    let posted = stage.api.requests_of("POST").into_iter();
    let events = posted.filter(|request| {
        request.path.ends_with("/namespaces/team/events")
            && request.body["regarding"]["name"] == job
    });
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    events
        .map(|request| {
            let body = &request.body;
            let [type_, reason, note] = ["type", "reason", "note"].map(|field| text(&body[field]));
            format!("{type_} {reason}: {note}")
        })
        .collect()
}

/// The recorder posts what it has.
async fn post() {
    tokio::time::sleep(Duration::from_secs(5)).await;
}

#[tokio::test(start_paused = true)]
async fn a_job_that_waits_has_one_event_for_each_reason() {
    let mut stage = stage().await;
    stage.job("a", 3);
    stage.job("b", 3);
    stage.rest(&["a", "b"]).await;
    post().await;
    assert_eq!(events(&stage, "b"), Vec::<String>::new());
    stage.rest_later(&["a", "b"], 2_000).await;
    post().await;
    insta::assert_snapshot!(events(&stage, "b").join("\n"), @"Normal NextInLine: needs cpu 3; queue q may use 4 and has 3 charged: short by 2; it is next: what becomes free is reserved for it; see kubectl muster explain job/b -n team");
    for _ in 0..5 {
        stage.rest_later(&["a", "b"], 60_000).await;
    }
    post().await;
    assert_eq!(events(&stage, "b").len(), 1);
    // Another reason that lasts has another event.
    let moved = json!({"metadata": {"labels": {"muster.io/queue": "nowhere"}}});
    stage.template("b", 3, moved);
    stage.rest(&["a", "b"]).await;
    stage.rest_later(&["a", "b"], 2_000).await;
    post().await;
    insta::assert_snapshot!(events(&stage, "b").join("\n"), @r"
    Normal NextInLine: needs cpu 3; queue q may use 4 and has 3 charged: short by 2; it is next: what becomes free is reserved for it; see kubectl muster explain job/b -n team
    Warning QueueNotFound: queue nowhere does not exist; create it or name another; see kubectl muster explain job/b -n team
    ");
    // The binding has the name of the job here, and its events too. No scheduler binds the pods of the other.
    insta::assert_snapshot!(events(&stage, "a").join("\n"), @r"
    Normal Admitted: queue q: 3 pods on m1; charged cpu 3, pods 3
    Normal ScheduleBindingSucceed: Binding has been scheduled successfully. Result: {m1:3}
    Normal ScheduleBindingSucceed: Binding has been scheduled successfully. Result: {m1:3}
    Warning PodsNotScheduled: queue q: placed; 0 of the 3 pods it needs on m1 have a node: the scheduler there has not bound the others for more than a minute, and their events there say why; see kubectl muster explain job/a -n team
    ");
}

#[tokio::test(start_paused = true)]
async fn a_job_that_is_admitted_soon_has_no_event_of_waiting() {
    let mut stage = stage().await;
    stage.job("a", 3);
    stage.job("b", 3);
    stage.rest(&["a", "b"]).await;
    stage.queue("8");
    stage.rest(&["a", "b"]).await;
    stage.rest_later(&["a", "b"], 10_000).await;
    post().await;
    insta::assert_snapshot!(events(&stage, "b").join("\n"), @r"
    Normal Admitted: queue q: 3 pods on m1; charged cpu 3, pods 3
    Normal ScheduleBindingSucceed: Binding has been scheduled successfully. Result: {m1:3}
    Normal ScheduleBindingSucceed: Binding has been scheduled successfully. Result: {m1:3}
    ");
}

/// Karmada's own tests wait for it.
#[tokio::test(start_paused = true)]
async fn an_object_without_pods_has_the_event_of_its_placement() {
    let mut stage = stage().await;
    let config = json!({
        "metadata": {"finalizers": []},
        "spec": {"resource": {"apiVersion": "v1", "kind": "ConfigMap"}, "replicas": 0, "suspension": null},
    });
    let [Event::ClusterUpserted(mut cluster), _] = member_facts() else {
        panic!("no cluster");
    };
    cluster.apis = Some(["v1/ConfigMap".to_owned()].into());
    stage.member_shows(Event::ClusterUpserted(cluster));
    stage.binding("config", 0, config);
    stage.rest(&["config"]).await;
    post().await;
    assert_eq!(
        stage.get("config")["spec"]["clusters"],
        json!([{"name": "m1"}])
    );
    insta::assert_snapshot!(events(&stage, "config").join("\n"), @r"
    Normal ScheduleBindingSucceed: Binding has been scheduled successfully. Result: {m1:0}
    Normal ScheduleBindingSucceed: Binding has been scheduled successfully. Result: {m1:0}
    ");
}

const JOB_STATUS: &str = "/apis/batch/v1/namespaces/team/jobs/b/status";

/// The conditions that were written to the status of template `b`.
fn conditions(stage: &Stage) -> Vec<Value> {
    let patches = stage.api.requests_of("PATCH").into_iter();
    let to_status = patches.filter(|request| request.path == JOB_STATUS);
    to_status
        .map(|request| {
            let mut condition = request.body["status"]["conditions"][0].clone();
            for time in ["lastProbeTime", "lastTransitionTime"] {
                let at: Result<jiff::Timestamp, _> = condition[time].as_str().unwrap().parse();
                assert!(at.is_ok(), "{condition}");
                condition.as_object_mut().unwrap().remove(time);
            }
            condition
        })
        .collect()
}

#[tokio::test(start_paused = true)]
async fn a_queued_job_shows_in_its_status_that_it_is_suspended() {
    let mut stage = stage().await;
    stage
        .api
        .put("/apis/batch/v1/namespaces/team/jobs/b", json!({"spec": {}}));
    stage.job("a", 3);
    stage.job("b", 3);
    stage.rest(&["a", "b"]).await;
    post().await;
    let written = conditions(&stage);
    assert_eq!(written.len(), 1, "{written:#?}");
    insta::assert_json_snapshot!(written[0], @r#"
    {
      "message": "NextInLine in queue q: needs cpu 3; queue q may use 4 and has 3 charged: short by 2; it is next: what becomes free is reserved for it",
      "reason": "Queued",
      "status": "True",
      "type": "Suspended"
    }
    "#);
    // Other numbers in the message change nothing once the template shows the reason.
    let shown = json!({"status": {"conditions": [written[0]]}});
    stage.template("b", 3, shown.clone());
    stage.queue("5");
    stage.rest_later(&["a", "b"], 10_000).await;
    post().await;
    assert_eq!(conditions(&stage).len(), 1);
    // Karmada has overwritten the status.
    stage.template("b", 3, json!({}));
    stage.rest_later(&["a", "b"], 10_000).await;
    post().await;
    assert_eq!(conditions(&stage).len(), 2);
    // It is admitted.
    stage.template("b", 3, shown);
    stage.queue("8");
    stage.rest_later(&["a", "b"], 10_000).await;
    post().await;
    let written = conditions(&stage);
    assert_eq!(written.len(), 3, "{written:#?}");
    insta::assert_json_snapshot!(written[2], @r#"
    {
      "message": "its job is no longer queued",
      "reason": "NotQueued",
      "status": "False",
      "type": "Suspended"
    }
    "#);
}

#[tokio::test(start_paused = true)]
async fn an_object_that_no_policy_selects_gets_a_warning() {
    let mut stage = stage().await;
    let create = |stage: &mut Stage, kind: &TemplateKind, name: &str, metadata: Value| {
        let mut object = json!({"metadata": {"name": name, "namespace": "team", "uid": name}});
        merge(&mut object["metadata"], metadata);
        let template = Template::read(kind, read(object));
        stage.take(Input::Template(kind.clone(), Delta::Upserted(template)));
    };
    let kind = |api_version: &str, kind: &str| TemplateKind {
        api_version: api_version.to_owned(),
        kind: kind.to_owned(),
    };
    let cron = kind("batch/v1", "CronJob");
    create(&mut stage, &cron, "nightly", json!({}));
    let policy = json!({"labels": {names::POLICY_PERMANENT_ID: "own"}});
    create(&mut stage, &cron, "selected", policy);
    let owner = json!({"apiVersion": "apps/v1", "kind": "Other", "name": "d", "uid": "d", "controller": true});
    let controlled = json!({"ownerReferences": [owner]});
    create(
        &mut stage,
        &kind("apps/v1", "DaemonSet"),
        "controlled",
        controlled,
    );
    create(
        &mut stage,
        &kind("trainer.kubeflow.org/v1alpha1", "TrainJob"),
        "tune",
        json!({}),
    );
    create(&mut stage, &job_kind(), "job", json!({}));
    create(
        &mut stage,
        &cron,
        "elsewhere",
        json!({"namespace": "unmanaged"}),
    );
    stage.settle().await;
    stage.ahead_ms += 6_000;
    stage.settle().await;
    create(
        &mut stage,
        &cron,
        "nightly",
        json!({"annotations": {"a": "b"}}),
    );
    stage.ahead_ms += 6_000;
    stage.settle().await;
    post().await;
    insta::assert_snapshot!(events(&stage, "nightly").join("\n"), @"Warning KindNotSelected: no PropagationPolicy selects this CronJob: it is neither queued nor started; Muster queues the Jobs that it makes, where an operator runs the cronjob-controller on the control plane (docs/how-to/cronjob.md); else create each Job in this namespace, as with kubectl create job NAME --from=cronjob/CRONJOB");
    insta::assert_snapshot!(events(&stage, "tune").join("\n"), @"Warning KindNotSelected: no PropagationPolicy selects this TrainJob: it is neither queued nor started; Muster queues the JobSet that it makes, where an operator runs the controller of Kubeflow Trainer on the control plane (docs/how-to/cronjob.md); else create that JobSet, or a job of the framework, in this namespace");
    for name in ["selected", "controlled", "job", "elsewhere"] {
        assert_eq!(events(&stage, name), Vec::<String>::new(), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn kinds_that_no_policy_selects_are_watched_once_it_leads() {
    let mut stage = stage().await;
    let kind = TemplateKind {
        api_version: "batch/v1".to_owned(),
        kind: "CronJob".to_owned(),
    };
    stage.take(Input::UnselectedKinds([kind].into()));
    stage.settle().await;
    let watched = |request: &Recorded| request.path == "/apis/batch/v1/cronjobs";
    assert!(stage.api.requests().iter().any(watched));
}
