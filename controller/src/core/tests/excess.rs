//! Jobs whose Works request more than was admitted.

use super::*;
use engine::facts::{PodFact, PodPhase};

const POLICY: &str = "raise";

impl Stage {
    /// Puts a Work of job `a` with `pods` pods of `cpus` CPUs; with the override `raise` if `overridden`.
    fn renders(&mut self, pods: u32, cpus: &str, overridden: bool) {
        let applied = json!([{
            "policyName": POLICY,
            "overriders": {"plaintext": [{"path": "/spec/parallelism", "operator": "replace", "value": pods}]},
        }]);
        let annotations =
            overridden.then(|| json!({ names::APPLIED_CLUSTER_OVERRIDES: applied.to_string() }));
        let manifest = json!({
            "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "a", "namespace": "team"},
            "spec": {"parallelism": pods, "template": {"spec": {"containers": [
                {"name": "main", "resources": {"requests": {"cpu": cpus}}},
            ]}}},
        });
        let mut metadata = work_metadata("a", "a-id");
        if let Some(annotations) = annotations {
            merge(&mut metadata, json!({ "annotations": annotations }));
        }
        let work = json!({
            "metadata": metadata, "spec": {"workload": {"manifests": [manifest]}},
        });
        let work = in_m1("a", work);
        self.api.put(&work_path("a"), work);
        let work = read(self.api.get(&work_path("a")).unwrap());
        self.take(Input::Work(Delta::Upserted(ReadWork::of(work))));
    }

    fn policy_is(&mut self, generation: Option<i64>) {
        let delta = match generation {
            Some(generation) => Delta::Upserted(read(json!({
                "metadata": {"name": POLICY, "generation": generation},
            }))),
            None => Delta::Gone(ObjectKey {
                namespace: None,
                name: POLICY.to_owned(),
            }),
        };
        self.take(Input::ClusterOverride(delta));
    }

    /// The member shows pods of job `a`.
    fn shows_pods(&mut self, pods: u32, cpus: &str) {
        for index in 0..10 {
            let uid = format!("pod-{index}");
            let fact = match index < pods {
                true => Event::PodUpserted(PodFact {
                    node: None,
                    request: Resources::parse([("cpu", cpus), ("pods", "1")]).unwrap(),
                    ..pod(&uid, PodPhase::Running, None)
                }),
                false => Event::PodGone(ClusterName::new("m1"), engine::Uid::new(uid)),
            };
            self.member_shows(fact);
        }
    }

    fn is_suspended(&self) -> bool {
        self.get("a")["spec"]["suspension"]["dispatching"] == true
    }

    fn says(&self) -> String {
        let key = JobKey::new("team", "a");
        let why = self.core.reconciler.engine.explain(&key).unwrap();
        format!("{}: {}", why.reason, why.message)
    }
}

/// A queue of 4 CPUs; job `a` uses 2 of them, in two running pods.
async fn two_of_four() -> Stage {
    let mut stage = stage().await;
    stage.policy_is(Some(1));
    stage.job("a", 2);
    stage.rest(&["a"]).await;
    stage.renders(2, "1", false);
    stage.change("a", reported(json!({"active": 2, "ready": 2})));
    stage.rest(&["a"]).await;
    assert_eq!(stage.charged(), "2");
    assert_eq!(stage.shown("a"), r#"Admitted 1 open ["m1"]"#);
    stage
}

#[tokio::test(start_paused = true)]
async fn an_override_excess_is_charged_at_once_and_evicted_after_the_grace() {
    let mut stage = two_of_four().await;
    stage.renders(4, "1", true);
    stage.rest(&["a"]).await;
    assert_eq!(stage.charged(), "4", "at once");
    assert!(!stage.is_suspended(), "not believed yet");
    stage.job("b", 1);
    stage.rest(&["a", "b"]).await;
    assert_eq!(stage.shown("b"), "no record, gated []");

    stage.rest_later(&["a", "b"], 2_500).await;
    assert!(stage.is_suspended());
    let since = stage.record("a").unwrap().exceeds_since;
    assert!(since.is_some());
    // Karmada's detector removes the suspension.
    stage.change("a", json!({"spec": {"suspension": {"dispatching": null}}}));
    stage.rest(&["a"]).await;
    assert!(stage.is_suspended());
    assert_eq!(stage.record("a").unwrap().exceeds_since, since);

    stage.rest_later(&["a", "b"], 60_000).await;
    assert_eq!(stage.shown("a"), "Ending 1 gated []");
    assert!(!stage.is_suspended());
    assert_eq!(stage.charged(), "4", "its Works are there");
    stage.work("a", false);
    stage.change("a", forgotten());
    stage.rest_later(&["a", "b"], 6_000).await;
    assert_eq!(stage.shown("a"), "Requeued 1 gated []");
    assert_eq!(stage.shown("b"), r#"Admitted 1 open ["m1"]"#);
    assert_eq!(stage.charged(), "1");
    let reason = stage.says();
    assert!(
        reason.starts_with(
            "OverrideExceeds: ClusterOverridePolicy raise makes its Works request more"
        ),
        "{reason}"
    );
    assert!(reason.contains("cpu 2, pods 2 more in m1"), "{reason}");

    // The job waits until the policy changes, under any leader and for any time.
    stage.rest_later(&["a"], 600_000).await;
    assert_eq!(stage.shown("a"), "Requeued 1 gated []");
    stage.policy_is(Some(2));
    stage.rest(&["a"]).await;
    assert_eq!(stage.shown("a"), r#"Admitted 2 open ["m1"]"#);
}

#[tokio::test(start_paused = true)]
async fn the_excess_is_freed_when_the_override_and_its_pods_are_gone() {
    let mut stage = two_of_four().await;
    stage.shows_pods(2, "1");
    stage.renders(2, "2", true);
    stage.rest_later(&["a"], 0).await;
    stage.shows_pods(2, "2");
    stage.rest_later(&["a"], 3_000).await;
    assert_eq!(stage.charged(), "4");
    assert!(stage.is_suspended());

    stage.renders(2, "1", false);
    stage.rest(&["a"]).await;
    assert!(!stage.is_suspended(), "the members have to get it");
    assert_eq!(stage.record("a").unwrap().exceeds_since, None);
    stage.rest_later(&["a"], 20_000).await;
    assert_eq!(stage.charged(), "4", "its pods are there");
    stage.shows_pods(2, "1");
    stage.rest_later(&["a"], 1_500).await;
    assert_eq!(stage.charged(), "4", "for a while");
    stage.rest_later(&["a"], 6_000).await;
    assert_eq!(stage.charged(), "2");
    assert_eq!(stage.shown("a"), r#"Admitted 1 open ["m1"]"#);
    // The next job has a grace period of its own.
    stage.rest_later(&["a"], 100_000).await;
    stage.renders(3, "1", true);
    stage.rest_later(&["a"], 3_000).await;
    assert_eq!(stage.shown("a"), r#"Admitted 1 open ["m1"]"#);
    assert_eq!(stage.charged(), "3");
}

#[tokio::test(start_paused = true)]
async fn an_excess_without_an_override_is_charged_and_runs_on() {
    let mut stage = two_of_four().await;
    stage.renders(3, "1", false);
    stage.rest_later(&["a"], 3_000).await;
    stage.rest_later(&["a"], 600_000).await;
    assert_eq!(stage.charged(), "3");
    assert!(!stage.is_suspended());
    assert_eq!(stage.shown("a"), r#"Admitted 1 open ["m1"]"#);
    // An override that changes other fields does not count.
    stage.renders(2, "1", true);
    stage.rest_later(&["a"], 0).await;
    stage.rest_later(&["a"], 6_000).await;
    assert_eq!(stage.charged(), "2");
    stage.rest_later(&["a"], 600_000).await;
    assert_eq!(stage.shown("a"), r#"Admitted 1 open ["m1"]"#);
    assert!(!stage.is_suspended());
}
