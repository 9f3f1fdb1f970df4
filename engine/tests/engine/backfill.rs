//! Backfill: jobs pass the head without delaying it, the number of reservations, and that their
//! owners start.

use crate::world::{World, bound, key, node, pods, policy, queue};
use engine::facts::{Backfill, PolicyFact, QueueFact};
use engine::{EngineConfig, Event, JobState, Reason};
use insta::assert_snapshot;

/// Three nodes of eight GPUs, with a running job of four on each.
fn busy(backfill: Backfill) -> World {
    let mut world = World::new();
    world.cluster("a", 3, "cpu 64, gpu 8").queue(queue("q"));
    let mut kept = policy("q");
    kept.backfill = backfill;
    world.policy(kept);
    for index in 0..3 {
        world.add(&format!("old-{index}"), "q", 1, "gpu 5");
    }
    world.decide();
    (0..3).for_each(|index| world.run(&format!("old-{index}")));
    world
}

/// Returns which of these jobs have a reservation.
pub fn holders(world: &World, names: &[&str]) -> Vec<String> {
    let next = |name: &&&str| {
        let explanation = world.engine.explain(&key(name)).unwrap();
        explanation.reason == Reason::NextInLine
    };
    names.iter().filter(next).map(ToString::to_string).collect()
}

const HEADS: [&str; 3] = ["first", "second", "third"];

#[test]
fn easy_backfill_reserves_for_the_head_only() {
    let mut world = busy(Backfill::default());
    for name in HEADS {
        world.add(name, "q", 1, "gpu 8");
    }
    world.decide();
    assert_eq!(holders(&world, &HEADS), ["first"]);
}

#[test]
fn a_queue_may_have_more_reservations() {
    let mut world = busy(Backfill {
        reservations: Some(2),
        ..Backfill::default()
    });
    for name in HEADS {
        world.add(name, "q", 1, "gpu 8");
    }
    world.add("small", "q", 3, "gpu 1");
    world.decide();
    assert_eq!(holders(&world, &HEADS), ["first", "second"]);
    // The third node is free: small jobs of the queue may use it.
    assert_eq!(world.state("small"), JobState::Assumed);
}

#[test]
fn a_queue_may_have_no_reservations() {
    let mut world = busy(Backfill {
        reservations: Some(0),
        ..Backfill::default()
    });
    world.add("first", "q", 1, "gpu 8");
    world.decide();
    assert_eq!(holders(&world, &HEADS[..1]), Vec::<String>::new());
}

#[test]
fn conservative_backfill_delays_no_job_ahead() {
    let mut world = busy(Backfill {
        conservative: true,
        ..Backfill::default()
    });
    for name in HEADS {
        world.add(name, "q", 1, "gpu 8");
    }
    world.add("small", "q", 1, "gpu 1");
    assert_snapshot!(world.decide(), @"");
    assert_eq!(holders(&world, &HEADS), HEADS);
    world.finish("old-1");
    assert_snapshot!(world.decide(), @"release first #1 a(n1)");
    // Free capacity goes to the waiting jobs in order.
    world.finish("old-2");
    assert_snapshot!(world.decide(), @"release second #1 a(n2)");
    assert_eq!(holders(&world, &HEADS[2..]), ["third"]);
}

#[test]
fn two_queues_have_a_reservation_each_of_a_class() {
    let mut world = busy(Backfill::default());
    for name in ["p", "r"] {
        world.queue(queue(name));
    }
    world.add("first", "p", 1, "gpu 8");
    world.add("second", "r", 1, "gpu 8");
    world.add("third", "q", 1, "gpu 8");
    world.decide();
    assert_eq!(holders(&world, &HEADS), ["first", "second"]);
    let nodes = |queue: &str| world.engine.reserved(&queue.into()).nodes;
    assert_eq!(["p", "r", "q"].map(nodes), [1, 1, 0]);
    // One of them goes: the next in order gets its reservation.
    world.apply(engine::Event::JobGone(key("first")));
    world.decide();
    assert_eq!(holders(&world, &HEADS[1..]), ["second", "third"]);
}

#[test]
fn a_job_that_waits_for_devices_does_not_use_up_the_slots_of_other_nodes() {
    let mut world = World::with(EngineConfig {
        reservations_per_class: 1,
        ..EngineConfig::default()
    });
    world
        .cluster("a", 1, "cpu 64, gpu 8")
        .queue(queue("one"))
        .queue(queue("two"));
    world.add("old-gpu", "one", 1, "cpu 60, gpu 4");
    for name in ["cpus-1", "cpus-2"] {
        let node = crate::world::node("a", name, "cpu 64");
        world.apply(engine::Event::NodeUpserted(node));
        world.add(&format!("old-{name}"), "two", 1, "cpu 40");
    }
    world.decide();
    for name in ["old-gpu", "old-cpus-1", "old-cpus-2"] {
        world.run(name);
    }
    let both = crate::world::gang(vec![
        crate::world::role("launcher", 1, "cpu 20"),
        crate::world::role("worker", 1, "cpu 50, gpu 8"),
    ]);
    let both = world.job("both", "one", both);
    world.submit(both);
    world.add("cpus", "two", 1, "cpu 64");
    world.decide();
    assert_eq!(holders(&world, &["both", "cpus"]), ["both", "cpus"]);
}

#[test]
fn a_job_that_can_never_start_gets_no_reservation() {
    let mut world = busy(Backfill::default());
    world.add("too-large", "q", 4, "gpu 8");
    world.add("small", "q", 3, "gpu 3");
    assert_snapshot!(world.decide(), @"release small #1 a(n0 n1 n2)");
}

#[test]
fn a_divisible_job_reserves_nodes_in_several_clusters() {
    let mut world = World::new();
    world
        .cluster("a", 2, "cpu 64, gpu 8")
        .cluster("b", 2, "cpu 64, gpu 8");
    world.queue(queue("q"));
    world.runs("old", "q", 1, "gpu 8");
    let mut demand = pods(4, "gpu 8");
    demand.natively_divisible = true;
    demand.held = engine::facts::Held::ByReplicas;
    let wide = world.job("wide", "q", demand);
    world.submit(wide);
    world.add("small", "q", 1, "gpu 1");
    assert_snapshot!(world.decide(), @"");
    assert_eq!(holders(&world, &["wide"]), ["wide"]);
    world.finish("old");
    assert_snapshot!(world.decide(), @"release wide #1 a(n0 n1) b(n0 n1)");
}

/// A stream of small jobs against one that needs all nodes: it starts once the jobs have ended that
/// ran when it was queued.
#[test]
fn a_stream_of_small_jobs_does_not_starve_the_head() {
    for reservations in [1, 2, 4] {
        let mut world = World::with(EngineConfig {
            reservations_per_class: reservations,
            ..EngineConfig::default()
        });
        world.cluster("a", 4, "cpu 64, gpu 8").queue(queue("q"));
        let mut running: Vec<String> = Vec::new();
        let mut serial = 0;
        let mut rounds = 0;
        loop {
            for _ in 0..6 {
                serial += 1;
                world.add(&format!("small-{serial}"), "q", 1, "gpu 2");
            }
            if rounds == 20 {
                world.add("head", "q", 4, "gpu 8");
            }
            let decided = world.decided();
            for decision in decided.decisions {
                if let engine::Decision::Release { key, .. } = decision {
                    world.run(&key.name);
                    running.push(key.name.to_string());
                }
            }
            if rounds >= 20 && world.state("head") != JobState::Queued {
                break;
            }
            rounds += 1;
            assert!(rounds < 40, "the head waits for ever");
            // The four oldest jobs end.
            let ends = running.len().min(4);
            for name in running.drain(..ends).collect::<Vec<_>>() {
                world.finish(&name);
            }
        }
    }
}

#[test]
fn a_declared_run_time_of_zero_counts_as_none() {
    let mut world = World::new();
    world.cluster("a", 2, "cpu 64, gpu 8").queue(queue("q"));
    let old = world.job("old", "q", pods(1, "gpu 8")).lasts(100);
    world.submit(old);
    world.decide();
    world.run("old");
    world.add("head", "q", 2, "gpu 8");
    let none = world.job("none", "q", pods(1, "gpu 8")).lasts(0);
    world.submit(none);
    assert_snapshot!(world.decide(), @"");
}

#[test]
fn a_job_blocked_by_its_queues_bound_on_pools_does_not_block_another_queue() {
    let mut world = World::new();
    world.cluster("a", 2, "cpu 64, gpu 8");
    for name in ["n2", "n3"] {
        world.apply(Event::NodeUpserted(node("a", name, "cpu 8, gpu 8")));
    }
    world.queue(queue("old")).queue(queue("free"));
    world.queue(QueueFact {
        priority: 9,
        ..queue("bounded")
    });
    world.policy(PolicyFact {
        pools: vec![bound("gpu", None, "gpu 16")],
        ..policy("bounded")
    });
    world.runs("old", "old", 1, "cpu 60, gpu 8");
    // It waits for large nodes, and reserves all headroom of its queue.
    world.add("head", "bounded", 2, "cpu 60, gpu 8");
    world.add("behind", "bounded", 1, "gpu 8");
    assert_snapshot!(world.decide(), @"");
    world.add("like-it", "free", 1, "gpu 8");
    assert_snapshot!(world.decide(), @"release like-it #1 a(n2)");
    assert_snapshot!(world.why("behind"), @"#2 ReservedForAnother: what is free is kept for ns/head, further ahead; beside that it needs nvidia.com/gpu 8; queue bounded may use 16 of class gpu and has 0 charged and 16 kept for a job ahead: short by 8");
}
