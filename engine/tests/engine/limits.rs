//! Limits on numbers of jobs: of a queue, of a user, of those that compete.

use crate::sharing::{fill, fleet, order};
use crate::world::{World, below, key, pods, policy, queue, res};
use engine::Event;
use engine::facts::{Backfill, Limits, PolicyFact, QueueOrdering};
use insta::assert_snapshot;

pub fn limited(name: &str, limits: Limits) -> PolicyFact {
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
    assert_snapshot!(world.why("small-0"), @"#2 NextInLine: needs 1 pod × nvidia.com/gpu 1; a has room for 0 of 1; it is next: what becomes free is reserved for it");
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
    let jobs = Limits {
        jobs_per_user: Some(1),
        ..Limits::default()
    };
    // The wide job alone needs 6.
    let resources = Limits {
        resources_per_user: res("gpu 7"),
        ..Limits::default()
    };
    for limits in [jobs, resources] {
        the_head_blocks_no_job(limits);
    }
}

fn the_head_blocks_no_job(limits: Limits) {
    let mut world = World::new();
    world.cluster("x", 2, "cpu 16, gpu 4").queue(queue("q"));
    world.policy(PolicyFact {
        ordering: QueueOrdering::StrictFifo,
        limits,
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
    assert_eq!(order(&mut world), "runs");
    submit(&mut world, "wide", "ann", 2, "normal");
    submit(&mut world, "other", "bob", 1, "low");
    assert_eq!(order(&mut world), "");
    // Free capacity is used at once: nothing else causes an evaluation of the wide job.
    world.run("runs");
    world.finish("runs");
    submit(&mut world, "small", "ann", 1, "high");
    assert_eq!(order(&mut world), "small other");
}
