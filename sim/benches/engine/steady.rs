//! The steady case: in a full fleet with many pending jobs, one job ends and others start.

use crate::ALLOCATED;
use crate::fixture::{Chance, NODE_GPUS, Times, World, pods};
use crate::sheet::{Goal, Sheet};
use engine::QueueName;
use engine::facts::Demand;
use std::time::{Duration, Instant};

const NODES_PER_CLUSTER: usize = 32;
/// Timed completions in each cell, and the time limit of a cell.
const COMPLETIONS: usize = 20_000;
const LONGEST: Duration = Duration::from_secs(20);

/// The results of one cell of the grid.
struct Cell {
    per_second: f64,
    micros: [f64; 3],
    bytes_per_job: f64,
    load_per_second: f64,
}

pub(crate) fn run(sheet: &mut Sheet, quick: bool) {
    let scale = if quick { 100 } else { 1 };
    let clusters = 500 / scale.min(50);
    let grid = [
        (10_000 / scale, 1_000, clusters),
        (100_000 / scale, 1_000, clusters),
        (1_000_000 / scale, 1_000, clusters),
        (100_000 / scale, 10, 10),
        (100_000 / scale, 100, 100),
    ];
    let few = 100_000 / scale;
    add_cell(sheet, [few, 1_000 / scale.min(10), clusters], false, true);
    let mut by_jobs = Vec::new();
    for (index, (jobs, queues, clusters)) in grid.into_iter().enumerate() {
        let queues = queues / scale.min(10);
        let per_second = add_cell(sheet, [jobs, queues, clusters], index == 2, false);
        if index < 3 {
            by_jobs.push((jobs as f64, 1.0 / per_second));
        }
    }
    sheet.add(
        "growth of time with jobs queued",
        exponent(&by_jobs),
        "exponent",
        Goal::AtMost(0.2),
        &[],
    );
}

/// Runs a cell, adds its row and returns decisions per second. With `guaranteed`, a third of the
/// queues have a guarantee of half their deserved amount.
pub(crate) fn add_cell(
    sheet: &mut Sheet,
    [jobs, queues, clusters]: [usize; 3],
    largest: bool,
    guaranteed: bool,
) -> f64 {
    let cell = cell(jobs, queues, clusters, guaranteed);
    let with = if guaranteed { ", guarantees" } else { "" };
    let name =
        format!("admit and complete: {jobs} queued, {queues} queues, {clusters} clusters{with}");
    let goal = if largest {
        Goal::AtLeast(200_000.0)
    } else {
        Goal::None
    };
    let beside = [
        ("p50 µs", cell.micros[0]),
        ("p99 µs", cell.micros[1]),
        ("max µs", cell.micros[2]),
        ("bytes a job", cell.bytes_per_job),
        ("submitted/s", cell.load_per_second),
    ];
    sheet.add(&name, cell.per_second, "decisions/s", goal, &beside);
    if largest {
        let (p99, bytes) = (cell.micros[1], cell.bytes_per_job);
        sheet.add("its p99", p99, "µs", Goal::AtMost(50.0), &[]);
        sheet.add(
            "memory of a queued job",
            bytes,
            "B",
            Goal::AtMost(200.0),
            &[],
        );
    }
    cell.per_second
}

/// Runs one cell: fills the fleet, queues `jobs` more jobs, then ends jobs one by one.
fn cell(jobs: usize, queues: usize, clusters: usize, guaranteed: bool) -> Cell {
    let mut world = World::new(clusters, NODES_PER_CLUSTER);
    let gpus = (clusters * NODES_PER_CLUSTER) as i64 * NODE_GPUS;
    let leaves = world.tree(queues.max(1), gpus, guaranteed);
    let mut chance = Chance::new(7);
    let mut asked = 0;
    while asked < gpus + gpus / 20 {
        asked += submit(&mut world, &leaves, &mut chance);
    }
    world.settle();
    let before = ALLOCATED.allocated();
    let begin = Instant::now();
    for _ in 0..jobs {
        submit(&mut world, &leaves, &mut chance);
    }
    let load = begin.elapsed();
    let bytes = ALLOCATED.allocated().saturating_sub(before);
    // Jobs that still fit start, and reservations are made, before the steady state begins.
    world.settle();
    let mut times = Times::new();
    let mut admitted = 0;
    let begin = Instant::now();
    while times.len() < COMPLETIONS && begin.elapsed() < LONGEST && !world.running.is_empty() {
        let ended = world.complete(chance.below(world.running.len()));
        let (count, decided) = world.settle();
        admitted += count;
        times.add((ended + decided) / u32::try_from(count.max(1)).unwrap_or(1));
    }
    let took = begin.elapsed().as_secs_f64();
    Cell {
        per_second: admitted as f64 / took.max(1e-9),
        micros: times.micros(),
        bytes_per_job: bytes as f64 / jobs as f64,
        load_per_second: jobs as f64 / load.as_secs_f64(),
    }
}

/// Submits a job of a typical mix, mostly small jobs and a few gangs of nodes, and returns its
/// GPUs.
fn submit(world: &mut World, leaves: &[QueueName], chance: &mut Chance) -> i64 {
    let (count, gpus): (u32, i64) = match chance.below(100) {
        0..60 => (1, 1),
        60..75 => (1, 2),
        75..85 => (1, 4),
        85..95 => (1, 8),
        95..98 => (2, 8),
        _ => (4, 8),
    };
    let cores = 2 + 2 * chance.below(6) as i64;
    let demand: Demand = pods(count, gpus, cores * 1000 * gpus);
    let leaf = &leaves[chance.below(leaves.len())];
    world.submit(leaf, demand);
    i64::from(count) * gpus
}

/// Returns the slope of log(time) over log(jobs), by least squares.
fn exponent(points: &[(f64, f64)]) -> f64 {
    let logs: Vec<(f64, f64)> = points.iter().map(|(x, y)| (x.ln(), y.ln())).collect();
    let count = logs.len().max(1) as f64;
    let mean_x = logs.iter().map(|(x, _)| x).sum::<f64>() / count;
    let mean_y = logs.iter().map(|(_, y)| y).sum::<f64>() / count;
    let above: f64 = logs.iter().map(|(x, y)| (x - mean_x) * (y - mean_y)).sum();
    let below: f64 = logs.iter().map(|(x, _)| (x - mean_x).powi(2)).sum();
    above / below.max(1e-12)
}
