//! The documented rules of reclaim, over all running jobs.
//!
//! - docs/scheduling.md, "Eviction": a queue below its deserved evicts what other
//!   queues borrowed; idle room first; only where the job then really starts; what is guaranteed
//!   to the queue of a victim stays kept for it; never before `preemption.minRuntime`, never a job that is not
//!   preemptible, never from a Queue with `reclaimable: false`.
//! - The same: it is decided level by level. Of two queues those two above them (or themselves) are
//!   compared that have the same parent, each with all below it. On the victim's side
//!   `reclaimable: false` and guarantees count at each queue up to that level.
//! - docs/tenants.md, "Which jobs are evicted": jobs of queues above what they deserve are taken, and
//!   only as many as let the job start. A job whose PriorityClass says Never takes nothing.
//! - docs/scheduling.md, "Why evictions end": a job that gave way before is reclaimed only for a cause that came up
//!   after it was admitted.
//! - docs/scheduling.md: with `preemption.withinQueue` a job takes from lower priority in its own
//!   queue; all else is the same.
//! - engine.md: only for a job within its queue's deserved.
//!
//! The documents do not say what happens if the eviction of a whole gang leaves its queue below its
//! deserved amount. So the victims are checked by what is allowed, which is more than what is
//! demanded: there the queues of all victims stay at their deserved amounts.

use super::{Case, Job};
use crate::case::{Amounts, Role};
use crate::room::{Free, minus, place, plus};
use crate::tree::Tree;

/// A job and, while it runs, since when and with how many pods on which nodes.
pub struct Entry {
    pub job: Job,
    pub queued: i64,
    /// The cause of its last eviction for another job.
    pub gave_way_to: Option<i64>,
    pub runs: Option<Runs>,
}

pub struct Runs {
    pub since: i64,
    pub assumed: Vec<(usize, u32)>,
}

/// The state of the reference, with times in milliseconds.
pub struct Rules<'a> {
    pub case: &'a Case,
    pub jobs: Vec<Entry>,
    /// When a job of each queue, or of one below it, last ended by itself.
    ended: Vec<Option<i64>>,
}

impl Job {
    pub fn gpus(&self) -> i64 {
        self.gpus * i64::from(self.count)
    }

    fn role(&self) -> Role {
        Role {
            count: self.count,
            each: [self.gpus, 1],
        }
    }
}

impl<'a> Rules<'a> {
    pub fn new(case: &'a Case) -> Self {
        Self {
            case,
            jobs: Vec::new(),
            ended: vec![None; case.queues.len()],
        }
    }

    /// A job has ended by itself.
    pub fn note_end(&mut self, job: usize, now: i64) {
        for queue in self.path(self.jobs[job].job.queue) {
            self.ended[queue] = Some(now);
        }
    }

    /// A job is evicted for another one, and inherits the cause.
    pub fn note_gave_way(&mut self, victim: usize, preemptor: usize) {
        let cause = self.cause(preemptor, victim);
        let inherited = &mut self.jobs[victim].gave_way_to;
        *inherited = (*inherited).max(Some(cause));
    }

    /// When the latest cause came up for which the victim may be evicted for the preemptor.
    fn cause(&self, preemptor: usize, victim: usize) -> i64 {
        let entry = &self.jobs[preemptor];
        let (own, other) = (entry.job.queue, self.jobs[victim].job.queue);
        let entitled = self.apart(own, other).pop().unwrap_or(own);
        let causes = [entry.gave_way_to, self.ended[entitled]];
        causes.into_iter().flatten().fold(entry.queued, i64::max)
    }

    /// The usage of the jobs of a queue and of those below it, some being gone.
    pub fn held(&self, queue: usize, gone: &[usize]) -> i64 {
        let jobs = self.jobs.iter().enumerate();
        let runs = jobs.filter(|(_, entry)| {
            entry.runs.is_some() && self.path(entry.job.queue).contains(&queue)
        });
        let stays = runs.filter(|(job, _)| !gone.contains(job));
        stays.map(|(_, entry)| entry.job.gpus()).sum()
    }

    /// The queues from one up to the one directly below the root.
    fn path(&self, queue: usize) -> Vec<usize> {
        std::iter::successors(Some(queue), |at| self.case.queues[*at].parent).collect()
    }

    /// The queues of one path that are not in the other; the last is the one that is compared.
    fn apart(&self, queue: usize, from: usize) -> Vec<usize> {
        let shared = self.path(from);
        let mut path = self.path(queue);
        path.retain(|at| !shared.contains(at));
        path
    }

    fn guarantee(&self, queue: usize) -> i64 {
        self.ask_tree(&[], |tree| tree.guarantee(queue, crate::case::GPU))
    }

    /// Whether, with the job and without those that are gone, the queue that is compared with one
    /// above `other` is within its deserved amount.
    fn is_entitled(&self, job: &Job, other: usize, gone: &[usize]) -> bool {
        let compared = self.apart(job.queue, other).pop();
        compared.is_some_and(|at| self.held(at, gone) + job.gpus() <= self.deserved(at))
    }

    /// The deserved amount of the queue; without one, all usage is borrowed.
    pub fn deserved(&self, queue: usize) -> i64 {
        self.ask_tree(&[], |tree| tree.deserved(queue))[0].unwrap_or(0)
    }

    fn ask_tree<T>(&self, gone: &[usize], ask: impl FnOnce(&Tree<'_>) -> T) -> T {
        let queues: Vec<_> = self.case.queues.iter().map(super::Queue::stated).collect();
        let all = 0..queues.len();
        let allocated: Vec<Amounts> = all.map(|at| [self.held(at, gone), 0]).collect();
        let fleet = self.case.nodes.iter().map(|(_, gpus)| gpus).sum();
        ask(&Tree {
            queues: &queues,
            allocated: &allocated,
            of_class: &vec![0; queues.len()],
            fleet: [fleet, 0],
        })
    }

    /// Returns true if the job may be charged and fits into one cluster once some are gone.
    pub fn fits(&self, job: usize, gone: &[usize]) -> bool {
        let entry = &self.jobs[job].job;
        let fits_quota = self.ask_tree(gone, |tree| {
            tree.fits_quota(entry.queue, [entry.gpus(), 0], tree.allocated)
        });
        fits_quota && self.has_room(job, gone)
    }

    fn has_room(&self, job: usize, gone: &[usize]) -> bool {
        (0..super::CLUSTERS).any(|cluster| {
            let nodes = self.case.nodes.iter().enumerate();
            let there = nodes.filter(|(_, (at, _))| *at == cluster);
            let free: Vec<Free> = there
                .map(|(node, (_, gpus))| Free {
                    node,
                    amounts: minus([*gpus, super::CORES], self.used(node, gone), 1),
                })
                .collect();
            place(&[self.jobs[job].job.role()], &free, &|_| true).is_some()
        })
    }

    pub fn used(&self, node: usize, gone: &[usize]) -> Amounts {
        let jobs = self.jobs.iter().enumerate();
        let stay = jobs.filter(|(job, _)| !gone.contains(job));
        let assumed = stay.flat_map(|(_, entry)| {
            let runs = entry.runs.iter().flat_map(|runs| &runs.assumed);
            runs.map(move |assumed_pod| (entry, assumed_pod))
        });
        let here = assumed.filter(|(_, (at, _))| *at == node);
        here.fold([0, 0], |sum, (entry, (_, count))| {
            plus(sum, entry.job.role().each, *count)
        })
    }

    /// Returns true if a job may preempt at all: its queue reclaims, its class preempts, and with it its
    /// queue, or one above it, is within its deserved amount.
    pub fn may_take(&self, preemptor: usize) -> bool {
        let job = &self.jobs[preemptor].job;
        let within = |at: &usize| self.held(*at, &[]) + job.gpus() <= self.deserved(*at);
        self.case.queues[job.queue].reclaims
            && job.class.preempts()
            && (self.case.within || self.path(job.queue).iter().any(within))
    }

    /// Returns true if a running job may be evicted for the preemptor, whatever its queue uses.
    pub fn may_be_taken(&self, victim: usize, preemptor: usize, now: i64) -> bool {
        let entry = &self.jobs[victim];
        let queue = &self.case.queues[entry.job.queue];
        let ran = |runs: &Runs| now - runs.since >= queue.min_runtime * 1000;
        let (job, takes) = (&entry.job, &self.jobs[preemptor].job);
        let right = if self.case.within {
            job.queue == takes.queue && job.class.priority() < takes.class.priority()
        } else {
            let up = self.apart(job.queue, takes.queue);
            !up.is_empty() && up.iter().all(|at| self.case.queues[*at].reclaimable)
        };
        // One that gave way before is reclaimed only for what came up since it was admitted.
        let cause = self.cause(preemptor, victim);
        let renewed = |runs: &Runs| entry.gave_way_to.is_none() || runs.since < cause;
        let reclaimed = self.case.within || entry.runs.as_ref().is_some_and(renewed);
        entry.runs.as_ref().is_some_and(ran) && job.preemptible && right && reclaimed
    }

    /// Why `victims` may not be evicted for the preemptor, if so.
    pub fn check(&self, preemptor: usize, victims: &[usize], now: i64) -> Result<(), String> {
        if !self.may_take(preemptor) {
            return Err("the preemptor may take nothing".to_owned());
        }
        if let Some(victim) = victims
            .iter()
            .find(|v| !self.may_be_taken(**v, preemptor, now))
        {
            return Err(format!("j{victim:02} may not be taken"));
        }
        self.check_shares(preemptor, victims)?;
        if self.fits(preemptor, &[]) {
            return Err("what the preemptor needs is idle".to_owned());
        }
        if !self.fits(preemptor, victims) {
            return Err("the preemptor does not fit then".to_owned());
        }
        for (index, victim) in victims.iter().enumerate() {
            let mut others = victims.to_vec();
            others.remove(index);
            if self.fits(preemptor, &others) {
                return Err(format!("j{victim:02} is taken needlessly"));
            }
        }
        Ok(())
    }

    /// The best order evicts the largest last. Before it the compared queue must be above its
    /// deserved amount, and each queue from the victim's up to it above its guarantee.
    fn check_shares(&self, preemptor: usize, victims: &[usize]) -> Result<(), String> {
        if self.case.within {
            return Ok(());
        }
        let takes = &self.jobs[preemptor].job;
        for victim in victims {
            let from = self.jobs[*victim].job.queue;
            if !self.is_entitled(takes, from, victims) {
                return Err(format!("the preemptor is not entitled to j{victim:02}"));
            }
            let up = self.apart(from, takes.queue);
            for at in &up {
                let below = victims.iter().map(|victim| &self.jobs[*victim].job);
                let below = below.filter(|job| self.path(job.queue).contains(at));
                let largest = below.map(Job::gpus).max().unwrap_or(0);
                let had = self.held(*at, victims) + largest;
                let compared = up.last() == Some(at);
                if compared && had <= self.deserved(*at) {
                    return Err(format!(
                        "q{at} has no more than it deserves before the last"
                    ));
                }
                if had <= self.guarantee(*at) {
                    return Err(format!(
                        "q{at} has no more than it is guaranteed before the last"
                    ));
                }
            }
        }
        Ok(())
    }

    /// A set of jobs that must be evicted for a pending one: the queues of all stay at their
    /// deserved amounts. Every set is tried.
    pub fn must_take(&self, preemptor: usize, now: i64) -> Option<Vec<usize>> {
        if !self.may_take(preemptor) {
            return None;
        }
        let all = 0..self.jobs.len();
        let candidates: Vec<usize> = all
            .filter(|job| self.may_be_taken(*job, preemptor, now))
            .collect();
        let sets = (0..1_u32 << candidates.len()).map(|set| {
            let chosen = candidates.iter().enumerate();
            let chosen = chosen.filter(|(index, _)| set >> index & 1 == 1);
            chosen.map(|(_, job)| *job).collect::<Vec<usize>>()
        });
        let takes = &self.jobs[preemptor].job;
        let keeps = |set: &Vec<usize>, from: usize| {
            let up = self.apart(from, takes.queue);
            let kept = |at: &usize| self.held(*at, set) >= self.guarantee(*at);
            let due = up.last();
            let due = due.is_some_and(|at| self.held(*at, set) >= self.deserved(*at));
            due && up.iter().all(kept) && self.is_entitled(takes, from, &[])
        };
        let mut sets = sets.filter(|set| {
            let mut queues = set.iter().map(|job| self.jobs[*job].job.queue);
            self.case.within || queues.all(|from| keeps(set, from))
        });
        sets.find(|set| self.fits(preemptor, set))
    }
}
