//! Which of many jobs are taken back: the cheapest set, not the cheapest jobs.
//!
//! A job costs its GPUs times how long it has run. There are most often more to be taken
//! than are tried out in every combination.

use crate::world::{World, foreign, pods, policy, queue};
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

/// Who is taken back for a job of high priority.
fn taken(world: &mut World, count: u32, request: &str) -> Vec<String> {
    let job = world.job("high", "q", pods(count, request));
    world.submit(job.priority("high"));
    let decided = world.decide();
    let lines = decided.lines().map(|line| {
        let line = line.strip_prefix("take back ").expect("a victim");
        line.split(' ').next().unwrap().to_owned()
    });
    lines.collect()
}

#[test]
fn in_another_cluster_where_fewer_have_to_go() {
    let mut world = world();
    let clusters: Vec<String> = (0..12).map(|index| format!("c{index:02}")).collect();
    for cluster in &clusters {
        world.cluster(cluster, 1, "cpu 64, gpu 4");
        world.apply(foreign(cluster, "n0", "gpu 2"));
        run(&mut world, &[&format!("old-{cluster}")], "gpu 2");
    }
    world.wait(1000);
    world.cluster("single", 1, "cpu 64, gpu 4");
    world.apply(foreign("single", "n0", "gpu 2"));
    run(&mut world, &["one"], "gpu 2");
    world.wait(4);
    world.cluster("double", 1, "cpu 64, gpu 4");
    run(&mut world, &["half-1", "half-2"], "gpu 2");
    world.wait(6);
    world.apply(Event::PodGone(
        ClusterName::from("single"),
        Uid::from("foreign-single-n0"),
    ));
    // Each half costs less than the one, and both cost more.
    assert_eq!(taken(&mut world, 1, "gpu 4"), ["one"]);
}

#[test]
fn some_large_ones_rather_than_many_small_ones_and_the_cheapest_of_those() {
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
    // The small ones cost 8 each and free one node together; 18, 20 and 60 cost the others.
    assert_eq!(taken(&mut world, 2, "gpu 4"), ["all", "most"]);
}

#[test]
fn eight_cpus_cost_as_much_as_a_device_where_there_are_no_devices() {
    // The job without devices costs 32 / 8 × 10, the other 1 × so many seconds.
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
fn what_a_gang_holds_comes_free_once_whether_by_its_surplus_or_with_all_of_it() {
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
fn who_has_lost_the_least_of_many_goes_whatever_its_name() {
    let mut world = world();
    world.cluster("a", 16, "cpu 64, gpu 4");
    let names: Vec<String> = (0..16).map(|index| format!("job-{index:02}")).collect();
    for name in &names {
        run(&mut world, &[name], "gpu 4");
        world.wait(10);
    }
    assert_eq!(taken(&mut world, 1, "gpu 4"), ["job-15"]);
}

#[test]
fn of_few_the_cheapest_together_though_one_of_them_is_the_dearest() {
    let mut world = world();
    world.cluster("a", 2, "cpu 64, gpu 8");
    world.apply(foreign("a", "n0", "gpu 6"));
    run(&mut world, &["two"], "gpu 2");
    world.wait(8);
    run(&mut world, &["four-1", "four-2"], "gpu 4");
    world.wait(3);
    world.apply(Event::PodGone(
        ClusterName::from("a"),
        Uid::from("foreign-a-n0"),
    ));
    run(&mut world, &["six"], "gpu 6");
    world.wait(7);
    // 36 and 42 on one node, 40 and 40 on the other.
    assert_eq!(taken(&mut world, 1, "gpu 8"), ["six", "two"]);
}
