//! The choice of victims: the cheapest set, not the cheapest jobs.
//!
//! The cost of a job is its GPUs times its run time. Unless a test says that there are few, there
//! are more candidates than are tried in every combination.

use crate::world::{World, foreign, node, pods, policy, queue};
use engine::facts::{PolicyFact, Preemption};
use engine::{ClusterName, Event, Uid};

fn world() -> World {
    let mut world = World::new();
    world.queue(queue("q")).policy(PolicyFact {
        preemption: Preemption {
            within_queue: true,
            ..Preemption::default()
        },
        ..policy("q")
    });
    world
}

/// Jobs of low priority that run from now on.
fn run(world: &mut World, names: &[&str], request: &str) {
    for name in names {
        let job = world.job(name, "q", pods(1, request)).priority("low");
        world.submit(job);
        world.decide();
        world.run(name);
    }
}

/// The jobs that are evicted for one of high priority.
fn taken(world: &mut World, count: u32, request: &str) -> Vec<String> {
    let job = world.job("high", "q", pods(count, request));
    world.submit(job.priority("high"));
    let decided = world.decide();
    let lines = decided.lines().map(|line| {
        let line = line.strip_prefix("evict ").expect("a victim");
        line.split(' ').next().unwrap().to_owned()
    });
    lines.collect()
}

/// The victims of a job of high priority and that size. First there is one job on the only node of
/// a cluster, then two halves on an empty node that `double` adds. Each half costs less than the
/// one, and both cost more.
fn taken_of_one_or_two(world: &mut World, double: impl FnOnce(&mut World)) -> Vec<String> {
    world.wait(1000);
    world.cluster("single", 1, "cpu 64, gpu 4");
    world.apply(foreign("single", "n0", "gpu 2"));
    run(world, &["one"], "gpu 2");
    world.wait(4);
    double(world);
    run(world, &["half-1", "half-2"], "gpu 2");
    world.wait(6);
    world.apply(Event::PodGone(
        ClusterName::from("single"),
        Uid::from("foreign-single-n0"),
    ));
    taken(world, 1, "gpu 4")
}

#[test]
fn victims_are_in_another_cluster_if_they_are_fewer_there() {
    let mut world = world();
    let clusters: Vec<String> = (0..12).map(|index| format!("c{index:02}")).collect();
    for cluster in &clusters {
        world.cluster(cluster, 1, "cpu 64, gpu 4");
        world.apply(foreign(cluster, "n0", "gpu 2"));
        run(&mut world, &[&format!("old-{cluster}")], "gpu 2");
    }
    let double = |world: &mut World| {
        world.cluster("double", 1, "cpu 64, gpu 4");
    };
    assert_eq!(taken_of_one_or_two(&mut world, double), ["one"]);
}

#[test]
fn victims_are_in_the_cluster_where_fewer_are_needed() {
    let mut world = world();
    world.cluster("double", 12, "cpu 64, gpu 4");
    let old: Vec<String> = (0..12).map(|index| format!("old-{index}")).collect();
    for at in 0..12 {
        world.apply(foreign("double", &format!("n{at}"), "gpu 2"));
    }
    let old: Vec<&str> = old.iter().map(String::as_str).collect();
    run(&mut world, &old, "gpu 2");
    let double = |world: &mut World| {
        world.apply(Event::NodeUpserted(node("double", "n12", "cpu 64, gpu 4")));
    };
    assert_eq!(taken_of_one_or_two(&mut world, double), ["one"]);
}

#[test]
fn the_cheapest_of_all_combinations_of_few_is_found() {
    let mut world = world();
    world.cluster("a", 1, "cpu 64, gpu 8");
    // The best set is the smallest and the largest, 10 and 72; those between cost 50 and 60.
    // Neither order of cost or size finds it, nor does exchanging one job for another.
    for (name, gpus, seconds) in [("c", 2, 5), ("b", 2, 1), ("d", 3, 14), ("a", 1, 10)] {
        run(&mut world, &[name], &format!("gpu {gpus}"));
        world.wait(seconds);
    }
    assert_eq!(taken(&mut world, 1, "gpu 4"), ["a", "d"]);
}

#[test]
fn few_large_victims_are_preferred_to_many_small_ones() {
    let mut world = world();
    world.cluster("a", 6, "cpu 64, gpu 4");
    let many: Vec<String> = (0..8).map(|index| format!("old-{index}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    run(&mut world, &many, "gpu 1");
    world.wait(85);
    run(&mut world, &["dear"], "gpu 4");
    world.wait(7);
    run(&mut world, &["s-0", "s-1", "s-2", "s-3"], "gpu 1");
    world.wait(2);
    run(&mut world, &["most"], "gpu 3");
    world.wait(1);
    run(&mut world, &["all"], "gpu 4");
    world.wait(5);
    // The small ones cost 8 each and free one node together; the others cost 18, 20 and 60.
    assert_eq!(taken(&mut world, 2, "gpu 4"), ["all", "most"]);
}

#[test]
fn eight_cpus_cost_as_much_as_a_device() {
    // The job without devices costs 32 / 8 × 10, the other 1 × its seconds.
    for (seconds, victim) in [(39, "device"), (41, "cpus")] {
        let mut world = world();
        world.cluster("a", 2, "cpu 32, gpu 1");
        run(&mut world, &["device"], "cpu 32, gpu 1");
        world.wait(seconds - 10);
        run(&mut world, &["cpus"], "cpu 32");
        world.wait(10);
        assert_eq!(taken(&mut world, 1, "cpu 32"), [victim], "{seconds}");
    }
}

#[test]
fn the_surplus_of_a_gang_is_not_counted_twice() {
    let mut world = world();
    world.cluster("a", 1, "cpu 64, gpu 8");
    world.apply(foreign("a", "n0", "gpu 4"));
    let gang = world.job("gang", "q", crate::elastic::elastic(1, 4, "gpu 1"));
    world.submit(gang.priority("low"));
    world.decide();
    world.run("gang");
    assert_eq!(taken(&mut world, 1, "gpu 6"), [""; 0]);
}

#[test]
fn the_cheapest_of_many_jobs_is_evicted() {
    let mut world = world();
    world.cluster("a", 16, "cpu 64, gpu 4");
    let names: Vec<String> = (0..16).map(|index| format!("job-{index:02}")).collect();
    for name in &names {
        run(&mut world, &[name], "gpu 4");
        world.wait(10);
    }
    assert_eq!(taken(&mut world, 1, "gpu 4"), ["job-15"]);
}
