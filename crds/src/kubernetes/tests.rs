#![allow(clippy::unwrap_used)]
use super::*;
use serde_json::{Value, json};

#[test]
fn nodes_with_interchangeable_devices_have_the_same_class() {
    for (product, allocatable, want) in [
        (
            Some("NVIDIA-A100-SXM4-80GB"),
            vec![("nvidia.com/gpu", "8")],
            "nvidia-a100-sxm4-80gb",
        ),
        (
            Some("NVIDIA A100 80GB PCIe, MIG 1g.10gb"),
            vec![],
            "nvidia-a100-80gb-pcie-mig-1g-10gb",
        ),
        (Some("  "), vec![("nvidia.com/gpu", "8")], "nvidia-com-gpu"),
        (
            None,
            vec![
                ("cpu", "8"),
                ("mellanox.com/rdma", "1"),
                ("nvidia.com/gpu", "0"),
            ],
            "nvidia-com-gpu",
        ),
        (
            None,
            vec![("huawei.com/Ascend910", "8")],
            "huawei-com-ascend910",
        ),
        (None, vec![("rdma/hca", "1")], "rdma-hca"),
        (None, vec![("cpu", "8"), ("hugepages-2Mi", "0")], "cpu"),
    ] {
        let labels = product.map(|text| (GPU_PRODUCT_LABEL.to_owned(), text.to_owned()));
        let allocatable = Resources::parse(allocatable).unwrap();
        let class = pool_class(&labels.into_iter().collect(), &allocatable);
        assert_eq!(class.as_str(), want, "{product:?}");
    }
}

#[test]
fn parts_of_gpus_are_classes_of_their_own() {
    let a100 = (GPU_PRODUCT_LABEL, "NVIDIA-A100-SXM4-40GB");
    let of_parts = (
        "nvidia.com/mig-1g.5gb.product",
        "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb",
    );
    for (labels, allocatable, want) in [
        // MIG, strategy mixed: all of its GPUs are divided.
        (
            vec![a100, of_parts],
            vec![("nvidia.com/gpu", "0"), ("nvidia.com/mig-1g.5gb", "56")],
            "nvidia-a100-sxm4-40gb-mig-1g-5gb",
        ),
        (
            vec![a100],
            vec![
                ("mellanox.com/rdma", "1"),
                ("nvidia.com/mig-2g.10gb", "3"),
                ("nvidia.com/mig-1g.5gb", "7"),
            ],
            "nvidia-a100-sxm4-40gb-mig-1g-5gb",
        ),
        // Some GPUs are whole: the node is counted in these.
        (
            vec![a100, of_parts],
            vec![("nvidia.com/gpu", "4"), ("nvidia.com/mig-1g.5gb", "28")],
            "nvidia-a100-sxm4-40gb",
        ),
        (
            vec![a100],
            vec![("nvidia.com/gpu.shared", "32")],
            "nvidia-a100-sxm4-40gb-shared",
        ),
        // Strategy single, and time slices under the old name, are in the label.
        (
            vec![(GPU_PRODUCT_LABEL, "NVIDIA-A100-SXM4-40GB-SHARED")],
            vec![("nvidia.com/gpu", "32")],
            "nvidia-a100-sxm4-40gb-shared",
        ),
        // The device plugin has failed: the class of the node does not change.
        (
            vec![a100, of_parts],
            vec![("nvidia.com/gpu", "0"), ("nvidia.com/mig-1g.5gb", "0")],
            "nvidia-a100-sxm4-40gb",
        ),
        (
            vec![a100, of_parts],
            vec![("nvidia.com/mig-1g.5gb", "0")],
            "nvidia-a100-sxm4-40gb-mig-1g-5gb",
        ),
    ] {
        let labels = labels
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
        let resources = Resources::parse(allocatable.clone()).unwrap();
        let class = pool_class(&labels.collect(), &resources);
        assert_eq!(class.as_str(), want, "{allocatable:?}");
    }
}

#[test]
fn nodes_without_gpu_names_are_classed_by_their_device_class() {
    const GPU: &str = "deviceclass.resource.kubernetes.io/gpu.nvidia.com";
    const NIC: &str = "deviceclass.resource.kubernetes.io/a-nic.example.com";
    for (product, allocatable, class, counted_by) in [
        (None, vec![(GPU, "8")], "gpu-nvidia-com", GPU),
        (None, vec![(GPU, "0"), (NIC, "2")], "gpu-nvidia-com", GPU),
        (None, vec![(NIC, "2")], "a-nic-example-com", NIC),
        (Some("NVIDIA-H100"), vec![(GPU, "8")], "nvidia-h100", GPU),
        // Both may offer the same GPUs: they are one class, and counted once.
        (
            Some("NVIDIA-H100"),
            vec![(GPU, "8"), ("nvidia.com/gpu", "8")],
            "nvidia-h100",
            "nvidia.com/gpu",
        ),
        (
            None,
            vec![(GPU, "8"), ("rdma/hca", "1")],
            "gpu-nvidia-com",
            GPU,
        ),
    ] {
        let labels = product.map(|text| (GPU_PRODUCT_LABEL.to_owned(), text.to_owned()));
        let resources = Resources::parse(allocatable.clone()).unwrap();
        let found = pool_class(&labels.into_iter().collect(), &resources);
        assert_eq!(found.as_str(), class, "{allocatable:?}");
        let found = device(&resources).unwrap();
        assert_eq!(found.as_str(), counted_by, "{allocatable:?}");
    }
}

#[test]
fn domains_are_named_outermost_first() {
    let domains = |labels: Value| -> Vec<String> {
        let node: Node =
            serde_json::from_value(json!({"metadata": {"name": "n", "labels": labels}})).unwrap();
        node.to_fact(&"m1".into()).domains
    };
    assert_eq!(
        domains(json!({"topology.kubernetes.io/rack": "r1", "topology.kubernetes.io/zone": "a"})),
        ["a", "r1"]
    );
    assert_eq!(
        domains(json!({"volcano.sh/tor": "t", "topology.kubernetes.io/zone": ""})),
        ["t"]
    );
    assert!(domains(json!({})).is_empty());
}

#[test]
fn a_class_that_never_preempts_says_so() {
    for (policy, want) in [
        (json!(null), true),
        (json!("PreemptLowerPriority"), true),
        (json!("Never"), false),
    ] {
        let class: PriorityClass =
            serde_json::from_value(json!({"value": 1, "preemptionPolicy": policy})).unwrap();
        assert_eq!(class.to_fact().preempts, want, "{policy}");
    }
}

#[test]
fn a_cordon_is_no_taint() {
    let node: Node = serde_json::from_value(json!({
        "metadata": {"name": "n1", "labels": {"zone": "z"}},
        "spec": {"unschedulable": true, "taints": [
            {"key": CORDON_TAINT, "effect": "NoSchedule"}, {"key": "gpu", "value": "a", "effect": "NoExecute"},
        ]},
        "status": {"allocatable": {"cpu": "8", "pods": "110"}, "conditions": [{"type": "Ready", "status": "True"}]},
    }))
    .unwrap();
    let fact = node.to_fact(&"m1".into());
    assert!(!fact.usable);
    assert_eq!(fact.taints.len(), 1);
    assert_eq!(fact.allocatable.to_string(), "cpu 8, pods 110");

    let uncordoned = Node {
        spec: NodeSpec::default(),
        ..node
    };
    assert!(uncordoned.is_usable());
}

#[test]
fn a_node_that_is_not_ready_or_is_deleted_is_lost_and_a_cordoned_one_is_not() {
    let lost = |metadata: Value, spec: Value, ready: &str| {
        let node = json!({
            "metadata": metadata,
            "spec": spec,
            "status": {"conditions": [{"type": "Ready", "status": ready}]},
        });
        let node: Node = serde_json::from_value(node).unwrap();
        let fact = node.to_fact(&"m1".into());
        (fact.usable, fact.lost)
    };
    let (named, deleted) = (
        json!({"name": "n"}),
        json!({"name": "n", "deletionTimestamp": "2026-11-24T00:00:00Z"}),
    );
    let cordoned = json!({"unschedulable": true});
    assert_eq!(lost(named.clone(), json!({}), "True"), (true, false));
    assert_eq!(lost(named.clone(), cordoned, "True"), (false, false));
    assert_eq!(lost(named.clone(), json!({}), "False"), (false, true));
    assert_eq!(lost(named, json!({}), "Unknown"), (false, true));
    assert_eq!(lost(deleted, json!({}), "True"), (false, true));
}

#[test]
fn a_pod_requests_what_its_containers_do() {
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"name": "p", "uid": "u"},
        "spec": {
            "nodeName": "n1",
            "containers": [
                {"name": "a", "image": "x", "resources": {"requests": {"cpu": "500m"}, "limits": {"nvidia.com/gpu": 2}}},
                {"name": "b", "resources": {"requests": {"cpu": 1}}},
            ],
            "initContainers": [{"name": "i", "resources": {"requests": {"cpu": "2"}}}],
            "overhead": {"cpu": "250m"},
        },
        "status": {"phase": "Running"},
    }))
    .unwrap();
    let fact = pod.to_fact(&"m1".into(), None).unwrap();
    assert_eq!(
        fact.request.to_string(),
        "cpu 2250m, nvidia.com/gpu 2, pods 1"
    );
    assert_eq!(
        (fact.node.clone(), fact.ended()),
        (Some(NodeName::new("n1")), false)
    );
}

#[test]
fn system_namespaces_are_never_managed() {
    let namespace = |name: &str, managed: &str| -> Namespace {
        serde_json::from_value(
            json!({"metadata": {"name": name, "labels": {MANAGED_LABEL: managed}}}),
        )
        .unwrap()
    };
    assert!(namespace("team-a", "true").is_managed());
    assert!(!namespace("team-a", "false").is_managed());
    assert!(!namespace("karmada-es-m1", "true").is_managed());
}

#[test]
fn slim_metadata_drops_large_fields_only() {
    let pod: Pod = serde_json::from_value(json!({"metadata": {
        "name": "p", "uid": "u", "resourceVersion": "9", "labels": {"a": "b"},
        "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}", "muster.io/run-for": "3s"},
        "ownerReferences": [{"apiVersion": "v1", "kind": "Job", "name": "j", "uid": "o"}],
        "managedFields": [{"manager": "m", "fieldsV1": {"f:spec": {"f:x": {}}}}],
    }}))
    .unwrap();
    assert_eq!(pod.metadata.managed_fields, None);
    assert_eq!(pod.metadata.annotations.unwrap().len(), 1);
    assert_eq!(pod.metadata.owner_references.unwrap()[0].name, "j");
    assert_eq!(pod.metadata.resource_version.as_deref(), Some("9"));
}
