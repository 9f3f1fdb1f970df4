//! Inputs on which the engine once decided wrongly, each with bounds on what is right.

#![allow(clippy::unwrap_used)]

mod common;

use common::{Files, run_with};
use sim::input::read_scenario;
use sim::metrics::{Distribution, RunMetrics};
use sim::scenario::ScenarioOverrides;
use std::path::{Path, PathBuf};

const HOUR: f64 = 3600.0;

fn case(name: &str) -> PathBuf {
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    cases.join(name)
}

/// The metrics of a case as `muster simulate` runs it.
fn run_case(name: &str) -> RunMetrics {
    let folder = case(name);
    let queues = folder.join("queues.yaml");
    run_files(&folder, &queues)
}

fn run_files(folder: &Path, queues: &Path) -> RunMetrics {
    let (fleet, jobs) = (folder.join("fleet.yaml"), folder.join("jobs.yaml"));
    let mut scenario = read_scenario(&fleet, Some(queues), &jobs).unwrap().what;
    scenario.change(&ScenarioOverrides::default());
    run_with(&scenario, false).0
}

fn wait_of<'a>(metrics: &'a RunMetrics, size: &str) -> &'a Distribution {
    let mut sizes = metrics.wait_by_size.iter();
    &sizes.find(|of| of.size == size).unwrap().wait
}

/// A reservation is only on nodes that its owner may use together: of one rack.
#[test]
fn a_gang_that_must_be_in_one_rack_reserves_one_rack() {
    let metrics = run_case("rack-reservation");
    // The ends of the first jobs are not known, so it begins with a rack that is not the best, and moves.
    assert!(wait_of(&metrics, "9-16").max <= 2.0 * HOUR, "{metrics:?}");
    assert!(
        wait_of(&metrics, "5-8").average <= 2.0 * HOUR,
        "{metrics:?}"
    );
    assert!(metrics.use_in_window >= 0.97, "{metrics:?}");
}

/// The same with bounds of the queue on a class of nodes.
#[test]
fn nothing_is_reserved_on_nodes_that_the_queue_may_not_use() {
    let metrics = run_case("pool-bound-reservation");
    assert!(wait_of(&metrics, "9-16").max <= HOUR, "{metrics:?}");
    assert!(metrics.use_in_window >= 0.98, "{metrics:?}");
}

/// The first job of a queue waits long for one class of nodes: the first job of another class has a reservation.
#[test]
fn the_first_job_of_each_class_of_nodes_may_reserve() {
    let metrics = run_case("class-head");
    assert!(wait_of(&metrics, "17-32").max <= HOUR, "{metrics:?}");
}

/// Gangs of other kinds on fleets that jobs of one node keep busy: the longest wait of a size of jobs, in hours, and
/// the least use. Each has jobs of 1,000 hours, or bounds, on what it must not wait for.
#[test]
fn gangs_of_other_kinds_start_soon_and_keep_the_fleet_busy() {
    for (name, size, hours, least) in [
        // Four nodes of one zone, in racks of two.
        ("two-tiers", "17-32", 1.0, 0.96),
        // A bound on a class at the parent of its queue.
        ("ancestor-bound", "9-16", 1.0, 0.98),
        // Over several clusters within a bound on the class of one, of which its queue uses half for two hours.
        ("bound-split", "17-32", 2.0, 0.90),
        // Over two clusters at most, of four.
        ("max-clusters", "17-32", 1.0, 0.93),
        // Roles on different classes.
        ("roles", "17-32", 1.0, 0.95),
        // Short of quota, and of nodes of one rack.
        ("quota-rack", "9-16", 1.0, 0.84),
        // Ten gangs of a rack each among short and long jobs.
        ("mixed-runs", "17-32", 1.0, 0.84),
        // Three classes. A gang that waits for a job of 1,000 hours is before the gang of one class, which was queued
        // before any run was known.
        ("three-classes", "9-16", 3.0, 0.97),
    ] {
        let metrics = run_case(name);
        let longest = wait_of(&metrics, size).max / HOUR;
        assert!(longest <= hours, "{name}: {longest} h");
        let used = metrics.use_in_window;
        assert!(used >= least, "{name}: {used}");
    }
}

/// Evictions end also where jobs reclaim, preempt and are overdue at once, in four queues, and with a least run time.
#[test]
fn evictions_of_several_kinds_end() {
    for (name, jobs) in [("four-queues", 17), ("min-runtime", 12)] {
        let metrics = run_case(name);
        assert_eq!(metrics.finished, jobs, "{name}");
        assert!(
            metrics.decisions.evicted <= jobs as u64,
            "{name}: {metrics:?}"
        );
    }
}

#[test]
fn jobs_that_run_longer_than_declared_do_not_evict_each_other_for_ever() {
    let metrics = run_case("overdue-pingpong");
    assert_eq!(metrics.finished, 2);
    // The first is evicted after an hour; the other one then runs to its end.
    assert!(metrics.completion.p50 <= 140.0 * 60.0, "{metrics:?}");
}

#[test]
fn three_queues_do_not_reclaim_from_each_other_for_ever() {
    let metrics = run_case("reclaim-circle");
    assert_eq!(metrics.finished, 7);
    assert!(metrics.decisions.evicted <= 12, "{metrics:?}");
    assert!(metrics.completion.p50 <= 180.0, "{metrics:?}");
}

/// Two queues below their deserved amounts always have a blocked gang; a third one's gang waits for the slot that goes
/// by age.
#[test]
fn the_oldest_gang_has_a_slot_whatever_its_queue_deserves() {
    let files = Files::new();
    files.with(
        "fleet.yaml",
        "clusters: [{name: a, nodes: [{count: 24, class: gpu, gpus: 8, cpu: 64, memory: 512Gi}]}]",
    );
    let jobs = files.with(
        "jobs.yaml",
        "jobs:
  - {name: small, queue: c, count: 4000, every: 90s, run: 47m, gpus: 8}
  - {name: one, queue: a, at: 10s, count: 150, every: 25m, run: 20m, pods: 8, gpus: 8}
  - {name: two, queue: b, at: 20s, count: 150, every: 25m, run: 20m, pods: 8, gpus: 8}
  - {name: gang, queue: c, at: 5m, run: 20m, pods: 12, gpus: 8}",
    );
    let queues = files.with(
        "queues.yaml",
        "queues:
  - {name: a, deserved: {nvidia.com/gpu: 192}, preemption: {reclaim: false}}
  - {name: b, deserved: {nvidia.com/gpu: 192}, preemption: {reclaim: false}}
  - {name: c}",
    );
    let metrics = run_files(jobs.parent().unwrap(), &queues);
    assert!(
        wait_of(&metrics, "65-128").max <= 6.0 * HOUR,
        "{:?}",
        metrics.wait_by_size
    );
}

/// How long the job of one user waits behind 500 jobs of another that come at the same time, with these rules of the
/// queue.
fn wait_behind_500(fair_share: &str) -> f64 {
    let files = Files::new();
    let fleet = files.with(
        "fleet.yaml",
        "clusters: [{name: a, nodes: [{gpus: 8, cpu: 64}]}]",
    );
    let queue =
        "apiVersion: scheduling.volcano.sh/v1beta1\nkind: Queue\nmetadata: {name: q}\nspec: {}\n";
    let policy = format!(
        "apiVersion: muster.io/v1alpha2\nkind: CapacityPolicy\nmetadata: {{name: q}}\nspec: {{fairShare: {fair_share}}}\n"
    );
    let queues = files.with("queues.yaml", &format!("{queue}---\n{policy}"));
    let jobs = files.with(
        "jobs.yaml",
        "jobs:\n\
         - {name: many, queue: q, user: ann, count: 500, every: 0s, run: 10m, gpus: 1}\n\
         - {name: one, queue: q, user: bob, run: 10m, gpus: 2}\n",
    );
    let mut scenario = read_scenario(&fleet, Some(&queues), &jobs).unwrap().what;
    scenario.change(&ScenarioOverrides::default());
    let (metrics, _) = run_with(&scenario, false);
    assert_eq!(metrics.finished, 501);
    wait_of(&metrics, "2").max
}

#[test]
fn many_jobs_of_one_user_delay_anothers_by_one_slot() {
    for fair_share in [
        "{within: User}",
        "{within: User, usageHalfLifeSeconds: 3600}",
    ] {
        let wait = wait_behind_500(fair_share);
        assert!(wait <= 600.0, "{fair_share}: {wait}");
    }
    let without = wait_behind_500("{within: None}");
    assert!(without > 10.0 * HOUR, "{without}");
}
