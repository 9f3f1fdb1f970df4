//! Spare nodes: kept for large gangs, lent meanwhile, and never in the way for ever.

use crate::world::{World, below, capped, deserving, key, node, pods, policy, queue};
use engine::facts::{PodFact, PolicyFact, SpareRule};
use engine::{EngineConfig, Event, JobState, NodeName, QueueName};
use insta::assert_snapshot;

fn sparing(name: &str, nodes: u32, for_gangs_of: u32) -> PolicyFact {
    PolicyFact {
        spare: Some(SpareRule {
            nodes,
            class: None,
            for_gangs_of,
        }),
        ..policy(name)
    }
}

/// So many nodes of 8 GPUs in cluster `a`, and a gang of two whole nodes of queue `q`, which keeps one spare node.
pub fn running(nodes: u32) -> World {
    let mut world = World::with(EngineConfig {
        recovery_deadline_ms: Some(60_000),
        ..EngineConfig::default()
    });
    world
        .cluster("a", nodes, "cpu 64, gpu 8")
        .queue(queue("q"))
        .queue(queue("p"))
        .policy(sparing("q", 1, 2));
    world.runs("gang", "q", 2, "gpu 8");
    assert_eq!(spares(&world), "n2");
    world
}

/// The spare nodes of `q`; those that are lent have a star.
fn spares(world: &World) -> String {
    let nodes = world.engine.spare_nodes(&QueueName::from("q"));
    let nodes = nodes
        .into_iter()
        .map(|((_, node), lent)| format!("{node}{}", if lent { "*" } else { "" }));
    nodes.collect::<Vec<_>>().join(" ")
}

pub fn stays(world: &mut World, name: &str, queue: &str, count: u32, request: &str) {
    let mut job = world.job(name, queue, pods(count, request));
    job.0.preemptible = false;
    world.submit(job);
}

fn pod_on(world: &World, job: &str, name: &str) -> PodFact {
    let mut pods = world.pods[&key(job)].iter();
    let on = |pod: &&PodFact| pod.node == Some(NodeName::from(name));
    pods.find(on).unwrap().clone()
}

fn lose(world: &mut World, name: &str) {
    world.apply(Event::NodeGone("a".into(), name.into()));
}

#[test]
fn a_spare_node_is_kept_from_jobs_that_stay_and_is_there_when_the_gang_loses_one() {
    let mut world = running(3);
    stays(&mut world, "stays", "p", 1, "gpu 1");
    assert_snapshot!(world.decide(), @"");
    assert_snapshot!(world.why("stays"), @"#1 NextInLine: needs 1 pod × nvidia.com/gpu 1; a has room for 0 of 1; 1 node is kept as a spare for large gangs of queue q; it is next: what becomes free is reserved for it");
    let lost = pod_on(&world, "gang", "n1");
    lose(&mut world, "n1");
    assert_snapshot!(world.decide(), @"");
    // Its controller starts another pod there.
    world.apply(Event::PodGone(lost.cluster.clone(), lost.uid.clone()));
    world.apply(Event::PodUpserted(PodFact {
        uid: "replaced".into(),
        node: Some("n2".into()),
        ..lost
    }));
    assert_snapshot!(world.decide(), @"");
    assert_snapshot!(world.why("gang"), @"Running: runs; attempt 1 on a, charged nvidia.com/gpu 16, pods 2 to queue q");
    // The next node is the next spare one.
    assert_snapshot!(spares(&world), @"");
    world.apply(Event::NodeUpserted(node("a", "n3", "cpu 64, gpu 8")));
    assert_snapshot!(world.decide(), @"");
    assert_snapshot!(spares(&world), @"n3");
    // Once the gang has ended, others have it.
    world.finish("gang");
    world.wait(6);
    assert_snapshot!(world.decide(), @"release stays #1 a(n0)");
    assert_snapshot!(spares(&world), @"");
}

#[test]
fn a_lent_node_comes_back_when_the_gang_needs_it() {
    let mut world = running(3);
    world.runs("lent", "p", 1, "gpu 8");
    assert_snapshot!(spares(&world), @"n2*");
    lose(&mut world, "n1");
    assert_snapshot!(world.decide(), @"evict lent #1 for gang: Reclaimed: reclaimed for ns/gang, which has lost pods: it ran on a node that is lent and kept as a spare for large gangs of queue q");
    // It is waited for, longer than for nothing.
    world.wait(30);
    assert_snapshot!(world.decide(), @"");
    world.works_gone("lent");
    assert_snapshot!(world.decide(), @"");
    assert_eq!(world.engine.pods_of(&key("gang")).assumed().len(), 1);
    assert_eq!(
        world.engine.job(&key("lent")).unwrap().state,
        JobState::Queued
    );
    // If its controller does not use it, the gang starts again as a whole, and on the spare node.
    world.wait(30);
    assert_snapshot!(world.decide(), @"evict gang #1: PodsLost: for 60 s 1 of the 2 pods it needs on a have been running, and no others took their place");
    world.works_gone("gang");
    assert_snapshot!(world.decide(), @"release gang #2 a(n0 n2)");
}

#[test]
fn a_node_is_lent_to_jobs_of_lower_priority_of_the_same_queue_only() {
    let mut world = running(3);
    world.add("equal", "q", 1, "gpu 8");
    assert_snapshot!(world.decide(), @"");
    let low = world.job("lower", "q", pods(1, "gpu 4")).priority("low");
    world.submit(low);
    assert_snapshot!(world.decide(), @"release lower #1 a(n2)");
    let mut protected = policy("p");
    protected.preemption.min_runtime_ms = 1;
    world.policy(protected);
    world.add("protected", "p", 1, "gpu 1");
    assert_snapshot!(world.decide(), @"");
}

#[test]
fn spare_nodes_count_at_their_queue_and_stay_within_its_quota() {
    let mut world = running(6);
    // Four nodes: two for the gang, one kept, and so one for others.
    world.queue(capped("q", "gpu 32"));
    stays(&mut world, "three", "q", 1, "gpu 8");
    stays(&mut world, "four", "q", 1, "gpu 8");
    assert_snapshot!(world.decide(), @"release three #1 a(n3)");
    assert_snapshot!(world.why("four"), @"#1 NextInLine: needs nvidia.com/gpu 8; queue q may use 32 and has 24 charged and 8 kept for a job ahead: short by 8; 1 node is kept as a spare for large gangs of queue q; it is next: what becomes free is reserved for it");
    // The queue may not use so much any more: nothing is kept.
    world.queue(capped("q", "gpu 31"));
    world.decide();
    assert_snapshot!(spares(&world), @"");
    world.apply(Event::JobGone(key("four")));
    world.queue(capped("q", "gpu 32"));
    world.decide();
    assert_snapshot!(spares(&world), @"n2");
    // Nor beyond what it deserves.
    world.queue(deserving("q", "gpu 31"));
    world.decide();
    assert_snapshot!(spares(&world), @"");
    world.queue(deserving("q", "gpu 32"));
    world.decide();
    assert_snapshot!(spares(&world), @"n2");
}

#[test]
fn what_other_queues_borrow_is_no_bound_of_spare_nodes() {
    let mut world = World::new();
    world
        .cluster("a", 8, "cpu 64, gpu 8")
        .queue(deserving("q", "gpu 24"))
        .queue(queue("p"))
        .policy(sparing("q", 1, 2));
    // What all queues deserve together is less than what is charged.
    world.runs("borrows", "p", 4, "gpu 8");
    world.runs("gang", "q", 2, "gpu 8");
    assert_snapshot!(spares(&world), @"n6");
}

#[test]
fn a_node_is_lent_although_all_of_the_fleet_is_used() {
    let mut world = running(3);
    // Together they deserve more than there is.
    world.queue(deserving("q", "gpu 24"));
    world.queue(deserving("p", "gpu 8"));
    world.runs("lent", "p", 1, "gpu 8");
    assert_snapshot!(spares(&world), @"n2*");
    lose(&mut world, "n1");
    assert_snapshot!(world.decide(), @"evict lent #1 for gang: Reclaimed: reclaimed for ns/gang, which has lost pods: it ran on a node that is lent and kept as a spare for large gangs of queue q");
}

#[test]
fn a_lent_node_counts_above_its_queue_unless_the_borrower_is_charged_there() {
    for (parent, expected) in [("team", "n2*"), ("other", "")] {
        let mut world = running(3);
        world.queue(capped("team", "gpu 16"));
        world.queue(queue("other"));
        world.queue(below("team", queue("q")));
        world.queue(below(parent, queue("p")));
        world.decide();
        // All of what its parent may use is used.
        assert_eq!(spares(&world), "");
        world.queue(capped("team", "gpu 24"));
        world.runs("lent", "p", 1, "gpu 8");
        assert_eq!(spares(&world), "n2*");
        if parent == "other" {
            world.queue(capped("team", "gpu 16"));
            world.decide();
        }
        assert_eq!(spares(&world), expected);
    }
}

#[test]
fn a_job_that_needs_the_spare_node_starts_when_the_gang_has_ended_and_none_passes_it() {
    let mut world = running(4);
    stays(&mut world, "large", "p", 2, "gpu 8");
    assert_snapshot!(world.decide(), @"");
    assert_snapshot!(world.why("large"), @"#1 NextInLine: needs 2 pods × nvidia.com/gpu 8; a has room for 1 of 2; 1 node is kept as a spare for large gangs of queue q; it is next: what becomes free is reserved for it");
    stays(&mut world, "small", "p", 1, "gpu 8");
    assert_snapshot!(world.decide(), @"");
    world.finish("gang");
    world.wait(6);
    assert_snapshot!(world.decide(), @r"
    release large #1 a(n0 n1)
    release small #1 a(n2)
    ");
}

#[test]
fn a_job_ahead_of_a_gang_that_waits_again_is_not_bound_by_its_spare() {
    let mut world = running(3);
    let other = world.job("first", "q", pods(2, "gpu 8")).priority("high");
    world.submit(other);
    world.decide();
    lose(&mut world, "n1");
    world.decide();
    world.wait(60);
    assert_snapshot!(world.decide(), @"evict gang #1: PodsLost: for 60 s 1 of the 2 pods it needs on a have been running, and no others took their place");
    assert_snapshot!(spares(&world), @"n2");
    world.works_gone("gang");
    assert_snapshot!(world.decide(), @"release first #1 a(n0 n2)");
    assert_snapshot!(spares(&world), @"");
}

#[test]
fn without_a_rule_or_after_it_nothing_is_kept() {
    let mut world = running(3);
    let restored = engine::Engine::restore(world.engine.snapshot(), EngineConfig::default());
    assert_eq!(restored.snapshot(), world.engine.snapshot());
    world.policy(policy("q"));
    world.decide();
    assert_snapshot!(spares(&world), @"");
}

/// Random jobs, losses and ends: the audit holds after each step, nothing that stays is placed on a spare node, and
/// when nothing more is lost, every job starts.
#[test]
fn every_job_starts_beside_spares() {
    for seed in 0..10 {
        let mut random = Draws(seed);
        let mut world = World::with(EngineConfig {
            recovery_deadline_ms: Some(20_000),
            ..EngineConfig::default()
        });
        world
            .cluster("a", 5, "cpu 64, gpu 8")
            .queue(deserving("q", "gpu 32"))
            .queue(queue("p"))
            .policy(sparing("q", 1 + u32::try_from(seed % 2).unwrap(), 2));
        let mut jobs: Vec<String> = Vec::new();
        for step in 0..60 {
            match random.below(5) {
                0 | 1 => {
                    let name = format!("j{step}");
                    let queue = if random.below(2) == 0 { "q" } else { "p" };
                    let count = 1 + u32::try_from(random.below(4)).unwrap();
                    let gpus = if random.below(3) == 0 {
                        "gpu 2"
                    } else {
                        "gpu 8"
                    };
                    let mut job = world.job(&name, queue, pods(count, gpus));
                    job.0.preemptible = random.below(2) == 0;
                    job.0.priority_class = (random.below(3) == 0).then(|| "low".to_owned());
                    world.submit(job);
                    jobs.push(name);
                }
                2 => {
                    let name = format!("n{}", random.below(5));
                    lose(&mut world, &name);
                    world.settle(20);
                    world.apply(Event::NodeUpserted(node("a", &name, "cpu 64, gpu 8")));
                }
                3 => {
                    let runs = |name: &&String| state(&world, name) == Some(JobState::Running);
                    if let Some(name) = jobs.iter().find(runs).cloned() {
                        end(&mut world, &name);
                    }
                }
                _ => {
                    world.wait(20);
                }
            }
            world.settle(20);
        }
        let mut rounds = 0;
        while jobs.iter().any(|name| state(&world, name).is_some()) {
            rounds += 1;
            assert!(rounds < 400, "seed {seed}: {jobs:?}");
            world.wait(30).settle(30);
            let runs = |name: &&String| state(&world, name) == Some(JobState::Running);
            if let Some(name) = jobs.iter().find(runs).cloned() {
                end(&mut world, &name);
            }
        }
    }
}

/// A small generator of numbers (splitmix64).
struct Draws(u64);

impl Draws {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % bound
    }
}

fn state(world: &World, name: &str) -> Option<JobState> {
    world.engine.job(&key(name)).map(|job| job.state)
}

fn end(world: &mut World, name: &str) {
    world.finish(name);
    world.apply(Event::JobGone(key(name)));
    world.wait(6);
}
