//! Queues that are deleted, moved or lost while jobs are charged to them.

use super::*;

fn queue_path(name: &str) -> String {
    format!("/apis/scheduling.volcano.sh/v1beta1/queues/{name}")
}

impl Stage {
    /// Creates a queue, on the server and in the watch.
    fn put_queue(&mut self, name: &str, spec: Value) {
        let queue =
            json!({"metadata": {"creationTimestamp": "2026-01-01T00:00:00Z"}, "spec": spec});
        self.api.put(&queue_path(name), queue);
        self.echo_queue(name);
    }

    fn echo_queue(&mut self, name: &str) {
        let delta = match self.api.get(&queue_path(name)) {
            Some(queue) => Delta::Upserted(read(queue)),
            None => Delta::Gone(ObjectKey {
                namespace: None,
                name: name.to_owned(),
            }),
        };
        self.take(Input::Queue(delta));
    }

    fn change_queue(&mut self, name: &str, change: Value) {
        self.api.merge(&queue_path(name), &change);
        self.echo_queue(name);
    }

    /// Runs until nothing changes; the watch also shows writes of queues.
    async fn rest_with_queues(&mut self, jobs: &[&str], ms: i64) {
        self.ahead_ms += ms;
        for _ in 0..3 {
            self.rest(jobs).await;
            for name in ["q", "x", "y"] {
                self.echo_queue(name);
            }
        }
        self.rest(jobs).await;
    }

    /// Creates a job of a queue.
    fn job_in(&mut self, name: &str, queue: &str, cpus: u32) {
        let labels = json!({"metadata": {"labels": {"muster.io/queue": queue}}});
        self.template(name, cpus, labels);
        self.binding(name, cpus, json!({}));
    }

    fn delete_queue(&mut self, name: &str) {
        self.api.remove(&queue_path(name));
        self.echo_queue(name);
    }

    fn finalizers(&self, queue: &str) -> Value {
        let queue = self.api.get(&queue_path(queue)).unwrap();
        queue["metadata"]["finalizers"].clone()
    }

    fn reason(&self, name: &str) -> String {
        let explanation = self
            .core
            .reconciler
            .engine
            .explain(&JobKey::new("team", name));
        let explanation = explanation.unwrap();
        format!("{}: {}", explanation.reason, explanation.message)
    }
}

fn done() -> Value {
    reported(json!({"succeeded": 3, "conditions": [{"type": "Complete", "status": "True"}]}))
}

/// Queues `x` and `y` below `q`, whose capability is 4 CPUs, and job `a` that uses 3 of them in `x`.
async fn family() -> Stage {
    let mut stage = stage().await;
    stage.put_queue("q", json!({"capability": {"cpu": "4"}}));
    for child in ["x", "y"] {
        stage.put_queue(child, json!({"parent": "q"}));
    }
    stage.job_in("a", "x", 3);
    stage.rest_with_queues(&["a"], 0).await;
    assert_eq!(stage.shown("a"), r#"Admitted 1 open ["m1"]"#);
    stage
}

#[tokio::test(start_paused = true)]
async fn the_place_of_a_deleted_queue_stays_below_its_parent_until_nothing_is_charged_to_it() {
    let mut stage = family().await;
    stage.delete_queue("x");
    stage.job_in("b", "y", 2);
    stage.job_in("c", "x", 1);
    stage.rest_with_queues(&["a", "b", "c"], 0).await;
    assert_eq!(stage.charged(), "3");
    assert_eq!(stage.shown("b"), "no record, gated []");
    insta::assert_snapshot!(stage.reason("c"), @"QueueClosed: queue x is deleted and takes no jobs; its place stays in the tree until nothing is charged to it or below; create it again or name another queue");
    stage.change("a", done());
    stage.rest_with_queues(&["a", "b", "c"], 0).await;
    assert_eq!(stage.shown("b"), r#"Admitted 1 open ["m1"]"#);
    insta::assert_snapshot!(stage.reason("c"), @"QueueNotFound: queue x does not exist; create it or name another");
}

#[tokio::test(start_paused = true)]
async fn a_queue_that_is_applied_again_takes_its_place_over_at_once() {
    let mut stage = family().await;
    stage.delete_queue("x");
    stage.job_in("c", "x", 1);
    stage.rest_with_queues(&["a", "c"], 0).await;
    assert_eq!(stage.shown("c"), "no record, gated []");
    stage.put_queue("x", json!({"parent": "q", "capability": {"cpu": "4"}}));
    stage.job_in("d", "x", 1);
    stage.rest_with_queues(&["a", "c", "d"], 0).await;
    assert_eq!(stage.shown("c"), r#"Admitted 1 open ["m1"]"#);
    // What runs counts in the new queue.
    assert_eq!(stage.charged(), "4");
    let reason = stage.reason("d");
    assert!(!reason.starts_with("Queue"), "{reason}");
}

#[tokio::test(start_paused = true)]
async fn no_queue_object_is_kept() {
    let mut stage = family().await;
    for queue in ["q", "x", "y"] {
        assert_eq!(stage.finalizers(queue), Value::Null, "{queue}");
    }
    // An earlier version kept them, and one is deleted while its job runs.
    let kept = json!(["example.com/theirs", names::ACCOUNTING_FINALIZER]);
    stage.change_queue("y", json!({"metadata": {"finalizers": kept}}));
    let deleted = json!({"metadata": {
        "finalizers": [names::ACCOUNTING_FINALIZER], "deletionTimestamp": "2026-11-21T00:00:00Z",
    }});
    stage.change_queue("x", deleted);
    stage.rest_with_queues(&["a"], 0).await;
    assert_eq!(stage.finalizers("y"), json!(["example.com/theirs"]));
    assert_eq!(stage.api.get(&queue_path("x")), None);
    stage.job_in("b", "y", 2);
    stage.rest_with_queues(&["a", "b"], 0).await;
    assert_eq!(stage.charged(), "3");
    assert_eq!(stage.shown("b"), "no record, gated []");
}

#[tokio::test(start_paused = true)]
async fn the_record_follows_a_queue_that_moves() {
    let mut stage = family().await;
    stage.put_queue("z", json!({"capability": {"cpu": "4"}}));
    stage.change_queue("x", json!({"spec": {"parent": "z"}}));
    stage.rest_with_queues(&["a"], 0).await;
    let above = |stage: &Stage| stage.record("a").unwrap().queues_above;
    assert_eq!(above(&stage), vec![QueueName::new("z")]);
    // Its place is known to a new process, whatever happens to the object.
    stage.delete_queue("x");
    stage.rest_with_queues(&["a"], 0).await;
    assert_eq!(above(&stage), vec![QueueName::new("z")]);
}

#[tokio::test(start_paused = true)]
async fn a_new_process_charges_the_parent_of_a_queue_that_is_gone() {
    let mut family = family().await;
    let record = family.record("a").unwrap();
    assert_eq!(record.queues_above, vec![QueueName::new("q")]);
    family.rest(&["a"]).await;
    let mut stage = Stage::bare(&FakeApi::new(), true).await;
    let labels = json!({"metadata": {"labels": {"muster.io/queue": "x"}}});
    stage.template("a", 3, labels.clone());
    let left = family.get("a");
    let left = json!({
        "metadata": {"annotations": left["metadata"]["annotations"]}, "spec": left["spec"],
    });
    stage.binding("a", 3, left);
    stage.put_queue("y", json!({"parent": "q"}));
    stage.job_in("b", "y", 2);
    stage.list_all();
    stage.rest(&["a", "b"]).await;
    assert_eq!(stage.charged(), "3");
    assert_eq!(stage.shown("b"), "no record, gated []");
    // Its own bounds are unknown, so that it grows no more; those above hold.
    stage.template("a", 4, labels);
    stage.change("a", json!({"spec": {"replicas": 4}}));
    stage.rest(&["a", "b"]).await;
    assert_eq!(stage.charged(), "3");
    assert!(
        stage.reason("a").contains("queue x is deleted"),
        "{}",
        stage.reason("a")
    );
    stage.change("a", done());
    stage.rest_later(&["a", "b"], 6_000).await;
    assert_eq!(stage.shown("b"), r#"Admitted 1 open ["m1"]"#);
    let x = stage
        .core
        .reconciler
        .engine
        .queue_usage(&QueueName::new("x"));
    assert!(x.is_none_or(|x| x.allocated.is_empty()));
}

#[tokio::test(start_paused = true)]
async fn a_charged_queue_with_an_invalid_parent_keeps_its_place() {
    for (parent, why) in [
        ("nowhere", "queue nowhere does not exist"),
        ("x", "x is the queue itself"),
    ] {
        let mut stage = family().await;
        stage.change_queue("x", json!({"spec": {"parent": parent}}));
        stage.job_in("b", "y", 2);
        stage.job_in("c", "x", 1);
        stage.rest_with_queues(&["a", "b", "c"], 0).await;
        assert_eq!(stage.charged(), "3", "{parent}");
        assert_eq!(stage.shown("b"), "no record, gated []");
        let reason = stage.reason("c");
        assert!(
            reason.contains(why) && reason.contains("stays below q"),
            "{reason}"
        );
        // A valid parent: the charge moves with the queue.
        stage.put_queue("nowhere", json!({}));
        if parent == "nowhere" {
            stage.rest_with_queues(&["a", "b", "c"], 0).await;
            let admitted = r#"Admitted 1 open ["m1"]"#;
            assert_eq!(stage.shown("b"), admitted, "{}", stage.reason("b"));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_deleted_parent_keeps_its_capability_while_charged_below() {
    let mut stage = family().await;
    stage.delete_queue("q");
    stage.job_in("b", "y", 1);
    stage.rest_with_queues(&["a", "b"], 0).await;
    assert_eq!(stage.charged(), "3");
    assert_eq!(stage.shown("b"), "no record, gated []");
    assert!(stage.reason("b").contains("queue q is deleted"));
    stage.change("a", done());
    stage.rest_with_queues(&["a", "b"], 0).await;
    let reason = stage.reason("b");
    assert!(
        reason.contains("names the parent q, which does not exist"),
        "{reason}"
    );
}

fn policy_path(name: &str) -> String {
    format!("/apis/muster.io/v1alpha2/capacitypolicies/{name}")
}

impl Stage {
    /// Puts a CapacityPolicy that `manager` applied, on the server and in the watch.
    fn put_policy(&mut self, name: &str, manager: &str, spec: Value) {
        let managed = json!([{"manager": manager, "operation": "Apply"}]);
        let policy = json!({"metadata": {"managedFields": managed}, "spec": spec});
        let policy = self.api.put(&policy_path(name), policy);
        self.take(Input::Policy(Delta::Upserted(read(policy))));
    }
}

impl Stage {
    fn remove_policy(&mut self, name: &str) {
        self.api.remove(&policy_path(name));
        self.take(Input::Policy(Delta::Gone(ObjectKey {
            namespace: None,
            name: name.to_owned(),
        })));
    }

    /// Runs until nothing changes, `ms` later.
    async fn settle_after(&mut self, ms: i64) {
        self.ahead_ms += ms;
        self.settle().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_policy_that_states_its_queue_gets_a_queue_which_goes_with_it() {
    let mut stage = Stage::bare(&FakeApi::new(), true).await;
    let resources = json!([{"name": "cpu", "capability": 2}]);
    // It was there before Muster.
    stage.put_policy(
        "x",
        "kubectl",
        json!({"resources": resources, "parent": "q"}),
    );
    stage.put_policy("none", "kubectl", json!({"ordering": "StrictFIFO"}));
    stage.settle_unready().await;
    stage.list_all();
    stage.put_queue("q", json!({"capability": {"cpu": 4}}));
    stage.settle().await;
    assert_eq!(
        stage.api.get(&queue_path("x")),
        None,
        "its author has time to apply one"
    );
    stage.settle_after(5_000).await;
    assert_eq!(stage.api.get(&queue_path("none")), None);
    let queue = stage.api.get(&queue_path("x")).unwrap();
    let made = &queue["metadata"]["annotations"][names::QUEUE_OF_POLICY_ANNOTATION];
    assert_eq!(made, "true", "{queue}");
    stage.echo_queue("x");
    for (job, cpus) in [("a", 2), ("b", 1)] {
        stage.job_in(job, "x", cpus);
    }
    stage.rest_with_queues(&["a", "b"], 0).await;
    assert_eq!(stage.shown("a"), r#"Admitted 1 open ["m1"]"#);
    assert_eq!(stage.shown("b"), "no record, gated []");

    // Without the policy its Queue has no bounds: it is deleted, and takes no jobs. What runs stays charged above it,
    // where 4 may be used, also if somebody has stated a weight in the Queue.
    stage.change_queue("x", json!({"spec": {"weight": 2}}));
    stage.remove_policy("x");
    stage.put_queue("y", json!({"parent": "q"}));
    stage.job_in("c", "y", 3);
    stage.rest_with_queues(&["a", "b", "c"], 0).await;
    assert_eq!(stage.shown("a"), r#"Admitted 1 open ["m1"]"#);
    assert_eq!(stage.shown("b"), "no record, gated []");
    assert_eq!(stage.shown("c"), "no record, gated []");
    assert!(
        stage.reason("c").contains("queue q"),
        "{}",
        stage.reason("c")
    );
    stage.settle_after(5_000).await;
    assert_eq!(stage.api.get(&queue_path("x")), None);
    stage.rest_with_queues(&["a", "b", "c"], 0).await;
    assert_eq!(stage.shown("c"), "no record, gated []");
    stage.change("a", done());
    stage.rest_with_queues(&["a", "b", "c"], 0).await;
    assert_eq!(stage.shown("c"), r#"Admitted 1 open ["m1"]"#);
}

#[tokio::test(start_paused = true)]
async fn a_queue_that_is_replaced_is_not_created_in_between() {
    let mut stage = Stage::bare(&FakeApi::new(), true).await;
    stage.list_all();
    let resources = json!([{"name": "memory", "capability": "1Gi"}]);
    stage.put_queue("x", json!({"capability": {"cpu": 2}}));
    stage.put_policy("x", "kubectl", json!({ "resources": resources }));
    stage.settle_after(60_000).await;
    stage.delete_queue("x");
    stage.settle_after(4_000).await;
    assert_eq!(stage.api.get(&queue_path("x")), None);
    stage.put_queue("x", json!({"capability": {"cpu": 2}}));
    stage.settle_after(60_000).await;
    let queue = stage.api.get(&queue_path("x")).unwrap();
    assert_eq!(queue["metadata"]["annotations"], Value::Null, "{queue}");
    // An amount that a person states in a Queue of Muster's makes it theirs.
    stage.delete_queue("x");
    stage.settle().await;
    stage.settle_after(5_000).await;
    stage.echo_queue("x");
    stage.change_queue("x", json!({"spec": {"capability": {"cpu": 1}}}));
    stage.remove_policy("x");
    stage.settle_after(60_000).await;
    let queue = stage.api.get(&queue_path("x")).unwrap();
    assert_eq!(
        queue["metadata"]["annotations"][names::QUEUE_OF_POLICY_ANNOTATION],
        "true"
    );
}

#[tokio::test(start_paused = true)]
async fn the_lower_of_two_quotas_counts_and_the_policy_says_so() {
    let mut stage = Stage::bare(&FakeApi::new(), true).await;
    stage.list_all();
    stage.put_queue("x", json!({"capability": {"cpu": 3}}));
    let cpus = |cpus: u32| json!({"resources": [{"name": "cpu", "capability": cpus}]});
    stage.put_policy("x", "kubectl", cpus(2));
    stage.job_in("a", "x", 3);
    stage.rest_with_queues(&["a"], 0).await;
    assert_eq!(stage.shown("a"), "no record, gated []");
    stage.settle().await;
    let condition = |stage: &Stage| {
        let policy = stage.api.get(&policy_path("x")).unwrap();
        let conditions = policy["status"]["conditions"].as_array().unwrap().clone();
        let mut conditions = conditions.into_iter();
        conditions.find(|condition| condition["type"] == "Consistent")
    };
    let said = condition(&stage).unwrap();
    assert_eq!(said["reason"], "StatedTwice", "{said}");
    let path = policy_path("x");
    stage.api.merge(&path, &json!({"spec": cpus(3)}));
    let policy = read(stage.api.get(&path).unwrap());
    stage.take(Input::Policy(Delta::Upserted(policy)));
    stage.rest_with_queues(&["a"], 0).await;
    assert_eq!(stage.shown("a"), r#"Admitted 1 open ["m1"]"#);
    stage.settle().await;
    assert_eq!(condition(&stage).unwrap()["status"], "True");
}

#[tokio::test(start_paused = true)]
async fn a_policy_created_for_a_queue_is_deleted_with_it() {
    let ours = binding_writer::overrides::MANAGER;
    let mut stage = Stage::bare(&FakeApi::new(), true).await;
    // Its queue was deleted while Muster did not run.
    stage.put_policy("before", ours, json!({}));
    stage.list_all();
    for (name, manager, spec) in [
        ("x", ours, json!({})),
        ("written", ours, json!({"ordering": "StrictFIFO"})),
        ("theirs", "kubectl", json!({})),
    ] {
        stage.put_queue(name, json!({}));
        stage.put_policy(name, manager, spec);
    }
    stage.settle().await;
    let there = |stage: &Stage, name: &str| {
        let policy = stage.api.get(&policy_path(name));
        policy.is_some_and(|policy| policy["metadata"]["deletionTimestamp"].is_null())
    };
    assert!(!there(&stage, "before"));
    for name in ["x", "written", "theirs"] {
        assert!(there(&stage, name), "{name}");
        stage.api.remove(&queue_path(name));
        stage.echo_queue(name);
    }
    stage.settle().await;
    assert!(!there(&stage, "x"));
    assert!(there(&stage, "written"), "somebody has written in it");
    assert!(there(&stage, "theirs"));
}
