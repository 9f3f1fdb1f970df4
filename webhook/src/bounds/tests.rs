#![allow(clippy::unwrap_used)]
use super::*;
use runtime::Delta;
use serde_json::json;

fn policy(name: &str, parent: &str, gpus: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {
        "parent": parent, "resources": [{"name": "nvidia.com/gpu", "capability": gpus}],
    }})
}

/// The warnings about a policy `low`, whose parent is below `top`.
fn says(new: &Value, old: &Value, [middle, top]: [&str; 2]) -> Vec<String> {
    let (queues, published) = (QueueIndex::default(), PublishedIndex::default());
    for policy in [
        policy("middle", "top", middle),
        policy("low", "middle", "1"),
    ] {
        queues.policy(Delta::Upserted(serde_json::from_value(policy).unwrap()));
    }
    let top = json!({"metadata": {"name": "top"}, "spec": {"capability": {"nvidia.com/gpu": top}}});
    published.queue(Delta::Upserted(serde_json::from_value(top).unwrap()));
    let request = json!({
        "uid": "u", "operation": "UPDATE", "name": "low",
        "kind": {"group": "muster.io", "version": "v1alpha2", "kind": "CapacityPolicy"},
        "object": new, "oldObject": old,
    });
    of_policy(
        &serde_json::from_value(request).unwrap(),
        &queues,
        &published,
    )
}

#[test]
fn a_capability_above_that_of_a_queue_above_it_names_both() {
    let low = |gpus| policy("low", "middle", gpus);
    let none = Value::Null;
    assert_eq!(
        says(&low("64"), &none, ["32", "16"]),
        [
            "capability of nvidia.com/gpu is 64 and that of queue middle above it is 32: queue low can use 32 at most"
        ]
    );
    assert_eq!(
        says(&low("64"), &low("8"), ["64", "16"]),
        [
            "capability of nvidia.com/gpu is 64 and that of queue top above it is 16: queue low can use 16 at most"
        ]
    );
    for quiet in [
        low("16"),
        policy("low", "nothing", "64"),
        policy("low", "low", "64"),
    ] {
        assert_eq!(
            says(&quiet, &none, ["16", "16"]),
            Vec::<String>::new(),
            "{quiet}"
        );
    }
    assert_eq!(
        says(&low("64"), &low("64"), ["32", "16"]),
        Vec::<String>::new(),
        "it says so already"
    );
}
