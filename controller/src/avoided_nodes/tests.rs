#![allow(clippy::unwrap_used)]
use super::*;
use crds::node_health::NodeCondition;
use engine::faults::{FaultClass, NodeFaultRule, PodFaultRule};
use engine::{Resources, Uid};

const MINUTE: i64 = 60_000;

fn rules() -> FaultRuleSet {
    FaultRuleSet {
        rules: vec![PodFaultRule {
            name: "xid".to_owned(),
            policy: "p".to_owned(),
            messages: vec!["xid 79".to_owned()],
            class: FaultClass::Device,
            avoid_node: Some(AvoidNode {
                jobs: 3,
                namespaces: 2,
                within_ms: 60 * MINUTE,
                for_ms: 120 * MINUTE,
            }),
            ..PodFaultRule::default()
        }],
        nodes: vec![NodeFaultRule {
            name: "memory".to_owned(),
            conditions: vec!["GpuMemWatch".to_owned()],
            messages: Vec::new(),
            class: FaultClass::Device,
            ..NodeFaultRule::default()
        }],
    }
}

fn symptom(reason: &str, message: &str) -> Symptom {
    Symptom {
        reason: reason.to_owned(),
        message: message.to_owned(),
        exit_code: None,
    }
}

struct Case {
    nodes: AvoidedNodes,
    rules: FaultRuleSet,
    /// The number of nodes of each cluster.
    size: usize,
    /// True if pods were seen before their end.
    was_there: bool,
}

impl Case {
    fn new(size: usize) -> Self {
        Self {
            nodes: AvoidedNodes::default(),
            rules: rules(),
            size,
            was_there: true,
        }
    }

    /// A pod of `job` (`namespace/name`) fails on `node` with `message`.
    fn fails(&mut self, job: &str, node: &str, message: &str, minute: i64) {
        let (namespace, name) = job.split_once('/').unwrap();
        let pod = Event::PodUpserted(PodFact {
            cluster: ClusterName::new("m1"),
            uid: Uid::new(job),
            node: Some(NodeName::new(node)),
            request: Resources::new(),
            job: Some(JobKey::new(namespace, name)),
            phase: PodPhase::Ended,
            symptom: Some(Box::new(symptom("Error", message))),
            grace_s: 0,
        });
        let (nodes, rules) = (&mut self.nodes, &self.rules);
        nodes.note(&pod, rules, |_| self.was_there, Time(minute * MINUTE));
    }

    /// A person cleared the node.
    fn clear(&mut self, node: &str, minute: i64) {
        let mut cleared = ClearedNodes::default();
        cleared.clear(node, timestamp(Time(minute * MINUTE)));
        self.nodes.cleared(&ClusterName::new("m1"), cleared);
    }

    /// Returns what policies in a dry run would do, and the events since the last call.
    fn would(&mut self) -> (usize, Vec<String>) {
        let (_, events) = self.nodes.would_mut().take();
        let events = events.into_iter().map(|event| event.message);
        (self.nodes.would().of("p").0, events.collect())
    }

    /// The node shows this health; the condition is True since minute 0.
    fn shows(&mut self, node: &str, condition: Option<&str>, avoidance: Option<NodeAvoidance>) {
        let condition = condition.map(|type_| NodeCondition {
            symptom: symptom(type_, ""),
            since: Some(Timestamp::UNIX_EPOCH),
        });
        let health = NodeHealth {
            conditions: condition.into_iter().collect(),
            is_avoided: avoidance.is_some(),
            avoidance,
            ..NodeHealth::default()
        };
        self.nodes
            .health(ClusterName::new("m1"), NodeName::new(node), health);
    }

    /// The changes that are due, in short; the nodes show them.
    fn due(&mut self, minute: i64) -> String {
        let size = self.size;
        let changes = self.nodes.due(&self.rules, |_| size, Time(minute * MINUTE));
        let said = changes.iter().map(|change| match &change.avoidance {
            None => format!("-{}", change.node),
            Some(avoidance) => {
                format!("+{} {}: {}", change.node, avoidance.rule, avoidance.message)
            }
        });
        let said = said.collect::<Vec<_>>().join(", ");
        for change in changes {
            self.shows(change.node.as_str(), None, change.avoidance);
        }
        said
    }
}

#[test]
fn a_node_is_avoided_for_a_while_after_jobs_of_two_namespaces_failed_there() {
    let mut case = Case::new(8);
    case.fails("a/one", "n1", "NVRM: Xid 79", 0);
    case.fails("a/one", "n1", "NVRM: Xid 79", 1);
    case.fails("a/two", "n1", "NVRM: Xid 79", 2);
    case.fails("a/three", "n1", "NVRM: Xid 79", 3);
    case.fails("b/four", "n1", "out of memory", 3);
    assert_eq!(case.due(3), "", "one namespace may print what it likes");
    case.fails("b/four", "n1", "NVRM: Xid 79", 4);
    assert_eq!(
        case.due(4),
        "+n1 xid: 4 jobs failed there, the last, b/four, with Error (NVRM: Xid 79)"
    );
    assert_eq!(case.due(123), "");
    assert_eq!(case.due(124), "-n1");
    assert_eq!(case.due(125), "");
}

#[test]
fn failures_that_are_far_apart_or_on_different_nodes_do_not_count_together() {
    let mut case = Case::new(8);
    case.fails("a/one", "n1", "Xid 79", 0);
    case.fails("b/two", "n2", "Xid 79", 0);
    case.fails("b/two", "n1", "Xid 79", 30);
    case.fails("c/three", "n1", "Xid 79", 61);
    assert_eq!(case.due(61), "");
    case.fails("c/four", "n1", "Xid 79", 62);
    assert!(case.due(62).starts_with("+n1 xid: 3 jobs"));
}

#[test]
fn a_node_is_avoided_while_it_has_the_condition() {
    let mut case = Case::new(8);
    case.shows("n1", Some("MemoryPressure"), None);
    assert_eq!(case.due(0), "");
    case.shows("n1", Some("GpuMemWatch"), None);
    let changes = case.nodes.due(&case.rules, |_| 8, Time(MINUTE));
    assert_eq!(changes.len(), 1);
    let avoidance = changes[0].avoidance.clone();
    assert_eq!(avoidance.as_ref().unwrap().until, None);
    case.shows("n1", Some("GpuMemWatch"), avoidance.clone());
    assert_eq!(case.due(1000), "");
    case.shows("n1", None, avoidance);
    assert_eq!(case.due(1001), "-n1");
}

#[test]
fn a_change_that_the_node_does_not_show_is_requested_again() {
    let mut case = Case::new(8);
    case.shows("n1", Some("GpuMemWatch"), None);
    let mut requested = |ms: i64| case.nodes.due(&case.rules, |_| 8, Time(ms)).len();
    assert_eq!(
        [requested(0), requested(25_000), requested(30_000)],
        [1, 0, 1]
    );
}

#[test]
fn a_person_rules_over_the_taint() {
    let mut case = Case::new(8);
    // Put there by hand: it is neither explained nor removed.
    let by_hand = NodeHealth {
        is_avoided: true,
        ..NodeHealth::default()
    };
    let n1 = NodeName::new("n1");
    case.nodes.health(ClusterName::new("m1"), n1, by_hand);
    assert_eq!(case.due(1_000), "");
    assert_eq!(case.nodes.count(), 1);
    // Removed by hand: what failed before does not count any more.
    for job in ["a/one", "b/two", "b/three"] {
        case.fails(job, "n2", "Xid 79", 1_000);
    }
    assert!(case.due(1_000).starts_with("+n2"));
    case.shows("n2", None, None);
    assert_eq!(case.due(1_001), "");
    case.fails("c/four", "n2", "Xid 79", 1_002);
    assert_eq!(case.due(1_002), "");
}

#[test]
fn at_most_a_tenth_of_the_nodes_of_a_cluster_is_avoided_because_of_failed_pods() {
    let mut case = Case::new(25);
    for node in ["n1", "n2", "n3"] {
        for job in ["a/one", "b/two", "b/three"] {
            case.fails(job, node, "Xid 79", 0);
        }
    }
    let due = case.due(0);
    assert!(
        due.contains("+n1") && due.contains("+n2") && !due.contains("+n3"),
        "{due}"
    );
    assert_eq!(case.due(1), "");
    // What a node says of itself counts always.
    case.shows("n4", Some("GpuMemWatch"), None);
    assert!(case.due(2).starts_with("+n4 memory"));
    // The first is cleared by hand.
    case.shows("n1", None, None);
    assert!(case.due(3).starts_with("+n3"));
}

#[test]
fn pods_that_are_found_at_their_end_do_not_count() {
    let mut case = Case::new(8);
    case.was_there = false;
    for job in ["a/one", "b/two", "b/three"] {
        case.fails(job, "n1", "Xid 79", 0);
    }
    assert_eq!(case.due(0), "");
}

#[test]
fn nodes_are_compared_when_something_changes_and_now_and_then() {
    let mut case = Case::new(8);
    let is_due = |case: &Case, ms: i64| case.nodes.is_due(Time(ms));
    assert!(is_due(&case, 0));
    case.due(0);
    assert!(!is_due(&case, 4_999) && is_due(&case, 5_000));
    case.shows("n1", Some("GpuMemWatch"), None);
    assert!(is_due(&case, 1));
    case.due(0);
    case.due(0);
    case.fails("a/one", "n1", "Xid 79", 0);
    assert!(is_due(&case, 1));
}

#[test]
fn a_person_clears_a_node_and_a_later_fault_counts_again() {
    let mut case = Case::new(8);
    let fail = |case: &mut Case, minute: i64| {
        for job in ["a/one", "b/two", "b/three"] {
            case.fails(job, "n1", "Xid 79", minute);
        }
    };
    fail(&mut case, 0);
    assert!(case.due(0).starts_with("+n1"));
    case.clear("n1", 1);
    assert_eq!(case.due(1), "-n1");
    assert_eq!(case.due(2), "");
    fail(&mut case, 3);
    assert!(
        case.due(3).starts_with("+n1"),
        "the annotation is still there"
    );
    // A new leader sees the taint and the annotation, and knows of no failure.
    let mut next = Case::new(8);
    let avoidance = NodeAvoidance {
        since: timestamp(Time(0)).to_string(),
        until: Some(timestamp(Time(100 * MINUTE)).to_string()),
        ..NodeAvoidance::default()
    };
    next.clear("n1", 1);
    next.shows("n1", None, Some(avoidance));
    assert_eq!(next.due(2), "-n1");
}

#[test]
fn a_condition_that_was_cleared_counts_once_it_begins_again() {
    let mut case = Case::new(8);
    case.shows("n1", Some("GpuMemWatch"), None);
    case.clear("*", 1);
    assert_eq!(case.due(2), "");
    case.shows("n2", Some("GpuMemWatch"), None);
    assert_eq!(case.due(2), "");
    // The time of a condition has whole seconds: in the second in which the node was cleared it counts.
    for (node, since) in [("n1", 3 * MINUTE), ("n2", MINUTE)] {
        let mut again = NodeHealth::default();
        again.conditions.push(NodeCondition {
            symptom: symptom("GpuMemWatch", ""),
            since: Some(timestamp(Time(since))),
        });
        let (m1, node_name) = (ClusterName::new("m1"), NodeName::new(node));
        case.nodes.health(m1, node_name, again);
        let due = case.due(3);
        assert!(due.contains(&format!("+{node} memory")), "{due}");
    }
}

#[test]
fn events_say_what_was_seen_without_names_of_jobs() {
    let mut case = Case::new(8);
    for job in ["a/one", "b/two", "b/three"] {
        case.fails(job, "n1", "Xid 79", 0);
    }
    let change = case.nodes.due(&case.rules, |_| 8, Time(0)).remove(0);
    let event = node_event(&change);
    assert_eq!(event.reason, engine::Reason::NodeAvoided);
    assert_eq!(
        event.message,
        "node n1 is avoided until 1970-01-01T02:00:00Z for a fault of class Device, by rule xid of FaultPolicy p: \
         3 jobs of 2 namespaces failed there, the last with Error"
    );
    case.shows("n1", None, change.avoidance);
    case.clear("n1", 1);
    let change = case.nodes.due(&case.rules, |_| 8, Time(MINUTE)).remove(0);
    assert_eq!(
        node_event(&change).message,
        "node n1 is avoided no more: a person has cleared it"
    );
}

#[test]
fn a_dry_run_says_once_which_nodes_it_would_avoid() {
    let mut case = Case::new(8);
    case.rules.rules[0].dry_run = true;
    for job in ["a/one", "b/two", "b/three"] {
        case.fails(job, "n1", "Xid 79", 0);
    }
    assert_eq!(case.due(0), "");
    let (count, events) = case.would();
    assert_eq!((count, events.len()), (1, 1));
    assert!(
        events[0].starts_with("node n1 would be avoided until 1970-01-01T02:00:00Z"),
        "{events:?}"
    );
    assert_eq!(case.due(1), "");
    assert_eq!(case.would(), (1, Vec::new()));
    // A new leader begins with the status.
    let (_, shown) = case.nodes.would().of("p");
    let mut next = Case::new(8);
    next.rules.rules[0].dry_run = true;
    next.nodes.would_mut().begin("p", &shown);
    next.due(2);
    assert_eq!(next.would(), (1, Vec::new()));
    next.due(121);
    assert_eq!(next.would().0, 0);
    // Once the policy is in force, nothing would be.
    case.rules.rules[0].dry_run = false;
    case.due(2);
    assert_eq!(case.would().0, 0);
}

#[test]
fn a_node_is_avoided_shortly_before_it_ends_whatever_else_is_avoided() {
    let mut case = Case::new(8);
    for job in ["a/one", "b/two", "b/three"] {
        case.fails(job, "n1", "Xid 79", 0);
    }
    assert!(case.due(0).starts_with("+n1"), "all of a tenth");
    let ends = |minute: i64| NodeHealth {
        ends_at: Some(timestamp(Time(minute * MINUTE))),
        ..NodeHealth::default()
    };
    let (m1, n2) = (ClusterName::new("m1"), NodeName::new("n2"));
    case.nodes.health(m1.clone(), n2.clone(), ends(60));
    assert_eq!(case.due(54), "");
    let change = case
        .nodes
        .due(&case.rules, |_| 8, Time(55 * MINUTE))
        .remove(0);
    assert_eq!(
        node_event(&change).message,
        "node n2 is avoided: it ends at 1970-01-01T01:00:00Z; its jobs are moved"
    );
    let mut shown = ends(60);
    shown.is_avoided = true;
    shown.avoidance = change.avoidance;
    case.nodes.health(m1, n2, shown);
    assert_eq!(case.due(59), "");
    assert_eq!(case.due(60), "-n2");
}
