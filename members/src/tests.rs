//! Members against fake API servers: the events and their order, and what happens when a member comes and
//! goes.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod devices;
mod member_rules;

use super::connect::Connector;
use super::*;
use runtime::testing::{FakeApi, Fault};
use serde_json::{Value, json};
use tokio::time::timeout;

const NODE: &str = "/api/v1/nodes/n1";
const CLUSTERS: &str = "/apis/cluster.karmada.io/v1alpha1/clusters";

fn secret_path(name: &str) -> String {
    format!("/api/v1/namespaces/karmada-cluster/secrets/{name}")
}

struct Fleet {
    karmada: FakeApi,
    member: FakeApi,
    events: mpsc::Receiver<MemberEvent>,
    members: Members,
    _cancel: tokio_util::sync::DropGuard,
}

/// A member with one node, and a control plane with the Cluster objects `clusters`.
fn fleet(clusters: &[Value]) -> Fleet {
    let (karmada, member) = (FakeApi::new(), FakeApi::new());
    karmada.put("/api/v1/namespaces/karmada-cluster", json!({}));
    for cluster in clusters {
        let name = cluster["metadata"]["name"].as_str().unwrap();
        karmada.put(&format!("{CLUSTERS}/{name}"), cluster.clone());
    }
    karmada.put(&secret_path("m1"), secret("dG9rZW4="));
    member.document("/readyz", json!("ok"));
    member.put(NODE, node("8"));
    let (sink, events) = mpsc::channel(64);
    let cancel = CancellationToken::new();
    let reached = member.clone();
    let connector: Connector = Arc::new(move |address, credentials| {
        let known = address.endpoint() == "https://m1" && credentials.token().starts_with("token");
        assert!(known, "{address:?}");
        let client = reached.client();
        Box::pin(async move { Ok(client) })
    });
    let members = Members::spawn_with(
        karmada.client(),
        MembersOptions::default(),
        connector,
        vec![sink],
        cancel.clone(),
    );
    Fleet {
        karmada,
        member,
        events,
        members,
        _cancel: cancel.drop_guard(),
    }
}

fn cluster(name: &str, mode: &str) -> Value {
    json!({
        "apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "metadata": {"name": name},
        "spec": {
            "syncMode": mode, "apiEndpoint": format!("https://{name}"), "region": "eu",
            "secretRef": {"namespace": "karmada-cluster", "name": name},
            "insecureSkipTLSVerification": true,
        },
        "status": {
            "conditions": [{"type": "Ready", "status": "True", "reason": "ok", "message": ""}],
            "apiEnablements": [{"groupVersion": "batch/v1", "resources": [{"name": "jobs", "kind": "Job"}]}],
        },
    })
}

fn secret(token: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "m1"}, "data": {"token": token}})
}

fn node(cpu: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"},
        "status": {"allocatable": {"cpu": cpu}, "conditions": [{"type": "Ready", "status": "True"}]},
    })
}

fn pod(name: &str, owner: Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "team", "ownerReferences": owner},
        "spec": {"nodeName": "n1", "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]},
        "status": {"phase": "Running"},
    })
}

/// The next event, in short.
async fn next(events: &mut mpsc::Receiver<MemberEvent>) -> String {
    let event = timeout(Duration::from_secs(300), events.recv())
        .await
        .expect("an event is due")
        .unwrap();
    match event {
        MemberEvent::Fact(Event::ClusterUpserted(fact)) if fact.usable => {
            format!("{} usable", fact.name)
        }
        MemberEvent::Fact(Event::ClusterUpserted(fact)) => {
            format!("{}: {}", fact.name, fact.unusable_because)
        }
        MemberEvent::Fact(Event::ClusterGone(name)) => format!("{name} gone"),
        MemberEvent::Fact(Event::NodeUpserted(fact)) => {
            format!("node {} {}", fact.name, fact.allocatable)
        }
        MemberEvent::Fact(Event::NodeGone(_, name)) => format!("node {name} gone"),
        MemberEvent::Fact(Event::PodUpserted(fact)) => {
            format!(
                "pod of {}",
                fact.job.map_or("others".to_owned(), |job| job.to_string())
            )
        }
        MemberEvent::Fact(Event::PodGone(..)) => "pod gone".to_owned(),
        MemberEvent::Listed { cluster } => format!("{cluster} listed"),
        MemberEvent::Ready => "ready".to_owned(),
        MemberEvent::Fact(other) => format!("{other:?}"),
        MemberEvent::NodeHealth { node, health, .. } => format!("{node} {health:?}"),
        MemberEvent::Rules { rules, .. } => match rules {
            RulesUpdate::RuntimeClasses(classes) => format!("classes {classes:?}"),
            RulesUpdate::Namespace(name, rules) => format!(
                "{name} {} limits, {} quotas",
                rules.limit_ranges.len(),
                rules.quotas.len()
            ),
        },
        MemberEvent::Marks { cluster, marks } => format!("{cluster} {}", marks.cleared),
    }
}

async fn expect(fleet: &mut Fleet, wanted: &[&str]) {
    for wanted in wanted {
        assert_eq!(next(&mut fleet.events).await, *wanted);
    }
}

/// Events up to and including `wanted`.
async fn until(fleet: &mut Fleet, wanted: &str) -> Vec<String> {
    let mut seen = Vec::new();
    while seen.last().is_none_or(|last| last != wanted) {
        seen.push(next(&mut fleet.events).await);
    }
    seen
}

#[tokio::test(start_paused = true)]
async fn ready_waits_until_every_member_has_listed_or_is_unreachable() {
    let mut fleet = fleet(&[cluster("m1", "Push"), cluster("m2", "Pull")]);
    let mut told = until(&mut fleet, "ready").await;
    let position = |wanted: &str| told.iter().position(|event| event == wanted).expect(wanted);
    assert!(
        position("node n1 cpu 8") < position("m1 usable"),
        "{told:?}"
    );
    assert!(position("m1 usable") < position("m1 listed"));
    assert_eq!(told.pop().as_deref(), Some("ready"));
    assert!(told.contains(&"m2 listed".to_owned()));
    let why = told.iter().find(|event| event.starts_with("m2: ")).unwrap();
    assert!(
        why.contains("spec.impersonatorSecretRef is not set"),
        "{why}"
    );
    assert!(fleet.members.client(&ClusterName::new("m1")).is_some());
    assert_eq!(
        fleet.members.health(&ClusterName::new("m2")),
        Some(ViewHealth::Unreachable)
    );
    let of_pods = fleet
        .member
        .requests()
        .into_iter()
        .find(|request| request.path == "/api/v1/pods");
    assert!(of_pods.unwrap().query["fieldSelector"].contains("nodeName"));
}

#[tokio::test(start_paused = true)]
async fn a_pod_belongs_to_the_job_whose_object_karmada_applied() {
    let mut fleet = fleet(&[cluster("m1", "Push")]);
    until(&mut fleet, "ready").await;
    let resources = json!({"groupVersion": "g/v1", "resources": [
        {"name": "wholes", "kind": "Whole", "namespaced": true, "singularName": "", "verbs": []},
        {"name": "parts", "kind": "Part", "namespaced": true, "singularName": "", "verbs": []},
    ]});
    fleet.member.document("/apis/g/v1", resources);
    let owned_by = |kind: &str, name: &str, uid: &Value| json!([{"apiVersion": "g/v1", "kind": kind, "name": name, "uid": uid, "controller": true}]);
    let whole = fleet.member.put(
        "/apis/g/v1/namespaces/team/wholes/w",
        json!({"apiVersion": "g/v1", "kind": "Whole", "metadata": {
            "name": "w", "namespace": "team", "annotations": {
                crds::names::BINDING_NAMESPACE_ANNOTATION: "team", crds::names::BINDING_NAME_ANNOTATION: "w-whole",
            },
        }}),
    );
    let part = fleet.member.put(
        "/apis/g/v1/namespaces/team/parts/w-0",
        json!({"apiVersion": "g/v1", "kind": "Part", "metadata": {
            "name": "w-0", "namespace": "team",
            "ownerReferences": owned_by("Whole", "w", &whole["metadata"]["uid"]),
        }}),
    );
    let owner = owned_by("Part", "w-0", &part["metadata"]["uid"]);
    fleet
        .member
        .put("/api/v1/namespaces/team/pods/a", pod("a", owner.clone()));
    expect(&mut fleet, &["pod of team/w-0-part", "pod of team/w-whole"]).await;
    // The second pod of the same owner needs no climb.
    let before = fleet.member.requests_of("GET").len();
    fleet
        .member
        .put("/api/v1/namespaces/team/pods/b", pod("b", owner));
    expect(&mut fleet, &["pod of team/w-whole"]).await;
    let climbed = fleet
        .member
        .requests_of("GET")
        .into_iter()
        .skip(before)
        .filter(|r| r.path.contains("/g/v1/"));
    assert_eq!(climbed.count(), 0);
    fleet
        .member
        .put("/api/v1/namespaces/team/pods/c", pod("c", json!([])));
    fleet.member.remove("/api/v1/namespaces/team/pods/a");
    expect(&mut fleet, &["pod of team/", "pod gone"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_member_that_stops_answering_is_unusable_and_keeps_its_nodes() {
    let mut fleet = fleet(&[cluster("m1", "Push")]);
    until(&mut fleet, "ready").await;
    fleet
        .member
        .fault(usize::MAX, Fault::Status(500, "etcd is away"), |_| true);
    expect(
        &mut fleet,
        &["m1: its API server does not answer: etcd is away"],
    )
    .await;
    assert_eq!(
        fleet.members.health(&ClusterName::new("m1")),
        Some(ViewHealth::Unreachable)
    );
}

#[tokio::test(start_paused = true)]
async fn a_member_that_refuses_to_answer_is_unusable_and_alive() {
    let mut fleet = fleet(&[cluster("m1", "Push")]);
    until(&mut fleet, "ready").await;
    let no = Fault::Status(403, "muster may not get /readyz");
    fleet.member.fault(usize::MAX, no, |_| true);
    let why = "m1: its API server refuses what Muster asks: muster may not get /readyz";
    expect(&mut fleet, &[why]).await;
}

#[tokio::test(start_paused = true)]
async fn a_member_without_its_secret_says_so_and_delays_no_other() {
    let mut fleet = fleet(&[cluster("m3", "Push")]);
    let told = until(&mut fleet, "ready").await;
    let why = told
        .iter()
        .find(|event| event.starts_with("m3: it cannot be reached"));
    assert!(
        why.unwrap()
            .contains("secret karmada-cluster/m3 cannot be read"),
        "{why:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn new_credentials_make_a_new_connection_that_finds_deleted_objects() {
    let mut fleet = fleet(&[cluster("m1", "Push")]);
    until(&mut fleet, "ready").await;
    fleet.karmada.put(&secret_path("m1"), secret("dG9rZW4y"));
    fleet
        .member
        .fault(usize::MAX, Fault::Hang, |request| request.verb == "WATCH");
    fleet.member.cut_watches();
    fleet.member.remove(NODE);
    let told = until(&mut fleet, "m1 usable").await;
    assert!(told.contains(&"node n1 gone".to_owned()), "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn a_removed_cluster_is_gone_and_a_new_one_is_listed() {
    let mut fleet = fleet(&[]);
    expect(&mut fleet, &["ready"]).await;
    fleet
        .karmada
        .put(&format!("{CLUSTERS}/m1"), cluster("m1", "Push"));
    until(&mut fleet, "m1 listed").await;
    fleet.karmada.remove(&format!("{CLUSTERS}/m1"));
    expect(&mut fleet, &["m1 gone"]).await;
    assert!(fleet.members.client(&ClusterName::new("m1")).is_none());
}

/// A Pull member whose API the control plane serves.
fn proxied(name: &str) -> Value {
    let mut cluster = cluster(name, "Pull");
    cluster["spec"]["impersonatorSecretRef"] =
        json!({"namespace": "karmada-cluster", "name": format!("{name}-impersonator")});
    cluster
}

fn proxy_path(name: &str) -> String {
    format!("{CLUSTERS}/{name}/proxy")
}

#[tokio::test(start_paused = true)]
async fn a_proxied_member_is_watched_and_probed_through_the_control_plane() {
    let mut fleet = fleet(&[]);
    fleet.karmada.pass_on(&proxy_path("m2"), &fleet.member);
    expect(&mut fleet, &["ready"]).await;
    fleet.karmada.put(&format!("{CLUSTERS}/m2"), proxied("m2"));
    let told = until(&mut fleet, "m2 usable").await;
    assert!(told.contains(&"node n1 cpu 8".to_owned()), "{told:?}");
    fleet
        .member
        .put("/api/v1/namespaces/team/pods/a", pod("a", json!([])));
    until(&mut fleet, "pod of team/").await;
    // All requests went through the control plane, and none used the member's own Secret.
    let paths: Vec<String> = fleet
        .karmada
        .requests()
        .into_iter()
        .map(|r| r.path)
        .collect();
    for path in ["/readyz", "/api/v1/nodes", "/api/v1/pods"] {
        let wanted = format!("{}{path}", proxy_path("m2"));
        assert!(paths.contains(&wanted), "{wanted} of {paths:?}");
    }
    assert!(!paths.iter().any(|path| path.contains("/secrets/")));
    // It becomes unavailable and available like a member that is reached directly.
    let probed = format!("{}/readyz", proxy_path("m2"));
    fleet.karmada.fault(
        2,
        Fault::Status(500, "dial tcp: connection refused"),
        move |request| request.path == probed,
    );
    until(
        &mut fleet,
        "m2: its API server does not answer: dial tcp: connection refused",
    )
    .await;
    until(&mut fleet, "m2 usable").await;
}

#[tokio::test(start_paused = true)]
async fn a_proxied_member_without_access_names_the_missing_rights() {
    let mut fleet = fleet(&[proxied("m2")]);
    fleet.karmada.pass_on(&proxy_path("m2"), &fleet.member);
    fleet.member.fault(
        2,
        Fault::Status(403, "pods is forbidden: User \"muster\" cannot list it"),
        |request| request.path == "/api/v1/pods",
    );
    let told = until(&mut fleet, "m2 usable").await;
    let because = "m2: it cannot be reached: ";
    let mut told = told.iter();
    let why = told.find(|event| event.starts_with(because)).unwrap();
    for part in [
        "its pods cannot be listed through Karmada's cluster proxy",
        "pods is forbidden",
        "`muster install --member`",
    ] {
        assert!(why.contains(part), "{why}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_changed_access_is_used_at_once_and_an_invalid_one_is_reported() {
    let mut fleet = fleet(&[]);
    fleet.karmada.pass_on(&proxy_path("m1"), &fleet.member);
    expect(&mut fleet, &["ready"]).await;
    let path = format!("{CLUSTERS}/m1");
    let mut member = proxied("m1");
    fleet.karmada.put(&path, member.clone());
    until(&mut fleet, "m1 usable").await;
    member["metadata"]["annotations"] = json!({"muster.io/access": "direct"});
    fleet.karmada.put(&path, member.clone());
    let told = until_starts(&mut fleet, "m1: annotation").await;
    assert!(told.contains("muster.io/access is \"direct\""), "{told}");
    let before = fleet.karmada.requests().len();
    member["metadata"]["annotations"] = json!({"muster.io/access": "Direct"});
    fleet.karmada.put(&path, member);
    until(&mut fleet, "m1 usable").await;
    let since = fleet.karmada.requests().split_off(before);
    assert!(
        since
            .iter()
            .any(|request| request.path == secret_path("m1"))
    );
    assert!(!since.iter().any(|request| request.path.contains("/proxy/")));
}

/// The first event that starts with `wanted`.
async fn until_starts(fleet: &mut Fleet, wanted: &str) -> String {
    loop {
        let event = next(&mut fleet.events).await;
        if event.starts_with(wanted) {
            return event;
        }
    }
}
