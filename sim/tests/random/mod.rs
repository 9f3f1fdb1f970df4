//! Random fleets and jobs under many faults: all work is done, and every second is accounted for.

use super::common::{Files, run, run_with};
use super::scenario;
use proptest::prelude::*;

/// The input of a random run.
#[derive(Debug, Clone)]
struct Case {
    fleet: String,
    queues: String,
    jobs: String,
    faults: String,
}

fn cases() -> impl Strategy<Value = Case> {
    let nodes = prop::collection::vec((1_u32..5, prop::sample::select(vec![4_u32, 8])), 1..4);
    let job = (
        prop::sample::select(vec![(1_u32, 1_u32), (1, 4), (2, 4), (3, 4), (1, 8), (4, 1)]),
        0_u32..600,
        1_u32..120,
        0_u32..3,
        prop::sample::select(vec!["", ", checkpoint: 5m", ", checkpoint: 17m"]),
        prop::sample::select(vec![
            "",
            ", split: Allowed",
            ", minimum: 1, elastic: true",
            ", minimum: 1",
        ]),
    );
    let faults = (
        0_u64..1000,
        prop::sample::select(vec![0_u32, 2_000, 10_000]),
        prop::sample::select(vec!["1h", "5m-2h", "mean 40m", "20s"]),
        prop::sample::select(vec!["0s", "50s", "3m"]),
        0_u32..3,
        any::<bool>(),
    );
    (
        nodes,
        prop::collection::vec(job, 1..25),
        faults,
        any::<bool>(),
    )
        .prop_map(
            |(nodes, jobs, (seed, rate, repair, detection, restart, restarts), reclaim)| {
                let clusters = nodes
                    .iter()
                    .zip(["a", "b", "c"])
                    .map(|((count, gpus), name)| {
                        format!("{{name: {name}, nodes: [{{count: {count}, gpus: {gpus}}}]}}")
                    });
                let clusters: Vec<String> = clusters.collect();
                let queue = |number: u32| ["x", "y", "z"][number as usize];
                let jobs = jobs.iter().enumerate().map(|(index, job)| {
                    let ((pods, gpus), at, run, of, checkpoint, more) = job;
                    format!(
                        "  - {{name: j{index}, queue: {}, at: {at}m, run: {run}m, pods: {pods}, \
                     gpus: {gpus}{checkpoint}{more}}}\n",
                        queue(*of)
                    )
                });
                let deserved = if reclaim { ", deserved: {gpus: 4}" } else { "" };
                let queues = (0..3).map(|of| format!("  - {{name: {}{deserved}}}\n", queue(of)));
                Case {
                    fleet: format!("clusters: [{}]", clusters.join(", ")),
                    queues: format!("queues:\n{}", queues.collect::<String>()),
                    jobs: format!("jobs:\n{}", jobs.collect::<String>()),
                    faults: format!(
                        "seed: {seed}\nrate: {rate}\njobsHit: 30%\nrepair: {repair}\n\
                     detection: {detection}\nrestart: {restart}m\nuntil: 60h\n\
                     preemptionRestarts: {restarts}\n"
                    ),
                }
            },
        )
}

/// Runs a case and checks it.
fn check(case: &Case) -> Result<(), TestCaseError> {
    let files = Files::new();
    let scenario = scenario(
        &files,
        &case.fleet,
        Some(&case.queues),
        &case.jobs,
        &case.faults,
    );
    let (metrics, outcome) = run(&scenario);
    let faults = outcome.faults.as_ref().unwrap();
    prop_assert_eq!(faults.misplaced, 0);
    // A loss that is not mended ends at the recovery deadline.
    let longest = faults.times.seen_to_evicted.iter().max();
    prop_assert!(
        longest.is_none_or(|millis| *millis <= 60_000),
        "{longest:?}"
    );
    let done = outcome
        .record
        .jobs
        .iter()
        .zip(&scenario.jobs)
        .zip(&faults.jobs);
    for ((record, sim), own) in done {
        let Some(started) = record.started else {
            // Only what is larger than the whole fleet never starts.
            let stuck = outcome.stuck.iter().find(|(key, _)| *key == sim.fact.key);
            prop_assert!(
                stuck.is_none_or(|(_, why)| why.starts_with("ExceedsFleet")),
                "{stuck:?}"
            );
            continue;
        };
        prop_assert!(record.finished.is_some(), "{} has not ended", sim.fact.key);
        let demand = &sim.fact.demand;
        // Without preemption, and with all pods or none, every millisecond has its cause.
        let fixed = u64::from(demand.min_available) == demand.pods();
        if fixed && !case.queues.contains("deserved") {
            let wall = record.finished.unwrap().millis_since(started);
            let lost = own.lost / i128::from(record.size.max(1));
            let spent = sim.run_ms + i64::try_from(lost).unwrap();
            prop_assert_eq!(wall, spent + own.recovering_ms + own.restarting_ms);
        }
    }
    // The same input gives the same run.
    prop_assert_eq!(run_with(&scenario, false).0, metrics);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn all_work_is_done_and_none_on_nodes_out_of_service(case in cases()) {
        check(&case)?;
    }
}

#[test]
fn a_job_that_shrank_while_a_node_was_lost_grows_on_other_nodes() {
    let case = Case {
        fleet: "clusters: [{name: a, nodes: [{count: 2, gpus: 8}]}, \
                {name: b, nodes: [{count: 4, gpus: 4}]}]"
            .to_owned(),
        queues: "queues: [{name: x, deserved: {gpus: 4}}, {name: y, deserved: {gpus: 4}}, \
                 {name: z, deserved: {gpus: 4}}]"
            .to_owned(),
        jobs: "jobs:\n\
               - {name: j0, queue: y, at: 139m, run: 46m, pods: 2, gpus: 4}\n\
               - {name: j1, queue: x, at: 311m, run: 1m, pods: 2, gpus: 4, minimum: 1}\n\
               - {name: j2, queue: x, at: 212m, run: 25m, pods: 1, gpus: 1}\n\
               - {name: j3, queue: x, at: 29m, run: 1m, pods: 1, gpus: 1}\n\
               - {name: j4, queue: z, run: 43m, pods: 3, gpus: 4, minimum: 1, elastic: true}\n\
               - {name: j5, queue: x, at: 28m, run: 2m, pods: 2, gpus: 4, checkpoint: 17m, \
               split: Allowed}\n"
            .to_owned(),
        faults: "seed: 273\nrate: 10000\njobsHit: 30%\nrepair: 5m-2h\ndetection: 0s\n\
                 restart: 2m\nuntil: 60h\npreemptionRestarts: true\n"
            .to_owned(),
    };
    check(&case).unwrap();
}

#[test]
fn the_search_for_the_next_job_finds_the_head_of_each_queue() {
    let case = Case {
        fleet: "clusters: [{name: a, nodes: [{count: 1, gpus: 8}]}, \
                {name: b, nodes: [{count: 4, gpus: 4}]}, {name: c, nodes: [{count: 1, gpus: 4}]}]"
            .to_owned(),
        queues: "queues: [{name: x}, {name: y}, {name: z}]".to_owned(),
        jobs: "jobs:\n\
               - {name: j0, queue: z, at: 162m, run: 54m, pods: 3, gpus: 4, checkpoint: 17m, \
               minimum: 1}\n\
               - {name: j1, queue: x, at: 104m, run: 1m, gpus: 1}\n\
               - {name: j2, queue: x, at: 122m, run: 1m, gpus: 1}\n\
               - {name: j3, queue: x, at: 418m, run: 1m, pods: 2, gpus: 4}\n\
               - {name: j4, queue: z, at: 115m, run: 106m, pods: 2, gpus: 4, checkpoint: 5m, \
               minimum: 1, elastic: true}\n\
               - {name: j5, queue: y, at: 406m, run: 29m, pods: 3, gpus: 4, checkpoint: 17m, \
               split: Allowed}\n\
               - {name: j6, queue: z, at: 398m, run: 55m, gpus: 4}\n\
               - {name: j7, queue: y, at: 349m, run: 91m, gpus: 4, checkpoint: 17m, minimum: 1, \
               elastic: true}\n\
               - {name: j8, queue: z, at: 123m, run: 80m, pods: 4, gpus: 1, checkpoint: 5m, \
               minimum: 1}\n\
               - {name: j9, queue: z, at: 392m, run: 34m, pods: 3, gpus: 4, checkpoint: 17m, \
               split: Allowed}\n"
            .to_owned(),
        faults: "seed: 142\nrate: 10000\njobsHit: 30%\nrepair: 1h\ndetection: 3m\n\
                 until: 60h\npreemptionRestarts: true\n"
            .to_owned(),
    };
    check(&case).unwrap();
}

#[test]
fn decisions_end_while_nodes_that_come_and_go_are_reserved() {
    let case = Case {
        fleet: "clusters: [{name: a, nodes: [{count: 3, gpus: 4}]}]".to_owned(),
        queues: "queues: [{name: x}, {name: y}, {name: z}]".to_owned(),
        jobs: "jobs:\n\
               - {name: j0, queue: y, at: 33m, run: 1m, pods: 1, gpus: 8}\n\
               - {name: j1, queue: x, at: 129m, run: 1m, pods: 3, gpus: 4}\n\
               - {name: j2, queue: x, at: 236m, run: 1m, gpus: 1}\n\
               - {name: j3, queue: x, at: 33m, run: 1m, gpus: 1}\n\
               - {name: j4, queue: y, at: 345m, run: 1m, gpus: 1, split: Allowed}\n\
               - {name: j5, queue: z, at: 109m, run: 119m, pods: 2, gpus: 4, split: Allowed}\n\
               - {name: j6, queue: y, at: 217m, run: 2m, pods: 4, gpus: 1, checkpoint: 5m}\n\
               - {name: j7, queue: z, at: 205m, run: 46m, gpus: 4, checkpoint: 5m}\n\
               - {name: j8, queue: x, at: 128m, run: 40m, pods: 3, gpus: 4, checkpoint: 5m, \
               minimum: 1, elastic: true}\n\
               - {name: j9, queue: x, at: 235m, run: 35m, pods: 3, gpus: 4, checkpoint: 5m, \
               minimum: 1, elastic: true}\n\
               - {name: j10, queue: z, at: 392m, run: 52m, gpus: 4}\n\
               - {name: j11, queue: x, at: 89m, run: 119m, gpus: 4, split: Allowed}\n"
            .to_owned(),
        faults: "seed: 626\nrate: 10000\njobsHit: 30%\nrepair: mean 40m\ndetection: 50s\n\
                 restart: 0m\nuntil: 60h\npreemptionRestarts: true\n"
            .to_owned(),
    };
    check(&case).unwrap();
}

#[test]
fn decisions_end_though_a_job_that_displaces_another_is_displaced_itself() {
    let case = Case {
        fleet: "clusters: [{name: a, nodes: [{count: 1, gpus: 4}]}]".to_owned(),
        queues: "queues: [{name: x, deserved: {gpus: 4}}, {name: y, deserved: {gpus: 4}}, \
                 {name: z, deserved: {gpus: 4}}]"
            .to_owned(),
        jobs: "jobs:\n\
               - {name: j0, queue: x, at: 236m, run: 89m, gpus: 1}\n\
               - {name: j1, queue: x, at: 364m, run: 1m, gpus: 1}\n\
               - {name: j2, queue: z, at: 326m, run: 1m, gpus: 1}\n\
               - {name: j3, queue: x, at: 0m, run: 1m, gpus: 1}\n\
               - {name: j4, queue: x, at: 236m, run: 26m, gpus: 4}\n\
               - {name: j5, queue: y, at: 0m, run: 1m, pods: 2, gpus: 4, minimum: 1}\n\
               - {name: j6, queue: y, at: 396m, run: 16m, pods: 4, gpus: 1, checkpoint: 17m, \
               minimum: 1, elastic: true}\n\
               - {name: j7, queue: z, at: 325m, run: 94m, pods: 4, gpus: 1, checkpoint: 5m, \
               split: Allowed}\n"
            .to_owned(),
        faults: "seed: 789\nrate: 2000\njobsHit: 30%\nrepair: 5m-2h\ndetection: 3m\n\
                 restart: 0m\nuntil: 60h\npreemptionRestarts: true\n"
            .to_owned(),
    };
    check(&case).unwrap();
}

#[test]
fn a_job_before_an_owner_is_asked_though_none_behind_it_can_reserve() {
    let case = Case {
        fleet: "clusters: [{name: a, nodes: [{count: 2, gpus: 8}]}]"
            .to_owned(),
        queues: "queues: [{name: x}, {name: y}, {name: z}]".to_owned(),
        jobs: "jobs:\n\
               - {name: j0, queue: x, at: 284m, run: 1m, pods: 4, gpus: 1}\n\
               - {name: j1, queue: x, at: 267m, run: 32m, pods: 4, gpus: 1, minimum: 1, elastic: true}\n\
               - {name: j2, queue: z, at: 119m, run: 43m, pods: 3, gpus: 4}\n\
               - {name: j3, queue: x, at: 0m, run: 1m, pods: 1, gpus: 1}\n\
               - {name: j4, queue: y, at: 320m, run: 1m, pods: 3, gpus: 4, minimum: 1}\n\
               - {name: j5, queue: z, at: 208m, run: 17m, pods: 3, gpus: 4, checkpoint: 17m, minimum: 1}\n\
               - {name: j6, queue: x, at: 266m, run: 52m, pods: 1, gpus: 1, checkpoint: 5m, split: Allowed}\n\
               - {name: j7, queue: y, at: 231m, run: 88m, pods: 2, gpus: 4, checkpoint: 5m, split: Allowed}\n\
               - {name: j8, queue: z, at: 88m, run: 2m, pods: 3, gpus: 4, minimum: 1}\n"
            .to_owned(),
        faults: "seed: 209\nrate: 2000\njobsHit: 30%\nrepair: 5m-2h\ndetection: 3m\n\
                 restart: 0m\nuntil: 60h\npreemptionRestarts: false\n"
            .to_owned(),
    };
    check(&case).unwrap();
}

#[test]
fn a_job_is_asked_again_when_its_shape_is_reservable_and_its_slots_are_taken() {
    let case = Case {
        fleet: "clusters: [{name: a, nodes: [{count: 1, gpus: 4}]}]"
            .to_owned(),
        queues: "queues: [{name: x}, {name: y}, {name: z}]".to_owned(),
        jobs: "jobs:\n\
               - {name: j0, queue: x, at: 0m, run: 1m, pods: 1, gpus: 1}\n\
               - {name: j1, queue: y, at: 473m, run: 29m, pods: 1, gpus: 1}\n\
               - {name: j2, queue: x, at: 335m, run: 1m, pods: 1, gpus: 4}\n\
               - {name: j3, queue: y, at: 0m, run: 1m, pods: 2, gpus: 4}\n\
               - {name: j4, queue: y, at: 180m, run: 32m, pods: 1, gpus: 1, checkpoint: 5m}\n\
               - {name: j5, queue: z, at: 400m, run: 49m, pods: 3, gpus: 4, checkpoint: 17m, minimum: 1, \
               elastic: true}\n\
               - {name: j6, queue: y, at: 105m, run: 93m, pods: 1, gpus: 8, checkpoint: 5m, split: Allowed}\n\
               - {name: j7, queue: z, at: 395m, run: 3m, pods: 1, gpus: 8}\n\
               - {name: j8, queue: x, at: 334m, run: 67m, pods: 1, gpus: 1, checkpoint: 5m, minimum: 1, \
               elastic: true}\n\
               - {name: j9, queue: z, at: 125m, run: 12m, pods: 2, gpus: 4, split: Allowed}\n\
               - {name: j10, queue: y, at: 393m, run: 58m, pods: 1, gpus: 1, checkpoint: 17m, split: Allowed}\n\
               - {name: j11, queue: z, at: 336m, run: 55m, pods: 3, gpus: 4, checkpoint: 17m, \
               minimum: 1, elastic: true}\n\
               - {name: j12, queue: z, at: 122m, run: 69m, pods: 3, gpus: 4}\n\
               - {name: j13, queue: y, at: 133m, run: 10m, pods: 2, gpus: 4, checkpoint: 17m}\n\
               - {name: j14, queue: x, at: 394m, run: 43m, pods: 4, gpus: 1}\n\
               - {name: j15, queue: x, at: 219m, run: 87m, pods: 1, gpus: 1, minimum: 1}\n\
               - {name: j16, queue: z, at: 319m, run: 12m, pods: 1, gpus: 1, split: Allowed}\n\
               - {name: j17, queue: x, at: 377m, run: 4m, pods: 4, gpus: 1, minimum: 1, elastic: true}\n\
               - {name: j18, queue: z, at: 180m, run: 55m, pods: 3, gpus: 4, minimum: 1, elastic: true}\n\
               - {name: j19, queue: x, at: 156m, run: 2m, pods: 1, gpus: 8, checkpoint: 5m, split: Allowed}\n\
               - {name: j20, queue: z, at: 353m, run: 31m, pods: 1, gpus: 4, minimum: 1}\n\
               - {name: j21, queue: y, at: 52m, run: 76m, pods: 4, gpus: 1, checkpoint: 5m}\n"
            .to_owned(),
        faults: "seed: 958\nrate: 10000\njobsHit: 30%\nrepair: 1h\ndetection: 50s\n\
                 restart: 2m\nuntil: 60h\npreemptionRestarts: false\n"
            .to_owned(),
    };
    check(&case).unwrap();
}

#[test]
fn decisions_end_though_a_displaced_job_lets_a_larger_one_reserve() {
    let case = Case {
        fleet: "clusters: [{name: a, nodes: [{count: 2, gpus: 4}]}]"
            .to_owned(),
        queues: "queues: [{name: x}, {name: y}, {name: z}]".to_owned(),
        jobs: "jobs:\n\
               - {name: j0, queue: x, at: 186m, run: 1m, pods: 1, gpus: 1}\n\
               - {name: j1, queue: z, at: 168m, run: 86m, pods: 1, gpus: 4}\n\
               - {name: j2, queue: x, at: 0m, run: 38m, pods: 1, gpus: 1}\n\
               - {name: j3, queue: x, at: 168m, run: 1m, pods: 2, gpus: 4}\n\
               - {name: j4, queue: x, at: 143m, run: 64m, pods: 2, gpus: 4, minimum: 1, elastic: true}\n\
               - {name: j5, queue: x, at: 108m, run: 118m, pods: 2, gpus: 4, split: Allowed}\n\
               - {name: j6, queue: z, at: 40m, run: 114m, pods: 3, gpus: 4, checkpoint: 5m}\n\
               - {name: j7, queue: z, at: 498m, run: 46m, pods: 1, gpus: 1, minimum: 1, elastic: true}\n\
               - {name: j8, queue: y, at: 229m, run: 87m, pods: 4, gpus: 1}\n\
               - {name: j9, queue: y, at: 395m, run: 41m, pods: 1, gpus: 1, checkpoint: 17m, minimum: 1, \
               elastic: true}\n\
               - {name: j10, queue: z, at: 52m, run: 53m, pods: 2, gpus: 4, checkpoint: 5m, split: Allowed}\n\
               - {name: j11, queue: z, at: 167m, run: 30m, pods: 1, gpus: 1, checkpoint: 5m, minimum: 1, \
               elastic: true}\n"
            .to_owned(),
        faults: "seed: 723\nrate: 2000\njobsHit: 30%\nrepair: 5m-2h\ndetection: 50s\n\
                 restart: 2m\nuntil: 60h\npreemptionRestarts: false\n"
            .to_owned(),
    };
    check(&case).unwrap();
}

#[test]
fn a_pod_on_a_node_whose_failed_device_was_left_is_hit_by_it() {
    let case = Case {
        fleet: "clusters: [{name: a, nodes: [{count: 2, gpus: 4}]}, \
                {name: b, nodes: [{count: 3, gpus: 4}]}, {name: c, nodes: [{count: 3, gpus: 4}]}]"
            .to_owned(),
        queues: "queues: [{name: x}, {name: y}, {name: z}]".to_owned(),
        jobs: "jobs:\n\
               - {name: j0, queue: x, at: 509m, run: 85m, pods: 3, gpus: 4, split: Allowed}\n\
               - {name: j1, queue: x, at: 0m, run: 1m, pods: 1, gpus: 1}\n"
            .to_owned(),
        faults: "seed: 623\nrate: 10000\njobsHit: 30%\nrepair: 1h\ndetection: 3m\n\
                 restart: 0m\nuntil: 60h\npreemptionRestarts: false\n"
            .to_owned(),
    };
    check(&case).unwrap();
}
