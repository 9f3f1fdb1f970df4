//! Inadmissible jobs are evaluated when their condition is met, and cost nothing else.

use crate::world::{World, below, capped, foreign, key, node, pods, policy, queue};
use engine::Event;
use engine::facts::{Backfill, NodeFact, PolicyFact, QueueOrdering};
use insta::assert_snapshot;
use std::time::{Duration, Instant};

#[test]
fn freed_headroom_activates_jobs_for_which_it_suffices() {
    let mut world = World::new();
    world.cluster("a", 8, "cpu 64, gpu 8");
    world.queue(capped("dept", "gpu 8"));
    world.queue(below("dept", queue("one")));
    world.queue(below("dept", queue("two")));
    let mut loose = crate::world::policy("two");
    loose.ordering = engine::facts::QueueOrdering::BestEffort;
    world.policy(loose);
    for index in 0..4 {
        world.add(&format!("old-{index}"), "one", 1, "gpu 2");
    }
    world.decide();
    (0..4).for_each(|index| world.run(&format!("old-{index}")));
    world.add("eight", "two", 1, "gpu 8");
    world.add("four", "two", 1, "gpu 4");
    world.add("two", "two", 1, "gpu 2");
    assert_snapshot!(world.decide(), @"");
    world.finish("old-0");
    assert_snapshot!(world.decide(), @"release two #1 a(n0)");
    world.finish("old-1");
    assert_snapshot!(world.decide(), @"");
    world.finish("old-2");
    assert_snapshot!(world.decide(), @"release four #1 a(n0)");
}

#[test]
fn freed_capacity_activates_jobs_that_fit_in_order() {
    let mut world = World::new();
    world.cluster("a", 1, "cpu 64, gpu 8").queue(queue("q"));
    let mut loose = crate::world::policy("q");
    loose.ordering = engine::facts::QueueOrdering::BestEffort;
    world.policy(loose);
    world.add("old-six", "q", 1, "gpu 6");
    world.add("old-two", "q", 1, "gpu 2");
    world.decide();
    world.run("old-six");
    world.run("old-two");
    world.add("eight", "q", 1, "gpu 8");
    world.add("three", "q", 1, "gpu 3");
    world.add("one", "q", 1, "gpu 1");
    world.add("two", "q", 1, "gpu 2");
    assert_snapshot!(world.decide(), @"");
    world.finish("old-two");
    assert_snapshot!(world.decide(), @"release one #1 a(n0)");
    world.finish("old-six");
    assert_snapshot!(world.decide(), @r"
    release three #1 a(n0)
    release two #1 a(n0)
    ");
}

#[test]
fn another_queue_may_use_capacity_that_one_may_not() {
    // Two queues have jobs of the same shape; only one of them may use what becomes free.
    let mut world = World::new();
    world.cluster("a", 1, "cpu 64, gpu 8");
    world.queue(capped("one", "gpu 4")).queue(queue("two"));
    world.add("old", "one", 1, "gpu 4");
    world.apply(foreign("a", "n0", "gpu 4"));
    world.decide();
    world.run("old");
    world.add("blocked", "one", 1, "gpu 4");
    world.add("free-to-go", "two", 1, "gpu 4");
    assert_snapshot!(world.decide(), @"");
    let (cluster, uid) = ("a".into(), "foreign-a-n0".into());
    world.apply(engine::Event::PodGone(cluster, uid));
    assert_snapshot!(world.decide(), @"release free-to-go #1 a(n0)");
}

#[test]
fn a_job_that_moves_ahead_of_an_owner_may_use_its_headroom() {
    let mut world = World::new();
    world
        .cluster("a", 2, "cpu 64, gpu 8")
        .cluster("c", 1, "cpu 2000")
        .queue(capped("dept", "gpu 8"))
        .queue(below("dept", queue("one")))
        .queue(below("dept", queue("two")));
    world.runs("old", "two", 1, "gpu 4");
    world.add("head", "one", 1, "gpu 8");
    world.add("small", "two", 1, "gpu 1");
    assert_snapshot!(world.decide(), @"");
    // Its queue uses more of the fleet than the other now.
    world.add("grabs", "one", 1, "cpu 1900");
    assert_snapshot!(world.decide(), @r"
    release grabs #1 c(n0)
    release small #1 a(n0)
    ");
}

#[test]
fn the_first_job_after_a_deleted_one_gets_headroom() {
    let mut world = World::new();
    world
        .cluster("a", 2, "cpu 64, gpu 8")
        .queue(capped("q", "gpu 8"));
    world.runs("old", "q", 1, "gpu 4");
    world.add("first", "q", 1, "gpu 8");
    world.add("second", "q", 1, "gpu 6");
    assert_snapshot!(world.decide(), @"");
    world.apply(engine::Event::JobGone(crate::world::key("first")));
    world.add("small", "q", 1, "gpu 4");
    assert_snapshot!(world.decide(), @"");
    world.finish("old");
    assert_snapshot!(world.decide(), @"release second #1 a(n0)");
}

#[test]
fn a_job_that_moves_ahead_of_all_owners_may_use_their_nodes() {
    let mut world = World::new();
    world
        .cluster("a", 4, "cpu 64, gpu 8")
        .cluster("c", 1, "cpu 4000");
    for name in ["one", "two", "full"] {
        world.queue(queue(name));
    }
    let mut several = crate::world::policy("one");
    several.backfill.reservations = Some(2);
    world.policy(several);
    for (name, queue, count) in [("old-two", "two", 1), ("old", "full", 2)] {
        world.add(name, queue, count, "gpu 8");
        world.decide();
        world.run(name);
    }
    // All slots of the class are taken.
    world.add("head-1", "one", 2, "gpu 8");
    world.add("head-2", "one", 2, "gpu 8");
    world.add("stopped", "two", 1, "gpu 8");
    assert_snapshot!(world.decide(), @"");
    world.add("grabs", "one", 1, "cpu 3900");
    assert_snapshot!(world.decide(), @r"
    release grabs #1 c(n0)
    release stopped #1 a(n3)
    ");
}

#[test]
fn a_job_ahead_of_an_owner_may_use_capacity_that_others_of_its_shape_may_not() {
    let mut world = World::new();
    world
        .cluster("a", 2, "cpu 64, gpu 8")
        .queue(capped("ahead", "cpu 10"))
        .queue(queue("behind"));
    world.add("old", "behind", 1, "gpu 8");
    world.add("some", "ahead", 1, "cpu 5");
    world.decide();
    world.run("old");
    world.run("some");
    world.add("lacks-quota", "ahead", 1, "cpu 6");
    world.add("holder", "behind", 2, "gpu 8");
    world.add("stopped", "behind", 1, "gpu 8");
    assert_snapshot!(world.decide(), @"");
    // It is not the first of its queue, but ahead of the owner.
    world.add("passes", "ahead", 1, "gpu 8");
    assert_snapshot!(world.decide(), @"release passes #1 a(n1)");
}

#[test]
fn a_divisible_job_starts_when_the_last_part_becomes_free() {
    let mut world = World::new();
    world.queue(queue("q")).policy(engine::facts::PolicyFact {
        ordering: engine::facts::QueueOrdering::BestEffort,
        ..crate::world::policy("q")
    });
    for name in ["a", "b"] {
        world.cluster(name, 1, "cpu 64, gpu 8");
        world.add(&format!("old-{name}"), "q", 1, "gpu 8");
        world.decide();
        world.run(&format!("old-{name}"));
    }
    let divided = engine::facts::Demand {
        split: engine::facts::Split::Allowed,
        ..pods(2, "gpu 8")
    };
    let job = world.job("divided", "q", divided);
    world.submit(job);
    assert_snapshot!(world.decide(), @"");
    world.finish("old-a");
    assert_snapshot!(world.decide(), @"");
    world.finish("old-b");
    assert_snapshot!(world.decide(), @"release divided #1 a(n0) b(n0)");
}

#[test]
fn in_a_strict_queue_no_job_passes_a_head_that_waits_for_quota() {
    let mut world = World::new();
    world
        .cluster("a", 2, "cpu 64, gpu 8")
        .queue(capped("q", "gpu 8"))
        .policy(engine::facts::PolicyFact {
            ordering: engine::facts::QueueOrdering::StrictFifo,
            ..crate::world::policy("q")
        });
    world.runs("old", "q", 1, "gpu 4");
    world.add("head", "q", 1, "gpu 8");
    assert_snapshot!(world.decide(), @"");
    world.add("small", "q", 1, "cpu 1");
    assert_snapshot!(world.decide(), @"");
    let urgent = world.job("urgent", "q", pods(1, "cpu 1")).priority("high");
    world.submit(urgent);
    assert_snapshot!(world.decide(), @"release urgent #1 a(n0)");
}

#[test]
fn a_job_without_a_headroom_slot_is_evaluated_when_one_is_free() {
    let mut world = World::new();
    world
        .cluster("a", 2, "cpu 64, gpu 8")
        .queue(capped("dept", "gpu 8"));
    let names = ["one", "three", "two"];
    for name in names.iter().chain(&["full"]) {
        world.queue(below("dept", queue(name)));
    }
    world.runs("old", "full", 1, "gpu 8");
    for name in names {
        world.add(&format!("head-{name}"), name, 1, "gpu 8");
    }
    world.decide();
    let next =
        |world: &World, name: &str| world.why(&format!("head-{name}")).contains("it is next");
    assert_eq!(names.map(|name| next(&world, name)), [true, true, false]);
    world.apply(engine::Event::JobGone(crate::world::key("head-three")));
    world.decide();
    assert!(next(&world, "one") && next(&world, "two"));
}

#[test]
fn a_charge_marks_its_queue_and_those_above_as_changed() {
    let mut world = World::new();
    world
        .cluster("a", 1, "cpu 64, gpu 8")
        .queue(queue("dept"))
        .queue(below("dept", queue("q")))
        .queue(queue("other"));
    world.add("job", "q", 1, "gpu 1");
    world.engine.take_changed();
    world.decide();
    let changed = world.engine.take_changed().queues;
    let changed: Vec<String> = changed.iter().map(ToString::to_string).collect();
    assert_eq!(changed, ["dept", "q"]);
}

#[test]
fn a_job_whose_blocking_reason_changes_is_marked_as_changed() {
    let mut world = World::new();
    world
        .cluster("a", 2, "cpu 64, gpu 1")
        .queue(capped("bounded", "gpu 1"))
        .queue(queue("free"));
    world.policy(PolicyFact {
        ordering: QueueOrdering::BestEffort,
        ..policy("bounded")
    });
    world.runs("in-bounds", "bounded", 1, "gpu 1");
    world.runs("beside", "free", 1, "gpu 1");
    world.add("next", "bounded", 1, "gpu 1");
    world.decide();
    world.add("waits", "free", 1, "gpu 1");
    let cordoned = NodeFact {
        usable: false,
        ..node("a", "n0", "cpu 64, gpu 1")
    };
    world.apply(Event::NodeUpserted(cordoned));
    world.decide();
    assert!(world.why("next").contains("WaitingForQuota"));
    world.finish("in-bounds");
    world.engine.take_changed();
    assert_eq!(world.decide(), "");
    assert!(world.why("next").contains("WaitingForRoom"));
    assert!(world.engine.take_changed().jobs.contains(&key("next")));
}

/// The cost of a completion that lets no job start, with this many queues on three levels, in each
/// of which the same shapes do not fit.
fn after_completion(queues: u32) -> Duration {
    let mut world = World::new();
    world.cluster("a", 12, "cpu 64, gpu 8");
    world.queue(queue("runs"));
    for index in 0..8 {
        world.add(&format!("runs-{index}"), "runs", 1, "gpu 8");
    }
    world.decide();
    (0..8).for_each(|index| world.run(&format!("runs-{index}")));
    for index in 0..queues {
        let dept = format!("dept-{}", index / 10);
        if index % 10 == 0 {
            world.queue(queue(&dept));
        }
        let name = format!("queue-{index}");
        world.queue(below(&dept, queue(&name)));
        for kind in 0..3 {
            let demand = pods(12, &format!("gpu 8, cpu {}", 1 + kind));
            let job = world.job(&format!("waits-{index}-{kind}"), &name, demand);
            world.submit(job);
        }
    }
    world.engine.decide(world.now);
    let cost = |index: u32| {
        world.finish(&format!("runs-{index}"));
        let begin = Instant::now();
        assert!(world.engine.decide(world.now).decisions.is_empty());
        begin.elapsed()
    };
    (0..7).map(cost).min().unwrap()
}

#[test]
#[ignore = "a measurement"]
fn the_cost_of_a_completion_does_not_depend_on_waiting_queues() {
    let few = after_completion(20);
    let many = after_completion(800);
    assert!(
        many < few * 8,
        "40 times the queues: {few:?} became {many:?}"
    );
}

/// Returns true if a slot is kept for the job `head-NAME`.
pub fn is_next(world: &World, name: &str) -> bool {
    world.why(&format!("head-{name}")).contains("it is next")
}

/// Each queue has a head, and all wait for the headroom that a job uses.
pub fn waiting_heads(names: &[&str], policy: impl Fn(&str) -> PolicyFact) -> World {
    let mut world = World::new();
    world
        .cluster("a", 2, "cpu 64, gpu 8")
        .queue(capped("dept", "gpu 8"));
    for name in names {
        world.queue(below("dept", queue(name)));
        world.policy(policy(name));
    }
    world.runs("old", names[0], 1, "gpu 8");
    for name in names {
        world.add(&format!("head-{name}"), name, 1, "gpu 8");
    }
    world.decide();
    world
}

#[test]
fn a_job_that_lost_a_headroom_slot_is_evaluated_when_one_is_free() {
    let names = ["one", "two", "three"];
    let mut world = waiting_heads(&names, policy);
    assert_eq!(names.map(|name| is_next(&world, name)), [true, true, false]);
    world.apply(engine::Event::JobGone(crate::world::key("head-two")));
    world.decide();
    assert!(is_next(&world, "one") && is_next(&world, "three"));
}

/// How many slots there are depends on the queue that asks. Two become free, and the first job that takes one leaves
/// the other to the next.
#[test]
fn slots_that_become_free_together_are_all_taken() {
    let names = ["one", "two", "three", "four", "five", "six", "seven"];
    let mut world = waiting_heads(&names, |name| PolicyFact {
        backfill: Backfill {
            reservations: Some(5),
            ..Backfill::default()
        },
        ..policy(name)
    });
    let next = |world: &World, names: &[&str]| {
        let names = names.iter();
        names.filter(|name| is_next(world, name)).count()
    };
    assert_eq!(next(&world, &names), 5);
    for name in ["head-two", "head-three"] {
        world.apply(engine::Event::JobGone(crate::world::key(name)));
    }
    world.decide();
    assert_eq!(next(&world, &["one", "four", "five", "six", "seven"]), 5);
}

#[test]
fn a_job_may_get_a_reservation_once_it_is_before_the_owner_of_another() {
    let mut world = World::new();
    world.cluster("a", 2, "cpu 64, gpu 8");
    world
        .queue(queue("one"))
        .queue(queue("two"))
        .queue(queue("three"));
    world.runs("old", "three", 1, "gpu 5");
    world.runs("other", "three", 1, "gpu 4");
    world.add("head-one", "one", 2, "gpu 4");
    world.add("head-two", "two", 1, "gpu 5");
    assert_eq!(world.decide(), "");
    // Beside what is reserved for the first job no node is ever free enough for the second.
    assert!(is_next(&world, "one") && !is_next(&world, "two"));
    // The first queue uses more than the second now, which comes before it.
    world.add("small", "one", 1, "cpu 1");
    assert_snapshot!(world.decide(), @"release small #1 a(n0)");
    assert!(is_next(&world, "two"));
}

#[test]
fn a_foreign_pod_on_a_reserved_node_has_the_owner_reserve_others() {
    let mut world = World::new();
    world.queue(queue("q")).queue(queue("other"));
    world.cluster("a", 2, "cpu 64, gpu 8");
    world.runs("old", "other", 1, "gpu 8");
    world.cluster("b", 2, "cpu 64, gpu 8");
    world.apply(foreign("b", "n0", "gpu 8"));
    world.apply(foreign("b", "n1", "gpu 1"));
    world.add("head", "q", 2, "gpu 8");
    world.add("small", "q", 1, "gpu 6");
    // Less has to become free in the first cluster. The second has room for the small job.
    assert_snapshot!(world.decide(), @"release small #1 b(n1)");
    world.add("next", "q", 1, "gpu 5");
    assert_snapshot!(world.decide(), @"");
    // Now it is less in the second one.
    world.apply(foreign("a", "n0", "gpu 3"));
    world.apply(foreign("a", "n1", "gpu 3"));
    assert_snapshot!(world.decide(), @"release next #1 a(n1)");
}

/// It waits for quota only: a change of the fleet is no condition of its class.
#[test]
fn a_head_that_lacks_quota_and_fits_the_fleet_no_more_holds_up_no_others() {
    let mut world = World::new();
    world.cluster("b", 1, "cpu 64, gpu 4");
    world.queue(capped("q", "gpu 8"));
    world.policy(PolicyFact {
        ordering: QueueOrdering::StrictFifo,
        ..policy("q")
    });
    world.runs("old", "q", 1, "gpu 2");
    world.cluster("a", 1, "cpu 64, gpu 8");
    world.add("large", "q", 1, "gpu 8");
    world.add("small", "q", 1, "gpu 1");
    assert_snapshot!(world.decide(), @"");
    world.apply(Event::NodeUpserted(NodeFact {
        usable: false,
        ..node("a", "n0", "cpu 64, gpu 8")
    }));
    assert_snapshot!(world.decide(), @"release small #1 b(n0)");
}
