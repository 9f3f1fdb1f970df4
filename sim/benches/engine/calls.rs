//! Inputs that made single calls of the engine long: what one call takes, and how that grows.
//!
//! A long call delays all reactions, and the first decision of a new leader. Each input has a parameter;
//! the time of the largest is compared with that of the smallest in the same run.

use crate::fixture::{Chance, NODE_GPUS, World, cpu_node, node_of, pods, res};
use crate::sheet::{Goal, Sheet};
use engine::facts::{Ageing, Limits, PolicyFact, QueueFact, QueueOrdering, Split};
use engine::matching::{Taint, TaintEffect};
use engine::resources::ResourceName;
use engine::{Amount, Event, QueueName};
use sim::input::plain;
use sim::scenario::{plain_policy, plain_queue};
use std::time::Instant;

/// The most that the largest input of a case may take, in times of its smallest.
const MOST: f64 = 3.0;
/// Changes or ends of jobs that a case measures.
const ROUNDS: usize = 200;

/// Runs the cases whose name contains `only`.
pub(crate) fn run(sheet: &mut Sheet, quick: bool, only: &str) {
    let mut grows = |name: &str, sizes: &[usize], case: &dyn Fn(usize) -> f64| {
        if name.contains(only) {
            grows(sheet, name, sizes, case);
        }
    };
    let scale = if quick { 20 } else { 1 };
    grows(
        "jobs with run times of their own, a job",
        &[2_500, 5_000, 10_000, 25_000].map(|n| n / scale),
        &distinct_declared,
    );
    grows(
        "a gang of 256 nodes ends, shapes wait",
        &[1, 64, 512, 2_048],
        &|shapes| gang_ends(2_048 / scale, shapes),
    );
    grows(
        "kinds of CPU-only pods beside GPU jobs, 10,500 nodes",
        &[1, 40, 60, 80],
        &|kinds| cpu_kinds(500 / scale, kinds),
    );
    for (name, change) in [
        ("a label of a node changes", NodeChange::Label),
        ("a taint of a node comes and goes", NodeChange::Taint),
        ("a device of a node comes and goes", NodeChange::Device),
        ("a node is usable and is not", NodeChange::Usable),
    ] {
        let classes = [1, 100, 4_000];
        grows(&format!("{name}, classes wait"), &classes, &|classes| {
            node_changes(classes, change)
        });
    }
    grows(
        "pods of a divisible gang that waits over 5,000 nodes",
        &[40, 400, 2_000],
        &|pods| divisible(100 / scale, pods),
    );
    let queued = 1_000_000 / scale.pow(2);
    let name = "policies change, queued jobs";
    grows(name, &[queued / 100, queued], &policies_change);
    let name = "a policy at the root changes, queued jobs";
    grows(name, &[queued / 100, queued], &root_policy_changes);
    let name = "a cluster is unreachable and comes back, queued jobs";
    grows(name, &[queued / 100, queued], &cluster_flaps);
    let name = "reclaim in a full fleet, clusters";
    grows(name, &[50 / scale, 500 / scale], &reclaim);
    grows(
        "each job ends in a full fleet beside reservations, queues",
        &[10, 100, 1_000 / scale],
        &gangs_reserve,
    );
}

/// Runs a case with each size: one row for each, and one that compares the ends.
fn grows(sheet: &mut Sheet, name: &str, sizes: &[usize], case: &dyn Fn(usize) -> f64) {
    let mut each = Vec::new();
    for size in sizes {
        let millis = case(*size);
        each.push(millis);
        sheet.add(&format!("{name}: {size}"), millis, "ms", Goal::None, &[]);
    }
    if let (Some(first), Some(last)) = (each.first(), each.last()) {
        let name = format!("{name}: the last to the first");
        sheet.add(&name, last / first, "times", Goal::AtMost(MOST), &[]);
    }
}

/// Returns milliseconds for each of `count`.
fn millis_each(begin: Instant, count: usize) -> f64 {
    begin.elapsed().as_secs_f64() * 1e3 / count.max(1) as f64
}

/// Jobs of one GPU that arrive together, each with its own declared run time; then they end one by one.
fn distinct_declared(jobs: usize) -> f64 {
    let mut world = World::new(1, 125);
    let queue = world.queue("q", QueueOrdering::Backfill);
    let begin = Instant::now();
    for index in 0..jobs {
        world.submit_declared(&queue, pods(1, 1, 1_000), 3_600_000 + index as i64 * 1_000);
    }
    world.settle();
    while !world.running.is_empty() {
        world.complete(0);
        world.settle();
    }
    millis_each(begin, jobs)
}

/// A gang of 256 nodes ends, and jobs of so many shapes wait for it.
fn gang_ends(jobs: usize, shapes: usize) -> f64 {
    let mut world = World::new(1, 256);
    let queue = world.queue("q", QueueOrdering::Backfill);
    world.submit(&queue, pods(256, NODE_GPUS, 8_000));
    world.settle();
    for index in 0..jobs {
        world.submit(&queue, pods(1, 1, 1_000 + (index % shapes) as i64));
    }
    world.settle();
    let begin = Instant::now();
    world.complete(0);
    world.settle();
    assert!(world.running.len() == jobs.min(2_048), "all fit");
    millis_each(begin, 1)
}

/// GPU jobs and many kinds of pods without GPUs start on 21 clusters.
fn cpu_kinds(nodes: usize, kinds: usize) -> f64 {
    let mut world = World::new(21, nodes);
    let queue = world.queue("q", QueueOrdering::Backfill);
    for kind in 0..kinds {
        for _ in 0..20 {
            world.submit(&queue, pods(1, 0, 500 + 10 * kind as i64));
        }
    }
    world.settle();
    for index in 0..2_000 {
        world.submit(&queue, pods(1, 1 << (index % 4), 4_000));
    }
    let begin = Instant::now();
    world.settle();
    millis_each(begin, 1)
}

/// What changes of a node.
#[derive(Clone, Copy)]
enum NodeChange {
    Label,
    Taint,
    Device,
    Usable,
}

/// A fact of one node changes while classes wait for a full fleet.
fn node_changes(classes: usize, change: NodeChange) -> f64 {
    let mut world = World::new(16, 32);
    let queue = world.queue("q", QueueOrdering::Backfill);
    for _ in 0..16 * 32 {
        world.submit(&queue, pods(1, NODE_GPUS, 1_000));
    }
    world.settle();
    for class in 0..classes {
        world.submit(&queue, pods(2, NODE_GPUS, 2_000 + class as i64));
    }
    world.settle();
    let mut node = node_of("member-007", 11);
    let begin = Instant::now();
    for round in 0..ROUNDS {
        match change {
            NodeChange::Label => {
                node.labels.insert("rev".to_owned(), format!("{round}"));
            }
            NodeChange::Taint if node.taints.is_empty() => {
                node.taints.push(Taint {
                    key: "upgrade".to_owned(),
                    value: String::new(),
                    effect: TaintEffect::NoSchedule,
                });
            }
            NodeChange::Taint => node.taints.clear(),
            NodeChange::Device => {
                let gpus = NODE_GPUS - (round % 2) as i64;
                let name = ResourceName::new("nvidia.com/gpu");
                node.allocatable.set(name, Amount(gpus));
            }
            NodeChange::Usable => node.usable = !node.usable,
        }
        world.tell(Event::NodeUpserted(node.clone()));
        world.settle();
    }
    millis_each(begin, ROUNDS)
}

/// A gang of so many pods that may be divided over clusters waits, and jobs end beside it.
fn divisible(clusters: usize, gang: usize) -> f64 {
    let mut world = World::new(clusters, 50);
    let queue = world.queue("q", QueueOrdering::Backfill);
    for _ in 0..clusters * 50 {
        world.submit(&queue, pods(1, NODE_GPUS, 1_000));
    }
    world.settle();
    let mut demand = pods(gang as u32, NODE_GPUS, 1_000);
    demand.split = Split::Allowed;
    demand.natively_divisible = true;
    world.submit(&queue, demand);
    world.settle();
    let mut chance = Chance::new(5);
    let begin = Instant::now();
    for _ in 0..ROUNDS {
        world.complete(chance.below(world.running.len()));
        world.settle();
    }
    millis_each(begin, ROUNDS)
}

/// A full fleet, 1,000 queues and `jobs` queued in them.
fn queued(jobs: usize) -> (World, Vec<QueueName>) {
    let mut world = World::new(16, 32);
    let leaves = world.tree(1_000, 16 * 32 * NODE_GPUS, false);
    let mut chance = Chance::new(9);
    for index in 0..jobs + 16 * 32 * NODE_GPUS as usize {
        let cores = 1_000 * (1 + index % 6) as i64;
        world.submit(&leaves[chance.below(leaves.len())], pods(1, 1, cores));
    }
    world.settle();
    (world, leaves)
}

/// Each of many queues gets another policy, with and without a rule for ageing.
fn policies_change(jobs: usize) -> f64 {
    let (mut world, leaves) = queued(jobs);
    let begin = Instant::now();
    for (index, queue) in leaves.iter().enumerate() {
        let mut policy = PolicyFact {
            limits: Limits {
                pending: Some(100_000),
                ..Limits::default()
            },
            ..plain_policy(queue.as_str())
        };
        policy.ageing = index.is_multiple_of(4).then_some(Ageing {
            every_ms: 3_600_000,
            raise: 1,
            classes: None,
        });
        world.tell(Event::PolicyUpserted(policy));
    }
    world.settle();
    millis_each(begin, leaves.len())
}

/// The policy of the root changes: the number of jobs of a user, and back.
fn root_policy_changes(jobs: usize) -> f64 {
    let (mut world, _) = queued(jobs);
    let begin = Instant::now();
    for round in 0..10 {
        let policy = PolicyFact {
            limits: Limits {
                jobs_per_user: (round % 2 == 0).then_some(1_000_000),
                ..Limits::default()
            },
            ..plain_policy("root")
        };
        world.tell(Event::PolicyUpserted(policy));
        world.settle();
    }
    millis_each(begin, 10)
}

/// A cluster is unreachable, and comes back.
fn cluster_flaps(jobs: usize) -> f64 {
    let (mut world, _) = queued(jobs);
    let mut cluster = plain::cluster("member-007");
    let begin = Instant::now();
    for _ in 0..20 {
        cluster.usable = !cluster.usable;
        world.tell(Event::ClusterUpserted(cluster.clone()));
        world.settle();
    }
    millis_each(begin, 20)
}

/// Jobs of a queue below what it deserves reclaim from one that has the whole fleet.
fn reclaim(clusters: usize) -> f64 {
    let mut world = World::new(clusters, 10);
    let gpus = clusters as i64 * 10 * NODE_GPUS;
    for name in ["over", "under"] {
        world.tell(Event::QueueUpserted(QueueFact {
            deserved: res(gpus / 2, 0),
            ..plain_queue(name)
        }));
        world.tell(Event::PolicyUpserted(plain_policy(name)));
    }
    for _ in 0..gpus {
        world.submit(&QueueName::from("over"), pods(1, 1, 1_000));
    }
    world.settle();
    assert_eq!(world.running.len() as i64, gpus);
    let begin = Instant::now();
    for _ in 0..20 {
        world.submit(&QueueName::from("under"), pods(2, 4, 1_000));
        world.later(1);
        // The first round chooses the victims, the second admits the preemptor.
        world.settle();
        world.settle();
    }
    assert!(
        world.running.len() as i64 == gpus - 20 * 7,
        "{}",
        world.running.len()
    );
    millis_each(begin, 20)
}

/// In a full fleet each queue has a gang that waits for nodes: jobs end, others start.
fn gangs_reserve(queues: usize) -> f64 {
    let mut world = World::new(16, 32);
    let leaves = world.tree(queues, 16 * 32 * NODE_GPUS, true);
    for node in 0..16 {
        world.tell(Event::NodeUpserted(cpu_node(
            "member-000",
            1_000 + node,
            32,
        )));
    }
    let mut chance = Chance::new(13);
    for _ in 0..16 * 32 * NODE_GPUS + 8_000 {
        let leaf = &leaves[chance.below(leaves.len())];
        world.submit_declared(
            leaf,
            pods(1, 1, 1_000),
            60_000 * (1 + chance.below(600) as i64),
        );
    }
    world.settle();
    for leaf in &leaves {
        world.submit(leaf, pods(2 + chance.below(14) as u32, NODE_GPUS, 1_000));
    }
    world.settle();
    let begin = Instant::now();
    for _ in 0..ROUNDS {
        world.complete(chance.below(world.running.len()));
        world.settle();
    }
    millis_each(begin, ROUNDS)
}
