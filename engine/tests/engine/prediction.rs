//! Run times that are not declared: predictions from similar jobs order, reserve and backfill.

use crate::world::{World, key, pods, policy, queue};
use engine::facts::{QueueFact, QueueOrdering};
use engine::{Engine, EngineConfig, JobState};
use insta::assert_snapshot;

fn shortest(name: &str) -> engine::facts::PolicyFact {
    let mut policy = policy(name);
    policy.ordering = QueueOrdering::ShortestPredicted;
    policy
}

/// One node of eight GPUs, and a queue with the order ShortestPredicted.
fn short_first() -> World {
    let mut world = World::new();
    world.cluster("a", 1, "cpu 64, gpu 8").queue(queue("q"));
    world.policy(shortest("q"));
    world
}

/// Runs jobs of this user and size to their end, one after the other.
fn ran(world: &mut World, user: &str, gpus: u32, seconds: &[i64]) {
    for (index, seconds) in seconds.iter().enumerate() {
        let name = format!("past-{user}-{gpus}-{index}");
        let job = world
            .job(&name, "q", pods(1, &format!("gpu {gpus}")))
            .user(user);
        world.submit(job);
        world.decide();
        world.run(&name);
        world.wait(*seconds);
        world.finish(&name);
        world.apply(engine::Event::JobGone(key(&name)));
    }
}

fn submit(world: &mut World, name: &str, user: &str, gpus: u32) {
    let job = world
        .job(name, "q", pods(1, &format!("gpu {gpus}")))
        .user(user);
    world.submit(job);
}

/// Runs all pending jobs one after the other, and returns their order.
fn turns(world: &mut World) -> String {
    let mut turns = Vec::new();
    loop {
        let decided = world.decided();
        if decided.decisions.is_empty() {
            return turns.join(" ");
        }
        for decision in decided.decisions {
            let engine::Decision::Release { key, .. } = decision else {
                continue;
            };
            world.run(&key.name);
            world.wait(1);
            world.finish(&key.name);
            turns.push(key.name.to_string());
        }
    }
}

#[test]
fn a_job_that_is_predicted_to_be_short_starts_first() {
    let mut world = short_first();
    ran(&mut world, "slow", 8, &[900, 1000, 1100]);
    ran(&mut world, "fast", 8, &[9, 10, 11]);
    submit(&mut world, "slow-1", "slow", 8);
    submit(&mut world, "fast-1", "fast", 8);
    submit(&mut world, "fast-2", "fast", 8);
    assert_snapshot!(turns(&mut world), @"fast-1 fast-2 slow-1");
}

#[test]
fn a_declared_run_time_counts_before_a_predicted_one() {
    let mut world = short_first();
    ran(&mut world, "u", 8, &[1000, 1000, 1000]);
    submit(&mut world, "as-ever", "u", 8);
    let brief = world
        .job("declared", "q", pods(1, "gpu 8"))
        .user("u")
        .lasts(5);
    world.submit(brief);
    assert_snapshot!(turns(&mut world), @"declared as-ever");
}

#[test]
fn no_job_is_passed_by_one_queued_later_than_ageing_times_its_prediction() {
    // 24 × 100 s: a job that is queued 2,400 s later stays behind it, however short it is.
    let mut world = short_first();
    let hundred = world.job("hundred", "q", pods(1, "gpu 8")).lasts(100);
    let queued_at = hundred.0.queued_at;
    world.submit(hundred);
    for (name, after) in [("in-time", 2375), ("too-late", 2377)] {
        let mut job = world.job(name, "q", pods(1, "gpu 8")).lasts(1);
        job.0.queued_at = queued_at.after(after * 1000);
        world.submit(job);
    }
    assert_snapshot!(turns(&mut world), @"in-time hundred too-late");
}

#[test]
fn a_prediction_uses_the_most_specific_kind_with_enough_runs() {
    let mut world = short_first();
    // Two runs of this user are known, and five of the queue with this size: 0.4 × 1000 s.
    ran(&mut world, "known", 8, &[10, 10, 10]);
    ran(&mut world, "rare", 8, &[985, 985]);
    submit(&mut world, "rare-1", "rare", 8);
    let middle = world.job("declares-300", "q", pods(1, "gpu 8")).lasts(300);
    world.submit(middle);
    let longer = world.job("declares-500", "q", pods(1, "gpu 8")).lasts(500);
    world.submit(longer);
    assert_snapshot!(turns(&mut world), @"declares-300 rare-1 declares-500");
}

#[test]
fn a_pending_job_keeps_its_first_prediction() {
    let mut world = short_first();
    submit(&mut world, "holder", "other", 8);
    world.decide();
    let early = world.job("early", "q", pods(1, "gpu 8")).lasts(1800);
    world.submit(early);
    // Nothing is known yet: an hour is assumed, so it is behind the half hour.
    submit(&mut world, "unknown", "u", 8);
    assert_eq!(
        world.engine.explain(&key("unknown")).unwrap().position,
        Some(2)
    );
    world.run("holder");
    world.wait(10);
    world.finish("holder");
    assert_eq!(
        world.engine.explain(&key("unknown")).unwrap().position,
        Some(2)
    );
}

#[test]
fn runs_survive_a_snapshot() {
    let mut world = short_first();
    ran(&mut world, "slow", 8, &[900, 1000, 1100]);
    ran(&mut world, "fast", 8, &[9, 10, 11]);
    let text = serde_json::to_string(&world.engine.snapshot()).unwrap();
    let snapshot = serde_json::from_str(&text).unwrap();
    world.engine = Engine::restore(snapshot, EngineConfig::default());
    submit(&mut world, "slow-1", "slow", 8);
    submit(&mut world, "fast-1", "fast", 8);
    assert_snapshot!(turns(&mut world), @"fast-1 slow-1");
}

/// Two nodes, and similar jobs that took `seconds`. One of them runs; the head needs both nodes.
fn predicted_head(seconds: &[i64]) -> World {
    let mut world = World::new();
    world.cluster("a", 2, "cpu 64, gpu 8").queue(queue("q"));
    ran(&mut world, "u", 8, seconds);
    ran(&mut world, "brief", 8, &[50; 10]);
    ran(&mut world, "longer", 8, &[70; 10]);
    submit(&mut world, "old", "u", 8);
    world.decide();
    world.run("old");
    world.add("head", "q", 2, "gpu 8");
    world
}

#[test]
fn short_jobs_pass_the_head_until_a_predicted_end() {
    let mut world = predicted_head(&[100; 10]);
    let short = world.job("short", "q", pods(1, "gpu 8")).lasts(100);
    let long = world.job("long", "q", pods(1, "gpu 8")).lasts(101);
    world.submit(long);
    world.submit(short);
    assert_snapshot!(world.decide(), @"release short #1 a(n1)");
}

/// Submits a job of one node that declares its run time, and decides.
fn short(world: &mut World, name: &str, seconds: i64) -> String {
    let job = world.job(name, "q", pods(1, "gpu 8")).lasts(seconds);
    world.submit(job);
    world.decide()
}

#[test]
fn a_job_that_runs_longer_than_any_is_expected_to_run_half_as_long_again() {
    let mut world = predicted_head(&[100; 10]);
    world.decide();
    world.wait(100);
    assert_snapshot!(short(&mut world, "too-long", 51), @"");
    // It is not stopped.
    assert_eq!(world.state("old"), JobState::Running);
    let wake = world.engine.decide(world.now).wake_at.unwrap();
    assert_eq!(wake.millis_since(world.now), 50_000);
    assert_snapshot!(short(&mut world, "one", 50), @"release one #1 a(n1)");
}

#[test]
fn an_overdue_end_is_expected_by_the_runs_that_were_longer() {
    // Three of four runs took 300 s or less, and three of four of those that took longer 600 s or less.
    let runs = [
        100, 100, 100, 100, 200, 200, 200, 300, 300, 400, 500, 600, 700,
    ];
    for (elapsed, end) in [(0, 400), (399, 400), (400, 700), (700, 1050)] {
        let mut world = predicted_head(&runs);
        world.decide();
        world.wait(elapsed);
        let left = end - elapsed;
        assert_eq!(short(&mut world, "too-long", left + 1), "", "{elapsed} s");
        let one = short(&mut world, "one", left);
        assert_eq!(one, "release one #1 a(n1)", "{elapsed} s");
    }
}

/// Nothing is known of the first jobs of a fleet when they are admitted.
#[test]
fn jobs_get_an_expected_end_when_the_first_runs_have_ended() {
    let mut world = World::new();
    world.cluster("a", 4, "cpu 64, gpu 8").queue(queue("q"));
    for name in ["old", "one", "two", "three"] {
        submit(&mut world, name, "u", 8);
    }
    world.decide();
    for name in ["old", "one", "two", "three"] {
        world.run(name);
    }
    world.add("head", "q", 4, "gpu 8");
    world.wait(100);
    for name in ["one", "two"] {
        world.finish(name);
        assert_eq!(short(&mut world, &format!("after-{name}"), 1), "");
    }
    world.finish("three");
    assert_eq!(
        short(&mut world, "too-long", 51),
        "release after-one #1 a(n1)\nrelease after-two #1 a(n2)"
    );
    assert_eq!(
        short(&mut world, "one-more", 50),
        "release one-more #1 a(n3)"
    );
    assert_eq!(world.engine.check_invariants(), [""; 0]);
}

/// Nothing was known of the short job when it was queued. It once waited for ever behind a head that waits for long.
#[test]
fn jobs_that_were_queued_before_the_first_runs_ended_are_predicted_then() {
    let mut world = World::new();
    world.cluster("a", 5, "cpu 64, gpu 8").queue(queue("q"));
    let old = world.job("old", "q", pods(1, "gpu 8")).lasts(1_000);
    world.submit(old);
    for name in ["one", "two", "three"] {
        submit(&mut world, name, "u", 8);
    }
    world.decide();
    for name in ["old", "one", "two", "three"] {
        world.run(name);
    }
    world.add("head", "q", 5, "gpu 8");
    submit(&mut world, "short", "u", 8);
    assert_eq!(world.decide(), "");
    world.wait(100);
    for name in ["one", "two"] {
        world.finish(name);
        assert_eq!(world.decide(), "");
    }
    world.finish("three");
    let released = world.decide();
    assert!(released.contains("release short #1"), "{released}");
    assert_eq!(world.engine.check_invariants(), [""; 0]);
}

#[test]
fn a_prediction_is_at_most_the_limit_of_the_queue() {
    let mut world = World::new();
    world.cluster("a", 2, "cpu 64, gpu 8").queue(queue("q"));
    ran(&mut world, "u", 8, &[1000, 1000, 1000]);
    let mut limited = policy("q");
    limited.limits.runtime_ms = Some(50_000);
    world.policy(limited);
    submit(&mut world, "old", "u", 8);
    world.decide();
    world.run("old");
    world.add("head", "q", 2, "gpu 8");
    let job = world.job("short", "q", pods(1, "gpu 8")).lasts(51);
    world.submit(job);
    assert_snapshot!(world.decide(), @"");
}

#[test]
fn a_change_of_the_ordering_reorders_pending_jobs() {
    let mut world = World::new();
    world.cluster("a", 1, "cpu 64, gpu 8");
    world.queue(QueueFact { ..queue("q") });
    world.add("busy", "q", 1, "gpu 8");
    world.decide();
    for (name, seconds) in [("long", 1000), ("short", 10)] {
        let job = world.job(name, "q", pods(1, "gpu 8")).lasts(seconds);
        world.submit(job);
    }
    let position = |world: &World| world.engine.explain(&key("short")).unwrap().position;
    assert_eq!(position(&world), Some(2));
    world.policy(shortest("q"));
    assert_eq!(position(&world), Some(1));
    world.apply(engine::Event::PolicyGone("q".into()));
    assert_eq!(position(&world), Some(2));
}

#[test]
fn a_job_that_is_predicted_to_end_before_the_head_starts_passes_it() {
    let mut world = predicted_head(&[100; 10]);
    // Similar jobs took 70 s, rounded up to 128; those of the other 50 s, rounded up to 64.
    submit(&mut world, "too-long", "longer", 8);
    submit(&mut world, "short", "brief", 8);
    assert_snapshot!(world.decide(), @"release short #1 a(n1)");
}

#[test]
fn a_changed_job_is_predicted_again() {
    for (gpus, first) in [(8, "waits edited"), (4, "edited waits")] {
        let mut world = short_first();
        ran(&mut world, "u", 8, &[1000, 1000, 1000]);
        ran(&mut world, "u", 4, &[10, 10, 10]);
        world.runs("holder", "q", 1, "gpu 8");
        let edited = world.job("edited", "q", pods(1, "gpu 8")).user("u");
        let mut edited = world.submit(edited);
        let waits = world.job("waits", "q", pods(1, "gpu 8")).lasts(300);
        world.submit(waits);
        world.decide();
        edited.demand = pods(1, &format!("gpu {gpus}"));
        world.apply(engine::Event::JobUpserted(edited));
        world.finish("holder");
        assert_eq!(turns(&mut world), first);
    }
}
