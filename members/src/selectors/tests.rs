#![allow(clippy::unwrap_used)]
use super::*;
use serde_json::json;

fn device() -> Device {
    serde_json::from_value(json!({
        "name": "gpu-0",
        "attributes": {
            "type": {"string": "gpu"},
            "productName": {"string": "NVIDIA A100-SXM4-40GB"},
            "index": {"int": 3},
            "healthy": {"bool": true},
            "driverVersion": {"version": "550.1.0"},
            "resource.kubernetes.io/pcieRoot": {"string": "pci0000:00"},
        },
        "capacity": {"memory": {"value": "40Gi"}},
    }))
    .unwrap()
}

/// The result of `expressions` on the device, or the error.
fn said(expressions: &[&str]) -> String {
    let selectors = expressions
        .iter()
        .map(|text| json!({"cel": {"expression": text}}));
    let class =
        json!({"metadata": {"name": "c"}, "spec": {"selectors": selectors.collect::<Vec<_>>()}});
    let matches = Selectors::of(&serde_json::from_value(class).unwrap())
        .and_then(|class| Evaluator::new().matches(&class, "gpu.nvidia.com", &device()));
    match matches {
        Ok(matches) => matches.to_string(),
        Err(why) => why,
    }
}

#[test]
fn usual_selectors_are_evaluated() {
    let rows = [
        (
            "device.driver == 'gpu.nvidia.com' && device.attributes['gpu.nvidia.com'].type == 'gpu'",
            true,
        ),
        (
            "device.driver == 'gpu.nvidia.com' && device.attributes['gpu.nvidia.com'].type == 'mig'",
            false,
        ),
        (
            "device.driver == 'gpu.intel.com' && device.attributes['gpu.intel.com'].family == 'Max'",
            false,
        ),
        ("device.driver in ['gpu.nvidia.com', 'gpu.amd.com']", true),
        (
            "device.attributes['gpu.nvidia.com']['productName'].startsWith('NVIDIA A100')",
            true,
        ),
        (
            "device.attributes['gpu.nvidia.com'].productName.contains('H100')",
            false,
        ),
        (
            "device.attributes['gpu.nvidia.com'].index >= 2 && device.attributes['gpu.nvidia.com'].index < 4",
            true,
        ),
        ("device.attributes['gpu.nvidia.com'].healthy", true),
        (
            "!device.attributes['gpu.nvidia.com'].healthy || device.driver == 'x'",
            false,
        ),
        (
            "device.attributes['resource.kubernetes.io'].pcieRoot == 'pci0000:00'",
            true,
        ),
        // A domain of which the device has nothing exists and is empty.
        ("has(device.attributes['dra.example.com'].model)", false),
        ("'model' in device.attributes['dra.example.com']", false),
        (
            "has(device.attributes['gpu.nvidia.com'].driverVersion)",
            true,
        ),
        (
            "'driverVersion' in device.attributes['gpu.nvidia.com']",
            true,
        ),
        (
            "has(device.attributes['gpu.nvidia.com'].type) ? device.attributes['gpu.nvidia.com'].type == 'gpu' : false",
            true,
        ),
        (
            "device.capacity['gpu.nvidia.com'].memory.compareTo(quantity('40Gi')) >= 0",
            true,
        ),
        (
            "device.capacity['gpu.nvidia.com'].memory.isGreaterThan(quantity('40Gi'))",
            false,
        ),
        (
            "device.capacity['gpu.nvidia.com'].memory.isLessThan(quantity('80Gi'))",
            true,
        ),
        (
            "device.capacity['gpu.nvidia.com'].memory == quantity('40960Mi')",
            true,
        ),
        ("!device.allowMultipleAllocations", true),
        // Numbers are no strings.
        ("device.attributes['gpu.nvidia.com'].index == '3'", false),
    ];
    for (expression, want) in rows {
        assert_eq!(said(&[expression]), want.to_string(), "{expression}");
    }
    assert_eq!(said(&[]), "true", "a class without selectors has all");
    let both = ["device.driver == 'gpu.nvidia.com'", "device.driver == 'x'"];
    assert_eq!(said(&both), "false", "all selectors must match");
}

#[test]
fn an_unsupported_selector_is_an_error_with_the_reason() {
    let rows = [
        ("device.driver ==", "cannot be read"),
        (
            "device.attributes['gpu.nvidia.com'].driverVersion.isGreaterThan(semver('550.0.0'))",
            "uses `semver`",
        ),
        (
            "device.attributes['gpu.nvidia.com'].driverVersion == 'x'",
            "driverVersion is a version",
        ),
        (
            "device.attributes['gpu.nvidia.com'].model == 'x'",
            "No such key: model",
        ),
        ("device.driver.matches('gpu.*')", "uses `matches`"),
        (
            "['a'].exists(x, x == device.driver)",
            "uses a macro over a list",
        ),
        (
            "'gpu.nvidia.com' in device.attributes",
            "`device.attributes` as a whole",
        ),
        ("size(device.attributes) > 0", "uses `size`"),
        (
            "device.attributes[device.driver].type == 'gpu'",
            "uses field `type`",
        ),
        ("other.driver == 'x'", "field `driver`"),
        ("device.driver", "is no answer"),
        ("device.driver < 3", "overload"),
    ];
    for (expression, want) in rows {
        let said = said(&[expression]);
        assert!(said.contains(want), "{expression}: {said}");
    }
}
