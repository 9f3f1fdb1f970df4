#![allow(clippy::unwrap_used)]
use super::*;
use crate::metrics::QueueSeries;
use engine::decision::Reserved;
use std::collections::BTreeSet;

const DOCUMENT: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../docs/operators/monitoring.md"
);

fn fact(name: &str) -> QueueFact {
    let queue = serde_json::json!({
        "metadata": {"name": name},
        "spec": {"weight": 3, "capability": {"cpu": "16", "nvidia.com/gpu": "8"}},
    });
    serde_json::from_value::<crds::queue::Queue>(queue)
        .unwrap()
        .to_fact()
}

fn usage() -> QueueUsage {
    let list =
        |pairs: &[(&'static str, &'static str)]| Resources::parse(pairs.iter().copied()).unwrap();
    QueueUsage {
        allocated: list(&[("cpu", "9500m"), ("memory", "2Gi"), ("nvidia.com/gpu", "6")]),
        pending: list(&[("cpu", "500m"), ("nvidia.com/gpu", "2")]),
        deserved: list(&[("nvidia.com/gpu", "4")]),
        real_capability: list(&[("nvidia.com/gpu", "8")]),
        pending_jobs: 5,
        admitted_jobs: 4,
        running_jobs: 3,
        ending_jobs: 2,
        finished_jobs: 1,
        ..QueueUsage::default()
    }
}

/// Exports what `queues` use, by both kinds of names.
fn exported(queues: &[&str]) -> (Registry, QueueSeries) {
    let registry = Registry::new();
    let mut series = QueueSeries::new(&registry);
    series.add_volcano_names(&registry);
    for name in queues {
        let fact = fact(name);
        series.used(&fact, &usage(), Reserved::default(), None);
    }
    (registry, series)
}

#[test]
fn values_have_the_names_and_units_of_volcano() {
    let text = exported(&["a"]).0.encode().unwrap();
    for line in [
        r#"volcano_queue_allocated_milli_cpu{queue_name="a"} 9500.0"#,
        r#"volcano_queue_allocated_memory_bytes{queue_name="a"} 2147483648.0"#,
        r#"volcano_queue_allocated_scalar_resources{queue_name="a",resource="nvidia.com/gpu"} 6000.0"#,
        r#"volcano_queue_request_milli_cpu{queue_name="a"} 10000.0"#,
        r#"volcano_queue_request_scalar_resources{queue_name="a",resource="nvidia.com/gpu"} 8000.0"#,
        r#"volcano_queue_deserved_milli_cpu{queue_name="a"} 0.0"#,
        r#"volcano_queue_deserved_scalar_resources{queue_name="a",resource="nvidia.com/gpu"} 4000.0"#,
        r#"volcano_queue_capacity_milli_cpu{queue_name="a"} 16000.0"#,
        r#"volcano_queue_real_capacity_scalar_resources{queue_name="a",resource="nvidia.com/gpu"} 8000.0"#,
        r#"volcano_queue_share{queue_name="a"} 1.5"#,
        r#"volcano_queue_weight{queue_name="a"} 3.0"#,
        r#"volcano_queue_overused{queue_name="a"} 1.0"#,
        r#"volcano_queue_pod_group_pending_count{queue_name="a"} 5.0"#,
        r#"volcano_queue_pod_group_inqueue_count{queue_name="a"} 4.0"#,
        r#"volcano_queue_pod_group_running_count{queue_name="a"} 3.0"#,
        r#"volcano_queue_pod_group_unknown_count{queue_name="a"} 2.0"#,
        r#"volcano_queue_pod_group_completed_count{queue_name="a"} 1.0"#,
    ] {
        assert!(text.contains(line), "{line} in:\n{text}");
    }
}

#[test]
fn no_series_outlives_its_queue_or_the_term() {
    let (registry, series) = exported(&["a", "b"]);
    series.forget(&QueueName::new("a"));
    let text = registry.encode().unwrap();
    assert!(!text.contains(r#"queue_name="a""#), "{text}");
    assert!(text.contains(r#"queue_name="b""#), "{text}");
    series.clear();
    assert!(!registry.encode().unwrap().contains("queue_name="));
}

#[test]
fn without_the_flag_there_is_none() {
    let registry = Registry::new();
    let series = QueueSeries::new(&registry);
    series.used(&fact("a"), &usage(), Reserved::default(), None);
    assert!(!registry.encode().unwrap().contains("volcano_"));
}

#[test]
fn the_document_names_each() {
    let described = exported(&[]).0.described().unwrap();
    let exported = described
        .keys()
        .filter(|name| name.starts_with("volcano_queue_"));
    let exported: BTreeSet<&str> = exported.map(String::as_str).collect();
    assert_eq!(exported.len(), 23);
    let text = std::fs::read_to_string(DOCUMENT).unwrap();
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let named: BTreeSet<&str> = words
        .filter(|word| word.starts_with("volcano_queue_"))
        .collect();
    assert_eq!(named, exported);
}
