//! The evidence of a verdict, as users read it.

use crate::users::by_user;
use crate::world::{World, below, capped, deserving, key, pods, policy, queue, res};
use engine::Event;
use engine::facts::{Limits, PolicyFact};
use insta::assert_snapshot;

fn evidence(world: &World, name: &str) -> String {
    world
        .engine
        .explain(&key(name))
        .unwrap()
        .evidence
        .join("\n")
}

/// A queue with a capability of ten GPUs and no bound on CPUs, below one with twelve.
fn bounded() -> World {
    let mut world = World::new();
    world
        .cluster("a", 2, "cpu 64, gpu 8")
        .queue(capped("dept", "gpu 12"))
        .queue(below("dept", capped("q", "gpu 10")));
    world
}

#[test]
fn usage_and_capability_of_each_queue_on_the_path_are_reported() {
    let mut world = bounded();
    world.add("old", "q", 1, "cpu 3, gpu 7");
    world.add("waits", "q", 1, "cpu 1, gpu 4");
    world.decide();
    assert_snapshot!(evidence(&world, "waits"), @"
    queue q holds nvidia.com/gpu 7 of 10
    queue dept holds nvidia.com/gpu 7 of 12
    ");
    world.add("no-gpu", "q", 1, "cpu 100");
    world.decide();
    assert_snapshot!(evidence(&world, "no-gpu"), @"");
}

/// What the own user has, and the number of users before it. No other user is named.
#[test]
fn where_users_come_in_turn_the_own_share_and_turn_are_reported() {
    let turn = |world: &World, name: &str| {
        let evidence = evidence(world, name);
        let turn = evidence.lines().find(|line| line.contains("in turn"));
        turn.unwrap_or_default().to_owned()
    };
    let of_users = |half_life_s: Option<i64>| {
        let mut world = bounded();
        world.policy(by_user("q", half_life_s));
        for (name, user, gpus) in [
            ("old", "ann", 7),
            ("other", "bob", 3),
            ("waits", "ann", 2),
            ("next", "bob", 2),
        ] {
            let job = world.job(name, "q", pods(1, &format!("gpu {gpus}")));
            world.submit(job.user(user));
            world.decide();
        }
        world
    };
    let mut world = of_users(None);
    assert_snapshot!(turn(&world, "waits"), @"users of queue q come in turn: user ann has 70 % of it; of 1 other user that waits, 1 has less");
    assert_snapshot!(turn(&world, "next"), @"users of queue q come in turn: user bob has 30 % of it; of 1 other user that waits, none has less");
    let job = world.job("late", "q", pods(1, "gpu 3"));
    world.submit(job.user("carl"));
    world.decide();
    assert_snapshot!(turn(&world, "waits"), @"users of queue q come in turn: user ann has 70 % of it; of 2 other users that wait, 2 have less");
    assert_snapshot!(turn(&world, "late"), @"users of queue q come in turn: user carl has 0 % of it; of 2 other users that wait, none has less");

    let mut world = of_users(Some(600));
    world.run("old");
    world.wait(600);
    world.apply(Event::JobGone(key("next")));
    let job = world.job("large", "q", pods(1, "gpu 9"));
    world.submit(job.user("ann"));
    world.finish("old");
    world.decide();
    assert_snapshot!(turn(&world, "large"), @"users of queue q come in turn: user ann has 20 % of it and 40 % with past usage; no other user waits");
    world.policy(policy("q"));
    world.decide();
    assert_snapshot!(turn(&world, "large"), @"");
}

#[test]
fn the_own_user_and_the_own_namespace_have_parts_of_the_limits_on_them() {
    let mut world = bounded();
    let limits = |name, per_user, per_namespace| PolicyFact {
        limits: Limits {
            resources_per_user: res(per_user),
            resources_per_namespace: res(per_namespace),
            ..Limits::default()
        },
        ..policy(name)
    };
    world.policy(limits("q", "gpu 4, cpu 9", "gpu 8"));
    world.policy(limits("dept", "", "cpu 7"));
    for (name, user, request) in [
        ("old", "ann", "gpu 3"),
        ("other", "bob", "gpu 2"),
        ("waits", "ann", "gpu 2, cpu 1"),
    ] {
        let job = world.job(name, "q", pods(1, request));
        world.submit(job.user(user));
    }
    world.decide();
    assert_snapshot!(evidence(&world, "waits"), @r#"
    queue q holds nvidia.com/gpu 5 of 10
    queue dept holds nvidia.com/gpu 5 of 12
    user ann has cpu 0 of 9 in queue q
    user ann has nvidia.com/gpu 3 of 4 in queue q
    namespace ns has nvidia.com/gpu 5 of 8 in queue q
    namespace ns has cpu 0 of 7 in queue dept
    "#);
}

#[test]
fn reserved_nodes_are_counted_by_class_and_cluster() {
    let mut world = World::new();
    world.cluster("a", 3, "cpu 64, gpu 8").queue(queue("q"));
    world.runs("old", "q", 3, "gpu 5");
    world.add("head", "q", 2, "gpu 8");
    world.add("behind", "q", 2, "gpu 8");
    world.decide();
    let last = |name: &str| evidence(&world, name).lines().last().unwrap().to_owned();
    assert_eq!(last("head"), "nodes kept for it: 2 of class gpu in a");
    assert!(!evidence(&world, "behind").contains("kept for it"));
}

#[test]
fn a_predicted_run_time_has_its_basis() {
    let mut world = World::new();
    world
        .cluster("a", 1, "cpu 64, gpu 8")
        .queue(queue("q"))
        .queue(queue("other"));
    let submit = |world: &mut World, name: &str, queue: &str, user: &str, gpus: u32| {
        let demand = pods(1, &format!("gpu {gpus}"));
        let job = world.job(name, queue, demand).user(user);
        world.submit(job);
    };
    for (user, seconds) in [("ann", [90, 100, 110]), ("bob", [190, 200, 210])] {
        for (index, seconds) in seconds.into_iter().enumerate() {
            let name = format!("{user}-{index}");
            submit(&mut world, &name, "q", user, 8);
            world.decide();
            world.run(&name);
            world.wait(seconds);
            world.finish(&name);
            world.apply(Event::JobGone(key(&name)));
        }
    }
    world.add("holder", "q", 1, "gpu 8");
    world.decide();
    let declared = world.job("declared", "q", pods(1, "gpu 8")).user("ann");
    world.submit(declared.lasts(7));
    submit(&mut world, "of-user", "q", "ann", 8);
    submit(&mut world, "of-queue", "q", "new", 8);
    submit(&mut world, "of-size", "other", "new", 8);
    submit(&mut world, "of-any", "q", "ann", 1);
    world.decide();
    let names = ["declared", "of-user", "of-queue", "of-size", "of-any"];
    let told = names.map(|name| evidence(&world, name).lines().last().unwrap().to_owned());
    assert_snapshot!(told.join("\n"), @"
    expected to run 7 s: as declared
    expected to run 100 s: the mean of 3 runs of its user of this size
    expected to run 150 s: the mean of 6 runs in its queue of this size
    expected to run 150 s: the mean of 6 runs of this size
    expected to run 150 s: the mean of 6 runs of any size
    ");
}

#[test]
fn an_eviction_names_the_first_requested_resource_of_which_the_preemptor_has_less() {
    let mut world = World::new();
    world
        .cluster("x", 1, "cpu 64, memory 64Gi, gpu 8")
        .queue(queue("rich"))
        .queue(deserving("due", "cpu 2, memory 8Gi, gpu 4"));
    world.runs("small", "due", 1, "cpu 2");
    world.runs("large", "rich", 1, "cpu 8, gpu 8");
    // It has its deserved cores, and requests no memory.
    world.add("next", "due", 1, "cpu 1, gpu 4");
    assert_snapshot!(world.decide(), @"evict large #1 for next: Reclaimed: reclaimed for ns/next: queue due has nvidia.com/gpu 0 of the 4 that it deserves, queue rich has 8 and deserves 0");
}
