//! Who sleeps wakes when that becomes free which it waits for, and costs nothing else.

use crate::world::{World, below, capped, foreign, pods, queue};
use insta::assert_snapshot;
use std::time::{Duration, Instant};

#[test]
fn freed_headroom_wakes_those_for_whom_it_is_enough() {
    let mut world = World::new();
    world.cluster("a", 8, "cpu 64, gpu 8");
    world.queue(capped("dept", "gpu 8"));
    world.queue(below("dept", queue("one")));
    world.queue(below("dept", queue("two")));
    let mut loose = crate::world::policy("two");
    loose.ordering = engine::facts::QueueOrdering::BestEffort;
    world.policy(loose);
    for index in 0..4 {
        world.add(&format!("old-{index}"), "one", 1, "gpu 2");
    }
    world.decide();
    (0..4).for_each(|index| world.run(&format!("old-{index}")));
    world.add("eight", "two", 1, "gpu 8");
    world.add("four", "two", 1, "gpu 4");
    world.add("two", "two", 1, "gpu 2");
    assert_snapshot!(world.decide(), @"");
    world.finish("old-0");
    assert_snapshot!(world.decide(), @"release two #1 a(n0)");
    world.finish("old-1");
    assert_snapshot!(world.decide(), @"");
    world.finish("old-2");
    assert_snapshot!(world.decide(), @"release four #1 a(n0)");
}

#[test]
fn freed_room_wakes_those_who_fit_in_order() {
    let mut world = World::new();
    world.cluster("a", 1, "cpu 64, gpu 8").queue(queue("q"));
    let mut loose = crate::world::policy("q");
    loose.ordering = engine::facts::QueueOrdering::BestEffort;
    world.policy(loose);
    world.add("old-six", "q", 1, "gpu 6");
    world.add("old-two", "q", 1, "gpu 2");
    world.decide();
    world.run("old-six");
    world.run("old-two");
    world.add("eight", "q", 1, "gpu 8");
    world.add("three", "q", 1, "gpu 3");
    world.add("one", "q", 1, "gpu 1");
    world.add("two", "q", 1, "gpu 2");
    assert_snapshot!(world.decide(), @"");
    world.finish("old-two");
    assert_snapshot!(world.decide(), @"release one #1 a(n0)");
    world.finish("old-six");
    assert_snapshot!(world.decide(), @r"
    release three #1 a(n0)
    release two #1 a(n0)
    ");
}

#[test]
fn another_queue_finds_the_room_that_one_did_not() {
    // The same is wanted by two queues; only one of them may have it when it frees.
    let mut world = World::new();
    world.cluster("a", 1, "cpu 64, gpu 8");
    world.queue(capped("one", "gpu 4")).queue(queue("two"));
    world.add("old", "one", 1, "gpu 4");
    world.apply(foreign("a", "n0", "gpu 4"));
    world.decide();
    world.run("old");
    world.add("blocked", "one", 1, "gpu 4");
    world.add("free-to-go", "two", 1, "gpu 4");
    assert_snapshot!(world.decide(), @"");
    let (cluster, uid) = ("a".into(), "foreign-a-n0".into());
    world.apply(engine::Event::PodGone(cluster, uid));
    assert_snapshot!(world.decide(), @"release free-to-go #1 a(n0)");
}

/// What a completion costs that lets nobody go, with so many queues of three levels in each of
/// which the same few demands find no room.
fn after_completion(queues: u32) -> Duration {
    let mut world = World::new();
    world.cluster("a", 12, "cpu 64, gpu 8");
    world.queue(queue("runs"));
    for index in 0..8 {
        world.add(&format!("runs-{index}"), "runs", 1, "gpu 8");
    }
    world.decide();
    (0..8).for_each(|index| world.run(&format!("runs-{index}")));
    for index in 0..queues {
        let dept = format!("dept-{}", index / 10);
        if index % 10 == 0 {
            world.queue(queue(&dept));
        }
        let name = format!("queue-{index}");
        world.queue(below(&dept, queue(&name)));
        for kind in 0..3 {
            let demand = pods(12, &format!("gpu 8, cpu {}", 1 + kind));
            let job = world.job(&format!("waits-{index}-{kind}"), &name, demand);
            world.submit(job);
        }
    }
    world.engine.decide(world.now);
    let cost = |index: u32| {
        world.finish(&format!("runs-{index}"));
        let begin = Instant::now();
        assert!(world.engine.decide(world.now).decisions.is_empty());
        begin.elapsed()
    };
    (0..7).map(cost).min().unwrap()
}

#[test]
#[ignore = "a measurement"]
fn a_completion_costs_what_it_moves_not_how_many_queues_wait() {
    let few = after_completion(20);
    let many = after_completion(800);
    assert!(
        many < few * 8,
        "40 times the queues: {few:?} became {many:?}"
    );
}
