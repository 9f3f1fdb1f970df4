//! Reclaim between queues: one has borrowed what another deserves.

use crate::elastic::elastic;
use crate::world::{World, below, bound, deserving, key, pods, policy, queue, res};
use engine::facts::{JobFact, PolicyFact, PoolBound, Preemption, QueueFact, QueueState};
use engine::{Event, QueueName, Resources};
use insta::assert_snapshot;

/// Nodes of four GPUs; queues `a` and `b` deserve half of them each.
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
fn only_what_was_borrowed_is_reclaimed() {
    let mut world = halves(2);
    for name in ["a1", "a2", "a3", "a4"] {
        world.runs(name, "a", 1, "gpu 2");
        world.wait(10);
    }
    for name in ["b1", "b2", "b3"] {
        world.add(name, "b", 1, "gpu 2");
    }
    // The youngest jobs lose the least; the third job of b would borrow.
    assert_snapshot!(world.decide(), @r"
    evict a4 #1 for b1: Reclaimed: reclaimed for ns/b1: queue b has nvidia.com/gpu 0 of the 4 that it deserves, queue a has 8 and deserves 4
    evict a3 #1 for b2: Reclaimed: reclaimed for ns/b2: queue b has nvidia.com/gpu 0 of the 4 that it deserves, queue a has 8 and deserves 4
    ");
    assert_snapshot!(world.why("b1"), @"#1 AwaitingEviction: needs 1 pod × nvidia.com/gpu 2; x has room for 0 of 1; it is next: ns/a4 is evicted for it, and what becomes free is reserved for it");
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
fn one_eviction_and_no_more() {
    // Bug class 4 (Volcano 4947): Q1 deserves 3 and runs one pod of 4; Q2 deserves 5.
    let mut world = World::new();
    world
        .cluster("x", 1, "cpu 5")
        .queue(deserving("q1", "cpu 3"))
        .queue(deserving("q2", "cpu 5"));
    world.runs("one", "q1", 1, "cpu 4");
    world.add("two", "q2", 1, "cpu 4");
    assert_snapshot!(world.settle(1000).join("\n"), @"one for two");
    assert_snapshot!(world.why("one"), @"#1 NextInLine: needs 1 pod × cpu 4; x has room for 0 of 1; it is next: what becomes free is reserved for it");
}

#[test]
fn a_job_reclaims_from_a_full_fleet() {
    // Bug class 5.
    let mut world = halves(1);
    world.runs("a1", "a", 4, "gpu 1");
    world.add("b1", "b", 1, "gpu 1");
    assert_snapshot!(world.decide(), @"evict a1 #1 for b1: Reclaimed: reclaimed for ns/b1: queue b has nvidia.com/gpu 0 of the 2 that it deserves, queue a has 4 and deserves 2");
}

#[test]
fn no_job_is_evicted_beyond_the_preemptors_capability() {
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
    assert_snapshot!(world.why("b1"), @"#1 NextInLine: needs cpu 1; queue b may use 10 and has 10 charged: short by 1; it is next: what becomes free is reserved for it");
}

#[test]
fn one_deserved_resource_suffices_but_only_its_users_are_evicted() {
    // Bug class 7: deserved names only GPUs, and the job requests CPU, too.
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
    // It lacks CPUs, which a job without GPUs uses: that job is not evicted.
    world.engine = copy;
    world.finish("gpus");
    world.decide();
    world.add("b1", "b", 1, "cpu 6, gpu 2");
    assert_snapshot!(world.decide(), @"");
}

#[test]
fn many_small_jobs_are_evicted_for_a_large_one() {
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
fn no_job_is_evicted_for_a_placement_that_does_not_fit() {
    // Bug class 9: two of four GPUs could be reclaimed, on two nodes; a pod needs them on one.
    let mut world = halves(2);
    world.queue(deserving("a", "gpu 6"));
    for index in 0..2 {
        world.runs(&format!("a{index}"), "a", 1, "gpu 4");
    }
    world.add("b1", "b", 1, "gpu 3");
    // Half of the only job can be reclaimed. It is evicted as a whole, which leaves a two below
    // its deserved amount, and b gets what it deserves.
    assert_snapshot!(world.decide(), @"evict a0 #1 for b1: Reclaimed: reclaimed for ns/b1: queue b has nvidia.com/gpu 0 of the 4 that it deserves, queue a has 8 and deserves 6");
    world.add("b2", "b", 2, "gpu 3");
    assert_snapshot!(world.decide(), @"");
}

#[test]
fn an_inner_queue_that_is_not_reclaimable_protects_all_below_it() {
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
    // The queues below it reclaim from each other.
    world.add("o1", "other", 1, "gpu 2");
    assert_snapshot!(world.settle(100).join("\n"), @"t1 for o1");
}

/// A department reclaims for all queues below it, whatever they deserve.
#[test]
fn a_queue_that_deserves_nothing_reclaims_by_the_deserved_of_its_parent() {
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
    // Inside the department neither queue deserves anything: neither reclaims from the other.
    world.add("o1", "other", 1, "gpu 2");
    assert_snapshot!(world.settle(100).join("\n"), @"");
}

#[test]
fn reclaimable_and_reclaim_can_be_switched_off() {
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
fn all_usage_of_a_queue_that_deserves_nothing_is_borrowed() {
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
fn in_a_tree_the_children_of_the_common_ancestor_decide() {
    let mut world = World::new();
    world
        .cluster("x", 2, "cpu 64, gpu 4")
        .queue(deserving("d1", "gpu 4"))
        .queue(below("d1", deserving("a", "gpu 2")))
        .queue(below("d1", deserving("b", "gpu 2")))
        .queue(deserving("d2", "gpu 4"))
        .queue(below("d2", deserving("c", "gpu 4")));
    // a uses six and deserves two, d1 uses six and deserves four.
    for name in ["a1", "a2", "a3"] {
        world.runs(name, "a", 1, "gpu 2");
    }
    world.runs("c1", "c", 1, "gpu 2");
    world.add("c2", "c", 1, "gpu 2");
    assert_snapshot!(world.settle(100).join("\n"), @"a1 for c2");
    // Now d1 uses what it deserves: c reclaims no more of it, but b does, from its sibling.
    world.add("c3", "c", 1, "gpu 2");
    world.add("b1", "b", 1, "gpu 2");
    assert_snapshot!(world.settle(100).join("\n"), @"a2 for b1");
}

#[test]
fn a_deserved_amount_of_a_class_of_pools_is_reclaimed() {
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
fn victims_are_in_the_cluster_with_the_lowest_cost() {
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
fn deserved_lowered_below_the_usage_and_raised_again() {
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
fn jobs_of_a_closed_or_deleted_queue_run_until_they_are_reclaimed() {
    let mut world = halves(1);
    world.runs("a1", "a", 1, "gpu 2");
    world.runs("a2", "a", 1, "gpu 2");
    world.queue(QueueFact {
        state: QueueState::Closed,
        ..deserving("a", "gpu 2")
    });
    world.add("b1", "b", 1, "gpu 2");
    world.add("b2", "b", 1, "gpu 2");
    // It is closed, and still has its deserved amount.
    assert_snapshot!(world.settle(100).join("\n"), @"a1 for b1");
    world.queue(deserving("b", "gpu 4"));
    assert_snapshot!(world.settle(100).join("\n"), @"");
    world.apply(Event::QueueGone(QueueName::from("a")));
    assert_snapshot!(world.settle(100).join("\n"), @"a2 for b2");
}

#[test]
fn a_preemptor_whose_queue_closes_evicts_no_more() {
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
    // The freed capacity goes to the job that waits for it.
    assert_snapshot!(world.decide(), @"release a1 #2 x(n0×2)");
}

#[test]
fn two_queues_that_are_entitled_to_each_others_usage_settle() {
    // Each queue deserves half of the one resource and all of the other: both are entitled by one
    // and over their deserved amounts by the other.
    let mut world = World::new();
    world
        .cluster("x", 4, "cpu 16, gpu 4")
        .queue(deserving("a", "cpu 48, gpu 4"))
        .queue(deserving("b", "cpu 16, gpu 12"));
    // One queue has filled everything before the other begins. The other may reclaim by its GPUs
    // only as long as the first could not evict it in turn by its CPUs.
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
fn a_preemptor_that_changes_and_one_that_is_recreated() {
    let mut world = halves(1);
    world.runs("a1", "a", 2, "gpu 2");
    let fact = world.add("b1", "b", 1, "gpu 2");
    assert_snapshot!(world.decide(), @"evict a1 #1 for b1: Reclaimed: reclaimed for ns/b1: queue b has nvidia.com/gpu 0 of the 2 that it deserves, queue a has 4 and deserves 2");
    world.apply(Event::JobUpserted(JobFact {
        demand: pods(1, "gpu 1"),
        ..fact
    }));
    // Decided evictions continue; it evicts no more.
    assert_snapshot!(world.decide(), @"");
    world.works_gone("a1");
    assert_snapshot!(world.decide(), @"release b1 #1 x(n0)");
    assert!(world.engine.job(&key("a1")).is_some());
}

#[test]
fn a_job_ahead_in_the_preemptors_queue_does_not_use_what_is_freed() {
    // It would bring its queue over its deserved amount, be evicted, and start again, without end.
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
fn pending_evictions_of_one_preemptor_do_not_block_another() {
    // If j02 were blocked, it would lose what was freed for it, and evict again for ever.
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
