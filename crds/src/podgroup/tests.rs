#![allow(clippy::unwrap_used)]
use super::*;

#[test]
fn positions_are_exact_at_the_front_only() {
    let shown = [1, 9, 10, 11, 99, 100, 999, 1000, 1_234_567].map(shown_position);
    assert_eq!(shown, [1, 9, 10, 10, 10, 100, 100, 1000, 1_000_000]);
}

#[test]
fn large_counts_keep_two_digits() {
    let shown = [0, 20, 21, 99, 137, 1_999, 123_456].map(shown_count);
    assert_eq!(shown, [0, 20, 21, 99, 130, 1900, 120_000]);
}

#[test]
fn empty_fields_are_cleared_by_a_merge_patch() {
    let status = serde_json::to_value(PodGroupStatus {
        federation: Some(FederationStatus::default()),
        ..PodGroupStatus::default()
    })
    .unwrap();
    assert!(status["phase"].is_null());
    assert!(status["federation"].as_object().unwrap()["position"].is_null());
    assert!(status["federation"]["timeline"].as_object().unwrap()["finished"].is_null());
}

#[test]
fn parts_are_summed_up_in_a_word() {
    let part = |cluster: &str, pods| PlacedPart {
        cluster: cluster.to_owned(),
        pods,
        ..PlacedPart::default()
    };
    assert_eq!(
        placement_summary(&[part("gpu-a", 8), part("gpu-b", 4)]).as_deref(),
        Some("gpu-a:8,gpu-b:4")
    );
    assert_eq!(placement_summary(&[]), None);
}

#[test]
fn what_volcanos_crd_would_prune_is_read_from_the_annotation() {
    let read = |status: serde_json::Value, annotation: &str| {
        let object = serde_json::json!({
            "metadata": {"name": "a", "annotations": {"muster.io/federation": annotation}},
            "status": status,
        });
        let group: PodGroup = serde_json::from_value(object).unwrap();
        group.with_annotated_federation().status.unwrap().federation
    };
    let volcanos = || serde_json::json!({"phase": "Pending"});
    let told = FederationStatus {
        status: Some("Queued".to_owned()),
        helps: vec!["queue night instead of its own".to_owned()],
        ..FederationStatus::default()
    };
    let text = serde_json::to_string(&told).unwrap();
    assert_eq!(read(volcanos(), &text), Some(told));
    assert_eq!(read(volcanos(), "no JSON"), None);
    // The field of Muster's own CRD comes first: the annotation may be of an earlier installation.
    let own = serde_json::json!({"phase": "Running", "federation": {"status": "Running"}});
    let shown = read(own, &text).unwrap();
    assert_eq!(shown.status_word(), Some(StatusWord::Running));
}
