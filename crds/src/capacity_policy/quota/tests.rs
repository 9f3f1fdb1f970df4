#![allow(clippy::unwrap_used)]

use super::*;
use serde_json::{Value, json};

fn queue(spec: Value) -> Queue {
    serde_json::from_value(json!({"metadata": {"name": "q"}, "spec": spec})).unwrap()
}

fn policy(spec: Value) -> CapacityPolicy {
    serde_json::from_value(json!({
        "apiVersion": "muster.io/v1alpha2", "kind": "CapacityPolicy", "metadata": {"name": "q"}, "spec": spec,
    }))
    .unwrap()
}

fn gpus(capability: &str) -> Value {
    json!([{"name": "nvidia.com/gpu", "capability": capability}])
}

#[test]
fn either_object_alone_states_the_whole_queue() {
    let resources = json!([
        {"name": "nvidia.com/gpu", "guarantee": 2, "deserved": "4", "capability": 8}, {"name": "cpu", "capability": "64"},
    ]);
    let in_policy = policy(json!({"parent": "lab", "resources": resources}));
    let in_queue = queue(json!({
        "parent": "lab", "guarantee": {"resource": {"nvidia.com/gpu": 2}}, "deserved": {"nvidia.com/gpu": "4"},
        "capability": {"nvidia.com/gpu": 8, "cpu": "64"},
    }));
    let by_policy = Queue::of_policy("q").with_policy(Some(&in_policy)).unwrap();
    let by_queue = in_queue.with_policy(Some(&policy(json!({})))).unwrap();
    assert_eq!(by_policy.queue.to_fact(), by_queue.queue.to_fact());
    // Both may state the same, in other words too.
    let by_both = in_queue
        .with_policy(Some(&policy(
            json!({"parent": "lab", "resources": gpus("8000m")}),
        )))
        .unwrap();
    assert_eq!(by_both.queue.to_fact(), by_queue.queue.to_fact());
    for stated in [by_policy, by_queue, by_both] {
        assert_eq!(stated.conflicts, Vec::<String>::new());
    }
}

#[test]
fn of_two_amounts_the_lower_counts_and_both_objects_are_named() {
    for (in_queue, in_policy, want, says) in [
        (
            "16",
            "24",
            "nvidia.com/gpu 16",
            "capability of nvidia.com/gpu is 16 in Queue q and 24 in spec.resources of CapacityPolicy q: the lower counts",
        ),
        (
            "24",
            "16",
            "nvidia.com/gpu 16",
            "capability of nvidia.com/gpu is 24 in Queue q and 16 in spec.resources of CapacityPolicy q: the lower counts",
        ),
    ] {
        let queue = queue(json!({"capability": {"nvidia.com/gpu": in_queue}}));
        let stated = queue
            .with_policy(Some(&policy(json!({"resources": gpus(in_policy)}))))
            .unwrap();
        assert_eq!(stated.queue.to_fact().capability.to_string(), want);
        assert_eq!(stated.conflicts, [says]);
    }
    let queue = queue(json!({"parent": "lab"}));
    let stated = queue
        .with_policy(Some(&policy(json!({"parent": "other"}))))
        .unwrap();
    assert_eq!(stated.queue.parent(), Some("lab".into()));
    let says = "parent is lab in Queue q and other in spec.parent of CapacityPolicy q: that of the Queue counts";
    assert_eq!(stated.conflicts, [says]);
}

#[test]
fn an_amount_that_cannot_be_read_stops_the_queue() {
    let wrong = policy(json!({"resources": gpus("8x")}));
    let problem = wrong.to_fact(None).invalid.unwrap();
    assert!(
        problem.starts_with("spec.resources.capability[nvidia.com/gpu]: quantity \"8x\""),
        "{problem}"
    );
    assert!(
        Queue::of_policy("q")
            .with_policy(Some(&wrong))
            .unwrap()
            .queue
            .to_fact()
            .invalid
            .is_some()
    );
    let other_type = policy(json!({"resources": {"nvidia.com/gpu": 8}}));
    assert!(other_type.states_queue());
    assert!(
        other_type
            .to_fact(None)
            .invalid
            .unwrap()
            .starts_with("spec.resources: {")
    );
}

#[test]
fn the_queue_of_a_policy_is_none_once_the_policy_does_not_state_it() {
    let made = Queue::of_policy("q");
    for policy in [None, Some(policy(json!({"ordering": "StrictFIFO"})))] {
        assert_eq!(made.with_policy(policy.as_ref()), None);
    }
    // Whatever else is stated in it, without an amount it would have no bounds.
    for (spec, is_made) in [
        (
            json!({"weight": 1, "reclaimable": true, "parent": "root", "guarantee": {}}),
            true,
        ),
        (
            json!({"weight": 2, "reclaimable": false, "parent": "lab", "dequeueStrategy": "fifo"}),
            true,
        ),
        (json!({"capability": {"cpu": 1}}), false),
        (json!({"deserved": {"cpu": 1}}), false),
        (json!({"guarantee": {"resource": {"cpu": 1}}}), false),
    ] {
        let mut edited = made.clone();
        edited.spec = queue(spec.clone()).spec;
        assert_eq!(edited.is_of_policy(), is_made, "{spec}");
        assert_eq!(edited.with_policy(None).is_none(), is_made, "{spec}");
    }
    // That of a person stays one, as in Volcano.
    assert!(queue(json!({})).with_policy(None).is_some());
}

#[test]
fn the_root_that_volcano_writes_is_no_parent_of_its_own() {
    let queue = queue(json!({"parent": "root", "capability": {"cpu": 1}}));
    let stated = queue
        .with_policy(Some(&policy(json!({"parent": "lab"}))))
        .unwrap();
    assert_eq!(
        (stated.queue.parent(), stated.conflicts),
        (Some("lab".into()), Vec::new())
    );
}
