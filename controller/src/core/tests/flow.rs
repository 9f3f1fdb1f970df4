//! The life of a job: queued, admitted, followed, evicted, unmanaged.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_gated_job_is_admitted_and_placed_in_one_patch() {
    let mut stage = stage().await;
    stage.job("a", 2);
    stage.settle().await;
    let [patch] = stage.patches("a").try_into().expect("one patch");
    assert_eq!(patch["spec"]["suspension"], json!({"scheduling": false}));
    assert_eq!(patch["spec"]["clusters"][0]["name"], "m1");
    let record = &patch["metadata"]["annotations"][names::ADMISSION_ANNOTATION];
    assert!(record.as_str().unwrap().contains(r#""state":"Admitted""#));
    assert!(patch["metadata"]["resourceVersion"].is_string());
    // Charged before the watch shows it, and only once after.
    assert_eq!(stage.charged(), "2");
    stage.rest(&["a"]).await;
    assert_eq!(stage.state("a"), Some(JobState::Placed));
    assert_eq!(stage.charged(), "2");
}

#[tokio::test(start_paused = true)]
async fn nothing_is_written_at_rest() {
    let mut stage = stage().await;
    stage.marked_namespace(true);
    stage.job("runs", 2);
    stage.job("waits", 3);
    stage.rest(&["runs", "waits"]).await;
    stage.rest_later(&["runs", "waits"], 5_000).await;
    // Events are posted at a limited rate.
    tokio::time::sleep(std::time::Duration::from_secs(5)).await;
    let writes = |stage: &Stage| {
        let all = stage.api.requests();
        all.iter()
            .filter(|r| r.verb != "GET" && r.verb != "WATCH")
            .count()
    };
    let before = writes(&stage);
    for _ in 0..5 {
        stage.rest_later(&["runs", "waits"], 10_000).await;
    }
    assert_eq!(writes(&stage), before, "{:#?}", last(&stage.api.requests()));
    assert_eq!(stage.shown("waits"), "no record, gated []");
}

#[tokio::test(start_paused = true)]
async fn a_finished_job_frees_quota_for_the_next() {
    let mut stage = stage().await;
    stage.job("a", 3);
    stage.rest(&["a"]).await;
    stage.job("b", 3);
    stage.rest(&["a", "b"]).await;
    assert_eq!(stage.shown("b"), "no record, gated []");
    let complete = json!({"succeeded": 3, "conditions": [{"type": "Complete", "status": "True"}]});
    stage.change("a", reported(complete));
    stage.rest(&["a", "b"]).await;
    assert_eq!(stage.state("a"), Some(JobState::Finished));
    assert_eq!(stage.shown("b"), r#"Admitted 1 open ["m1"]"#);
    assert_eq!(stage.charged(), "3");
}

#[tokio::test(start_paused = true)]
async fn a_binding_that_the_webhook_missed_is_gated_first() {
    let mut stage = stage().await;
    stage.template("a", 2, json!({}));
    let open = json!({"metadata": {"finalizers": []}, "spec": {"suspension": null}});
    stage.binding("a", 2, open);
    stage.settle().await;
    let [hold] = stage.patches("a").try_into().expect("one patch");
    assert_eq!(hold["spec"], json!({"suspension": {"scheduling": true}}));
    stage.rest(&["a"]).await;
    assert_eq!(stage.shown("a"), r#"Admitted 1 open ["m1"]"#);
}

#[tokio::test(start_paused = true)]
async fn a_binding_opened_by_hand_is_gated_again() {
    let mut stage = stage().await;
    stage.job("big", 5);
    stage.rest(&["big"]).await;
    stage.change(
        "big",
        json!({"spec": {"suspension": {"scheduling": false}}}),
    );
    stage.rest(&["big"]).await;
    assert_eq!(stage.shown("big"), "no record, gated []");
    assert_eq!(stage.core.reconciler.out.metrics.opened_by_hand.get(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_job_placed_by_hand_is_charged_until_its_works_are_gone() {
    let mut stage = stage().await;
    stage.job("big", 5);
    stage.rest(&["big"]).await;
    let by_hand =
        json!({"spec": {"suspension": {"scheduling": false}, "clusters": [{"name": "m1"}]}});
    stage.work("big", true);
    stage.change("big", by_hand);
    stage.rest(&["big"]).await;
    assert_eq!(stage.shown("big"), "Ending 1 gated []");
    assert_eq!(stage.charged(), "5");
    stage.rest_later(&["big"], 10_000).await;
    assert_eq!(stage.charged(), "5");
    stage.work("big", false);
    stage.rest(&["big"]).await;
    assert_eq!(stage.shown("big"), "Requeued 1 gated []");
    assert_eq!(stage.charged(), "0");
}

#[tokio::test(start_paused = true)]
async fn a_dependent_binding_is_charged_while_it_has_works() {
    let mut stage = stage().await;
    stage.marked_namespace(true);
    stage.template("dep", 5, json!({}));
    let required =
        json!([{"namespace": "team", "name": "app-thing", "clusters": [{"name": "m1"}]}]);
    let follows = json!({
        "metadata": {"finalizers": []},
        "spec": {"suspension": null, "placement": null, "schedulerName": null, "requiredBy": required},
    });
    stage.binding("dep", 5, follows);
    stage.change(
        "dep",
        json!({"metadata": {"labels": {names::POLICY_PERMANENT_ID: null}}}),
    );
    stage.work("dep", true);
    stage.rest(&["dep"]).await;
    assert_eq!(stage.shown("dep"), "Ending 1 gated []");
    assert_eq!(stage.charged(), "5");
    // The binding that it follows is gone.
    stage.change("dep", json!({"spec": {"requiredBy": []}}));
    stage.work("dep", false);
    stage.rest_later(&["dep"], 10_000).await;
    assert_eq!(stage.shown("dep"), "Requeued 1 gated []");
    assert_eq!(stage.charged(), "0");
}

#[tokio::test(start_paused = true)]
async fn a_binding_whose_namespace_and_policy_go_is_unmanaged() {
    let mut stage = stage().await;
    stage.job("big", 5);
    stage.rest(&["big"]).await;
    stage.namespace(false);
    // The policy names Muster, so the binding stays managed while a policy claims it.
    stage.rest(&["big"]).await;
    assert_eq!(stage.shown("big"), "no record, gated []");
    stage.change(
        "big",
        json!({"metadata": {"labels": {names::POLICY_PERMANENT_ID: null}}}),
    );
    stage.rest(&["big"]).await;
    assert_eq!(stage.shown("big"), "no record, open []");
    assert_eq!(stage.get("big")["metadata"]["finalizers"], json!([]));
    assert_eq!(stage.state("big"), None);
    assert!(
        !stage
            .core
            .reconciler
            .jobs
            .last_facts
            .contains_key(&JobKey::new("team", "big"))
    );
}

#[tokio::test(start_paused = true)]
async fn running_jobs_are_charged_before_the_first_decision() {
    let mut stage = Stage::bare(&FakeApi::new(), true).await;
    stage.template("runs", 3, json!({}));
    let running = json!({
        "metadata": {"finalizers": null},
        "spec": {"suspension": null, "clusters": [{"name": "m1", "replicas": 3}]},
    });
    stage.binding("runs", 3, running);
    stage.job("waits", 2);
    stage.list_all();
    stage.rest(&["runs", "waits"]).await;
    assert_eq!(stage.shown("runs"), r#"Admitted 1 open ["m1"]"#);
    assert!(stage.record("runs").unwrap().adopted);
    assert_eq!(stage.shown("waits"), "no record, gated []");
    assert_eq!(stage.charged(), "3");
}

/// A job that another scheduler has placed, in a namespace that becomes managed.
async fn adopted(scheduler: &str) -> Stage {
    let mut stage = stage().await;
    stage.template("a", 3, json!({}));
    let running = json!({
        "metadata": {"finalizers": null},
        "spec": {
            "schedulerName": scheduler, "suspension": null,
            "clusters": [{"name": "m1", "replicas": 3}],
        },
    });
    stage.binding("a", 3, running);
    stage.rest(&["a"]).await;
    stage
}

#[tokio::test(start_paused = true)]
async fn an_adopted_job_is_never_evicted_for_starting_late() {
    let mut stage = adopted("muster").await;
    for _ in 0..3 {
        stage.rest_later(&["a"], 700_000).await;
    }
    assert_eq!(stage.shown("a"), r#"Admitted 1 open ["m1"]"#);
    assert_eq!(stage.charged(), "3");
}

#[tokio::test(start_paused = true)]
async fn a_scaled_adopted_job_is_charged_its_new_size() {
    let mut stage = adopted("default-scheduler").await;
    let scaled = json!({"spec": {"clusters": [{"name": "m1", "replicas": 4}]}});
    stage.change("a", scaled);
    stage.rest(&["a"]).await;
    assert_eq!(stage.charged(), "4");
    let record = stage.record("a").unwrap();
    assert_eq!(record.clusters[0].pods[0].count, 4);
    assert!(record.adopted);
    let writes = stage.patches("a").len();
    stage.rest_later(&["a"], 10_000).await;
    assert_eq!(stage.patches("a").len(), writes);
}

#[tokio::test(start_paused = true)]
async fn a_suspended_job_gives_its_quota_back_and_resumes() {
    let mut stage = stage().await;
    stage.job("a", 2);
    stage.rest(&["a"]).await;
    stage.work("a", true);
    stage.template("a", 2, json!({"spec": {"suspend": true}}));
    stage.rest(&["a"]).await;
    assert_eq!(stage.shown("a"), "Ending 1 gated []");
    assert_eq!(stage.charged(), "2");
    stage.work("a", false);
    stage.rest(&["a"]).await;
    assert_eq!(stage.shown("a"), "Requeued 1 gated []");
    assert_eq!(stage.charged(), "0");
    stage.template("a", 2, json!({}));
    stage.rest_later(&["a"], 10_000).await;
    assert_eq!(stage.shown("a"), r#"Admitted 2 open ["m1"]"#);
}

#[tokio::test(start_paused = true)]
async fn a_kind_first_seen_after_the_start_is_watched() {
    let mut stage = stage().await;
    let custom = json!({"spec": {"resource": {"apiVersion": "example.com/v1", "kind": "Sim"}}});
    stage.binding("a", 1, custom);
    stage.settle().await;
    let watched = |request: &Recorded| request.path == "/apis/example.com/v1/sims";
    assert!(stage.api.requests().iter().any(watched));
}

#[tokio::test(start_paused = true)]
async fn a_changed_queue_label_moves_only_a_pending_job() {
    let mut stage = stage().await;
    stage.job("a", 2);
    stage.rest(&["a"]).await;
    let moved = json!({"metadata": {"labels": {"muster.io/queue": "other"}}});
    stage.template("a", 2, moved.clone());
    stage.job("b", 3);
    stage.template("b", 3, moved);
    stage.rest(&["a", "b"]).await;
    assert_eq!(stage.charged(), "2");
    let queue_of = |stage: &Stage, name: &str| {
        let key = JobKey::new("team", name);
        stage
            .core
            .reconciler
            .engine
            .job(&key)
            .unwrap()
            .queue
            .to_string()
    };
    assert_eq!(queue_of(&stage, "a"), "q");
    assert_eq!(queue_of(&stage, "b"), "other");
}

#[tokio::test(start_paused = true)]
async fn the_head_of_a_queue_shows_advice() {
    let mut stage = stage().await;
    for name in ["a", "b", "c"] {
        stage.job(name, 3);
    }
    stage.rest(&["a", "b", "c"]).await;
    let now = stage.now();
    let helps = stage
        .core
        .publishing()
        .advise(&JobKey::new("team", "b"), now);
    let raised = engine::decision::Help::RaiseCapability {
        queue: QueueName::new("q"),
        class: None,
        resource: "cpu".into(),
        to: 6_000,
    };
    assert!(helps.contains(&raised), "{helps:?}");
    // The PodGroup shows it once the PodGroup exists.
    let podgroup = json!({"metadata": {"name": "b", "namespace": "team"}, "spec": {}});
    stage.take(Input::PodGroup(Delta::Upserted(read(podgroup))));
    stage.rest_later(&["b"], 20_000).await;
    let written = stage.api.requests_of("PATCH").into_iter();
    let mut helps = written.map(|request| request.body["status"]["federation"]["helps"].clone());
    let message = "the capability of queue q raised to cpu 6";
    let shown = helps.any(|helps| helps.to_string().contains(message));
    assert!(shown, "{:#?}", last(&stage.api.requests()));
}
