//! Jobs that change their size after their admission.

use crate::elastic::elastic;
use crate::facts::foreign;
use crate::sharing::fleet;
use crate::world::{World, capped, deserving, gang, key, pods, policy, queue, role};
use engine::facts::{Demand, Hold, JobFact, PolicyFact, QueueOrdering, QueueState};
use engine::{EngineConfig, Event, Progress, Reason};
use insta::assert_snapshot;

pub fn held(count: u32, request: &str) -> Demand {
    Demand {
        held: engine::facts::Held::ByReplicas,
        ..pods(count, request)
    }
}

/// An admitted job of two pods in a queue with a capability of four GPUs, and its fact.
fn released(demand: Demand) -> (World, JobFact) {
    let mut world = World::new();
    world
        .cluster("a", 2, "cpu 64, gpu 4")
        .queue(capped("q", "gpu 4"));
    let job = world.job("job", "q", demand);
    let fact = world.submit(job);
    world.decide();
    world.run("job");
    (world, fact)
}

fn resized(world: &mut World, fact: &JobFact, demand: Demand) {
    world.apply(Event::JobUpserted(JobFact {
        demand,
        ..fact.clone()
    }));
}

fn charged(world: &World) -> String {
    let job = world.engine.job(&key("job")).unwrap();
    let pods: Vec<String> = job.admission.unwrap().shares[0]
        .pods
        .iter()
        .map(|pods| format!("{}={}", pods.role, pods.count))
        .collect();
    let exceeds_grant = if job.exceeds_grant {
        " exceeds its grant"
    } else {
        ""
    };
    format!("{} {}{exceeds_grant}", pods.join(" "), world.allocated("q"))
}

#[test]
fn growth_is_granted_with_quota_and_capacity() {
    let (mut world, fact) = released(held(2, "gpu 1"));
    resized(&mut world, &fact, held(3, "gpu 1"));
    assert_snapshot!(world.decide(), @"resize job #1 a(n0×2 n0)");
    assert_snapshot!(charged(&world), @"worker=3 nvidia.com/gpu 3, pods 3");
}

#[test]
fn growth_waits_for_quota_and_capacity() {
    let (mut world, fact) = released(held(2, "gpu 1"));
    resized(&mut world, &fact, held(5, "gpu 1"));
    assert_snapshot!(world.decide(), @"");
    assert_snapshot!(world.why("job"), @"GrowthHeld: it runs as admitted; to grow it needs nvidia.com/gpu 3; queue q may use 4 and has 2 charged: short by 1");
    assert_snapshot!(charged(&world), @"worker=2 nvidia.com/gpu 2, pods 2");
    world.queue(capped("q", "gpu 5"));
    assert_snapshot!(world.decide(), @"resize job #1 a(n0×2 n0×2 n1)");
}

#[test]
fn a_shrink_frees_what_is_confirmed_gone() {
    let (mut world, fact) = released(held(4, "gpu 1"));
    resized(&mut world, &fact, held(1, "gpu 1"));
    assert_snapshot!(world.decide(), @"resize job #1 a(n0)");
    assert_snapshot!(charged(&world), @"worker=1 nvidia.com/gpu 4, pods 4");
    world.confirm("job", "a", 3);
    assert_snapshot!(charged(&world), @"worker=1 nvidia.com/gpu 3, pods 3");
    world.confirm("job", "a", 4);
    assert_snapshot!(charged(&world), @"worker=1 nvidia.com/gpu 3, pods 3");
    world.confirm("job", "a", 0);
    assert_snapshot!(charged(&world), @"worker=1 nvidia.com/gpu 1, pods 1");
}

#[test]
fn a_shrink_before_binding_frees_its_capacity() {
    let mut world = World::new();
    world.cluster("a", 2, "cpu 64, gpu 4").queue(queue("q"));
    let job = world.job("job", "q", held(8, "gpu 1"));
    let fact = world.submit(job);
    world.decide();
    resized(&mut world, &fact, held(2, "gpu 1"));
    world.add("next", "q", 1, "gpu 4");
    assert_snapshot!(world.decide(), @"resize job #1 a(n0×2)");
    // The member may still start the first size.
    assert_snapshot!(world.why("next"), @"#1 NextInLine: needs 1 pod × nvidia.com/gpu 4; a has room for 0 of 1; it is next: what becomes free is reserved for it");
    world.confirm("job", "a", 2);
    assert_snapshot!(world.decide(), @"release next #1 a(n1)");
}

#[test]
fn growth_that_nothing_holds_back_is_charged_at_once_even_beyond_capability() {
    let (mut world, fact) = released(pods(2, "gpu 1"));
    resized(&mut world, &fact, pods(6, "gpu 1"));
    assert_snapshot!(world.decide(), @"");
    assert_snapshot!(charged(&world), @"worker=6 nvidia.com/gpu 6, pods 6 exceeds its grant");
    assert!(world.engine.take_changed().jobs.contains(&key("job")));
    resized(&mut world, &fact, pods(2, "gpu 1"));
    world.decide();
    assert_snapshot!(charged(&world), @"worker=2 nvidia.com/gpu 2, pods 2");
}

#[test]
fn a_job_whose_size_is_enforced_no_longer_has_all_its_pods() {
    let mut world = World::new();
    world.cluster("a", 1, "cpu 64, gpu 2").queue(queue("q"));
    let job = world.job("job", "q", elastic(1, 4, "gpu 1"));
    let fact = world.submit(job);
    assert_snapshot!(world.decide(), @"release job #1 a(n0×2)");
    world.run("job");
    resized(&mut world, &fact, pods(4, "gpu 1"));
    world.decide();
    assert_snapshot!(charged(&world), @"worker=4 nvidia.com/gpu 4, pods 4 exceeds its grant");
}

#[test]
fn of_two_requests_the_larger_is_charged() {
    let (mut world, fact) = released(held(2, "gpu 1"));
    resized(&mut world, &fact, held(2, "gpu 2"));
    world.decide();
    assert_snapshot!(charged(&world), @"worker=2 nvidia.com/gpu 4, pods 2 exceeds its grant");
    resized(&mut world, &fact, held(2, "gpu 1"));
    world.decide();
    assert_snapshot!(charged(&world), @"worker=2 nvidia.com/gpu 4, pods 2 exceeds its grant");
    let (mut world, fact) = released(pods(2, "gpu 1"));
    resized(&mut world, &fact, pods(2, "gpu 2"));
    world.decide();
    assert_snapshot!(charged(&world), @"worker=2 nvidia.com/gpu 4, pods 2 exceeds its grant");
}

#[test]
fn larger_requests_of_a_role_without_pods_are_not_charged() {
    let two = |workers, request| {
        let launcher = role("launcher", 1, "gpu 1");
        gang(vec![launcher, role("worker", workers, request)])
    };
    let (mut world, fact) = released(two(2, "gpu 1"));
    assert_snapshot!(charged(&world), @"launcher=1 worker=2 nvidia.com/gpu 3, pods 3");
    resized(&mut world, &fact, two(0, "gpu 2"));
    let workers = world.pods.get_mut(&key("job")).unwrap().split_off(1);
    for worker in workers {
        world.apply(Event::PodGone(worker.cluster, worker.uid));
    }
    world.decide();
    assert_snapshot!(charged(&world), @"launcher=1 nvidia.com/gpu 1, pods 1");
}

#[test]
fn a_finished_job_does_not_grow() {
    let (mut world, fact) = released(held(2, "gpu 1"));
    world.finish("job");
    resized(&mut world, &fact, held(4, "gpu 1"));
    assert_snapshot!(world.decide(), @"");
    world.progress("job", Progress::Running);
    assert_snapshot!(world.decide(), @"resize job #1 a(n0×2 n0×2)");
    let (mut world, fact) = released(pods(2, "gpu 1"));
    world.finish("job");
    resized(&mut world, &fact, pods(4, "gpu 1"));
    assert_snapshot!(charged(&world), @"worker=2");
}

#[test]
fn the_fact_of_another_object_or_of_a_job_on_hold_does_not_change_the_charge() {
    for (uid, hold) in [("another", None), ("uid-job", Some(Reason::Suspended))] {
        let (mut world, fact) = released(pods(2, "gpu 1"));
        world.apply(Event::JobUpserted(JobFact {
            uid: uid.into(),
            hold: hold.map(|reason| engine::facts::Hold {
                reason,
                message: "because".to_owned(),
            }),
            demand: pods(4, "gpu 1"),
            ..fact
        }));
        assert_eq!(
            charged(&world),
            "worker=2 nvidia.com/gpu 2, pods 2",
            "{uid}"
        );
    }
}

#[test]
fn unbound_pods_of_a_job_without_enforced_size_follow_its_template() {
    for (pods_left, fit) in [(2, true), (3, false)] {
        let mut world = World::new();
        world.cluster("a", 2, "cpu 64, gpu 4").queue(queue("q"));
        let fact = world.add("job", "q", 2, "gpu 1");
        world.decide();
        resized(&mut world, &fact, pods(6, "gpu 1"));
        world.add("next", "q", pods_left, "gpu 1");
        assert_eq!(!world.decide().is_empty(), fit, "{pods_left}");
    }
}

#[test]
fn roles_stay_in_the_order_of_the_template_after_an_edit() {
    let of = |workers| {
        gang(vec![
            role("worker", workers, "gpu 1"),
            role("launcher", 1, "cpu 1"),
        ])
    };
    let (mut world, fact) = released(of(2));
    resized(&mut world, &fact, of(3));
    assert_snapshot!(charged(&world), @"worker=3 launcher=1 cpu 1, nvidia.com/gpu 3, pods 4 exceeds its grant");
}

#[test]
fn assumed_pods_of_a_role_do_not_depend_on_the_order_of_roles() {
    let mut world = World::new();
    world.cluster("a", 2, "cpu 64, gpu 4").queue(queue("q"));
    let of = |roles: Vec<engine::facts::Role>| Demand {
        held: engine::facts::Held::ByReplicas,
        ..gang(roles)
    };
    let server = role("server", 1, "cpu 4");
    let before = of(vec![server.clone(), role("worker", 2, "gpu 1")]);
    let job = world.job("job", "q", before);
    let fact = world.submit(job);
    world.decide();
    world.progress("job", Progress::Running);
    resized(
        &mut world,
        &fact,
        of(vec![role("worker", 3, "gpu 1"), server]),
    );
    assert_snapshot!(world.decide(), @"resize job #1 a(n0×2 n0 n0)");
    let assumed = world.engine.fleet().pools()[0].assumed.to_string();
    assert_snapshot!(assumed, @"cpu 4, nvidia.com/gpu 3, pods 4");
}

#[test]
fn an_elastic_gang_grows_when_its_pods_become_small_enough() {
    let mut world = World::new();
    world.cluster("a", 2, "cpu 64, gpu 8").queue(queue("q"));
    let job = world.job("job", "q", elastic(1, 3, "gpu 5"));
    let fact = world.submit(job);
    assert_snapshot!(world.decide(), @"release job #1 a(n0 n1)");
    world.run("job");
    let smaller = JobFact {
        demand: elastic(1, 3, "gpu 1"),
        ..fact
    };
    world.apply(Event::JobUpserted(smaller));
    assert_snapshot!(world.decide(), @"resize job #1 a(n0 n1 n0)");
}

#[test]
fn a_gang_whose_pods_became_small_enough_grows_though_another_job_is_deleted() {
    let mut world = World::new();
    world.cluster("a", 2, "cpu 64, gpu 8").queue(queue("q"));
    let job = world.job("job", "q", elastic(1, 3, "gpu 5"));
    let fact = world.submit(job);
    world.add("waits", "q", 1, "gpu 9");
    assert_snapshot!(world.decide(), @"release job #1 a(n0 n1)");
    world.run("job");
    world.apply(Event::JobUpserted(JobFact {
        demand: elastic(1, 3, "gpu 1"),
        ..fact
    }));
    // It was shrunk for no job.
    world.apply(Event::JobGone(key("waits")));
    assert_snapshot!(world.decide(), @"resize job #1 a(n0 n1 n0)");
}

#[test]
fn a_pending_job_gets_what_a_gang_with_smaller_pods_leaves() {
    let mut world = World::new();
    world.cluster("a", 1, "cpu 8, gpu 6").queue(queue("q"));
    let job = world.job("job", "q", elastic(1, 1, "cpu 1, gpu 3"));
    let fact = world.submit(job);
    assert_snapshot!(world.decide(), @"release job #1 a(n0)");
    resized(&mut world, &fact, elastic(1, 2, "cpu 2"));
    world.add("next", "q", 1, "gpu 5");
    let decided = world.decided();
    assert_eq!(decided.decisions.len(), 1, "{decided:?}");
    assert!(decided.more, "{decided:?}");
    let decided = world.decided();
    assert_eq!(decided.decisions.len(), 1, "{decided:?}");
    assert!(!decided.more, "{decided:?}");
}

#[test]
fn a_gang_grows_into_nothing_that_a_job_could_have_that_a_later_call_evaluates() {
    let mut world = World::with(EngineConfig {
        evaluation_budget: 1,
        ..EngineConfig::default()
    });
    world.cluster("a", 2, "cpu 64, gpu 4").queue(queue("q"));
    world.policy(PolicyFact {
        ordering: QueueOrdering::BestEffort,
        ..policy("q")
    });
    world.apply(foreign("a", "n0", "gpu 3"));
    world.apply(foreign("a", "n1", "gpu 4"));
    let job = world.job("gang", "q", elastic(1, 3, "gpu 1"));
    world.submit(job);
    assert_snapshot!(world.decide(), @"release gang #1 a(n0)");
    world.run("gang");
    // What becomes free may be enough for it as far as GPUs go, so that it is evaluated.
    world.add("large", "q", 2, "cpu 40, gpu 1");
    world.add("small", "q", 1, "gpu 3");
    while world.decided().more {}
    let Event::PodUpserted(ended) = foreign("a", "n0", "gpu 3") else {
        panic!("a pod");
    };
    world.apply(Event::PodGone(ended.cluster, ended.uid));
    let first = world.decided();
    assert!(first.decisions.is_empty() && first.more, "{first:?}");
    assert_snapshot!(world.decide(), @"release small #1 a(n0)");
}

#[test]
fn a_gang_scales_up_again_when_the_job_it_was_shrunk_for_is_not_pending() {
    for gone in [true, false] {
        let mut world = World::new();
        world
            .cluster("a", 1, "cpu 64, gpu 8")
            .queue(deserving("due", "gpu 4"))
            .queue(queue("q"));
        let job = world.job("gives", "q", elastic(1, 2, "gpu 4"));
        world.submit(job);
        world.decide();
        world.run("gives");
        let preemptor = world.add("preemptor", "due", 1, "gpu 4");
        assert_eq!(world.decide(), "resize gives #1 a(n0)");
        world.resized("gives");
        // Its queue is closed: it has no reservation any more.
        let mut closed = deserving("due", "gpu 4");
        closed.state = QueueState::Closed;
        world.queue(closed);
        assert_eq!(world.decide(), "");
        if gone {
            world.apply(Event::JobGone(key("preemptor")));
        } else {
            world.apply(Event::JobUpserted(JobFact {
                hold: Some(Hold {
                    reason: Reason::Suspended,
                    message: "by its owner".to_owned(),
                }),
                ..preemptor
            }));
        }
        assert_eq!(world.decide(), "resize gives #1 a(n0 n0)");
    }
}

#[test]
fn terminating_pods_of_an_earlier_process_are_charged_until_they_are_gone() {
    let (mut world, _) = released(held(1, "gpu 1"));
    let leaving = engine::facts::Leaving {
        cluster: "a".into(),
        role: "worker".to_owned(),
        count: 2,
        request: crate::world::res("gpu 1, pods 1"),
        charge: [("gpu".into(), crate::world::res("gpu 2, pods 2"))].into(),
    };
    let told = |attempt| Event::JobLeaving {
        key: key("job"),
        attempt: engine::Attempt(attempt),
        leaving: vec![leaving.clone()],
    };
    for (event, allocated) in [
        (told(2), "nvidia.com/gpu 1, pods 1"),
        (told(1), "nvidia.com/gpu 3, pods 3"),
        (told(1), "nvidia.com/gpu 3, pods 3"),
    ] {
        world.apply(event);
        assert_eq!(world.allocated("q"), allocated);
    }
    world.confirm("job", "a", 2);
    assert_eq!(world.allocated("q"), "nvidia.com/gpu 2, pods 2");
    world.confirm("job", "a", 1);
    assert_eq!(world.allocated("q"), "nvidia.com/gpu 1, pods 1");
}

#[test]
fn a_job_that_runs_again_is_charged_and_the_exceeded_bound_is_reported() {
    for (again, allocated, passed) in [
        (Progress::Finished, "nvidia.com/gpu 4, pods 2", None),
        (Progress::Placed, "nvidia.com/gpu 8, pods 4", Some(())),
        (Progress::Running, "nvidia.com/gpu 8, pods 4", Some(())),
    ] {
        let (mut world, _) = released(held(2, "gpu 2"));
        assert_eq!(world.engine.bound_passed_by(&key("job")), None);
        world.progress("job", Progress::Finished);
        let other = world.job("other", "q", held(2, "gpu 2"));
        world.submit(other);
        world.decide();
        world.progress("job", again);
        assert_eq!(world.allocated("q"), allocated);
        let said = world.engine.bound_passed_by(&key("job"));
        let named = "queue q may use nvidia.com/gpu 4 and has 8 charged".to_owned();
        assert_eq!(said, passed.map(|()| named), "{again:?}");
    }
}

/// Growth passes a reservation as an admission does: if it ends in time by its declared run time, rounded up.
#[test]
fn growth_beside_a_reservation_counts_a_declared_run_time_as_an_admission_does() {
    let resizes = |minutes: i64| {
        let mut world = fleet(8);
        world.queue(queue("q")).queue(queue("other"));
        let old = world.job("old", "other", pods(5, "gpu 1")).lasts(63 * 60);
        world.submit(old);
        let grows = |world: &mut World, count| {
            let job = world.job("grows", "q", held(count, "gpu 1"));
            world.submit(job.lasts(minutes * 60));
        };
        grows(&mut world, 1);
        world.decide();
        world.run("old");
        world.run("grows");
        let wide = world.job("wide", "q", pods(7, "gpu 1")).priority("high");
        world.submit(wide);
        world.decide();
        assert!(world.why("wide").contains("it is next"));
        grows(&mut world, 2);
        world.decide()
    };
    assert_eq!(resizes(60), "resize grows #1 a(n5 n6)");
    // 61 minutes count as 65.
    assert_eq!(resizes(61), "");
}
