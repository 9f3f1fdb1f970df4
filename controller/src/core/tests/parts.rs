//! Jobs that are placed in parts: suspended until their Works have the right size.

use super::*;
use binding_writer::overrides;
use runtime::testing::Fault;

const TEMPLATE: &str = "/apis/batch/v1/namespaces/team/jobs/a";
const POLICY: &str = "/apis/policy.karmada.io/v1alpha1/namespaces/team/overridepolicies/muster-a";

fn asks() -> Value {
    json!({"metadata": {"annotations": {"muster.io/split": "Allowed"}}})
}

impl Stage {
    /// Creates a job of `cpus` pods of one CPU each that asks to be split.
    fn split_job(&mut self, cpus: u32) {
        self.template("a", cpus, asks());
        self.put_template(cpus);
        self.binding("a", cpus, json!({}));
    }

    /// Stores the template on the API server.
    fn put_template(&self, cpus: u32) {
        let template = json!({
            "apiVersion": "batch/v1", "kind": "Job",
            "metadata": {"name": "a", "namespace": "team", "uid": "a-uid"},
            "spec": {
                "parallelism": cpus, "completions": cpus,
                "template": {"spec": {"containers": [
                    {"name": "main", "resources": {"requests": {"cpu": "1"}}},
                ]}},
            },
        });
        self.api.put(TEMPLATE, template);
    }

    /// Creates a Work of the job that applies `part`.
    fn part(&mut self, part: Option<&str>) {
        let annotations = part.map(|part| json!({ names::PART_ANNOTATION: part }));
        let work = json!({
            "metadata": work_metadata("a", "a-id"),
            "spec": {"workload": {"manifests": [{"metadata": {"annotations": annotations}}]}},
        });
        let work = in_m1("a", work);
        self.api.put(&work_path("a"), work.clone());
        self.take(Input::Work(Delta::Upserted(ReadWork::of(read(work)))));
    }

    fn dispatching(&self) -> Value {
        let binding = self.api.get(&path("a")).unwrap();
        binding["spec"]["suspension"]["dispatching"].clone()
    }

    fn notes(&self, reason: &str) -> usize {
        let posted = self.api.requests_of("POST");
        posted
            .iter()
            .filter(|request| request.body["reason"] == reason)
            .count()
    }
}

const PART: &str = "attempt 1, part 1 of 1: main=2";

#[tokio::test(start_paused = true)]
async fn a_job_is_dispatched_once_its_work_is_its_part() {
    let mut stage = stage().await;
    stage.split_job(2);
    stage.rest(&["a"]).await;
    assert_eq!(stage.shown("a"), r#"Admitted 1 open ["m1"]"#);
    let policy = stage.api.get(POLICY).expect("written before the placement");
    let rule = &policy["spec"]["overrideRules"][0];
    assert_eq!(rule["targetCluster"]["clusterNames"], json!(["m1"]));
    assert_eq!(stage.dispatching(), true);
    // Karmada rendered this before it saw the override.
    stage.part(None);
    stage.rest(&["a"]).await;
    assert_eq!(stage.dispatching(), true);
    stage.part(Some(PART));
    stage.rest(&["a"]).await;
    assert_eq!(stage.dispatching(), Value::Null);
    assert_eq!(stage.notes("PartsLost"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_lost_override_is_written_again() {
    let mut stage = stage().await;
    stage.split_job(2);
    stage.rest(&["a"]).await;
    stage.part(Some(PART));
    stage.rest(&["a"]).await;
    stage.api.remove(POLICY);
    stage.part(None);
    stage.rest(&["a"]).await;
    assert!(stage.api.get(POLICY).is_some());
    assert_eq!(stage.core.reconciler.out.metrics.parts_repaired.get(), 1);
    assert_eq!(stage.shown("a"), r#"Admitted 1 open ["m1"]"#);
    // A template that has changed by now no longer has these parts.
    stage.part(Some(PART));
    stage.rest(&["a"]).await;
    stage.put_template(3);
    stage.part(None);
    stage.rest(&["a"]).await;
    assert!(
        stage.shown("a").starts_with("Ending 1 gated []"),
        "{}",
        stage.shown("a")
    );
}

#[tokio::test(start_paused = true)]
async fn an_override_goes_with_its_attempt() {
    let mut stage = stage().await;
    stage.split_job(2);
    stage.rest(&["a"]).await;
    stage.part(Some(PART));
    stage.rest(&["a"]).await;
    // Its owner suspends it and no longer allows it to be split.
    stage.template("a", 2, json!({"spec": {"suspend": true}}));
    stage.rest(&["a"]).await;
    assert!(
        stage.shown("a").starts_with("Ending 1"),
        "{}",
        stage.shown("a")
    );
    assert!(stage.api.get(POLICY).is_some(), "its Works are there");
    // The server's record of which manager applied it.
    let applied = json!([{"manager": overrides::MANAGER, "operation": "Apply"}]);
    stage
        .api
        .merge(POLICY, &json!({"metadata": {"managedFields": applied}}));
    stage.work("a", false);
    stage.rest_later(&["a"], 60_000).await;
    assert!(
        stage.shown("a").starts_with("Requeued 1"),
        "{}",
        stage.shown("a")
    );
    assert!(stage.api.get(POLICY).is_none());
}

#[tokio::test(start_paused = true)]
async fn parts_stay_suspended_while_their_namespace_is_deleted() {
    let mut stage = stage().await;
    stage.split_job(2);
    stage.rest(&["a"]).await;
    stage.part(Some(PART));
    stage.rest(&["a"]).await;
    assert_eq!(stage.dispatching(), Value::Null);
    let namespace = json!({"metadata": {
        "name": "team", "labels": {names::MANAGED_LABEL: "true"},
        "deletionTimestamp": "2026-11-21T00:00:00Z",
    }});
    stage.take(Input::Namespace(Delta::Upserted(read(namespace))));
    stage.rest(&["a"]).await;
    assert_eq!(stage.dispatching(), true);
    // Its override goes before its Works: nothing is repaired, and nothing is dispatched.
    stage.api.remove(POLICY);
    stage.part(None);
    stage.rest(&["a"]).await;
    stage.part(Some(PART));
    stage.rest_later(&["a"], 10_000).await;
    assert_eq!(stage.dispatching(), true);
    assert_eq!(stage.notes("PartsLost"), 0);
    assert_eq!(stage.shown("a"), r#"Admitted 1 open ["m1"]"#);
    assert_eq!(stage.charged(), "2");
}

#[tokio::test(start_paused = true)]
async fn a_job_whose_override_is_refused_waits_for_another_placement() {
    let mut stage = stage().await;
    let denied = "admission webhook \"policies.example.com\" denied the request: no overrides";
    let overrides =
        |request: &Recorded| request.verb != "GET" && request.path.contains("/overridepolicies");
    stage
        .api
        .fault(usize::MAX, Fault::Status(422, denied), overrides);
    stage.split_job(2);
    stage.rest(&["a"]).await;
    for _ in 0..6 {
        stage.rest_later(&["a"], 20 * 60_000).await;
    }
    let sent = stage.api.requests();
    assert_eq!(sent.iter().filter(|request| overrides(request)).count(), 1);
    assert_eq!(stage.shown("a"), "Requeued 1 gated []");
    assert_eq!(stage.charged(), "0");
    let key = JobKey::new("team", "a");
    let explained = stage.core.reconciler.engine.explain(&key).unwrap();
    assert_eq!(explained.reason, engine::Reason::PlacementRefused);
    assert_eq!(
        explained.message,
        format!(
            "the API server refused its OverridePolicy (422): {denied}; it is not tried again before its template or \
             the placement of its policy changes"
        )
    );
}
