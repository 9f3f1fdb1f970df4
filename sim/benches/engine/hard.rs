//! Cases that are known to make schedulers slow, compared with the steady case: each may cost at
//! most ten times as much.

use crate::fixture::{Chance, NODE_GPUS, Times, World, cpu_node, pods};
use crate::sheet::{Goal, Sheet};
use engine::Event;
use engine::facts::{PolicyFact, Preemption, PriorityClassFact, QueueFact, QueueOrdering, Split};
use sim::input::plain;
use sim::scenario::{plain_policy, plain_queue};
use std::time::{Duration, Instant};

/// Repetitions of each case, and the time limit of a case.
const ROUNDS: usize = 2_000;
const LONGEST: Duration = Duration::from_secs(15);
/// The largest ratio to the steady case that a case may reach.
const MOST: f64 = 10.0;

pub(crate) fn run(sheet: &mut Sheet, quick: bool) {
    let jobs = if quick { 1_000 } else { 100_000 };
    let steady = one_queue(jobs, Blocked::Nobody);
    let mean = steady.total_seconds() * 1e6 / steady.len().max(1) as f64;
    let mut row = |name: &str, mut times: Times| {
        let each = times.total_seconds() * 1e6 / times.len().max(1) as f64;
        let [p50, p99, max] = times.micros();
        sheet.add(
            name,
            each,
            "µs",
            Goal::AtMost(mean * MOST),
            &[
                ("times the steady case", each / mean),
                ("p50 µs", p50),
                ("p99 µs", p99),
                ("max µs", max),
            ],
        );
    };
    row(
        &format!("steady: one queue of {jobs}, one ends, one starts"),
        steady,
    );
    row(
        &format!("{jobs} blocked heads, one ends, nobody fits"),
        one_queue(jobs, Blocked::Everybody),
    );
    row(
        &format!("{} heads that all differ, the last one fits", jobs / 10),
        one_queue(jobs / 10, Blocked::AllButLast),
    );
    row(
        &format!("{jobs} blocked, a node comes and goes"),
        flapping_node(jobs),
    );
    row(
        &format!("{jobs} blocked, a queue's capability goes up and down"),
        flapping_quota(jobs),
    );
    row(
        "preemption: each arrival evicts what it needs",
        storm(quick),
    );
    let mut gang = gang_over_clusters();
    let [p50, p99, max] = gang.micros();
    sheet.add(
        "a gang of 1,024 pods over 8 clusters",
        p50,
        "µs",
        Goal::None,
        &[
            ("p99 µs", p99),
            ("max µs", max),
            ("times the steady case", p50 / mean),
            ("a pod, times the steady case", p50 / mean / 1024.0),
        ],
    );
    small_jobs(sheet, quick);
}

/// Which of the pending jobs cannot start.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Blocked {
    Nobody,
    Everybody,
    AllButLast,
}

/// Measures one job's end in a full fleet of 4,000 GPUs with one queue.
fn one_queue(jobs: usize, blocked: Blocked) -> Times {
    let mut world = World::new(16, 32);
    let queue = world.queue("deep", QueueOrdering::BestEffort);
    let nodes = 16 * 32;
    for _ in 0..nodes * NODE_GPUS {
        world.submit(&queue, pods(1, 1, 1_000));
    }
    world.settle();
    for index in 0..jobs {
        let last = index + 1 == jobs;
        let demand = match blocked {
            Blocked::Nobody => pods(1, 1, 1_000),
            Blocked::Everybody => pods(4, 8, 1_000),
            Blocked::AllButLast if last => pods(1, 1, 1_000),
            Blocked::AllButLast => pods(2, 8, 1_000 + index as i64),
        };
        world.submit(&queue, demand);
    }
    world.settle();
    let mut chance = Chance::new(3);
    repeat(|| {
        let ended = world.complete(chance.below(world.running.len()));
        let time = ended + world.settle().1;
        if blocked == Blocked::AllButLast {
            world.submit(&queue, pods(1, 1, 1_000));
            world.settle();
        }
        time
    })
}

fn repeat(mut round: impl FnMut() -> Duration) -> Times {
    let mut times = Times::new();
    let begin = Instant::now();
    while times.len() < ROUNDS && begin.elapsed() < LONGEST {
        times.add(round());
    }
    times
}

/// Applies `event`, decides, and returns the time spent in the engine.
fn told(world: &mut World, event: Event) -> Duration {
    world.later(1);
    world.tell(event) + world.settle().1
}

fn all_blocked(jobs: usize) -> World {
    let mut world = World::new(16, 32);
    for index in 0..10 {
        let name = format!("q-{index}");
        let queue = world.queue(&name, QueueOrdering::Backfill);
        for job in 0..jobs / 10 {
            // These jobs need more empty nodes than there are, and fewer nodes than the fleet has.
            world.submit(&queue, pods(20 + (job % 5) as u32, 8, 1_000));
        }
    }
    world.settle();
    world
}

fn flapping_node(jobs: usize) -> Times {
    let mut world = all_blocked(jobs);
    let mut node = cpu_node("member-000", 9_999, 32);
    world.engine.apply(Event::NodeUpserted(node.clone()));
    world.settle();
    repeat(|| {
        node.usable = !node.usable;
        told(&mut world, Event::NodeUpserted(node.clone()))
    })
}

fn flapping_quota(jobs: usize) -> Times {
    let mut world = all_blocked(jobs);
    let mut up = false;
    repeat(|| {
        up = !up;
        let gpus = if up { 1_000_000 } else { 900_000 };
        let fact = QueueFact {
            capability: crate::fixture::res(gpus, 0),
            ..plain_queue("q-3")
        };
        told(&mut world, Event::QueueUpserted(fact))
    })
}

/// Measures arrivals of high priority in a fleet full of low priority: each evicts one job.
fn storm(quick: bool) -> Times {
    let nodes = if quick { 4 } else { 32 };
    let mut world = World::new(16, nodes);
    for (name, value) in [("low", 0), ("high", 100)] {
        world
            .engine
            .apply(Event::PriorityClassUpserted(PriorityClassFact {
                name: name.to_owned(),
                value,
                global_default: false,
                preempts: true,
            }));
    }
    let queue = world.queue("storm", QueueOrdering::Backfill);
    world.engine.apply(Event::PolicyUpserted(PolicyFact {
        preemption: Preemption {
            within_queue: true,
            ..Preemption::default()
        },
        ..plain_policy("storm")
    }));
    for _ in 0..16 * nodes as i64 * NODE_GPUS / 2 {
        world.submit_as(&queue, pods(1, 2, 1_000), Some("low"));
    }
    world.settle();
    repeat(|| {
        world.submit_as(&queue, pods(1, 2, 1_000), Some("high"));
        world.later(1);
        // The first round chooses the victim, the second admits the preemptor.
        world.settle().1 + world.settle().1
    })
}

/// Measures a gang that takes all eight clusters, repeatedly.
fn gang_over_clusters() -> Times {
    let mut world = World::new(8, 16);
    let queue = world.queue("gangs", QueueOrdering::Backfill);
    let mut demand = pods(1024, 1, 1_000);
    demand.split = Split::Allowed;
    demand.natively_divisible = true;
    let mut times = Times::new();
    for _ in 0..50 {
        world.submit(&queue, demand.clone());
        let (_, took) = world.settle();
        if world.running.is_empty() {
            eprintln!("the gang of 1,024 pods was not placed");
            return times;
        }
        times.add(took);
        world.complete(0);
        world.settle();
    }
    times
}

/// Runs Armada's case: 32,000 jobs on 1,000 nodes, placed node by node.
fn small_jobs(sheet: &mut Sheet, quick: bool) {
    let (jobs, nodes) = if quick { (320, 10) } else { (32_000, 1_000) };
    let mut world = World::new(0, 0);
    world
        .engine
        .apply(Event::ClusterUpserted(plain::cluster("one")));
    for node in 0..nodes {
        let fact = cpu_node("one", node, 32);
        world.engine.apply(Event::NodeUpserted(fact));
    }
    let queue = world.queue("small", QueueOrdering::Backfill);
    for _ in 0..jobs {
        world.submit(&queue, pods(1, 0, 1_000));
    }
    let (count, took) = world.settle();
    let name = format!("{jobs} jobs on {nodes} nodes, node by node");
    sheet.add(
        &name,
        took.as_secs_f64(),
        "s",
        Goal::AtMost(0.6),
        &[
            ("placed", count as f64),
            ("jobs/s", count as f64 / took.as_secs_f64()),
        ],
    );
}
