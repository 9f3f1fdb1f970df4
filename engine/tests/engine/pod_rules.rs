//! Pods that have to stand in some way to each other on nodes: affinity, anti-affinity, spread, ports of the host.

use crate::placement::on_label;
use crate::preemption::preempting;
use crate::world::{World, capped, foreign, gang, key, node, pods, queue, role};
use engine::facts::{Demand, Held, JobFact, Role, Split};
use engine::matching::NodeTerm;
use engine::pod_rules::{NodeDomain, PodRule, PodRuleKind};
use engine::{Event, JobState};
use insta::assert_snapshot;

pub const HOST: &str = "kubernetes.io/hostname";
pub const ZONE: &str = "zone";

pub fn rule(key: &str, roles: &[&str], kind: PodRuleKind) -> PodRule {
    PodRule {
        domain: match key {
            "" => NodeDomain::Node,
            key => NodeDomain::Label(key.to_owned()),
        },
        roles: roles.iter().map(ToString::to_string).collect(),
        kind,
    }
}

pub fn spread(max_skew: u32, min_domains: u32) -> PodRuleKind {
    PodRuleKind::Spread {
        max_skew,
        min_domains,
        by_terms: true,
        by_taints: false,
    }
}

fn ruled(rules: &[PodRule], role: Role) -> Role {
    Role {
        rules: rules.to_vec(),
        ..role
    }
}

/// Pods of one role with rules.
fn with_rules(rules: &[PodRule], demand: Demand) -> Demand {
    let roles = demand.roles.into_iter().map(|role| ruled(rules, role));
    Demand {
        roles: roles.collect(),
        ..demand
    }
}

fn apart(key: &str) -> PodRule {
    rule(key, &["worker"], PodRuleKind::Apart)
}

fn world() -> World {
    let mut world = World::new();
    world.queue(queue("q"));
    world
}

/// A cluster whose nodes are in these zones; `-` for none.
pub fn zoned(world: &mut World, name: &str, zones: &[&str], allocatable: &str) {
    world.cluster(name, 0, allocatable);
    for (index, zone) in zones.iter().enumerate() {
        let mut fact = node(name, &format!("n{index}"), allocatable);
        if *zone != "-" {
            fact.labels.insert(ZONE.to_owned(), (*zone).to_owned());
        }
        world.apply(Event::NodeUpserted(fact));
    }
}

pub fn submit(world: &mut World, name: &str, demand: Demand) -> JobFact {
    let job = world.job(name, "q", demand);
    world.submit(job)
}

#[test]
fn a_gang_with_each_pod_on_another_node_goes_where_there_are_as_many() {
    for key in [HOST, ""] {
        let mut world = world();
        world.cluster("a", 3, "cpu 64").cluster("b", 4, "cpu 64");
        submit(
            &mut world,
            "job",
            with_rules(&[apart(key)], pods(4, "cpu 1")),
        );
        assert_eq!(world.decide(), "release job #1 b(n0 n1 n2 n3)", "{key}");
    }
}

#[test]
fn it_waits_for_another_node_and_says_so() {
    let mut world = world();
    world.cluster("a", 3, "cpu 64");
    let demand = || with_rules(&[apart(HOST)], pods(4, "cpu 1"));
    submit(&mut world, "job", demand());
    assert_snapshot!(world.decide(), @"");
    let why = world.why("job");
    let says = "needs 4 pods × cpu 1, each in another node; a has room for 3 of 4";
    assert!(why.contains("ExceedsFleet") && why.contains(says), "{why}");
    let helps = world.engine.advise(&key("job"), &|_| true);
    let helps: Vec<String> = helps.iter().map(ToString::to_string).collect();
    let helps = helps.join("\n");
    for help in ["ask for 3 worker pods", "add 1 node of class"] {
        assert!(helps.contains(help), "{helps}");
    }
    world.apply(Event::NodeUpserted(node("a", "n3", "cpu 64")));
    assert_snapshot!(world.decide(), @"release job #1 a(n0 n1 n2 n3)");
}

#[test]
fn a_job_with_rules_shares_no_class_with_one_without() {
    let mut world = world();
    world.cluster("a", 3, "cpu 64");
    submit(
        &mut world,
        "ruled",
        with_rules(&[apart(HOST)], pods(4, "cpu 1")),
    );
    submit(&mut world, "free", pods(4, "cpu 1"));
    assert_snapshot!(world.decide(), @"release free #1 a(n0×4)");
}

#[test]
fn zones_count_as_their_nodes_are_labelled() {
    // Zones of nodes, the rules, so many pods; whether they start.
    type Case<'a> = (&'a [&'a str], Vec<PodRule>, u32, bool);
    let zones: &[&str] = &["x", "x", "y"];
    let worker = |kind| rule(ZONE, &["worker"], kind);
    let cases: [Case<'_>; 15] = [
        (zones, vec![apart(ZONE)], 2, true),
        (zones, vec![apart(ZONE)], 3, false),
        // A node without the label is in no domain.
        (&["x", "y", "-"], vec![apart(ZONE)], 5, true),
        (&["x", "y", "-"], vec![apart(ZONE)], 6, false),
        // A node takes three.
        (zones, vec![worker(PodRuleKind::Together)], 6, true),
        (zones, vec![worker(PodRuleKind::Together)], 7, false),
        (
            &["-", "-", "-"],
            vec![worker(PodRuleKind::Together)],
            1,
            false,
        ),
        (zones, vec![worker(spread(1, 1))], 7, true),
        (zones, vec![worker(spread(1, 1))], 8, false),
        (zones, vec![worker(spread(2, 1))], 8, true),
        (zones, vec![worker(spread(1, 3))], 2, true),
        (zones, vec![worker(spread(1, 3))], 3, false),
        (&["x", "y", "-"], vec![worker(spread(1, 1))], 7, false),
        (zones, vec![worker(spread(1, 1)), apart(HOST)], 3, true),
        (
            zones,
            vec![worker(PodRuleKind::Together), apart(HOST)],
            3,
            false,
        ),
    ];
    for (zones, rules, count, starts) in cases {
        let mut world = world();
        zoned(&mut world, "a", zones, "cpu 3");
        let text = format!("{count} by {rules:?} on {zones:?}");
        submit(&mut world, "job", with_rules(&rules, pods(count, "cpu 1")));
        assert_eq!(world.decide().contains("release"), starts, "{text}");
    }
}

#[test]
fn a_full_zone_counts_as_one_with_few_pods() {
    let mut world = world();
    zoned(&mut world, "a", &["x", "y"], "cpu 8");
    world.apply(foreign("a", "n1", "cpu 7"));
    let spread = rule(ZONE, &["worker"], spread(1, 1));
    submit(
        &mut world,
        "four",
        with_rules(std::slice::from_ref(&spread), pods(4, "cpu 1")),
    );
    submit(&mut world, "three", with_rules(&[spread], pods(3, "cpu 1")));
    assert_snapshot!(world.decide(), @"release three #1 a(n0×2 n1)");
}

#[test]
fn nodes_that_the_pods_do_not_select_form_no_domain_to_spread_over() {
    let terms = vec![NodeTerm {
        labels: vec![on_label(ZONE, "x")],
        fields: Vec::new(),
    }];
    for (by_terms, starts) in [(true, true), (false, false)] {
        let mut world = world();
        zoned(&mut world, "a", &["x", "y"], "cpu 8");
        let kind = PodRuleKind::Spread {
            max_skew: 1,
            min_domains: 1,
            by_terms,
            by_taints: false,
        };
        let mut demand = with_rules(&[rule(ZONE, &["worker"], kind)], pods(4, "cpu 1"));
        demand.roles[0].node_terms.clone_from(&terms);
        submit(&mut world, "job", demand);
        assert_eq!(world.decide().contains("release"), starts);
    }
}

#[test]
fn roles_keep_apart_from_each_other() {
    let both = |name: &str, other: &str, count| {
        ruled(
            &[rule(HOST, &[other], PodRuleKind::Apart)],
            role(name, count, "cpu 1"),
        )
    };
    let mut world = world();
    world.cluster("a", 2, "cpu 4");
    let roles = vec![both("ps", "worker", 1), both("worker", "ps", 4)];
    submit(&mut world, "fits", gang(roles));
    let roles = vec![both("ps", "worker", 1), both("worker", "ps", 5)];
    submit(&mut world, "large", gang(roles));
    assert_snapshot!(world.decide(), @"release fits #1 a(n0 n1×4)");
    assert!(
        world.why("large").contains("ExceedsFleet"),
        "{}",
        world.why("large")
    );
}

#[test]
fn pods_that_only_a_rolling_update_starts_keep_no_rules() {
    let mut world = world();
    world.cluster("a", 3, "cpu 64");
    let mut demand = with_rules(&[apart(HOST)], pods(4, "cpu 1"));
    demand.roles[0].unruled = 1;
    submit(&mut world, "job", demand);
    assert!(world.decide().contains("release job"));
}

#[test]
fn parts_of_a_split_gang_keep_the_rules_in_each_cluster() {
    let mut world = world();
    world.cluster("a", 3, "cpu 64").cluster("b", 2, "cpu 64");
    let split = |count| Demand {
        split: Split::Allowed,
        ..with_rules(&[apart(HOST)], pods(count, "cpu 1"))
    };
    submit(&mut world, "six", split(6));
    submit(&mut world, "five", split(5));
    assert_snapshot!(world.decide(), @"release five #1 a(n0 n1 n2) b(n0 n1)");
}

#[test]
fn a_reservation_is_of_nodes_that_the_rules_allow() {
    let mut world = world();
    world.cluster("a", 3, "cpu 8");
    for at in 0..3 {
        world.add(&format!("old{at}"), "q", 1, "cpu 8");
    }
    world.decide();
    (0..3).for_each(|at| world.run(&format!("old{at}")));
    submit(
        &mut world,
        "job",
        with_rules(&[apart(HOST)], pods(3, "cpu 2")),
    );
    world.decide();
    // One node is enough by the amounts; the job keeps a part of all three.
    world.add("next", "q", 1, "cpu 8");
    world.finish("old0");
    world.finish("old1");
    assert_snapshot!(world.decide(), @"");
    world.finish("old2");
    assert!(world.decide().contains("release job #1 a(n0 n1 n2)"));
}

#[test]
fn victims_are_chosen_so_that_the_rules_hold() {
    let mut world = world();
    world.cluster("a", 3, "cpu 8").policy(preempting("q", 0));
    for at in 0..3 {
        let job = world
            .job(&format!("low{at}"), "q", pods(1, "cpu 8"))
            .priority("low");
        world.submit(job);
    }
    world.decide();
    (0..3).for_each(|at| world.run(&format!("low{at}")));
    let job = world.job("job", "q", with_rules(&[apart(HOST)], pods(2, "cpu 1")));
    world.submit(job.priority("high"));
    let decided = world.decide();
    assert_eq!(decided.matches("evict").count(), 2, "{decided}");
}

#[test]
fn growth_goes_to_nodes_without_pods_of_the_job() {
    let mut world = world();
    world.cluster("a", 3, "cpu 8").queue(capped("q", "cpu 64"));
    let held = |count| Demand {
        held: Held::ByReplicas,
        ..with_rules(&[apart(HOST)], pods(count, "cpu 1"))
    };
    let fact = submit(&mut world, "job", held(2));
    assert_snapshot!(world.decide(), @"release job #1 a(n0 n1)");
    world.run("job");
    let grown = |count| {
        Event::JobUpserted(JobFact {
            demand: held(count),
            ..fact.clone()
        })
    };
    world.apply(grown(3));
    assert_snapshot!(world.decide(), @"resize job #1 a(n0 n1 n2)");
    world.resized("job");
    world.apply(grown(4));
    assert_snapshot!(world.decide(), @"");
    assert_eq!(world.state("job"), JobState::Running);
}

#[test]
fn a_label_that_no_node_has_is_named() {
    let asks = |labels: &[(&str, &str)]| {
        let labels = labels.iter().map(|(key, value)| on_label(key, value));
        let mut demand = pods(1, "cpu 1");
        demand.roles[0].node_terms = vec![NodeTerm {
            labels: labels.collect(),
            fields: Vec::new(),
        }];
        demand
    };
    let said = |clusters: &[&str], labels: &[(&str, &str)]| {
        let mut world = world();
        for name in clusters {
            if *name == "empty" {
                world.cluster(name, 0, "cpu 4");
                continue;
            }
            zoned(&mut world, name, &["x", "y"], "cpu 4");
            let mut other = node(name, "gpu", "cpu 4");
            other
                .labels
                .insert("accelerator".to_owned(), format!("of-{name}"));
            world.apply(Event::NodeUpserted(other));
        }
        submit(&mut world, "job", asks(labels));
        world.decide();
        let helps = world.engine.advise(&key("job"), &|_| true);
        let helps: Vec<String> = helps.iter().map(ToString::to_string).collect();
        format!("{}\n{}", world.why("job"), helps.join("\n"))
    };
    let many: Vec<String> = (0..12).map(|at| format!("m{at:02}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    type Case<'a> = (&'a [&'a str], &'a [(&'a str, &'a str)], &'a [&'a str]);
    let everywhere = "no node of any cluster has accelerator=h900";
    let cases: [Case<'_>; 5] = [
        (
            &["a"],
            &[("accelerator", "h900")],
            &["no node of a has accelerator=h900"],
        ),
        (
            &["a", "b"],
            &[(ZONE, "x"), ("accelerator", "h900")],
            &[everywhere],
        ),
        (&["a", "empty"], &[("accelerator", "h900")], &[everywhere]),
        (&many, &[("accelerator", "h900")], &[everywhere]),
        (
            &["a", "b"],
            &[("accelerator", "of-b"), (ZONE, "x")],
            &[
                "no node of a has accelerator=of-b",
                "no node of b has accelerator=of-b and zone=x",
            ],
        ),
    ];
    for (clusters, labels, says) in cases {
        let found = said(clusters, labels);
        assert!(says.iter().all(|text| found.contains(text)), "{found}");
    }
}
