//! The nodes of reservations, and which owner gives way.

use crate::world::{World, capped, deserving, gang, on, pods, policy, queue, role};
use engine::ClusterName;
use engine::facts::{Demand, PolicyFact, QueueFact, Split};
use insta::assert_snapshot;

/// Clusters of nodes with eight GPUs, and jobs that run there: name, cluster, pods, GPUs.
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
fn reserved_nodes_stay_until_less_has_to_become_free_elsewhere() {
    let mut world = busy(
        &[("a", 1), ("b", 1)],
        &[("a1", "a", 1, 5), ("a2", "a", 1, 1), ("b1", "b", 1, 5)],
    );
    world.add("head", "q", 1, "gpu 8");
    assert_snapshot!(world.decide(), @"");
    // On a as much has to become free now. The owner is replanned when another job has started.
    world.finish("a2");
    world.add("another", "q", 1, "cpu 1");
    world.add("small", "q", 1, "gpu 3");
    let decided = world.decide();
    assert!(decided.ends_with("release small #1 a(n0)"), "{decided}");
}

#[test]
fn nodes_are_reserved_in_the_preferred_of_equal_clusters() {
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
fn all_pods_count_in_the_cost_of_a_reservation() {
    let mut world = busy(
        &[("a", 2), ("b", 2)],
        &[("a1", "a", 1, 8), ("a2", "a", 1, 4), ("b1", "b", 2, 5)],
    );
    world.add("head", "q", 2, "gpu 8");
    // Twelve have to become free on a, of which four for one pod; ten on b.
    world.add("small", "q", 1, "gpu 4");
    let decided = world.decide();
    assert!(decided.starts_with("release small #1 a("), "{decided}");
}

#[test]
fn all_roles_count_in_the_cost_of_a_reservation() {
    let mut world = busy(
        &[("a", 2), ("b", 2)],
        &[("a1", "a", 1, 8), ("a2", "a", 1, 4), ("b1", "b", 2, 5)],
    );
    let head = gang(vec![role("main", 1, "gpu 8"), role("helper", 1, "gpu 3")]);
    let head = world.job("head", "q", head);
    world.submit(head);
    // Seven have to become free on a, of which four for the main role; five on b, where the helper
    // fits.
    world.add("small", "q", 1, "gpu 4");
    assert_snapshot!(world.decide(), @"release small #1 a(n1)");
}

#[test]
fn an_owner_is_replanned_when_a_queue_ahead_uses_its_node() {
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
fn a_divisible_job_reserves_nodes_within_its_limit_of_clusters() {
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
fn a_divided_job_reserves_nodes_in_the_fewest_clusters() {
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
    // On a the least has to become free; with b and c two clusters suffice.
    for name in ["b", "c"] {
        let small = world.job(&format!("small-{name}"), "q", on(name, pods(1, "gpu 3")));
        world.submit(small);
    }
    world.add("small-a", "q", 1, "gpu 4");
    assert_snapshot!(world.decide(), @"release small-a #1 a(n0)");
}

#[test]
fn the_expected_start_counts_on_ends_of_jobs_that_have_not_begun() {
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
fn a_queue_at_its_deserved_gives_way_to_an_older_job() {
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
fn of_the_jobs_on_its_node_only_the_needed_part_counts_as_released() {
    for (gpus, passes) in [(5, false), (4, true)] {
        let mut world = World::new();
        world
            .cluster("a", 1, "cpu 64, gpu 8")
            .queue(capped("q", "gpu 12"));
        world.runs("mine", "q", 1, "gpu 4");
        world.cluster("b", 1, "cpu 64, gpu 5");
        // Two of its six become free with its node: four are withheld, and four of twelve are
        // left.
        world.add("head", "q", 1, "gpu 6");
        world.add("small", "q", 1, &format!("gpu {gpus}"));
        assert_eq!(!world.decide().is_empty(), passes, "{gpus}");
    }
}
