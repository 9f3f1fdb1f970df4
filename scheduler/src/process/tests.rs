//! The process against fake API servers: plans come as records, and answers are written as records.

#![allow(clippy::unwrap_used, clippy::panic)]

use super::*;
use crate::carry_out::tests::{Stage, stage};
use crds::names;
use crds::record::RecordState;
use runtime::testing::{FakeApi, Fault};
use serde_json::{Value, json};

const BINDINGS: &str = "/apis/work.karmada.io/v1alpha2/namespaces/team/resourcebindings";

/// Runs the process with the scheduler of `stage`.
fn process(stage: &Stage) -> tokio_util::sync::DropGuard {
    let client = stage.karmada.client();
    let jobs = json!({"groupVersion": "batch/v1", "resources": [
        {"name": "jobs", "kind": "Job", "namespaced": true, "singularName": "", "verbs": []},
    ]});
    stage.karmada.document("/apis/batch/v1", jobs);
    let cancel = CancellationToken::new();
    let (inputs, receiver) = mpsc::channel(INPUTS);
    let (outcomes, outcome_receiver) = mpsc::channel(INPUTS);
    let registry = Registry::new();
    let process = SchedulerProcess::new(
        &client,
        stage.scheduler.clone(),
        Committer::spawn(
            client.clone(),
            CommitOptions::default(),
            None,
            outcomes,
            &registry,
            cancel.clone(),
        ),
        (Leadership::always(), inputs.clone()),
        (&Health::new(), &registry),
        &cancel,
    );
    inputs.try_send(SchedulerInput::Lead(Lead::new(0))).ok();
    watch_bindings(&client, WatchMetrics::default(), inputs, &cancel);
    tokio::spawn(process.run(receiver, outcome_receiver, cancel.clone()));
    cancel.drop_guard()
}

/// A Job of `pods` pods with 2 GPUs each.
fn put_template(karmada: &FakeApi, pods: u32) {
    let requests = json!({"cpu": "1", "nvidia.com/gpu": "2"});
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"uid": "u"},
        "spec": {"parallelism": pods, "template": {"spec": {
            "priorityClassName": "high",
            "containers": [{"name": "c", "resources": {"requests": requests, "limits": {"nvidia.com/gpu": "2"}}}],
        }}},
    });
    karmada.put("/apis/batch/v1/namespaces/team/jobs/train", job);
}

fn planned(pods: u32, cluster: &str) -> Value {
    json!({
        "templateUID": "u", "attempt": 3, "state": "Planned", "queue": "vision",
        "time": "2026-11-21T00:00:00Z",
        "clusters": [{
            "name": cluster, "pods": [{"role": "main", "count": pods}],
            "charge": {"a100": {"nvidia.com/gpu": (2 * pods).to_string()}},
        }],
    })
}

fn put_binding(karmada: &FakeApi, record: Option<&Value>, gated: bool) {
    let annotations = record.map(|record| json!({names::ADMISSION_ANNOTATION: record.to_string()}));
    let binding = json!({
        "apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding",
        "metadata": {
            "annotations": annotations, "labels": {names::POLICY_PERMANENT_ID: "p"},
            "finalizers": [names::ACCOUNTING_FINALIZER],
        },
        "spec": {
            "resource": {"apiVersion": "batch/v1", "kind": "Job", "namespace": "team", "name": "train", "uid": "u"},
            "schedulerName": "muster", "suspension": {"scheduling": gated}, "replicas": 2,
            "placement": {"clusterAffinity": {"clusterNames": ["m1"]}},
        },
    });
    karmada.put(&format!("{BINDINGS}/train-job"), binding);
}

/// The binding and its record after a while.
async fn after_a_while(karmada: &FakeApi) -> (Value, Option<AdmissionRecord>) {
    tokio::time::sleep(Duration::from_secs(30)).await;
    let value = karmada.get(&format!("{BINDINGS}/train-job")).unwrap();
    let binding: ResourceBinding = serde_json::from_value(value.clone()).unwrap();
    let record = AdmissionRecord::read(binding.metadata.annotations.as_ref()).unwrap();
    (value, record)
}

#[tokio::test(start_paused = true)]
async fn a_plan_is_placed_as_recorded() {
    let stage = stage();
    put_template(&stage.karmada, 2);
    put_binding(&stage.karmada, Some(&planned(2, "m1")), true);
    let _process = process(&stage);
    let (binding, record) = after_a_while(&stage.karmada).await;
    let record = record.unwrap();
    assert_eq!((record.state, record.attempt.0), (RecordState::Admitted, 3));
    assert_eq!(
        binding["spec"]["clusters"],
        json!([{"name": "m1", "replicas": 2}])
    );
    assert_eq!(binding["spec"]["suspension"]["scheduling"], false);
    assert_eq!(
        binding["status"]["schedulerObservedGeneration"],
        binding["metadata"]["generation"]
    );
    assert!(
        stage
            .member
            .requests_of("POST")
            .iter()
            .any(|request| request.path.ends_with("priorityclasses"))
    );
}

#[tokio::test(start_paused = true)]
async fn an_impossible_plan_is_refused_with_the_reason() {
    let stage = stage();
    put_template(&stage.karmada, 5);
    put_binding(&stage.karmada, Some(&planned(5, "m1")), true);
    let _process = process(&stage);
    let (binding, record) = after_a_while(&stage.karmada).await;
    let record = record.unwrap();
    assert_eq!(
        (record.state, record.reason),
        (RecordState::Refused, Some(Reason::PlanRefused))
    );
    assert!(
        record
            .message
            .starts_with("member m1 has too little capacity"),
        "{}",
        record.message
    );
    assert_eq!(binding["spec"]["suspension"]["scheduling"], true);
    assert!(binding["spec"]["clusters"].is_null());
    // The controller decides again, and the next plan is possible.
    let template = "/apis/batch/v1/namespaces/team/jobs/train";
    stage
        .karmada
        .merge(template, &json!({"spec": {"parallelism": 4}}));
    let annotations = json!({names::ADMISSION_ANNOTATION: planned(4, "m1").to_string()});
    stage.karmada.merge(
        &format!("{BINDINGS}/train-job"),
        &json!({"metadata": {"annotations": annotations}}),
    );
    let (_, record) = after_a_while(&stage.karmada).await;
    assert_eq!(record.unwrap().state, RecordState::Admitted);
}

#[tokio::test(start_paused = true)]
async fn an_override_that_the_api_server_refuses_is_noted_in_the_record() {
    let stage = stage();
    put_template(&stage.karmada, 2);
    let template = "/apis/batch/v1/namespaces/team/jobs/train";
    let split = json!({"metadata": {"annotations": {"muster.io/split": "Allowed"}}});
    stage.karmada.merge(template, &split);
    put_binding(&stage.karmada, Some(&planned(2, "m1")), true);
    let overrides = |request: &runtime::testing::Recorded| {
        request.verb != "GET" && request.path.contains("/overridepolicies")
    };
    let denied = Fault::Status(422, "no overrides");
    stage.karmada.fault(usize::MAX, denied, overrides);
    let _process = process(&stage);
    let (binding, record) = after_a_while(&stage.karmada).await;
    let record = record.unwrap();
    assert_eq!(record.state, RecordState::Refused);
    let said = "the API server refused its OverridePolicy (422): no overrides";
    assert_eq!(record.message, said);
    let binding: ResourceBinding = serde_json::from_value(binding).unwrap();
    assert!(record.refuses_placement_of(&binding));
}

#[tokio::test(start_paused = true)]
async fn a_plan_with_a_missing_or_changed_template_is_refused() {
    let stage = stage();
    put_binding(&stage.karmada, Some(&planned(2, "m1")), true);
    let _process = process(&stage);
    let (_, record) = after_a_while(&stage.karmada).await;
    assert_eq!(record.unwrap().message, "its template is gone");
}

#[tokio::test(start_paused = true)]
async fn devices_that_pods_claim_are_part_of_the_plan() {
    let requests = json!([{"name": "r", "exactly": {"deviceClassName": "gpu.x"}}]);
    for (devices, message) in [
        (
            None,
            "ResourceClaimTemplate gpus: it was not found in the job's namespace",
        ),
        (
            Some(json!({"requests": requests})),
            "member m1 has too little capacity",
        ),
        (Some(json!({})), ""),
    ] {
        let stage = stage();
        put_template(&stage.karmada, 2);
        let claims = json!([{"name": "c", "resourceClaimTemplateName": "gpus"}]);
        stage.karmada.merge(
            "/apis/batch/v1/namespaces/team/jobs/train",
            &json!({"spec": {"template": {"spec": {"resourceClaims": claims}}}}),
        );
        if let Some(devices) = devices {
            let template = json!({
                "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate",
                "metadata": {}, "spec": {"spec": {"devices": devices}},
            });
            let path = "/apis/resource.k8s.io/v1/namespaces/team/resourceclaimtemplates/gpus";
            stage.karmada.put(path, template);
        }
        put_binding(&stage.karmada, Some(&planned(2, "m1")), true);
        let _process = process(&stage);
        let (_, record) = after_a_while(&stage.karmada).await;
        let record = record.unwrap();
        let state = match message {
            "" => RecordState::Admitted,
            _ => RecordState::Refused,
        };
        assert_eq!(record.state, state, "{}", record.message);
        assert!(record.message.starts_with(message), "{}", record.message);
    }
}

#[tokio::test(start_paused = true)]
async fn a_binding_without_a_record_is_not_placed_and_reported_once() {
    let stage = stage();
    put_template(&stage.karmada, 2);
    put_binding(&stage.karmada, None, false);
    let _process = process(&stage);
    tokio::time::sleep(Duration::from_secs(200)).await;
    let (binding, record) = after_a_while(&stage.karmada).await;
    assert!(record.is_none() && binding["spec"]["clusters"].is_null());
    let patches = stage.karmada.requests_of("PATCH");
    assert!(
        patches
            .iter()
            .all(|request| !request.path.contains("resourcebindings")),
        "{patches:?}"
    );
    let events = stage
        .karmada
        .requests_of("POST")
        .into_iter()
        .filter(|request| request.path.ends_with("/events"));
    assert_eq!(events.count(), 1);
}
