//! Elastic gangs: released as large as goes, grown when nobody else has a claim.
//!
//! A gang that may be smaller has sizes, from its minimum to its full counts; pods beyond the
//! minimums go to its roles in the template's order. It is judged at full size first, then at
//! the largest that may go; what stops it is what stops its smallest. Growth comes after all
//! that waits had its turn, and never touches what is kept for anybody. It is tried again only
//! after something came free. Shrinking is in [`crate::jobs::leaving`].

use crate::api::decision::Decision;
use crate::api::facts::{Demand, Share};
use crate::api::ids::{ClusterName, JobKey, QueueName};
use crate::cycle::evaluate::{Request, Verdict, blocked};
use crate::engine::Engine;
use crate::jobs::job::Released;
use crate::pending::shapes::RequestShape;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The sizes that an elastic demand may have, by pods beyond its least.
struct Sizes<'a> {
    demand: &'a Demand,
    /// Pods beyond the roles' minimums that the gang's minimum calls for.
    least: u32,
    /// All pods beyond the roles' minimums.
    most: u32,
}

impl<'a> Sizes<'a> {
    /// `None` for a demand that has one size only.
    fn of(demand: &'a Demand) -> Option<Self> {
        let roles = || demand.roles.iter();
        let sum = |pods: u64| u32::try_from(pods).unwrap_or(u32::MAX);
        let minimums = sum(roles()
            .map(|role| u64::from(role.min.min(role.count)))
            .sum());
        let most = sum(demand.pods()).saturating_sub(minimums);
        let least = demand.min_available.saturating_sub(minimums).min(most);
        // What nothing holds at a size has the size of its template.
        (demand.elastic && demand.is_held() && least < most).then_some(Self {
            demand,
            least,
            most,
        })
    }

    /// The demand with so many pods beyond the roles' minimums.
    fn at(&self, beyond: u32) -> Demand {
        let mut demand = self.demand.clone();
        let mut left = beyond;
        for role in &mut demand.roles {
            let least = role.min.min(role.count);
            let more = (role.count - least).min(left);
            left -= more;
            role.count = least + more;
        }
        demand
    }
}

/// What a shape is at its smallest; `None` where it has one size only.
pub(crate) fn smallest(shape: &RequestShape) -> Option<RequestShape> {
    let sizes = Sizes::of(&shape.demand)?;
    shape.resized(sizes.at(sizes.least))
}

/// The least counts of an elastic demand, by role in its order.
pub(crate) fn least_counts(demand: &Demand) -> Option<Vec<u32>> {
    let sizes = Sizes::of(demand)?;
    let least = sizes.at(sizes.least);
    Some(least.roles.iter().map(|role| role.count).collect())
}

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
    pub(crate) fn stretch(&mut self, decisions: &mut Vec<Decision>) {
        if !std::mem::take(&mut self.jobs.scale_up_due) || self.jobs.resizing.is_empty() {
            return;
        }
        // What does not fit for one job does not fit for its like in the same places.
        let mut fails: BTreeSet<(QueueName, usize, Vec<ClusterName>)> = BTreeSet::new();
        for key in self.stretching() {
            if decisions.len() >= self.config.decision_budget {
                self.jobs.scale_up_due = true;
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
            let Some(mut next) = self.enlarge(key, &more) else {
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

    /// Elastic jobs below their full size, in order. Not those that are still shrinking: which of
    /// their pods leave is the member's choice, so what comes free first may be on other nodes
    /// than was planned, and would be taken at once by who gave it up. Nor those that were made
    /// smaller for a job that still waits: what it was given would be lost while it backs off.
    fn stretching(&self) -> Vec<JobKey> {
        let elastic = |key: &&JobKey| {
            let job = self.jobs.by_key.get(*key);
            job.is_some_and(|job| {
                let demand = job.demand.as_ref();
                let released = job.released.as_ref();
                demand.is_some_and(|demand| demand.elastic)
                    && released.is_some_and(|released| {
                        released.leaving.is_empty() && !self.awaits_taker(released)
                    })
            })
        };
        let mut ranked: Vec<_> = self
            .jobs
            .resizing
            .iter()
            .filter(elastic)
            .filter_map(|key| {
                let job = self.jobs.by_key.get(key)?;
                Some((job.queue_now(), self.rank_of(key, job)))
            })
            .collect();
        ranked.sort_by(|a, b| self.compare((a.0, &a.1), (b.0, &b.1)));
        ranked.into_iter().map(|(_, rank)| rank.key).collect()
    }

    /// Whether a job for which this one was made smaller has yet to start.
    fn awaits_taker(&self, released: &Released) -> bool {
        released.gave_to.iter().any(|preemptor| {
            let job = self.jobs.by_key.get(preemptor);
            job.is_some_and(|job| job.released.is_none() && job.cold.hold.is_none())
        })
    }

    /// A job goes or is held up: those that were made smaller for it while it waits may grow again.
    pub(crate) fn note_given_up(&mut self, preemptor: &JobKey) {
        let waits = self.jobs.by_key.get(preemptor);
        let waits = waits.is_some_and(|job| job.released.is_none());
        if !waits || self.jobs.scale_up_due {
            return;
        }
        let gave = |key: &JobKey| {
            let released = self
                .jobs
                .by_key
                .get(key)
                .and_then(|job| job.released.as_ref());
            released.is_some_and(|released| released.gave_to.contains(preemptor))
        };
        self.jobs.scale_up_due = self.jobs.resizing.iter().any(gave);
    }

    fn grows_like(&self, key: &JobKey) -> Option<(QueueName, usize, Vec<ClusterName>)> {
        let job = self.jobs.by_key.get(key)?;
        let demand = Arc::as_ptr(job.demand.as_ref()?).addr();
        let shares = &job.released.as_ref()?.admission.shares;
        let clusters = shares.iter().map(|share| share.cluster.clone()).collect();
        Some((job.queue_now().clone(), demand, clusters))
    }

    /// The share of the most pods by which an elastic job may grow now.
    fn largest_growth(&self, key: &JobKey) -> Option<Share> {
        let freed = |pods: u32| self.judge_growth_by(key, pods).ok().flatten();
        let mut fails = self.pods_missing(key).saturating_add(1);
        let mut best = freed(1)?;
        let mut fits = 1;
        while fails - fits > 1 {
            // All first: that is what is granted most often.
            let tried = if fits == 1 && fails == self.pods_missing(key) + 1 {
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

    /// What other jobs keep, whoever stands where: growth waits behind them all.
    pub(crate) fn kept_by_others(&self, key: &JobKey) -> Vec<&JobKey> {
        let holders = self.reservations.iter().map(|kept| &kept.rank.key);
        holders.filter(|holder| *holder != key).collect()
    }
}
