#![allow(clippy::unwrap_used)]
use super::*;
use crds::node_health::{ClearedNodes, NodeHealth};
use engine::faults::FaultClass;
use engine::{ClusterName, NodeName};

const MINUTE: i64 = 60_000;

fn rules(dry_run: bool) -> FaultRuleSet {
    FaultRuleSet {
        rules: Vec::new(),
        nodes: vec![NodeFaultRule {
            name: "xid".to_owned(),
            policy: "p".to_owned(),
            conditions: vec!["alert GpuXid79".to_owned(), "alert GpuHot".to_owned()],
            class: FaultClass::Device,
            alerts_for_ms: 60 * MINUTE,
            dry_run,
            ..NodeFaultRule::default()
        }],
    }
}

#[derive(Default)]
struct Case {
    nodes: AvoidedNodes,
    avoidance: Option<NodeAvoidance>,
}

impl Case {
    fn posts(&mut self, name: &str, device: &str, firing: bool, minute: i64) {
        let alert = NodeAlert {
            cluster: ClusterName::new("m1"),
            node: NodeName::new("n1"),
            name: name.to_owned(),
            fingerprint: format!("{name}/{device}"),
            message: "bus".to_owned(),
            since: timestamp(Time(minute * MINUTE)),
            firing,
        };
        self.nodes.alert(alert, Time(minute * MINUTE));
    }

    /// The change that is due, in short; the node shows it.
    fn due(&mut self, minute: i64) -> String {
        let changes = self.nodes.due(&rules(false), |_| 10, Time(minute * MINUTE));
        let Some(change) = changes.into_iter().next() else {
            return String::new();
        };
        self.avoidance.clone_from(&change.avoidance);
        self.shows();
        match change.avoidance {
            Some(avoidance) => format!("until {}: {}", avoidance.until.unwrap(), change.because),
            None => format!("returns: {}", change.because),
        }
    }

    fn shows(&mut self) {
        let health = NodeHealth {
            is_avoided: self.avoidance.is_some(),
            avoidance: self.avoidance.clone(),
            ..NodeHealth::default()
        };
        self.nodes
            .health(ClusterName::new("m1"), NodeName::new("n1"), health);
    }
}

const FIRES: &str = "until 1970-01-01T01:00:00Z: the alert GpuXid79 (bus) fires";

#[test]
fn a_node_is_avoided_while_its_alert_fires() {
    let mut case = Case::default();
    case.posts("Watchdog", "0", true, 0);
    assert_eq!(case.due(0), "", "no rule names it");
    case.posts("GpuXid79", "0", true, 0);
    case.posts("GpuXid79", "1", true, 0);
    assert_eq!(case.due(0), FIRES);
    case.posts("GpuXid79", "0", false, 1);
    assert_eq!(case.due(1), "", "the other device's goes on");
    case.posts("GpuXid79", "1", false, 2);
    assert_eq!(case.due(2), "returns: its alert is resolved");
    assert_eq!(case.due(3), "");
    case.posts("GpuXid79", "0", true, 4);
    assert!(case.due(4).ends_with("fires"), "again");
}

#[test]
fn an_alert_lasts_as_long_as_it_is_repeated() {
    let mut case = Case::default();
    case.posts("GpuXid79", "0", true, 0);
    assert_eq!(case.due(0), FIRES);
    case.posts("GpuXid79", "0", true, 40);
    assert_eq!(case.due(40), "until 1970-01-01T01:40:00Z: ", "no news");
    assert_eq!(
        case.avoidance.as_ref().unwrap().since,
        "1970-01-01T00:00:00Z"
    );
    assert_eq!(case.due(99), "");
    assert_eq!(case.due(100), "returns: its alert was not repeated");
}

#[test]
fn a_restart_forgets_neither_the_avoidance_nor_that_it_ends() {
    for resolved in [true, false] {
        let mut before = Case::default();
        before.posts("GpuXid79", "0", true, 0);
        assert_eq!(before.due(0), FIRES);
        let mut case = Case {
            avoidance: before.avoidance,
            ..Case::default()
        };
        case.shows();
        assert_eq!(case.due(30), "");
        if resolved {
            case.posts("GpuXid79", "0", false, 31);
            assert_eq!(case.due(31), "returns: its alert is resolved");
        } else {
            assert_eq!(case.due(60), "returns: its alert was not repeated");
        }
    }
}

#[test]
fn another_alert_takes_over_and_a_person_clears_what_fires() {
    let mut case = Case::default();
    case.posts("GpuXid79", "0", true, 0);
    assert_eq!(case.due(0), FIRES);
    case.posts("GpuHot", "0", true, 10);
    case.posts("GpuXid79", "0", false, 11);
    assert_eq!(
        case.due(11),
        "until 1970-01-01T01:10:00Z: the alert GpuHot (bus) fires"
    );
    let mut cleared = ClearedNodes::default();
    cleared.clear("n1", timestamp(Time(12 * MINUTE)));
    case.nodes.cleared(&ClusterName::new("m1"), cleared);
    assert_eq!(case.due(12), "returns: a person has cleared it");
    assert_eq!(case.due(13), "", "it has fired since before");
}

#[test]
fn a_dry_run_tells_of_it() {
    let mut case = Case::default();
    case.posts("GpuXid79", "0", true, 0);
    assert!(case.nodes.due(&rules(true), |_| 10, Time(0)).is_empty());
    assert_eq!(case.nodes.would().of("p").0, 1);
}
