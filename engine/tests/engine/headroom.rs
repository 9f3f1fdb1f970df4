//! Headroom of reservations: how much is withheld, and when the missing part is expected.

use crate::backfill::holders;
use crate::world::{World, below, bound, capped, foreign, key, on, pods, policy, queue, res};
use engine::facts::QueueFact;
use insta::assert_snapshot;

/// A fleet whose root is bounded through a guarantee, with two classes of nodes and jobs that wait
/// for ends on their own class.
fn guaranteed() -> World {
    let mut world = World::new();
    world
        .cluster("a", 2, "cpu 64, gpu 8")
        .cluster("b", 2, "cpu 64, gpu 8");
    let mut sure = queue("sure");
    sure.guarantee = res("gpu 1");
    world.queue(sure);
    for name in ["p", "q"] {
        world.queue(queue(name));
    }
    world
}

#[test]
fn headroom_that_becomes_free_with_the_reserved_nodes_is_not_withheld() {
    let mut world = guaranteed();
    let old = world.job("old", "p", on("a", pods(2, "gpu 6")));
    world.submit(old);
    world.decide();
    world.run("old");
    // 12 of the 32 GPUs are charged; the head lacks 12 on its nodes, which become free with them.
    let head = world.job("head", "p", on("a", pods(2, "gpu 8")));
    world.submit(head);
    world.decide();
    assert_eq!(holders(&world, &["head"]), ["head"]);
    let other = world.job("other", "q", on("b", pods(2, "gpu 7")));
    world.submit(other);
    assert_snapshot!(world.decide(), @"release other #1 b(n0 n1)");
}

#[test]
fn nodes_stay_reserved_while_the_owner_lacks_headroom() {
    let mut world = World::new();
    world
        .cluster("a", 2, "cpu 64, gpu 8")
        .cluster("b", 1, "cpu 64, gpu 8");
    let mut sure = queue("root");
    sure.capability = res("gpu 20");
    world.queue(sure);
    world.queue(QueueFact {
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
    // The root has less now: the head lacks headroom until `elsewhere` has ended, too.
    let mut less = queue("root");
    less.capability = res("gpu 19");
    world.queue(less);
    world.finish("old");
    let small = world.job("small", "q", on("a", pods(1, "gpu 4")));
    world.submit(small);
    assert_snapshot!(world.decide(), @"");
    world.finish("elsewhere");
    assert_snapshot!(world.decide(), @"release head #1 a(n0 n1)");
}

#[test]
fn a_job_that_can_never_start_blocks_no_job_though_it_lacks_headroom() {
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

/// A queue of `capability` GPUs in a larger fleet. Returns which of `jobs` (name, GPUs, seconds)
/// are admitted beside a job of four GPUs that runs for six seconds, if the first of them lacks
/// headroom.
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
fn a_job_that_leaves_the_head_its_headroom_may_start() {
    // At its start nine GPUs are free, three more than it needs: a job of one may run beyond that,
    // one of four may not.
    assert_snapshot!(beside("gpu 9", &[("head", 6, 9), ("one", 1, 7)]), @"release one #1 a(n1)");
    assert_snapshot!(beside("gpu 9", &[("head", 6, 9), ("four", 4, 7)]), @"");
    assert_snapshot!(beside("gpu 9", &[("head", 6, 9), ("four", 4, 6)]), @"release four #1 a(n0)");
}

#[test]
fn headroom_that_became_free_for_the_head_stays_reserved() {
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
fn a_job_does_not_grow_into_reserved_headroom() {
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
fn a_job_that_bounds_on_pools_never_admit_blocks_no_job() {
    let mut world = World::new();
    world.cluster("a", 2, "cpu 8, gpu 4").queue(queue("q"));
    let mut strict = policy("q");
    strict.ordering = engine::facts::QueueOrdering::StrictFifo;
    strict.pools = vec![bound("gpu", None, "gpu 2")];
    world.policy(strict);
    world.apply(foreign("a", "n0", "gpu 4"));
    world.add("never", "q", 2, "gpu 3");
    world.add("small", "q", 1, "gpu 1");
    assert_snapshot!(world.decide(), @"release small #1 a(n1)");
}

#[test]
fn a_bound_on_a_class_counts_on_ends_in_that_class() {
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
fn a_bound_on_some_clusters_counts_on_ends_in_them() {
    let mut world = World::new();
    world
        .cluster("a", 4, "cpu 64, gpu 8")
        .cluster("b", 1, "cpu 64, gpu 8")
        .queue(queue("q"));
    let mut bounded = policy("q");
    bounded.pools = vec![bound("gpu", Some(&["a"]), "gpu 11")];
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
    let head = world.engine.explain(&key("head")).unwrap();
    assert_eq!(head.start.unwrap().wait_ms, Some(200_000));
}

#[test]
fn ends_of_jobs_in_other_queues_count_only_as_far_as_certain() {
    let mut world = World::new();
    world
        .cluster("a", 1, "cpu 64, gpu 8")
        .queue(capped("dept", "gpu 12"))
        .queue(below("dept", queue("q")))
        .queue(queue("other"));
    world.add("mine", "q", 1, "gpu 4");
    world.add("theirs", "other", 1, "gpu 4");
    world.decide();
    world.run("mine");
    world.run("theirs");
    world.cluster("b", 1, "cpu 64, gpu 5");
    // It lacks six on a, of which the other queue may free four. So at least two become free in
    // dept, and the other four are withheld there: four of twelve are left.
    world.add("head", "q", 1, "gpu 6");
    world.add("five", "q", 1, "gpu 5");
    assert_snapshot!(world.decide(), @"");
    world.add("four", "q", 1, "gpu 4");
    assert_snapshot!(world.decide(), @"release four #1 b(n0)");
}

#[test]
fn the_next_job_gets_a_reservation_when_the_head_starts() {
    let mut world = World::new();
    let mut two = policy("q");
    two.backfill.reservations = Some(2);
    world
        .cluster("a", 1, "cpu 64, gpu 16")
        .queue(capped("q", "gpu 8"))
        .policy(two);
    world.apply(foreign("a", "n0", "cpu 32"));
    world.runs("old", "q", 1, "gpu 6");
    world.add("first", "q", 1, "cpu 48");
    world.add("second", "q", 1, "gpu 4");
    world.add("third", "q", 1, "gpu 3");
    assert_snapshot!(world.decide(), @"");
    // For the first none is possible, so it is passed.
    let names = ["first", "second", "third"];
    assert_eq!(holders(&world, &names), ["second", "third"]);
    world.apply(foreign("a", "n0", "cpu 1"));
    assert_snapshot!(world.decide(), @"release first #1 a(n0)");
    assert_eq!(holders(&world, &names), ["second", "third"]);
}
