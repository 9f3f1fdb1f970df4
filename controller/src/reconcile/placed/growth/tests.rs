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

#[test]
fn a_pin_is_new_only_once() {
    let mut pins = Pins::default();
    let (grown, more) = (["a 1 -> 2".to_owned()], ["a 1 -> 3".to_owned()]);
    let mut pin = |growth: &[String], version: &str| pins.pin(growth, version.to_owned());
    assert_eq!(pin(&grown, "1"), (true, true));
    assert_eq!(pin(&grown, "1"), (false, false));
    assert_eq!(pin(&grown, "2"), (false, true), "its template has changed");
    assert_eq!(pin(&more, "2"), (true, true));
    assert!(pins.unpin());
    assert!(!pins.unpin());
}
