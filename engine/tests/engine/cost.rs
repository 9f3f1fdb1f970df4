//! What decisions cost on fixed inputs, in steps: the same on every machine. A number that rises is a decision that
//! became dearer; change it only for a reason. One that falls is an improvement: take it over, so that it stays.
#![cfg(debug_assertions)]

use crate::preemption::preempting;
use crate::world::{World, capped, pods, queue};
use engine::cost::{self, DecisionCost};
use engine::facts::{Demand, Split};
use insta::assert_snapshot;

/// Decides until nothing is left to do, and returns the number of decisions and their cost.
fn decided(world: &mut World) -> String {
    let (engine, now) = (&mut world.engine, world.now);
    let (count, cost) = cost::of(|| {
        let mut count = 0;
        loop {
            let decided = engine.decide(now);
            count += decided.decisions.len();
            if !decided.more {
                return count;
            }
        }
    });
    format!("{count} decisions: {cost}")
}

/// Eight clusters of sixteen nodes with eight GPUs.
fn fleet(world: &mut World) {
    for cluster in 0..8 {
        world.cluster(&format!("c{cluster}"), 16, "cpu 64, gpu 8");
    }
}

/// Jobs of twelve shapes in ten queues.
fn crowd(world: &mut World, jobs: u32) {
    for index in 0..10 {
        world.queue(queue(&format!("q{index}")));
    }
    for index in 0..jobs {
        let (count, gpus) = (1 + index % 3, [1, 2, 4, 8][index as usize % 4]);
        let (name, queue) = (format!("j{index:04}"), format!("q{}", index % 10));
        world.add(&name, &queue, count, &format!("gpu {gpus}, cpu 1"));
    }
}

/// A fleet that is full, and 200 jobs that wait.
fn full() -> World {
    let mut world = World::new();
    fleet(&mut world);
    crowd(&mut world, 340);
    decided(&mut world);
    world
}

#[test]
fn jobs_that_come_to_a_free_fleet() {
    let mut world = World::new();
    fleet(&mut world);
    crowd(&mut world, 60);
    assert_snapshot!(decided(&mut world), @"60 decisions: 60 evaluations, 60 plans, 1050 node visits");
    assert_snapshot!(decided(&mut world), @"0 decisions: 0 evaluations, 0 plans, 0 node visits");
}

#[test]
fn jobs_that_fill_a_fleet_and_wait() {
    let mut world = World::new();
    fleet(&mut world);
    crowd(&mut world, 340);
    assert_snapshot!(decided(&mut world), @"155 decisions: 178 evaluations, 215 plans, 4948 node visits");
    assert_snapshot!(decided(&mut world), @"0 decisions: 0 evaluations, 0 plans, 0 node visits");
}

#[test]
fn one_more_job_that_waits_for_a_full_fleet() {
    let mut world = full();
    world.add("alike", "q3", 1, "gpu 8, cpu 1");
    assert_snapshot!(decided(&mut world), @"0 decisions: 0 evaluations, 0 plans, 0 node visits");
    world.add("other", "q3", 1, "gpu 7, cpu 1");
    assert_snapshot!(decided(&mut world), @"0 decisions: 1 evaluations, 2 plans, 18 node visits");
}

#[test]
fn a_job_that_ends_while_others_wait() {
    let mut world = full();
    world.run("j0003");
    assert_snapshot!(decided(&mut world), @"0 decisions: 0 evaluations, 0 plans, 0 node visits");
    world.finish("j0003");
    assert_snapshot!(decided(&mut world), @"0 decisions: 11 evaluations, 22 plans, 460 node visits");
}

#[test]
fn quota_that_frees_while_jobs_wait_for_it() {
    let mut world = World::new();
    fleet(&mut world);
    world.queue(capped("q", "gpu 32"));
    for index in 0..100_u32 {
        let gpus = [1, 2, 4, 8][index as usize % 4];
        world.add(&format!("j{index:02}"), "q", 1, &format!("gpu {gpus}"));
    }
    assert_snapshot!(decided(&mut world), @"9 decisions: 13 evaluations, 14 plans, 236 node visits");
    world.run("j00");
    world.finish("j00");
    assert_snapshot!(decided(&mut world), @"1 decisions: 4 evaluations, 1 plans, 18 node visits");
}

#[test]
fn the_victims_of_a_preemptor_among_many() {
    let mut world = World::new();
    fleet(&mut world);
    world.queue(queue("q")).policy(preempting("q", 0));
    for index in 0..128 {
        let demand = pods(1, "gpu 8, cpu 1");
        let job = world.job(&format!("low{index:03}"), "q", demand);
        world.submit(job.priority("low"));
    }
    decided(&mut world);
    let job = world.job("high", "q", pods(16, "gpu 8, cpu 1"));
    world.submit(job.priority("high"));
    assert_snapshot!(decided(&mut world), @"16 decisions: 1 evaluations, 276 plans, 7177 node visits");
}

#[test]
fn a_gang_over_several_clusters() {
    let mut world = World::new();
    fleet(&mut world);
    world.queue(queue("q"));
    let demand = Demand {
        split: Split::Allowed,
        ..pods(100, "gpu 8, cpu 1")
    };
    let job = world.job("large", "q", demand);
    world.submit(job);
    assert_snapshot!(decided(&mut world), @"1 decisions: 1 evaluations, 1 plans, 265 node visits");
}

#[test]
fn ends_on_nodes_that_are_reserved_for_a_gang() {
    let mut world = World::new();
    fleet(&mut world);
    world.queue(queue("q"));
    let names: Vec<String> = (0..128).map(|index| format!("old{index:03}")).collect();
    for name in &names {
        let job = world.job(name, "q", pods(1, "gpu 8, cpu 1"));
        world.submit(job.lasts(3_600));
    }
    decided(&mut world);
    names.iter().for_each(|name| world.run(name));
    let demand = Demand {
        split: Split::Allowed,
        ..pods(128, "gpu 8, cpu 1")
    };
    let job = world.job("large", "q", demand);
    world.submit(job);
    assert_snapshot!(decided(&mut world), @"0 decisions: 1 evaluations, 4 plans, 1312 node visits");
    // The gang keeps its nodes: nothing is evaluated or planned again.
    names[..3].iter().for_each(|name| world.finish(name));
    assert_snapshot!(decided(&mut world), @"0 decisions: 0 evaluations, 0 plans, 4 node visits");
}

#[test]
fn steps_are_the_same_each_time() {
    let costs: Vec<(String, DecisionCost)> =
        (0..2).map(|_| cost::of(|| decided(&mut full()))).collect();
    assert_eq!(costs[0], costs[1]);
}
