//! Bindings that a user has written to pass for another one, or for one that an earlier leader has admitted.

use super::*;
use RecordState::{Admitted, Ending, Requeued};

const ELSEWHERE: &str = "/apis/work.karmada.io/v1alpha2/namespaces/elsewhere/resourcebindings/x";

impl Stage {
    /// Creates a binding that an earlier leader wrote: this replica leads once it has seen it.
    pub(super) fn earlier_binding(&mut self, name: &str, cpus: u32, change: Value) {
        self.core.role = Leading::CatchesUp(binding_writer::term::Lead::new(0));
        self.binding(name, cpus, change);
    }

    /// A user of the unmanaged namespace `elsewhere` writes binding `x`, and the watch shows it.
    fn foreign_binding(&mut self, change: Value) {
        let mut binding = json!({
            "apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding",
            "metadata": {
                "name": "x", "namespace": "elsewhere",
                "labels": {names::POLICY_PERMANENT_ID: "policy", names::BINDING_PERMANENT_ID: "a-id"},
                "finalizers": [names::ACCOUNTING_FINALIZER],
            },
            "spec": {
                "resource": {
                    "apiVersion": "batch/v1", "kind": "Job", "namespace": "elsewhere", "name": "x", "uid": "x-uid",
                },
                "schedulerName": "muster", "suspension": {"scheduling": true},
            },
        });
        merge(&mut binding, change);
        self.api.put(ELSEWHERE, binding);
        self.echo_foreign();
    }

    fn echo_foreign(&mut self) {
        let delta = match self.api.get(ELSEWHERE) {
            Some(binding) => Delta::Upserted(read(binding)),
            None => Delta::Gone(object_key("elsewhere", "x")),
        };
        self.take(Input::Binding(delta));
    }

    /// How many Works were deleted.
    fn deletions(&self) -> usize {
        let sent = self.api.requests_of("DELETE").into_iter();
        sent.filter(|request| request.path.contains("/works/"))
            .count()
    }
}

/// Job `a` runs with three CPUs and has a Work.
async fn running() -> Stage {
    let mut stage = stage().await;
    stage.job("a", 3);
    stage.rest(&["a"]).await;
    stage.work("a", true);
    stage.change("a", reported(json!({"active": 3, "ready": 3})));
    stage.rest(&["a"]).await;
    assert_eq!(stage.state("a"), Some(JobState::Running));
    stage
}

#[tokio::test(start_paused = true)]
async fn a_binding_with_the_id_of_another_one_does_not_touch_its_works() {
    let deleted = json!({"metadata": {"deletionTimestamp": "2026-11-21T00:00:00Z"}});
    let evicted = json!({"metadata": {"annotations": {names::ADMISSION_ANNOTATION: json!({
        "templateUID": "x-uid", "attempt": 1, "state": "Ending", "queue": "q",
        "clusters": [], "time": "2026-11-21T00:00:00Z",
    }).to_string()}}});
    for change in [json!({}), deleted, evicted] {
        let mut stage = running().await;
        stage.foreign_binding(change.clone());
        for _ in 0..4 {
            stage.rest_later(&["a"], 20_000).await;
            stage.echo_foreign();
        }
        assert_eq!(stage.deletions(), 0, "{change}");
        assert_eq!(stage.shown("a"), r#"Admitted 1 open ["m1"]"#);
        assert_eq!(stage.charged(), "3", "{change}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_is_followed_to_its_end_beside_a_binding_with_its_id() {
    let mut stage = running().await;
    stage.foreign_binding(json!({}));
    stage.rest(&["a"]).await;
    // That one goes again, and the job is evicted.
    stage.api.remove(ELSEWHERE);
    stage.take(Input::Binding(Delta::Gone(object_key("elsewhere", "x"))));
    stage.template("a", 3, json!({"spec": {"suspend": true}}));
    stage.rest_later(&["a"], 1_000).await;
    assert_eq!(stage.shown("a"), "Ending 1 gated []");
    stage.change("a", forgotten());
    stage.rest_later(&["a"], 10_000).await;
    assert_eq!(stage.charged(), "3", "its Work is there");
    stage.work("a", false);
    stage.rest_later(&["a"], 2_000).await;
    assert_eq!(stage.shown("a"), "Requeued 1 gated []");
    assert_eq!(stage.charged(), "0");
}

/// Without a record the job could not start: `big` requests more than the queue has.
#[tokio::test(start_paused = true)]
async fn a_record_on_a_binding_that_the_leader_sees_for_the_first_time_is_none() {
    let forged = |state: RecordState, adopted: bool| {
        let text = left("big", state, 1, 1)[names::ADMISSION_ANNOTATION].clone();
        let mut record: Value = serde_json::from_str(text.as_str().unwrap()).unwrap();
        record["adopted"] = json!(adopted);
        json!({ names::ADMISSION_ANNOTATION: record.to_string() })
    };
    let placed =
        json!({"suspension": {"scheduling": false}, "clusters": [{"name": "m1", "replicas": 5}]});
    for (managed, state, adopted, spec) in [
        (true, Admitted, false, placed.clone()),
        (true, Admitted, true, placed.clone()),
        (false, Admitted, true, placed.clone()),
        (true, Ending, false, json!({})),
        (true, Requeued, false, json!({})),
    ] {
        let mut stage = stage().await;
        stage.namespace(managed);
        stage.settle().await;
        stage.template("big", 5, json!({}));
        let annotations = forged(state, adopted);
        stage.binding(
            "big",
            5,
            json!({"metadata": {"annotations": annotations}, "spec": spec}),
        );
        stage.rest_later(&["big"], 1_000).await;
        stage.rest_later(&["big"], 20_000).await;
        let shown = stage.shown("big");
        let case = format!("{managed} {state:?} {adopted}: {shown}");
        assert!(shown.ends_with("gated []"), "{case}");
        let record = stage.record("big");
        let is_admitted = record
            .as_ref()
            .is_some_and(|record| record.state == Admitted);
        assert!(
            !is_admitted && !record.is_some_and(|record| record.adopted),
            "{case}"
        );
        assert_eq!(
            stage.core.reconciler.out.metrics.records_changed.get(),
            1,
            "{case}"
        );
    }
}

/// What an earlier leader wrote counts, also if this replica saw it while it followed.
#[tokio::test(start_paused = true)]
async fn a_record_that_was_there_before_the_term_is_one() {
    let mut stage = stage().await;
    stage.template("a", 3, json!({}));
    let placed = json!({
        "metadata": {"annotations": left("a", Admitted, 1, 3)},
        "spec": {"suspension": {"scheduling": false}, "clusters": [{"name": "m1", "replicas": 3}]},
    });
    stage.earlier_binding("a", 3, placed);
    stage.rest(&["a"]).await;
    assert_eq!(stage.shown("a"), r#"Admitted 1 open ["m1"]"#);
    assert_eq!(stage.charged(), "3");
    // A list after a gap of the watch shows it once more.
    stage.echo("a");
    stage.rest(&["a"]).await;
    assert_eq!(stage.core.reconciler.out.metrics.records_changed.get(), 0);
}

/// A record that was written while the namespace was not managed counts for nothing when it is managed again.
#[tokio::test(start_paused = true)]
async fn a_foreign_record_stays_foreign_when_its_namespace_becomes_managed() {
    let mut stage = stage().await;
    stage.namespace(false);
    stage.template("big", 5, json!({}));
    let unclaimed = json!({
        "metadata": {"labels": {names::POLICY_PERMANENT_ID: null}, "finalizers": []},
        "spec": {"suspension": {"scheduling": false}, "clusters": [{"name": "m1", "replicas": 5}]},
    });
    stage.binding("big", 5, unclaimed);
    stage.settle().await;
    // Each write of Muster that removes the record comes too late.
    let fault = runtime::testing::Fault::Status(409, "changed");
    let of_it = |request: &Recorded| request.verb == "PATCH" && request.path == path("big");
    stage.api.fault(8, fault, of_it);
    let annotations = left("big", Admitted, 1, 1);
    stage.change("big", json!({"metadata": {"annotations": annotations}}));
    stage.settle().await;
    stage.marked_namespace(true);
    let claimed = json!({
        "metadata": {"labels": {names::POLICY_PERMANENT_ID: "policy"}},
        "spec": {"clusters": [{"name": "m1", "replicas": 1}]},
    });
    stage.change("big", claimed);
    stage.rest_later(&["big"], 60_000).await;
    stage.rest_later(&["big"], 60_000).await;
    let record = stage.record("big");
    assert!(
        record.is_none_or(|record| record.state != Admitted),
        "{}",
        stage.shown("big")
    );
    assert!(
        stage.shown("big").ends_with("gated []"),
        "{}",
        stage.shown("big")
    );
}
