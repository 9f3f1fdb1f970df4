//! Runs small scenarios from files to metrics, and checks the errors of invalid input.

#![allow(clippy::unwrap_used)]

mod common;

use common::{Files, run, run_with};
use engine::facts::QueueOrdering;
use sim::input::read_scenario;
use sim::scenario::ScenarioOverrides;
use sim::starts::StartAccuracy;
use std::path::{Path, PathBuf};

fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

const ONE_NODE: &str = "clusters: [{name: a, nodes: [{gpus: 8}]}]";

#[test]
fn waits_are_counted_to_the_second() {
    let files = Files::new();
    let fleet = files.with("fleet.yaml", ONE_NODE);
    let jobs = files.with(
        "jobs.csv",
        "name,at,run,gpus\nfirst,0,100,8\nsecond,10,50,8\nthird,20,50,1\n",
    );
    let mut scenario = read_scenario(&fleet, None, &jobs).unwrap().what;
    scenario.change(&ScenarioOverrides {
        ordering: Some(QueueOrdering::StrictFifo),
        ..ScenarioOverrides::default()
    });
    let (metrics, _) = run(&scenario);
    // The jobs start at 0, 100 and 150 s: waits of 0, 90 and 130 s.
    assert_eq!((metrics.finished, metrics.makespan), (3, 200.0));
    assert_eq!(
        (metrics.wait.average, metrics.wait.max),
        (220.0 / 3.0, 130.0)
    );
    assert_eq!(
        (metrics.wait_big.count, metrics.wait_big.average),
        (2, 45.0)
    );
    assert_eq!(metrics.completion.average, 420.0 / 3.0);
    // All 8 GPUs are in use over the arrival window of 20 s.
    assert_eq!(metrics.use_in_window, 1.0);
}

#[test]
fn arrivals_are_compressed_and_run_times_are_not() {
    let files = Files::new();
    let fleet = files.with("fleet.yaml", ONE_NODE);
    let jobs = files.with(
        "jobs.yaml",
        "jobs: [{count: 3, every: 60s, run: 5m, gpus: 1}]",
    );
    let mut scenario = read_scenario(&fleet, None, &jobs).unwrap().what;
    scenario.change(&ScenarioOverrides {
        speedup: Some(6.0),
        ..ScenarioOverrides::default()
    });
    let (metrics, _) = run(&scenario);
    assert_eq!(metrics.makespan, 320.0);
}

#[test]
fn what_can_never_run_is_named_with_its_reason() {
    let files = Files::new();
    let fleet = files.with("fleet.yaml", ONE_NODE);
    let jobs = files.with(
        "jobs.yaml",
        "jobs: [{name: big, run: 1m, pods: 2, gpus: 8}]",
    );
    let scenario = read_scenario(&fleet, None, &jobs).unwrap().what;
    let (metrics, outcome) = run(&scenario);
    assert_eq!((metrics.finished, metrics.never_started), (0, 1));
    let (key, why) = &outcome.stuck[0];
    assert_eq!(key.to_string(), "default/big");
    assert!(why.starts_with("ExceedsFleet: "), "{why}");
}

#[test]
fn a_real_trace_under_load_keeps_the_books_in_order() {
    let files = Files::new();
    let fleet = files.with("fleet.yaml", "clusters: [{name: a, nodes: [{count: 4, gpus: 8}]}, {name: b, nodes: [{count: 2, gpus: 8}]}]");
    let trace = repository("examples/traces/philly-150.csv");
    let mut scenario = read_scenario(&fleet, None, &trace).unwrap().what;
    assert_eq!(scenario.jobs.len(), 150);
    scenario.change(&ScenarioOverrides {
        ordering: Some(QueueOrdering::Backfill),
        ..ScenarioOverrides::default()
    });
    let (metrics, _) = run(&scenario);
    assert_eq!((metrics.finished, metrics.never_started), (150, 0));
    assert!(metrics.wait.average > 0.0 && metrics.use_in_window > 0.5);
    // A second run has exactly the same result.
    assert_eq!(run_with(&scenario, false).0, metrics);
}

#[test]
fn jobs_start_when_they_expect_to() {
    let files = Files::new();
    let fleet = files.with("fleet.yaml", ONE_NODE);
    let jobs = "jobs: [{name: small, count: 240, every: 40m, run: 1h, gpus: 2},
        {name: large, count: 80, every: 2h, run: 2h, gpus: 4}, {name: whole, count: 12, every: 14h, run: 3h, gpus: 8}]";
    let jobs = files.with("jobs.yaml", jobs);
    let mut scenario = read_scenario(&fleet, None, &jobs).unwrap().what;
    scenario.change(&ScenarioOverrides::default());
    let (metrics, _) = run_with(&scenario, false);
    let sum = |of: fn(&StartAccuracy) -> usize| metrics.starts.iter().map(of).sum::<usize>();
    let (starts, within) = (sum(|stage| stage.starts), sum(|stage| stage.within));
    assert_eq!(
        sum(|stage| stage.within + stage.early + stage.late + stage.open),
        starts
    );
    // Nothing is known of the first run times.
    assert!(
        starts > 300 && within * 10 >= starts * 8,
        "{within} of {starts}: {:?}",
        metrics.starts
    );
}

#[test]
fn the_examples_run() {
    let folder = repository("examples/simulate");
    let read = read_scenario(
        &folder.join("fleet.yaml"),
        Some(&folder.join("queues.yaml")),
        &folder.join("jobs.yaml"),
    );
    let mut scenario = read.unwrap().what;
    scenario.change(&ScenarioOverrides::default());
    let (metrics, outcome) = run_with(&scenario, false);
    assert_eq!(metrics.finished, scenario.jobs.len(), "{:?}", outcome.stuck);
    assert_eq!(metrics.queues.len(), 3);
}

#[test]
fn charts_are_drawn() {
    let files = Files::new();
    let fleet = files.with("fleet.yaml", ONE_NODE);
    let jobs = files.with(
        "jobs.yaml",
        "jobs: [{count: 20, every: 30s, run: 5m, gpus: 2}]",
    );
    let mut scenario = read_scenario(&fleet, None, &jobs).unwrap().what;
    scenario.change(&ScenarioOverrides::default());
    let (metrics, outcome) = run(&scenario);
    let folder = files.path().join("charts");
    let queues = ["default".to_owned()];
    let drawn = sim::charts::draw_all(&folder, &outcome.record, &metrics, &queues).unwrap();
    assert_eq!(drawn.len(), 4);
    let svg = std::fs::read_to_string(folder.join("queues.svg")).unwrap();
    assert!(svg.contains("GPUs in use by queue") && svg.contains("waiting"));
}

/// Returns the error for input files that cannot be used.
fn refusal(fleet: &str, queues: Option<&str>, jobs: (&str, &str)) -> String {
    let files = Files::new();
    let fleet = files.with("fleet.yaml", fleet);
    let queues = queues.map(|text| files.with("queues.yaml", text));
    let jobs = files.with(jobs.0, jobs.1);
    let error = read_scenario(&fleet, queues.as_deref(), &jobs).unwrap_err();
    let folder = format!("{}/", files.path().display());
    error.to_string().replace(&folder, "")
}

#[test]
fn bad_input_says_where_what_and_what_would_be_right() {
    let jobs = ("jobs.yaml", "jobs: [{run: 1m}]");
    let said = [
        refusal(
            "clusters: [{name: a, nodes: [{gpus: 8, cpu: 4x}]}]",
            None,
            jobs,
        ),
        refusal(
            "clusters: [{name: a, nodes: []}, {name: a, nodes: []}]",
            None,
            jobs,
        ),
        refusal(ONE_NODE, None, ("jobs.csv", "name,at,run\nx,0,1d\n")),
        refusal(ONE_NODE, None, ("jobs.csv", "name,when\nx,0\n")),
        refusal(
            ONE_NODE,
            None,
            (
                "jobs.csv",
                "timestamp,duration,num_gpus,cluster\nyesterday,1,1,a\n",
            ),
        ),
        refusal(
            ONE_NODE,
            None,
            (
                "jobs.yaml",
                "jobs: [{name: x, run: 1m, pods: 2, minimum: 3}]",
            ),
        ),
        refusal(ONE_NODE, Some("queues: [{name: q}]"), jobs),
        refusal(ONE_NODE, Some("queues: [{name: q, parent: p}]"), jobs),
        refusal(ONE_NODE, Some("kind: Deployment"), jobs),
    ];
    insta::assert_snapshot!(said.join("\n"), @r#"
    fleet.yaml, cluster a, nodes[0]: cpu is "4x"; quantity "4x" is not a number with an optional suffix (like 500m, 2, 1.5Gi or 1e3)
    fleet.yaml, cluster a: name is "a"; a name of its own is needed
    jobs.csv, line 2: run is "1d"; digits with units h, m, s or ms are needed, like 90s or 1h30m
    jobs.csv, line 1: header is "name,when"; one of these is needed: timestamp,duration,num_gpus,cluster (Philly); name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,… (openb); job_id,num_gpu,submit_time,duration (Tiresias); at,run with any of name,queue,user,pods,gpus,cpu,memory,priority
    jobs.csv, line 2: timestamp is "yesterday"; a time like 2017-10-09 07:01:55 is needed
    jobs.yaml, job x: minimum is "3"; at most its 2 pods are needed
    queues.yaml, job default/job-1: queue is "default"; a queue of this name is needed in the file; it has none
    queues.yaml, queue q: parent is "p"; the name of a queue in this file is needed
    queues.yaml, document 1: kind is "Deployment"; Queue, CapacityPolicy or PriorityClass is needed, or no kind and a list `queues`
    "#);
}

#[test]
fn a_slip_of_the_pen_is_named_with_its_line() {
    let said = refusal(
        ONE_NODE,
        Some(
            "kind: Queue\nmetadata: {name: q}\n---\nkind: CapacityPolicy\nmetadata: {name: q}\nspec:\n  orderin: Backfill\n",
        ),
        ("jobs.yaml", "jobs: []"),
    );
    let first = said.lines().next().unwrap_or_default();
    assert!(
        first.contains("queues.yaml") && said.contains("orderin"),
        "{said}"
    );
    assert!(said.contains('7'), "{said}");
}

#[test]
fn an_elastic_job_shrinks_for_who_is_entitled_and_grows_again() {
    let files = Files::new();
    let fleet = files.with("fleet.yaml", ONE_NODE);
    let queues = files.with(
        "queues.yaml",
        "queues: [{name: a, deserved: {gpus: 4}}, {name: b, deserved: {gpus: 4}}]",
    );
    let jobs = files.with(
        "jobs.yaml",
        "jobs:\n\
         - {name: wide, queue: a, run: 1h, pods: 8, minimum: 2, elastic: true, gpus: 1}\n\
         - {name: due, queue: b, at: 10m, run: 10m, pods: 4, gpus: 1}\n",
    );
    let scenario = read_scenario(&fleet, Some(&queues), &jobs).unwrap().what;
    let (metrics, outcome) = run(&scenario);
    assert_eq!((metrics.finished, metrics.decisions.evicted), (2, 0));
    // The job has half of its pods for ten minutes and for the 30 s in which the others stop. It
    // takes longer by as much, since none of its work is lost.
    assert_eq!(outcome.record.jobs[1].waited_ms, 30_000);
    assert_eq!(metrics.makespan, 3600.0 + 315.0);
    assert_eq!((metrics.decisions.resizes, metrics.lost_hours), (2, 0.0));
}

#[test]
fn a_policy_alone_is_a_queue_as_on_a_control_plane() {
    let policy = |capability: u32| {
        format!(
            "kind: CapacityPolicy\nmetadata: {{name: q}}\nspec:\n  resources: [{{name: nvidia.com/gpu, capability: {capability}}}]\n"
        )
    };
    let queue = "kind: Queue\nmetadata: {name: q}\nspec: {capability: {nvidia.com/gpu: 4}}\n";
    let both = format!("{}---\n{queue}", policy(4));
    let jobs = "jobs: [{count: 2, queue: q, run: 1h, gpus: 4}]";
    // On one node with eight devices the quota keeps the second job waiting.
    for (queues, waited_ms) in [(policy(4), 3_600_000), (policy(8), 0), (both, 3_600_000)] {
        let files = Files::new();
        let fleet = files.with("fleet.yaml", ONE_NODE);
        let text = files.with("queues.yaml", &queues);
        let jobs = files.with("jobs.yaml", jobs);
        let scenario = read_scenario(&fleet, Some(&text), &jobs).unwrap().what;
        let (_, outcome) = run(&scenario);
        assert_eq!(outcome.record.jobs[1].waited_ms, waited_ms, "{queues}");
    }
    let differs = format!("{}---\n{queue}", policy(8));
    let listed = format!("{}---\nqueues: [{{name: q}}]\n", policy(8));
    let said =
        [differs, listed].map(|queues| refusal(ONE_NODE, Some(&queues), ("jobs.yaml", jobs)));
    insta::assert_snapshot!(said.join("\n"), @"
    queues.yaml: document 1: capability of nvidia.com/gpu is 4 in Queue q and 8 in spec.resources of CapacityPolicy q: the lower counts
    queues.yaml: document 1: spec.resources and spec.parent: the queue is in the list `queues`; state them there
    ");
}
