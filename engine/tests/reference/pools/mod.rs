//! Bounds on pools: the quota of a queue for a class of GPUs, in all clusters or in some.
//!
//! docs/scheduling.md, "Quota": an entry of `pools[]` counts one class of GPUs, in all clusters or
//! in those it names; `capability` is never exceeded, `guarantee` is withheld for the queue even
//! while it is idle, from all others together, too; a job must pass at its own queue and at every
//! queue above it. The real capability of a queue is its parent's, less the guarantees of its
//! siblings. docs/tenants.md: lowered below the usage, a capability blocks new jobs and evicts
//! none.
//!
//! The test checks that no admission exceeds a bound of any queue on the job's path, or uses a
//! guarantee of another queue, and that the allocated amounts by pool are the sum of the running
//! jobs. Without guarantees no job waits that could start, by trying every cluster and every
//! placement on GPUs of one class.

mod random;

use crate::case::{
    Amounts, CLUSTERS, GPU, Job, Role, amounts, first_that_fits, job_name, job_number, queue_name,
};
use crate::room::{Free, minus, place, plus};
use crate::world::{World, bound, cluster, node, queue};
use engine::facts::{Admission, PolicyFact, PoolBound, QueueFact};
use engine::{Decision, Event, PoolClass, QueueName};
use proptest::prelude::*;

const CLASSES: [&str; 2] = ["gpu", "big"];
const CORES: i64 = 64;

#[derive(Debug, Clone)]
struct Case {
    /// Queues directly below the root come first; the others are below one of them.
    queues: Vec<Queue>,
    nodes: Vec<Node>,
    rounds: Vec<Round>,
}

#[derive(Debug, Clone)]
struct Queue {
    parent: Option<usize>,
    pools: Vec<Pool>,
}

/// A bound in GPUs.
#[derive(Debug, Clone)]
struct Pool {
    class: usize,
    /// Whether it counts each cluster.
    clusters: [bool; 3],
    guarantee: i64,
    capability: Option<i64>,
}

#[derive(Debug, Clone)]
struct Node {
    cluster: usize,
    class: usize,
    gpus: i64,
}

#[derive(Debug, Clone)]
struct Round {
    finish: Vec<usize>,
    submit: Vec<Job>,
    /// A change of a bound: the queue, the index of the bound, the new amount.
    bound: Option<(usize, usize, i64)>,
}

/// A job and, while it runs, its pods: (node, role, how many).
struct Entry {
    job: Job,
    assumed: Vec<(usize, usize, u32)>,
    waits: bool,
}

struct Both {
    case: Case,
    world: World,
    jobs: Vec<Entry>,
    released: usize,
    /// Jobs that only a bound blocked.
    stopped: usize,
    /// True if a job must start whose pods need GPUs of both classes in one cluster.
    mixes: bool,
}

impl Pool {
    fn everywhere(class: usize) -> Self {
        Self {
            class,
            clusters: [true; 3],
            guarantee: 0,
            capability: None,
        }
    }

    fn counts(&self, node: &Node) -> bool {
        self.class == node.class && self.clusters[node.cluster]
    }

    fn fact(&self) -> PoolBound {
        let named: Vec<&str> = (0..CLUSTERS.len())
            .filter(|at| self.clusters[*at])
            .map(|at| CLUSTERS[at])
            .collect();
        let all = named.len() == CLUSTERS.len();
        let gpus = |gpus: Option<i64>| gpus.map_or_else(String::new, |gpus| format!("gpu {gpus}"));
        let kept = crate::world::res(&gpus(Some(self.guarantee).filter(|gpus| *gpus > 0)));
        PoolBound {
            guarantee: kept.clone(),
            deserved: kept,
            ..bound(
                CLASSES[self.class],
                (!all).then_some(&named),
                &gpus(self.capability),
            )
        }
    }
}

impl Queue {
    fn fact(&self, index: usize) -> QueueFact {
        QueueFact {
            parent: self.parent.map(|parent| queue_name(parent).as_str().into()),
            ..queue(&queue_name(index))
        }
    }

    fn policy(&self, index: usize) -> PolicyFact {
        PolicyFact {
            pools: self.pools.iter().map(Pool::fact).collect(),
            ..first_that_fits(index)
        }
    }
}

impl Case {
    fn path(&self, queue: usize) -> Vec<usize> {
        std::iter::successors(Some(queue), |at| self.queues[*at].parent).collect()
    }

    fn siblings(&self, queue: usize) -> Vec<usize> {
        let all = 0..self.queues.len();
        let same = |at: &usize| self.queues[*at].parent == self.queues[queue].parent;
        all.filter(|at| *at != queue && same(at)).collect()
    }

    /// The total of the fleet in the pools of a bound.
    fn has(&self, pool: &Pool) -> i64 {
        let counted = self.nodes.iter().filter(|node| pool.counts(node));
        counted.map(|node| node.gpus).sum()
    }

    fn guarantees(&self) -> bool {
        let mut pools = self.queues.iter().flat_map(|queue| &queue.pools);
        pools.any(|pool| pool.guarantee > 0)
    }
}

impl Both {
    fn new(case: &Case) -> Self {
        let mut world = World::new();
        for name in CLUSTERS {
            world.apply(Event::ClusterUpserted(cluster(name)));
        }
        for (index, stated) in case.nodes.iter().enumerate() {
            let has = format!("gpu {}, cpu {CORES}", stated.gpus);
            let mut fact = node(CLUSTERS[stated.cluster], &format!("n{index}"), &has);
            fact.class = PoolClass::from(CLASSES[stated.class]);
            world.apply(Event::NodeUpserted(fact));
        }
        for (index, queue) in case.queues.iter().enumerate() {
            world.queue(queue.fact(index)).policy(queue.policy(index));
        }
        Self {
            case: case.clone(),
            world,
            jobs: Vec::new(),
            released: 0,
            stopped: 0,
            mixes: false,
        }
    }

    fn round(&mut self, round: &Round) -> Result<(), String> {
        self.world.wait(1);
        for pick in &round.finish {
            let all = 0..self.jobs.len();
            let running: Vec<usize> = all
                .filter(|job| !self.jobs[*job].assumed.is_empty())
                .collect();
            if !running.is_empty() {
                let job = running[pick % running.len()];
                self.world.finish(&job_name(job));
                self.jobs[job].assumed.clear();
            }
        }
        if let Some((queue, pool, gpus)) = round.bound {
            self.case.queues[queue].pools[pool].capability = Some(gpus);
            self.world.policy(self.case.queues[queue].policy(queue));
        }
        for job in &round.submit {
            let fact = job.fact(&job_name(self.jobs.len()));
            let fact = engine::facts::JobFact {
                priority_class: None,
                ..fact
            };
            self.world.apply(Event::JobUpserted(fact));
            self.jobs.push(Entry {
                job: job.clone(),
                assumed: Vec::new(),
                waits: true,
            });
        }
        self.decide()?;
        self.same_numbers()?;
        self.nobody_is_left()
    }

    fn decide(&mut self) -> Result<(), String> {
        loop {
            let decided = self.world.decided();
            for decision in decided.decisions {
                let Decision::Release { key, admission, .. } = decision else {
                    return Err(format!("nothing but releases was expected: {decision:?}"));
                };
                self.start(job_number(&key.name), &admission)?;
            }
            if !decided.more {
                return Ok(());
            }
        }
    }

    fn start(&mut self, job: usize, admission: &Admission) -> Result<(), String> {
        let slots = admission.shares.iter().flat_map(|share| &share.slots);
        let number = |name: &str| name[1..].parse::<usize>().unwrap();
        self.jobs[job].assumed = slots
            .map(|slot| (number(slot.node.as_str()), number(&slot.role), slot.count))
            .collect();
        self.jobs[job].waits = false;
        self.released += 1;
        self.world.run(&job_name(job));
        for queue in self.case.path(self.jobs[job].job.queue) {
            for pool in &self.case.queues[queue].pools {
                let held = self.held(queue, pool);
                let adds = self.of_job(job, pool) > 0;
                if adds && pool.capability.is_some_and(|most| held > most) {
                    return Err(format!("j{job:02}: q{queue} has {held} within {pool:?}"));
                }
            }
            for other in self.case.siblings(queue) {
                for kept in &self.case.queues[other].pools {
                    self.leaves(job, queue, kept)?;
                    self.leaves_together(job, queue, kept)?;
                }
            }
        }
        Ok(())
    }

    /// No job uses what is guaranteed to a sibling of its queue.
    fn leaves(&self, job: usize, queue: usize, kept: &Pool) -> Result<(), String> {
        let held = self.held(queue, kept);
        let most = self.case.has(kept) - kept.guarantee;
        if kept.guarantee > 0 && self.of_job(job, kept) > 0 && held > most {
            return Err(format!(
                "j{job:02}: q{queue} has {held} of what {kept:?} leaves of {most}"
            ));
        }
        Ok(())
    }

    /// The usage of siblings in the pools of a bound and the idle guarantees of the others are
    /// together at most the total.
    fn leaves_together(&self, job: usize, queue: usize, kept: &Pool) -> Result<(), String> {
        let mut all = self.case.siblings(queue);
        all.push(queue);
        let committed = |queue: &usize| {
            let same = |pool: &&Pool| (pool.class, pool.clusters) == (kept.class, kept.clusters);
            let pools = self.case.queues[*queue].pools.iter().filter(same);
            let guaranteed: i64 = pools.map(|pool| pool.guarantee).sum();
            self.held(*queue, kept).max(guaranteed)
        };
        let committed: i64 = all.iter().map(committed).sum();
        let has = self.case.has(kept);
        if kept.guarantee > 0 && self.of_job(job, kept) > 0 && committed > has {
            return Err(format!(
                "j{job:02}: {committed} of {has} are held or guaranteed of {kept:?}"
            ));
        }
        Ok(())
    }

    /// The GPUs of a job in the pools of a bound.
    fn of_job(&self, job: usize, pool: &Pool) -> i64 {
        let entry = &self.jobs[job];
        let assumed = entry.assumed.iter();
        let counted = assumed.filter(|(node, ..)| pool.counts(&self.case.nodes[*node]));
        counted
            .map(|(_, role, count)| entry.job.roles[*role].each[GPU] * i64::from(*count))
            .sum()
    }

    /// The same for all jobs of a queue and of those below it.
    fn held(&self, queue: usize, pool: &Pool) -> i64 {
        let all = 0..self.jobs.len();
        let below = all.filter(|job| self.case.path(self.jobs[*job].job.queue).contains(&queue));
        below.map(|job| self.of_job(job, pool)).sum()
    }

    fn free(&self, node: usize) -> Amounts {
        let has = [self.case.nodes[node].gpus, CORES];
        self.jobs.iter().fold(has, |free, entry| {
            let here = entry.assumed.iter().filter(|(at, ..)| *at == node);
            here.fold(free, |free, (_, role, count)| {
                minus(free, entry.job.roles[*role].each, *count)
            })
        })
    }

    /// Returns true if the job fits into some cluster: within all bounds, or as if there were none.
    fn could_go(&self, job: usize, bounded: bool) -> bool {
        let stated = &self.jobs[job].job;
        let path = self.case.path(stated.queue);
        (0..CLUSTERS.len()).any(|cluster| {
            let all = 0..self.case.nodes.len();
            let there = all.filter(|node| self.case.nodes[*node].cluster == cluster);
            let nodes: Vec<Free> = there
                .map(|node| Free {
                    node,
                    amounts: self.free(node),
                })
                .collect();
            let adds = |pool: &Pool, placed: &[Vec<u32>]| {
                let by_role = stated.roles.iter().zip(placed);
                by_role
                    .flat_map(|(role, counts)| nodes.iter().zip(counts).map(move |at| (role, at)))
                    .filter(|(_, (node, _))| pool.counts(&self.case.nodes[node.node]))
                    .fold([0, 0], |sum, (role, (_, count))| {
                        plus(sum, role.each, *count)
                    })[GPU]
            };
            let one_class = |placed: &[Vec<u32>]| {
                let uses = |class: usize| adds(&Pool::everywhere(class), placed) > 0;
                self.mixes || !(uses(0) && uses(1))
            };
            let within = |placed: &[Vec<u32>]| {
                let mut pools = path.iter().flat_map(|queue| {
                    let pools = self.case.queues[*queue].pools.iter();
                    pools.map(move |pool| (*queue, pool))
                });
                !bounded
                    || one_class(placed)
                        && pools.all(|(queue, pool)| {
                            let adds = adds(pool, placed);
                            let most = pool.capability.unwrap_or(i64::MAX);
                            adds == 0 || self.held(queue, pool) + adds <= most
                        })
            };
            place(&stated.roles, &nodes, &within).is_some()
        })
    }

    fn nobody_is_left(&mut self) -> Result<(), String> {
        for job in 0..self.jobs.len() {
            if !self.jobs[job].waits {
                continue;
            }
            if !self.case.guarantees() && self.could_go(job, true) {
                let why = self.world.why(&job_name(job));
                return Err(format!("j{job:02} could go and waits: {why}"));
            }
            self.stopped += usize::from(self.could_go(job, false));
        }
        Ok(())
    }

    fn is_leaf(&self, queue: usize) -> bool {
        let mut queues = self.case.queues.iter();
        queues.all(|other| other.parent != Some(queue))
    }

    /// The usage of a queue by bound, from the engine.
    fn same_numbers(&self) -> Result<(), String> {
        for (index, queue) in self.case.queues.iter().enumerate() {
            let usage = self
                .world
                .engine
                .queue_usage(&QueueName::from(queue_name(index).as_str()));
            let usage = usage.ok_or_else(|| format!("q{index} is not known"))?;
            if let Some((reason, why)) = usage.closed.filter(|_| self.is_leaf(index)) {
                return Err(format!("q{index} is closed: {reason}: {why}"));
            }
            for (pool, told) in queue.pools.iter().zip(&usage.pools) {
                let held = self.held(index, pool);
                if amounts(&told.allocated)[GPU] != held {
                    return Err(format!("q{index} has {held} of {pool:?}, not {told:?}"));
                }
            }
        }
        Ok(())
    }
}

fn hold(case: &Case) -> Result<(usize, usize), String> {
    let mut both = Both::new(case);
    for round in &case.rounds {
        both.round(round)?;
    }
    Ok((both.released, both.stopped))
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: crate::cases(300),
        max_shrink_iters: 10_000,
        ..ProptestConfig::default()
    })]

    #[test]
    fn no_bound_on_pools_is_exceeded_and_no_job_waits_without_reason(case in random::case()) {
        hold(&case).map_err(TestCaseError::fail)?;
    }
}

/// The bounds would hold for an engine that admits nothing, and in fleets where they do not bind.
#[test]
fn the_random_cases_do_admit_and_their_bounds_do_block() {
    use proptest::strategy::ValueTree;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let cases = (0..50).map(|_| random::case().new_tree(&mut runner).unwrap().current());
    let told: Vec<(usize, usize)> = cases.map(|case| hold(&case).unwrap()).collect();
    let released: usize = told.iter().map(|(released, _)| released).sum();
    let stopped: usize = told.iter().map(|(_, stopped)| stopped).sum();
    assert!(released > 50 && stopped > 50, "{released} {stopped}");
}

/// Of nine GPUs in pods of three, six are used in the class without a bound and three in the other,
/// of which the queue may use three. The mix of classes that fits best uses six of that one.
#[test]
fn a_job_that_needs_two_classes_starts_within_the_bound_on_one() {
    let node = |class, gpus| Node {
        cluster: 0,
        class,
        gpus,
    };
    let bounded = Pool {
        capability: Some(3),
        ..Pool::everywhere(0)
    };
    let role = Role {
        count: 3,
        each: [3, 1],
    };
    let job = Job {
        queue: 0,
        class: 0,
        queued_at: 0,
        user: 0,
        roles: vec![role],
    };
    let round = Round {
        finish: Vec::new(),
        submit: vec![job],
        bound: None,
    };
    let queue = Queue {
        parent: None,
        pools: vec![bounded],
    };
    let case = Case {
        queues: vec![queue],
        nodes: vec![node(0, 6), node(1, 7)],
        rounds: Vec::new(),
    };
    let mut both = Both::new(&case);
    both.mixes = true;
    both.round(&round).unwrap();
}
