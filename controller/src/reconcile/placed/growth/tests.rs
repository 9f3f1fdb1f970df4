#![allow(clippy::unwrap_used)]

use super::*;
use serde_json::{Value, json};

#[test]
fn admitted_pods_are_summed_over_the_clusters() {
    let share = |name: &str, pods: Value| json!({"name": name, "pods": pods, "charge": {}});
    let record: AdmissionRecord = serde_json::from_value(json!({
        "templateUID": "u", "attempt": 1, "state": "Admitted", "queue": "q",
        "time": "2026-11-21T00:00:00Z",
        "clusters": [
            share("m1", json!([{"role": "head", "count": 1}, {"role": "worker", "count": 2}])),
            share("m2", json!([{"role": "worker", "count": 3}])),
        ],
    }))
    .unwrap();
    let pods = admitted_pods(&record);
    assert_eq!(
        pods,
        [("head".to_owned(), 1), ("worker".to_owned(), 5)].into()
    );
}
