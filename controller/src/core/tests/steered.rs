//! What users and operators do with plain labels and policies: hold, priority, stopped queues.

use super::*;
use crds::capacity_policy::CapacityPolicy;

impl Stage {
    fn said_of(&self, name: &str) -> String {
        let key = JobKey::new("team", name);
        let explained = self.core.reconciler.engine.explain(&key).unwrap();
        format!("{}: {}", explained.reason, explained.message)
    }

    fn label(&mut self, name: &str, cpus: u32, label: &str, value: &str) {
        self.template(name, cpus, json!({"metadata": {"labels": {label: value}}}));
    }

    fn stop_policy(&mut self, stop: &str) {
        let policy: CapacityPolicy = read(json!({
            "apiVersion": "muster.io/v1alpha2", "kind": "CapacityPolicy",
            "metadata": {"name": "q"}, "spec": {"stopPolicy": stop},
        }));
        self.take(Input::Policy(Delta::Upserted(policy)));
    }

    fn class(&mut self, name: &str, value: i32) {
        let class = json!({"metadata": {"name": name}, "value": value});
        self.take(Input::PriorityClass(Delta::Upserted(read(class))));
    }

    fn position(&self, name: &str) -> Option<usize> {
        let key = JobKey::new("team", name);
        let explained = self.core.reconciler.engine.explain(&key).unwrap();
        explained.position
    }
}

const RUNS: &str = r#"Admitted 1 open ["m1"]"#;

#[tokio::test(start_paused = true)]
async fn a_held_job_is_not_admitted_before_it_is_released() {
    let mut stage = stage().await;
    stage.label("a", 2, names::HOLD_LABEL, "true");
    stage.binding("a", 2, json!({}));
    stage.rest(&["a"]).await;
    assert_eq!(stage.shown("a"), "no record, gated []");
    insta::assert_snapshot!(stage.said_of("a"), @"OnHold: on hold by its label muster.io/hold; to release it: kubectl label -n team job.batch a muster.io/hold-");
    stage.label("a", 2, names::HOLD_LABEL, "maybe");
    stage.rest(&["a"]).await;
    assert!(stage.said_of("a").starts_with("InvalidTemplate"));
    stage.template("a", 2, json!({}));
    stage.rest(&["a"]).await;
    assert_eq!(stage.shown("a"), RUNS);
    // A running job continues.
    stage.label("a", 2, names::HOLD_LABEL, "true");
    stage.rest_later(&["a"], 60_000).await;
    assert_eq!(stage.shown("a"), RUNS);
}

#[tokio::test(start_paused = true)]
async fn a_raised_job_passes_earlier_ones_at_once() {
    let mut stage = stage().await;
    stage.class("high", 9);
    stage.job("a", 4);
    stage.rest(&["a"]).await;
    stage.job("b", 4);
    stage.job("c", 4);
    stage.rest(&["a", "b", "c"]).await;
    assert_eq!(
        (stage.position("b"), stage.position("c")),
        (Some(1), Some(2))
    );
    stage.label("c", 4, names::PRIORITY_CLASS_LABEL, "high");
    stage.rest(&["a", "b", "c"]).await;
    assert_eq!(
        (stage.position("b"), stage.position("c")),
        (Some(2), Some(1))
    );
    stage.label("c", 4, names::PRIORITY_CLASS_LABEL, "unknown");
    stage.rest(&["a", "b", "c"]).await;
    assert!(stage.said_of("c").starts_with("PriorityClassNotFound"));
}

#[tokio::test(start_paused = true)]
async fn a_stopped_queue_admits_nothing_and_a_drained_one_evicts() {
    let mut stage = stage().await;
    stage.job("a", 2);
    stage.rest(&["a"]).await;
    stage.work("a", true);
    stage.stop_policy("Hold");
    stage.job("b", 2);
    stage.rest(&["a", "b"]).await;
    assert_eq!(stage.shown("a"), RUNS);
    assert_eq!(stage.shown("b"), "no record, gated []");
    assert!(stage.said_of("b").starts_with("QueueStopped"));

    stage.stop_policy("HoldAndDrain");
    stage.rest(&["a", "b"]).await;
    assert_eq!(stage.shown("a"), "Ending 1 gated []");
    assert_eq!(stage.charged(), "2", "until its Works are gone");
    stage.work("a", false);
    stage.rest_later(&["a", "b"], 10_000).await;
    assert_eq!(stage.shown("a"), "Requeued 1 gated []");
    assert_eq!(stage.charged(), "0");
    assert!(stage.said_of("a").starts_with("QueueStopped"));
    let record = stage.record("a").unwrap();
    assert_eq!(record.reason, Some(engine::Reason::QueueStopped));

    stage.stop_policy("None");
    stage.rest(&["a", "b"]).await;
    assert_eq!(stage.shown("a"), r#"Admitted 2 open ["m1"]"#);
    assert_eq!(stage.shown("b"), RUNS);
}
