//! Explanations of jobs.

use crate::world::{World, capped, cluster, gang, key, pods, policy, queue, role};
use engine::facts::{ClusterFact, Hold};
use engine::{Event, Progress, Reason};
use insta::assert_snapshot;

#[test]
fn each_state_of_a_job_is_explained() {
    let mut world = World::new();
    world.cluster("a", 2, "cpu 64, gpu 8").queue(queue("q"));
    world.add("job", "q", 2, "gpu 8");
    let mut said = vec![world.why("job")];
    world.decide();
    said.push(world.why("job"));
    world.progress("job", Progress::Placed);
    said.push(world.why("job"));
    world.run("job");
    said.push(world.why("job"));
    world.ending("job", Reason::MemberRefused);
    said.push(world.why("job"));
    world.works_gone("job");
    said.push(world.why("job"));
    world.wait(1);
    world.decide();
    world.run("job");
    world.finish("job");
    said.push(world.why("job"));
    assert_snapshot!(said.join("\n"), @r"
    #1 NotEvaluated: it may go, and is decided on next
    Admitted: released; its placement is being written; attempt 1 on a, charged nvidia.com/gpu 16, pods 2 to queue q
    Placed: placed; waits for its pods to run; attempt 1 on a, charged nvidia.com/gpu 16, pods 2 to queue q
    Running: runs; attempt 1 on a, charged nvidia.com/gpu 16, pods 2 to queue q
    MemberRefused: because; charged until its Works are gone; its former pods in cluster a still end (2 are left)
    BackingOff: attempt 1 was evicted (MemberRefused: because); it competes again in 1 s
    Finished: ended; attempt 2 on a, charged nothing
    ");
}

#[test]
fn a_running_job_whose_template_names_another_queue_says_which_is_charged() {
    let mut world = World::new();
    world
        .cluster("a", 2, "cpu 64, gpu 8")
        .queue(queue("q"))
        .queue(queue("other"));
    let mut fact = world.runs("job", "q", 2, "gpu 8");
    fact.queue = engine::QueueName::from("other");
    world.apply(Event::JobUpserted(fact));
    world.decide();
    assert_snapshot!(world.why("job"), @"Running: runs; attempt 1 on a, charged nvidia.com/gpu 16, pods 2 to queue q; its template names queue other, which counts when it is queued again");
    let view = world.engine.job(&key("job")).unwrap();
    assert_eq!(view.queue.as_str(), "q");
}

#[test]
fn free_capacity_is_reported_by_cluster_the_most_first() {
    let mut world = World::new();
    world
        .cluster("gpu-a", 8, "cpu 64, gpu 8")
        .cluster("gpu-b", 4, "cpu 64, gpu 8")
        .queue(queue("q"));
    world.add("old-a", "q", 3, "gpu 8");
    world.add("waits", "q", 8, "gpu 8");
    world.add("never", "q", 9, "gpu 8");
    world.decide();
    assert_snapshot!(world.why("waits"), @"#1 NextInLine: needs 8 pods × nvidia.com/gpu 8; gpu-a has room for 5 of 8, gpu-b has room for 4 of 8; it is next: what becomes free is reserved for it");
    assert_snapshot!(world.why("never"), @"#2 ExceedsFleet: needs 9 pods × nvidia.com/gpu 8; gpu-a has room for 5 of 9, gpu-b has room for 4 of 9; it would not fit even if they were empty");
    let blocker = world
        .engine
        .explain(&key("waits"))
        .unwrap()
        .blocker
        .unwrap();
    assert_eq!(
        (blocker.scope.as_str(), blocker.needs),
        ("cluster/gpu-a", Some(64))
    );
}

#[test]
fn without_clusters_nothing_is_eligible() {
    let mut world = World::new();
    world.queue(queue("q"));
    world.add("job", "q", 1, "gpu 8");
    world.decide();
    assert_snapshot!(world.why("job"), @"#1 NoEligibleCluster: has no cluster to go to: no member cluster is known");
}

#[test]
fn a_job_on_hold_says_why() {
    let mut world = World::new();
    world.cluster("a", 2, "cpu 64, gpu 8").queue(queue("q"));
    let mut job = world.job("held", "q", pods(1, "gpu 8"));
    job.0.hold = Some(Hold {
        reason: Reason::SizeUnknown,
        message: "its kind cannot be sized".to_owned(),
    });
    world.submit(job);
    let job = world
        .job("unknown-class", "q", pods(1, "gpu 8"))
        .priority("gone");
    world.submit(job);
    assert_snapshot!(world.decide(), @"");
    assert_snapshot!(world.why("held"), @"SizeUnknown: its kind cannot be sized");
    assert_snapshot!(world.why("unknown-class"), @"PriorityClassNotFound: priority class gone does not exist; create it or name another");
    assert!(world.engine.explain(&key("nobody")).is_none());
}

#[test]
fn positions_count_the_pending_jobs_of_the_queue() {
    let mut world = World::new();
    world
        .cluster("a", 1, "cpu 64, gpu 8")
        .queue(capped("q", "gpu 8"))
        .policy(policy("q"));
    for name in ["one", "two", "three"] {
        world.add(name, "q", 1, "gpu 8");
    }
    let urgent = world.job("urgent", "q", pods(1, "gpu 8")).priority("high");
    world.submit(urgent);
    world.decide();
    let places = ["urgent", "one", "two", "three"]
        .map(|name| world.engine.explain(&key(name)).unwrap().position);
    assert_eq!(places, [None, Some(1), Some(2), Some(3)]);
}

#[test]
fn a_job_that_no_cluster_may_take_is_reported_when_a_cluster_says_something_else() {
    let mut world = World::new();
    world.cluster("a", 1, "cpu 64, gpu 8").queue(queue("q"));
    let says = |world: &mut World, because: &str| {
        world.apply(Event::ClusterUpserted(ClusterFact {
            usable: false,
            unusable_because: because.to_owned(),
            ..cluster("a")
        }));
        world.decide();
    };
    says(&mut world, "its credentials are missing");
    world.add("job", "q", 1, "gpu 8");
    world.decide();
    world.engine.take_changed();
    for (because, reported) in [
        ("its nodes cannot be listed", true),
        ("its nodes cannot be listed", false),
        ("it is not Ready", true),
    ] {
        says(&mut world, because);
        assert!(world.why("job").contains(because), "{}", world.why("job"));
        let changed = world.engine.take_changed().jobs;
        assert_eq!(changed.contains(&key("job")), reported, "{because}");
    }
}

#[test]
fn changed_jobs_do_not_contain_every_pending_job() {
    let mut world = World::new();
    world.cluster("a", 1, "cpu 64, gpu 8").queue(queue("q"));
    world.add("runs", "q", 1, "gpu 8");
    for index in 0..200 {
        world.add(&format!("waits-{index:03}"), "q", 1, "gpu 8");
    }
    world.decide();
    assert_eq!(world.engine.take_changed().jobs.len(), 201);
    world.run("runs");
    world.finish("runs");
    world.decide();
    let changed = world.engine.take_changed();
    assert!(changed.jobs.contains(&key("runs")) && changed.jobs.contains(&key("waits-000")));
    assert!(changed.jobs.len() <= 12, "{}", changed.jobs.len());
    assert!(changed.queues.contains(&engine::QueueName::from("q")));
    world.apply(Event::JobGone(key("waits-100")));
    world.decide();
    assert_eq!(world.engine.take_changed().jobs.len(), 1);
}

#[test]
fn the_jobs_ahead_and_the_expected_start_are_reported() {
    let mut world = World::new();
    world
        .cluster("a", 1, "cpu 64, gpu 8")
        .queue(capped("q", "gpu 6"));
    for (name, gpus, seconds) in [("old", 6, 60), ("one", 6, 3600), ("two", 3, 1800)] {
        let job = world.job(name, "q", pods(1, &format!("cpu 1, gpu {gpus}")));
        world.submit(job.lasts(seconds));
        world.decide();
    }
    world.run("old");
    world.add("three", "q", 1, "gpu 1");
    world.add("four", "q", 1, "gpu 1");
    world.decide();
    let told = |name: &str| {
        let told = world.engine.explain(&key(name)).unwrap();
        let (ahead, start) = (told.ahead.unwrap(), told.start.unwrap());
        assert_eq!(
            world.engine.start_estimate(&key(name)).as_ref(),
            Some(&start)
        );
        let wait = start.wait_ms.map(|wait| wait / 1_000);
        (
            ahead.jobs,
            ahead.devices,
            ahead.device_seconds,
            wait,
            start.basis,
        )
    };
    // The running job ends after 60 s, then the next runs for an hour, and then the other three fit.
    let basis = "2 jobs ahead and 1 running, by their expected run times";
    assert_eq!(told("three"), (2, 9, 27_000, Some(3_660), basis.to_owned()));
    let basis = "3 jobs ahead and 1 running, by their expected run times";
    assert_eq!(told("four"), (3, 10, 27_000, Some(3_660), basis.to_owned()));
    // Behind a job whose end nobody knows, nobody knows the start.
    world.add("five", "q", 1, "gpu 6");
    world.decide();
    let told = world.engine.explain(&key("five")).unwrap();
    let start = told.start.unwrap();
    let basis = "4 jobs ahead and 1 running; too few of their run times are known";
    assert_eq!((start.wait_ms, start.basis.as_str()), (None, basis));
    // What could never start has no start.
    world.add("never", "q", 1, "gpu 7");
    world.decide();
    assert_eq!(world.engine.explain(&key("never")).unwrap().start, None);
}

#[test]
fn an_admission_reports_pods_by_cluster_and_the_charge() {
    let mut world = World::new();
    world
        .cluster("a", 1, "cpu 64, gpu 8")
        .cluster("b", 2, "cpu 64, gpu 8")
        .queue(queue("q"));
    let divided = engine::facts::Demand {
        split: engine::facts::Split::Allowed,
        ..pods(3, "gpu 8")
    };
    let job = world.job("job", "q", divided);
    world.submit(job);
    let decided = world.decided();
    let [engine::Decision::Release { message, .. }] = &decided.decisions[..] else {
        panic!("{decided:?}");
    };
    assert_snapshot!(message, @"queue q: 1 pod on a, 2 pods on b; charged nvidia.com/gpu 24, pods 3");
}

#[test]
fn jobs_of_a_class_are_reported_when_another_reason_blocks_them() {
    let mut world = World::new();
    world
        .cluster("a", 1, "cpu 64, gpu 8")
        .queue(capped("q", "gpu 8"));
    world.runs("old", "q", 1, "gpu 8");
    for name in ["first", "second"] {
        world.add(name, "q", 1, "gpu 8");
    }
    let named = |world: &mut World| {
        let changed = world.engine.take_changed().jobs;
        changed.contains(&key("second"))
    };
    named(&mut world);
    world.decide();
    assert!(named(&mut world), "it is stopped by quota");
    world.decide();
    assert!(!named(&mut world), "nothing is another");
    world.finish("old");
    world.apply(crate::world::foreign("a", "n0", "gpu 8"));
    world.decide();
    assert!(named(&mut world), "it is stopped by room");
    world.decide();
    assert!(!named(&mut world), "nothing is another");
}

#[test]
fn a_pod_is_described_by_its_device_else_its_cores_else_its_first_resource() {
    let mut world = World::new();
    world.cluster("a", 1, "cpu 1, memory 1Gi, ephemeral-storage 1Gi, slices 9");
    world.queue(queue("q"));
    let told = [
        "cpu 2, memory 2Gi, gpu 1",
        "cpu 2, memory 2Gi, gpu 0",
        "attachable 1, cpu 2",
        "cpu 0, ephemeral-storage 0, memory 2Gi, gpu 0",
    ];
    let told = told.map(|request| {
        world.add(request, "q", 1, request);
        world.decide();
        let why = world.why(request);
        let asks = why
            .split("needs ")
            .nth(1)
            .and_then(|why| why.split(';').next());
        asks.unwrap_or_default().to_owned()
    });
    assert_snapshot!(told.join("\n"), @r"
    1 pod × nvidia.com/gpu 1
    1 pod × cpu 2
    1 pod × cpu 2
    1 pod × memory 2Gi
    ");
}

#[test]
fn a_job_that_exceeds_bound_and_fleet_reports_the_bound() {
    let mut world = World::new();
    world.cluster("a", 1, "cpu 64, gpu 8");
    world.queue(capped("q", "gpu 8")).queue(queue("free"));
    world.add("old", "q", 1, "gpu 4");
    world.decide();
    // It exceeds the capability of the queue, and the fleet, as was found for another job.
    world.add("like-it", "free", 2, "gpu 8");
    world.decide();
    world.add("more-than-both", "q", 2, "gpu 8");
    // It is within the capability and larger than a node: no headroom would help.
    world.add("more-than-a-node", "q", 1, "cpu 65, gpu 8");
    world.decide();
    assert_snapshot!(world.why("more-than-both"), @"#1 ExceedsCapability: needs nvidia.com/gpu 16; queue q may use 8: 8 more than it may ever have");
    assert_snapshot!(world.why("more-than-a-node"), @"#2 ExceedsFleet: needs 1 pod × nvidia.com/gpu 8; a has room for 0 of 1; it would not fit even if they were empty");
}

#[test]
fn a_cluster_without_nodes_has_none_for_the_first_role_with_pods() {
    let mut world = World::new();
    world.cluster("a", 0, "").queue(queue("q"));
    let demand = gang(vec![role("spare", 0, "cpu 1"), role("worker", 1, "gpu 1")]);
    let job = world.job("job", "q", demand);
    world.submit(job);
    world.decide();
    assert_snapshot!(world.why("job"), @"#1 ExceedsFleet: needs 1 worker pod × nvidia.com/gpu 1; a has no usable node that its worker pods may run on; it would not fit even if they were empty");
}

#[test]
fn the_first_ten_pending_jobs_are_reported_when_the_bounds_of_their_queue_change() {
    let mut world = World::new();
    world.queue(capped("q", "gpu 4"));
    for index in 0..12 {
        world.add(&format!("waits-{index:02}"), "q", 1, "gpu 8");
    }
    world.decide();
    world.engine.take_changed();
    world.queue(capped("q", "gpu 5"));
    let changed = world.engine.take_changed().jobs;
    let changed: Vec<&str> = changed.iter().map(|key| key.name.as_ref()).collect();
    assert_eq!(changed.len(), 10, "{changed:?}");
    assert_eq!(changed.last(), Some(&"waits-09"));
}

#[test]
fn a_queue_that_does_not_exist_counts_as_closed() {
    let mut world = World::new();
    world.add("job", "nowhere", 1, "gpu 1");
    let closed = |name: &str| {
        let usage = world.engine.queue_usage(&engine::QueueName::from(name));
        usage.unwrap().closed.is_some()
    };
    assert!(closed("nowhere"));
    assert!(!closed("root"));
}

#[test]
fn the_resource_that_is_short_is_named_first_with_what_is_free() {
    let mut world = World::new();
    world.queue(queue("q"));
    world.cluster("a", 3, "cpu 16, ephemeral-storage 5Gi");
    world.cluster("b", 3, "cpu 1, ephemeral-storage 50Gi");
    let demand = gang(vec![
        role("pserver", 2, "cpu 2, ephemeral-storage 20Gi"),
        role("worker", 1, "cpu 1"),
    ]);
    let job = world.job("job", "q", demand);
    world.submit(job);
    world.decide();
    assert_snapshot!(world.why("job"), @"#1 ExceedsFleet: needs 2 pserver pods × ephemeral-storage 20Gi, cpu 2 and 1 worker pod × cpu 1; a has room for 0 of 2 pserver pods (ephemeral-storage: at most 5Gi free on a node), b has room for 0 of 2 pserver pods; it would not fit even if they were empty");
    // What runs counts, and what is reserved.
    let mut world = World::new();
    world.queue(queue("q"));
    world.cluster("a", 2, "cpu 16, ephemeral-storage 50Gi");
    world.add("runs", "q", 2, "cpu 1, ephemeral-storage 40Gi");
    world.decide();
    world.add("waits", "q", 2, "cpu 1, ephemeral-storage 20Gi");
    world.decide();
    assert_snapshot!(world.why("waits"), @"#1 NextInLine: needs 2 pods × ephemeral-storage 20Gi; a has room for 0 of 2 (ephemeral-storage: at most 10Gi free on a node); it is next: what becomes free is reserved for it");
}
