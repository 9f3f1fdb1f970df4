//! Who may use a queue: by its policy, by the right of the namespace, by what the webhook recorded.

use super::*;
use crds::capacity_policy::CapacityPolicy;
use crds::muster_config::MusterConfig;
use engine::decision::Help;
use std::sync::atomic::{AtomicBool, Ordering};

const REVIEWS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";

impl Stage {
    pub(super) fn policy(&mut self, name: &str, spec: Value) {
        let policy: CapacityPolicy = read(json!({
            "apiVersion": "muster.io/v1alpha2", "kind": "CapacityPolicy",
            "metadata": {"name": name}, "spec": spec,
        }));
        self.take(Input::Policy(Delta::Upserted(policy)));
    }

    fn config(&mut self, name: &str, tenancy: &str) {
        let config: MusterConfig = read(json!({
            "apiVersion": "muster.io/v1alpha2", "kind": "MusterConfig",
            "metadata": {"name": name}, "spec": {"tenancy": tenancy},
        }));
        self.take(Input::Config(Delta::Upserted(config)));
    }

    /// The reason and message of why a job waits.
    pub(super) fn why(&self, name: &str) -> String {
        let explained = self
            .core
            .reconciler
            .engine
            .explain(&JobKey::new("team", name))
            .unwrap();
        format!("{}: {}", explained.reason, explained.message)
    }
}

/// Makes the API server say whether the service accounts of `team` may use queue `q`.
pub(super) fn grants(api: &FakeApi) -> Arc<AtomicBool> {
    let granted = Arc::new(AtomicBool::new(false));
    let answer = granted.clone();
    api.answers(REVIEWS, move |review| {
        let attributes = &review["spec"]["resourceAttributes"];
        let asked = attributes["name"] == "q" && attributes["namespace"] == "team";
        let allowed = asked && answer.load(Ordering::SeqCst);
        json!({"spec": review["spec"], "status": {"allowed": allowed}})
    });
    granted
}

#[tokio::test(start_paused = true)]
async fn in_a_closed_tenancy_a_job_waits_until_its_namespace_has_the_right() {
    let mut stage = stage().await;
    let granted = grants(&stage.api);
    stage.config("default", "Closed");
    // There is one, by its name.
    stage.config("another", "Open");
    stage.job("a", 2);
    stage.rest(&["a"]).await;
    assert_eq!(stage.shown("a"), "no record, gated []");
    insta::assert_snapshot!(stage.why("a"), @"QueueNotPermitted: queue q selects no namespaces, and spec.tenancy of musterconfig default is Closed, and neither the service accounts of team nor, when it was submitted, its user had the verb use on the Queue; use another queue, or ask its owner");
    granted.store(true, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_secs(10)).await;
    stage.rest(&["a"]).await;
    assert_eq!(stage.shown("a"), r#"Admitted 1 open ["m1"]"#);

    // A running job continues when the right is withdrawn; a new job does not start.
    granted.store(false, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_secs(61)).await;
    stage.rest(&["a"]).await;
    stage.job("b", 1);
    stage.rest(&["a", "b"]).await;
    assert_eq!(stage.shown("a"), r#"Admitted 1 open ["m1"]"#);
    assert!(stage.why("b").starts_with("QueueNotPermitted"));
    stage.config("default", "Open");
    stage.rest(&["a", "b"]).await;
    assert_eq!(stage.shown("b"), r#"Admitted 1 open ["m1"]"#);
}

#[tokio::test(start_paused = true)]
async fn the_recorded_right_of_the_user_counts_for_its_queue_only() {
    let mut stage = stage().await;
    grants(&stage.api);
    stage.policy(
        "q",
        json!({"namespaceSelector": {"matchLabels": {"team": "other"}}}),
    );
    let annotated = |queue: &str| json!({"metadata": {"annotations": {names::PERMITTED_QUEUE_ANNOTATION: queue}}});
    for (name, queue) in [("a", "q"), ("b", "other")] {
        stage.template(name, 1, annotated(queue));
        stage.binding(name, 1, json!({}));
    }
    stage.rest(&["a", "b"]).await;
    assert_eq!(stage.shown("a"), r#"Admitted 1 open ["m1"]"#);
    assert!(
        stage.why("b").starts_with("QueueNotPermitted"),
        "{}",
        stage.why("b")
    );
}

#[tokio::test(start_paused = true)]
async fn no_job_starts_while_its_right_cannot_be_checked() {
    let mut stage = stage().await;
    stage.policy("q", json!({"tenancy": "Closed"}));
    let asks = |request: &Recorded| request.path == REVIEWS;
    stage
        .api
        .fault(2, runtime::testing::Fault::Status(500, "away"), asks);
    grants(&stage.api).store(true, Ordering::SeqCst);
    stage.job("a", 2);
    stage.rest(&["a"]).await;
    insta::assert_snapshot!(stage.why("a"), @"NotEvaluated: whether namespace team may use queue q is being checked");
    tokio::time::sleep(Duration::from_secs(11)).await;
    stage.rest(&["a"]).await;
    assert_eq!(stage.shown("a"), r#"Admitted 1 open ["m1"]"#);
}

#[tokio::test(start_paused = true)]
async fn a_podgroup_names_no_queue_that_its_namespace_may_not_use() {
    let mut stage = stage().await;
    grants(&stage.api);
    stage.policy("gold", json!({"tenancy": "Closed"}));
    let below = json!({"metadata": {"name": "gold"}, "spec": {"parent": "q"}});
    stage.take(Input::Queue(Delta::Upserted(read(below))));
    let shown = async |stage: &mut Stage, name: &str| {
        let podgroup = json!({"metadata": {"name": name, "namespace": "team"}, "spec": {}});
        stage.take(Input::PodGroup(Delta::Upserted(read(podgroup))));
        stage.job(name, 1);
        stage.rest_later(&[name], 20_000).await;
        let status = format!("podgroups/{name}/status");
        let mut patches = stage.api.requests_of("PATCH");
        patches.retain(|request| request.path.ends_with(&status));
        let last = patches.last().unwrap();
        last.body["status"]["federation"]["message"].to_string()
    };
    let hidden = shown(&mut stage, "a").await;
    assert!(stage.why("a").contains("children (gold)"));
    assert!(hidden.contains("children (other queues)"), "{hidden}");
    // A queue that is open to all may be named.
    stage.policy("gold", json!({"tenancy": "Open"}));
    let open = shown(&mut stage, "b").await;
    assert!(open.contains("children (gold)"), "{open}");
}

#[tokio::test(start_paused = true)]
async fn a_queue_allows_only_the_priority_classes_of_its_policy() {
    let mut stage = stage().await;
    let class = |name: &str, default: bool| {
        let class = json!({"metadata": {"name": name}, "value": 5, "globalDefault": default});
        Input::PriorityClass(Delta::Upserted(read(class)))
    };
    stage.take(class("high", false));
    stage.policy("q", json!({"priorityClasses": ["low"]}));
    let high = json!({"spec": {"template": {"spec": {"priorityClassName": "high"}}}});
    stage.template("a", 1, high);
    stage.binding("a", 1, json!({}));
    stage.rest(&["a"]).await;
    assert!(
        stage.why("a").starts_with("PriorityClassNotPermitted"),
        "{}",
        stage.why("a")
    );
    stage.policy("q", json!({"priorityClasses": ["low", "high"]}));
    stage.rest(&["a"]).await;
    // The job went to the member, where the class has to be created; here no member can do so.
    let why = stage.why("a");
    assert!(why.contains("attempt 1 was evicted (PlanRefused"), "{why}");
    // A job that names no class has the default class.
    stage.take(class("usual", true));
    stage.job("b", 1);
    stage.rest(&["a", "b"]).await;
    insta::assert_snapshot!(stage.why("b"), @"PriorityClassNotPermitted: spec.priorityClasses of capacitypolicy q does not list PriorityClass usual; submit it with one that it lists (high, low), or to another queue");
    stage.take(class("usual", false));
    stage.rest(&["a", "b"]).await;
    assert_eq!(stage.shown("b"), r#"Admitted 1 open ["m1"]"#);
}

#[tokio::test(start_paused = true)]
async fn advice_names_no_queue_that_the_namespace_may_not_use() {
    let mut stage = stage().await;
    grants(&stage.api);
    for name in ["open", "closed", "selects", "classes"] {
        let queue = json!({"metadata": {"name": name}, "spec": {}});
        stage.take(Input::Queue(Delta::Upserted(read(queue))));
    }
    stage.policy("closed", json!({"tenancy": "Closed"}));
    stage.policy(
        "selects",
        json!({"namespaceSelector": {"matchLabels": {"team": "other"}}}),
    );
    stage.policy("classes", json!({"priorityClasses": ["low"]}));
    let class = json!({"metadata": {"name": "usual"}, "value": 5, "globalDefault": true});
    stage.take(Input::PriorityClass(Delta::Upserted(read(class))));
    for name in ["a", "b"] {
        stage.job(name, 3);
    }
    stage.rest(&["a", "b"]).await;
    let now = stage.now();
    let helps = stage
        .core
        .publishing()
        .advise(&JobKey::new("team", "b"), now);
    let queues = helps.iter().filter_map(|help| match help {
        Help::OtherQueue(queue) => Some(queue.as_str()),
        _ => None,
    });
    assert_eq!(queues.collect::<Vec<_>>(), ["open"], "{helps:?}");
}

#[tokio::test(start_paused = true)]
async fn jobs_behind_the_head_have_advice_too() {
    let mut stage = stage().await;
    grants(&stage.api);
    let open = json!({"metadata": {"name": "open"}, "spec": {}});
    stage.take(Input::Queue(Delta::Upserted(read(open))));
    for (name, pods) in [("a", 3), ("b", 3), ("c", 2), ("d", 2)] {
        stage.job(name, pods);
    }
    for name in ["b", "c", "d"] {
        let podgroup = json!({"metadata": {"name": name, "namespace": "team"}, "spec": {}});
        stage.take(Input::PodGroup(Delta::Upserted(read(podgroup))));
    }
    stage.rest(&["a", "b", "c", "d"]).await;
    // Each answer is followed by a rest.
    for _ in 0..8 {
        stage.rest_later(&["a", "b", "c", "d"], 3_000).await;
    }
    // A status is written at most once a second.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let federation = |name: &str| {
        let written = stage.api.requests_of("PATCH").into_iter();
        let mut own =
            written.filter(|request| request.path.ends_with(&format!("/podgroups/{name}/status")));
        own.next_back().unwrap().body["status"]["federation"].clone()
    };
    for name in ["c", "d"] {
        let shown = federation(name);
        assert_ne!(shown["position"], 1, "{shown}");
        let helps = shown["helps"].to_string();
        assert!(
            helps.contains("queue open instead of its own"),
            "{name}: {shown}"
        );
        assert_eq!(shown["status"], "Queued");
    }
}
