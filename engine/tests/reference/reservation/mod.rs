//! The nodes that are reserved for the head of a queue, and the jobs that may pass it.
//!
//! docs/scheduling.md, "Reservations and backfill": the first job of a queue that does not fit
//! reserves the nodes where it will start soonest. Others pass it only if they leave it enough, or
//! have ended before it starts. Nothing is reserved for a job that the empty fleet could not take,
//! nor nodes on which it cannot start. Nodes that are free before the quota are left to others.
//! docs/tenants.md, `ordering: Backfill`: others may pass if that does not delay it.
//!
//! One queue, gangs of like pods in one cluster or in one rack, a bound on a class of GPUs, and ends
//! that are declared and kept to. When the head starts soonest is found by trying each end and every
//! placement. So, of a head that can be placed in one way only:
//! - one behind it starts only where that moves its soonest start to no later time;
//! - it starts no later than was found when it became the head.
//!
//! While the bound has room for it later than there are nodes, these are left to others: one behind
//! it may take nodes, and delays no more than the bound.
//!
//! Of a head that can be placed in one way in each of several racks or clusters: it starts in about
//! twice the time at most until it can in the first of them.
//!
//! Of every head:
//! - it starts no later than all has ended that ran when it became the head, or, if the bound has no
//!   room then, when it first has;
//! - the nodes that are reserved for a job could take it if nothing else ran, in one rack if it must
//!   be, and within the bound;
//! - one that fits now and will have ended by then does start, and so does one that fits on nodes
//!   on which no pod of the head does.

mod model;

use crate::case::{CLUSTERS, Job, Role, job_name, job_number, priority_classes, progress};
use crate::world;
use engine::facts::{Admission, NodeFact, PolicyFact, Topology};
use engine::{Decision, Engine, EngineConfig, Event, PoolClass, Progress, Time};
use model::{Model, Runs};
use proptest::option::weighted;
use proptest::prelude::*;

const CORES: i64 = 64;

#[derive(Debug, Clone)]
struct Case {
    /// The cluster of each node, and its GPUs.
    nodes: Vec<(usize, i64)>,
    /// The number of racks of each cluster; nodes are in them in turn.
    racks: usize,
    /// The most GPUs of the class `gpu`; each second node is of another one. If unset, all are of that class.
    bound: Option<i64>,
    jobs: Vec<Stated>,
}

/// A gang that is submitted `after` the one before and declares that it `lasts`.
#[derive(Debug, Clone, Copy)]
struct Stated {
    after: i64,
    count: u32,
    gpus: i64,
    lasts: i64,
    class: usize,
    /// True if it must be in one rack.
    hard: bool,
}

impl Case {
    fn rack(&self, node: usize) -> usize {
        node / 2 % self.racks
    }

    fn is_big(&self, node: usize) -> bool {
        self.bound.is_some() && node % 2 == 1
    }
}

impl Stated {
    /// The same with its times in units of so many seconds.
    fn in_units_of(self, unit: i64) -> Self {
        Self {
            after: self.after * unit,
            lasts: self.lasts * unit,
            ..self
        }
    }

    fn role(self) -> Role {
        Role {
            count: self.count,
            each: [self.gpus, 1],
        }
    }
}

/// Runs the engine and the model through the times at which a job is submitted or ends.
fn compare(case: &Case, model: &mut Model<'_>) -> Result<(), String> {
    let mut engine = new_engine(case);
    let mut at = 1000;
    let mut arrivals = Vec::new();
    for (job, stated) in case.jobs.iter().enumerate() {
        at += stated.after;
        arrivals.push((at, job));
    }
    loop {
        let ends = model.running.iter().map(|runs| runs.end);
        let comes = arrivals.first().map(|(at, _)| *at);
        let Some(now) = ends.chain(comes).min() else {
            break;
        };
        for runs in model.running.extract_if(.., |runs| runs.end == now) {
            bind(&mut engine, case, &runs, false);
            progress(&mut engine, runs.job, Progress::Finished, Time(now * 1000));
        }
        for (_, job) in arrivals.extract_if(.., |(at, _)| *at == now) {
            submit(&mut engine, job, case.jobs[job], now);
            model.waiting.push(job);
        }
        let released = release_all(&mut engine, model, now);
        released
            .and_then(|()| may_start_on_reserved_nodes(&engine, model))
            .and_then(|()| model.rest(now))
            .map_err(|wrong| format!("at {now} s: {wrong}"))?;
    }
    Ok(())
}

fn release_all(engine: &mut Engine, model: &mut Model<'_>, now: i64) -> Result<(), String> {
    loop {
        let decided = engine.decide(Time(now * 1000));
        for decision in decided.decisions {
            let Decision::Release { key, admission, .. } = decision else {
                return Err(format!("nothing but releases was expected: {decision:?}"));
            };
            let job = job_number(&key.name);
            model.start(job, assumed(&admission), now)?;
            if let Some(runs) = model.running.last() {
                bind(engine, model.case, runs, true);
            }
            progress(engine, job, Progress::Running, Time(now * 1000));
        }
        if !decided.more {
            break;
        }
    }
    Ok(())
}

fn may_start_on_reserved_nodes(engine: &Engine, model: &Model<'_>) -> Result<(), String> {
    let snapshot = serde_json::to_value(engine.snapshot()).unwrap();
    for reserved in snapshot["reservations"].as_array().unwrap() {
        let job = job_number(reserved["rank"]["key"]["name"].as_str().unwrap());
        let nodes = reserved["nodes"].as_array().unwrap().iter();
        let names = nodes.map(|node| node["node"].as_str().unwrap());
        let nodes: Vec<usize> = names.map(|name| name[1..].parse().unwrap()).collect();
        model.may_reserve(job, &nodes)?;
    }
    Ok(())
}

fn new_engine(case: &Case) -> Engine {
    let mut engine = Engine::new(EngineConfig::default());
    priority_classes().for_each(|class| engine.apply(class));
    for name in CLUSTERS {
        engine.apply(Event::ClusterUpserted(world::cluster(name)));
    }
    for (index, (cluster, gpus)) in case.nodes.iter().enumerate() {
        let has = format!("gpu {gpus}, cpu {CORES}");
        let fact = world::node(CLUSTERS[*cluster], &format!("n{index}"), &has);
        let class = if case.is_big(index) { "big" } else { "gpu" };
        engine.apply(Event::NodeUpserted(NodeFact {
            class: PoolClass::from(class),
            domains: vec!["z".to_owned(), format!("r{}", case.rack(index))],
            ..fact
        }));
    }
    engine.apply(Event::QueueUpserted(world::queue("q0")));
    let bound = |most: i64| world::bound("gpu", None, &format!("gpu {most}"));
    engine.apply(Event::PolicyUpserted(PolicyFact {
        pools: case.bound.into_iter().map(bound).collect(),
        ..world::policy("q0")
    }));
    engine
}

fn submit(engine: &mut Engine, job: usize, stated: Stated, now: i64) {
    let fact = Job {
        queue: 0,
        class: stated.class,
        queued_at: now,
        user: 0,
        roles: vec![stated.role()],
    };
    let mut fact = fact.fact(&job_name(job));
    fact.expected_duration_ms = Some(stated.lasts * 1000);
    fact.demand.topology = stated.hard.then_some(Topology {
        hard: true,
        highest_tier: 1,
    });
    engine.apply(Event::JobUpserted(fact));
}

fn assumed(admission: &Admission) -> Vec<(usize, u32)> {
    let slots = admission.shares.iter().flat_map(|share| &share.slots);
    slots
        .map(|slot| (slot.node.as_str()[1..].parse().unwrap(), slot.count))
        .collect()
}

/// Binds the pods of a job as planned, or removes them.
fn bind(engine: &mut Engine, case: &Case, runs: &Runs, there: bool) {
    let request = format!("gpu {}, cpu 1", case.jobs[runs.job].gpus);
    for (node, count) in &runs.assumed {
        for index in 0..*count {
            let pod = engine::facts::PodFact {
                cluster: CLUSTERS[case.nodes[*node].0].into(),
                uid: format!("{}-{node}-{index}", job_name(runs.job))
                    .as_str()
                    .into(),
                node: Some(format!("n{node}").as_str().into()),
                request: world::pod(&request),
                job: Some(world::key(&job_name(runs.job))),
                phase: engine::facts::PodPhase::Running,
                symptom: None,
                grace_s: 0,
            };
            engine.apply(if there {
                Event::PodUpserted(pod)
            } else {
                Event::PodGone(pod.cluster, pod.uid)
            });
        }
    }
}

/// Run times count as they are up to 16 of a unit: no longer one is rounded up.
fn case() -> impl Strategy<Value = Case> {
    let gpus = prop_oneof![1..4_i64, 4..9_i64];
    let job = (
        0..4_i64,
        1..4_u32,
        gpus,
        1..17_i64,
        0..3_usize,
        proptest::bool::weighted(0.5),
    )
        .prop_map(|(after, count, gpus, lasts, class, hard)| Stated {
            after,
            count,
            gpus,
            lasts,
            class,
            hard,
        });
    (
        proptest::collection::vec((0..2_usize, 2..9_i64), 1..7),
        1..4_usize,
        weighted(0.4, 1..20_i64),
        proptest::collection::vec(job, 4..14),
        prop_oneof![Just(1), Just(600)],
    )
        .prop_map(|(nodes, racks, bound, jobs, unit)| Case {
            nodes,
            racks,
            bound,
            jobs: jobs.into_iter().map(|job| job.in_units_of(unit)).collect(),
        })
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: crate::cases(150),
        max_shrink_iters: 10_000,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_job_that_passes_the_head_does_not_delay_it_and_one_that_would_not_passes(case in case()) {
        compare(&case, &mut Model::new(&case)).map_err(TestCaseError::fail)?;
    }
}

fn job(after: i64, (count, gpus): (u32, i64), lasts: i64, class: usize) -> Stated {
    Stated {
        after,
        count,
        gpus,
        lasts,
        class,
        hard: false,
    }
}

/// The head reserves nodes of one cluster, and others pass it on those of the other. Once less had
/// to become free there, it moved to where it starts later.
#[test]
fn the_head_does_not_move_to_nodes_where_it_starts_later() {
    let case = Case {
        nodes: vec![(0, 5), (1, 7), (0, 6), (1, 4)],
        racks: 1,
        bound: None,
        jobs: vec![
            job(0, (2, 3), 12, 0),
            job(0, (2, 1), 4, 2),
            job(1, (1, 1), 1, 0),
            job(0, (2, 2), 12, 0),
            job(0, (1, 4), 1, 0),
            job(0, (3, 3), 1, 0),
            job(1, (2, 2), 11, 0),
            job(2, (2, 1), 10, 2),
        ],
    };
    compare(&case, &mut Model::new(&case)).unwrap();
}

/// The same on two nodes of one cluster: two pods on one and one on the other, or the reverse.
#[test]
fn the_head_does_not_move_pods_to_a_node_where_it_starts_later() {
    let case = Case {
        nodes: vec![(1, 8), (1, 8)],
        racks: 1,
        bound: None,
        jobs: vec![
            job(0, (1, 1), 4, 0),
            job(0, (1, 3), 8, 0),
            job(0, (2, 2), 5, 0),
            job(3, (1, 1), 1, 0),
            job(1, (2, 1), 13, 0),
            job(0, (3, 4), 1, 0),
            job(0, (1, 1), 14, 0),
            job(0, (3, 3), 3, 2),
            job(2, (1, 4), 1, 0),
            job(0, (3, 1), 10, 0),
        ],
    };
    compare(&case, &mut Model::new(&case)).unwrap();
}

/// The head lacks headroom of a bound, which becomes free last: a job that has ended by then passes it.
#[test]
fn a_job_that_ends_before_a_bound_has_room_for_the_head_passes_it() {
    let case = Case {
        nodes: vec![(0, 2), (0, 6), (1, 6), (1, 8), (0, 4)],
        racks: 1,
        bound: Some(4),
        jobs: vec![
            job(0, (1, 5), 10, 0),
            job(0, (1, 5), 3, 0),
            job(0, (1, 4), 1, 0),
            job(0, (1, 4), 6, 0),
            job(0, (3, 3), 1, 0),
            job(0, (1, 1), 1, 0),
            job(0, (1, 2), 4, 2),
        ],
    };
    compare(&case, &mut Model::new(&case)).unwrap();
}

/// In one rack less has to become free, in the other it is free much sooner: there the head reserves
/// nodes, so that the last job, which would have ended before the one is free, leaves it the other.
#[test]
fn of_two_racks_the_head_reserves_the_one_that_is_free_much_sooner() {
    let job = |size, lasts, hard| Stated {
        hard,
        ..job(0, size, lasts, 0).in_units_of(600)
    };
    let case = Case {
        nodes: vec![(0, 8); 4],
        racks: 2,
        bound: None,
        jobs: vec![
            job((1, 8), 16, false),
            job((2, 5), 2, true),
            job((2, 8), 1, true),
            job((1, 3), 12, false),
        ],
    };
    let mut model = Model::new(&case);
    compare(&case, &mut model).unwrap();
    assert_eq!(model.started[2], Some(1000 + 2 * 600));
}

/// The head fits on the nodes of `y` once the first job has ended, which gives the bound back. Within what the bound
/// leaves now there are only nodes of `x`, which are free much later: if it reserved those, the last job would pass on
/// `y`.
#[test]
fn the_head_reserves_nodes_that_a_bound_leaves_when_they_are_free() {
    let job = |after, size, lasts, class| job(after, size, lasts, class).in_units_of(600);
    let case = Case {
        nodes: vec![(1, 5), (0, 4), (0, 5), (0, 3), (1, 5), (0, 6)],
        racks: 2,
        bound: Some(13),
        jobs: vec![
            job(0, (1, 2), 6, 2),
            job(0, (2, 2), 10, 0),
            job(2, (3, 1), 9, 0),
            job(2, (2, 5), 1, 0),
            job(1, (2, 2), 7, 0),
        ],
    };
    let mut model = Model::new(&case);
    compare(&case, &mut model).unwrap();
    assert_eq!(model.started[3], Some(4600));
}

/// The head of EASY backfill reserves the nodes where it will start soonest. The engine reserves
/// those where the least has to become free, whenever that is (docs/scheduling.md): here both nodes
/// lack as much, it reserves the first by name for 30 s, and the last job passes on the idle node
/// for 20 s, although the head could have started there and on the second node after 10 s.
#[test]
#[ignore = "limitation: the head keeps the nodes where the least has to become free, not those where it starts soonest"]
fn the_head_reserves_the_nodes_where_it_starts_soonest() {
    let job = |count, lasts| job(0, (count, 8), lasts, 0);
    let case = Case {
        nodes: vec![(0, 8); 3],
        racks: 1,
        bound: None,
        jobs: vec![job(1, 30), job(1, 10), job(2, 5), job(1, 20)],
    };
    let mut model = Model::new(&case);
    compare(&case, &mut model).unwrap();
    assert_eq!(model.started[2], Some(1010));
}

/// The rules would hold for cases in which no job waits, and for an engine that lets no job pass.
#[test]
fn the_random_cases_do_pass_the_head_and_do_bind_it_to_nodes_racks_and_a_bound() {
    use proptest::strategy::ValueTree;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let (mut passed, mut bound, mut racked, mut bounded) = (0, 0, 0, 0);
    for _ in 0..200 {
        let case = case().new_tree(&mut runner).unwrap().current();
        let mut model = Model::new(&case);
        compare(&case, &mut model).unwrap();
        passed += model.passed;
        bound += model.bound;
        racked += model.racked;
        bounded += model.bounded;
    }
    let seen = format!("{passed} {bound} {racked} {bounded}");
    assert!(
        passed > 15 && bound > 30 && racked > 15 && bounded > 15,
        "{seen}"
    );
}
