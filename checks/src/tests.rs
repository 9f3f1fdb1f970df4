//! Each fault is injected into a healthy control plane, and has to be the only finding.
#![allow(clippy::unwrap_used, clippy::panic)]

mod interpreters;
mod members;
mod webhook;

use crate::{CheckReport, CheckedBy, Severity, before_install, check, leader, skew, token};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use jiff::Timestamp;
use runtime::testing::{FakeApi, Fault};
use serde_json::{Value, json};

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const WEBHOOK: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/muster";
const POLICY_BINDINGS: &str =
    "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings";
const CLUSTERS: &str = "/apis/cluster.karmada.io/v1alpha1/clusters";
const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/muster-system/leases/muster";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/muster-system/leases";
const SERVER: CheckedBy = CheckedBy::Server { token: None };

fn groups(names: &[&str]) -> Value {
    let version = json!({"groupVersion": "x/v1", "version": "v1"});
    let group =
        |name: &&str| json!({"name": name, "versions": [version], "preferredVersion": version});
    let groups: Vec<Value> = names.iter().map(group).collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

/// Returns a CRD of Karmada with these properties of its `spec`.
fn karmadas(name: &str, properties: Value) -> Value {
    let (plural, group) = name.split_once('.').unwrap();
    json!({
        "metadata": {"name": name},
        "spec": {
            "group": group, "scope": "Namespaced", "names": {"plural": plural, "kind": plural},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object",
                "properties": {"spec": {"type": "object", "properties": properties}},
            }}}],
        },
    })
}

fn put_bindings(api: &FakeApi, properties: Value) {
    let name = "resourcebindings.work.karmada.io";
    api.put(&format!("{CRDS}/{name}"), karmadas(name, properties));
}

fn put_policies(api: &FakeApi, affinity: Value) {
    let name = "propagationpolicies.policy.karmada.io";
    let properties = json!({"placement": {"type": "object", "properties": affinity}});
    api.put(&format!("{CRDS}/{name}"), karmadas(name, properties));
}

/// The fields of bindings that Karmada 1.18 has and earlier versions lack.
fn suspension() -> Value {
    json!({"suspension": {"type": "object", "properties": {"scheduling": {"type": "boolean"}}}})
}

/// Returns a healthy control plane with one member, which is reached by proxy, and the member.
fn plane() -> (FakeApi, FakeApi) {
    let api = FakeApi::new();
    let karmada = ["work", "policy", "config", "cluster"].map(|name| format!("{name}.karmada.io"));
    let names: Vec<&str> = karmada.iter().map(String::as_str).collect();
    api.document("/apis", groups(&names));
    for (name, yaml) in crds::yaml::manifests() {
        let crd = runtime::apply::parse(yaml).unwrap().remove(0);
        api.put(&format!("{CRDS}/{name}"), crd);
    }
    let queues = "queues.scheduling.volcano.sh";
    api.put(&format!("{CRDS}/{queues}"), karmadas(queues, json!({})));
    put_bindings(&api, suspension());
    put_policies(&api, json!({"overflowAffinities": {"type": "array"}}));
    for manifest in [
        include_str!("../../deploy/admission-policies.yaml"),
        include_str!("../../deploy/admission-permitted-queue.yaml"),
    ] {
        for object in runtime::apply::parse(manifest).unwrap() {
            if object["kind"] == "ValidatingAdmissionPolicyBinding" {
                let name = object["metadata"]["name"].as_str().unwrap().to_owned();
                api.put(&format!("{POLICY_BINDINGS}/{name}"), object);
            }
        }
    }
    api.put(
        WEBHOOK,
        registration(&certificate().0, &json!({"url": null})),
    );
    api.answers(LEASES, |probe| {
        let mut answer = probe.clone();
        answer["metadata"]["annotations"] = json!({"muster.io/webhook-answer": "0.1.0"});
        answer
    });
    api.put(
        LEASE,
        json!({"metadata": {"name": "muster"}, "spec": lease(Timestamp::now())}),
    );
    let member = members::joined(&api);
    (api, member)
}

fn lease(renewed: Timestamp) -> Value {
    json!({"holderIdentity": "muster-0", "leaseDurationSeconds": 15, "renewTime": format!("{renewed:.6}")})
}

/// Returns a certificate for 127.0.0.1 and its key.
fn certificate() -> (String, String) {
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    (made.cert.pem(), made.signing_key.serialize_pem())
}

fn registration(bundle: &str, target: &Value) -> Value {
    let mut config = target.clone();
    config["caBundle"] = json!(STANDARD.encode(bundle));
    json!({"metadata": {"name": "muster"}, "webhooks": [{
        "name": "a.muster.io", "admissionReviewVersions": ["v1"], "sideEffects": "None", "clientConfig": config,
    }]})
}

/// Returns what is found, without what is not checked.
async fn found(api: &FakeApi, by: CheckedBy) -> CheckReport {
    let report = check(&api.client(), by).await.unwrap();
    for finding in &report.findings {
        assert!(!finding.why.is_empty() && !finding.fix.is_empty());
    }
    report
}

async fn is_named(api: &FakeApi, severity: Severity, check: &str, text: &str) {
    let report = found(api, SERVER).await;
    let [finding] = report.findings.as_slice() else {
        panic!("one finding with {text:?}, not {report:#?}");
    };
    assert_eq!((finding.severity, finding.check), (severity, check));
    assert!(finding.found.contains(text), "{}", finding.found);
}

#[tokio::test]
async fn a_healthy_control_plane_has_no_findings() {
    let (api, _) = plane();
    for by in [SERVER, CheckedBy::User] {
        let report = found(&api, by).await;
        assert_eq!(report.findings, [], "{by:?}");
        assert!(!report.blocks());
        assert!(
            report.text(false).starts_with("no findings; not checked: ")
                && report.text(true).contains("karmada-flags")
        );
    }
    let writes = api.requests().into_iter().filter(|request| {
        let is_write = request.verb != "GET" && !request.path.contains("accessreviews");
        is_write && request.query.get("dryRun").is_none_or(|dry| dry != "All")
    });
    assert_eq!(writes.count(), 0, "a check changes nothing");
}

#[tokio::test]
async fn a_cluster_without_karmada_is_named() {
    let (api, _) = plane();
    api.document("/apis", groups(&["apps"]));
    is_named(
        &api,
        Severity::Blocks,
        "karmada",
        "serves no work.karmada.io",
    )
    .await;
    let (api, _) = plane();
    api.remove(&format!("{CRDS}/propagationpolicies.policy.karmada.io"));
    is_named(&api, Severity::Blocks, "karmada", "no CRD resourcebindings").await;
}

#[tokio::test]
async fn an_old_and_a_new_karmada_are_named() {
    let (api, _) = plane();
    put_bindings(
        &api,
        json!({"suspension": {"type": "object", "properties": {"dispatching": {"type": "boolean"}}}}),
    );
    is_named(&api, Severity::Blocks, "karmada-version", "older than 1.13").await;
    let (api, _) = plane();
    put_policies(&api, json!({}));
    is_named(&api, Severity::Warns, "karmada-version", "older than 1.18").await;
    let (api, _) = plane();
    let mut newer = suspension();
    newer["clusters"] = json!({"type": "array", "items": {
        "type": "object", "properties": {"components": {"type": "array"}},
    }});
    put_bindings(&api, newer);
    is_named(&api, Severity::Warns, "karmada-version", "newer than 1.18").await;
}

#[tokio::test]
async fn services_that_karmada_ignores_are_named() {
    let (api, _) = plane();
    let path = "/apis/networking.karmada.io/v1alpha1/namespaces/team/multiclusterservices";
    let service = |created: &str, finalizers: &[&str]| json!({"metadata": {"name": "s", "namespace": "team", "creationTimestamp": created, "finalizers": finalizers}});
    api.put(
        &format!("{path}/handled"),
        service(
            "2026-01-01T00:00:00Z",
            &["karmada.io/multiclusterservice-controller"],
        ),
    );
    api.put(
        &format!("{path}/new"),
        service(&Timestamp::now().to_string(), &[]),
    );
    assert_eq!(found(&api, SERVER).await.findings, []);
    api.put(
        &format!("{path}/ignored"),
        service("2026-01-01T00:00:00Z", &[]),
    );
    is_named(
        &api,
        Severity::Warns,
        "karmada-services",
        "ignores MultiClusterService team/",
    )
    .await;
}

#[tokio::test]
async fn missing_and_foreign_crds_are_named() {
    let (api, _) = plane();
    api.remove(&format!("{CRDS}/queues.scheduling.volcano.sh"));
    is_named(&api, Severity::Blocks, "queue-crd", "no CRD queues").await;

    let (api, _) = plane();
    api.remove(&format!("{CRDS}/gpupools.muster.io"));
    is_named(&api, Severity::Blocks, "muster-crds", "is missing").await;

    let (api, _) = plane();
    let path = format!("{CRDS}/capacitypolicies.muster.io");
    let mut old = api.get(&path).unwrap();
    old["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"] =
        json!({"type": "object"});
    api.put(&path, old);
    is_named(&api, Severity::Blocks, "muster-crds", "another version").await;

    let (api, _) = plane();
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
    let (api, _) = plane();
    let path = "/apis/config.karmada.io/v1alpha1/resourceinterpretercustomizations";
    let target = json!({"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job"});
    for name in ["volcano-global", "muster-volcano-job"] {
        let object = json!({"metadata": {"name": name}, "spec": {"target": target}});
        api.put(&format!("{path}/{name}"), object);
    }
    is_named(&api, Severity::Warns, "interpreter", "volcano-global").await;
}

#[tokio::test]
async fn an_admission_policy_that_is_not_bound_is_named() {
    let (api, _) = plane();
    api.remove(&format!("{POLICY_BINDINGS}/muster-works"));
    is_named(&api, Severity::Warns, "admission-policies", "muster-works").await;
}

#[tokio::test]
async fn a_plane_without_a_leader_is_named() {
    let (api, _) = plane();
    api.remove(LEASE);
    is_named(&api, Severity::Blocks, "leader", "nothing holds").await;
    let (api, _) = plane();
    let spec = lease("2026-01-01T00:00:00Z".parse().unwrap());
    api.put(LEASE, json!({"metadata": {"name": "muster"}, "spec": spec}));
    is_named(
        &api,
        Severity::Blocks,
        "leader",
        "muster-0 no longer renews",
    )
    .await;
}

#[test]
fn a_lease_is_fresh_for_its_duration() {
    let lease = serde_json::from_value(lease("2026-01-01T00:00:00Z".parse().unwrap())).unwrap();
    let at = |time: &str| leader::finding(&lease, time.parse().unwrap()).map(|found| found.check);
    assert_eq!(at("2026-01-01T00:00:15Z"), None);
    assert_eq!(at("2026-01-01T00:00:16Z"), Some("leader"));
    assert_eq!(at("2025-12-31T23:59:56Z"), None);
    assert_eq!(
        at("2025-12-31T23:00:00Z"),
        Some("clock"),
        "it is from the future"
    );
}

#[test]
fn a_token_that_ends_is_named() {
    const DAY: i64 = 24 * 3600;
    const END: i64 = 1000 * DAY;
    let seen = |lifetime: i64, left: i64| {
        let claims = json!({
            "iat": END - lifetime, "exp": END, "sub": "system:serviceaccount:muster-system:muster",
        });
        let token = format!("h.{}.s\n", URL_SAFE_NO_PAD.encode(claims.to_string()));
        let account = crate::account_of_token(&token).unwrap();
        assert_eq!(account, ("muster-system".to_owned(), "muster".to_owned()));
        let read = crate::TokenLifetime::of(&token).unwrap();
        let found = token::finding(read, Timestamp::from_second(END - left).unwrap());
        found.map(|found| found.severity)
    };
    assert_eq!(seen(365 * DAY, -1), Some(Severity::Blocks));
    assert_eq!(seen(365 * DAY, 60), Some(Severity::Warns));
    assert_eq!(seen(365 * DAY, 14 * DAY), Some(Severity::Warns));
    assert_eq!(seen(365 * DAY, 15 * DAY), None);
    // One that is issued for a day is renewed long before half of it.
    assert_eq!(seen(DAY, DAY / 2), None);
    assert_eq!(seen(DAY, DAY / 2 - 1), Some(Severity::Warns));
    assert_eq!(crate::TokenLifetime::of("opaque"), None);
    assert_eq!(crate::account_of_token("opaque"), None);
}

#[tokio::test]
async fn an_expired_token_is_among_the_findings() {
    let (api, _) = plane();
    let by = CheckedBy::Server {
        token: Some(crate::TokenLifetime {
            issued: Timestamp::UNIX_EPOCH,
            expires: "2026-01-01T00:00:00Z".parse().unwrap(),
        }),
    };
    let report = found(&api, by).await;
    assert!(report.blocks() && report.findings.len() == 1, "{report:#?}");
    assert_eq!(report.findings[0].check, "token");
}

#[test]
fn a_clock_that_differs_is_named() {
    let now = "2026-01-01T00:00:00Z".parse().unwrap();
    let of = |date: &str| skew::finding(skew::parse(date)?, now, "cluster m1");
    assert_eq!(of("Thu, 01 Jan 2026 00:00:04 GMT"), None);
    let says = of("Wed, 31 Dec 2025 23:59:00 GMT").unwrap().found;
    assert!(
        says.contains("cluster m1") && says.contains("-60 s"),
        "{says}"
    );
    assert_eq!(of("no date"), None);
}

#[tokio::test]
async fn what_may_not_be_read_is_not_healthy_but_unchecked() {
    let (api, _) = plane();
    api.fault(usize::MAX, Fault::Status(403, "forbidden"), |request| {
        request.path.contains("resourceinterpretercustomizations") || request.path == LEASE
    });
    let report = found(&api, SERVER).await;
    assert_eq!(report.findings, []);
    let unchecked: Vec<&str> = report.unchecked.iter().map(|it| it.check).collect();
    assert_eq!(unchecked, ["interpreter", "leader", "karmada-flags"]);
    api.fault(1, Fault::Status(500, "away"), |_| true);
    let error = before_install(&api.client()).await.unwrap_err().to_string();
    assert!(error.contains("away"), "{error}");
}
