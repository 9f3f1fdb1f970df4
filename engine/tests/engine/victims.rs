//! Which jobs are candidates for eviction, in which order, and which sets of them are valid.
//!
//! Where a test has more than 14 candidates, not all sets are tried, so that the order of candidates decides.

use crate::elastic::elastic;
use crate::preemption::{add, preempting, runs, world};
use crate::world::{
    World, bound, capped, cluster, deserving, foreign, gang, node, on, pods, policy, queue, res,
    role,
};
use engine::facts::{Demand, Held, NodeFact, PolicyFact, PoolBound, Preemption, QueueFact};
use engine::{ClusterName, Event, PoolClass, Reason, Resources, Uid};
use insta::assert_snapshot;

/// The jobs that are evicted in these decisions.
fn evicted(decided: &str) -> Vec<&str> {
    let lines = decided.lines();
    let names = lines.map(|line| line.strip_prefix("evict ")?.split(' ').next());
    names.map(|name| name.expect("an eviction")).collect()
}

/// Returns what a queue deserves of the pools of a class.
fn deserves_of(name: &str, class: &str, deserved: &str) -> PolicyFact {
    PolicyFact {
        pools: vec![PoolBound {
            deserved: res(deserved),
            capability: Resources::new(),
            ..bound(class, None, "")
        }],
        ..policy(name)
    }
}

#[test]
fn of_many_jobs_of_two_queues_only_what_each_borrowed_is_reclaimed() {
    let mut world = World::new();
    world
        .cluster("x", 1, "cpu 64, gpu 16")
        .queue(queue("a"))
        .policy(deserves_of("a", "gpu", "gpu 4"))
        .queue(deserving("b", "gpu 6"))
        .queue(deserving("c", "gpu 6"));
    // Those of b lose the least, and come first.
    for queue in ["c", "b"] {
        for index in 0..8 {
            world.runs(&format!("{queue}{index}"), queue, 1, "gpu 1");
        }
        world.wait(10);
    }
    world.add("a1", "a", 4, "gpu 1");
    assert_eq!(evicted(&world.decide()), ["b0", "b1", "c0", "c1"]);
}

#[test]
fn what_is_deserved_of_a_class_is_reclaimed_though_the_job_would_fit_elsewhere() {
    for entitles in ["new", "old"] {
        let mut world = World::new();
        world
            .queue(queue("a"))
            .policy(deserves_of("a", entitles, "gpu 4"))
            .queue(queue("b"));
        world.apply(Event::ClusterUpserted(cluster("x")));
        for class in ["new", "old"] {
            world.apply(Event::NodeUpserted(NodeFact {
                class: PoolClass::from(class),
                ..node("x", class, "cpu 64, gpu 4")
            }));
            world.runs(&format!("on-{class}"), "b", 1, "gpu 4");
        }
        // With both gone it would start on the same node in both cases.
        world.add("a1", "a", 1, "gpu 4");
        let victim = format!("on-{entitles}");
        assert_eq!(evicted(&world.decide()), [victim]);
    }
}

#[test]
fn victims_of_a_queue_are_counted_from_the_smallest() {
    let mut world = World::new();
    world
        .cluster("x", 1, "cpu 64, gpu 5")
        .queue(deserving("a", "gpu 5"))
        .queue(deserving("b", "gpu 3"));
    world.runs("small", "b", 1, "gpu 1");
    world.wait(100);
    world.runs("large", "b", 1, "gpu 4");
    world.wait(1);
    // Without the large one, which loses less, b would have less than it deserves.
    world.add("a1", "a", 1, "gpu 5");
    assert_eq!(evicted(&world.decide()), ["large", "small"]);
}

#[test]
fn large_victims_of_one_cluster_are_preferred_to_many_small_ones() {
    let mut world = world(6);
    let small: Vec<String> = (0..8).map(|index| format!("old-{index}")).collect();
    for name in &small {
        runs(&mut world, name, "low", pods(1, "gpu 1"));
    }
    world.wait(85);
    runs(&mut world, "dear", "low", pods(1, "gpu 4"));
    world.wait(7);
    for name in ["s-0", "s-1", "s-2", "s-3"] {
        runs(&mut world, name, "low", pods(1, "gpu 1"));
    }
    world.wait(2);
    runs(&mut world, "most", "low", pods(1, "gpu 3"));
    world.wait(1);
    // The largest of all candidates is elsewhere, and costs the most.
    world.cluster("b", 1, "cpu 64, gpu 16");
    world.apply(foreign("b", "n0", "gpu 6"));
    runs(&mut world, "all", "low", pods(1, "gpu 4"));
    world.wait(5);
    runs(&mut world, "largest", "low", pods(1, "gpu 10"));
    world.wait(100);
    add(&mut world, "late", "high", pods(2, "gpu 4"));
    assert_eq!(evicted(&world.decide()), ["all", "most"]);
}

/// Eight clusters are searched: those where as many candidates as the job needs cost the least.
#[test]
fn victims_are_in_the_cluster_that_looks_cheapest_for_the_size_of_the_job() {
    for single in ["alone", "one", "single", "sole"] {
        let mut world = world(0);
        let run = |world: &mut World, cluster: &str, at: &str, name: &str| {
            world.apply(Event::NodeUpserted(node(cluster, at, "cpu 64, gpu 4")));
            world.apply(foreign(cluster, at, "gpu 2"));
            runs(world, name, "low", pods(1, "gpu 2"));
        };
        world.cluster(single, 0, "gpu 4");
        run(&mut world, single, "dear", "dear");
        world.wait(1000);
        for index in 0..24 {
            let name = format!("c{index:02}");
            world.cluster(&name, 0, "gpu 4");
            run(&mut world, &name, "n0", &format!("old-{name}"));
        }
        world.wait(1000);
        for name in ["single", "other"] {
            run(&mut world, single, name, name);
        }
        world.wait(4);
        world.cluster("double", 1, "cpu 64, gpu 4");
        for name in ["half-1", "half-2"] {
            runs(&mut world, name, "low", pods(1, "gpu 2"));
        }
        world.wait(6);
        let beside = Uid::from(format!("foreign-{single}-single").as_str());
        world.apply(Event::PodGone(ClusterName::from(single), beside));
        // Each half costs less than the single one, and both cost more.
        add(&mut world, "late", "high", pods(1, "gpu 4"));
        assert_eq!(evicted(&world.decide()), ["single"], "{single}");
    }
}

#[test]
fn the_surplus_of_a_gang_leaves_from_its_last_role_on() {
    let mut world = world(1);
    let role = |name: &str, request: &str| engine::facts::Role {
        min: 1,
        ..role(name, 2, request)
    };
    let demand = Demand {
        held: Held::ByReplicas,
        elastic: true,
        min_available: 2,
        ..gang(vec![role("trainer", "gpu 2"), role("reader", "cpu 1")])
    };
    runs(&mut world, "gang", "low", demand);
    // It needs nothing of the readers.
    add(&mut world, "late", "high", pods(1, "gpu 2"));
    assert_snapshot!(world.decide(), @"resize gang #1 a(n0 n0)");
}

#[test]
fn surplus_comes_before_whole_jobs() {
    let mut world = world(9);
    runs(&mut world, "gang", "low", elastic(2, 4, "gpu 1"));
    for index in 0..16 {
        let name = format!("job-{index:02}");
        runs(&mut world, &name, "low", pods(1, "gpu 2"));
    }
    world.wait(10);
    // One of the jobs would do as well.
    add(&mut world, "late", "high", pods(1, "gpu 2"));
    assert_snapshot!(world.decide(), @"resize gang #1 a(n0×2)");
}

#[test]
fn a_victim_costs_more_the_higher_its_priority() {
    // The priorities of the three jobs are the lowest, the second and the third in use.
    for (seconds, victim) in [(19, "old"), (21, "young")] {
        let mut world = world(2);
        runs(&mut world, "old", "low", pods(1, "gpu 4"));
        world.wait(seconds - 10);
        runs(&mut world, "young", "normal", pods(1, "gpu 4"));
        world.wait(10);
        add(&mut world, "late", "high", pods(1, "gpu 4"));
        assert_eq!(evicted(&world.decide()), [victim], "{seconds}");
    }
}

#[test]
fn what_leaves_a_gang_is_neither_freed_nor_lost_once_more() {
    for (asks, victims) in [("gpu 6", &[][..]), ("gpu 4", &["gang"][..])] {
        let mut world = world(0);
        world.cluster("b", 1, "cpu 64, gpu 8");
        runs(&mut world, "gang", "low", elastic(2, 4, "gpu 2"));
        add(&mut world, "first", "high", pods(1, "gpu 4"));
        assert_eq!(world.decide(), "resize gang #1 b(n0×2)");
        add(&mut world, "second", "high", pods(1, asks));
        assert_eq!(evicted(&world.decide()), victims, "{asks}");
    }
    // What is left of it costs less than the other job, and with what leaves it would cost more.
    let mut world = world(0);
    world.cluster("b", 1, "cpu 64, gpu 8");
    runs(&mut world, "gang", "low", elastic(2, 4, "gpu 2"));
    world.cluster("c", 1, "cpu 64, gpu 6");
    runs(&mut world, "other", "low", pods(1, "gpu 6"));
    world.wait(10);
    add(&mut world, "first", "high", pods(1, "gpu 4"));
    assert_snapshot!(world.decide(), @"resize gang #1 b(n0×2)");
    add(&mut world, "second", "high", pods(1, "gpu 4"));
    assert_eq!(evicted(&world.decide()), ["gang"]);
}

#[test]
fn a_job_is_entitled_by_what_its_queue_has_once_terminating_jobs_are_gone() {
    let mut world = World::new();
    world
        .cluster("x", 1, "cpu 64, gpu 6")
        .queue(deserving("a", "gpu 4"))
        .queue(queue("b"));
    world.runs("a1", "a", 1, "gpu 2");
    world.runs("b1", "b", 1, "gpu 4");
    world.ending("a1", Reason::Evicted);
    world.add("a2", "a", 1, "gpu 4");
    assert_eq!(evicted(&world.decide()), ["b1"]);
}

#[test]
fn a_queue_that_only_preempts_reclaims_from_no_other() {
    let mut world = World::new();
    world
        .cluster("x", 1, "cpu 64, gpu 4")
        .queue(deserving("a", "gpu 4"))
        .policy(PolicyFact {
            preemption: Preemption {
                within_queue: true,
                reclaim: false,
                ..Preemption::default()
            },
            ..policy("a")
        })
        .queue(queue("b"));
    world.runs("b1", "b", 1, "gpu 4");
    let job = world.job("a1", "a", pods(1, "gpu 4")).priority("high");
    world.submit(job);
    assert_snapshot!(world.decide(), @"");
}

#[test]
fn nothing_is_kept_for_a_job_that_needs_no_victims_and_is_entitled_to_nothing() {
    let mut world = World::new();
    world
        .cluster("x", 1, "cpu 64, gpu 4")
        .queue(queue("q"))
        .policy(preempting("q", 0));
    runs(&mut world, "ends", "normal", pods(1, "gpu 4"));
    world.ending("ends", Reason::Evicted);
    add(&mut world, "late", "high", pods(1, "gpu 4"));
    assert_snapshot!(world.decide(), @"");
    assert_snapshot!(world.why("late"), @"#1 NextInLine: needs 1 pod × nvidia.com/gpu 4; x has room for 0 of 1; it is next: what becomes free is reserved for it");
}

/// Its victim and one of the two jobs that end give back enough quota.
#[test]
fn a_preemptor_waits_for_no_more_ends_than_it_needs() {
    let mut world = World::new();
    world
        .cluster("a", 2, "cpu 64, gpu 4")
        .cluster("b", 1, "cpu 64, gpu 8")
        .queue(capped("q", "gpu 12"))
        .policy(preempting("q", 0));
    runs(&mut world, "low", "low", on("b", pods(1, "gpu 4")));
    for name in ["end-1", "end-2"] {
        runs(&mut world, name, "low", on("a", pods(1, "gpu 4")));
        world.ending(name, Reason::Evicted);
    }
    add(&mut world, "late", "high", on("b", pods(1, "gpu 8")));
    assert_eq!(evicted(&world.decide()), ["low"]);
    assert_snapshot!(world.why("late"), @"#1 AwaitingEviction: needs nvidia.com/gpu 8; queue q may use 12 and has 12 charged: short by 8; it is next: ns/end-1 and ns/low are evicted for it, and what becomes free is reserved for it");
}

#[test]
fn a_job_that_is_not_overdue_yet_is_preempted_by_priority() {
    let mut world = World::new();
    world
        .cluster("a", 1, "cpu 64, gpu 4")
        .queue(queue("q"))
        .policy(PolicyFact {
            preemption: Preemption {
                within_queue: true,
                evict_overdue: true,
                ..Preemption::default()
            },
            ..policy("q")
        });
    let job = world.job("low", "q", pods(1, "gpu 4"));
    world.submit(job.priority("low").lasts(60));
    world.decide();
    world.run("low");
    world.wait(59);
    add(&mut world, "high", "high", pods(1, "gpu 4"));
    assert_snapshot!(world.decide(), @"evict low #1 for high: Preempted: preempted for ns/high, which has priority 100 in its queue; it has -100");
}

/// Times of submission are rounded to seconds by another clock: it was queued "before" the job was admitted again that
/// it may have evicted.
#[test]
fn a_job_that_says_it_was_queued_earlier_is_a_cause_all_the_same() {
    let mut world = World::new();
    world.cluster("x", 1, "cpu 64, gpu 2");
    for (name, deserved) in [("over", "gpu 0"), ("under", "gpu 2")] {
        let mut rules = policy(name);
        rules.preemption.reclaim = true;
        world.queue(deserving(name, deserved)).policy(rules);
    }
    world.runs("one", "over", 1, "gpu 1");
    world.wait(60);
    world.runs("two", "over", 1, "gpu 1");
    world.add("first", "under", 1, "gpu 1");
    assert_eq!(world.settle(20), ["two for first"]);
    world.finish("one");
    assert_eq!(world.settle(20), Vec::<String>::new());
    // Such times in this file are in the past.
    let second = world.add("second", "under", 1, "gpu 1");
    assert!(second.queued_at < world.now);
    assert_eq!(world.settle(20), ["two for second"]);
}

/// A person changes the queue in the millisecond in which the job was admitted again.
#[test]
fn what_comes_up_in_the_millisecond_of_an_admission_comes_after_it() {
    let mut world = World::new();
    world.cluster("x", 1, "cpu 64, gpu 2");
    for name in ["over", "under"] {
        let mut rules = policy(name);
        rules.preemption.reclaim = true;
        world.policy(rules);
    }
    let under = deserving("under", "gpu 1");
    world.queue(deserving("over", "gpu 0")).queue(QueueFact {
        capability: res("gpu 1"),
        ..under
    });
    world.runs("one", "over", 1, "gpu 1");
    world.wait(60);
    world.runs("two", "over", 1, "gpu 1");
    world.add("first", "under", 1, "gpu 1");
    world.add("second", "under", 1, "gpu 1");
    assert_eq!(world.settle(20), ["two for first"]);
    world.finish("one");
    world.wait(1);
    assert!(world.decide().starts_with("release two"));
    world.run("two");
    world.queue(deserving("under", "gpu 2"));
    assert_eq!(world.settle(20), ["two for second"]);
}
