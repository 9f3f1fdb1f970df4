//! Clusters whose nodes have the images of a gang are preferred, all else equal.

use crate::world::{World, cluster, gang, on, pods, policy, queue, role};
use engine::facts::{
    ClusterFact, Demand, JobFact, NodeImages, PlacementWeights, PolicyFact, RoleImages, Split,
};
use engine::{ClusterName, Event, NodeName};
use insta::assert_snapshot;

/// Clusters of four nodes with eight GPUs each.
fn world(clusters: &[&str]) -> World {
    let mut world = World::new();
    world.queue(queue("q"));
    for name in clusters {
        world.cluster(name, 4, "cpu 64, gpu 8");
    }
    world
}

fn has(world: &mut World, cluster: &str, node: &str, images: &[&str]) {
    world.apply(Event::NodeImages(NodeImages {
        cluster: ClusterName::from(cluster),
        node: NodeName::from(node),
        images: images.iter().map(ToString::to_string).collect(),
    }));
}

fn priced(world: &mut World, prices: &[(&str, u64)]) {
    for (name, price) in prices {
        world.apply(Event::ClusterUpserted(ClusterFact {
            price_milli: Some(*price),
            ..cluster(name)
        }));
    }
}

/// Workers on whole nodes, beside a launcher with an image of its own.
fn needs(world: &mut World, name: &str, workers: u32, images: &[&str]) -> JobFact {
    let demand = gang(vec![
        role("launcher", 1, "cpu 1"),
        role("worker", workers, "cpu 8, gpu 8"),
    ]);
    submit(world, name, demand, images)
}

fn submit(world: &mut World, name: &str, demand: Demand, images: &[&str]) -> JobFact {
    let mut job = world.job(name, "q", demand);
    let of = |role: &str, images: &[&str]| RoleImages {
        role: role.to_owned(),
        images: images.iter().map(ToString::to_string).collect(),
    };
    job.0.images = vec![of("launcher", &["mpi"]), of("worker", images)];
    world.submit(job)
}

#[test]
fn a_gang_goes_where_its_nodes_have_the_images_of_its_largest_role() {
    let mut world = world(&["a", "b", "c"]);
    for node in ["n0", "n1", "n2", "n3"] {
        has(&mut world, "a", node, &["mpi", "other"]);
        has(&mut world, "b", node, &["train"]);
        has(&mut world, "c", node, &["train", "data"]);
    }
    needs(&mut world, "one", 1, &["train"]);
    needs(&mut world, "both", 2, &["train", "data"]);
    // An image that no node has is pulled wherever it goes.
    needs(&mut world, "new", 1, &["new"]);
    needs(&mut world, "partly-new", 2, &["new", "data"]);
    assert_snapshot!(world.decide(), @r"
    release one #1 b(n0 n0)
    release both #1 c(n0 n1 n0)
    release new #1 a(n0 n0)
    release partly-new #1 c(n2 n3 n0)
    ");
}

#[test]
fn the_nodes_that_it_would_use_count() {
    let mut world = world(&["a", "b"]);
    for node in ["n0", "n1"] {
        has(&mut world, "a", node, &["train"]);
    }
    has(&mut world, "b", "n2", &["train"]);
    for cluster in ["a", "b"] {
        let name = format!("other-{cluster}");
        let job = world.job(&name, "q", on(cluster, pods(2, "cpu 64, gpu 8")));
        world.submit(job);
        world.decide();
        world.run(&name);
    }
    // In a the nodes with the image are in use.
    needs(&mut world, "job", 1, &["train"]);
    assert_snapshot!(world.decide(), @"release job #1 b(n2 n2)");
}

#[test]
fn price_and_fragmentation_count_more_unless_the_weight_says_otherwise() {
    let place = |prices: &[(&str, u64)], weight: Option<u32>| {
        let mut world = world(&["a", "b"]);
        priced(&mut world, prices);
        for node in ["n0", "n1", "n2", "n3"] {
            has(&mut world, "b", node, &["train"]);
        }
        if let Some(weight) = weight {
            let weights = PlacementWeights::default().with("images", weight).unwrap();
            world.policy(PolicyFact {
                weights,
                ..policy("q")
            });
        }
        needs(&mut world, "job", 2, &["train"]);
        world.decide()
    };
    let (to_a, to_b) = ("release job #1 a(n0 n1 n0)", "release job #1 b(n0 n1 n0)");
    for (prices, weight, wanted) in [
        (&[][..], None, to_b),
        (&[], Some(0), to_a),
        // Up to a tenth of the highest price.
        (&[("a", 950), ("b", 1000)], None, to_b),
        (&[("a", 850), ("b", 1000)], None, to_a),
        (&[("a", 850), ("b", 1000)], Some(2), to_b),
        (&[("a", 100), ("b", 1000)], Some(10), to_b),
    ] {
        assert_eq!(place(prices, weight), wanted, "{prices:?} {weight:?}");
    }
}

#[test]
fn of_many_clusters_those_with_the_image_are_packed_first() {
    let names: Vec<String> = (0..20).map(|index| format!("c{index:02}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut world = world(&names);
    for node in ["n0", "n1", "n2", "n3"] {
        has(&mut world, "c17", node, &["train"]);
    }
    needs(&mut world, "job", 2, &["train"]);
    assert_snapshot!(world.decide(), @"release job #1 c17(n0 n1 n0)");
}

#[test]
fn parts_go_where_the_images_are() {
    let mut world = world(&["a", "b", "c"]);
    for cluster in ["b", "c"] {
        for node in ["n0", "n1", "n2", "n3"] {
            has(&mut world, cluster, node, &["train"]);
        }
    }
    let demand = Demand {
        split: Split::Allowed,
        ..gang(vec![role("worker", 8, "gpu 8")])
    };
    submit(&mut world, "job", demand, &["train"]);
    assert_snapshot!(world.decide(), @"release job #1 b(n0 n1 n2 n3) c(n0 n1 n2 n3)");
}

#[test]
fn images_survive_a_restart_and_go_with_their_node() {
    let mut world = world(&["a", "b"]);
    for node in ["n0", "n1", "n2", "n3"] {
        has(&mut world, "b", node, &["train"]);
    }
    needs(&mut world, "one", 1, &["train"]);
    let mut restored =
        engine::Engine::restore(world.engine.snapshot(), engine::EngineConfig::default());
    assert_eq!(restored.check_invariants(), Vec::<String>::new());
    assert_eq!(
        restored.decide(world.now).decisions,
        world.decided().decisions
    );
    assert_eq!(restored.snapshot(), world.engine.snapshot());
    world.apply(Event::NodeGone(
        ClusterName::from("b"),
        NodeName::from("n1"),
    ));
    has(&mut world, "b", "n2", &[]);
    has(&mut world, "b", "n3", &["other"]);
    needs(&mut world, "two", 1, &["train"]);
    assert_snapshot!(world.decide(), @"release two #1 a(n0 n0)");
}

/// Who pulls what: the job, its cluster and the nodes that lack an image.
fn pulls(world: &World, wanted: &str) -> Vec<String> {
    let pulls = world.engine.pre_pulls(&|queue| queue.as_str() == wanted);
    let shown = pulls.iter().map(|pull| {
        let nodes: Vec<&str> = pull.nodes.iter().map(NodeName::as_str).collect();
        let (job, cluster) = (&pull.job.name, &pull.cluster);
        format!("{job} {} {cluster}({})", pull.role, nodes.join(" "))
    });
    shown.collect()
}

#[test]
fn reserved_nodes_pull_what_they_lack() {
    let mut world = world(&["a"]);
    world.runs("old", "q", 2, "gpu 8");
    has(&mut world, "a", "n2", &["train"]);
    needs(&mut world, "next", 3, &["train"]);
    assert_eq!(pulls(&world, "q"), [""; 0], "nothing is reserved yet");
    assert_snapshot!(world.decide(), @"");
    // The launcher has no node with GPUs reserved, and n2 has the image.
    assert_eq!(pulls(&world, "q"), ["next worker a(n0 n3)"]);
    assert_eq!(pulls(&world, "other"), [""; 0]);
    has(&mut world, "a", "n3", &["train", "other"]);
    assert_eq!(pulls(&world, "q"), ["next worker a(n0)"]);
    has(&mut world, "a", "n0", &["train"]);
    assert_eq!(pulls(&world, "q"), [""; 0]);
    has(&mut world, "a", "n0", &[]);
    world.finish("old");
    assert_snapshot!(world.decide(), @"release next #1 a(n0 n1 n2 n0)");
    assert_eq!(pulls(&world, "q"), [""; 0], "it has started");
}

#[test]
fn nothing_is_pulled_hours_ahead() {
    let mut world = world(&["a"]);
    let mut old = world.job("old", "q", pods(4, "gpu 8"));
    old.0.expected_duration_ms = Some(3 * 3_600_000);
    world.submit(old);
    world.decide();
    world.run("old");
    needs(&mut world, "next", 4, &["train"]);
    world.decide();
    assert_eq!(pulls(&world, "q"), [""; 0]);
    world.wait(2 * 3600 + 60).decide();
    assert_eq!(pulls(&world, "q"), ["next worker a(n0 n1 n2 n3)"]);
}
