#![allow(clippy::unwrap_used)]
use super::*;
use crds::capacity_policy::CapacityPolicy;
use crds::kubernetes::Namespace;
use crds::muster_config::MusterConfig;
use crds::namespace_queue::NamespaceQueue;
use crds::queue::Queue;
use insta::assert_snapshot;
use runtime::{Delta, ObjectKey};
use serde::de::DeserializeOwned;
use serde_json::json;

const NOW: &str = "2026-11-30T12:00:00Z";

fn read<T: DeserializeOwned>(object: Value) -> T {
    serde_json::from_value(object).unwrap()
}

/// What a process knows whose watches have listed.
struct Known {
    queues: QueueIndex,
    published: PublishedIndex,
}

impl Known {
    /// A namespace `team` and a queue `gold` without a policy.
    fn new() -> Self {
        let known = Self {
            queues: QueueIndex::default(),
            published: PublishedIndex::default(),
        };
        let namespace =
            json!({"metadata": {"name": "team", "labels": {"muster.io/managed": "true"}}});
        let queues = &known.queues;
        queues.namespace(Delta::Upserted(read::<Namespace>(namespace)));
        queues.namespace(Delta::Listed);
        queues.policy(Delta::Listed);
        queues.config(Delta::<MusterConfig>::Listed);
        let queue = json!({"metadata": {"name": "gold"}, "spec": {}});
        known.published.queue(Delta::Upserted(read::<Queue>(queue)));
        known.published.queue(Delta::Listed);
        known
    }

    fn policy(self, spec: Value, status: Value) -> Self {
        let policy = json!({"metadata": {"name": "gold"}, "spec": spec, "status": status});
        let delta = Delta::Upserted(read::<CapacityPolicy>(policy));
        self.published.policy(&delta);
        self.queues.policy(delta);
        self
    }

    fn shown(self, namespace: &str, status: Value) -> Self {
        let metadata = json!({"name": "gold", "namespace": namespace});
        let queue = json!({"metadata": metadata, "spec": {}, "status": status});
        let queue = read::<NamespaceQueue>(queue);
        self.published.of_namespace(Delta::Upserted(queue));
        self
    }

    /// The warning about a job of one pod with `gpus` in the queue `queue`.
    fn says(&self, queue: &str, gpus: u32) -> String {
        self.says_of(&request("CREATE", job(queue, gpus), Value::Null))
    }

    fn says_of(&self, request: &Value) -> String {
        let request = read(request.clone());
        of_template(
            &request,
            &self.queues,
            &self.published,
            NOW.parse().unwrap(),
        )
        .join("\n")
    }
}

fn job(queue: &str, gpus: u32) -> Value {
    let container = json!({"name": "c", "resources": {"limits": {"nvidia.com/gpu": gpus}}});
    json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": "train", "labels": {"muster.io/queue": queue}},
        "spec": {"template": {"spec": {"containers": [container]}}},
    })
}

fn request(operation: &str, object: Value, old: Value) -> Value {
    json!({
        "uid": "u", "operation": operation, "namespace": "team", "name": "train",
        "kind": {"group": "batch", "version": "v1", "kind": "Job"},
        "object": object, "oldObject": old,
    })
}

/// What a queue of 32 GPUs shows with `used` of them charged, `free` on nodes, and pending jobs.
fn gpus(used: u32, free: u32, pending: u32) -> Value {
    let gpus = json!({
        "name": "nvidia.com/gpu", "used": "0", "pending": "0", "queueUsed": used.to_string(),
        "queueLimit": "32", "freeInClusters": free.to_string(),
    });
    json!({"resources": [gpus], "queuePending": pending})
}

#[test]
fn a_job_reads_its_position_its_start_and_what_it_lacks() {
    let mut three = gpus(28, 2, 3);
    three["lastPendingStart"] = json!("2026-11-30T12:19:30Z");
    let mut passed = gpus(28, 2, 3);
    passed["lastPendingStart"] = json!("2026-11-30T11:59:59Z");
    let says = |status: &Value, gpus| {
        Known::new()
            .shown("team", status.clone())
            .says("gold", gpus)
    };
    let all = [
        says(&gpus(0, 64, 0), 4),
        says(&three, 4),
        says(&three, 12),
        says(&passed, 2),
        says(&gpus(28, 64, 0), 12),
        says(&three, 33),
    ];
    assert_snapshot!(all.join("\n"), @r#"
    queue gold: position 1, expected to start at once
    queue gold: position 4, expected to start in about 20 min; would start now with 2 more nvidia.com/gpu free in clusters
    queue gold: position 4, expected to start in about 20 min; would start now with 8 more nvidia.com/gpu of quota and 10 more nvidia.com/gpu free in clusters
    queue gold: position 4
    queue gold: position 1; would start now with 8 more nvidia.com/gpu of quota
    queue gold can give a job of this namespace nvidia.com/gpu 32 at most, and it requests 33: it cannot start. Ask for less, or name a larger queue; a queue admin may raise the capability.
    "#);
}

#[test]
fn what_another_namespace_shows_of_the_whole_queue_counts_but_not_its_own_limits() {
    let mut other = gpus(28, 64, 3);
    other["resources"][0]["limit"] = json!("1");
    let closed = json!([{
        "type": "Open", "status": "False", "reason": "QueueNotPermitted", "message": "of other",
        "lastTransitionTime": NOW,
    }]);
    other["conditions"] = closed;
    let known = Known::new().shown("other", other);
    assert_snapshot!(known.says("gold", 12), @"queue gold: position 4; would start now with 8 more nvidia.com/gpu of quota");
    // The limits of its own namespace do.
    let mut own = gpus(0, 64, 0);
    own["resources"][0]["limit"] = json!("8");
    own["resources"][0]["used"] = json!("6");
    let known = known.shown("team", own);
    assert_snapshot!([known.says("gold", 4), known.says("gold", 9)].join("\n"), @r#"
    queue gold: position 1; would start now with 2 more nvidia.com/gpu of quota
    queue gold can give a job of this namespace nvidia.com/gpu 8 at most, and it requests 9: it cannot start. Ask for less, or name a larger queue; a queue admin may raise the capability.
    "#);
}

#[test]
fn the_status_of_the_policy_is_newer_and_alone_enough() {
    let gpus_of_policy = |allocated: &str| {
        let gpus = json!({
            "name": "nvidia.com/gpu", "allocated": allocated, "pending": "0", "realCapability": "32",
        });
        json!({"resources": [gpus], "counts": {"pending": 1}})
    };
    let alone = Known::new().policy(json!({}), gpus_of_policy("30"));
    let newer = Known::new()
        .policy(json!({}), gpus_of_policy("30"))
        .shown("team", gpus(0, 64, 0));
    assert_snapshot!([alone.says("gold", 4), newer.says("gold", 4)].join("\n"), @r#"
    queue gold: position 2; would start now with 2 more nvidia.com/gpu of quota
    queue gold: position 2; would start now with 2 more nvidia.com/gpu of quota
    "#);
}

#[test]
fn a_queue_that_takes_no_jobs_is_said_to() {
    let stopped = |word: &str| Known::new().policy(json!({"stopPolicy": word}), Value::Null);
    let condition = |reason: &str, message: &str| {
        json!({"conditions": [{
            "type": "Open", "status": "False", "reason": reason, "message": message,
            "lastTransitionTime": NOW,
        }]})
    };
    let own = condition("QueueClosed", "queue gold is closed;\nopen it");
    let named = condition("QueueInvalid", "queue gold is below secret-of-another");
    let all = [
        Known::new().says("golf", 1),
        stopped("Hold").says("gold", 1),
        stopped("HoldAndDrain").says("gold", 1),
        Known::new().shown("team", own).says("gold", 1),
        Known::new().policy(json!({}), named).says("gold", 1),
    ];
    assert_snapshot!(all.join("\n"), @r#"
    queue golf does not exist: the job waits; create it, or name another (label muster.io/queue)
    queue gold is stopped (spec.stopPolicy of capacitypolicy gold is Hold): the job waits until it is resumed
    queue gold is stopped (spec.stopPolicy of capacitypolicy gold is HoldAndDrain): the job waits until it is resumed
    queue gold is closed; open it
    queue gold takes no jobs at present: QueueInvalid
    "#);
}

#[test]
fn nothing_is_said_of_what_is_not_known() {
    let nothing = Known {
        queues: QueueIndex::default(),
        published: PublishedIndex::default(),
    };
    assert_eq!(nothing.says("gold", 1), "", "nothing has been listed");
    assert_eq!(Known::new().says("gold", 1), "", "nothing is published");
    // A policy that states its queue is one, also before there is a Queue.
    let stated = json!({"resources": [{"name": "nvidia.com/gpu", "capability": "8"}]});
    let known = Known::new().policy(stated, Value::Null);
    known.published.queue(Delta::Gone(ObjectKey {
        namespace: None,
        name: "gold".to_owned(),
    }));
    assert_eq!(known.says("gold", 1), "");
}

#[test]
fn only_a_job_that_comes_to_compete_has_a_line() {
    let known = Known::new().shown("team", gpus(0, 64, 0));
    let said = known.says("gold", 4);
    assert_ne!(said, "");
    let with = |change: fn(&mut Value)| {
        let mut job = job("gold", 4);
        change(&mut job);
        job
    };
    let held = with(|job| job["metadata"]["labels"]["muster.io/hold"] = json!("true"));
    let suspended = with(|job| job["spec"]["suspend"] = json!(true));
    for job in [held, suspended] {
        assert_eq!(known.says_of(&request("CREATE", job, Value::Null)), "");
    }
    let (here, elsewhere) = (job("gold", 4), job("other", 4));
    assert_eq!(
        known.says_of(&request("UPDATE", here.clone(), here.clone())),
        ""
    );
    assert_eq!(known.says_of(&request("UPDATE", here, elsewhere)), said);
    assert_eq!(
        known.says_of(&request("DELETE", Value::Null, job("gold", 4))),
        ""
    );
}

#[test]
fn a_line_is_short_and_one_line() {
    assert_eq!(short("a\nb\r".to_owned()), "a b ");
    let long = short("ü".repeat(300));
    assert_eq!(long.chars().count(), 256);
    assert!(long.ends_with("ü…"));
}

#[test]
fn a_wait_is_as_rough_as_an_estimate() {
    let waits = [5, 90, 91, 1_200, 7_200, 7_201, 90_000, 200_000].map(duration);
    assert_snapshot!(waits.join(", "), @"a minute, a minute, 2 min, 20 min, 120 min, 2 h, 25 h, 2 days");
}
