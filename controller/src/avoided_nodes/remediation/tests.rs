#![allow(clippy::unwrap_used)]
use super::*;
use crds::node_health::{NodeAvoidance, NodeHealth};
use engine::faults::{FaultClass, NodeFaultRule, Remediate};
use serde_json::{Value, json};

const SINCE: &str = "1970-01-01T00:10:00Z";

fn rules(dry_run: bool) -> FaultRuleSet {
    FaultRuleSet {
        rules: Vec::new(),
        nodes: vec![NodeFaultRule {
            name: "memory".to_owned(),
            policy: "p".to_owned(),
            conditions: vec!["GpuMemWatch".to_owned()],
            class: FaultClass::Device,
            remediate: Some(Remediate {
                action: "Reboot".to_owned(),
            }),
            dry_run,
            ..NodeFaultRule::default()
        }],
    }
}

/// Node `n1` of `m1` is avoided since `since`, or not.
fn shows(nodes: &mut AvoidedNodes, since: Option<&str>) {
    let avoidance = since.map(|since| NodeAvoidance {
        rule: "memory".to_owned(),
        policy: "p".to_owned(),
        class: "Device".to_owned(),
        since: since.to_owned(),
        ..NodeAvoidance::default()
    });
    let health = NodeHealth {
        is_avoided: avoidance.is_some(),
        avoidance,
        ..NodeHealth::default()
    };
    nodes.health(ClusterName::new("m1"), NodeName::new("n1"), health);
}

fn listed() -> AvoidedNodes {
    let mut nodes = AvoidedNodes::default();
    nodes.remediation(Delta::Listed);
    nodes
}

/// The changes that are due, in short.
fn due(nodes: &mut AvoidedNodes, minute: i64) -> Vec<String> {
    let changes = nodes.remediations_due(&rules(false), |_| true, Time(minute * 60_000));
    let words = changes.into_iter().map(|change| match change {
        RemediationChange::Request(name, spec) => {
            format!("+{name} {} since {}", spec.action, spec.since)
        }
        RemediationChange::End(name) => format!("-{name}"),
    });
    words.collect()
}

/// The object is there, as Muster applied it, with this status of its condition.
fn there(nodes: &mut AvoidedNodes, since: &str, succeeded: Option<&str>, ours: bool) {
    let conditions: Vec<Value> = succeeded
        .map(|status| {
            json!({
                "type": "Succeeded", "status": status, "reason": "r", "message": "",
                "lastTransitionTime": "1970-01-01T00:30:00Z",
            })
        })
        .into_iter()
        .collect();
    let manager = if ours { "muster-controller" } else { "kubectl" };
    let object = json!({
        "apiVersion": "muster.io/v1alpha2", "kind": "NodeRemediation",
        "metadata": {"name": "m1.n1", "managedFields": [{"manager": manager, "operation": "Apply"}]},
        "spec": {
            "cluster": "m1", "node": "n1", "action": "Reboot", "class": "Device", "rule": "memory", "policy": "p",
            "message": "", "since": since,
        },
        "status": {"conditions": conditions},
    });
    nodes.remediation(Delta::Upserted(serde_json::from_value(object).unwrap()));
}

#[test]
fn an_object_is_there_while_the_node_is_avoided() {
    let mut nodes = AvoidedNodes::default();
    shows(&mut nodes, Some(SINCE));
    assert!(due(&mut nodes, 10).is_empty(), "not all are known yet");
    nodes.remediation(Delta::Listed);
    assert_eq!(
        due(&mut nodes, 10),
        [format!("+m1.n1 Reboot since {SINCE}")]
    );
    assert_eq!(nodes.take_remediation_events().len(), 1);
    assert!(due(&mut nodes, 10).is_empty(), "it is being written");
    there(&mut nodes, SINCE, None, true);
    assert!(due(&mut nodes, 11).is_empty());
    shows(&mut nodes, None);
    let unseen = nodes.remediations_due(&rules(false), |_| false, Time(0));
    assert!(unseen.is_empty(), "its cluster cannot be seen");
    assert_eq!(due(&mut nodes, 12), ["-m1.n1"]);
    assert!(nodes.take_remediation_events().is_empty());
}

#[test]
fn another_fault_gets_another_object_and_those_of_others_stay() {
    let mut nodes = listed();
    shows(&mut nodes, Some(SINCE));
    there(&mut nodes, "1970-01-01T00:01:00Z", Some("True"), true);
    assert_eq!(due(&mut nodes, 10), ["-m1.n1"]);
    let mut nodes = listed();
    there(&mut nodes, SINCE, None, false);
    assert!(due(&mut nodes, 10).is_empty());
}

#[test]
fn a_node_that_was_repaired_returns_and_one_that_was_not_stays() {
    let taints = |nodes: &mut AvoidedNodes| {
        let changes = nodes.due(&rules(false), |_| 10, Time(31 * 60_000));
        let words = changes.into_iter().map(|change| change.because);
        words.collect::<Vec<_>>()
    };
    let mut nodes = listed();
    shows(&mut nodes, Some(SINCE));
    there(&mut nodes, "1970-01-01T00:01:00Z", Some("True"), true);
    assert!(!taints(&mut nodes).contains(&"its remediation has succeeded".to_owned()));
    let mut nodes = listed();
    shows(&mut nodes, Some(SINCE));
    there(&mut nodes, SINCE, None, true);
    there(&mut nodes, SINCE, Some("False"), true);
    let events = nodes.take_remediation_events();
    assert!(
        events[0].is_warning && events[0].message.contains("has failed"),
        "{events:?}"
    );
    there(&mut nodes, SINCE, Some("True"), true);
    assert_eq!(taints(&mut nodes), ["its remediation has succeeded"]);
}

#[test]
fn a_rule_in_a_dry_run_asks_for_nothing() {
    let mut nodes = listed();
    shows(&mut nodes, Some(SINCE));
    let changes = nodes.remediations_due(&rules(true), |_| true, Time(0));
    assert!(changes.is_empty());
    assert!(rules(true).remediation_of("p", "memory", true).is_some());
}

#[test]
fn what_operators_say_is_counted_once() {
    let mut nodes = listed();
    let counts = |nodes: &AvoidedNodes| {
        let RemediationCounts {
            open,
            succeeded,
            failed,
        } = nodes.remediation_counts();
        (open, succeeded, failed)
    };
    let news = |nodes: &mut AvoidedNodes| {
        let RemediationNews {
            requested,
            succeeded,
            failed,
        } = nodes.take_remediation_news();
        (requested, succeeded, failed)
    };
    shows(&mut nodes, Some(SINCE));
    due(&mut nodes, 10);
    // It is requested again, because the object is not seen.
    due(&mut nodes, 20);
    assert_eq!(counts(&nodes), (0, 0, 0));
    assert_eq!(news(&mut nodes), (1, 0, 0));
    there(&mut nodes, SINCE, None, true);
    assert_eq!(counts(&nodes), (1, 0, 0));
    for _ in 0..2 {
        there(&mut nodes, SINCE, Some("False"), true);
    }
    assert_eq!(counts(&nodes), (0, 0, 1));
    assert_eq!(news(&mut nodes), (0, 0, 1));
    there(&mut nodes, SINCE, Some("True"), true);
    assert_eq!(counts(&nodes), (0, 1, 0));
    assert_eq!(news(&mut nodes), (0, 1, 0));
    // One that had ended when this process first saw it was counted by another.
    let mut nodes = listed();
    there(&mut nodes, SINCE, Some("False"), true);
    assert_eq!(counts(&nodes), (0, 0, 1));
    assert_eq!(news(&mut nodes), (0, 0, 0));
}

#[test]
fn a_replica_that_does_not_lead_tells_nothing_of_its_time() {
    let mut nodes = listed();
    there(&mut nodes, SINCE, None, true);
    there(&mut nodes, SINCE, Some("False"), true);
    nodes.stand_by();
    assert_eq!(nodes.take_remediation_news(), RemediationNews::default());
    assert!(nodes.take_remediation_events().is_empty());
    assert_eq!(nodes.remediation_counts().failed, 1);
}
