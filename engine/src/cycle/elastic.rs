//! Elastic gangs: admitted at the largest size that fits, scaled up when no pending job has a claim.
//!
//! A gang is evaluated at full size first, then at the largest size that may go; what stops it is
//! what stops its smallest size. Scaling up comes after all pending jobs had their turn, and never
//! uses what is reserved for another job. It is tried again only after something came free.

use crate::api::decision::Decision;
use crate::api::facts::Share;
use crate::api::ids::{ClusterName, JobKey, QueueName};
use crate::cycle::evaluate::{Request, Verdict, blocked};
use crate::engine::Engine;
use crate::jobs::elastic::Sizes;
use std::collections::BTreeSet;
use std::sync::Arc;

impl Engine {
    /// Judges a job that waits in line: at full size, else at the largest that may go.
    pub(crate) fn judge(&self, request: Request<'_>) -> Verdict {
        let full = self.judge_as_is(request);
        let Some(sizes) = Sizes::of(&request.shape.demand) else {
            return full;
        };
        if matches!(full, Verdict::Go(_)) {
            return full;
        }
        let judged = |beyond: u32| {
            let shape = request.shape.resized(sizes.at(beyond))?;
            let shape = &shape;
            let sized = Request { shape, ..request };
            // Whether its bounds would ever let it go is known of the gang, not of each size.
            if self.pending.shapes.let_by(request.shape, request.queue) == Some(false) {
                return Some(blocked(self.block_by_bounds(sized)));
            }
            Some(self.judge_as_is(sized))
        };
        let mut best = match judged(sizes.least) {
            Some(Verdict::Go(shares)) => shares,
            Some(blocked) => return blocked,
            None => return full,
        };
        // What fits at one size is taken to fit at every smaller one.
        let (mut fits, mut fails) = (sizes.least, sizes.most);
        while fails - fits > 1 {
            let middle = fits + (fails - fits) / 2;
            match judged(middle) {
                Some(Verdict::Go(shares)) => (fits, best) = (middle, shares),
                _ => fails = middle,
            }
        }
        Verdict::Go(best)
    }

    /// Grows elastic jobs into what came free, those first in order first.
    pub(crate) fn scale_up_elastic(&mut self, decisions: &mut Vec<Decision>) {
        if !self.jobs.take_scale_up_due() || self.jobs.resizing().is_empty() {
            return;
        }
        // What does not fit for one job does not fit for its like in the same places.
        let mut fails: BTreeSet<(QueueName, usize, Vec<ClusterName>)> = BTreeSet::new();
        for key in self.scaling_up() {
            if decisions.len() >= self.config.decision_budget {
                self.jobs.retry_scale_up();
                return;
            }
            let Some(alike) = self.grows_like(&key).filter(|alike| !fails.contains(alike)) else {
                continue;
            };
            match self.grow_everywhere(&key) {
                Some(freed) => decisions.push(freed),
                None => {
                    fails.insert(alike);
                }
            }
        }
    }

    /// Grows a job in each of its clusters by what goes there, as one decision.
    fn grow_everywhere(&mut self, key: &JobKey) -> Option<Decision> {
        let mut freed: Option<Decision> = None;
        while let Some(more) = self.largest_growth(key) {
            let Some(mut next) = self.scale_up(key, &more) else {
                break;
            };
            if let (
                Decision::Resize { message, .. },
                Some(Decision::Resize {
                    message: before, ..
                }),
            ) = (&mut next, &freed)
            {
                *message = format!("{before}, {message}");
            }
            freed = Some(next);
        }
        freed
    }

    /// Elastic jobs that may scale up, in order.
    fn scaling_up(&self) -> Vec<JobKey> {
        let ranked = self.jobs.may_scale_up().filter_map(|key| {
            let job = self.jobs.get(key)?;
            Some((job.queue_now(), self.rank_of(key, job)))
        });
        let mut ranked: Vec<_> = ranked.collect();
        ranked.sort_by(|a, b| self.quota.compare((a.0, &a.1), (b.0, &b.1)));
        ranked.into_iter().map(|(_, rank)| rank.key).collect()
    }

    fn grows_like(&self, key: &JobKey) -> Option<(QueueName, usize, Vec<ClusterName>)> {
        let job = self.jobs.get(key)?;
        let demand = Arc::as_ptr(job.demand.as_ref()?).addr();
        let shares = &job.released.as_ref()?.admission.shares;
        let clusters = shares.iter().map(|share| share.cluster.clone()).collect();
        Some((job.queue_now().clone(), demand, clusters))
    }

    /// The share of the most pods by which an elastic job may grow now.
    fn largest_growth(&self, key: &JobKey) -> Option<Share> {
        let freed = |pods: u32| self.judge_growth_by(key, pods).ok().flatten();
        let missing = self.jobs.get(key)?.pods_missing();
        let mut fails = missing.saturating_add(1);
        let mut best = freed(1)?;
        let mut fits = 1;
        while fails - fits > 1 {
            // All first: that is what is granted most often.
            let tried = if fits == 1 && fails == missing + 1 {
                fails - 1
            } else {
                fits + (fails - fits) / 2
            };
            match freed(tried) {
                Some(more) => (fits, best) = (tried, more),
                None => fails = tried,
            }
        }
        Some(best)
    }
}
