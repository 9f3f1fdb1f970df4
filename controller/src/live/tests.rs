#![allow(clippy::unwrap_used, clippy::panic)]
use super::*;
use crate::mirror::template::{Template, TemplateKind};
use crds::capacity_policy::CapacityPolicy;
use crds::names;
use engine::facts::{ClusterFact, NodeFact, PodFact, PodPhase};
use engine::{PoolClass, Reason, Resources};
use runtime::testing::{FakeApi, Fault};
use serde_json::{Value, json};
use std::time::Duration;

fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn now() -> Time {
    let now: jiff::Timestamp = "2026-01-01T01:00:00Z".parse().unwrap();
    Time(now.as_millisecond())
}

/// Returns the plane: queue `q` with `quota` CPUs, and a cluster with a node of 4 CPUs for each name.
fn plane(quota: &str, clusters: &[&str]) -> LiveObjects {
    let mut observed = LiveObjects {
        namespaces: vec![read(json!({"metadata": {
            "name": "team", "labels": {names::MANAGED_LABEL: "true"},
        }}))],
        queues: vec![queue(quota)],
        priority_classes: vec![read(json!({"metadata": {"name": "high"}, "value": 100}))],
        ..LiveObjects::default()
    };
    for name in clusters {
        let cluster = ClusterFact {
            name: ClusterName::new(*name),
            labels: BTreeMap::new(),
            provider: String::new(),
            region: String::new(),
            zones: Vec::new(),
            taints: Vec::new(),
            price_milli: None,
            network: BTreeMap::new(),
            apis: Some(["batch/v1/Job".to_owned()].into()),
            usable: true,
            unusable_because: String::new(),
            paused: None,
        };
        let fact = MemberEvent::Fact(Event::ClusterUpserted(cluster));
        observed.members.push(fact);
        add_node(&mut observed, name, "n1");
    }
    observed
}

fn queue(quota: &str) -> crds::queue::Queue {
    read(json!({
        "metadata": {"name": "q", "finalizers": [names::ACCOUNTING_FINALIZER]},
        "spec": {"capability": {"cpu": quota}},
    }))
}

fn add_node(observed: &mut LiveObjects, cluster: &str, name: &str) {
    let node = NodeFact {
        cluster: ClusterName::new(cluster),
        name: NodeName::new(name),
        class: PoolClass::new("cpu"),
        labels: BTreeMap::new(),
        taints: Vec::new(),
        domains: Vec::new(),
        allocatable: Resources::parse([("cpu", "4"), ("pods", "110")]).unwrap(),
        usable: true,
        lost: false,
    };
    let fact = MemberEvent::Fact(Event::NodeUpserted(node));
    observed.members.push(fact);
}

/// Returns a Job of pods with one CPU each.
fn job(name: &str, pods: u32, class: Option<&str>) -> Value {
    json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {
            "name": name, "namespace": "team", "uid": format!("{name}-uid"),
            "creationTimestamp": "2026-01-01T00:00:00Z", "labels": {"muster.io/queue": "q"},
        },
        "spec": {
            "parallelism": pods, "completions": pods,
            "template": {"spec": {"priorityClassName": class, "containers": [
                {"name": "main", "resources": {"requests": {"cpu": "1"}}},
            ]}},
        },
    })
}

fn key(name: &str) -> JobKey {
    JobKey::new("team", &format!("{name}-job"))
}

/// Adds a job, which runs in a cluster with its pods on node `n1`, or waits.
fn add(observed: &mut LiveObjects, name: &str, pods: u32, cluster: Option<&str>) {
    let kind = TemplateKind {
        api_version: "batch/v1".to_owned(),
        kind: "Job".to_owned(),
    };
    let template = Template::read(&kind, read(job(name, pods, None)));
    observed.templates.push(template);
    let mut binding = json!({
        "metadata": {
            "name": format!("{name}-job"), "namespace": "team",
            "uid": format!("{name}-binding"), "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {
                names::POLICY_PERMANENT_ID: "policy",
                names::BINDING_PERMANENT_ID: format!("{name}-id"),
            },
            "finalizers": [names::ACCOUNTING_FINALIZER],
        },
        "spec": {
            "resource": {
                "apiVersion": "batch/v1", "kind": "Job", "namespace": "team",
                "name": name, "uid": format!("{name}-uid"),
            },
            "replicas": pods, "schedulerName": "muster",
        },
    });
    match cluster {
        None => binding["spec"]["suspension"] = json!({"scheduling": true}),
        Some(cluster) => {
            let record = json!({
                "templateUID": format!("{name}-uid"), "attempt": 1, "state": "Admitted", "queue": "q",
                "clusters": [{
                    "name": cluster, "pods": [{"role": "main", "count": pods}],
                    "charge": {"cpu": {"cpu": pods.to_string(), "pods": pods.to_string()}},
                }],
                "time": "2026-01-01T00:00:00Z",
            });
            binding["metadata"]["annotations"] =
                json!({names::ADMISSION_ANNOTATION: record.to_string()});
            binding["spec"]["clusters"] = json!([{"name": cluster, "replicas": pods}]);
            let status = json!({"active": pods, "ready": pods});
            binding["status"] =
                json!({"aggregatedStatus": [{"clusterName": cluster, "status": status}]});
            for index in 0..pods {
                let pod = PodFact {
                    cluster: ClusterName::new(cluster),
                    uid: Uid::new(format!("{name}-{index}")),
                    node: Some(NodeName::new("n1")),
                    request: Resources::parse([("cpu", "1"), ("pods", "1")]).unwrap(),
                    job: Some(key(name)),
                    phase: PodPhase::Running,
                    symptom: None,
                    grace_s: 0,
                };
                let fact = MemberEvent::Fact(Event::PodUpserted(pod));
                observed.members.push(fact);
            }
        }
    }
    observed.bindings.push(read(binding));
}

fn submit(name: &str, pods: u32, class: Option<&str>) -> LiveChange {
    LiveChange::Job(Box::new(read(job(name, pods, class))))
}

/// Returns what becomes of the jobs after a change, and the state then.
fn after(observed: &LiveObjects, changes: &[LiveChange]) -> (Fates, LiveState) {
    let mut live = LiveState::new(observed, now());
    for change in changes {
        live.change(change).unwrap();
    }
    let fates = live.follow();
    assert_eq!(
        live.reconciler.engine.check_invariants(),
        Vec::<String>::new()
    );
    (fates, live)
}

fn pods(cluster: &str, count: u32) -> Option<PodsByCluster> {
    Some([(ClusterName::new(cluster), count)].into())
}

#[test]
fn what_runs_stays_and_what_waits_starts_where_there_is_room() {
    let mut observed = plane("8", &["m1", "m2"]);
    add(&mut observed, "runs", 3, Some("m1"));
    add(&mut observed, "waits", 4, None);
    let (fates, _) = after(&observed, &[]);
    let runs = &fates[&key("runs")];
    assert_eq!(
        (&runs.before, &runs.after),
        (&pods("m1", 3), &pods("m1", 3))
    );
    assert_eq!(runs.evicted, None);
    let waits = &fates[&key("waits")];
    assert_eq!((&waits.before, &waits.after), (&None, &pods("m2", 4)));
}

#[test]
fn a_job_that_is_submitted_starts_or_says_why_it_waits() {
    let mut observed = plane("4", &["m1", "m2"]);
    add(&mut observed, "runs", 3, Some("m1"));
    let (fates, _) = after(&observed, &[submit("small", 1, None)]);
    assert_eq!(fates[&key("small")].after, pods("m1", 1));
    let (fates, live) = after(&observed, &[submit("large", 2, None)]);
    assert_eq!(fates[&key("large")].after, None);
    let answer = live.explain(&key("large")).unwrap();
    let message = &answer.explanation.message;
    assert!(message.contains("short by 1"), "{message}");
    assert_eq!(
        answer.helps,
        [
            "1 pod of main instead of all",
            "the capability of queue q raised to cpu 5"
        ]
    );
    assert_eq!(answer.explanation.position, Some(1));
}

#[test]
fn a_job_of_a_higher_priority_is_shown_with_what_is_evicted_for_it() {
    let mut observed = plane("4", &["m1"]);
    observed.capacity_policies.push(read(json!({
        "metadata": {"name": "q"}, "spec": {"preemption": {"withinQueue": "LowerPriority"}},
    })));
    add(&mut observed, "runs", 3, Some("m1"));
    let (fates, _) = after(&observed, &[submit("urgent", 2, Some("high"))]);
    assert_eq!(fates[&key("urgent")].after, pods("m1", 2), "{fates:?}");
    let victim = &fates[&key("runs")];
    assert_eq!(victim.after, None);
    let evicted = victim.evicted.as_ref().unwrap();
    assert_eq!(evicted.reason, Reason::Preempted);
    assert_eq!(evicted.for_job, Some(key("urgent")));
}

#[test]
fn a_higher_quota_starts_what_waits_for_it() {
    let mut observed = plane("3", &["m1", "m2"]);
    add(&mut observed, "runs", 3, Some("m1"));
    add(&mut observed, "waits", 4, None);
    let (fates, _) = after(&observed, &[]);
    assert_eq!(fates[&key("waits")].after, None);
    let more = LiveChange::Queue(Box::new(queue("7")));
    let (fates, _) = after(&observed, &[more]);
    assert_eq!(fates[&key("waits")].after, pods("m2", 4));
}

#[test]
fn a_policy_that_states_its_queue_is_one_without_a_queue() {
    let mut observed = plane("3", &["m1"]);
    add(&mut observed, "waits", 4, None);
    let policy = |cpus: u32| -> CapacityPolicy {
        read(json!({
            "apiVersion": "muster.io/v1alpha2", "kind": "CapacityPolicy", "metadata": {"name": "q"},
            "spec": {"resources": [{"name": "cpu", "capability": cpus}]},
        }))
    };
    let stated = |cpus: u32| LiveChange::CapacityPolicy(Box::new(policy(cpus)));
    // The Queue, which has less, counts.
    let (fates, _) = after(&observed, &[stated(4)]);
    assert_eq!(fates[&key("waits")].after, None);
    observed.capacity_policies.push(policy(4));
    assert_eq!(observed.conflicts(&queue("4")), Vec::<String>::new());
    let conflicts = observed.conflicts(&queue("5"));
    assert!(
        conflicts.len() == 1 && conflicts[0].contains("4 in spec.resources"),
        "{conflicts:?}"
    );
    observed.capacity_policies.clear();
    observed.queues.clear();
    let (fates, _) = after(&observed, &[stated(4)]);
    assert_eq!(fates[&key("waits")].after, pods("m1", 4));
}

#[test]
fn jobs_of_a_cluster_that_leaves_move_or_wait() {
    let mut observed = plane("8", &["m1", "m2"]);
    add(&mut observed, "first", 3, Some("m1"));
    add(&mut observed, "second", 1, Some("m1"));
    add(&mut observed, "there", 1, Some("m2"));
    let leaves = LiveChange::WithoutCluster(ClusterName::new("m1"));
    let (fates, _) = after(&observed, std::slice::from_ref(&leaves));
    assert_eq!(fates[&key("first")].after, pods("m2", 3));
    let second = &fates[&key("second")];
    assert_eq!((&second.before, &second.after), (&pods("m1", 1), &None));
    let evicted = second.evicted.as_ref().unwrap();
    assert_eq!(evicted.reason, Reason::ClusterDrained);
    assert_eq!(fates[&key("there")].evicted, None);
    let mut live = LiveState::new(&observed, now());
    let missing = LiveChange::WithoutCluster(ClusterName::new("m9"));
    let error = live.change(&missing).unwrap_err();
    assert_eq!(error.to_string(), "there is no cluster m9");
}

#[test]
fn a_gang_whose_node_goes_recovers_there_or_moves() {
    let mut observed = plane("8", &["m1", "m2"]);
    add(&mut observed, "runs", 3, Some("m1"));
    let gone = LiveChange::WithoutNode(ClusterName::new("m1"), NodeName::new("n1"));
    let (fates, _) = after(&observed, std::slice::from_ref(&gone));
    let runs = &fates[&key("runs")];
    assert_eq!(runs.after, pods("m2", 3), "{runs:?}");
    assert_eq!(runs.evicted.as_ref().unwrap().reason, Reason::PodsLost);
    add_node(&mut observed, "m1", "n2");
    let (fates, _) = after(&observed, &[gone]);
    let runs = &fates[&key("runs")];
    assert!(runs.recovers && runs.evicted.is_none(), "{runs:?}");
}

#[test]
fn what_cannot_be_tried_says_why() {
    let mut observed = plane("8", &["m1"]);
    add(&mut observed, "runs", 1, Some("m1"));
    let mut elsewhere = job("job", 1, None);
    elsewhere["metadata"]["namespace"] = json!("other");
    let mut map = job("map", 1, None);
    map["kind"] = json!("ConfigMap");
    map["apiVersion"] = json!("v1");
    let mut unnamed = job("job", 1, None);
    unnamed["metadata"]["name"] = json!("");
    let errors = [job("runs", 1, None), elsewhere, map, unnamed].map(|object| {
        let change = LiveChange::Job(Box::new(read(object)));
        let mut live = LiveState::new(&observed, now());
        live.change(&change).unwrap_err().to_string()
    });
    insta::assert_snapshot!(errors.join("\n"), @r"
    job team/runs-job exists already; give the manifest another name
    namespace other is not managed by Muster: it exists and has the label muster.io/managed=true if it is
    v1/ConfigMap is no workload that is queued
    the manifest has no metadata.name
    ");
}

fn options() -> LiveReadOptions {
    LiveReadOptions {
        timeout: Duration::from_secs(5),
        members_within: Duration::from_secs(1),
        user_agent: "test".to_owned(),
    }
}

#[tokio::test]
async fn what_may_not_be_read_is_named() {
    let read_but = async |kinds: &'static str| {
        let api = FakeApi::new();
        api.fault(
            usize::MAX,
            Fault::Status(403, "you may not"),
            move |request| request.path.ends_with(kinds),
        );
        crate::live::read(&api.client(), &options(), &[], now()).await
    };
    let error = read_but("/works").await.unwrap_err().to_string();
    assert!(
        error.starts_with("Works of all namespaces cannot be listed: "),
        "{error}"
    );
    let observed = read_but("/faultpolicies").await.unwrap();
    let [note] = &observed.notes[..] else {
        panic!("{:?}", observed.notes);
    };
    assert!(
        note.starts_with("FaultPolicies cannot be listed: "),
        "{note}"
    );
    assert!(LiveState::new(&observed, now()).follow().is_empty());
}

#[tokio::test]
async fn a_closed_queue_takes_a_job_of_a_user_who_may_use_it() {
    for (user, refused) in [("may", false), ("may-not", true)] {
        let api = FakeApi::new();
        let labels = json!({names::MANAGED_LABEL: "true"});
        let namespace = json!({"metadata": {"name": "team", "labels": labels}});
        api.put("/api/v1/namespaces/team", namespace);
        let queue = serde_json::to_value(queue("4")).unwrap();
        api.put("/apis/scheduling.volcano.sh/v1beta1/queues/q", queue);
        let policy = json!({"metadata": {"name": "q"}, "spec": {"tenancy": "Closed"}});
        api.put("/apis/muster.io/v1alpha2/capacitypolicies/q", policy);
        let reviews = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
        let of_user = json!({"status": {"userInfo": {"username": user}}});
        api.answers(reviews, move |_| of_user.clone());
        let reviews = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
        api.answers(reviews, |review| {
            let allowed = review["spec"]["user"] == "may";
            json!({"spec": review["spec"], "status": {"allowed": allowed}})
        });
        let changes = [submit("job", 1, None)];
        let read = crate::live::read(&api.client(), &options(), &changes, now()).await;
        let (_, live) = after(&read.unwrap(), &changes);
        let reason = live.state(&key("job")).unwrap().reason;
        assert_eq!(
            reason == Reason::QueueNotPermitted,
            refused,
            "{user}: {reason}"
        );
    }
}
