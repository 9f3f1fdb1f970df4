#![allow(clippy::unwrap_used)]
use super::*;

mod rules;

use serde_json::{Value, json};

const GPU: &str = "device.driver == 'gpu.x' && device.attributes['gpu.x'].type == 'gpu'";

fn class(name: &str, expression: &str) -> DeviceDelta {
    let class = json!({
        "metadata": {"name": name},
        "spec": {"selectors": [{"cel": {"expression": expression}}]},
    });
    DeviceDelta::Class(Delta::Upserted(serde_json::from_value(class).unwrap()))
}

fn gpu(name: &str) -> Value {
    json!({"name": name, "attributes": {"type": {"string": "gpu"}}})
}

fn gpus(count: u32) -> Vec<Value> {
    (0..count)
        .map(|index| gpu(&format!("gpu-{index}")))
        .collect()
}

fn with(mut device: Value, key: &str, value: Value) -> Value {
    device[key] = value;
    device
}

/// A slice of the pool of `node`, one of `slices` in its generation.
fn slice(name: &str, node: &str, generation: i64, slices: i64, devices: &[Value]) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {
            "driver": "gpu.x", "nodeName": node, "devices": devices,
            "pool": {"name": node, "generation": generation, "resourceSliceCount": slices},
        },
    })
}

/// Devices with the class `gpu` and these slices, after all kinds have listed.
fn known(slices: &[Value]) -> Devices {
    let mut devices = Devices::default();
    devices.take(class("gpu", GPU));
    for slice in slices {
        let slice = serde_json::from_value(slice.clone()).unwrap();
        devices.take(DeviceDelta::Slice(Delta::Upserted(slice)));
    }
    for listed in [
        DeviceDelta::Class(Delta::Listed),
        DeviceDelta::Claim(Delta::Listed),
        DeviceDelta::Rule(Delta::Listed),
        DeviceDelta::Slice(Delta::Listed),
    ] {
        devices.take(listed);
    }
    assert!(devices.has_listed());
    devices
}

/// Returns what each node has.
fn offered(devices: &Devices) -> String {
    let nodes = devices.nodes().map(|node| {
        let has = devices.of_node(node).unwrap().to_string();
        format!(
            "{node}: {}",
            has.replace("deviceclass.resource.kubernetes.io/", "")
        )
    });
    nodes.collect::<Vec<_>>().join("; ")
}

#[test]
fn only_healthy_indivisible_devices_of_the_newest_complete_pool_count() {
    let at_n1 = |devices: &[Value]| vec![slice("a", "n1", 1, 1, devices)];
    let taint = |effect: &str| json!([{"key": "gpu.x/broken", "effect": effect}]);
    let tainted = |effect: &str| [gpu("g"), with(gpu("bad"), "taints", taint(effect))];
    let per_device = |devices: &[Value]| {
        let mut slice = slice("a", "", 1, 1, devices);
        slice["spec"]["perDeviceNodeSelection"] = json!(true);
        slice["spec"].as_object_mut().unwrap().remove("nodeName");
        vec![slice]
    };
    let mut everywhere = slice("a", "", 1, 1, &gpus(2));
    everywhere["spec"]["allNodes"] = json!(true);
    let nic = json!({"name": "nic", "attributes": {"type": {"string": "nic"}}});
    let rows: Vec<(&str, Vec<Value>, &str)> = vec![
        ("one slice", at_n1(&gpus(4)), "n1: gpu 4"),
        (
            "of two nodes",
            vec![
                slice("a", "n1", 1, 1, &gpus(2)),
                slice("b", "n2", 7, 1, &gpus(8)),
            ],
            "n1: gpu 2; n2: gpu 8",
        ),
        (
            "of two slices",
            vec![
                slice("a", "n1", 1, 2, &[gpu("a")]),
                slice("b", "n1", 1, 2, &[gpu("b")]),
            ],
            "n1: gpu 2",
        ),
        (
            "of two slices of three",
            vec![
                slice("a", "n1", 1, 3, &[gpu("a")]),
                slice("b", "n1", 1, 3, &[gpu("b")]),
            ],
            "n1: gpu 0",
        ),
        (
            "one of an older generation",
            vec![
                slice("a", "n1", 2, 1, &gpus(3)),
                slice("b", "n1", 1, 1, &gpus(8)),
            ],
            "n1: gpu 3",
        ),
        (
            "the newer one not whole",
            vec![
                slice("a", "n1", 2, 2, &gpus(3)),
                slice("b", "n1", 1, 1, &gpus(8)),
            ],
            "n1: gpu 0",
        ),
        ("two of one name", at_n1(&[gpu("a"), gpu("a")]), "n1: gpu 0"),
        ("one NoSchedule", at_n1(&tainted("NoSchedule")), "n1: gpu 1"),
        ("one NoExecute", at_n1(&tainted("NoExecute")), "n1: gpu 1"),
        (
            "one with a taint of no effect",
            at_n1(&tainted("None")),
            "n1: gpu 2",
        ),
        (
            "a part of a device",
            at_n1(&[
                gpu("g"),
                with(gpu("p"), "consumesCounters", json!([{"counterSet": "c"}])),
            ]),
            "n1: gpu 1",
        ),
        (
            "one for many",
            at_n1(&[
                gpu("g"),
                with(gpu("m"), "allowMultipleAllocations", json!(true)),
            ]),
            "n1: gpu 1",
        ),
        (
            "each says where",
            per_device(&[
                with(gpu("a"), "nodeName", json!("n1")),
                with(gpu("b"), "nodeName", json!("n2")),
                gpu("c"),
            ]),
            "n1: gpu 1; n2: gpu 1",
        ),
        ("on no node", vec![everywhere], ""),
        ("of no class", at_n1(&[nic]), ""),
    ];
    for (what, slices, want) in rows {
        assert_eq!(offered(&known(&slices)), want, "{what}");
    }
}

#[test]
fn a_device_counts_in_every_class_unless_a_class_is_unclear() {
    let mut devices = known(&[
        slice(
            "a",
            "n1",
            1,
            1,
            &[with(
                gpu("g"),
                "attributes",
                json!({"type": {"string": "gpu"}, "model": {"string": "A"}}),
            )],
        ),
        slice("b", "n2", 1, 1, &gpus(2)),
    ]);
    devices.take(class("all", "device.driver == 'gpu.x'"));
    devices.take(class("regex", "device.driver.matches('gpu.*')"));
    assert_eq!(offered(&devices), "n1: all 1, gpu 1; n2: all 2, gpu 2");
    assert!(devices.logged["regex"].contains("uses `matches`"));
    // The devices of n2 have no model: kube-scheduler fails there and allocates none.
    devices.take(class("model", "device.attributes['gpu.x'].model == 'A'"));
    assert_eq!(
        offered(&devices),
        "n1: all 1, gpu 1, model 1; n2: all 2, gpu 2, model 0"
    );
    assert!(devices.logged["model"].contains("on node n2: device gpu-"));
    devices.take(DeviceDelta::Class(Delta::Gone(cluster_key("model"))));
    assert!(!devices.logged.contains_key("model"));
    assert_eq!(offered(&devices), "n1: all 1, gpu 1; n2: all 2, gpu 2");
}

fn cluster_key(name: &str) -> ObjectKey {
    ObjectKey {
        namespace: None,
        name: name.to_owned(),
    }
}

/// A claim of these devices of the pool of `n1`.
fn claim(devices: &[&str], admin: bool) -> SeenClaim {
    let results = devices.iter().map(|name| {
        json!({"request": "r", "driver": "gpu.x", "pool": "n1", "device": name, "adminAccess": admin})
    });
    let claim = json!({
        "metadata": {"name": "c", "namespace": "team", "uid": "c-uid"},
        "status": {"allocation": {"devices": {"results": results.collect::<Vec<_>>()}}},
    });
    SeenClaim::new(&serde_json::from_value(claim).unwrap())
}

#[test]
fn a_claim_holds_only_devices_that_count() {
    let bad = with(
        gpu("bad"),
        "taints",
        json!([{"key": "k", "effect": "NoSchedule"}]),
    );
    let mut slices = gpus(3);
    slices.push(bad);
    let mut devices = known(&[slice("a", "n1", 1, 1, &slices)]);
    devices.take(class("all", "device.driver == 'gpu.x'"));
    let held = |devices: &Devices, claim: &SeenClaim| {
        let held = devices.held(claim).into_iter();
        let held = held.map(|(node, amounts)| format!("{node}: {amounts}"));
        held.collect::<String>()
            .replace("deviceclass.resource.kubernetes.io/", "")
    };
    let rows: [(&[&str], bool, &str); 5] = [
        (&["gpu-0", "gpu-2"], false, "n1: all 2, gpu 2"),
        (&["gpu-0", "gpu-0"], false, "n1: all 1, gpu 1"),
        // A claim of a device that is not offered reduces nothing.
        (&["gpu-0", "bad"], false, "n1: all 1, gpu 1"),
        (&["unheard-of"], false, ""),
        (&["gpu-0"], true, ""),
    ];
    for (names, admin, want) in rows {
        assert_eq!(held(&devices, &claim(names, admin)), want, "{names:?}");
    }
}

#[test]
fn devices_removed_between_two_connections_are_no_longer_offered() {
    let both = [
        slice("a", "n1", 1, 1, &gpus(2)),
        slice("b", "n2", 1, 1, &gpus(2)),
    ];
    let mut devices = known(&both);
    devices.begin();
    assert!(!devices.has_listed());
    assert_eq!(offered(&devices), "n1: gpu 2; n2: gpu 2");
    let again = serde_json::from_value(both[1].clone()).unwrap();
    let touched = devices.take(DeviceDelta::Slice(Delta::Upserted(again)));
    assert!(!touched.devices, "nothing is counted before all has listed");
    devices.take(class("gpu", GPU));
    devices.take(DeviceDelta::Class(Delta::Listed));
    devices.take(DeviceDelta::Rule(Delta::Listed));
    let touched = devices.take(DeviceDelta::Slice(Delta::Listed));
    assert!(touched.devices);
    assert_eq!(offered(&devices), "n2: gpu 2");
    // An unchanged slice changes nothing.
    let again = serde_json::from_value(both[1].clone()).unwrap();
    assert!(
        !devices
            .take(DeviceDelta::Slice(Delta::Upserted(again)))
            .devices
    );
}

#[test]
fn taints_of_devices_are_conditions_of_their_nodes() {
    let taint = |key: &str, value: &str, effect: &str, at: &str| json!({"key": key, "value": value, "effect": effect, "timeAdded": at});
    let (early, late) = ("2026-11-25T10:00:00Z", "2026-11-25T11:00:00Z");
    let one = with(
        gpu("g0"),
        "taints",
        json!([taint("x/ecc", "", "None", late)]),
    );
    let two = json!([
        taint("x/ecc", "row 7", "NoExecute", early),
        taint("x/xid", "79", "NoSchedule", early)
    ]);
    let two = with(gpu("g1"), "taints", two);
    let mut devices = known(&[
        slice("a", "n1", 1, 1, &[two, one]),
        slice("b", "n2", 1, 1, &gpus(1)),
    ]);
    let told = |devices: &Devices, node: &str| {
        let taints = devices.taints_of(node).iter();
        let taints = taints.map(|taint| {
            let since = taint.since.map(|since| since.to_string());
            format!("{} since {}", taint.words(), since.unwrap_or_default())
        });
        taints.collect::<Vec<_>>()
    };
    assert_eq!(
        told(&devices, "n1"),
        [
            "its devices have the taint x/ecc (g0, g1: row 7) since 2026-11-25T11:00:00Z",
            "its devices have the taint x/xid (g1: 79) since 2026-11-25T10:00:00Z",
        ]
    );
    assert_eq!(told(&devices, "n2"), [""; 0]);
    // A newer generation without them: they are over.
    let slice = serde_json::from_value(slice("a", "n1", 2, 1, &gpus(2))).unwrap();
    devices.take(DeviceDelta::Slice(Delta::Upserted(slice)));
    assert_eq!(told(&devices, "n1"), [""; 0]);
}
