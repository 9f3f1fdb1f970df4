#![allow(clippy::unwrap_used, clippy::expect_used)]

mod bodies;
mod flow;
mod status;

use super::*;
use crds::karmada::{ResourceBinding, TargetCluster};
use crds::record::{AdmissionRecord, Parts, RecordState};
use facts::{Attempt, QueueName, Reason, Uid};
use runtime::testing::{FakeApi, Fault, Recorded};
use serde_json::{Value, json};
use tokio_util::sync::DropGuard;

const PLACEMENT: &str = r#"{"clusterAffinity":{"clusterNames":["m1","m2"]}}"#;

fn path(name: &str) -> String {
    format!("/apis/work.karmada.io/v1alpha2/namespaces/ns/resourcebindings/{name}")
}

fn record(attempt: u32, state: RecordState) -> AdmissionRecord {
    AdmissionRecord {
        version: crds::record::VERSION,
        template_uid: Uid::new("job-uid"),
        attempt: Attempt(attempt),
        state,
        queue: QueueName::new("team-a"),
        queues_above: Vec::new(),
        requests: Default::default(),
        leaving: Vec::new(),
        clusters: Vec::new(),
        parts: None,
        whole: false,
        avoided_nodes: Vec::new(),
        resizable: false,
        address: None,
        hosts: Default::default(),
        leading: None,
        retries: 0,
        max_retry: None,
        restart_phase: None,
        failed_action: None,
        completing_tasks: Vec::new(),
        time: "2026-11-21T04:00:00Z".parse().unwrap(),
        expected_duration_ms: None,
        reason: (state == RecordState::Ending).then_some(Reason::Evicted),
        message: String::new(),
        for_job: None,
        evicted_at: None,
        not_before: None,
        template_generation: None,
        refused_placement: None,
        infrastructure_failures: 0,
        own_failures: 0,
        adopted: false,
        exceeds_since: None,
        overrides: Vec::new(),
        unknown: Default::default(),
    }
}

/// A binding as the webhook leaves it.
fn gated() -> Value {
    json!({
        "apiVersion": "work.karmada.io/v1alpha2",
        "kind": "ResourceBinding",
        "metadata": {"finalizers": ["karmada.io/binding-controller", "muster.io/accounting"]},
        "spec": {
            "resource": {"apiVersion": "batch/v1", "kind": "Job", "name": "a", "uid": "job-uid"},
            "placement": serde_json::from_str::<Value>(PLACEMENT).unwrap(),
            "suspension": {"scheduling": true, "dispatching": true},
            "schedulerName": "muster",
        },
    })
}

/// A placed binding with the record of its first attempt.
fn placed() -> Value {
    let mut binding = gated();
    let record = record(1, RecordState::Admitted).to_annotation().unwrap();
    binding["metadata"]["annotations"] = json!({"muster.io/admission": record, "theirs": "x"});
    binding["spec"]["clusters"] = json!([{"name": "m1"}]);
    binding["spec"]["suspension"] = json!({"scheduling": false});
    binding
}

fn slim(object: Value) -> Arc<ResourceBinding> {
    Arc::new(serde_json::from_value(object).unwrap())
}

fn place(attempt: u32) -> Write {
    Write::Place {
        record: record(attempt, RecordState::Admitted),
        clusters: vec![TargetCluster {
            name: "m1".to_owned(),
            replicas: None,
        }],
        affinity_name: None,
    }
}

struct Bench {
    api: FakeApi,
    committer: Committer,
    outcomes: mpsc::Receiver<CommitOutcome>,
    _cancel: DropGuard,
}

fn bench() -> Bench {
    bench_of(&FakeApi::new(), None)
}

fn bench_of(api: &FakeApi, term: Option<Term>) -> Bench {
    let (sender, outcomes) = mpsc::channel(4);
    let cancel = CancellationToken::new();
    let committer = Committer::spawn(
        api.client(),
        CommitOptions::default(),
        term,
        sender,
        &Registry::new(),
        cancel.clone(),
    );
    Bench {
        api: api.clone(),
        committer,
        outcomes,
        _cancel: cancel.drop_guard(),
    }
}

impl Bench {
    fn put(&self, name: &str, object: Value) -> Arc<ResourceBinding> {
        slim(self.api.put(&path(name), object))
    }

    async fn write(&mut self, binding: &Arc<ResourceBinding>, write: Write) -> CommitOutcome {
        self.committer.submit(vec![Intent {
            binding: binding.clone(),
            write,
        }]);
        self.outcomes.recv().await.unwrap()
    }

    async fn settle(&self) {
        tokio::time::sleep(Duration::from_secs(30)).await;
    }
}

fn patches_whole(request: &Recorded) -> bool {
    request.verb == "PATCH" && !request.path.ends_with("/status")
}

fn patches_status(request: &Recorded) -> bool {
    request.verb == "PATCH" && request.path.ends_with("/status")
}

fn in_parts(parts: Parts) -> AdmissionRecord {
    AdmissionRecord {
        parts: Some(parts),
        ..record(1, RecordState::Admitted)
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_in_parts_is_dispatched_by_a_write_of_its_own() {
    let mut bench = bench();
    let mut open = gated();
    open["spec"]["suspension"] = json!({"scheduling": true});
    let binding = bench.put("a", open);
    let place = Write::Place {
        record: in_parts(Parts::Held),
        clusters: Vec::new(),
        affinity_name: None,
    };
    bench.write(&binding, place).await.result.unwrap();
    let suspension =
        |bench: &Bench| bench.api.get(&path("a")).unwrap()["spec"]["suspension"].clone();
    let held = json!({"scheduling": false, "dispatching": true});
    assert_eq!(suspension(&bench), held);
    let placed = slim(bench.api.get(&path("a")).unwrap());
    let record = in_parts(Parts::Dispatched);
    let dispatch = Write::Dispatch { record };
    bench.write(&placed, dispatch).await.result.unwrap();
    assert_eq!(suspension(&bench), json!({"scheduling": false}));
}

#[tokio::test(start_paused = true)]
async fn an_eviction_before_dispatching_removes_the_suspension() {
    let mut bench = bench();
    let mut placed = placed();
    let held = in_parts(Parts::Held).to_annotation().unwrap();
    placed["metadata"]["annotations"]["muster.io/admission"] = json!(held);
    placed["spec"]["suspension"] = json!({"scheduling": false, "dispatching": true});
    let binding = bench.put("a", placed);
    let record = AdmissionRecord {
        state: RecordState::Ending,
        ..in_parts(Parts::Held)
    };
    let back = Write::Evict { record };
    bench.write(&binding, back).await.result.unwrap();
    let after = bench.api.get(&path("a")).unwrap();
    assert_eq!(after["spec"]["suspension"], json!({"scheduling": true}));
    assert_eq!(after["spec"]["clusters"], json!([]));
}

#[tokio::test(start_paused = true)]
async fn a_suspension_of_another_manager_stays() {
    let mut bench = bench();
    let mut placed = placed();
    placed["spec"]["suspension"] = json!({"scheduling": false, "dispatching": true});
    let binding = bench.put("a", placed);
    let record = record(1, RecordState::Ending);
    bench
        .write(&binding, Write::Evict { record })
        .await
        .result
        .unwrap();
    let after = bench.api.get(&path("a")).unwrap();
    assert_eq!(
        after["spec"]["suspension"],
        json!({"scheduling": true, "dispatching": true})
    );
}
