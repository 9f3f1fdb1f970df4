//! Limits on what one user and one namespace have, and what their jobs hold once a limit is reached.

use crate::elastic::elastic;
use crate::growth::held;
use crate::limits::limited;
use crate::sharing::{fleet, order};
use crate::world::{World, below, on, pods, queue, res};
use engine::facts::{Limits, PolicyFact, QueueOrdering};
use engine::{JobKey, QueueName, Uid};
use insta::assert_snapshot;

/// A policy that limits what one user has.
fn per_user(name: &str, resources: &str) -> PolicyFact {
    let limits = Limits {
        resources_per_user: res(resources),
        ..Limits::default()
    };
    limited(name, limits)
}

/// A policy that limits what one namespace has.
fn per_namespace(name: &str, resources: &str) -> PolicyFact {
    let limits = Limits {
        resources_per_namespace: res(resources),
        ..Limits::default()
    };
    limited(name, limits)
}

fn submit(world: &mut World, name: &str, queue: &str, count: u32, request: &str) {
    let (user, _) = name.split_once('-').unwrap();
    let job = world.job(name, queue, pods(count, request));
    world.submit(job.user(user));
}

/// Submits a job whose user is the first part of its name to a namespace.
fn submit_to(world: &mut World, namespace: &str, name: &str, queue: &str, request: &str) -> JobKey {
    let (user, _) = name.split_once('-').unwrap();
    let mut job = world.job(name, queue, pods(1, request)).user(user);
    job.0.key = JobKey::new(namespace, name);
    job.0.uid = Uid::from(name);
    world.submit(job).key
}

fn reason(world: &World, key: &JobKey) -> String {
    let explanation = world.engine.explain(key).unwrap();
    format!("{}: {}", explanation.reason, explanation.message)
}

#[test]
fn what_one_user_has_is_limited_with_all_queues_below() {
    let mut world = fleet(8);
    world
        .queue(queue("dept"))
        .queue(below("dept", queue("x")))
        .queue(below("dept", queue("y")));
    world.policy(per_user("dept", "gpu 4, cpu 100"));
    submit(&mut world, "ann-0", "x", 3, "gpu 1");
    submit(&mut world, "ann-1", "y", 2, "gpu 1");
    submit(&mut world, "ann-2", "y", 5, "gpu 1");
    submit(&mut world, "bob-0", "y", 4, "gpu 1");
    submit(&mut world, "ann-3", "y", 1, "cpu 50");
    assert_snapshot!(order(&mut world), @"ann bob ann");
    assert_snapshot!(world.why("ann-1"), @"#1 UserResourceLimitReached: needs nvidia.com/gpu 2; user ann may use 4 in queue dept and has 3 charged: short by 1");
    assert_snapshot!(world.why("ann-2"), @"#2 ExceedsLimit: needs nvidia.com/gpu 5; user ann may use 4 in queue dept: 1 more than it may ever have");
    world.run("ann-0");
    world.finish("ann-0");
    assert_snapshot!(order(&mut world), @"ann");
    // A larger limit admits what could never start; a smaller one evicts nothing.
    world.policy(per_user("dept", "gpu 8, cpu 100"));
    world.finish("bob-0");
    assert_snapshot!(order(&mut world), @"ann");
    world.policy(per_user("dept", "gpu 1, cpu 100"));
    submit(&mut world, "ann-4", "y", 1, "gpu 1");
    assert_snapshot!(order(&mut world), @"");
    assert_snapshot!(world.why("ann-4"), @"#1 UserResourceLimitReached: needs nvidia.com/gpu 1; user ann may use 1 in queue dept and has 7 charged: short by 7");
}

#[test]
fn what_one_namespace_has_is_limited_beside_what_one_user_has() {
    let mut world = fleet(8);
    world.queue(queue("q"));
    let limits = Limits {
        resources_per_user: res("gpu 3"),
        resources_per_namespace: res("gpu 2"),
        ..Limits::default()
    };
    world.policy(limited("q", limits));
    let keys: Vec<JobKey> = [
        ("one", "ann-0"),
        ("one", "bob-0"),
        ("one", "bob-1"),
        ("two", "ann-1"),
        ("two", "ann-2"),
        ("two", "ann-3"),
        ("three", "ann-4"),
    ]
    .into_iter()
    .map(|(namespace, name)| submit_to(&mut world, namespace, name, "q", "gpu 1"))
    .collect();
    world.decide();
    let said: Vec<String> = keys.iter().map(|key| reason(&world, key)).collect();
    assert_snapshot!(said.join("\n"), @r#"
    Admitted: released; its placement is being written; attempt 1 on a, charged nvidia.com/gpu 1, pods 1 to queue q
    Admitted: released; its placement is being written; attempt 1 on a, charged nvidia.com/gpu 1, pods 1 to queue q
    NamespaceResourceLimitReached: needs nvidia.com/gpu 1; namespace one may use 2 in queue q and has 2 charged: short by 1
    Admitted: released; its placement is being written; attempt 1 on a, charged nvidia.com/gpu 1, pods 1 to queue q
    Admitted: released; its placement is being written; attempt 1 on a, charged nvidia.com/gpu 1, pods 1 to queue q
    UserResourceLimitReached: needs nvidia.com/gpu 1; user ann may use 3 in queue q and has 3 charged: short by 1
    UserResourceLimitReached: needs nvidia.com/gpu 1; user ann may use 3 in queue q and has 3 charged: short by 1
    "#);
}

#[test]
fn a_job_that_a_limit_of_its_owner_blocks_holds_up_nobody() {
    for per in [per_user, per_namespace] {
        let mut world = World::new();
        world.cluster("x", 1, "cpu 64, gpu 8").queue(queue("q"));
        let mut rules = per("q", "gpu 4");
        rules.ordering = QueueOrdering::StrictFifo;
        world.policy(rules);
        let first = submit_to(&mut world, "ann", "ann-0", "q", "gpu 3");
        let blocked = submit_to(&mut world, "ann", "ann-1", "q", "gpu 2");
        let never = submit_to(&mut world, "ann", "ann-2", "q", "gpu 5");
        let other = submit_to(&mut world, "bob", "bob-0", "q", "gpu 3");
        world.decide();
        let state = |world: &World, key| world.engine.job(key).unwrap().state;
        for (key, released) in [
            (&first, true),
            (&blocked, false),
            (&never, false),
            (&other, true),
        ] {
            let is = state(&world, key) != engine::JobState::Queued;
            assert_eq!(is, released, "{key}: {}", reason(&world, key));
        }
        let reserved = world.engine.reserved(&QueueName::from("q"));
        let none = "Reserved { nodes: 0, headroom: 0, evictions: 0 }";
        assert_eq!(format!("{reserved:?}"), none);
    }
}

/// An edit that nothing holds charges a user up to the limit: what is reserved for another job of the user is
/// free for others at once.
#[test]
fn a_charge_up_to_the_limit_ends_a_reservation_of_its_owner() {
    let mut world = fleet(8);
    world.queue(queue("q")).queue(queue("other"));
    world.policy(per_user("q", "gpu 5"));
    world.runs("old", "other", 5, "gpu 1");
    submit(&mut world, "ann-0", "q", 2, "gpu 1");
    world.decide();
    world.run("ann-0");
    submit(&mut world, "ann-1", "q", 3, "gpu 1");
    submit(&mut world, "bob-0", "q", 1, "gpu 1");
    assert_snapshot!(order(&mut world), @"");
    assert_snapshot!(world.why("ann-1"), @"#1 NextInLine: needs 3 pods × nvidia.com/gpu 1; a has room for 1 of 3; it is next: what becomes free is reserved for it");
    submit(&mut world, "ann-0", "q", 3, "gpu 1");
    // The engine counts on the pod of the edit first.
    world.resized("ann-0");
    world.finish("old");
    assert_snapshot!(order(&mut world), @"bob");
    assert_snapshot!(world.why("ann-1"), @"#1 UserResourceLimitReached: needs nvidia.com/gpu 3; user ann may use 5 in queue q and has 3 charged: short by 1");
}

/// A queue with two below it, of which the first has a job with a reservation that keeps the free nodes from those
/// behind it, and another queue. In another cluster there are CPUs.
fn reserved_below(limits: Limits) -> World {
    let mut world = fleet(8);
    world
        .cluster("b", 1, "cpu 8")
        .queue(queue("dept"))
        .queue(below("dept", queue("x")))
        .queue(below("dept", queue("y")))
        .queue(queue("other"));
    world.policy(limited("dept", limits));
    world.runs("old", "other", 5, "gpu 1");
    submit(&mut world, "ann-0", "x", 4, "gpu 1");
    submit(&mut world, "bob-0", "x", 1, "gpu 1");
    submit(&mut world, "carl-0", "other", 1, "gpu 1");
    assert_eq!(order(&mut world), "");
    assert!(world.why("ann-0").contains("it is next"));
    world
}

/// Submits a job that uses nothing which is reserved.
fn elsewhere(world: &mut World, name: &str, queue: &str) {
    let (user, _) = name.split_once('-').unwrap();
    let job = world.job(name, queue, on("b", pods(1, "cpu 1")));
    world.submit(job.user(user));
}

/// Another job takes the last that the limit allows: what is reserved for the user is free for others at once.
#[test]
fn a_limit_on_jobs_that_is_reached_ends_reservations() {
    let mut world = reserved_below(Limits {
        jobs_per_user: Some(1),
        ..Limits::default()
    });
    elsewhere(&mut world, "ann-1", "y");
    assert_snapshot!(order(&mut world), @"ann bob carl");
    assert_snapshot!(world.why("ann-0"), @"#1 UserJobLimitReached: user ann may have 1 admitted job in queue dept and has 1");

    let mut world = reserved_below(Limits {
        jobs: Some(1),
        ..Limits::default()
    });
    elsewhere(&mut world, "ann-1", "y");
    assert_snapshot!(order(&mut world), @"ann carl");
    assert_snapshot!(world.why("ann-0"), @"#1 JobLimitReached: queue dept may have 1 admitted job and has 1");
}

/// Growth takes no more than the limit leaves.
#[test]
fn growth_keeps_the_limit_of_its_owner() {
    let mut world = fleet(8);
    world.queue(queue("q"));
    world.policy(per_user("q", "gpu 5"));
    let gang = |world: &mut World, name, count| {
        let job = world.job(name, "q", held(count, "gpu 1"));
        world.submit(job.user("ann"));
    };
    gang(&mut world, "first", 2);
    gang(&mut world, "second", 2);
    assert_snapshot!(order(&mut world), @"first second");
    world.run("first");
    world.run("second");
    gang(&mut world, "first", 3);
    gang(&mut world, "second", 3);
    assert_snapshot!(world.decide(), @"resize first #1 a(n0 n1 n4)");
    assert_snapshot!(world.why("second"), @"GrowthHeld: it runs as admitted; to grow it needs nvidia.com/gpu 1; user ann may use 5 in queue q and has 5 charged: short by 1");
    world.finish("first");
    assert_snapshot!(world.decide(), @"resize second #1 a(n2 n3 n0)");
}

/// An elastic gang starts at the size that the limit leaves.
#[test]
fn an_elastic_gang_starts_within_the_limit_of_its_owner() {
    let mut world = fleet(8);
    world.queue(queue("q"));
    world.policy(per_namespace("q", "gpu 5"));
    let job = world.job("gang", "q", elastic(2, 8, "gpu 1"));
    world.submit(job);
    assert_snapshot!(world.decide(), @"release gang #1 a(n0 n1 n2 n3 n4)");
}

/// Jobs of two queues: one deserves all that is lent to the other. Each job alone keeps the limits.
fn evicted_beside_each_other(limits: Limits, jobs: [&str; 2]) -> (World, String) {
    let mut world = World::new();
    world.cluster("x", 1, "cpu 100, gpu 8");
    let deserves = |name, gpus: &str| {
        let mut fact = queue(name);
        fact.deserved = res(gpus);
        fact
    };
    world
        .queue(deserves("q", "gpu 8"))
        .queue(deserves("lent", "gpu 0"));
    world.policy(limited("q", limits));
    for index in 0..4 {
        world.runs(&format!("lent-{index}"), "lent", 1, "gpu 2");
    }
    for name in jobs {
        submit(&mut world, name, "q", 1, "gpu 2");
    }
    let evicted = world.settle(20).join("\n");
    (world, evicted)
}

/// Nothing is evicted for a job that a limit blocks once another has started for which jobs are evicted.
#[test]
fn nothing_is_evicted_beyond_a_limit() {
    let (world, evicted) =
        evicted_beside_each_other(per_user("q", "gpu 2").limits, ["ann-0", "ann-1"]);
    assert_snapshot!(evicted, @"lent-0 for ann-0");
    assert_snapshot!(world.why("ann-1"), @"#1 UserResourceLimitReached: needs nvidia.com/gpu 2; user ann may use 2 in queue q and has 2 charged: short by 2");

    let one = Limits {
        jobs_per_user: Some(1),
        ..Limits::default()
    };
    let (world, evicted) = evicted_beside_each_other(one.clone(), ["ann-0", "ann-1"]);
    assert_snapshot!(evicted, @"lent-0 for ann-0");
    assert_snapshot!(world.why("ann-1"), @"#1 UserJobLimitReached: user ann may have 1 admitted job in queue q and has 1");
    let (_, evicted) = evicted_beside_each_other(one, ["ann-0", "bob-0"]);
    assert_snapshot!(evicted, @"
    lent-0 for ann-0
    lent-1 for bob-0
    ");

    let one = Limits {
        jobs: Some(1),
        ..Limits::default()
    };
    let (world, evicted) = evicted_beside_each_other(one, ["ann-0", "bob-0"]);
    assert_snapshot!(evicted, @"lent-0 for ann-0");
    assert_snapshot!(world.why("bob-0"), @"#1 JobLimitReached: queue q may have 1 admitted job and has 1");
}
