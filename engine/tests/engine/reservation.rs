//! Reservations and backfill.

use crate::world::{World, capped, foreign, key, pods, policy, queue, res};
use engine::facts::{Demand, PolicyFact, QueueFact, QueueOrdering, Split};
use engine::{ClusterName, JobState, QueueName};
use insta::assert_snapshot;

/// Two nodes of eight GPUs; a job `old` runs on one of them.
fn half_full() -> World {
    let mut world = World::new();
    world.cluster("a", 2, "cpu 64, gpu 8").queue(queue("q"));
    world.runs("old", "q", 1, "gpu 8");
    world
}

#[test]
fn a_job_that_does_not_fit_does_not_block_others_that_do() {
    let mut world = half_full();
    world.add("never", "q", 3, "gpu 8");
    world.add("fits", "q", 1, "gpu 8");
    assert_snapshot!(world.decide(), @"release fits #1 a(n1)");
    assert_snapshot!(world.why("never"), @"#1 ExceedsFleet: needs 3 pods × nvidia.com/gpu 8; a has room for 0 of 3; it would not fit even if they were empty");
}

#[test]
fn only_what_the_head_needs_is_reserved() {
    let mut world = half_full();
    world.cluster("b", 1, "cpu 64, gpu 4");
    world.add("head", "q", 2, "gpu 8");
    world.add("same-nodes", "q", 1, "gpu 8");
    world.add("elsewhere", "q", 1, "gpu 4");
    world.add("cpu-only", "q", 1, "cpu 8");
    assert_snapshot!(world.decide(), @r"
    release elsewhere #1 b(n0)
    release cpu-only #1 a(n0)
    ");
    assert_snapshot!(world.why("head"), @"#1 NextInLine: needs 2 pods × nvidia.com/gpu 8; a has room for 1 of 2, b has room for 0 of 2; it is next: what becomes free is reserved for it");
    assert_snapshot!(world.why("same-nodes"), @"#2 ReservedForAnother: what is free is kept for ns/head, further ahead; beside that it needs 1 pod × nvidia.com/gpu 8; a has room for 0 of 1, b has room for 0 of 1");
    world.finish("old");
    assert_snapshot!(world.decide(), @"release head #1 a(n0 n1)");
}

#[test]
fn devices_that_become_free_one_by_one_stay_reserved() {
    let mut world = World::new();
    world.cluster("a", 1, "cpu 64, gpu 8").queue(queue("q"));
    for index in 0..8 {
        world.add(&format!("old-{index}"), "q", 1, "gpu 1");
    }
    world.decide();
    (0..8).for_each(|index| world.run(&format!("old-{index}")));
    let job = world.job("head", "q", pods(1, "gpu 8")).priority("high");
    world.submit(job);
    for index in 0..8 {
        // A stream of small jobs, each of which would fit when an old one ends.
        world.add(&format!("small-{index}"), "q", 1, "gpu 1");
        assert_eq!(world.decide(), "");
        world.finish(&format!("old-{index}"));
    }
    assert_snapshot!(world.decide(), @"release head #1 a(n0)");
    assert_eq!(world.state("small-0"), JobState::Queued);
}

#[test]
fn headroom_that_becomes_free_in_pieces_stays_reserved() {
    let mut world = World::new();
    world
        .cluster("a", 8, "cpu 64, gpu 8")
        .queue(capped("q", "gpu 4"));
    for index in 0..4 {
        world.add(&format!("old-{index}"), "q", 1, "gpu 1");
    }
    world.decide();
    let job = world.job("head", "q", pods(1, "gpu 4")).priority("high");
    world.submit(job);
    for index in 0..4 {
        world.add(&format!("small-{index}"), "q", 1, "gpu 1");
        assert_eq!(world.decide(), "");
        world.run(&format!("old-{index}"));
        world.finish(&format!("old-{index}"));
    }
    assert_snapshot!(world.why("small-0"), @"#2 ReservedForAnother: what is free is kept for ns/head, further ahead; beside that it needs nvidia.com/gpu 1; queue q may use 4 and has 0 charged and 4 kept for a job ahead: short by 1");
    assert_snapshot!(world.decide(), @"release head #1 a(n0)");
}

#[test]
fn headroom_of_an_ancestor_is_reserved_against_its_other_children() {
    let mut world = World::new();
    world.cluster("a", 8, "cpu 64, gpu 8");
    world.queue(capped("dept", "gpu 8"));
    world.queue(crate::world::below(
        "dept",
        QueueFact {
            priority: 1,
            ..queue("one")
        },
    ));
    world.queue(crate::world::below("dept", queue("two")));
    world.add("old", "two", 1, "gpu 4");
    world.decide();
    world.add("head", "one", 1, "gpu 8");
    world.add("small", "two", 1, "gpu 1");
    assert_snapshot!(world.decide(), @"");
    assert_snapshot!(world.why("small"), @"#1 ReservedForAnother: what is free is kept for ns/head, further ahead; beside that it needs nvidia.com/gpu 1; queue dept may use 8 and has 4 charged and 8 kept for a job ahead: short by 5");
}

#[test]
fn a_job_ahead_of_the_owner_is_not_blocked() {
    let mut world = half_full();
    world.add("head", "q", 2, "gpu 8");
    world.decide();
    let job = world.job("urgent", "q", pods(1, "gpu 8")).priority("high");
    world.submit(job);
    assert_snapshot!(world.decide(), @"release urgent #1 a(n1)");
}

#[test]
fn a_job_that_ends_before_the_head_starts_may_pass() {
    let mut world = World::new();
    world.cluster("a", 2, "cpu 64, gpu 8").queue(queue("q"));
    let old = world.job("old", "q", pods(1, "gpu 8")).lasts(100);
    world.submit(old);
    world.decide();
    world.run("old");
    world.add("head", "q", 2, "gpu 8");
    let long = world.job("long", "q", pods(1, "gpu 8")).lasts(101);
    world.submit(long);
    let short = world.job("short", "q", pods(1, "gpu 8")).lasts(100);
    world.submit(short);
    world.add("undeclared", "q", 1, "gpu 8");
    assert_snapshot!(world.decide(), @"release short #1 a(n1)");
    world.run("short");
    world.wait(100);
    world.finish("short");
    world.finish("old");
    assert_snapshot!(world.decide(), @"release head #1 a(n0 n1)");
}

#[test]
fn no_job_passes_if_an_end_is_unknown() {
    let mut world = half_full();
    world.add("head", "q", 2, "gpu 8");
    let short = world.job("short", "q", pods(1, "gpu 8")).lasts(1);
    world.submit(short);
    assert_snapshot!(world.decide(), @"");
}

#[test]
fn best_effort_reserves_nothing() {
    let mut world = half_full();
    let mut loose = policy("q");
    loose.ordering = QueueOrdering::BestEffort;
    world.policy(loose);
    world.add("head", "q", 2, "gpu 8");
    world.add("small", "q", 1, "gpu 8");
    assert_snapshot!(world.decide(), @"release small #1 a(n1)");
}

#[test]
fn the_oldest_jobs_get_the_reservations_of_a_class() {
    let mut world = World::new();
    world.cluster("a", 4, "cpu 64, gpu 8");
    for name in ["one", "two", "three"] {
        world.queue(queue(name));
    }
    world.runs("old", "one", 4, "gpu 5");
    // The running job makes `one` the last in order; three GPUs are free on each node.
    for name in ["one", "two", "three"] {
        world.add(&format!("head-{name}"), name, 1, "gpu 8");
    }
    for index in 0..3 {
        world.add(&format!("small-{index}"), "one", 1, "gpu 3");
    }
    assert_snapshot!(world.decide(), @r"
    release small-0 #1 a(n2)
    release small-1 #1 a(n3)
    ");
    let next = |name: &str| world.why(&format!("head-{name}")).contains("it is next");
    assert_eq!(
        [next("one"), next("two"), next("three")],
        [true, true, false]
    );
}

#[test]
fn the_job_of_the_queue_that_deserves_more_gets_the_reservation() {
    let mut world = World::new();
    world.cluster("a", 4, "cpu 64, gpu 8");
    for name in ["one", "two", "three"] {
        let deserved = if name == "three" { "gpu 8" } else { "gpu 1" };
        world.queue(QueueFact {
            deserved: res(deserved),
            reclaimable: false,
            ..queue(name)
        });
        world.add(&format!("old-{name}"), name, 1, "gpu 5");
    }
    world.add("rest", "one", 1, "gpu 5");
    world.decide();
    for name in ["one", "two", "three"] {
        world.add(&format!("head-{name}"), name, 1, "gpu 8");
    }
    world.decide();
    let next = |name: &str| world.why(&format!("head-{name}")).contains("it is next");
    assert_eq!(
        [next("one"), next("two"), next("three")],
        [true, false, true]
    );
}

#[test]
fn a_queue_with_a_lower_priority_loses_its_reservation() {
    let mut world = World::new();
    world.cluster("a", 4, "cpu 64, gpu 8");
    for name in ["one", "two", "three"] {
        world.queue(queue(name));
    }
    world.add("old", "one", 4, "gpu 8");
    world.decide();
    for name in ["one", "two", "three"] {
        world.add(&format!("head-{name}"), name, 1, "gpu 8");
    }
    world.decide();
    let kept = |world: &mut World| {
        let next = |name: &str| world.why(&format!("head-{name}")).contains("it is next");
        ["one", "two", "three"].map(next)
    };
    assert_eq!(kept(&mut world), [true, true, false]);
    // One of two slots goes by priority, the other one by age.
    world.queue(QueueFact {
        priority: 1,
        ..queue("three")
    });
    world.decide();
    assert_eq!(kept(&mut world), [true, false, true]);
    world.queue(QueueFact {
        priority: 1,
        ..queue("two")
    });
    world.decide();
    assert_eq!(kept(&mut world), [true, true, false]);
}

#[test]
fn a_reservation_stays_when_another_queue_comes_to_use_less() {
    let mut world = World::new();
    world.cluster("a", 2, "cpu 64, gpu 8");
    for name in ["one", "two", "three"] {
        world.queue(queue(name));
    }
    for name in ["one", "two", "three"] {
        world.add(&format!("old-{name}"), name, 1, "gpu 4");
    }
    world.decide();
    for name in ["old-one", "old-two", "old-three"] {
        world.run(name);
    }
    for name in ["one", "two"] {
        world.add(&format!("head-{name}"), name, 1, "gpu 8");
    }
    world.decide();
    // The queue of the third uses nothing any more: it comes first, though its job was queued
    // last.
    world.add("head-three", "three", 1, "gpu 8");
    world.finish("old-three");
    world.decide();
    let next = |name: &str| world.why(&format!("head-{name}")).contains("it is next");
    assert_eq!(
        [next("one"), next("two"), next("three")],
        [true, true, false]
    );
}

#[test]
fn the_reservation_of_a_deleted_job_is_free() {
    let mut world = half_full();
    world.add("head", "q", 2, "gpu 8");
    world.add("small", "q", 1, "gpu 8");
    world.decide();
    world.apply(engine::Event::JobGone(key("head")));
    assert_snapshot!(world.decide(), @"release small #1 a(n1)");
}

#[test]
fn a_closed_queue_has_no_reservations() {
    let mut world = half_full();
    world.queue(QueueFact {
        priority: 1,
        ..queue("first")
    });
    world.add("head", "first", 2, "gpu 8");
    world.add("small", "q", 1, "gpu 8");
    world.decide();
    world.queue(QueueFact {
        priority: 1,
        state: engine::facts::QueueState::Closed,
        ..queue("first")
    });
    assert_snapshot!(world.decide(), @"release small #1 a(n1)");
    assert!(
        world
            .engine
            .queue_usage(&QueueName::from("first"))
            .unwrap()
            .closed
            .is_some()
    );
}

#[test]
fn a_replanned_reservation_frees_its_old_nodes() {
    let mut world = World::new();
    world
        .cluster("a", 2, "cpu 64, gpu 8")
        .cluster("b", 2, "cpu 64, gpu 8");
    world.queue(queue("q"));
    let on = |cluster: &str, demand: engine::facts::Demand| {
        let mut demand = demand;
        demand.placement.groups = vec![engine::matching::ClusterRule {
            names: Some(std::iter::once(engine::ClusterName::from(cluster)).collect()),
            ..Default::default()
        }];
        demand
    };
    for (name, cluster, gpus) in [("old-a", "a", 8), ("old-b", "b", 4)] {
        let job = world.job(name, "q", on(cluster, pods(1, &format!("gpu {gpus}"))));
        world.submit(job);
        world.decide();
        world.run(name);
    }
    world.apply(foreign("b", "n1", "gpu 8"));
    // Eight devices have to become free on a; foreign pods block b.
    world.add("head", "q", 2, "gpu 8");
    let pinned = world.job("pinned", "q", on("a", pods(1, "gpu 8")));
    world.submit(pinned);
    assert_snapshot!(world.decide(), @"");
    // Now only four have to become free on b.
    let (cluster, uid) = ("b".into(), "foreign-b-n1".into());
    world.apply(engine::Event::PodGone(cluster, uid));
    assert_snapshot!(world.decide(), @"release pinned #1 a(n1)");
}

#[test]
fn an_owner_whose_nodes_go_to_a_job_ahead_is_replanned() {
    let mut world = World::new();
    world.cluster("a", 3, "cpu 64, gpu 8").queue(queue("q"));
    world.add("old-six", "q", 1, "gpu 6");
    world.add("old-four", "q", 1, "gpu 4");
    world.decide();
    world.run("old-six");
    world.run("old-four");
    world.add("head", "q", 2, "gpu 8");
    assert_snapshot!(world.decide(), @"");
    let urgent = world.job("urgent", "q", pods(1, "gpu 8")).priority("high");
    world.submit(urgent);
    world.add("small", "q", 1, "gpu 2");
    // The empty node is gone; the two that are partly used are reserved now.
    assert_snapshot!(world.decide(), @"release urgent #1 a(n2)");
}

#[test]
fn a_queue_that_falls_behind_blocks_no_job_any_more() {
    let mut world = World::new();
    world
        .cluster("a", 2, "cpu 64, gpu 8")
        .cluster("c", 1, "cpu 1000");
    world.queue(queue("one")).queue(queue("two"));
    world.runs("old", "two", 1, "gpu 8");
    world.add("head", "one", 2, "gpu 8");
    world.add("stopped", "two", 1, "gpu 8");
    assert_snapshot!(world.decide(), @"");
    // Its queue uses more of the fleet than the other now.
    world.add("grabs", "one", 1, "cpu 900");
    assert_snapshot!(world.decide(), @r"
    release grabs #1 c(n0)
    release stopped #1 a(n1)
    ");
}

#[test]
fn the_first_job_after_a_deleted_one_gets_a_reservation() {
    let mut world = World::new();
    world.cluster("a", 2, "cpu 64, gpu 8").queue(queue("q"));
    world.runs("old", "q", 1, "gpu 4");
    // Foreign pods block the first job: nothing can be reserved for it.
    world.apply(foreign("a", "n1", "gpu 8"));
    world.add("first", "q", 2, "gpu 8");
    world.add("second", "q", 1, "gpu 8");
    assert_snapshot!(world.decide(), @"");
    world.apply(engine::Event::JobGone(key("first")));
    world.add("small", "q", 1, "gpu 4");
    assert_snapshot!(world.decide(), @"");
    world.finish("old");
    assert_snapshot!(world.decide(), @"release second #1 a(n0)");
}

#[test]
fn of_equal_clusters_nodes_are_reserved_in_the_preferred_one() {
    for (preferred, kept, left) in [(["a", "b"], "a", "b"), (["b", "a"], "b", "a")] {
        let mut world = World::new();
        world
            .cluster("a", 1, "cpu 64, gpu 8")
            .cluster("b", 1, "cpu 64, gpu 8");
        world.queue(queue("q")).policy(PolicyFact {
            preferred_clusters: preferred.map(ClusterName::from).to_vec(),
            ..policy("q")
        });
        for name in ["old-1", "old-2"] {
            world.add(name, "q", 1, "gpu 6");
            world.decide();
            world.run(name);
        }
        world.add("head", "q", 1, "gpu 8");
        world.add("small", "q", 1, "gpu 2");
        assert_eq!(world.decide(), format!("release small #1 {left}(n0)"));
        assert!(world.why("head").contains("it is next"), "{kept}");
    }
}

#[test]
fn a_divisible_job_reserves_nodes_where_the_least_has_to_become_free() {
    let mut world = World::new();
    world.queue(queue("q"));
    for name in ["a", "b"] {
        world.cluster(name, 1, "cpu 64, gpu 8");
        world.add(&format!("old-{name}"), "q", 1, "gpu 5");
        world.decide();
        world.run(&format!("old-{name}"));
    }
    // One more device has to become free on each of them, or five on one alone.
    let head = Demand {
        split: Split::Allowed,
        ..pods(2, "gpu 4")
    };
    let head = world.job("head", "q", head);
    world.submit(head);
    world.add("small", "q", 1, "gpu 3");
    assert_snapshot!(world.decide(), @"");
    assert_snapshot!(world.why("small"), @"#2 ReservedForAnother: what is free is kept for ns/head, further ahead; beside that it needs 1 pod × nvidia.com/gpu 3; a has room for 0 of 1, b has room for 0 of 1");
}

#[test]
fn nodes_are_reserved_as_soon_as_they_can_become_free() {
    let mut world = World::new();
    world.cluster("a", 1, "cpu 64, gpu 8").queue(queue("q"));
    world.runs("old", "q", 1, "gpu 2");
    // A foreign pod blocks it: nothing can be reserved.
    world.apply(foreign("a", "n0", "gpu 4"));
    world.add("head", "q", 1, "gpu 8");
    world.add("first", "q", 1, "gpu 2");
    assert_snapshot!(world.decide(), @"release first #1 a(n0)");
    world.run("first");
    let (cluster, uid) = ("a".into(), "foreign-a-n0".into());
    world.apply(engine::Event::PodGone(cluster, uid));
    world.add("second", "q", 1, "gpu 2");
    assert_snapshot!(world.decide(), @"");
    world.finish("old");
    world.finish("first");
    assert_snapshot!(world.decide(), @"release head #1 a(n0)");
}

#[test]
fn a_job_that_is_not_the_first_any_more_loses_its_reservation() {
    let mut world = World::new();
    world
        .cluster("a", 1, "cpu 64, gpu 8")
        .cluster("b", 1, "cpu 64, gpu 4, disk 1")
        .queue(queue("q"));
    for (name, request) in [("old-a", "gpu 5"), ("old-b", "gpu 2, disk 1")] {
        world.add(name, "q", 1, request);
        world.decide();
        world.run(name);
    }
    world.add("head", "q", 1, "gpu 8");
    world.add("small", "q", 1, "gpu 3");
    assert_snapshot!(world.decide(), @"");
    let job = world.job("urgent", "q", pods(1, "gpu 4, disk 1"));
    world.submit(job.priority("high"));
    assert_snapshot!(world.decide(), @"release small #1 a(n0)");
}
