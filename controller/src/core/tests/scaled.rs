//! Jobs that are scaled to zero and back, and Deployments whose surge becomes replicas.

use super::*;
use engine::facts::PodPhase;

fn kind_of(api_version: &str, kind: &str) -> TemplateKind {
    TemplateKind {
        api_version: api_version.into(),
        kind: kind.into(),
    }
}

impl Stage {
    /// The template of job `a`, of any kind, with this spec; a pod requests one CPU.
    fn scaled(&mut self, kind: &TemplateKind, version: &str, spec: Value) {
        let pods = json!({"spec": {"containers": [
            {"name": "main", "resources": {"requests": {"cpu": "1"}}},
        ]}});
        let mut template = json!({
            "metadata": {
                "name": "a", "namespace": "team", "uid": "a-uid", "resourceVersion": version,
                "creationTimestamp": "2026-01-01T00:00:00Z", "labels": {"muster.io/queue": "q"},
            },
            "spec": {"template": pods, "leaderWorkerTemplate": {"size": 1, "workerTemplate": pods}},
        });
        merge(&mut template["spec"], spec);
        let template = Template::read(kind, read(template));
        self.take(Input::Template(kind.clone(), Delta::Upserted(template)));
    }

    /// Submits job `a` of a kind, with `replicas` as Karmada counts them.
    async fn submitted(&mut self, kind: &TemplateKind, replicas: u32, spec: Value) {
        self.scaled(kind, "1", spec);
        let resource = json!({"apiVersion": kind.api_version, "kind": kind.kind});
        let spec = json!({"resource": resource, "replicas": replicas});
        self.binding("a", 1, json!({ "spec": spec }));
        self.rest(&["a"]).await;
        assert_eq!(
            self.shown("a"),
            r#"Admitted 1 open ["m1"]"#,
            "{}: {}",
            kind.kind,
            self.said()
        );
    }

    fn said(&self) -> String {
        let explanation = self
            .core
            .reconciler
            .engine
            .explain(&JobKey::new("team", "a"));
        let explanation = explanation.unwrap();
        format!("{}: {}", explanation.reason, explanation.message)
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_that_is_scaled_to_zero_holds_nothing_and_is_queued_again_at_its_size() {
    let replicas = |count: u32| json!({ "replicas": count });
    let parallelism = |count: u32| json!({"parallelism": count, "completions": 8});
    for (api_version, kind, spec) in [
        ("apps/v1", "StatefulSet", replicas as fn(u32) -> Value),
        ("apps/v1", "ReplicaSet", replicas),
        (
            "apps/v1",
            "Deployment",
            |count| json!({"replicas": count, "strategy": {"type": "Recreate"}}),
        ),
        ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", replicas),
        ("batch/v1", "Job", parallelism),
    ] {
        let of = kind_of(api_version, kind);
        let mut stage = stage().await;
        stage.submitted(&of, 4, spec(4)).await;
        assert_eq!(stage.charged(), "4", "{kind}");
        stage.work("a", true);
        stage.member_shows(Event::PodUpserted(pod("p", PodPhase::Running, None)));

        stage.scaled(&of, "2", spec(0));
        stage.change("a", json!({"spec": {"replicas": 0}}));
        stage.rest(&["a"]).await;
        assert_eq!(stage.shown("a"), "Ending 1 gated []", "{kind}");
        // Its quota is free when its Works and pods are gone, and not before.
        assert_eq!(stage.charged(), "4", "{kind}");
        stage.work("a", false);
        stage.change("a", forgotten());
        stage.rest_later(&["a"], 6_000).await;
        assert_eq!(stage.charged(), "4", "{kind}");
        let gone = Event::PodGone(ClusterName::new("m1"), engine::Uid::new("p"));
        stage.member_shows(gone);
        stage.rest_later(&["a"], 6_000).await;
        assert_eq!(stage.charged(), "0", "{kind}");
        assert_eq!(stage.shown("a"), "Requeued 1 gated []", "{kind}");
        assert_eq!(
            stage.said(),
            "ScaledToZero: its template asks for no pods; it is queued at its size once it asks for some"
        );

        // No back-off: it has not failed.
        stage.scaled(&of, "3", spec(2));
        stage.change("a", json!({"spec": {"replicas": 2}}));
        stage.rest(&["a"]).await;
        assert_eq!(
            stage.shown("a"),
            r#"Admitted 2 open ["m1"]"#,
            "{kind}: {}",
            stage.said()
        );
        assert_eq!(stage.charged(), "2", "{kind}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_that_is_submitted_without_pods_waits_unless_a_member_completes_it() {
    for (spec, shown) in [
        (
            json!({"parallelism": 0, "completions": 4}),
            "no record, gated []",
        ),
        (
            json!({"parallelism": 4, "completions": 0}),
            r#"Admitted 1 open ["m1"]"#,
        ),
    ] {
        let mut stage = stage().await;
        stage.scaled(&job_kind(), "1", spec);
        stage.binding("a", 0, json!({}));
        stage.rest(&["a"]).await;
        assert_eq!(stage.shown("a"), shown);
    }
}

/// A Deployment of two replicas and two more in updates.
async fn surging() -> (Stage, TemplateKind) {
    let of = kind_of("apps/v1", "Deployment");
    let mut stage = stage().await;
    stage.submitted(&of, 2, deployment(2, 2)).await;
    assert_eq!(
        (stage.charged().as_str(), stage.placed_replicas()),
        ("4", 2)
    );
    (stage, of)
}

fn deployment(replicas: u32, surge: u32) -> Value {
    json!({"replicas": replicas, "strategy": {"rollingUpdate": {"maxSurge": surge}}})
}

impl Stage {
    fn placed_replicas(&self) -> i64 {
        let placed = self.get("a")["spec"]["clusters"][0]["replicas"].as_i64();
        placed.unwrap_or_default()
    }
}

#[tokio::test(start_paused = true)]
async fn replicas_that_take_the_place_of_a_surge_run_within_the_charge() {
    for (replicas, surge, placed) in [(4, 0, 4), (3, 1, 3), (1, 3, 1)] {
        let (mut stage, of) = surging().await;
        // The template comes first, or the binding does.
        for template_first in [true, false] {
            if template_first {
                stage.scaled(&of, "2", deployment(replicas, surge));
                stage.rest(&["a"]).await;
                assert_eq!(
                    stage.placed_replicas(),
                    2,
                    "the binding has the earlier replicas"
                );
                stage.change("a", json!({"spec": {"replicas": replicas}}));
            } else {
                stage.change("a", json!({"spec": {"replicas": 2}}));
                stage.rest(&["a"]).await;
                assert_eq!(
                    stage.placed_replicas(),
                    placed,
                    "the template has the later replicas"
                );
                stage.scaled(&of, "3", deployment(2, 2));
            }
            stage.rest(&["a"]).await;
            let wanted = if template_first { placed } else { 2 };
            assert_eq!(stage.placed_replicas(), wanted, "{replicas} + {surge}");
            assert_eq!(stage.charged(), "4");
            assert_eq!(stage.shown("a"), r#"Admitted 1 open ["m1"]"#);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn replicas_beyond_the_charge_wait_and_what_runs_stays() {
    let (mut stage, of) = surging().await;
    stage.scaled(&of, "2", deployment(6, 0));
    stage.change("a", json!({"spec": {"replicas": 6}}));
    stage.rest(&["a"]).await;
    assert_eq!(
        (stage.charged().as_str(), stage.placed_replicas()),
        ("4", 2)
    );
    assert!(stage.said().starts_with("GrowthHeld"), "{}", stage.said());
}
