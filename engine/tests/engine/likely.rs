//! Placement where there are more clusters than are weighed one by one.

use crate::world::{World, foreign, policy, queue};
use engine::ClusterName;
use engine::facts::PolicyFact;

fn world(clusters: u32) -> World {
    let mut world = World::new();
    world.queue(queue("q"));
    for index in 0..clusters {
        world.cluster(&format!("c{index:02}"), 2, "cpu 64, gpu 8");
    }
    world
}

#[test]
fn the_preferred_cluster_is_found_wherever_it_stands_among_many() {
    for index in 0..12 {
        let mut world = world(12);
        let preferred = format!("c{index:02}");
        world.policy(PolicyFact {
            preferred_clusters: vec![ClusterName::from(preferred.as_str())],
            ..policy("q")
        });
        world.add("job", "q", 1, "gpu 8");
        assert_eq!(world.decide(), format!("release job #1 {preferred}(n0)"));
    }
}

#[test]
fn of_eight_clusters_each_is_weighed_whatever_it_looks_like() {
    let mut world = world(8);
    for index in 0..8 {
        // All look as if a node that is broken would do. Only the last has cores on it.
        let used = if index == 7 { "gpu 6" } else { "gpu 7, cpu 62" };
        world.apply(foreign(&format!("c{index:02}"), "n0", used));
    }
    world.add("job", "q", 1, "cpu 4, gpu 1");
    assert_eq!(world.decide(), "release job #1 c07(n0)");
}
