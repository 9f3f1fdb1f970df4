//! Capabilities of queues.

use crate::world::{World, below, bound, capped, key, pods, policy, queue};
use engine::facts::{QueueFact, QueueState};
use engine::{Event, QueueName};
use insta::assert_snapshot;

fn fleet() -> World {
    let mut world = World::new();
    world.cluster("a", 8, "cpu 64, memory 512Gi, gpu 8");
    world
}

#[test]
fn a_capability_bounds_only_the_resources_that_it_names() {
    let mut world = fleet();
    world.queue(capped("q", "gpu 16"));
    world.add("one", "q", 1, "gpu 8, cpu 32");
    world.add("two", "q", 1, "gpu 8, cpu 32");
    world.add("three", "q", 1, "gpu 1");
    world.add("cpu", "q", 10, "cpu 8");
    world.decide();
    assert_snapshot!(world.charged(&["one", "two", "three", "cpu"]).join(" "), @"one two cpu");
    assert_snapshot!(world.why("three"), @"#1 NextInLine: needs nvidia.com/gpu 1; queue q may use 16 and has 16 charged: short by 1; it is next: what becomes free is reserved for it");
}

#[test]
fn the_capability_of_every_queue_on_the_path_counts() {
    let mut world = fleet();
    world
        .queue(capped("dept", "gpu 16"))
        .queue(below("dept", capped("team", "gpu 16")));
    world.add("fits", "team", 2, "gpu 8");
    world.add("waits", "team", 1, "gpu 8");
    world.add("never", "team", 3, "gpu 8");
    world.decide();
    assert_snapshot!(world.why("waits"), @"#1 NextInLine: needs nvidia.com/gpu 8; queue dept may use 16 and has 16 charged: short by 8; it is next: what becomes free is reserved for it");
    assert_snapshot!(world.why("never"), @"#2 ExceedsCapability: needs nvidia.com/gpu 24; queue dept may use 16: 8 more than it may ever have");
    assert_snapshot!(world.allocated("dept"), @"nvidia.com/gpu 16, pods 2");
}

#[test]
fn the_root_may_have_a_capability() {
    let mut world = fleet();
    world.queue(capped("root", "gpu 8")).queue(queue("q"));
    world.add("one", "q", 1, "gpu 8");
    world.add("two", "q", 1, "gpu 8");
    world.decide();
    assert_snapshot!(world.why("two"), @"#1 NextInLine: needs nvidia.com/gpu 8; queue root may use 8 and has 8 charged: short by 8; it is next: what becomes free is reserved for it");
}

#[test]
fn a_capability_below_the_usage_blocks_new_jobs_and_evicts_none() {
    let mut world = fleet();
    world.queue(capped("q", "gpu 32"));
    world.add("one", "q", 4, "gpu 8");
    world.decide();
    world.queue(capped("q", "gpu 8"));
    world.add("small", "q", 1, "gpu 1");
    world.add("cpu", "q", 1, "cpu 1");
    assert_snapshot!(world.decide(), @"release cpu #1 a(n0)");
    assert_snapshot!(world.why("small"), @"#1 NextInLine: needs nvidia.com/gpu 1; queue q may use 8 and has 32 charged: short by 25; it is next: what becomes free is reserved for it");
    world.queue(capped("q", "gpu 33"));
    assert_snapshot!(world.decide(), @"release small #1 a(n4)");
}

#[test]
fn classes_of_pools_are_bounded_together_and_by_cluster() {
    let mut world = fleet();
    world.cluster("b", 8, "cpu 64, gpu 8").queue(queue("q"));
    let mut bounded = policy("q");
    bounded.pools = vec![
        bound("gpu", None, "gpu 24"),
        bound("gpu", Some(&["a"]), "gpu 8"),
    ];
    world.policy(bounded);
    for name in ["one", "two", "three", "four"] {
        world.add(name, "q", 1, "gpu 8");
    }
    assert_snapshot!(world.decide(), @r"
    release one #1 a(n0)
    release two #1 b(n0)
    release three #1 b(n1)
    ");
    assert_snapshot!(world.why("four"), @"#1 NextInLine: needs nvidia.com/gpu 8; queue q may use 24 of class gpu and has 24 charged: short by 8; it is next: what becomes free is reserved for it");
}

#[test]
fn an_invalid_queue_blocks_only_its_own_jobs() {
    let mut world = fleet();
    world
        .queue(below("loop-b", queue("loop-a")))
        .queue(below("loop-a", queue("loop-b")));
    world.queue(below("nowhere", queue("orphan")));
    world
        .queue(queue("parent"))
        .queue(below("parent", queue("child")));
    world.queue(QueueFact {
        invalid: Some("capability.cpu: \"-1\" is negative".to_owned()),
        ..queue("bad")
    });
    world.queue(QueueFact {
        state: QueueState::Closing,
        ..queue("closing")
    });
    world.queue(queue("good"));
    let queues = [
        "loop-a", "orphan", "parent", "bad", "closing", "missing", "child", "good",
    ];
    for name in queues {
        world.add(&format!("in-{name}"), name, 1, "gpu 8");
    }
    world.decide();
    let why: Vec<String> = queues
        .iter()
        .map(|name| world.why(&format!("in-{name}")))
        .collect();
    assert_snapshot!(why.join("\n"), @r#"
    #1 QueueInvalid: queue loop-a is below itself: the parent of loop-b is loop-a
    #1 QueueInvalid: queue orphan names the parent nowhere, which does not exist
    #1 QueueNotLeaf: queue parent has children (child); only a queue without children takes jobs
    #1 QueueInvalid: queue bad: capability.cpu: "-1" is negative
    #1 QueueClosed: queue closing is closing and takes no jobs; open it to let them in
    #1 QueueNotFound: queue missing does not exist; create it or name another
    Admitted: released; its placement is being written; attempt 1 on a, charged nvidia.com/gpu 8, pods 1 to queue child
    Admitted: released; its placement is being written; attempt 1 on a, charged nvidia.com/gpu 8, pods 1 to queue good
    "#);
}

#[test]
fn the_jobs_of_a_queue_start_when_it_is_created_or_opened() {
    let mut world = fleet();
    world.add("early", "later", 1, "gpu 8");
    assert_snapshot!(world.decide(), @"");
    world.queue(QueueFact {
        state: QueueState::Closed,
        ..queue("later")
    });
    assert_snapshot!(world.decide(), @"");
    world.queue(queue("later"));
    assert_snapshot!(world.decide(), @"release early #1 a(n0)");
}

#[test]
fn a_deleted_queue_stays_charged() {
    let mut world = fleet();
    world
        .queue(capped("dept", "gpu 8"))
        .queue(below("dept", queue("team")));
    world.add("one", "team", 1, "gpu 8");
    world.decide();
    world.apply(Event::QueueGone(QueueName::from("team")));
    world.decide();
    assert_snapshot!(world.allocated("team"), @"nvidia.com/gpu 8, pods 1");
    world.queue(below("dept", queue("team")));
    world.add("two", "team", 1, "gpu 1");
    assert_snapshot!(world.decide(), @"");
    assert_snapshot!(world.allocated("dept"), @"nvidia.com/gpu 8, pods 1");
}

#[test]
fn usage_is_reported_with_the_children_and_the_head() {
    let mut world = fleet();
    world
        .queue(queue("dept"))
        .queue(below("dept", capped("team", "gpu 16")));
    for name in ["one", "two", "three"] {
        world.add(name, "team", 1, "gpu 8");
    }
    world.decide();
    world.run("one");
    let team = world.engine.queue_usage(&QueueName::from("team")).unwrap();
    let dept = world.engine.queue_usage(&QueueName::from("dept")).unwrap();
    assert_eq!(
        (team.pending_jobs, team.admitted_jobs, team.running_jobs),
        (1, 1, 1)
    );
    assert_eq!(dept.allocated, team.allocated);
    assert_eq!(team.head.unwrap().0, key("three"));
    assert_snapshot!(format!("{} | {} | {}", dept.allocated, dept.pending, team.placed[0].class), @"nvidia.com/gpu 16, pods 2 | nvidia.com/gpu 8, pods 1 | gpu");
}

#[test]
fn a_request_that_overflows_is_refused() {
    let mut world = fleet();
    world.queue(queue("q"));
    let job = world.job("huge", "q", pods(3, "memory 8Ei"));
    world.submit(job);
    world.decide();
    assert_snapshot!(world.why("huge"), @"InvalidTemplate: what its pods request together is too large to be counted");
}

#[test]
fn a_job_too_large_for_the_bound_on_one_cluster_waits_for_another() {
    let mut world = World::new();
    world
        .cluster("a", 1, "cpu 64, gpu 8")
        .cluster("b", 1, "cpu 64, gpu 8");
    world.queue(queue("q"));
    let mut some = policy("q");
    some.pools = vec![bound("gpu", Some(&["a"]), "gpu 4")];
    world.policy(some);
    world.add("old", "q", 1, "gpu 8");
    assert_snapshot!(world.decide(), @"release old #1 b(n0)");
    world.run("old");
    world.add("next", "q", 1, "gpu 8");
    assert_snapshot!(world.decide(), @"");
    assert_snapshot!(world.why("next"), @"#1 NextInLine: needs 1 pod × nvidia.com/gpu 8; b has room for 0 of 1; it is next: what becomes free is reserved for it");
    world.finish("old");
    assert_snapshot!(world.decide(), @"release next #1 b(n0)");
    world.run("next");
    world.finish("next");
    // Without another cluster it can never start.
    let mut both = policy("q");
    both.pools = vec![
        bound("gpu", Some(&["a"]), "gpu 4"),
        bound("gpu", Some(&["b"]), "gpu 4"),
    ];
    world.policy(both);
    world.add("never", "q", 1, "gpu 8");
    assert_snapshot!(world.decide(), @"");
    assert_snapshot!(world.why("never"), @"#1 ExceedsCapability: needs nvidia.com/gpu 8; queue q may use 4 of class gpu in a: 4 more than it may ever have");
}

/// Returns what blocks a job of four cores and four GPUs in a team of a department where another such job
/// runs, by the capabilities of the two.
fn stopped(dept: &str, team: &str) -> String {
    let mut world = fleet();
    world
        .queue(queue("dept"))
        .queue(below("dept", queue("team")));
    world.add("old", "team", 1, "cpu 4, gpu 4");
    world.decide();
    world
        .queue(capped("dept", dept))
        .queue(below("dept", capped("team", team)));
    world.add("new", "team", 1, "cpu 4, gpu 4");
    world.decide();
    let blocker = world.engine.explain(&key("new")).unwrap().blocker.unwrap();
    let (resource, free) = (blocker.resource.unwrap(), blocker.free.unwrap());
    format!("{} {resource}, of which {free} are free", blocker.scope)
}

#[test]
fn of_several_exceeded_bounds_one_that_can_never_hold_is_reported_then_the_lowest_then_by_name() {
    for (dept, team, told) in [
        ("cpu 6", "gpu 6", "team nvidia.com/gpu, of which 2 are free"),
        ("gpu 6", "cpu 6", "team cpu, of which 2000 are free"),
        ("gpu 3", "cpu 6", "dept nvidia.com/gpu, of which 0 are free"),
        ("gpu 6", "cpu 3", "team cpu, of which 0 are free"),
        ("cpu 3", "gpu 3", "team nvidia.com/gpu, of which 0 are free"),
        ("", "cpu 6, gpu 6", "team cpu, of which 2000 are free"),
        (
            "",
            "cpu 6, gpu 3",
            "team nvidia.com/gpu, of which 0 are free",
        ),
        ("cpu 3, gpu 6", "gpu 6", "dept cpu, of which 0 are free"),
    ] {
        let told = format!("queue/{told}");
        assert_eq!(stopped(dept, team), told, "{dept:?} above {team:?}");
    }
}

#[test]
fn of_bounds_on_one_class_the_one_on_all_clusters_is_reported_first() {
    let mut world = fleet();
    world.queue(queue("q"));
    world.policy(engine::facts::PolicyFact {
        pools: vec![
            bound("gpu", Some(&["a"]), "gpu 8"),
            bound("gpu", None, "gpu 8"),
        ],
        ..policy("q")
    });
    world.add("old", "q", 1, "gpu 8");
    world.add("new", "q", 1, "gpu 8");
    world.decide();
    assert_snapshot!(world.why("new"), @"#1 NextInLine: needs nvidia.com/gpu 8; queue q may use 8 of class gpu and has 8 charged: short by 8; it is next: what becomes free is reserved for it");
}

#[test]
fn a_queue_two_levels_below_a_deleted_one_takes_no_jobs() {
    let mut world = World::new();
    world
        .cluster("a", 1, "cpu 64, gpu 1")
        .queue(queue("org"))
        .queue(below("org", queue("dept")))
        .queue(below("dept", queue("q")))
        .queue(queue("lone"));
    world.add("first", "lone", 1, "gpu 1");
    world.add("next", "q", 1, "gpu 1");
    assert_snapshot!(world.decide(), @"release first #1 a(n0)");
    world.run("first");
    world.apply(Event::QueueGone(QueueName::from("org")));
    world.finish("first");
    assert_snapshot!(world.decide(), @"");
    world.queue(queue("org"));
    assert_snapshot!(world.decide(), @"release next #1 a(n0)");
}
