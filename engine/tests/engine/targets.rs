//! Which nodes are kept for a job that waits for room, and who gives way.

use crate::world::{World, capped, deserving, gang, on, pods, policy, queue, role};
use engine::ClusterName;
use engine::facts::{Demand, PolicyFact, QueueFact, Split};
use insta::assert_snapshot;

/// Clusters of so many nodes of eight GPUs, and jobs that run there: name, cluster, pods, GPUs.
fn busy(clusters: &[(&str, u32)], jobs: &[(&str, &str, u32, u32)]) -> World {
    let mut world = World::new();
    world.queue(queue("q"));
    for (name, nodes) in clusters {
        world.cluster(name, *nodes, "cpu 64, gpu 8");
    }
    for (name, cluster, count, gpus) in jobs {
        let job = world.job(name, "q", on(cluster, pods(*count, &format!("gpu {gpus}"))));
        world.submit(job);
        world.decide();
        world.run(name);
    }
    world
}

#[test]
fn they_stay_where_they_are_until_less_has_to_become_free_elsewhere() {
    let mut world = busy(
        &[("a", 1), ("b", 1)],
        &[("a1", "a", 1, 5), ("a2", "a", 1, 1), ("b1", "b", 1, 5)],
    );
    world.add("head", "q", 1, "gpu 8");
    assert_snapshot!(world.decide(), @"");
    // As much has to become free on a now. The holder chooses again when another has started.
    world.finish("a2");
    world.add("another", "q", 1, "cpu 1");
    world.add("small", "q", 1, "gpu 3");
    let decided = world.decide();
    assert!(decided.ends_with("release small #1 a(n0)"), "{decided}");
}

#[test]
fn however_little_has_to_become_free_the_preferred_of_equal_clusters_keeps_them() {
    for gpus in [1, 6] {
        let mut world = busy(
            &[("a", 1), ("b", 1)],
            &[("a1", "a", 1, gpus), ("b1", "b", 1, gpus)],
        );
        world.policy(PolicyFact {
            preferred_clusters: vec![ClusterName::from("b")],
            ..policy("q")
        });
        world.add("head", "q", 1, "gpu 8");
        world.add("small", "q", 1, &format!("gpu {}", 8 - gpus));
        assert_eq!(world.decide(), "release small #1 a(n0)", "{gpus}");
    }
}

#[test]
fn all_pods_count_and_not_only_the_one_for_which_the_least_has_to_become_free() {
    let mut world = busy(
        &[("a", 2), ("b", 2)],
        &[("a1", "a", 1, 8), ("a2", "a", 1, 4), ("b1", "b", 2, 5)],
    );
    world.add("head", "q", 2, "gpu 8");
    // Twelve on a, of which four for one pod; ten on b.
    world.add("small", "q", 1, "gpu 4");
    let decided = world.decide();
    assert!(decided.starts_with("release small #1 a("), "{decided}");
}

#[test]
fn all_roles_count_and_not_only_the_one_that_asks_for_most() {
    let mut world = busy(
        &[("a", 2), ("b", 2)],
        &[("a1", "a", 1, 8), ("a2", "a", 1, 4), ("b1", "b", 2, 5)],
    );
    let head = gang(vec![role("main", 1, "gpu 8"), role("helper", 1, "gpu 3")]);
    let head = world.job("head", "q", head);
    world.submit(head);
    // Seven on a, of which four for the main one; five on b, and the helper fits there.
    world.add("small", "q", 1, "gpu 4");
    assert_snapshot!(world.decide(), @"release small #1 a(n1)");
}

#[test]
fn a_holder_chooses_again_when_a_queue_before_its_own_takes_its_node() {
    let mut world = busy(&[("a", 2)], &[("old-5", "a", 1, 5), ("old-4", "a", 1, 4)]);
    world.queue(QueueFact {
        priority: 1,
        ..queue("first")
    });
    world.add("head", "q", 1, "gpu 8");
    assert_snapshot!(world.decide(), @"");
    world.add("urgent", "first", 1, "gpu 4");
    world.add("small", "q", 1, "gpu 3");
    // Eight have to become free on that node now, five on the other.
    assert_snapshot!(world.decide(), @"release urgent #1 a(n1)");
}

#[test]
fn what_may_be_divided_keeps_them_in_no_more_clusters_than_it_may_be_in() {
    for (most, left) in [(1, "release small #1 b(n0)"), (2, "")] {
        let mut world = busy(
            &[("a", 1), ("b", 1)],
            &[("a1", "a", 1, 5), ("b1", "b", 1, 5)],
        );
        let mut head = Demand {
            split: Split::Allowed,
            ..pods(2, "gpu 4")
        };
        head.placement.max_clusters = Some(most);
        let head = world.job("head", "q", head);
        world.submit(head);
        world.add("small", "q", 1, "gpu 3");
        assert_eq!(world.decide(), left, "{most}");
    }
}

#[test]
fn what_is_divided_keeps_them_in_the_fewest_clusters() {
    let mut world = busy(
        &[("a", 1), ("b", 2), ("c", 2)],
        &[("a1", "a", 1, 4), ("b1", "b", 2, 5), ("c1", "c", 2, 5)],
    );
    let head = Demand {
        split: Split::Allowed,
        ..pods(4, "gpu 8")
    };
    let head = world.job("head", "q", head);
    world.submit(head);
    // On a the least has to become free; with b and c two are enough.
    for name in ["b", "c"] {
        let small = world.job(&format!("small-{name}"), "q", on(name, pods(1, "gpu 3")));
        world.submit(small);
    }
    world.add("small-a", "q", 1, "gpu 4");
    assert_snapshot!(world.decide(), @"release small-a #1 a(n0)");
}

#[test]
fn the_start_of_the_holder_counts_on_ends_of_jobs_that_have_not_begun() {
    let mut world = World::new();
    world.queue(queue("q"));
    for name in ["a", "b"] {
        world.cluster(name, 1, "cpu 64, gpu 8");
    }
    // Both clusters have a node of the same name.
    for (name, cluster, seconds) in [("a1", "a", 100), ("b1", "b", 1000)] {
        let job = world.job(name, "q", on(cluster, pods(1, "gpu 4")));
        world.submit(job.lasts(seconds));
    }
    world.decide();
    let head = world.job("head", "q", on("a", pods(1, "gpu 8")));
    world.submit(head);
    for (name, seconds) in [("long", 101), ("short", 100)] {
        let job = world.job(name, "q", on("a", pods(1, "gpu 4")));
        world.submit(job.lasts(seconds));
    }
    assert_snapshot!(world.decide(), @"release short #1 a(n0)");
}

#[test]
fn a_queue_that_has_come_to_hold_what_it_deserves_gives_way_to_who_was_queued_before() {
    let mut world = World::new();
    world.cluster("a", 4, "cpu 64, gpu 8");
    for name in ["one", "two", "three"] {
        let deserved = if name == "three" { "gpu 8" } else { "gpu 1" };
        world.queue(QueueFact {
            reclaimable: false,
            ..deserving(name, deserved)
        });
        world.add(&format!("old-{name}"), name, 1, "gpu 5");
    }
    world.add("rest", "one", 1, "gpu 5");
    world.decide();
    for name in ["one", "two", "three"] {
        world.add(&format!("head-{name}"), name, 1, "gpu 8");
    }
    world.decide();
    let kept = |world: &World| {
        let next = |name: &str| world.why(&format!("head-{name}")).contains("it is next");
        ["one", "two", "three"].map(next)
    };
    assert_eq!(kept(&world), [true, false, true]);
    world.cluster("b", 1, "cpu 64, gpu 3");
    world.add("more", "three", 1, "gpu 3");
    assert!(world.decide().starts_with("release more #1"));
    world.decide();
    assert_eq!(kept(&world), [true, true, false]);
}

#[test]
fn of_what_runs_on_its_node_only_as_much_as_the_holder_lacks_comes_back_to_its_queue() {
    for (gpus, passes) in [(5, false), (4, true)] {
        let mut world = World::new();
        world
            .cluster("a", 1, "cpu 64, gpu 8")
            .queue(capped("q", "gpu 12"));
        world.runs("mine", "q", 1, "gpu 4");
        world.cluster("b", 1, "cpu 64, gpu 5");
        // Two of its six come back with its node: four are kept, and four are left of twelve.
        world.add("head", "q", 1, "gpu 6");
        world.add("small", "q", 1, &format!("gpu {gpus}"));
        assert_eq!(!world.decide().is_empty(), passes, "{gpus}");
    }
}
