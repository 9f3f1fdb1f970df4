//! Faults of nodes: times by hand, random fleets, and the errors of invalid files.

#![allow(clippy::unwrap_used)]

mod common;
mod random;

use common::{Files, run, run_with};
use sim::fault_metrics::FaultMetrics;
use sim::input::{read_faults, read_scenario};
use sim::metrics::RunMetrics;
use sim::scenario::{Scenario, ScenarioOverrides};
use std::path::Path;

fn scenario(
    files: &Files,
    fleet: &str,
    queues: Option<&str>,
    jobs: &str,
    faults: &str,
) -> Scenario {
    let fleet = files.with("fleet.yaml", fleet);
    let queues = queues.map(|text| files.with("queues.yaml", text));
    let jobs = files.with("jobs.yaml", jobs);
    let faults = files.with("faults.yaml", faults);
    let read = read_scenario(&fleet, queues.as_deref(), &jobs);
    let mut scenario = read.unwrap().what;
    scenario.faults = read_faults(&[text(&faults)], &scenario.fleet).unwrap();
    scenario.change(&ScenarioOverrides::default());
    scenario
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

/// A gang of two whole nodes runs for an hour and saves its work every 5 minutes.
const GANG: &str = "jobs: [{name: gang, run: 1h, pods: 2, gpus: 8, checkpoint: 5m}]";

fn fleet_of(nodes: u32) -> String {
    format!("clusters: [{{name: a, nodes: [{{count: {nodes}, gpus: 8}}]}}]")
}

/// Runs the gang with one fault of its first node, 12 minutes after its start.
fn gang(nodes: u32, jobs: &str, fault: &str) -> (RunMetrics, FaultMetrics) {
    let faults = format!("restart: 1m\nfaults: [{{node: a-0, at: 12m, {fault}}}]");
    let scenario = scenario(&Files::new(), &fleet_of(nodes), None, jobs, &faults);
    let (metrics, _) = run(&scenario);
    let faults = metrics.faults.clone().unwrap();
    assert_eq!(faults.misplaced, 0);
    (metrics, faults)
}

#[test]
fn a_gang_with_a_free_node_is_evicted_at_its_deadline_and_starts_again_at_once() {
    let (metrics, faults) = gang(3, GANG, "for: 1h");
    // 12:00 lost, 12:50 detected, 13:50 evicted, 14:20 gone and running, 15:20 back at work, of which
    // 50 minutes are left.
    assert_eq!((metrics.finished, metrics.makespan), (1, 3920.0));
    assert_eq!(faults.seen_to_evicted.max, 60.0);
    assert_eq!(faults.gone_to_running.max, 0.0);
    assert_eq!(faults.fault_to_running.max, 140.0);
    let job = &faults.jobs[0];
    assert_eq!((job.attempts, job.faults), (2, 1));
    assert_eq!((job.recovering, job.restarting), (140.0, 60.0));
    // Two minutes of 16 GPUs.
    assert_eq!((job.lost_hours, job.ettr), (32.0 / 60.0, 3600.0 / 3920.0));
    assert_eq!((faults.evicted, faults.in_place), (1, 0));
    assert_eq!(faults.placed, 4);
    assert_eq!(metrics.lost_hours, 0.0);
    assert_eq!(faults.added_run_time, 320.0 / 3600.0);
}

#[test]
fn a_gang_without_a_free_node_waits_for_the_repair() {
    let (metrics, faults) = gang(2, GANG, "for: 1h");
    // Without capacity for its pod it is evicted 10 s after the loss is seen: 13:00, gone 13:30. The
    // node is back at 72:00. One minute and 50 minutes of work follow.
    assert_eq!((metrics.finished, metrics.makespan), (1, 7380.0));
    assert_eq!(faults.seen_to_evicted.max, 10.0);
    assert_eq!(faults.gone_to_running.max, 3510.0);
}

#[test]
fn a_job_without_checkpoints_starts_over() {
    let jobs = "jobs: [{name: gang, run: 1h, pods: 2, gpus: 8}]";
    let (metrics, faults) = gang(3, jobs, "for: 1h");
    assert_eq!(metrics.makespan, 920.0 + 3600.0);
    assert_eq!(faults.lost_hours, 12.0 * 16.0 / 60.0);
}

#[test]
fn a_node_that_is_back_in_time_lets_the_gang_go_on_in_place() {
    // Detected at 12:50, back at 13:10; the gang is not evicted.
    let (metrics, faults) = gang(3, GANG, "for: 70s");
    assert_eq!(metrics.makespan, (13.0 * 60.0 + 10.0) + 60.0 + 3000.0);
    assert_eq!((faults.evicted, faults.in_place), (0, 1));
    assert_eq!(faults.jobs[0].attempts, 1);
    // A node that restarts before it is detected has lost its pods all the same.
    let (metrics, faults) = gang(3, GANG, "for: 40s");
    assert_eq!(metrics.makespan, (12.0 * 60.0 + 40.0) + 60.0 + 3000.0);
    assert_eq!(faults.jobs[0].recovering, 40.0);
}

#[test]
fn a_controller_replaces_the_lost_pod_on_a_free_node() {
    // 12:00 lost, 12:50 detected, 13:00 replaced, 14:00 back at work, of which 50 minutes are left.
    let faults = "restart: 1m\nreplacement: 10s\nfaults: [{node: a-0, at: 12m, for: 1h}]";
    let (metrics, _) = run(&scenario(&Files::new(), &fleet_of(3), None, GANG, faults));
    let faults = metrics.faults.clone().unwrap();
    assert_eq!((metrics.finished, metrics.makespan), (1, 840.0 + 3000.0));
    assert_eq!((faults.evicted, faults.in_place), (0, 1));
    assert_eq!((faults.jobs[0].attempts, faults.placed), (1, 3));
}

/// Three nodes: a gang of two, whose queue may keep one spare node, and small jobs of another queue that all deserve
/// their node. The first node fails at 12 minutes.
fn beside_small_jobs(spare: &str, preemptible: bool) -> FaultMetrics {
    let queues = format!(
        "apiVersion: scheduling.volcano.sh/v1beta1\nkind: Queue\nmetadata: {{name: gangs}}\n\
         spec: {{deserved: {{nvidia.com/gpu: 24}}}}\n---\nkind: CapacityPolicy\nmetadata: {{name: gangs}}\n\
         spec: {{preemption: {{reclaim: Never}}, spare: {spare}}}\n---\n\
         kind: Queue\nmetadata: {{name: small}}\nspec: {{deserved: {{nvidia.com/gpu: 8}}}}\n"
    );
    let jobs = format!(
        "jobs:\n- {{name: gang, queue: gangs, run: 1h, pods: 2, gpus: 8, checkpoint: 5m}}\n\
         - {{name: small, queue: small, at: 1m, count: 20, every: 1m, run: 1h, gpus: 8, preemptible: {preemptible}}}"
    );
    let faults = "restart: 1m\nreplacement: 10s\nfaults: [{node: a-0, at: 12m, for: 2h}]";
    let scenario = scenario(&Files::new(), &fleet_of(3), Some(&queues), &jobs, faults);
    let (metrics, _) = run(&scenario);
    assert_eq!(metrics.finished, 21);
    let faults = metrics.faults.unwrap();
    assert_eq!(faults.misplaced, 0);
    faults
}

#[test]
fn a_gang_with_a_spare_node_goes_on_at_once() {
    let gang = |faults: &FaultMetrics| {
        let mut jobs = faults.jobs.iter();
        jobs.find(|job| job.job == "default/gang").unwrap().clone()
    };
    // Without one, a small job has the third node, and the gang is evicted.
    let without = beside_small_jobs("null", false);
    assert!(without.evicted == 1 && gang(&without).recovering > 1000.0);
    // Kept free: replaced 10 s after it is detected.
    let with = beside_small_jobs("{nodes: 1, forGangsOf: 2}", false);
    assert_eq!((with.evicted, with.in_place), (0, 1));
    assert_eq!(gang(&with).recovering, 60.0);
    // Lent: the small job is gone 30 s after that, and the pod that waits for it starts at once.
    let lent = beside_small_jobs("{nodes: 1, forGangsOf: 2}", true);
    assert_eq!((lent.evicted, lent.in_place), (0, 1));
    assert_eq!(gang(&lent).recovering, 80.0);
}

#[test]
fn a_failed_device_stops_the_pod_that_has_it_and_no_pod_is_placed_beside_it() {
    let jobs = "jobs: [{name: one, run: 1h, gpus: 4, checkpoint: 5m}, \
                {name: two, run: 1h, gpus: 4}, {name: three, at: 15m, run: 1h, gpus: 8}]";
    let (metrics, faults) = gang(2, jobs, "for: 4h, class: deviceFault");
    // The first job has the first device. Detected after 20 s, it is evicted 60 s later, and gone after
    // 30 s: it starts on the other node at 13:50, works from 14:50 on, and ends at 64:50. The second job
    // goes on. The third finds no whole node before the first has ended.
    assert_eq!((faults.jobs.len(), faults.device_faults), (1, 1));
    assert_eq!(faults.jobs[0].job, "default/one");
    assert_eq!(faults.fault_to_running.max, 110.0);
    assert_eq!(metrics.makespan, 3890.0 + 3600.0);
}

#[test]
fn an_elastic_job_goes_on_with_fewer_pods_and_gets_them_back() {
    let jobs = "jobs: [{name: wide, run: 1h, pods: 2, minimum: 1, elastic: true, gpus: 8, \
                checkpoint: 5m}]";
    let (metrics, faults) = gang(2, jobs, "for: 11m");
    // At 12:50 the loss is known: back to 10:00 of work, and at work again from 13:50 on, with one of two
    // pods until 23:00. That is 4:35 of the 50 minutes that are left.
    assert_eq!(metrics.makespan, 23.0 * 60.0 + 3000.0 - 275.0);
    assert_eq!(faults.fault_to_running.max, 50.0);
    assert_eq!((faults.in_place, faults.evicted), (1, 0));
}

#[test]
fn an_eviction_for_another_job_costs_the_same_only_if_asked() {
    let queues = "queues: [{name: low, deserved: {gpus: 0}}, {name: high, deserved: {gpus: 8}}]";
    let jobs = "jobs: [{name: one, queue: low, run: 1h, gpus: 8}, \
                {name: two, queue: high, at: 12m, run: 10m, gpus: 8}]";
    let run_as = |more: &str| {
        let faults = format!("rate: 0\ncheckpointEvery: 5m\nrestart: 1m\n{more}");
        let fleet = fleet_of(1);
        run(&scenario(
            &Files::new(),
            &fleet,
            Some(queues),
            jobs,
            &faults,
        ))
        .0
    };
    // It starts over at 22:30, or goes on with 50 minutes of work after a minute.
    assert_eq!(run_as("").makespan, 1350.0 + 3600.0);
    assert_eq!(
        run_as("preemptionRestarts: true").makespan,
        1350.0 + 60.0 + 3000.0
    );
}

#[test]
fn a_plan_without_faults_changes_nothing_but_its_own_numbers() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/simulate");
    let file = |name: &str| examples.join(name);
    let read = read_scenario(
        &file("fleet.yaml"),
        Some(&file("queues.yaml")),
        &file("jobs.yaml"),
    );
    let mut scenario = read.unwrap().what;
    scenario.change(&ScenarioOverrides::default());
    let without = run(&scenario).0;
    scenario.faults = read_faults(&["0".to_owned()], &scenario.fleet).unwrap();
    let mut with = run(&scenario).0;
    assert_eq!(with.faults.take().unwrap().placed, 676);
    assert_eq!(with, without);
}

#[test]
fn the_examples_with_faults_run() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/simulate");
    let file = |name: &str| examples.join(name);
    let read = |folder: &str, queues: &str, jobs: &str, faults: &[String]| {
        let at = |name: &str| file(&format!("{folder}{name}"));
        let read = read_scenario(&at("fleet.yaml"), Some(&at(queues)), &at(jobs));
        let mut scenario = read.unwrap().what;
        scenario.faults = read_faults(faults, &scenario.fleet).unwrap();
        scenario
    };
    let faults = text(&file("faults.yaml"));
    let mut small = read("", "queues.yaml", "jobs.yaml", &[faults]);
    small.change(&ScenarioOverrides::default());
    let metrics = run_with(&small, false).0;
    let faults = metrics.faults.unwrap();
    assert_eq!((metrics.finished, faults.misplaced), (small.jobs.len(), 0));
    assert!(faults.jobs_hit > 0);
    let faults = text(&file("gang/faults.yaml"));
    for (queues, jobs, faults) in [
        ("queues.yaml", "pretrain.yaml", "19"),
        ("queues.yaml", "pretrain-and-batch.yaml", "19"),
        ("spare.yaml", "pretrain-and-batch.yaml", &faults),
    ] {
        let mut gang = read("gang/", queues, jobs, &[faults.to_owned()]);
        // Two days of it.
        gang.jobs.truncate(200);
        gang.jobs[0].run_ms = 48 * 3_600_000;
        gang.change(&ScenarioOverrides::default());
        let metrics = run_with(&gang, false).0;
        let faults = metrics.faults.unwrap();
        assert_eq!((metrics.never_started, faults.misplaced), (0, 0));
        let largest = faults.largest.unwrap();
        assert!(largest.faults > 5 && largest.ettr > 0.95, "{largest:?}");
    }
}

fn refusal(given: &[&str], faults: &str) -> String {
    let files = Files::new();
    let fleet = files.with("fleet.yaml", &fleet_of(2));
    let fleet = sim::input::read_fleet(&fleet).unwrap();
    let path = text(&files.with("faults.yaml", faults));
    let given = given.iter().map(|value| match *value {
        "FILE" => path.clone(),
        other => other.to_owned(),
    });
    let given: Vec<String> = given.collect();
    let error = read_faults(&given, &fleet).unwrap_err();
    let folder = format!("{}/", files.path().display());
    error.to_string().replace(&folder, "")
}

#[test]
fn bad_faults_are_refused_with_field_value_and_what_would_be_right() {
    let file = |text: &str| refusal(&["FILE"], text);
    let said = [
        refusal(&["-1"], ""),
        refusal(&["3", "4"], ""),
        refusal(&["FILE", "FILE"], "rate: 1"),
        file("seed: 3"),
        file("rate: often"),
        file("rate: 1\nrepair: soon"),
        file("rate: 1\nrepair: 4h-1h"),
        file("rate: 1\nrestart: -5s"),
        file("rate: 1\ncheckpointEvery: 0s"),
        file("jobsHit: 5"),
        file("rate: 1\nclasses: {nodeLost: {weight: 0}, deviceFault: {weight: 0}}"),
        file("rate: 1\nclasses: {nodeLost: {detection: 1 day}}"),
        file("faults: [{node: b-7, at: 1m, for: 1h}]"),
        file("faults: [{node: a/a-1, at: 1m, for: 0s}]"),
        file("faults: [{node: a-1, at: 1m, for: 1h, class: bitFlip}]"),
        file("faults: [{node: a-1, at: 1m, for: 1h}, {node: a/a-1, at: 1h, for: 1h}]"),
    ];
    insta::assert_snapshot!(said.join("\n"), @r#"
    --faults, command line: rate is "-1"; faults per 1,000 nodes and day, from 0 to 1000000, are needed
    --faults, command line: --faults is "4"; at most one rate is needed
    --faults, command line: --faults is "faults.yaml"; at most one file, beside a rate, is needed
    faults.yaml, faults: rate is empty; a rate, jobsHit or a list of faults is needed
    faults.yaml, faults: rate is "often"; faults per 1,000 nodes and day, from 0 to 1000000, are needed
    faults.yaml, faults: repair is "soon"; a duration like 1h, a range like 30m-4h, or a mean like "mean 2h" is needed
    faults.yaml, faults: repair is "4h-1h"; a range whose end is not before its begin is needed
    faults.yaml, faults: restart is "-5s"; digits with units h, m, s or ms are needed, like 90s or 1h30m
    faults.yaml, faults: checkpointEvery is "0s"; more than 0s, up to 100 years, is needed
    faults.yaml, faults: jobsHit is "5"; a share from 0% to 100% is needed
    faults.yaml, faults: classes is "0 and 0"; a weight of 1 or more is needed
    faults.yaml, classes.nodeLost: detection is "1 day"; digits with units h, m, s or ms are needed, like 90s or 1h30m
    faults.yaml, faults[0]: node is "b-7"; one node of the fleet, as its name or CLUSTER/NAME, is needed
    faults.yaml, faults[0]: for is "0s"; more than 0s, up to 100 years, is needed
    faults.yaml, faults[0]: class is "bitFlip"; nodeLost or deviceFault is needed
    faults.yaml, faults[1]: at is "1h"; a time at which no other fault has the node out of service is needed
    "#);
    let unknown = file("rate: 1\nrapair: 1h");
    assert!(
        unknown.contains("rapair") && unknown.contains('2'),
        "{unknown}"
    );
}
