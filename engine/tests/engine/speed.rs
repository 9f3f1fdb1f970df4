//! The speed of placement. CI does not run these tests: run them by hand, in release mode.

use crate::world::{World, cluster, node, pods, queue};
use engine::facts::{Demand, Split};
use engine::{Event, PoolClass};
use std::time::Duration;

fn fleet(world: &mut World, clusters: u32, nodes: u32) {
    for index in 0..clusters {
        let name = format!("c{index:03}");
        world.apply(Event::ClusterUpserted(cluster(&name)));
        for at in 0..nodes {
            let mut fact = node(&name, &format!("n{at:04}"), "cpu 128, memory 1Ti, gpu 8");
            fact.class = PoolClass::from("gpu");
            fact.domains = vec![format!("z{}", at / 512), format!("r{}", at / 16)];
            world.apply(Event::NodeUpserted(fact));
        }
    }
}

/// The CPU time of this thread, which other processes do not affect.
fn computed() -> Duration {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(stat.split(' ').next().unwrap().parse().unwrap())
}

fn release_all(world: &mut World) -> u32 {
    let mut released = 0;
    loop {
        let decided = world.engine.decide(world.now);
        released += u32::try_from(decided.decisions.len()).unwrap();
        if !decided.more {
            return released;
        }
    }
}

#[test]
#[ignore = "a measurement"]
fn many_jobs_on_a_thousand_nodes() {
    let mut world = World::new();
    world.queue(queue("q"));
    fleet(&mut world, 1, 1000);
    for index in 0..32_000_u32 {
        let gpus = if index % 4 == 0 { "gpu 1" } else { "gpu 0" };
        let job = world.job(
            &format!("j{index:05}"),
            "q",
            pods(1, &format!("{gpus}, cpu {}", 1 + index % 7)),
        );
        world.submit(job);
    }
    let begin = computed();
    let released = release_all(&mut world);
    println!("{released} jobs on 1,000 nodes: {:?}", computed() - begin);
}

#[test]
#[ignore = "a measurement"]
fn one_plan_among_many_clusters() {
    let mut world = World::new();
    world.queue(queue("q"));
    fleet(&mut world, 500, 32);
    for index in 0..20_000_u32 {
        let demand = match index % 8 {
            0 => pods(4, "gpu 8, cpu 64, memory 100Gi"),
            1 | 2 => pods(1, "gpu 4, cpu 32, memory 100Gi"),
            3 => pods(2, "gpu 2, cpu 16, memory 50Gi"),
            _ => pods(1, "gpu 1, cpu 8, memory 20Gi"),
        };
        let job = world.job(&format!("j{index:05}"), "q", demand);
        world.submit(job);
    }
    let begin = computed();
    let released = release_all(&mut world);
    let took = computed() - begin;
    println!(
        "{released} jobs on 500 clusters × 32 nodes: {took:?}, {:?} each",
        took / released
    );
}

#[test]
#[ignore = "a measurement"]
fn a_large_gang_over_eight_clusters() {
    let mut world = World::new();
    world.queue(queue("q"));
    fleet(&mut world, 8, 132);
    let demand = Demand {
        split: Split::Allowed,
        ..pods(1024, "gpu 8, cpu 64, memory 100Gi")
    };
    let job = world.job("large", "q", demand);
    world.submit(job);
    let copies: Vec<_> = (0..50).map(|_| world.engine.clone()).collect();
    let begin = computed();
    for mut engine in copies {
        assert_eq!(engine.decide(world.now).decisions.len(), 1);
        std::mem::forget(engine);
    }
    println!(
        "1,024 pods over 8 clusters, released: {:?}",
        (computed() - begin) / 50
    );
}
