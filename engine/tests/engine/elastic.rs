//! Elastic gangs: they may run below their full size.

use crate::world::{World, capped, deserving, key, node, pods, queue, res};
use engine::facts::Demand;
use engine::{Engine, EngineConfig, Event, Progress};
use insta::assert_snapshot;

/// A gang of `least` to `count` pods.
pub fn elastic(least: u32, count: u32, request: &str) -> Demand {
    let mut demand = Demand {
        held: engine::facts::Held::ByReplicas,
        elastic: true,
        min_available: least,
        ..pods(count, request)
    };
    demand.roles[0].min = least;
    demand
}

fn world(nodes: u32) -> World {
    let mut world = World::new();
    world
        .cluster("a", nodes, "cpu 64, gpu 4")
        .queue(queue("q"))
        .queue(queue("other"));
    world
}

fn add(world: &mut World, name: &str, demand: Demand) {
    let job = world.job(name, "q", demand);
    world.submit(job);
}

fn size(world: &World, name: &str) -> u32 {
    let view = world.engine.job(&key(name)).unwrap();
    view.admission
        .unwrap()
        .shares
        .iter()
        .map(engine::facts::Share::replicas)
        .sum()
}

#[test]
fn an_elastic_gang_starts_at_full_size_if_possible() {
    let mut world = world(2);
    add(&mut world, "job", elastic(2, 8, "gpu 1"));
    assert_snapshot!(world.decide(), @"release job #1 a(n0×4 n1×4)");
}

#[test]
fn a_gang_scales_up_onto_a_new_or_larger_node() {
    let mut world = world(1);
    add(&mut world, "job", elastic(1, 3, "gpu 4"));
    assert_snapshot!(world.decide(), @"release job #1 a(n0)");
    world.run("job");
    world.apply(Event::NodeUpserted(node("a", "n1", "cpu 64, gpu 3")));
    assert_snapshot!(world.decide(), @"");
    world.apply(Event::NodeUpserted(node("a", "n1", "cpu 64, gpu 4")));
    assert_snapshot!(world.decide(), @"resize job #1 a(n0 n1)");
    world.apply(Event::NodeUpserted(node("a", "n2", "cpu 64, gpu 4")));
    assert_snapshot!(world.decide(), @"resize job #1 a(n0 n1 n2)");
}

#[test]
fn an_elastic_gang_starts_as_large_as_the_capacity_allows() {
    let mut world = world(2);
    world.add("there", "other", 1, "gpu 3");
    world.decide();
    add(&mut world, "job", elastic(2, 8, "gpu 1"));
    assert_snapshot!(world.decide(), @"release job #1 a(n0 n1×4)");
    assert_eq!(size(&world, "job"), 5);
    assert_snapshot!(world.allocated("q"), @"nvidia.com/gpu 5, pods 5");
}

#[test]
fn an_elastic_gang_starts_as_large_as_the_quota_allows() {
    let mut world = world(2);
    world.queue(capped("q", "gpu 3"));
    add(&mut world, "job", elastic(2, 8, "gpu 1"));
    assert_snapshot!(world.decide(), @"release job #1 a(n0×3)");
    assert_snapshot!(world.allocated("q"), @"nvidia.com/gpu 3, pods 3");
}

#[test]
fn an_elastic_gang_does_not_start_below_its_minimum() {
    let mut world = world(2);
    world.queue(capped("q", "gpu 3"));
    add(&mut world, "job", elastic(4, 8, "gpu 1"));
    assert_snapshot!(world.decide(), @"");
    // The message is about the smallest size, for which it waits.
    assert_snapshot!(world.why("job"), @"#1 ExceedsCapability: needs nvidia.com/gpu 4; queue q may use 3: 1 more than it may ever have");
}

#[test]
fn a_gang_scales_up_when_capacity_becomes_free() {
    let mut world = world(2);
    world.runs("there", "other", 1, "gpu 3");
    add(&mut world, "job", elastic(2, 8, "gpu 1"));
    world.decide();
    world.run("job");
    assert_snapshot!(world.decide(), @"");
    assert_snapshot!(world.why("job"), @"Running: has 5 of 8 pods; to grow it a has room for 0 of 3 more pods");
    world.finish("there");
    assert_snapshot!(world.decide(), @"resize job #1 a(n0 n1×4 n0×3)");
    assert_snapshot!(world.why("job"), @"Running: runs; attempt 1 on a, charged nvidia.com/gpu 8, pods 8 to queue q");
    assert_snapshot!(world.allocated("q"), @"nvidia.com/gpu 8, pods 8");
}

#[test]
fn pending_jobs_come_before_scale_up() {
    let mut world = world(1);
    world.runs("there", "other", 1, "gpu 2");
    add(&mut world, "job", elastic(2, 4, "gpu 1"));
    world.decide();
    world.run("job");
    // It is younger and requests the capacity into which the gang could scale up.
    world.add("late", "other", 1, "gpu 2");
    world.finish("there");
    assert_snapshot!(world.decide(), @"release late #1 a(n0)");
    assert_eq!(size(&world, "job"), 2);
}

#[test]
fn scale_up_does_not_use_reservations() {
    let mut world = world(1);
    for name in ["t1", "t2"] {
        world.add(name, "other", 1, "gpu 1");
    }
    world.decide();
    world.run("t1");
    world.run("t2");
    add(&mut world, "job", elastic(1, 4, "gpu 1"));
    world.decide();
    world.run("job");
    assert_eq!(size(&world, "job"), 2);
    world.add("late", "other", 1, "gpu 2");
    assert_snapshot!(world.decide(), @"");
    world.finish("t1");
    // One GPU is free and reserved for the late job, which needs two.
    assert_snapshot!(world.decide(), @"");
    assert_eq!(size(&world, "job"), 2);
    world.finish("t2");
    assert_snapshot!(world.decide(), @"release late #1 a(n0)");
}

#[test]
fn several_gangs_scale_up_in_order() {
    let mut world = world(2);
    world.runs("there", "other", 2, "gpu 2");
    for name in ["one", "two"] {
        add(&mut world, name, elastic(1, 3, "gpu 1"));
    }
    world.decide();
    world.run("one");
    world.run("two");
    assert_eq!((size(&world, "one"), size(&world, "two")), (3, 1));
    world.finish("there");
    assert_snapshot!(world.decide(), @"resize two #1 a(n1 n0×2)");
    assert_eq!((size(&world, "one"), size(&world, "two")), (3, 3));
}

/// A gang of a master and up to eight workers over two clusters of four GPUs each.
fn over_two_clusters() -> World {
    let mut world = World::new();
    world
        .cluster("a", 1, "cpu 64, gpu 4")
        .cluster("b", 1, "cpu 64, gpu 4")
        .queue(queue("q"))
        .queue(deserving("other", "gpu 8"));
    world
}

fn in_parts(least: u32, count: u32) -> Demand {
    Demand {
        held: engine::facts::Held::ByOverride,
        split: engine::facts::Split::Allowed,
        ..elastic(least, count, "gpu 1")
    }
}

#[test]
fn a_gang_in_parts_grows_in_each_of_its_clusters() {
    let mut world = over_two_clusters();
    for name in ["t1", "t2"] {
        world.add(name, "other", 1, "gpu 3");
    }
    assert_snapshot!(world.decide(), @r"
    release t1 #1 a(n0)
    release t2 #1 b(n0)
    ");
    add(&mut world, "job", in_parts(2, 8));
    assert_snapshot!(world.decide(), @"release job #1 a(n0) b(n0)");
    world.run("job");
    for name in ["t1", "t2"] {
        world.run(name);
        world.finish(name);
    }
    // There is one decision for both clusters.
    assert_snapshot!(world.decide(), @"resize job #1 a(n0 n0×3) b(n0 n0×3)");
    assert_eq!(size(&world, "job"), 8);
}

#[test]
fn a_gang_in_parts_keeps_a_pod_in_each_of_its_clusters() {
    let mut world = over_two_clusters();
    add(&mut world, "job", in_parts(1, 8));
    assert_snapshot!(world.decide(), @"release job #1 a(n0×4) b(n0×4)");
    world.run("job");
    world.add("small", "other", 1, "gpu 3");
    assert_snapshot!(world.decide(), @"resize job #1 a(n0×4) b(n0)");
    world.resized("job");
    world.settle(3);
    // Its user requests one pod, and it cannot have fewer than its clusters.
    let mut fact = world.job("job", "q", in_parts(1, 1));
    fact.0.queued_at = engine::Time(1000);
    world.submit(fact);
    assert_snapshot!(world.decide(), @"resize job #1 a(n0) b(n0)");
    assert_eq!(size(&world, "job"), 2);
}

#[test]
fn a_gang_in_parts_is_evicted_for_a_job_that_needs_a_whole_part() {
    let mut world = over_two_clusters();
    add(&mut world, "job", in_parts(1, 8));
    world.decide();
    world.run("job");
    world.add("late", "other", 1, "gpu 4");
    assert_snapshot!(world.decide(), @"evict job #1 for late: Reclaimed: reclaimed for ns/late: queue other has nvidia.com/gpu 0 of the 8 that it deserves, queue q has 8 and deserves 0");
}

#[test]
fn a_gang_in_parts_is_not_shrunk_below_its_minimum() {
    let mut world = over_two_clusters();
    add(&mut world, "job", in_parts(6, 8));
    world.decide();
    world.run("job");
    // It may lose two pods, and the job needs three in one cluster.
    world.add("late", "other", 1, "gpu 3");
    assert!(world.decide().starts_with("evict job #1 for late"));
}

#[test]
fn a_gang_does_not_scale_up_while_the_job_it_was_shrunk_for_backs_off() {
    let mut world = world(1);
    world.queue(engine::facts::QueueFact {
        deserved: res("gpu 2"),
        ..queue("other")
    });
    add(&mut world, "job", elastic(2, 4, "gpu 1"));
    world.decide();
    world.run("job");
    world.add("late", "other", 1, "gpu 2");
    world.decide();
    assert_eq!(size(&world, "job"), 2);
    world.resized("job");
    assert_snapshot!(world.decide(), @"release late #1 a(n0)");
    // Its plan is refused, so that it backs off.
    world.apply(engine::Event::JobRefused {
        key: key("late"),
        attempt: engine::Attempt(1),
        reason: engine::Reason::PlanRefused,
        message: "the members say no".to_owned(),
        avoid: None,
        at: world.now,
    });
    assert_snapshot!(world.decide(), @"");
    assert_eq!(size(&world, "job"), 2);
    world.wait(3_600);
    assert_snapshot!(world.decide(), @"release late #2 a(n0)");
    world.run("late");
    world.finish("late");
    assert_snapshot!(world.decide(), @"resize job #1 a(n0×2 n0×2)");
}

#[test]
fn sizes_survive_a_restart() {
    let mut world = world(2);
    world.queue(capped("q", "gpu 3"));
    add(&mut world, "job", elastic(2, 8, "gpu 1"));
    world.decide();
    world.run("job");
    let mut fact = world.job("job", "q", elastic(2, 2, "gpu 1"));
    fact.0.queued_at = engine::Time(1000);
    world.submit(fact);
    assert_snapshot!(world.decide(), @"resize job #1 a(n0×2)");
    let snapshot = serde_json::to_string(&world.engine.snapshot()).unwrap();
    let snapshot = serde_json::from_str(&snapshot).unwrap();
    world.engine = Engine::restore(snapshot, EngineConfig::default());
    assert_snapshot!(world.allocated("q"), @"nvidia.com/gpu 3, pods 3");
    world.resized("job");
    assert_snapshot!(world.allocated("q"), @"nvidia.com/gpu 2, pods 2");
    assert_snapshot!(world.decide(), @"");
}

#[test]
fn a_gang_that_ends_while_it_shrinks_is_not_charged() {
    let mut world = world(2);
    add(&mut world, "job", elastic(2, 8, "gpu 1"));
    world.decide();
    world.run("job");
    let mut fact = world.job("job", "q", elastic(2, 4, "gpu 1"));
    fact.0.queued_at = engine::Time(1000);
    world.submit(fact);
    world.decide();
    world.progress("job", Progress::Finished);
    assert_snapshot!(world.allocated("q"), @"");
}

/// A gang of two roles, each from one pod to its full count.
fn of_two_roles(servers: u32, workers: u32) -> Demand {
    let mut roles = vec![
        crate::world::role("server", servers, "cpu 2, gpu 1"),
        crate::world::role("worker", workers, "gpu 1"),
    ];
    roles.iter_mut().for_each(|role| role.min = 1);
    Demand {
        held: engine::facts::Held::ByReplicas,
        elastic: true,
        ..crate::world::gang(roles)
    }
}

fn roles(world: &World, name: &str) -> String {
    let view = world.engine.job(&key(name)).unwrap();
    let shares = &view.admission.unwrap().shares;
    let pods = shares.iter().flat_map(|share| &share.pods);
    let pods: Vec<String> = pods
        .map(|pods| format!("{} {}", pods.count, pods.role))
        .collect();
    pods.join(", ")
}

#[test]
fn the_first_role_gets_pods_beyond_the_smallest_size_first() {
    for (gpus, sizes) in [
        (2, "1 server, 1 worker"),
        (3, "2 server, 1 worker"),
        (4, "2 server, 2 worker"),
        (5, "2 server, 3 worker"),
        (6, "2 server, 4 worker"),
    ] {
        let mut world = world(2);
        world.queue(capped("q", &format!("gpu {gpus}")));
        add(&mut world, "job", of_two_roles(2, 4));
        // The admission itself has this size; scaling up later would give the same.
        assert_eq!(world.decided().decisions.len(), 1);
        assert_eq!(roles(&world, "job"), sizes);
        assert_eq!(size(&world, "job"), gpus);
    }
}

#[test]
fn terminating_pods_of_each_role_are_charged_until_they_are_gone() {
    let mut world = world(2);
    add(&mut world, "job", of_two_roles(4, 4));
    world.decide();
    world.run("job");
    for size in [3, 2] {
        let mut fact = world.job("job", "q", of_two_roles(size, size));
        fact.0.queued_at = engine::Time(1000);
        world.submit(fact);
        world.decide();
    }
    assert_eq!(roles(&world, "job"), "2 server, 2 worker");
    let allocated = |world: &World| world.allocated("q");
    assert_snapshot!(allocated(&world), @"cpu 8, nvidia.com/gpu 8, pods 8");
    // The member does not report which pods are gone: most of the earliest stay charged.
    world.confirm("job", "a", 7);
    assert_snapshot!(allocated(&world), @"cpu 8, nvidia.com/gpu 7, pods 7");
    world.confirm("job", "a", 5);
    assert_snapshot!(allocated(&world), @"cpu 6, nvidia.com/gpu 5, pods 5");
    world.confirm("job", "a", 4);
    assert_snapshot!(allocated(&world), @"cpu 4, nvidia.com/gpu 4, pods 4");
}

#[test]
fn a_gang_in_parts_is_shrunk_in_its_last_cluster_first() {
    let mut world = over_two_clusters();
    add(&mut world, "job", in_parts(1, 8));
    world.decide();
    world.run("job");
    for (count, left) in [
        (6, "resize job #1 a(n0×4) b(n0×2)"),
        (4, "resize job #1 a(n0×3) b(n0)"),
    ] {
        let mut fact = world.job("job", "q", in_parts(1, count));
        fact.0.queued_at = engine::Time(1000);
        world.submit(fact);
        assert_eq!(world.decide(), left);
        world.resized("job");
    }
}

#[test]
fn terminating_pods_of_one_cluster_do_not_depend_on_another() {
    let mut world = over_two_clusters();
    add(&mut world, "job", in_parts(1, 8));
    world.decide();
    world.run("job");
    let mut fact = world.job("job", "q", in_parts(1, 2));
    fact.0.queued_at = engine::Time(1000);
    world.submit(fact);
    assert_snapshot!(world.decide(), @"resize job #1 a(n0) b(n0)");
    let allocated = [("a", 4), ("a", 1), ("b", 2), ("b", 1)].map(|(cluster, pods)| {
        world.confirm("job", cluster, pods);
        world.allocated("q")
    });
    assert_snapshot!(allocated.join("; "), @"nvidia.com/gpu 8, pods 8; nvidia.com/gpu 5, pods 5; nvidia.com/gpu 3, pods 3; nvidia.com/gpu 2, pods 2");
}

#[test]
fn a_part_with_two_roles_keeps_one_pod() {
    let of = |servers, workers| {
        let mut demand = Demand {
            held: engine::facts::Held::ByOverride,
            split: engine::facts::Split::Allowed,
            ..of_two_roles(servers, workers)
        };
        demand.roles[0].min = 0;
        demand.min_available = 1;
        demand
    };
    let mut world = over_two_clusters();
    add(&mut world, "job", of(1, 7));
    assert_snapshot!(world.decide(), @"release job #1 a(n0 n0×3) b(n0×4)");
    world.run("job");
    let copy = world.engine.clone();
    // Its capacity would suffice only with the whole part, and no part may go.
    world.add("late", "other", 1, "gpu 4");
    assert!(world.decide().starts_with("evict job #1 for late"));
    world.engine = copy;
    let mut fact = world.job("job", "q", of(0, 1));
    fact.0.queued_at = engine::Time(1000);
    world.submit(fact);
    assert_snapshot!(world.decide(), @"resize job #1 a(n0) b(n0)");
}

#[test]
fn a_gang_scales_up_by_all_possible_pods_at_once() {
    let mut world = world(3);
    world.queue(capped("q", "gpu 1"));
    add(&mut world, "job", elastic(1, 9, "gpu 1"));
    world.decide();
    world.run("job");
    world.queue(capped("q", "gpu 6"));
    let decided = world.decided();
    let [engine::Decision::Resize { message, .. }] = &decided.decisions[..] else {
        panic!("{decided:?}");
    };
    assert_snapshot!(message, @"grows by 5 pods on a");
}

#[test]
fn only_an_elastic_job_of_enforced_size_starts_below_its_full_size() {
    use engine::facts::Held;
    for (held, elastic, released) in [
        (Held::ByReplicas, true, "release job #1 a(n0×4)"),
        (Held::Not, true, ""),
        (Held::ByReplicas, false, ""),
    ] {
        let mut world = world(1);
        let demand = Demand {
            held,
            elastic,
            ..self::elastic(2, 8, "gpu 1")
        };
        add(&mut world, "job", demand);
        assert_eq!(world.decide(), released);
    }
}
