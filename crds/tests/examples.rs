//! Checks that the examples for operators are valid.
#![allow(clippy::unwrap_used)]

use crds::capacity_policy::CapacityPolicy;
use crds::queue::Queue;
use serde_json::Value;

/// Returns every object in the examples, with its file.
fn objects() -> Vec<(String, Value)> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples");
    let files = std::fs::read_dir(folder)
        .unwrap()
        .map(|file| file.unwrap().path());
    let mut objects = Vec::new();
    for file in files.filter(|file| file.extension().is_some_and(|end| end == "yaml")) {
        let text = std::fs::read_to_string(&file).unwrap();
        let read: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
        objects.extend(
            read.into_iter()
                .map(|object| (file.display().to_string(), object)),
        );
    }
    objects
}

#[test]
fn every_policy_and_queue_is_valid() {
    let mut seen = 0;
    for (file, object) in objects() {
        let invalid = match object["kind"].as_str() {
            Some("CapacityPolicy") => {
                let policy: CapacityPolicy = serde_json::from_value(object.clone()).unwrap();
                // Reading it dropped no field.
                let read = serde_json::to_value(&policy.spec).unwrap();
                assert_eq!(normal(&read), normal(&object["spec"]), "{file}");
                policy.to_fact(None).invalid
            }
            Some("Queue") => {
                let queue: Queue = serde_json::from_value(object).unwrap();
                queue.to_fact().invalid
            }
            _ => continue,
        };
        assert_eq!(invalid, None, "{file}");
        seen += 1;
    }
    assert!(seen > 0);
}

/// Returns numbers as strings: quantities may be written in either form.
fn normal(value: &Value) -> Value {
    match value {
        Value::Number(number) => Value::String(number.to_string()),
        Value::Array(list) => list.iter().map(normal).collect(),
        Value::Object(map) => map
            .iter()
            .map(|(key, value)| (key.clone(), normal(value)))
            .collect::<serde_json::Map<_, _>>()
            .into(),
        other => other.clone(),
    }
}
