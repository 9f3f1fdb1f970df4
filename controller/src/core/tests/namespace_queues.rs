//! What a namespace sees of its queues.

use super::*;
use crds::kubernetes::Namespace;
use crds::namespace_queue::{NamespaceQueue, NamespaceQueueStatus};
use std::sync::atomic::Ordering;

const PATH: &str = "/apis/muster.io/v1alpha2/namespaces/team/namespacequeues/q";

impl Stage {
    /// The watch shows the namespace's queue `q`, and more than the pause between two looks has passed.
    async fn shown_queue(&mut self, names: &[&str]) -> NamespaceQueueStatus {
        let object = self.api.get(PATH).expect("the namespace shows its queue");
        let object: NamespaceQueue = read(object);
        self.take(Input::NamespaceQueue(Delta::Upserted(object)));
        self.rest_later(names, 6_000).await;
        let status = self.api.get(&format!("{PATH}/status"));
        let status = status.or_else(|| self.api.get(PATH)).unwrap()["status"].clone();
        serde_json::from_value(status).unwrap()
    }
}

#[tokio::test(start_paused = true)]
async fn a_namespace_sees_what_it_uses_and_may_use_of_its_queue() {
    let mut stage = stage().await;
    stage.job("a", 3);
    stage.job("b", 2);
    stage.rest_later(&["a", "b"], 6_000).await;
    let shown = stage.shown_queue(&["a", "b"]).await;
    let cpu = &shown.resources[0];
    let text = |amount: &Option<crds::loose::QuantityText>| amount.clone().map(|text| text.0);
    assert_eq!(cpu.name, "cpu");
    assert_eq!(
        (&*cpu.used.0, &*cpu.pending.0, &*cpu.queue_used.0),
        ("3", "2", "3")
    );
    assert_eq!(text(&cpu.queue_limit).as_deref(), Some("4"));
    assert_eq!(text(&cpu.free).as_deref(), Some("1"));
    assert_eq!((shown.counts.admitted, shown.counts.pending), (1, 1));
    assert_eq!((shown.queue_pending, shown.pending_ahead), (1, Some(0)));
    let open = &shown.conditions[0];
    assert_eq!((&*open.type_, &*open.status), ("Open", "True"));
    assert_eq!(shown.last_pending_start, None, "nothing is expected yet");
}

/// As the job's PodGroup shows it, until that time has come.
#[tokio::test(start_paused = true)]
async fn a_queue_shows_when_its_last_pending_job_is_expected_to_start() {
    let mut stage = stage().await;
    stage.job("a", 3);
    stage.job("b", 2);
    stage.rest_later(&["a", "b"], 6_000).await;
    let now = crds::record::timestamp(stage.now());
    for (minutes, is_shown) in [(20, true), (-20, false)] {
        let latest = jiff::Timestamp::from_second(now.as_second() + minutes * 60).unwrap();
        let start = json!({"latest": latest.to_string(), "basis": "1 job ahead"});
        let podgroup = json!({
            "metadata": {"name": "b", "namespace": "team"},
            "spec": {}, "status": {"federation": {"start": start}},
        });
        stage.take(Input::PodGroup(Delta::Upserted(read(podgroup))));
        stage.shown_queue(&["a", "b"]).await;
        // A status is written once a second at most.
        tokio::time::sleep(Duration::from_secs(2)).await;
        let shown = stage.shown_queue(&["a", "b"]).await.last_pending_start;
        let expected = is_shown.then_some(latest);
        assert_eq!(shown.map(|start| start.0), expected);
    }
}

/// No job asks: the namespace has none.
#[tokio::test(start_paused = true)]
async fn a_right_that_changes_is_shown_also_where_no_job_needs_it() {
    let mut stage = stage().await;
    let granted = permits::grants(&stage.api);
    let closed = json!({"tenancy": "Closed"});
    stage.policy("q", closed);
    let mut object = read::<Namespace>(json!({"metadata": {
        "name": "team", "labels": {names::MANAGED_LABEL: "true"},
        "annotations": {names::DEFAULT_QUEUE_KEY: "q"},
    }}));
    object.metadata.resource_version = Some("9".to_owned());
    stage.take(Input::Namespace(Delta::Upserted(object)));
    stage.rest_later(&[], 6_000).await;
    for (right, open) in [(false, "False"), (true, "True"), (false, "False")] {
        granted.store(right, Ordering::SeqCst);
        let mut shown = String::new();
        for _ in 0..5 {
            // A yes is asked again after a minute.
            tokio::time::sleep(Duration::from_secs(61)).await;
            stage.rest_later(&[], 61_000).await;
            shown = stage.shown_queue(&[]).await.conditions[0].status.clone();
            if shown == open {
                break;
            }
        }
        assert_eq!(shown, open, "{right}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_namespace_that_is_not_managed_any_more_shows_no_queue() {
    let mut stage = stage().await;
    stage.job("a", 3);
    stage.rest_later(&["a"], 6_000).await;
    stage.shown_queue(&["a"]).await;
    let mut object = stage.api.get(PATH).unwrap();
    object["metadata"]["managedFields"] =
        json!([{"manager": binding_writer::overrides::MANAGER, "operation": "Apply"}]);
    stage.api.put(PATH, object);
    stage.namespace(false);
    stage.rest_later(&["a"], 6_000).await;
    assert_eq!(stage.api.get(PATH), None);
}

#[tokio::test(start_paused = true)]
async fn a_new_leader_removes_what_a_namespace_shows_of_a_queue_that_is_gone() {
    let api = FakeApi::new();
    let path = PATH.replace("/q", "/gone");
    let managed = json!([{"manager": binding_writer::overrides::MANAGER, "operation": "Apply"}]);
    let metadata = json!({"name": "gone", "namespace": "team", "managedFields": managed});
    let object = json!({"metadata": metadata, "spec": {}});
    api.put(&path, object.clone());
    let mut stage = Stage::bare(&api, true).await;
    stage.take(Input::NamespaceQueue(Delta::Upserted(read(object))));
    stage.settle_unready().await;
    stage.list_all();
    stage.settle().await;
    stage.rest_later(&[], 6_000).await;
    assert_eq!(stage.api.get(&path), None);
}
