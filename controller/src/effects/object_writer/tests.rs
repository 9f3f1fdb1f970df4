#![allow(clippy::unwrap_used)]

use super::*;
use kube::core::GroupVersionKind;
use runtime::testing::{FakeApi, Fault, Recorded};
use serde_json::json;

fn resource() -> ApiResource {
    let gvk = GroupVersionKind::gvk("policy.karmada.io", "v1alpha1", "OverridePolicy");
    ApiResource::from_gvk_with_plural(&gvk, "overridepolicies")
}

fn path(name: &str) -> String {
    format!("/apis/policy.karmada.io/v1alpha1/namespaces/team/overridepolicies/{name}")
}

fn object(name: &str, size: u32) -> Value {
    json!({"apiVersion": "policy.karmada.io/v1alpha1", "kind": "OverridePolicy",
        "metadata": {"name": name, "namespace": "team"}, "spec": {"size": size}})
}

fn managed_by(manager: &str) -> Value {
    json!({"metadata": {"managedFields": [{"manager": manager, "operation": "Apply"}]}})
}

struct Bench {
    api: FakeApi,
    ensurer: ObjectWriter,
    _cancel: tokio_util::sync::DropGuard,
}

fn bench() -> Bench {
    let (api, cancel) = (FakeApi::new(), CancellationToken::new());
    let overrides = Overrides::new(api.client(), &runtime::Term::always());
    let ensurer = ObjectWriter::spawn(api.client(), overrides, cancel.clone());
    Bench {
        api,
        ensurer,
        _cancel: cancel.drop_guard(),
    }
}

async fn a_while() {
    tokio::time::sleep(Duration::from_millis(100)).await;
}

#[tokio::test(start_paused = true)]
async fn only_objects_applied_by_the_controller_are_deleted() {
    let bench = bench();
    bench.api.put(&path("ours"), managed_by(MANAGER));
    bench.api.put(&path("theirs"), managed_by("kubectl"));
    for name in ["ours", "theirs", "nobodys"] {
        bench.ensurer.delete(&resource(), Some("team"), name);
    }
    a_while().await;
    let deleted: Vec<String> = bench
        .api
        .requests_of("DELETE")
        .into_iter()
        .map(|request| request.path)
        .collect();
    assert_eq!(deleted, [path("ours")]);
    assert!(bench.api.get(&path("theirs")).is_some());
}

#[tokio::test(start_paused = true)]
async fn a_write_that_keeps_failing_delays_no_other() {
    let bench = bench();
    let bad = |request: &Recorded| request.path.contains("/bad-");
    bench.api.fault(usize::MAX, Fault::Status(500, "no"), bad);
    for index in 0..IN_FLIGHT * 2 {
        let name = format!("bad-{index}");
        bench
            .ensurer
            .apply(&resource(), Some("team"), &name, object(&name, 1));
    }
    bench
        .ensurer
        .apply(&resource(), Some("team"), "good", object("good", 1));
    a_while().await;
    assert!(bench.api.get(&path("good")).is_some());
}

#[tokio::test(start_paused = true)]
async fn a_failed_apply_is_retried_with_the_newest_object() {
    let bench = bench();
    bench.api.fault(1, Fault::Status(500, "no"), |_| true);
    bench
        .ensurer
        .apply(&resource(), Some("team"), "a", object("a", 1));
    a_while().await;
    bench
        .ensurer
        .apply(&resource(), Some("team"), "a", object("a", 2));
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(bench.api.get(&path("a")).unwrap()["spec"]["size"], 2);
    assert_eq!(bench.api.requests_of("APPLY").len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_denied_write_is_not_retried() {
    let bench = bench();
    bench
        .api
        .fault(usize::MAX, Fault::Status(400, "denied"), |_| true);
    bench
        .ensurer
        .apply(&resource(), Some("team"), "a", object("a", 1));
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(bench.api.requests_of("APPLY").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_forbidden_write_is_tried_again_until_it_is_allowed() {
    let bench = bench();
    bench
        .api
        .fault(3, Fault::Status(403, "forbidden"), |_| true);
    bench
        .ensurer
        .apply(&resource(), Some("team"), "a", object("a", 1));
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(bench.api.get(&path("a")).is_some());
}

#[test]
fn nothing_is_written_to_a_namespace_that_is_being_deleted() {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 403, "reason": "Forbidden",
        "details": {"causes": [{"reason": "NamespaceTerminating", "message": "", "field": "metadata.namespace"}]},
    });
    assert!(is_final(&serde_json::from_value(status).unwrap()));
}
