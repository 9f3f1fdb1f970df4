//! A node that changes concerns the jobs that may run on it; one that may run less wakes nobody.

use crate::placement::on_label;
use crate::pod_rules::{ZONE, rule, spread, zoned};
use crate::world::{World, foreign, node, pods, policy, queue};
use engine::cost;
use engine::facts::{NodeFact, PolicyFact, QueueOrdering, Topology};
use engine::matching::{NodeTerm, Taint, TaintEffect};
use engine::{ClusterName, Event, NodeName};
use insta::assert_snapshot;

const NODES: u32 = 16;

/// What changes of a node.
type Change = fn(&mut NodeFact);

/// Jobs of 60 sizes wait for a cluster that others fill but for one GPU on each node.
fn full() -> World {
    let mut world = World::new();
    world.cluster("a", NODES, "cpu 64, gpu 8").queue(queue("q"));
    for index in 0..NODES {
        world.add(&format!("old{index:02}"), "q", 1, "gpu 7");
    }
    world.decide();
    (0..NODES).for_each(|index| world.run(&format!("old{index:02}")));
    for cores in 1..=60 {
        world.add(
            &format!("j{cores:02}"),
            "q",
            2,
            &format!("gpu 4, cpu {cores}"),
        );
    }
    world.decide();
    world
}

fn changed(world: &mut World, change: impl Fn(&mut NodeFact)) -> (String, cost::DecisionCost) {
    let mut fact = node("a", "n3", "cpu 64, gpu 8");
    change(&mut fact);
    world.apply(Event::NodeUpserted(fact));
    cost::of(|| world.decide())
}

fn gone(name: &str) -> Event {
    Event::NodeGone(ClusterName::from("a"), NodeName::from(name))
}

fn tainted(fact: &mut NodeFact) {
    fact.taints.push(Taint {
        key: "upgrade".to_owned(),
        value: String::new(),
        effect: TaintEffect::NoSchedule,
    });
}

#[test]
fn a_node_that_runs_less_or_as_much_as_before_wakes_no_more_than_owners() {
    let mut world = full();
    let changes: [Change; 6] = [
        tainted,
        |fact| fact.usable = false,
        |_| {},
        |fact| fact.allocatable = node("a", "n3", "cpu 64, gpu 7").allocatable,
        |fact| drop(fact.labels.insert("revision".to_owned(), "2".to_owned())),
        |_| {},
    ];
    for change in changes {
        let (decisions, cost) = changed(&mut world, change);
        assert_eq!(decisions, "");
        assert!(cost.evaluations <= 1, "{cost}");
    }
}

#[test]
fn a_node_that_may_run_more_is_offered_to_the_jobs_that_fit() {
    let mut world = full();
    world.policy(PolicyFact {
        ordering: QueueOrdering::BestEffort,
        ..policy("q")
    });
    world.add("one", "q", 1, "gpu 2");
    assert_eq!(world.decide(), "");
    let changes: [(Change, &str); 3] = [
        (|fact| fact.usable = false, ""),
        (|_| {}, ""),
        (
            |fact| fact.allocatable = node("a", "n3", "cpu 64, gpu 9").allocatable,
            "release one #1 a(n3)",
        ),
    ];
    for (change, decisions) in changes {
        assert_eq!(changed(&mut world, change).0.trim(), decisions);
    }
}

#[test]
fn a_node_that_gets_worse_and_better_between_two_calls_is_offered() {
    let mut world = World::new();
    world.cluster("a", 0, "").queue(queue("q"));
    let mut fact = node("a", "n0", "cpu 64, gpu 8");
    fact.usable = false;
    world.apply(Event::NodeUpserted(fact.clone()));
    world.add("one", "q", 1, "gpu 8");
    world.decide();
    fact.usable = true;
    world.apply(Event::NodeUpserted(fact.clone()));
    // Its pods do not mind that this taint is there, since it keeps only others away if possible.
    tainted(&mut fact);
    fact.taints[0].effect = TaintEffect::PreferNoSchedule;
    world.apply(Event::NodeUpserted(fact));
    assert_snapshot!(world.decide(), @"release one #1 a(n0)");
}

#[test]
fn pods_that_are_spread_over_zones_start_once_a_full_zone_is_gone() {
    let mut world = World::new();
    zoned(&mut world, "a", &["x", "y"], "cpu 8");
    world.queue(queue("q"));
    world.apply(foreign("a", "n1", "cpu 8"));
    let mut demand = pods(2, "cpu 1");
    demand.roles[0].rules = vec![rule(ZONE, &["worker"], spread(1, 1))];
    let job = world.job("two", "q", demand);
    world.submit(job);
    assert_snapshot!(world.decide(), @"");
    world.apply(gone("n1"));
    assert_snapshot!(world.decide(), @"release two #1 a(n0×2)");
}

#[test]
fn a_gang_that_has_to_be_in_one_rack_starts_once_no_node_names_racks() {
    let mut world = World::new();
    world.cluster("a", 2, "gpu 8").queue(queue("q"));
    let mut racked = node("a", "racked", "gpu 8");
    racked.domains = vec!["rack-0".to_owned()];
    world.apply(Event::NodeUpserted(racked));
    world.apply(foreign("a", "racked", "gpu 8"));
    let mut demand = pods(2, "gpu 8");
    demand.topology = Some(Topology {
        hard: true,
        highest_tier: 1,
    });
    let job = world.job("gang", "q", demand);
    world.submit(job);
    assert_snapshot!(world.decide(), @"");
    world.apply(gone("racked"));
    // Its own scheduler may know them: it is left to that.
    assert_snapshot!(world.decide(), @"release gang #1 a(n0 n1)");
}

#[test]
fn a_head_that_can_run_nowhere_any_more_does_not_hold_up_a_strict_queue() {
    let mut world = World::new();
    world.cluster("a", 1, "cpu 8").queue(queue("q"));
    world.policy(PolicyFact {
        ordering: QueueOrdering::StrictFifo,
        ..policy("q")
    });
    let mut special = node("a", "special", "cpu 8");
    special
        .labels
        .insert("kind".to_owned(), "special".to_owned());
    world.apply(Event::NodeUpserted(special.clone()));
    world.apply(foreign("a", "special", "cpu 8"));
    let mut demand = pods(1, "cpu 1");
    demand.roles[0].node_terms = vec![NodeTerm {
        labels: vec![on_label("kind", "special")],
        fields: Vec::new(),
    }];
    let head = world.job("head", "q", demand);
    world.submit(head);
    world.add("next", "q", 1, "cpu 1");
    assert_snapshot!(world.decide(), @"");
    special.labels.clear();
    world.apply(Event::NodeUpserted(special));
    assert_snapshot!(world.decide(), @"release next #1 a(n0)");
}

#[test]
fn a_gang_that_the_fleet_is_too_small_for_now_reserves_nothing() {
    let mut world = World::new();
    world.cluster("a", 3, "gpu 8").queue(queue("q"));
    world.runs("old", "q", 1, "gpu 8");
    world.add("gang", "q", 3, "gpu 8");
    world.add("small", "q", 1, "gpu 1");
    assert_snapshot!(world.decide(), @"");
    world.apply(gone("n2"));
    assert_snapshot!(world.decide(), @"release small #1 a(n1)");
    assert!(
        world.why("gang").contains("ExceedsFleet"),
        "{}",
        world.why("gang")
    );
}
