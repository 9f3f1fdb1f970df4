#![allow(clippy::unwrap_used)]
use super::*;
use runtime::testing::FakeApi;

const POLICY: &str = "/apis/muster.io/v1alpha2/capacitypolicies/vision";
const QUEUE: &str = "/apis/scheduling.volcano.sh/v1beta1/queues/vision";

async fn edited(api: &FakeApi, fields: &[&str], dry_run: DryRun) -> String {
    let fields: Vec<QueueField> = fields.iter().map(|field| field.parse().unwrap()).collect();
    let write = WriteArgs {
        dry_run,
        ..WriteArgs::default()
    };
    let done = set("vision", &fields, &write, &api.client()).await;
    done.unwrap_or_else(|error| format!("error: {error:#}\n"))
}

fn create_args() -> CreateQueue {
    CreateQueue {
        name: "vision".to_owned(),
        parent: Some("lab".to_owned()),
        gpus: Some(32),
        max_gpus: Some(96),
        guarantee_gpus: None,
        class: None,
        device: "nvidia.com/gpu".to_owned(),
        write: WriteArgs::default(),
    }
}

#[tokio::test]
async fn a_queue_is_created_by_its_policy_once() {
    let api = FakeApi::new();
    let line = create(&create_args(), &api.client()).await.unwrap();
    assert_eq!(line, "capacitypolicy.muster.io/vision created\n");
    insta::assert_snapshot!(api.get(POLICY).unwrap()["spec"], @r#"{"parent":"lab","resources":[{"capability":"96","deserved":"32","name":"nvidia.com/gpu"}]}"#);
    // Muster makes its Queue.
    api.put(QUEUE, json!({"spec": {}}));
    let error = create(&create_args(), &api.client()).await.unwrap_err();
    assert!(error.to_string().contains("exists already"), "{error}");
}

#[tokio::test]
async fn a_dry_run_on_the_client_asks_no_server() {
    let api = FakeApi::new();
    let mut args = create_args();
    args.write.dry_run = DryRun::Client;
    args.class = Some("h100".to_owned());
    args.gpus = None;
    args.guarantee_gpus = Some(8);
    let line = create(&args, &api.client()).await.unwrap();
    assert_eq!(line, "capacitypolicy.muster.io/vision created (dry run)\n");
    assert!(api.requests().is_empty());
    insta::assert_snapshot!(spec(&args), @r#"{"parent":"lab","pools":[{"class":"h100","name":"h100","resources":[{"capability":"96","name":"nvidia.com/gpu"}]}],"resources":[{"capability":"96","guarantee":"8","name":"nvidia.com/gpu"}]}"#);
}

#[tokio::test]
async fn amounts_are_changed_where_they_are_stated() {
    let api = FakeApi::new();
    let mut text = edited(&api, &["weight=3"], DryRun::None).await;
    // Muster made it for a policy.
    api.put(
        QUEUE,
        json!({"metadata": {"annotations": {"muster.io/queue-of-policy": "true"}}, "spec": {"weight": 1}}),
    );
    let resources =
        json!([{"name": "cpu", "capability": "64"}, {"name": "nvidia.com/gpu", "deserved": "16"}]);
    api.put(
        POLICY,
        json!({"spec": {"ordering": "Backfill", "resources": resources}}),
    );
    let fields = [
        "deserved.nvidia.com/gpu=24",
        "capability.nvidia.com/gpu=32",
        "weight=2",
    ];
    text += &edited(&api, &fields, DryRun::Client).await;
    assert_eq!(api.get(POLICY).unwrap()["spec"]["resources"], resources);
    text += &edited(&api, &fields, DryRun::None).await;
    text += &edited(&api, &fields, DryRun::None).await;
    text += &edited(
        &api,
        &["capability.cpu=", "guarantee.nvidia.com/gpu=8"],
        DryRun::None,
    )
    .await;
    insta::assert_snapshot!(text, @r#"
    error: queue "vision" does not exist; `kubectl muster queue create` makes one
    queue.scheduling.volcano.sh/vision changed (dry run)
      weight: 1 -> 2
    capacitypolicy.muster.io/vision changed (dry run)
      resources.nvidia.com/gpu.capability: unset -> 32
      resources.nvidia.com/gpu.deserved: 16 -> 24
    queue.scheduling.volcano.sh/vision changed
      weight: 1 -> 2
    capacitypolicy.muster.io/vision changed
      resources.nvidia.com/gpu.capability: unset -> 32
      resources.nvidia.com/gpu.deserved: 16 -> 24
    queue.scheduling.volcano.sh/vision unchanged
    capacitypolicy.muster.io/vision unchanged
    capacitypolicy.muster.io/vision changed
      resources.cpu.capability: 64 -> unset
      resources.nvidia.com/gpu.guarantee: unset -> 8
    "#);
    insta::assert_snapshot!(api.get(POLICY).unwrap()["spec"], @r#"{"ordering":"Backfill","resources":[{"capability":"32","deserved":"24","guarantee":"8","name":"nvidia.com/gpu"}]}"#);
}

#[tokio::test]
async fn an_amount_of_the_queue_and_of_its_policy_is_changed_in_both() {
    let api = FakeApi::new();
    api.put(
        QUEUE,
        json!({"spec": {"capability": {"nvidia.com/gpu": 32}, "parent": "lab"}}),
    );
    let resources = json!([{"name": "nvidia.com/gpu", "capability": "16"}]);
    api.put(POLICY, json!({"spec": {"resources": resources}}));
    let text = edited(
        &api,
        &["capability.nvidia.com/gpu=64", "parent=research"],
        DryRun::None,
    )
    .await;
    insta::assert_snapshot!(text, @r"
    queue.scheduling.volcano.sh/vision changed
      capability.nvidia.com/gpu: 32 -> 64
      parent: lab -> research
    capacitypolicy.muster.io/vision changed
      resources.nvidia.com/gpu.capability: 16 -> 64
    ");
}
