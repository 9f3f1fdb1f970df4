#![allow(clippy::unwrap_used, clippy::panic)]

use super::control_plane::{address, before_install, installed};
use super::{CheckFinding, Severity, members, skew, token};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use jiff::Timestamp;
use runtime::testing::FakeApi;
use serde_json::{Value, json};

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const WEBHOOK: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/muster";
const CLUSTERS: &str = "/apis/cluster.karmada.io/v1alpha1/clusters";

fn groups(names: &[&str]) -> Value {
    let version = json!({"groupVersion": "x/v1", "version": "v1"});
    let group =
        |name: &&str| json!({"name": name, "versions": [version], "preferredVersion": version});
    let groups: Vec<Value> = names.iter().map(group).collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

/// Returns a control plane with Karmada's groups and all CRDs.
fn plane() -> FakeApi {
    let api = FakeApi::new();
    let karmada = ["work", "policy", "config", "cluster"].map(|name| format!("{name}.karmada.io"));
    let names: Vec<&str> = karmada.iter().map(String::as_str).collect();
    api.document("/apis", groups(&names));
    for (name, yaml) in crds::yaml::manifests() {
        let crd = runtime::apply::parse(yaml).unwrap().remove(0);
        api.put(&format!("{CRDS}/{name}"), crd);
    }
    let mut queues = api.get(&format!("{CRDS}/gpupools.muster.io")).unwrap();
    queues["metadata"]["name"] = json!("queues.scheduling.volcano.sh");
    api.put(&format!("{CRDS}/queues.scheduling.volcano.sh"), queues);
    api.put(WEBHOOK, registration("-----BEGIN CERTIFICATE-----", None));
    api
}

fn registration(bundle: &str, url: Option<&str>) -> Value {
    json!({"metadata": {"name": "muster"}, "webhooks": [{
        "name": "a.muster.io", "admissionReviewVersions": ["v1"], "sideEffects": "None",
        "clientConfig": {"caBundle": STANDARD.encode(bundle), "url": url},
    }]})
}

/// Returns severity, check and text of what is found on a control plane.
async fn found(api: &FakeApi) -> Vec<(Severity, &'static str, String)> {
    let mut all = before_install(&api.client()).await.unwrap();
    if !all.iter().any(|finding| finding.check == "karmada") {
        all.extend(installed(&api.client()).await.unwrap());
    }
    all.into_iter().map(short).collect()
}

fn short(finding: CheckFinding) -> (Severity, &'static str, String) {
    assert!(!finding.why.is_empty() && !finding.fix.is_empty());
    (finding.severity, finding.check, finding.found)
}

async fn is_named(api: &FakeApi, severity: Severity, check: &str, text: &str) {
    let found = found(api).await;
    let [(of, name, says)] = found.as_slice() else {
        panic!("one finding with {text:?}, not {found:?}");
    };
    assert_eq!((*of, *name), (severity, check));
    assert!(says.contains(text), "{says}");
}

#[tokio::test]
async fn a_healthy_control_plane_has_no_findings() {
    assert_eq!(found(&plane()).await, []);
}

#[tokio::test]
async fn a_plain_cluster_is_named() {
    let api = plane();
    api.document("/apis", groups(&["apps"]));
    is_named(
        &api,
        Severity::Blocks,
        "karmada",
        "serves no work.karmada.io",
    )
    .await;
}

#[tokio::test]
async fn missing_and_foreign_crds_are_named() {
    let api = plane();
    api.remove(&format!("{CRDS}/queues.scheduling.volcano.sh"));
    is_named(&api, Severity::Blocks, "queue-crd", "no CRD queues").await;

    let api = plane();
    api.remove(&format!("{CRDS}/gpupools.muster.io"));
    is_named(&api, Severity::Blocks, "muster-crds", "is missing").await;

    let api = plane();
    let path = format!("{CRDS}/capacitypolicies.muster.io");
    let mut old = api.get(&path).unwrap();
    old["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"] =
        json!({"type": "object"});
    api.put(&path, old);
    is_named(&api, Severity::Blocks, "muster-crds", "another version").await;

    let api = plane();
    let path = format!("{CRDS}/podgroups.scheduling.volcano.sh");
    let mut volcanos = api.get(&path).unwrap();
    for version in volcanos["spec"]["versions"].as_array_mut().unwrap() {
        version["subresources"] = Value::Null;
    }
    api.put(&path, volcanos);
    is_named(&api, Severity::Warns, "podgroup-crd", "Volcano's own").await;
}

#[tokio::test]
async fn a_colliding_interpreter_is_named() {
    let api = plane();
    let path = "/apis/config.karmada.io/v1alpha1/resourceinterpretercustomizations";
    let target = json!({"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job"});
    for name in ["volcano-global", "muster-volcano-job"] {
        let object = json!({"metadata": {"name": name}, "spec": {"target": target}});
        api.put(&format!("{path}/{name}"), object);
    }
    is_named(&api, Severity::Warns, "interpreter", "volcano-global").await;
}

#[tokio::test]
async fn faults_of_the_webhook_are_named() {
    let api = plane();
    api.remove(WEBHOOK);
    is_named(&api, Severity::Blocks, "webhook", "there is no Mutating").await;

    let api = plane();
    api.put(WEBHOOK, registration("", None));
    is_named(&api, Severity::Blocks, "webhook", "caBundle").await;

    let api = plane();
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://{}/gate", free.local_addr().unwrap());
    drop(free);
    api.put(
        WEBHOOK,
        registration("-----BEGIN CERTIFICATE-----", Some(&url)),
    );
    is_named(&api, Severity::Blocks, "webhook", "no connection from here").await;
}

#[test]
fn the_address_of_a_webhook_has_a_port() {
    assert_eq!(address("https://a/gate").as_deref(), Some("a:443"));
    assert_eq!(address("https://a:9443/gate").as_deref(), Some("a:9443"));
    assert_eq!(address("https://[::1]:9443").as_deref(), Some("[::1]:9443"));
}

#[test]
fn a_token_that_ends_is_named() {
    let claims = URL_SAFE_NO_PAD.encode(r#"{"exp":1000000}"#);
    let at = crate::token::expiry(&format!("h.{claims}.s")).unwrap();
    let after =
        |seconds: i64| token::finding(at, Timestamp::from_second(1_000_000 + seconds).unwrap());
    assert_eq!(after(1).unwrap().severity, Severity::Blocks);
    assert_eq!(after(-60).unwrap().severity, Severity::Warns);
    assert_eq!(after(-100_000), None);
    assert_eq!(crate::token::expiry("opaque"), None);
}

#[test]
fn a_clock_that_differs_is_named() {
    let now = "2026-01-01T00:00:00Z".parse().unwrap();
    let of = |date: &str| skew::finding(date, now, "cluster m1");
    assert_eq!(of("Thu, 01 Jan 2026 00:00:04 GMT"), None);
    let says = of("Wed, 31 Dec 2025 23:59:00 GMT").unwrap().found;
    assert!(
        says.contains("cluster m1") && says.contains("-60 s"),
        "{says}"
    );
    assert_eq!(of("no date"), None);
}

#[tokio::test]
async fn a_right_that_is_missing_in_a_member_is_named() {
    let api = plane();
    let review = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let proxied = json!({
        "metadata": {"name": "m1", "annotations": {"muster.io/access": "Proxy"}},
        "spec": {
            "syncMode": "Push", "apiEndpoint": "https://m1",
            "impersonatorSecretRef": {"namespace": "karmada-cluster", "name": "m1"},
        },
    });
    api.put(&format!("{CLUSTERS}/m1"), proxied);
    let member = FakeApi::new();
    member.answers(review, |asked| {
        let allowed = asked["spec"]["resourceAttributes"]["resource"] != "pods";
        json!({"spec": asked["spec"], "status": {"allowed": allowed}})
    });
    api.pass_on(
        "/apis/cluster.karmada.io/v1alpha1/clusters/m1/proxy",
        &member,
    );
    let (_, check, says) = of_members(&api).await;
    assert_eq!(check, "member-rights");
    assert!(says.contains("may not list pods in cluster m1"), "{says}");
}

async fn of_members(api: &FakeApi) -> (Severity, &'static str, String) {
    let mut all = members::check(&api.client()).await.unwrap();
    short(all.remove(0))
}

#[tokio::test]
async fn faults_of_members_are_named() {
    let api = plane();
    let (_, check, says) = of_members(&api).await;
    assert_eq!((check, says.as_str()), ("members", "no cluster has joined"));

    let member = |endpoint: &str, access: &str| {
        json!({
            "metadata": {"name": "m1", "annotations": {"muster.io/access": access}},
            "spec": {
                "syncMode": "Push", "apiEndpoint": endpoint,
                "secretRef": {"namespace": "karmada-cluster", "name": "m1"},
                "impersonatorSecretRef": {"namespace": "karmada-cluster", "name": "m1"},
            },
        })
    };
    api.put(&format!("{CLUSTERS}/m1"), member("", "Direct"));
    let (_, check, says) = of_members(&api).await;
    assert!(
        check == "member-reached" && says.contains("apiEndpoint is empty"),
        "{says}"
    );

    api.put(
        &format!("{CLUSTERS}/m1"),
        member("https://127.0.0.1:1", "Direct"),
    );
    let (_, check, says) = of_members(&api).await;
    assert!(
        check == "member-reached" && says.contains("secret karmada-cluster/m1"),
        "{says}"
    );
}

#[tokio::test]
async fn a_blocked_installation_writes_nothing() {
    let api = FakeApi::new();
    api.document("/apis", groups(&["apps"]));
    let error = super::before_install(&api.client()).await.unwrap_err();
    assert!(error.to_string().contains("nothing was written"), "{error}");
    assert!(api.requests().iter().all(|request| request.verb == "GET"));
}
