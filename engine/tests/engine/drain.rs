//! NoExecute taints of clusters, and queues that are stopped.

use crate::world::{World, below, cluster, key, pods, policy, queue};
use engine::facts::{Demand, PolicyFact, Split, StopPolicy};
use engine::matching::{Taint, TaintEffect, Toleration};
use engine::{Engine, EngineConfig, Event, JobState, Progress, Reason};
use insta::assert_snapshot;

fn world() -> World {
    let mut world = World::new();
    world.queue(queue("q"));
    for name in ["a", "b"] {
        world.cluster(name, 2, "cpu 64, gpu 8");
    }
    world
}

fn drain(world: &mut World, name: &str, effect: Option<TaintEffect>) {
    let mut fact = cluster(name);
    fact.taints = effect
        .map(|effect| Taint {
            key: "muster.io/drain".into(),
            value: String::new(),
            effect,
        })
        .into_iter()
        .collect();
    world.apply(Event::ClusterUpserted(fact));
}

#[test]
fn jobs_in_a_tainted_cluster_are_evicted_and_start_elsewhere_at_once() {
    let mut world = world();
    let wide = Demand {
        split: Split::Allowed,
        ..pods(3, "gpu 8")
    };
    let job = world.job("wide", "q", wide);
    world.submit(job);
    assert_snapshot!(world.decide(), @"release wide #1 a(n0 n1) b(n0)");
    world.run("wide");
    drain(&mut world, "b", Some(TaintEffect::NoSchedule));
    assert_snapshot!(world.decide(), @"");
    drain(&mut world, "b", Some(TaintEffect::NoExecute));
    assert_snapshot!(world.decide(), @"evict wide #1: ClusterDrained: cluster b is being emptied (taint muster.io/drain:NoExecute)");
    assert_eq!(world.state("wide"), JobState::Ending);
    world.works_gone("wide");
    assert_snapshot!(world.decide(), @"");
    assert_snapshot!(world.why("wide"), @"#1 ExceedsFleet: needs 3 pods × nvidia.com/gpu 8; a has room for 2 of 3; it would not fit even if they were empty");
    drain(&mut world, "b", None);
    // There is no back-off, since the job did not fail.
    assert_snapshot!(world.decide(), @"release wide #2 a(n0 n1) b(n0)");
}

#[test]
fn a_job_that_runs_again_in_a_tainted_cluster_is_evicted() {
    let mut world = world();
    world.runs("again", "q", 1, "gpu 8");
    world.progress("again", Progress::Finished);
    drain(&mut world, "a", Some(TaintEffect::NoExecute));
    assert_snapshot!(world.decide(), @"");
    world.progress("again", Progress::Running);
    assert_snapshot!(world.decide(), @"evict again #1: ClusterDrained: cluster a is being emptied (taint muster.io/drain:NoExecute)");
}

#[test]
fn a_job_that_tolerates_the_taint_stays() {
    let mut world = world();
    let mut demand = pods(1, "gpu 8");
    demand.placement.tolerations = vec![Toleration {
        key: "muster.io/drain".into(),
        value: None,
        effect: None,
    }];
    let job = world.job("stays", "q", demand);
    world.submit(job);
    world.add("leaves", "q", 1, "gpu 8");
    world.decide();
    world.run("stays");
    world.run("leaves");
    drain(&mut world, "a", Some(TaintEffect::NoExecute));
    drain(&mut world, "b", Some(TaintEffect::NoExecute));
    assert_snapshot!(world.decide(), @"evict leaves #1: ClusterDrained: cluster a is being emptied (taint muster.io/drain:NoExecute)");
    assert_eq!(world.state("stays"), JobState::Running);
    // The same fact again changes nothing.
    drain(&mut world, "a", Some(TaintEffect::NoExecute));
    assert_snapshot!(world.decide(), @"");
}

#[test]
fn an_admission_from_a_record_is_evicted_once_its_tolerations_are_known() {
    let mut world = world();
    world.add("job", "q", 1, "gpu 8");
    world.decide();
    let admission = world.engine.job(&key("job")).unwrap().admission.cloned();
    // Another process starts while the cluster is tainted.
    let mut after = self::world();
    drain(&mut after, "a", Some(TaintEffect::NoExecute));
    after.apply(Event::JobAdmitted {
        key: key("job"),
        admission: admission.unwrap(),
        progress: engine::Progress::Running,
    });
    assert_snapshot!(after.decide(), @"");
    after.add("job", "q", 1, "gpu 8");
    assert_snapshot!(after.decide(), @"evict job #1: ClusterDrained: cluster a is being emptied (taint muster.io/drain:NoExecute)");
}

fn stopped(stop: Option<StopPolicy>) -> PolicyFact {
    PolicyFact {
        stop,
        ..policy("q")
    }
}

#[test]
fn a_queue_on_hold_admits_nothing_and_what_runs_continues() {
    let mut world = world();
    world.runs("runs", "q", 1, "gpu 8");
    world.policy(stopped(Some(StopPolicy::Hold)));
    world.add("waits", "q", 1, "gpu 8");
    assert_snapshot!(world.decide(), @"");
    assert_snapshot!(world.why("waits"), @r#"#1 QueueStopped: queue q is stopped: spec.stopPolicy of capacitypolicy q is Hold; users who may change that policy resume the queue with: kubectl patch capacitypolicy q --type merge -p '{"spec":{"stopPolicy":"None"}}'"#);
    assert_eq!(world.state("runs"), JobState::Running);
    let closed = world.engine.queue_usage(&"q".into()).unwrap().closed;
    assert_eq!(closed.unwrap().0, Reason::QueueStopped);
    world.policy(stopped(None));
    assert_snapshot!(world.decide(), @"release waits #1 a(n1)");
}

#[test]
fn a_drained_queue_evicts_its_jobs_which_come_back_first() {
    let mut world = world();
    let mut whole = world.job("whole", "q", pods(2, "gpu 8"));
    whole.0.preemptible = false;
    world.submit(whole);
    world.decide();
    world.run("whole");
    world.runs("later", "q", 2, "gpu 8");
    world.policy(stopped(Some(StopPolicy::HoldAndDrain)));
    assert_snapshot!(world.decide(), @r"
    evict later #1: QueueStopped: queue q is being drained: spec.stopPolicy of capacitypolicy q is HoldAndDrain
    evict whole #1: QueueStopped: queue q is being drained: spec.stopPolicy of capacitypolicy q is HoldAndDrain
    ");
    // A repeated fact evicts nothing twice.
    world.policy(stopped(Some(StopPolicy::HoldAndDrain)));
    assert_snapshot!(world.decide(), @"");
    world.works_gone("later");
    world.works_gone("whole");
    assert_snapshot!(world.decide(), @"");
    assert!(world.why("whole").starts_with("#1 QueueStopped"));
    assert!(world.why("later").starts_with("#2 QueueStopped"));
    world.policy(stopped(None));
    // Each at its old place, and without a back-off.
    assert_snapshot!(world.decide(), @r"
    release whole #2 a(n0 n1)
    release later #2 b(n0 n1)
    ");
}

#[test]
fn a_job_that_is_found_in_a_drained_queue_is_evicted() {
    let mut world = world();
    world.add("job", "q", 1, "gpu 8");
    world.decide();
    let admission = world.engine.job(&key("job")).unwrap().admission.cloned();
    // Another process starts while the queue is drained.
    let mut after = self::world();
    after.policy(stopped(Some(StopPolicy::HoldAndDrain)));
    assert_snapshot!(after.decide(), @"");
    after.apply(Event::JobAdmitted {
        key: key("job"),
        admission: admission.unwrap(),
        progress: engine::Progress::Running,
    });
    assert_snapshot!(after.decide(), @"evict job #1: QueueStopped: queue q is being drained: spec.stopPolicy of capacitypolicy q is HoldAndDrain");
}

#[test]
fn a_restored_engine_goes_on_draining() {
    let mut world = world();
    world.runs("runs", "q", 1, "gpu 8");
    world.policy(stopped(Some(StopPolicy::HoldAndDrain)));
    let mut restored = Engine::restore(world.engine.snapshot(), EngineConfig::default());
    assert_eq!(restored.decide(world.now).decisions.len(), 1);
}

#[test]
fn the_stop_of_a_queue_concerns_its_own_jobs_only() {
    let mut world = world();
    world.queue(below("q", queue("child")));
    world.policy(stopped(Some(StopPolicy::HoldAndDrain)));
    world.add("job", "child", 1, "gpu 8");
    assert_snapshot!(world.decide(), @"release job #1 a(n0)");
}
