//! Evicting between queues: what one borrowed and another deserves.

use crate::elastic::elastic;
use crate::world::{World, below, bound, deserving, key, pods, policy, queue, res};
use engine::facts::{JobFact, PolicyFact, PoolBound, Preemption, QueueFact, QueueState};
use engine::{Event, QueueName, Resources};
use insta::assert_snapshot;

/// Nodes of four GPUs; queues `a` and `b` that deserve half of them each.
pub fn halves(nodes: u32) -> World {
    let mut world = World::new();
    let half = format!("gpu {}", nodes * 2);
    world
        .cluster("x", nodes, "cpu 64, gpu 4")
        .queue(deserving("a", &half))
        .queue(deserving("b", &half));
    world
}

#[test]
fn what_was_borrowed_is_given_back_and_no_more() {
    let mut world = halves(2);
    for name in ["a1", "a2", "a3", "a4"] {
        world.runs(name, "a", 1, "gpu 2");
        world.wait(10);
    }
    for name in ["b1", "b2", "b3"] {
        world.add(name, "b", 1, "gpu 2");
    }
    // The youngest have lost the least; the third of b would be borrowed.
    assert_snapshot!(world.decide(), @r"
    evict a4 #1 for b1: Reclaimed: reclaimed for ns/b1: queue b has nvidia.com/gpu 0 of the 4 that it deserves, queue a has 8 and deserves 4
    evict a3 #1 for b2: Reclaimed: reclaimed for ns/b2: queue b has nvidia.com/gpu 0 of the 4 that it deserves, queue a has 8 and deserves 4
    ");
    assert_snapshot!(world.why("b1"), @"#1 AwaitingEviction: needs 1 pod × nvidia.com/gpu 2; x has room for 0 of 1; it is next: ns/a4 is evicted for it, and what frees is kept for it");
    assert_snapshot!(world.why("b3"), @"#3 WaitingForRoom: needs 1 pod × nvidia.com/gpu 2; x has room for 0 of 1");
    world.works_gone("a4");
    world.works_gone("a3");
    assert_snapshot!(world.decide(), @r"
    release b1 #1 x(n1)
    release b2 #1 x(n1)
    ");
    assert_eq!(world.settle(1000), Vec::<String>::new());
}

#[test]
fn one_eviction_then_quiet() {
    // Bug class 4 (Volcano 4947): Q1 deserves 3 and runs one pod of 4; Q2 deserves 5.
    let mut world = World::new();
    world
        .cluster("x", 1, "cpu 5")
        .queue(deserving("q1", "cpu 3"))
        .queue(deserving("q2", "cpu 5"));
    world.runs("one", "q1", 1, "cpu 4");
    world.add("two", "q2", 1, "cpu 4");
    assert_snapshot!(world.settle(1000).join("\n"), @"one for two");
    assert_snapshot!(world.why("one"), @"#1 Reserved: needs 1 pod × cpu 4; x has room for 0 of 1; it is next: what frees is kept for it");
}

#[test]
fn a_full_fleet_does_not_keep_a_job_from_asking() {
    // Bug class 5.
    let mut world = halves(1);
    world.runs("a1", "a", 4, "gpu 1");
    world.add("b1", "b", 1, "gpu 1");
    assert_snapshot!(world.decide(), @"evict a1 #1 for b1: Reclaimed: reclaimed for ns/b1: queue b has nvidia.com/gpu 0 of the 2 that it deserves, queue a has 4 and deserves 2");
}

#[test]
fn nothing_beyond_its_own_capability() {
    // Bug class 6.
    let mut world = halves(2);
    world.queue(QueueFact {
        capability: res("cpu 10"),
        ..deserving("b", "gpu 4")
    });
    world.runs("b0", "b", 1, "cpu 10");
    world.runs("a1", "a", 2, "gpu 4");
    world.add("b1", "b", 1, "cpu 1, gpu 2");
    assert_snapshot!(world.decide(), @"");
    assert_snapshot!(world.why("b1"), @"#1 Reserved: needs cpu 1; queue b may use 10 and has 10 charged: short by 1; it is next: what frees is kept for it");
}

#[test]
fn one_deserved_resource_is_enough_but_only_its_holders_give() {
    // Bug class 7: deserved names only GPUs; the job asks for CPU too.
    let mut world = World::new();
    world
        .cluster("x", 1, "cpu 8, gpu 4")
        .queue(deserving("a", "gpu 2"))
        .queue(deserving("b", "gpu 2"));
    world.runs("cpus", "a", 1, "cpu 4");
    world.runs("gpus", "a", 1, "cpu 4, gpu 4");
    let copy = world.engine.clone();
    world.add("b1", "b", 1, "cpu 2, gpu 2");
    assert_snapshot!(world.decide(), @"evict gpus #1 for b1: Reclaimed: reclaimed for ns/b1: queue b has nvidia.com/gpu 0 of the 2 that it deserves, queue a has 4 and deserves 2");
    // It lacks CPUs that a job without GPUs holds: that one is left alone.
    world.engine = copy;
    world.finish("gpus");
    world.decide();
    world.add("b1", "b", 1, "cpu 6, gpu 2");
    assert_snapshot!(world.decide(), @"");
}

#[test]
fn many_small_ones_for_a_large_one() {
    // Bug class 8.
    let mut world = halves(2);
    for index in 0..8 {
        world.runs(&format!("a{index}"), "a", 1, "gpu 1");
    }
    world.add("b1", "b", 1, "gpu 4");
    assert_snapshot!(world.decide(), @r"
    evict a0 #1 for b1: Reclaimed: reclaimed for ns/b1: queue b has nvidia.com/gpu 0 of the 4 that it deserves, queue a has 8 and deserves 4
    evict a1 #1 for b1: Reclaimed: reclaimed for ns/b1: queue b has nvidia.com/gpu 0 of the 4 that it deserves, queue a has 8 and deserves 4
    evict a2 #1 for b1: Reclaimed: reclaimed for ns/b1: queue b has nvidia.com/gpu 0 of the 4 that it deserves, queue a has 8 and deserves 4
    evict a3 #1 for b1: Reclaimed: reclaimed for ns/b1: queue b has nvidia.com/gpu 0 of the 4 that it deserves, queue a has 8 and deserves 4
    ");
}

#[test]
fn nothing_is_taken_for_a_place_that_does_not_fit() {
    // Bug class 9: two of four would be given back, on two nodes; one pod needs them on one.
    let mut world = halves(2);
    world.queue(deserving("a", "gpu 6"));
    for index in 0..2 {
        world.runs(&format!("a{index}"), "a", 1, "gpu 4");
    }
    world.add("b1", "b", 1, "gpu 3");
    // Of the one job that is owed, half is: taken whole, a would be below what it deserves by
    // two; that is the price of its size, and b gets what it deserves.
    assert_snapshot!(world.decide(), @"evict a0 #1 for b1: Reclaimed: reclaimed for ns/b1: queue b has nvidia.com/gpu 0 of the 4 that it deserves, queue a has 8 and deserves 6");
    world.add("b2", "b", 2, "gpu 3");
    assert_snapshot!(world.decide(), @"");
}

#[test]
fn an_inner_queue_that_gives_nothing_back_protects_all_below_it() {
    let mut world = World::new();
    world
        .cluster("x", 1, "cpu 64, gpu 4")
        .queue(QueueFact {
            reclaimable: false,
            ..deserving("dept", "gpu 2")
        })
        .queue(below("dept", queue("team")))
        .queue(below("dept", deserving("other", "gpu 2")))
        .queue(deserving("b", "gpu 2"));
    world.runs("t1", "team", 1, "gpu 4");
    world.add("b1", "b", 1, "gpu 2");
    assert_snapshot!(world.settle(100).join("\n"), @"");
    // From each other those below it take as ever.
    world.add("o1", "other", 1, "gpu 2");
    assert_snapshot!(world.settle(100).join("\n"), @"t1 for o1");
}

/// A department evicts for all below it, whatever they deserve themselves.
#[test]
fn a_queue_that_deserves_nothing_evicts_by_what_one_above_it_deserves() {
    let mut world = World::new();
    world
        .cluster("x", 1, "cpu 64, gpu 4")
        .queue(deserving("dept", "gpu 2"))
        .queue(below("dept", queue("team")))
        .queue(below("dept", queue("other")))
        .queue(deserving("b", "gpu 2"));
    world.runs("b1", "b", 1, "gpu 4");
    world.add("t1", "team", 1, "gpu 2");
    assert_snapshot!(world.settle(100).join("\n"), @"b1 for t1");
    // Inside the department neither deserves anything: nothing is taken from the other there.
    world.add("o1", "other", 1, "gpu 2");
    assert_snapshot!(world.settle(100).join("\n"), @"");
}

#[test]
fn a_queue_that_says_so_gives_nothing_back_and_one_may_not_ask() {
    let mut world = halves(1);
    world.queue(QueueFact {
        reclaimable: false,
        ..deserving("a", "gpu 2")
    });
    world.runs("a1", "a", 2, "gpu 2");
    world.add("b1", "b", 1, "gpu 2");
    assert_snapshot!(world.decide(), @"");
    world.policy(PolicyFact {
        preemption: Preemption {
            reclaim: false,
            ..Preemption::default()
        },
        ..policy("b")
    });
    world.queue(deserving("a", "gpu 2"));
    assert_snapshot!(world.decide(), @"");
    world.apply(Event::PolicyGone(QueueName::from("b")));
    assert_snapshot!(world.decide(), @"evict a1 #1 for b1: Reclaimed: reclaimed for ns/b1: queue b has nvidia.com/gpu 0 of the 2 that it deserves, queue a has 4 and deserves 2");
}

#[test]
fn what_deserves_nothing_has_borrowed_all() {
    let mut world = World::new();
    world
        .cluster("x", 1, "cpu 64, gpu 4")
        .queue(queue("free"))
        .queue(deserving("b", "gpu 2"));
    world.runs("f1", "free", 1, "gpu 4");
    world.add("b1", "b", 1, "gpu 2");
    assert_snapshot!(world.settle(100).join("\n"), @"f1 for b1");
}

#[test]
fn in_a_tree_it_is_asked_where_the_paths_part() {
    let mut world = World::new();
    world
        .cluster("x", 2, "cpu 64, gpu 4")
        .queue(deserving("d1", "gpu 4"))
        .queue(below("d1", deserving("a", "gpu 2")))
        .queue(below("d1", deserving("b", "gpu 2")))
        .queue(deserving("d2", "gpu 4"))
        .queue(below("d2", deserving("c", "gpu 4")));
    // a holds six of its two, d1 six of its four.
    for name in ["a1", "a2", "a3"] {
        world.runs(name, "a", 1, "gpu 2");
    }
    world.runs("c1", "c", 1, "gpu 2");
    world.add("c2", "c", 1, "gpu 2");
    assert_snapshot!(world.settle(100).join("\n"), @"a1 for c2");
    // Now d1 has what it deserves: c gets no more of it; b does, of its sibling.
    world.add("c3", "c", 1, "gpu 2");
    world.add("b1", "b", 1, "gpu 2");
    assert_snapshot!(world.settle(100).join("\n"), @"a2 for b1");
}

#[test]
fn of_a_class_of_pools() {
    let mut world = World::new();
    let share = |queue: &str| PolicyFact {
        pools: vec![PoolBound {
            deserved: res("gpu 4"),
            capability: Resources::new(),
            ..bound("gpu", None, "")
        }],
        ..policy(queue)
    };
    world
        .cluster("x", 2, "cpu 64, gpu 4")
        .queue(queue("a"))
        .queue(queue("b"))
        .policy(share("a"))
        .policy(share("b"));
    for name in ["a1", "a2"] {
        world.runs(name, "a", 1, "gpu 4");
    }
    world.add("b1", "b", 1, "gpu 4");
    assert_snapshot!(world.settle(100).join("\n"), @"a1 for b1");
    world.add("b2", "b", 1, "gpu 4");
    assert_snapshot!(world.settle(100).join("\n"), @"");
}

#[test]
fn across_clusters_where_it_costs_least() {
    let mut world = World::new();
    world
        .cluster("x", 1, "cpu 64, gpu 4")
        .cluster("y", 1, "cpu 64, gpu 4")
        .cluster("z", 1, "cpu 64, gpu 4")
        .queue(deserving("a", "gpu 4"))
        .queue(deserving("b", "gpu 8"));
    world.runs("a1", "a", 1, "gpu 4");
    world.wait(100);
    world.runs("a2", "a", 2, "gpu 2");
    world.wait(10);
    world.runs("a3", "a", 4, "gpu 1");
    world.add("b1", "b", 1, "gpu 4");
    assert_snapshot!(world.settle(100).join("\n"), @"a3 for b1");
    world.add("b2", "b", 1, "gpu 4");
    assert_snapshot!(world.settle(100).join("\n"), @"a2 for b2");
}

#[test]
fn quota_lowered_below_use_and_raised_again() {
    let mut world = halves(1);
    world.queue(deserving("a", "gpu 4"));
    world.runs("a1", "a", 1, "gpu 2");
    world.runs("a2", "a", 1, "gpu 2");
    world.add("b1", "b", 1, "gpu 2");
    assert_snapshot!(world.decide(), @"");
    world.queue(deserving("a", "gpu 2"));
    assert_snapshot!(world.settle(100).join("\n"), @"a1 for b1");
    world
        .queue(deserving("a", "gpu 4"))
        .queue(deserving("b", "gpu 0"));
    assert_snapshot!(world.settle(100).join("\n"), @"b1 for a1");
}

#[test]
fn a_queue_that_closes_or_goes_keeps_what_runs_until_somebody_is_owed_it() {
    let mut world = halves(1);
    world.runs("a1", "a", 1, "gpu 2");
    world.runs("a2", "a", 1, "gpu 2");
    world.queue(QueueFact {
        state: QueueState::Closed,
        ..deserving("a", "gpu 2")
    });
    world.add("b1", "b", 1, "gpu 2");
    world.add("b2", "b", 1, "gpu 2");
    // It is closed, and still has its due.
    assert_snapshot!(world.settle(100).join("\n"), @"a1 for b1");
    world.queue(deserving("b", "gpu 4"));
    assert_snapshot!(world.settle(100).join("\n"), @"");
    world.apply(Event::QueueGone(QueueName::from("a")));
    assert_snapshot!(world.settle(100).join("\n"), @"a2 for b2");
}

#[test]
fn a_preemptor_whose_queue_closes_takes_nothing_more() {
    let mut world = halves(1);
    world.runs("a1", "a", 2, "gpu 2");
    world.add("b1", "b", 1, "gpu 2");
    assert_snapshot!(world.decide(), @"evict a1 #1 for b1: Reclaimed: reclaimed for ns/b1: queue b has nvidia.com/gpu 0 of the 2 that it deserves, queue a has 4 and deserves 2");
    world.queue(QueueFact {
        state: QueueState::Closed,
        ..deserving("b", "gpu 2")
    });
    world.decide();
    world.works_gone("a1");
    // What was taken goes back to who waits for it.
    assert_snapshot!(world.decide(), @"release a1 #2 x(n0×2)");
}

#[test]
fn two_queues_that_pull_at_each_other_settle() {
    // Each deserves half of the one resource and all of the other: both are entitled by one
    // and over by the other.
    let mut world = World::new();
    world
        .cluster("x", 4, "cpu 16, gpu 4")
        .queue(deserving("a", "cpu 48, gpu 4"))
        .queue(deserving("b", "cpu 16, gpu 12"));
    // One has filled everything before the other comes. What that one then takes by its GPUs it
    // may take only as long as the first could not evict it in turn by its CPUs.
    for index in 0..6 {
        world.add(&format!("a{index}"), "a", 1, "cpu 8, gpu 4");
    }
    assert_eq!(world.settle(1000), Vec::<String>::new());
    assert_snapshot!(world.allocated("a"), @"cpu 32, nvidia.com/gpu 16, pods 4");
    for index in 0..6 {
        world.add(&format!("b{index}"), "b", 2, "cpu 7, gpu 1");
        let job = world.job(&format!("e{index}"), "b", elastic(1, 4, "cpu 2, gpu 1"));
        world.submit(job);
    }
    let taken = world.settle(1000);
    assert!(taken.len() <= 12, "{taken:#?}");
    assert_snapshot!(taken.join("\n"), @"a0 for b0");
    assert_snapshot!([world.allocated("a"), world.allocated("b")].join("; "), @"cpu 24, nvidia.com/gpu 12, pods 3; cpu 16, nvidia.com/gpu 3, pods 3");
    assert_eq!(world.settle(1000), Vec::<String>::new());
}

#[test]
fn a_job_that_changes_its_mind_and_one_that_is_recreated() {
    let mut world = halves(1);
    world.runs("a1", "a", 2, "gpu 2");
    let fact = world.add("b1", "b", 1, "gpu 2");
    assert_snapshot!(world.decide(), @"evict a1 #1 for b1: Reclaimed: reclaimed for ns/b1: queue b has nvidia.com/gpu 0 of the 2 that it deserves, queue a has 4 and deserves 2");
    world.apply(Event::JobUpserted(JobFact {
        demand: pods(1, "gpu 1"),
        ..fact
    }));
    // What was decided stands; it takes nothing more.
    assert_snapshot!(world.decide(), @"");
    world.works_gone("a1");
    assert_snapshot!(world.decide(), @"release b1 #1 x(n0)");
    assert!(world.engine.job(&key("a1")).is_some());
}

#[test]
fn one_ahead_in_the_preemptors_own_queue_does_not_eat_what_is_freed() {
    // It would push its queue over its due, and be evicted, and go again, without an end.
    let mut world = World::new();
    world
        .cluster("x", 2, "cpu 16, gpu 4")
        .cluster("y", 1, "cpu 16, gpu 4")
        .queue(deserving("dept", "gpu 8"))
        .queue(below("dept", deserving("a", "gpu 0")))
        .queue(below("dept", deserving("b", "gpu 0")))
        .queue(deserving("c", "gpu 6"))
        .queue(QueueFact {
            guarantee: res("gpu 1"),
            ..deserving("d", "gpu 2, cpu 4")
        });
    for (name, queue, class, count, request) in [
        ("j00", "a", "normal", 3, "cpu 5"),
        ("j01", "a", "normal", 1, "cpu 2, gpu 2"),
        ("j02", "c", "low", 2, "cpu 1, gpu 1"),
        ("j03", "c", "normal", 4, "cpu 1, gpu 1"),
    ] {
        let job = world.job(name, queue, pods(count, request)).priority(class);
        world.submit(job);
    }
    world.settle(100);
    for (name, queue, class, count, request) in [
        ("j04", "d", "normal", 3, "cpu 2, gpu 1"),
        ("j05", "d", "low", 1, "cpu 2, gpu 2"),
    ] {
        let job = world.job(name, queue, pods(count, request)).priority(class);
        world.submit(job);
    }
    assert_snapshot!(world.settle(100).join("\n"), @"j00 for j05");
    assert_eq!(world.state("j05"), engine::JobState::Running);
}

#[test]
fn what_one_preemptor_waits_for_does_not_stop_another_whose_own_has_gone() {
    // Stopped by it, j02 would lose what was freed for it, and evict it in turn again for ever.
    let mut world = World::new();
    world
        .cluster("x", 2, "cpu 16, gpu 4")
        .cluster("y", 1, "cpu 16, gpu 4")
        .queue(deserving("dept", "gpu 8"))
        .queue(below("dept", deserving("a", "gpu 1")))
        .queue(below("dept", deserving("b", "gpu 4")))
        .queue(deserving("c", "gpu 1"))
        .queue(deserving("d", "gpu 3, cpu 1"));
    for (name, queue, demand) in [
        ("j00", "a", elastic(2, 3, "cpu 1, gpu 2")),
        ("j01", "c", pods(2, "cpu 1, gpu 2")),
        ("j02", "b", pods(2, "cpu 6, gpu 2")),
    ] {
        let job = world.job(name, queue, demand).priority("high");
        world.submit(job);
    }
    assert_snapshot!(world.settle(100).join("\n"), @"j00 shrunk for j02");
    for (name, queue, demand) in [
        ("j03", "c", pods(1, "cpu 1, gpu 1")),
        ("j04", "a", pods(2, "cpu 1, gpu 3")),
        ("j05", "d", pods(1, "cpu 1, gpu 2")),
    ] {
        let job = world.job(name, queue, demand).priority("low");
        world.submit(job);
    }
    // When j00 is gone for j02, j01 is evicted for j00, and charged until it is gone.
    assert_snapshot!(world.settle(100).join("\n"), @r"
    j02 for j05
    j00 for j02
    j01 for j00
    ");
    for preemptor in ["j05", "j02", "j00"] {
        assert_eq!(
            world.state(preemptor),
            engine::JobState::Running,
            "{preemptor}"
        );
    }
}
