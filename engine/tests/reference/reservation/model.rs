//! Where the head of a queue fits and when, by trying each end and every placement.

use super::{CORES, Case};
use crate::case::{CLUSTERS, PRIORITIES};
use crate::room::{Free, fits, minus, place, plus};
use std::cmp::Reverse;

/// Starts that are less than this away are as good as each other, in seconds.
const SOON: i64 = 600;

/// A running job: its end, and its pods by node.
pub(super) struct Runs {
    pub(super) job: usize,
    pub(super) end: i64,
    pub(super) assumed: Vec<(usize, u32)>,
}

/// The running jobs, the pending jobs, and the latest start of the head.
pub(super) struct Model<'a> {
    pub(super) case: &'a Case,
    pub(super) running: Vec<Runs>,
    pub(super) waiting: Vec<usize>,
    /// The head, and its latest start.
    promise: Option<(usize, i64)>,
    /// When each job started.
    pub(super) started: Vec<Option<i64>>,
    /// The number of jobs that passed a head, and of times at which a head waited for the only
    /// possible nodes.
    pub(super) passed: usize,
    pub(super) bound: usize,
    /// The number of times at which a head waited for one rack, and for a bound on a class: it would have fitted
    /// else.
    pub(super) racked: usize,
    pub(super) bounded: usize,
}

impl<'a> Model<'a> {
    pub(super) fn new(case: &'a Case) -> Self {
        Self {
            case,
            running: Vec::new(),
            waiting: Vec::new(),
            promise: None,
            started: vec![None; case.jobs.len()],
            passed: 0,
            bound: 0,
            racked: 0,
            bounded: 0,
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

    /// Returns true if the gang fits once all jobs have ended that end until `at`: in one cluster, or one rack if it
    /// must be, and within the bound.
    fn fits(&self, job: usize, at: i64) -> bool {
        self.fits_where(job, at, |_| true)
    }

    fn fits_where(&self, job: usize, at: i64, may_use: impl Fn(&Free) -> bool) -> bool {
        let hard = self.case.jobs[job].hard;
        self.fits_within(job, at, (hard, self.case.bound), may_use)
    }

    fn fits_within(
        &self,
        job: usize,
        at: i64,
        (hard, bound): (bool, Option<i64>),
        may_use: impl Fn(&Free) -> bool,
    ) -> bool {
        let role = self.case.jobs[job].role();
        let charged = self.charged(at);
        self.domains(hard).into_iter().any(|domain| {
            let mut free: Vec<Free> = (0..CLUSTERS.len())
                .flat_map(|cluster| self.free(cluster, at))
                .collect();
            free.retain(|node| domain.contains(&node.node) && may_use(node));
            let within = |placed: &[Vec<u32>]| {
                let pods = free.iter().zip(&placed[0]);
                let counted = pods.filter(|(node, _)| !self.case.is_big(node.node));
                let pods: i64 = counted.map(|(_, count)| i64::from(*count)).sum();
                let added = pods * role.each[0];
                bound.is_none_or(|most| added == 0 || charged + added <= most)
            };
            place(&[role], &free, &within).is_some()
        })
    }

    /// The nodes of each rack, or of each cluster.
    fn domains(&self, racks: bool) -> Vec<Vec<usize>> {
        let all = 0..self.case.nodes.len();
        let domain = |node: usize| match racks {
            true => (self.case.nodes[node].0, self.case.rack(node)),
            false => (self.case.nodes[node].0, 0),
        };
        let mut named: Vec<_> = all.clone().map(domain).collect();
        named.sort_unstable();
        named.dedup();
        let of = |name| all.clone().filter(|node| domain(*node) == name).collect();
        named.into_iter().map(of).collect()
    }

    /// GPUs of the bounded class that jobs use which run after `at`.
    fn charged(&self, at: i64) -> i64 {
        let stay = self.running.iter().filter(|runs| runs.end > at);
        let pods = stay.flat_map(|runs| runs.assumed.iter().map(move |pods| (runs, pods)));
        let counted = pods.filter(|(_, (node, _))| !self.case.is_big(*node));
        counted
            .map(|(runs, (_, count))| self.case.jobs[runs.job].gpus * i64::from(*count))
            .sum()
    }

    /// The earliest start of a job if nothing else starts.
    fn soonest(&self, job: usize, now: i64) -> i64 {
        self.first(now, |at| self.fits(job, at))
    }

    /// When there first are nodes for a job, whatever the bound, and when the bound first has room, whatever the nodes.
    fn soonest_by_each(&self, job: usize, now: i64) -> (i64, i64) {
        let hard = self.case.jobs[job].hard;
        let on_nodes = |at: i64| self.fits_within(job, at, (hard, None), |_| true);
        let bounded = |at: i64| self.within_bound(job, at);
        (self.first(now, on_nodes), self.first(now, bounded))
    }

    fn first(&self, now: i64, holds: impl Fn(i64) -> bool) -> i64 {
        let ends = self.running.iter().map(|runs| runs.end);
        ends.chain([now]).filter(|at| holds(*at)).min().unwrap()
    }

    /// Returns true if the job would be within the bound once all jobs have ended that end until `at`, if no node were
    /// in use.
    fn within_bound(&self, job: usize, at: i64) -> bool {
        let left = self.case.bound.map(|most| most - self.charged(at));
        let hard = self.case.jobs[job].hard;
        self.fits_within(job, i64::MAX, (hard, left), |_| true)
    }

    /// Returns true if a pod of the head does not fit on a node even if it is empty, and no bound counts it.
    fn is_useless_to(&self, head: usize, node: &Free) -> bool {
        let (_, gpus) = self.case.nodes[node.node];
        let counts = self.case.bound.is_some() && !self.case.is_big(node.node);
        !counts && fits([gpus, CORES], self.case.jobs[head].role().each) == 0
    }

    /// Returns true if there is only one placement of a job on the empty fleet: then its nodes are given.
    fn is_bound(&self, job: usize) -> bool {
        self.rooms(job) == [self.case.jobs[job].count]
    }

    /// Returns true if there is only one placement of a job in each domain that takes it.
    fn is_tight(&self, job: usize) -> bool {
        let count = self.case.jobs[job].count;
        self.rooms(job).iter().all(|room| *room == count)
    }

    /// How many pods of a job each domain takes that takes it whole, if it is empty.
    fn rooms(&self, job: usize) -> Vec<u32> {
        let stated = self.case.jobs[job];
        let room = |domain: Vec<usize>| {
            let nodes = domain.into_iter().map(|node| self.case.nodes[node].1);
            nodes
                .map(|gpus| fits([gpus, CORES], stated.role().each))
                .sum::<u32>()
        };
        let rooms = self.domains(stated.hard).into_iter().map(room);
        rooms.filter(|room| *room >= stated.count).collect()
    }

    /// The latest start of the head: the earliest one if its nodes are given, else when all running
    /// jobs have ended; where the domains differ in nothing but when it can start there, not much later than in the
    /// first of them. `None` while the bound has room later than there are nodes: these are left to others.
    fn latest(&self, head: usize, now: i64) -> Option<i64> {
        let (on_nodes, bounded) = self.soonest_by_each(head, now);
        if self.is_bound(head) {
            return (on_nodes >= bounded).then_some(on_nodes.max(bounded));
        }
        if !self.within_bound(head, now) {
            return None;
        }
        let ends = self.running.iter().map(|runs| runs.end);
        let last = ends.max().unwrap_or(now);
        let best = self.soonest(head, now);
        let soon = now + 2 * (best - now) + 2 * SOON;
        Some(match self.is_tight(head) {
            true => last.min(soon),
            false => last,
        })
    }

    /// Notes the start of a job, if it is allowed.
    pub(super) fn start(
        &mut self,
        job: usize,
        assumed: Vec<(usize, u32)>,
        now: i64,
    ) -> Result<(), String> {
        let head = self.head();
        let before = head.map(|head| (self.soonest(head, now), self.soonest_by_each(head, now)));
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
        self.keeps_to_bound_and_domain(job, now)?;
        if let Some((of, promised)) = self.promise
            && of == job
            && now > promised
        {
            return Err(format!("j{job:02} was to start at {promised} s"));
        }
        let (Some(head), Some(before)) = (head.filter(|head| *head != job), before) else {
            // The earlier head may count on another time now.
            self.promise = None;
            return Ok(());
        };
        let (start, before) = before;
        if start == now {
            return Err(format!("j{job:02} starts before j{head:02}, which fits"));
        }
        self.passed += 1;
        let after = self.soonest_by_each(head, now);
        // Nodes that are free before the bound has room are left to others.
        let delays = match before.0 >= before.1 {
            true => after.0.max(after.1) > before.0,
            false => after.1 > before.1,
        };
        if delays && self.is_bound(head) {
            return Err(format!(
                "j{job:02} delays j{head:02} from {before:?} to {after:?} s"
            ));
        }
        Ok(())
    }

    /// Checks that the job which started last keeps to the bound, and to one rack if it must.
    fn keeps_to_bound_and_domain(&self, job: usize, now: i64) -> Result<(), String> {
        let charged = self.charged(now - 1);
        let uses = |runs: &Runs| {
            runs.assumed
                .iter()
                .any(|(node, _)| !self.case.is_big(*node))
        };
        let last = self.running.last().filter(|runs| uses(runs));
        if last.is_some() && self.case.bound.is_some_and(|most| charged > most) {
            return Err(format!("the bound is exceeded with j{job:02}"));
        }
        let nodes = self.running.last().into_iter();
        let nodes: Vec<usize> = nodes
            .flat_map(|runs| runs.assumed.iter().map(|(node, _)| *node))
            .collect();
        let mut domains = self.domains(self.case.jobs[job].hard).into_iter();
        if !domains.any(|domain| nodes.iter().all(|node| domain.contains(node))) {
            return Err(format!(
                "j{job:02} is on {nodes:?}, which are not in one domain"
            ));
        }
        Ok(())
    }

    /// Checks that a job could start on the nodes that are reserved for it, if nothing else ran.
    pub(super) fn may_reserve(&self, job: usize, nodes: &[usize]) -> Result<(), String> {
        let on_them = |node: &Free| nodes.contains(&node.node);
        if nodes.is_empty() || self.fits_where(job, i64::MAX, on_them) {
            return Ok(());
        }
        Err(format!(
            "{nodes:?} are reserved for j{job:02}, which can never start there"
        ))
    }

    /// Checks, once nothing more starts at `now`, that the head does not fit and is not late, and
    /// that no job waits that passes it without using what it needs.
    pub(super) fn rest(&mut self, now: i64) -> Result<(), String> {
        let Some(head) = self.head() else {
            self.promise = None;
            return Ok(());
        };
        let start = self.soonest(head, now);
        if start <= now {
            return Err(format!("j{head:02} fits and waits"));
        }
        self.bound += usize::from(self.is_bound(head));
        let (hard, bound) = (self.case.jobs[head].hard, self.case.bound);
        let fits = |hard, bound| self.fits_within(head, now, (hard, bound), |_| true);
        let (racked, bounded) = (fits(false, bound), fits(hard, None));
        self.racked += usize::from(racked);
        self.bounded += usize::from(bounded);
        match self.promise {
            Some((of, promised)) if of == head => {
                // It waits until then; at that time it starts, or it would not be here.
                if now >= promised {
                    return Err(format!("j{head:02} was to start at {promised} s"));
                }
            }
            _ => self.promise = self.latest(head, now).map(|latest| (head, latest)),
        }
        let behind = self.waiting.iter().filter(|job| **job != head);
        for job in behind {
            // Of two classes of GPUs, the first job for each has a reservation.
            let mut ahead: Vec<usize> = vec![head];
            if self.case.bound.is_some() {
                let could = self.waiting.iter().filter(|of| self.fits(**of, i64::MAX));
                ahead.extend(could.filter(|of| self.key(**of) < self.key(*job)));
            }
            let starts = ahead.iter().map(|of| self.soonest(*of, now));
            let start = starts.min().unwrap_or(start);
            let ends = now + self.case.jobs[*job].lasts;
            if ends <= start && self.fits(*job, now) {
                return Err(format!(
                    "j{job:02} waits, and would end before j{head:02} starts"
                ));
            }
            let is_useless = |node: &Free| ahead.iter().all(|of| self.is_useless_to(*of, node));
            if self.fits_where(*job, now, is_useless) {
                return Err(format!(
                    "j{job:02} waits for nodes that j{head:02} cannot use"
                ));
            }
        }
        Ok(())
    }
}
