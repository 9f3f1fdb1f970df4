#![allow(clippy::unwrap_used)]
use super::*;
use engine::{Explanation, JobKey};

fn usage(allocated: &str, head: Option<Reason>) -> QueueUsage {
    let cpus = |amount: &str| Resources::parse([("cpu", amount)]).unwrap();
    let head = head.map(|reason| {
        let explanation = Explanation::of(reason, "it waits".to_owned());
        (JobKey::new("team", "first"), explanation)
    });
    QueueUsage {
        allocated: cpus(allocated),
        deserved: cpus("4"),
        real_capability: cpus("8"),
        pending: cpus("500m"),
        pending_jobs: 2,
        running_jobs: 1,
        ending_jobs: 1,
        head,
        ..QueueUsage::default()
    }
}

fn queue(name: &str) -> QueueName {
    QueueName::new(name)
}

fn fact(name: &str) -> QueueFact {
    let mut queue = crds::queue::Queue::default();
    queue.metadata.name = Some(name.to_owned());
    queue.to_fact()
}

/// Exports something of every metric about `queues`.
fn export(metrics: &QueueSeries, queues: &[&str]) {
    for name in queues {
        let fact = fact(name);
        let name = queue(name);
        let usage = usage("9500m", Some(Reason::WaitingForQuota));
        let reserved = Reserved {
            nodes: 1,
            ..Reserved::default()
        };
        metrics.used(&fact, &usage, reserved, Some(Time(1_500)));
        metrics.preempted(Reason::Reclaimed, &name, EvictedPart::Whole);
        metrics.admitted_after(&name, 90_000);
        metrics.started_after(&name, 2_500);
        metrics.started_as_expected(&name, StartResult::Within);
    }
}

#[test]
fn a_queue_shows_its_use_its_head_and_its_waits() {
    let registry = Registry::new();
    let metrics = QueueSeries::new(&registry);
    export(&metrics, &["a"]);
    let text = registry.encode().unwrap();
    for line in [
        r#"muster_queue_pending_jobs{queue="a"} 2"#,
        r#"muster_queue_active_jobs{queue="a"} 2"#,
        r#"muster_queue_resources{queue="a",resource="cpu",kind="Allocated"} 9.5"#,
        r#"muster_queue_resources{queue="a",resource="cpu",kind="Deserved"} 4"#,
        r#"muster_queue_resources{queue="a",resource="cpu",kind="Pending"} 0.5"#,
        r#"muster_queue_over_capability{queue="a",resource="cpu"} 1.5"#,
        r#"muster_queue_head_reason{queue="a",reason="WaitingForQuota"} 1"#,
        r#"muster_queue_head_queued_timestamp_seconds{queue="a"} 1.5"#,
        r#"muster_reservations{queue="a",kept="Nodes"} 1"#,
        r#"muster_start_ranges_total{queue="a",result="Within"} 1"#,
        r#"muster_preemptions_total{reason="Reclaimed",queue="a",part="Whole"} 1"#,
        r#"muster_job_admission_wait_seconds_bucket{le="64.0",queue="a"} 0"#,
        r#"muster_job_admission_wait_seconds_bucket{le="128.0",queue="a"} 1"#,
        r#"muster_job_start_wait_seconds_sum{queue="a"} 2.5"#,
    ] {
        assert!(text.contains(line), "{line} in:\n{text}");
    }
}

#[test]
fn what_does_not_hold_any_more_is_not_exported() {
    let registry = Registry::new();
    let metrics = QueueSeries::new(&registry);
    export(&metrics, &["a"]);
    let used = usage("8", Some(Reason::NextInLine));
    metrics.used(&fact("a"), &used, Reserved::default(), Some(Time(0)));
    let text = registry.encode().unwrap();
    assert!(!text.contains("over_capability{"), "{text}");
    assert!(!text.contains("WaitingForQuota"), "{text}");
    assert!(text.contains(r#"reason="NextInLine"} 1"#), "{text}");
    metrics.used(&fact("a"), &usage("8", None), Reserved::default(), None);
    let text = registry.encode().unwrap();
    assert!(!text.contains("queue_head_reason{"), "{text}");
    assert!(
        !text.contains("queue_head_queued_timestamp_seconds{"),
        "{text}"
    );
}

#[test]
fn no_series_outlives_its_queue() {
    let registry = Registry::new();
    let metrics = QueueSeries::new(&registry);
    export(&metrics, &["gone", "stays"]);
    metrics.forget(&queue("gone"));
    let text = registry.encode().unwrap();
    assert!(!text.contains(r#"queue="gone""#), "{text}");
    assert!(text.contains(r#"muster_preemptions_total{reason="Reclaimed",queue="stays""#));
    assert!(text.contains(r#"muster_queue_pending_jobs{queue="stays"} 2"#));
}

#[test]
fn a_replica_that_does_not_lead_exports_no_queue() {
    let registry = Registry::new();
    let metrics = QueueSeries::new(&registry);
    export(&metrics, &["a", "b"]);
    metrics.clear();
    let text = registry.encode().unwrap();
    assert!(!text.contains("queue="), "{text}");
}
