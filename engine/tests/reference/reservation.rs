//! The nodes that are reserved for the head of a queue, and the jobs that may pass it.
//!
//! docs/scheduling.md, "Reservations and backfill": the first job of a queue that does not fit
//! reserves the nodes where it will start soonest. Others pass it only if they leave it enough, or
//! have ended before it starts. Nothing is reserved for a job that the empty fleet could not take.
//! docs/tenants.md, `ordering: Backfill`: others may pass if that does not delay it.
//!
//! One queue, gangs of like pods in one cluster, and ends that are declared and kept to. When the
//! head starts soonest is found by trying each end and every placement. So, of a head that can be
//! placed in one way only:
//! - one behind it starts only where that moves its soonest start to no later time;
//! - it starts no later than was found when it became the head.
//!
//! Of every head:
//! - it starts no later than all has ended that ran when it became the head;
//! - one that fits now and will have ended by then does start, and so does one that fits on nodes
//!   on which no pod of the head does.

use crate::case::{CLUSTERS, Job, PRIORITIES, Role, job_name, job_number, progress};
use crate::room::{Free, fits, minus, place, plus};
use crate::world;
use engine::facts::{Admission, PriorityClassFact};
use engine::{Decision, Engine, EngineConfig, Event, Progress, Time};
use proptest::prelude::*;
use std::cmp::Reverse;

const CORES: i64 = 64;

#[derive(Debug, Clone)]
struct Case {
    /// The cluster of each node, and its GPUs.
    nodes: Vec<(usize, i64)>,
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
}

/// A running job: its end, and its pods by node.
struct Runs {
    job: usize,
    end: i64,
    assumed: Vec<(usize, u32)>,
}

/// The running jobs, the pending jobs, and the latest start of the head.
struct Model<'a> {
    case: &'a Case,
    running: Vec<Runs>,
    waiting: Vec<usize>,
    /// The head, and its latest start.
    promise: Option<(usize, i64)>,
    /// When each job started.
    started: Vec<Option<i64>>,
    /// The number of jobs that passed a head, and of times at which a head waited for the only
    /// possible nodes.
    passed: usize,
    bound: usize,
}

impl Stated {
    fn role(self) -> Role {
        Role {
            count: self.count,
            each: [self.gpus, 1],
        }
    }
}

impl<'a> Model<'a> {
    fn new(case: &'a Case) -> Self {
        Self {
            case,
            running: Vec::new(),
            waiting: Vec::new(),
            promise: None,
            started: vec![None; case.jobs.len()],
            passed: 0,
            bound: 0,
        }
    }

    /// The first job that the empty fleet could take.
    fn head(&self) -> Option<usize> {
        let could = self.waiting.iter().filter(|job| self.fits(**job, i64::MAX));
        could.min_by_key(|job| self.key(**job)).copied()
    }

    /// Its sort key: priority, then age.
    fn key(&self, job: usize) -> (Reverse<i32>, usize) {
        (Reverse(PRIORITIES[self.case.jobs[job].class]), job)
    }

    /// The free capacity of the nodes of a cluster once all jobs have ended that end until `at`.
    fn free(&self, cluster: usize, at: i64) -> Vec<Free> {
        let nodes = self.case.nodes.iter().enumerate();
        let there = nodes.filter(|(_, (of, _))| *of == cluster);
        there
            .map(|(node, (_, gpus))| {
                let stay = self.running.iter().filter(|runs| runs.end > at);
                let assumed = stay.flat_map(|runs| {
                    runs.assumed
                        .iter()
                        .map(move |assumed_pod| (runs, assumed_pod))
                });
                let here = assumed.filter(|(_, (of, _))| *of == node);
                let used = here.fold([0, 0], |sum, (runs, (_, count))| {
                    plus(sum, self.case.jobs[runs.job].role().each, *count)
                });
                Free {
                    node,
                    amounts: minus([*gpus, CORES], used, 1),
                }
            })
            .collect()
    }

    /// Whether the gang fits into a cluster once all jobs have ended that end until `at`.
    fn fits(&self, job: usize, at: i64) -> bool {
        self.fits_where(job, at, |_| true)
    }

    fn fits_where(&self, job: usize, at: i64, may_use: impl Fn(&Free) -> bool) -> bool {
        let role = self.case.jobs[job].role();
        (0..CLUSTERS.len()).any(|cluster| {
            let mut free = self.free(cluster, at);
            free.retain(&may_use);
            place(&[role], &free, &|_| true).is_some()
        })
    }

    /// The earliest start of a job if nothing else starts.
    fn soonest(&self, job: usize, now: i64) -> i64 {
        let ends = self.running.iter().map(|runs| runs.end);
        let moments = ends.chain([now]).filter(|at| self.fits(job, *at));
        moments.min().unwrap()
    }

    /// Whether a pod of the head does not fit on a node even if it is empty.
    fn is_useless_to(&self, head: usize, node: &Free) -> bool {
        let (_, gpus) = self.case.nodes[node.node];
        fits([gpus, CORES], self.case.jobs[head].role().each) == 0
    }

    /// Whether there is only one placement of a job on the empty fleet: then its nodes are given.
    fn is_bound(&self, job: usize) -> bool {
        let stated = self.case.jobs[job];
        let room = |cluster: usize| {
            let free = self.free(cluster, i64::MAX).into_iter();
            free.map(|free| fits(free.amounts, stated.role().each))
                .sum::<u32>()
        };
        let rooms = (0..CLUSTERS.len()).map(room);
        let rooms: Vec<u32> = rooms.filter(|room| *room >= stated.count).collect();
        rooms == [stated.count]
    }

    /// The latest start of the head: the earliest one if its nodes are given, else when all running
    /// jobs have ended.
    fn latest(&self, head: usize, now: i64) -> i64 {
        if self.is_bound(head) {
            return self.soonest(head, now);
        }
        self.running
            .iter()
            .map(|runs| runs.end)
            .max()
            .unwrap_or(now)
    }

    /// Notes the start of a job, if it is allowed.
    fn start(&mut self, job: usize, assumed: Vec<(usize, u32)>, now: i64) -> Result<(), String> {
        let head = self.head();
        let before = head.map(|head| self.soonest(head, now));
        let end = now + self.case.jobs[job].lasts;
        self.waiting.retain(|waits| *waits != job);
        self.running.push(Runs { job, end, assumed });
        self.started[job] = Some(now);
        for cluster in 0..CLUSTERS.len() {
            let free = self.free(cluster, now - 1);
            if let Some(over) = free.iter().find(|free| free.amounts[0] < 0) {
                return Err(format!("n{} is over with j{job:02}", over.node));
            }
        }
        let (Some(head), Some(before)) = (head.filter(|head| *head != job), before) else {
            // The earlier head may count on another time now.
            self.promise = None;
            return Ok(());
        };
        let after = self.soonest(head, now);
        if before == now {
            return Err(format!("j{job:02} starts before j{head:02}, which fits"));
        }
        self.passed += 1;
        if after > before && self.is_bound(head) {
            return Err(format!(
                "j{job:02} delays j{head:02} from {before} to {after} s"
            ));
        }
        Ok(())
    }

    /// Checks, once nothing more starts at `now`, that the head does not fit and is not late, and
    /// that no job waits that passes it without using what it needs.
    fn rest(&mut self, now: i64) -> Result<(), String> {
        let Some(head) = self.head() else {
            self.promise = None;
            return Ok(());
        };
        let start = self.soonest(head, now);
        if start <= now {
            return Err(format!("j{head:02} fits and waits"));
        }
        self.bound += usize::from(self.is_bound(head));
        match self.promise {
            Some((of, promised)) if of == head => {
                // It waits until then; at that time it starts, or it would not be here.
                if now >= promised {
                    return Err(format!("j{head:02} was to start at {promised} s"));
                }
            }
            _ => self.promise = Some((head, self.latest(head, now))),
        }
        let behind = self.waiting.iter().filter(|job| **job != head);
        for job in behind {
            let ends = now + self.case.jobs[*job].lasts;
            if ends <= start && self.fits(*job, now) {
                return Err(format!(
                    "j{job:02} waits, and would end before j{head:02} starts"
                ));
            }
            if self.fits_where(*job, now, |node| self.is_useless_to(head, node)) {
                return Err(format!(
                    "j{job:02} waits for nodes that j{head:02} cannot use"
                ));
            }
        }
        Ok(())
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
        release_all(&mut engine, model, now)
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

fn new_engine(case: &Case) -> Engine {
    let mut engine = Engine::new(EngineConfig::default());
    for (index, value) in PRIORITIES.into_iter().enumerate() {
        engine.apply(Event::PriorityClassUpserted(PriorityClassFact {
            name: format!("p{index}"),
            value,
            global_default: false,
            preempts: false,
        }));
    }
    for name in CLUSTERS {
        engine.apply(Event::ClusterUpserted(world::cluster(name)));
    }
    for (index, (cluster, gpus)) in case.nodes.iter().enumerate() {
        let has = format!("gpu {gpus}, cpu {CORES}");
        let fact = world::node(CLUSTERS[*cluster], &format!("n{index}"), &has);
        engine.apply(Event::NodeUpserted(fact));
    }
    engine.apply(Event::QueueUpserted(world::queue("q0")));
    engine.apply(Event::PolicyUpserted(world::policy("q0")));
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
    engine.apply(Event::JobUpserted(engine::facts::JobFact {
        expected_duration_ms: Some(stated.lasts * 1000),
        ..fact.fact(&job_name(job))
    }));
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

fn case() -> impl Strategy<Value = Case> {
    let gpus = prop_oneof![1..4_i64, 4..9_i64];
    let job = (0..4_i64, 1..4_u32, gpus, 1..20_i64, 0..3_usize).prop_map(
        |(after, count, gpus, lasts, class)| Stated {
            after,
            count,
            gpus,
            lasts,
            class,
        },
    );
    (
        proptest::collection::vec((0..2_usize, 2..9_i64), 1..5),
        proptest::collection::vec(job, 4..14),
    )
        .prop_map(|(nodes, jobs)| Case { nodes, jobs })
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
    }
}

/// The head reserves nodes of one cluster, and others pass it on those of the other. Once less had
/// to become free there, it moved to where it starts later.
#[test]
fn the_head_does_not_move_to_nodes_where_it_starts_later() {
    let case = Case {
        nodes: vec![(0, 5), (1, 7), (0, 6), (1, 4)],
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
        jobs: vec![job(1, 30), job(1, 10), job(2, 5), job(1, 20)],
    };
    let mut model = Model::new(&case);
    compare(&case, &mut model).unwrap();
    assert_eq!(model.started[2], Some(1010));
}

/// The rules would hold for cases in which no job waits, and for an engine that lets no job pass.
#[test]
fn the_random_cases_do_pass_the_head_and_do_bind_it_to_its_nodes() {
    use proptest::strategy::ValueTree;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let (mut passed, mut bound) = (0, 0);
    for _ in 0..50 {
        let case = case().new_tree(&mut runner).unwrap().current();
        let mut model = Model::new(&case);
        compare(&case, &mut model).unwrap();
        passed += model.passed;
        bound += model.bound;
    }
    assert!(passed > 15 && bound > 30, "{passed} {bound}");
}
