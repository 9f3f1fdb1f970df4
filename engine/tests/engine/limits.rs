//! Limits on numbers of jobs (of a queue, of a user, of those that compete), and on what one user and one
//! namespace have.

use crate::elastic::elastic;
use crate::growth::held;
use crate::sharing::{fill, fleet, order};
use crate::world::{World, below, key, pods, policy, queue, res};
use engine::facts::{Backfill, Limits, PolicyFact, QueueOrdering};
use engine::{Event, JobKey, QueueName, Uid};
use insta::assert_snapshot;

fn limited(name: &str, limits: Limits) -> PolicyFact {
    PolicyFact {
        limits,
        ..policy(name)
    }
}

#[test]
fn a_limit_on_jobs_counts_all_below() {
    let mut world = fleet(8);
    world
        .queue(queue("dept"))
        .queue(below("dept", queue("x")))
        .queue(below("dept", queue("y")))
        .queue(queue("lone"));
    world.policy(limited(
        "dept",
        Limits {
            jobs: Some(3),
            ..Limits::default()
        },
    ));
    for name in ["x", "y", "lone"] {
        fill(&mut world, name, 2);
    }
    assert_snapshot!(order(&mut world), @"x lone y lone x");
    assert_snapshot!(world.why("y-1"), @"#1 JobLimitReached: queue dept may have 3 admitted jobs and has 3");
    world.run("x-0");
    world.finish("x-0");
    assert_snapshot!(order(&mut world), @"y");
    world.add("x-9", "x", 1, "gpu 1");
    assert_snapshot!(order(&mut world), @"");
    world.policy(policy("dept"));
    assert_snapshot!(order(&mut world), @"x");
}

#[test]
fn the_limit_of_one_user_blocks_no_other_user() {
    let mut world = fleet(8);
    world.queue(queue("q"));
    world.policy(limited(
        "q",
        Limits {
            jobs_per_user: Some(1),
            ..Limits::default()
        },
    ));
    for (name, user) in [("ann-0", "ann"), ("ann-1", "ann"), ("bob-0", "bob")] {
        let mut job = world.job(name, "q", crate::world::pods(1, "gpu 1"));
        job.0.user = user.to_owned();
        world.submit(job);
    }
    assert_snapshot!(order(&mut world), @"ann bob");
    assert_snapshot!(world.why("ann-1"), @"#1 UserJobLimitReached: user ann may have 1 admitted job in queue q and has 1");
    world.run("ann-0");
    world.finish("ann-0");
    assert_snapshot!(order(&mut world), @"ann");
}

#[test]
fn a_later_limit_for_users_blocks_no_other_user() {
    let mut world = fleet(2);
    world.queue(queue("q"));
    fill(&mut world, "q", 2);
    world.decide();
    for (name, user) in [("ann-0", "ann"), ("ann-1", "ann"), ("bob-0", "bob")] {
        let job = world.job(name, "q", crate::world::pods(1, "gpu 1"));
        world.submit(job.user(user));
    }
    world.decide();
    world.policy(limited(
        "q",
        Limits {
            jobs_per_user: Some(1),
            ..Limits::default()
        },
    ));
    world.decide();
    for name in ["q-0", "q-1"] {
        world.run(name);
        world.finish(name);
    }
    // They had one shape, and now have one for each user.
    assert_snapshot!(order(&mut world), @"ann bob");
    world.policy(policy("q"));
    world.run("bob-0");
    world.finish("bob-0");
    assert_snapshot!(order(&mut world), @"ann");
}

#[test]
fn only_the_first_compete_where_pending_is_limited() {
    let mut world = fleet(8);
    world.queue(queue("q"));
    world.policy(limited(
        "q",
        Limits {
            pending: Some(2),
            ..Limits::default()
        },
    ));
    world.add("never-0", "q", 99, "gpu 1");
    world.add("large-0", "q", 8, "cpu 60, gpu 1");
    world.add("small-0", "q", 1, "gpu 1");
    assert_snapshot!(order(&mut world), @"large");
    assert_snapshot!(world.why("small-0"), @"#2 Reserved: needs 1 pod × nvidia.com/gpu 1; a has room for 0 of 1; it is next: what frees is kept for it");
    world.add("third-0", "q", 1, "gpu 1");
    world.decide();
    assert_snapshot!(world.why("third-0"), @"#3 PendingLimitReached: queue q lets 2 pending jobs compete; this one is number 3");
    world.apply(Event::JobGone(key("never-0")));
    world.run("large-0");
    world.finish("large-0");
    assert_snapshot!(order(&mut world), @"small third");
}

#[test]
fn a_job_beyond_the_pending_limit_does_not_wait_for_a_head_that_is_beyond_it() {
    let mut world = fleet(8);
    world.queue(queue("q"));
    world.policy(PolicyFact {
        ordering: QueueOrdering::StrictFifo,
        ..pending("q", 1)
    });
    world.add("never", "q", 99, "gpu 1");
    world.add("second", "q", 1, "gpu 1");
    world.add("third", "q", 1, "gpu 1");
    assert_snapshot!(world.decide(), @"");
    assert_snapshot!(world.why("third"), @"#3 PendingLimitReached: queue q lets 1 pending job compete; this one is number 3");
}

/// The reservation of a job that may not compete any more is free for others.
fn is_not_kept_beyond(change: impl Fn(&mut World)) {
    let mut world = fleet(8);
    for name in ["full", "q", "other"] {
        world.queue(queue(name));
    }
    world.policy(pending("q", 1));
    world.runs("old", "full", 8, "gpu 1");
    world.add("first", "q", 8, "gpu 1");
    world.add("later", "other", 1, "gpu 1");
    world.decide();
    assert!(world.why("first").contains("it is next"));
    change(&mut world);
    world.decide();
    assert!(world.why("first").contains("PendingLimitReached"));
    assert!(!world.why("first").contains("it is next"));
    world.finish("old");
    assert!(world.decide().contains("release later #1"));
}

fn pending(name: &str, most: u32) -> PolicyFact {
    let limits = Limits {
        pending: Some(most),
        ..Limits::default()
    };
    limited(name, limits)
}

#[test]
fn a_lower_pending_limit_drops_reservations() {
    is_not_kept_beyond(|world| {
        world.policy(pending("q", 0));
    });
}

#[test]
fn a_new_job_ahead_drops_a_reservation_beyond_the_pending_limit() {
    is_not_kept_beyond(|world| {
        // It will never fit, and gets no reservation either.
        let mut before = world.job("before", "q", pods(99, "gpu 1"));
        before.0.queued_at = engine::Time(0);
        world.submit(before);
    });
}

#[test]
fn users_are_counted_in_a_queue_that_moves_below_one_with_a_limit() {
    let mut world = fleet(8);
    world.queue(queue("q")).queue(queue("dept"));
    world.policy(limited(
        "dept",
        Limits {
            jobs_per_user: Some(1),
            ..Limits::default()
        },
    ));
    world.add("large", "q", 16, "gpu 1");
    world.decide();
    for (name, user) in [("ann-0", "ann"), ("ann-1", "ann"), ("bob-0", "bob")] {
        let mut job = world.job(name, "q", crate::world::pods(1, "gpu 1"));
        job.0.user = user.to_owned();
        world.submit(job);
    }
    world.queue(below("dept", queue("q")));
    assert_snapshot!(order(&mut world), @"ann bob");
}

/// The head was blocked by capacity when it was evaluated, and must not block the other user for
/// ever.
#[test]
fn the_head_of_a_strict_queue_blocks_no_job_once_its_user_reaches_the_limit() {
    let mut world = World::new();
    world.cluster("x", 2, "cpu 16, gpu 4").queue(queue("q"));
    world.policy(PolicyFact {
        ordering: QueueOrdering::StrictFifo,
        limits: Limits {
            jobs_per_user: Some(1),
            ..Limits::default()
        },
        backfill: Backfill {
            reservations: Some(0),
            ..Backfill::default()
        },
        ..policy("q")
    });
    let submit = |world: &mut World, name: &str, user: &str, count, class| {
        let mut job = world.job(name, "q", pods(count, "cpu 1, gpu 3"));
        job.0.user = user.to_owned();
        world.submit(job.priority(class));
    };
    submit(&mut world, "runs", "bob", 1, "high");
    assert_snapshot!(order(&mut world), @"runs");
    submit(&mut world, "wide", "ann", 2, "normal");
    submit(&mut world, "other", "bob", 1, "low");
    assert_snapshot!(order(&mut world), @"");
    // Free capacity is used at once: nothing else causes an evaluation of the wide job.
    world.run("runs");
    world.finish("runs");
    submit(&mut world, "small", "ann", 1, "high");
    assert_snapshot!(order(&mut world), @"small other");
}

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
    assert_snapshot!(world.why("ann-1"), @"#1 Reserved: needs 3 pods × nvidia.com/gpu 1; a has room for 1 of 3; it is next: what frees is kept for it");
    submit(&mut world, "ann-0", "q", 3, "gpu 1");
    // The engine counts on the pod of the edit first.
    world.resized("ann-0");
    world.finish("old");
    assert_snapshot!(order(&mut world), @"bob");
    assert_snapshot!(world.why("ann-1"), @"#1 UserResourceLimitReached: needs nvidia.com/gpu 3; user ann may use 5 in queue q and has 3 charged: short by 1");
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

/// Nothing is evicted for a job that the limit of its owner blocks.
#[test]
fn nothing_is_evicted_beyond_the_limit_of_an_owner() {
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
    world.policy(per_user("q", "gpu 2"));
    for index in 0..4 {
        world.runs(&format!("lent-{index}"), "lent", 1, "gpu 2");
    }
    // Each of them keeps the limit alone; both together do not.
    submit(&mut world, "ann-0", "q", 1, "gpu 2");
    submit(&mut world, "ann-1", "q", 1, "gpu 2");
    assert_snapshot!(world.settle(20).join("\n"), @"lent-0 for ann-0");
    assert_snapshot!(world.why("ann-1"), @"#1 UserResourceLimitReached: needs nvidia.com/gpu 2; user ann may use 2 in queue q and has 2 charged: short by 2");
}
