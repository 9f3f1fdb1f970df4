//! What would help a job that waits; each answer is tried out.

use crate::world::{World, below, bound, capped, key, pods, policy, queue, res};
use engine::decision::Help;
use engine::facts::{Demand, PolicyFact, QueueFact, Split};

fn helps(world: &World, job: &str) -> Vec<String> {
    let helps = world.engine.advise(&key(job), &|_| true);
    helps.iter().map(ToString::to_string).collect()
}

/// Two clusters of four and two nodes with 8 GPUs, all but one node of each taken.
fn busy() -> World {
    let mut world = World::new();
    world
        .cluster("a", 4, "cpu 64, gpu 8")
        .cluster("b", 2, "cpu 64, gpu 8")
        .queue(queue("q"))
        .queue(queue("other"));
    world.add("first", "q", 3, "gpu 8");
    world.add("second", "q", 1, "gpu 8");
    world.decide();
    world
}

#[test]
fn room_may_be_had_by_fewer_pods_or_more_nodes() {
    let mut world = busy();
    world.add("waits", "q", 4, "gpu 8");
    world.decide();
    insta::assert_snapshot!(helps(&world, "waits").join("\n"), @r"
    ask for 2 worker pods
    add 2 nodes of class gpu to cluster b
    ");
}

#[test]
fn a_higher_bound_helps_where_it_is_what_stops() {
    let mut world = World::new();
    world
        .cluster("a", 4, "cpu 64, gpu 8")
        .queue(capped("team", "gpu 20"))
        .queue(below("team", capped("q", "gpu 16")))
        .queue(queue("open"));
    world.add("first", "q", 2, "gpu 8");
    world.add("waits", "q", 1, "gpu 4");
    world.add("more", "q", 1, "gpu 8");
    world.decide();
    insta::assert_snapshot!(helps(&world, "waits").join("\n"), @r"
    raise the capability of queue q to nvidia.com/gpu 20
    submit it to queue open
    ");
    // Two bounds stop it: raising one of them would not help.
    insta::assert_snapshot!(helps(&world, "more").join("\n"), @"submit it to queue open");
}

#[test]
fn a_bound_on_a_class_is_named_with_its_class() {
    let mut world = World::new();
    world.cluster("a", 4, "cpu 64, gpu 8").queue(queue("q"));
    let mut bounded = policy("q");
    bounded.pools = vec![bound("gpu", Some(&["a"]), "gpu 8")];
    world.policy(bounded);
    world.add("first", "q", 1, "gpu 8");
    world.add("waits", "q", 1, "gpu 2");
    world.decide();
    insta::assert_snapshot!(helps(&world, "waits").join("\n"), @"raise the capability of queue q to nvidia.com/gpu 10 of class gpu");
}

#[test]
fn a_bound_on_some_clusters_may_be_what_stops_a_gang_that_is_in_others_too() {
    let mut world = World::new();
    world
        .cluster("a", 2, "cpu 64, gpu 8")
        .cluster("b", 1, "cpu 64, gpu 8")
        .queue(queue("q"));
    world.policy(PolicyFact {
        pools: vec![bound("gpu", Some(&["a"]), "gpu 8")],
        ..policy("q")
    });
    let wide = Demand {
        split: Split::Allowed,
        ..pods(3, "gpu 8")
    };
    let job = world.job("waits", "q", wide);
    world.submit(job);
    world.decide();
    insta::assert_snapshot!(helps(&world, "waits").join("\n"), @r"
    ask for 2 worker pods
    raise the capability of queue q to nvidia.com/gpu 16 of class gpu
    ");
    // Another one would stop it then.
    world.policy(PolicyFact {
        pools: vec![
            bound("gpu", None, "gpu 16"),
            bound("gpu", Some(&["a", "b"]), "gpu 16"),
        ],
        ..policy("q")
    });
    world.decide();
    insta::assert_snapshot!(helps(&world, "waits").join("\n"), @"ask for 2 worker pods");
}

#[test]
fn a_bound_is_not_said_to_help_where_what_is_above_or_below_it_stops_the_job_then() {
    let mut world = World::new();
    world
        .cluster("a", 4, "cpu 64, gpu 8")
        .queue(capped("team", "gpu 16"))
        .queue(below("team", capped("q", "gpu 16")));
    world.add("first", "q", 2, "gpu 8");
    world.add("waits", "q", 1, "gpu 4");
    world.decide();
    // Its own queue may have no more than the team.
    insta::assert_snapshot!(helps(&world, "waits").join("\n"), @"");
    world.queue(capped("team", "gpu 24"));
    world.decide();
    insta::assert_snapshot!(helps(&world, "waits").join("\n"), @"raise the capability of queue q to nvidia.com/gpu 20");
    // The rest of what the team may have is for another.
    world.queue(below(
        "team",
        QueueFact {
            guarantee: res("gpu 8"),
            ..queue("kept")
        },
    ));
    world.decide();
    insta::assert_snapshot!(helps(&world, "waits").join("\n"), @"submit it to queue kept");
}

#[test]
fn each_help_lets_the_job_start() {
    let mut world = busy();
    world.add("waits", "q", 4, "gpu 8");
    world.decide();
    for help in world.engine.advise(&key("waits"), &|_| true) {
        let mut world = busy();
        match &help {
            Help::FewerPods { count, .. } => world.add("waits", "q", *count, "gpu 8"),
            Help::OtherQueue(other) => world.add("waits", other.as_str(), 4, "gpu 8"),
            Help::RaiseCapability { .. } => panic!("no bound stops it"),
            Help::NodeLabel { .. } => panic!("it selects no nodes"),
            Help::MoreNodes { cluster, count, .. } => {
                for index in 0..*count {
                    let mut node = crate::world::node(
                        cluster.as_str(),
                        &format!("new{index}"),
                        "cpu 64, gpu 8",
                    );
                    node.class = engine::PoolClass::from("gpu");
                    world.apply(engine::Event::NodeUpserted(node));
                }
                world.add("waits", "q", 4, "gpu 8")
            }
        };
        assert!(world.decide().contains("release waits"), "{help:?}");
    }
}

#[test]
fn who_may_go_or_is_held_by_its_template_gets_no_advice() {
    let mut world = busy();
    world.add("goes", "q", 1, "gpu 8");
    assert!(helps(&world, "goes").is_empty());
    let mut held = world.job("held", "q", pods(1, "gpu 8"));
    held.0.hold = Some(engine::facts::Hold {
        reason: engine::Reason::Suspended,
        message: "by its owner".to_owned(),
    });
    world.submit(held);
    assert!(helps(&world, "held").is_empty());
    assert!(helps(&world, "unknown").is_empty());
}

#[test]
fn what_is_kept_for_those_ahead_helps_nobody() {
    // The first keeps the other node, or the rest of what the queue may have.
    for capability in ["", "gpu 16"] {
        let mut world = World::new();
        let nodes = if capability.is_empty() { 2 } else { 4 };
        world
            .cluster("a", nodes, "cpu 64, gpu 8")
            .queue(capped("q", capability));
        world.runs("old", "q", 1, "gpu 8");
        world.add("first", "q", 2, "gpu 8");
        world.add("second", "q", 3, "gpu 4");
        world.decide();
        let helps = helps(&world, "second");
        let fewer = helps.iter().find(|help| help.starts_with("ask for"));
        assert_eq!(fewer, None, "{capability}");
    }
}

#[test]
fn only_queues_that_the_job_may_be_submitted_to_are_named() {
    let mut world = World::new();
    world
        .cluster("a", 4, "cpu 64, gpu 8")
        .queue(capped("q", "gpu 16"))
        .queue(queue("secret"))
        .queue(queue("shared"));
    world.add("first", "q", 2, "gpu 8");
    world.add("waits", "q", 1, "gpu 8");
    world.decide();
    let helps = world
        .engine
        .advise(&key("waits"), &|queue| queue.as_str() == "shared");
    let named = helps.contains(&Help::OtherQueue("shared".into()));
    assert!(
        named && !format!("{helps:?}").contains("secret"),
        "{helps:?}"
    );
}
