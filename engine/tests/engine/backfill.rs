//! Passing the head without delaying it: how many are kept for, and that they do start.

use crate::world::{World, bound, capped, key, node, pods, policy, queue};
use engine::facts::{Backfill, PolicyFact, QueueFact};
use engine::{EngineConfig, Event, JobState, Reason};
use insta::assert_snapshot;

/// Three nodes of eight GPUs, on each of which a job runs that takes four.
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

fn holders(world: &World, names: &[&str]) -> Vec<String> {
    let next = |name: &&&str| {
        let explanation = world.engine.explain(&key(name)).unwrap();
        explanation.reason == Reason::Reserved
    };
    names.iter().filter(next).map(ToString::to_string).collect()
}

const HEADS: [&str; 3] = ["first", "second", "third"];

#[test]
fn easy_backfill_keeps_for_the_first_only() {
    let mut world = busy(Backfill::default());
    for name in HEADS {
        world.add(name, "q", 1, "gpu 8");
    }
    world.decide();
    assert_eq!(holders(&world, &HEADS), ["first"]);
}

#[test]
fn a_queue_may_ask_for_more_reservations() {
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
    // The third node is nobody's: small jobs of the queue may use it.
    assert_eq!(world.state("small"), JobState::Assumed);
}

#[test]
fn or_for_none() {
    let mut world = busy(Backfill {
        reservations: Some(0),
        ..Backfill::default()
    });
    world.add("first", "q", 1, "gpu 8");
    world.decide();
    assert_eq!(holders(&world, &HEADS[..1]), Vec::<String>::new());
}

#[test]
fn conservative_backfill_delays_nobody_ahead() {
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
    // What becomes free goes to those who wait for it, in order.
    world.finish("old-2");
    assert_snapshot!(world.decide(), @"release second #1 a(n2)");
    assert_eq!(holders(&world, &HEADS[2..]), ["third"]);
}

#[test]
fn two_queues_hold_one_each_of_a_class() {
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
    // One of them goes: the next in order takes its place.
    world.apply(engine::Event::JobGone(key("first")));
    world.decide();
    assert_eq!(holders(&world, &HEADS[1..]), ["second", "third"]);
}

#[test]
fn who_waits_for_devices_leaves_what_may_be_kept_of_other_nodes_to_others() {
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
fn nothing_is_kept_for_what_could_never_be() {
    let mut world = busy(Backfill::default());
    world.add("too-large", "q", 4, "gpu 8");
    world.add("small", "q", 3, "gpu 3");
    assert_snapshot!(world.decide(), @"release small #1 a(n0 n1 n2)");
}

#[test]
fn what_may_be_divided_keeps_nodes_of_several_clusters() {
    let mut world = World::new();
    world
        .cluster("a", 2, "cpu 64, gpu 8")
        .cluster("b", 2, "cpu 64, gpu 8");
    world.queue(queue("q"));
    world.add("old", "q", 1, "gpu 8");
    world.decide();
    world.run("old");
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

/// A stream of small jobs, each of them short of nothing, against one that needs all: it starts
/// as soon as those are over that ran when it came.
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
            // The oldest four end.
            let ends = running.len().min(4);
            for name in running.drain(..ends).collect::<Vec<_>>() {
                world.finish(&name);
            }
        }
    }
}

/// A fleet bounded at its root, for somewhere a guarantee is kept: two classes of nodes, and
/// jobs that wait for the ends of those on their own.
fn guaranteed() -> World {
    let mut world = World::new();
    world
        .cluster("a", 2, "cpu 64, gpu 8")
        .cluster("b", 2, "cpu 64, gpu 8");
    let mut sure = queue("sure");
    sure.guarantee = crate::world::res("gpu 1");
    world.queue(sure);
    for name in ["p", "q"] {
        world.queue(queue(name));
    }
    world
}

fn on(cluster: &str, mut demand: engine::facts::Demand) -> engine::facts::Demand {
    demand.placement.groups = vec![engine::matching::ClusterRule {
        names: Some(std::iter::once(engine::ClusterName::from(cluster)).collect()),
        ..Default::default()
    }];
    demand
}

#[test]
fn who_waits_for_its_own_nodes_keeps_no_headroom_that_comes_with_them() {
    let mut world = guaranteed();
    let old = world.job("old", "p", on("a", pods(2, "gpu 6")));
    world.submit(old);
    world.decide();
    world.run("old");
    // 12 of the 32 GPUs are charged; the head lacks 12 on its nodes, which free with them.
    let head = world.job("head", "p", on("a", pods(2, "gpu 8")));
    world.submit(head);
    world.decide();
    assert_eq!(holders(&world, &["head"]), ["head"]);
    let other = world.job("other", "q", on("b", pods(2, "gpu 7")));
    world.submit(other);
    assert_snapshot!(world.decide(), @"release other #1 b(n0 n1)");
}

#[test]
fn nodes_stay_kept_while_the_holder_lacks_headroom() {
    let mut world = World::new();
    world
        .cluster("a", 2, "cpu 64, gpu 8")
        .cluster("b", 1, "cpu 64, gpu 8");
    let mut sure = queue("root");
    sure.capability = crate::world::res("gpu 20");
    world.queue(sure);
    world.queue(engine::facts::QueueFact {
        priority: 1,
        ..queue("p")
    });
    world.queue(queue("q"));
    let elsewhere = world.job("elsewhere", "q", on("b", pods(1, "gpu 4")));
    let old = world.job("old", "q", on("a", pods(1, "gpu 8")));
    world.submit(elsewhere);
    world.submit(old);
    world.decide();
    world.run("elsewhere");
    world.run("old");
    let head = world.job("head", "p", on("a", pods(2, "gpu 8")));
    world.submit(head);
    world.decide();
    assert_eq!(holders(&world, &["head"]), ["head"]);
    // The root may have less now: the head lacks headroom until `elsewhere` is over too.
    let mut less = queue("root");
    less.capability = crate::world::res("gpu 19");
    world.queue(less);
    world.finish("old");
    let small = world.job("small", "q", on("a", pods(1, "gpu 4")));
    world.submit(small);
    assert_snapshot!(world.decide(), @"");
    world.finish("elsewhere");
    assert_snapshot!(world.decide(), @"release head #1 a(n0 n1)");
}

#[test]
fn what_could_never_start_stops_nobody_though_it_lacks_headroom_too() {
    let mut world = World::new();
    world.cluster("a", 1, "cpu 8").queue(capped("q", "cpu 11"));
    let mut strict = policy("q");
    strict.ordering = engine::facts::QueueOrdering::StrictFifo;
    world.policy(strict);
    world.add("runs", "q", 1, "cpu 1");
    world.decide();
    world.add("too-large", "q", 1, "cpu 11");
    world.add("small", "q", 1, "cpu 2");
    assert_snapshot!(world.decide(), @"release small #1 a(n0)");
}

/// A queue of so many GPUs in a fleet with room for all; who of `jobs` (name, GPUs, seconds) is
/// let go beside a job of four that runs six seconds, the first of them being short.
fn beside(capability: &str, jobs: &[(&str, u32, i64)]) -> String {
    let mut world = World::new();
    world
        .cluster("a", 8, "cpu 64, gpu 8")
        .queue(capped("q", capability));
    let old = world.job("old", "q", pods(1, "gpu 4")).lasts(6);
    world.submit(old);
    world.decide();
    world.run("old");
    for (name, gpus, seconds) in jobs {
        let job = world
            .job(name, "q", pods(1, &format!("gpu {gpus}")))
            .lasts(*seconds);
        world.submit(job);
    }
    world.decide()
}

#[test]
fn what_leaves_the_head_its_headroom_when_it_starts_may_go() {
    // At its start nine are free, three besides: one may be held beyond it, four may not.
    assert_snapshot!(beside("gpu 9", &[("head", 6, 9), ("one", 1, 7)]), @"release one #1 a(n1)");
    assert_snapshot!(beside("gpu 9", &[("head", 6, 9), ("four", 4, 7)]), @"");
    assert_snapshot!(beside("gpu 9", &[("head", 6, 9), ("four", 4, 6)]), @"release four #1 a(n0)");
}

#[test]
fn headroom_that_has_become_free_for_the_head_stays_for_it() {
    let mut world = World::new();
    world
        .cluster("a", 8, "cpu 64, gpu 8")
        .queue(capped("q", "gpu 8"));
    for (name, seconds) in [("early", 5), ("late", 20)] {
        let job = world.job(name, "q", pods(1, "gpu 4")).lasts(seconds);
        world.submit(job);
    }
    world.decide();
    world.run("early");
    world.run("late");
    let head = world.job("head", "q", pods(1, "gpu 8")).lasts(5);
    world.submit(head);
    assert_snapshot!(world.decide(), @"");
    world.wait(5);
    world.finish("early");
    let long = world.job("long", "q", pods(1, "gpu 1")).lasts(60);
    world.submit(long);
    assert_snapshot!(world.decide(), @"");
    world.wait(15);
    world.finish("late");
    assert_snapshot!(world.decide(), @"release head #1 a(n0)");
}

#[test]
fn a_job_does_not_grow_into_headroom_that_has_become_free_for_the_head() {
    let mut world = World::new();
    world
        .cluster("a", 8, "cpu 64, gpu 8")
        .queue(capped("q", "gpu 4"));
    let held = |count| engine::facts::Demand {
        held: engine::facts::Held::ByReplicas,
        ..pods(count, "gpu 1")
    };
    let grows = world.job("grows", "q", held(1)).priority("low");
    let grows = world.submit(grows);
    let old = world.job("old", "q", pods(1, "gpu 2")).lasts(100);
    world.submit(old);
    world.decide();
    world.run("grows");
    world.run("old");
    let head = world.job("head", "q", pods(1, "gpu 3")).priority("high");
    world.submit(head);
    assert_snapshot!(world.decide(), @"");
    world.apply(engine::Event::JobUpserted(engine::facts::JobFact {
        demand: held(2),
        ..grows
    }));
    assert_snapshot!(world.decide(), @"");
    world.finish("old");
    assert_snapshot!(world.decide(), @"release head #1 a(n0)");
}

#[test]
fn what_the_bounds_on_pools_would_never_let_go_stops_nobody() {
    let mut world = World::new();
    world.cluster("a", 2, "cpu 8, gpu 4").queue(queue("q"));
    let mut strict = policy("q");
    strict.ordering = engine::facts::QueueOrdering::StrictFifo;
    strict.pools = vec![bound("gpu", None, "gpu 2")];
    world.policy(strict);
    world.apply(crate::world::foreign("a", "n0", "gpu 4"));
    world.add("never", "q", 2, "gpu 3");
    world.add("small", "q", 1, "gpu 1");
    assert_snapshot!(world.decide(), @"release small #1 a(n1)");
}

#[test]
fn a_bound_on_a_class_waits_for_the_ends_of_those_in_that_class() {
    let mut world = World::new();
    world
        .cluster("a", 4, "cpu 64, gpu 8")
        .cluster("b", 1, "cpu 64, disk 1")
        .queue(queue("q"));
    let mut bounded = policy("q");
    bounded.pools = vec![bound("gpu", None, "cpu 11")];
    world.policy(bounded);
    for (name, request, seconds) in [
        ("elsewhere", "cpu 8, disk 1", 100),
        ("in-it", "cpu 8, gpu 1", 200),
    ] {
        let job = world.job(name, "q", pods(1, request)).lasts(seconds);
        world.submit(job);
        world.decide();
        world.run(name);
    }
    // Three are left of the bound, two of them kept: eight come back when the job in the class
    // ends, not when the other does.
    world.add("head", "q", 1, "cpu 10, gpu 1");
    for (name, request, seconds) in [
        ("long", "cpu 2, gpu 1", 201),
        ("short", "cpu 2, gpu 1", 199),
        ("beside", "cpu 1, gpu 1", 201),
    ] {
        let job = world.job(name, "q", pods(1, request)).lasts(seconds);
        world.submit(job);
    }
    assert_snapshot!(world.decide(), @r"
    release short #1 a(n0)
    release beside #1 a(n0)
    ");
}

#[test]
fn a_bound_on_some_clusters_waits_for_the_ends_of_those_in_them() {
    let mut world = World::new();
    world
        .cluster("a", 4, "cpu 64, gpu 8")
        .cluster("b", 1, "cpu 64, gpu 8")
        .queue(queue("q"));
    let mut bounded = policy("q");
    bounded.pools = vec![crate::world::bound("gpu", Some(&["a"]), "gpu 11")];
    world.policy(bounded);
    for (name, cluster, seconds) in [("elsewhere", "b", 100), ("in-it", "a", 200)] {
        let job = world.job(name, "q", on(cluster, pods(1, "gpu 8")));
        world.submit(job.lasts(seconds));
        world.decide();
        world.run(name);
    }
    // Three are left of the bound, two of them kept: eight come back when the job in a ends, not
    // when the other does.
    let head = world.job("head", "q", on("a", pods(2, "gpu 5")));
    world.submit(head);
    for (name, seconds) in [("long", 201), ("short", 199)] {
        let job = world.job(name, "q", on("a", pods(1, "gpu 2")));
        world.submit(job.lasts(seconds));
    }
    assert_snapshot!(world.decide(), @"release short #1 a(n1)");
    let head = world.engine.explain(&crate::world::key("head")).unwrap();
    let latest = head.start.unwrap().latest.unwrap();
    assert_eq!(latest.millis_since(world.now), 200_000);
}

#[test]
fn who_declares_that_it_lasts_no_time_at_all_declares_nothing() {
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
fn what_others_might_give_back_is_not_counted_on_for_the_headroom_of_the_head() {
    let mut world = World::new();
    world
        .cluster("a", 1, "cpu 64, gpu 8")
        .queue(capped("dept", "gpu 12"))
        .queue(crate::world::below("dept", queue("q")))
        .queue(queue("other"));
    world.add("mine", "q", 1, "gpu 4");
    world.add("theirs", "other", 1, "gpu 4");
    world.decide();
    world.run("mine");
    world.run("theirs");
    world.cluster("b", 1, "cpu 64, gpu 5");
    // It lacks six on a, of which the other queue may be the one to give four. So two at least
    // come back to dept, and the other four are kept there: four are left of twelve.
    world.add("head", "q", 1, "gpu 6");
    world.add("five", "q", 1, "gpu 5");
    assert_snapshot!(world.decide(), @"");
    world.add("four", "q", 1, "gpu 4");
    assert_snapshot!(world.decide(), @"release four #1 b(n0)");
}

#[test]
fn what_a_bound_of_its_own_queue_keeps_from_one_starts_in_another_queue() {
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
    world.add("old", "old", 1, "cpu 60, gpu 8");
    world.decide();
    world.run("old");
    // It waits for large nodes, and keeps all that its queue may have.
    world.add("head", "bounded", 2, "cpu 60, gpu 8");
    world.add("behind", "bounded", 1, "gpu 8");
    assert_snapshot!(world.decide(), @"");
    world.add("like-it", "free", 1, "gpu 8");
    assert_snapshot!(world.decide(), @"release like-it #1 a(n2)");
    assert_snapshot!(world.why("behind"), @"#2 ReservedForAnother: what is free is kept for ns/head, further ahead; beside that it needs nvidia.com/gpu 8; queue bounded may use 16 of class gpu and has 0 charged and 16 kept for a job ahead: short by 8");
}
