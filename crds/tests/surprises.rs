//! A LIST is decoded as a whole: an object with unexpected values must not hide the others, whatever its
//! kind.
#![allow(clippy::unwrap_used)]

use crds::capacity_policy::CapacityPolicy;
use crds::gpu_pool::GpuPool;
use crds::karmada::{Cluster, ResourceBinding, Work};
use crds::kubernetes::{Namespace, Node, Pod, PriorityClass};
use crds::podgroup::PodGroup;
use crds::queue::Queue;
use kube::core::ObjectList;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// Decodes a LIST of an ordinary object called `plain` and of `surprise`.
fn list<K: DeserializeOwned + Clone + kube::Resource>(plain: Value, surprise: Value) -> Vec<K> {
    let body = json!({
        "apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": "1"},
        "items": [plain, surprise],
    });
    let list: ObjectList<K> = serde_json::from_value(body).unwrap();
    assert_eq!(list.items.len(), 2);
    assert_eq!(list.items[0].meta().name.as_deref(), Some("plain"));
    list.items
}

fn named(extra: Value) -> Value {
    let mut object = json!({"metadata": {"name": "plain", "uid": "u-1"}});
    object
        .as_object_mut()
        .unwrap()
        .extend(extra.as_object().unwrap().clone());
    object
}

#[test]
fn volcano() {
    let queues: Vec<Queue> = list(
        named(json!({"spec": {"weight": 2, "capability": {"cpu": 4}}})),
        json!({
            "metadata": {"name": "odd"},
            "spec": {
                "weight": "heavy", "parent": 7, "capability": {"cpu": true, "memory": null},
                "guarantee": "all", "reclaimable": "yes", "dequeueStrategy": {"new": 1}, "later": [],
            },
            "status": {"state": "Draining", "allocated": null},
        }),
    );
    assert_eq!(queues[0].spec.weight, Some(2));
    assert!(
        queues[1]
            .to_fact()
            .invalid
            .unwrap()
            .starts_with("spec.capability[cpu]")
    );

    let groups: Vec<PodGroup> = list(
        named(json!({"spec": {"minMember": 3, "queue": "a"}})),
        json!({
            "metadata": {"name": "odd"},
            "spec": {"minMember": "three", "minResources": [1], "subGroupPolicy": {}},
            "status": {"phase": "Dreaming", "conditions": [{"type": 1}], "federation": []},
        }),
    );
    assert_eq!(groups[0].spec.min_member, Some(3));
    assert_eq!(
        groups[1].status.clone().unwrap().phase.as_deref(),
        Some("Dreaming")
    );
}

#[test]
fn muster() {
    let policies: Vec<CapacityPolicy> = list(
        named(json!({
            "apiVersion": "muster.io/v1alpha2", "kind": "CapacityPolicy",
            "spec": {"ordering": "BestEffort"},
        })),
        json!({
            "apiVersion": "muster.io/v1alpha2", "kind": "CapacityPolicy",
            "metadata": {"name": "odd"},
            "spec": {
                "ordering": "Auction", "pools": [{"class": "cpu", "resources": [{"name": "cpu", "price": 1}]}],
                "fairShare": 3, "placement": {"maxClusters": "two"}, "limits": "few", "later": {},
            },
            "status": {"counts": "many", "conditions": {}, "head": 1},
        }),
    );
    let odd = policies[1].to_fact(None).invalid.unwrap();
    assert!(odd.starts_with("spec.ordering"), "{odd}");

    let pool = |extra| {
        let mut pool = json!({"apiVersion": "muster.io/v1alpha2", "kind": "GpuPool"});
        pool.as_object_mut()
            .unwrap()
            .extend(named(extra).as_object().unwrap().clone());
        pool
    };
    let _: Vec<GpuPool> = list(
        pool(json!({"spec": {"cluster": "a", "class": "cpu", "device": "cpu"}})),
        pool(json!({"spec": {}, "status": {"health": "Dim", "histogram": "none", "lastSeen": 4}})),
    );
}

#[test]
fn karmada() {
    let bindings: Vec<ResourceBinding> = list(
        named(json!({"spec": {"clusters": [{"name": "m1", "replicas": 2}]}})),
        json!({
            "metadata": {"name": "odd", "managedFields": [{"fieldsV1": {"f:spec": {}}}]},
            "spec": {
                "clusters": null, "components": [{"name": 1}], "conflictResolution": "Maybe",
                "suspension": {"dispatchingOnClusters": {"clusterNames": null}, "later": true},
                "schedulePriority": {"priority": 3},
            },
            "status": {"conditions": null, "aggregatedStatus": [{"health": "Radiant", "status": 7}]},
        }),
    );
    assert_eq!(bindings[0].spec.clusters[0].replicas, Some(2));
    assert_eq!(bindings[1].status.aggregated_status[0].health, "Radiant");

    let works: Vec<Work> = list(
        named(json!({"spec": {"workload": {"manifests": [
            {"metadata": {"annotations": null}, "kind": "Job"}, {"metadata": null},
            {"metadata": {"annotations": {"muster.io/part": "p", "theirs": "x"}}, "spec": {"tasks": 1}},
        ]}}})),
        json!({"metadata": {}, "spec": {"workload": null}, "status": {"conditions": null}}),
    );
    assert_eq!(works[0].part(), Some("p"));
    assert_eq!(works[1].part(), None);
    let clusters: Vec<Cluster> = list(
        named(json!({"spec": {"syncMode": "Push"}})),
        json!({
            "metadata": {"name": "odd"},
            "spec": {"syncMode": "Float", "taints": [{"key": "k", "effect": "Vanish"}], "zones": null},
            "status": {"apiEnablements": [{"groupVersion": "v1", "resources": null}], "remedyActions": [1]},
        }),
    );
    assert_eq!(clusters[1].spec.sync_mode, "Float");
}

#[test]
fn kubernetes() {
    let nodes: Vec<Node> = list(
        named(json!({"status": {"allocatable": {"cpu": "4"}}})),
        json!({
            "metadata": {"name": "odd", "labels": null},
            "spec": {"taints": [{"key": "k", "effect": "Vanish", "timeAdded": null}]},
            "status": {
                "allocatable": {"cpu": "lots", "memory": 5}, "conditions": [{"type": "Ready", "status": "Perhaps"}],
                "features": {"x": 1},
            },
        }),
    );
    let fact = nodes[1].to_fact(&"m1".into());
    assert!(!fact.usable);
    assert_eq!(fact.allocatable.to_string(), "memory 5");

    let pods: Vec<Pod> = list(
        named(json!({"spec": {"nodeName": "n1", "containers": [{"name": "c"}]}})),
        json!({
            "metadata": {"name": "odd", "ownerReferences": null},
            "spec": {"containers": [{"name": "c", "resources": {"requests": null, "claims": [{}]}}], "initContainers": null},
            "status": {"phase": "Floating"},
        }),
    );
    assert_eq!(pods[1].phase(), facts::PodPhase::Starting);

    let _: Vec<Namespace> = list(
        named(json!({})),
        json!({"metadata": {}, "status": {"phase": "Gone"}}),
    );
    let _: Vec<PriorityClass> = list(
        named(json!({"value": 10})),
        json!({"metadata": {"name": "odd"}, "value": -5, "preemptionPolicy": "Sometimes"}),
    );
}
