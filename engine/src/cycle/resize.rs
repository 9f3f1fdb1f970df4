//! Released jobs that get another size: shrinks that templates ask for, growth where quota and
//! capacity are there.
//!
//! A job that is not elastic grows before pending jobs are evaluated; an elastic one after them
//! (`elastic.rs`).

use crate::amounts::tally::Tally;
use crate::api::charge::pools_of;
use crate::api::decision::Decision;
use crate::api::facts::Share;
use crate::api::ids::JobKey;
use crate::capacity::{Basis, Need};
use crate::cycle::evaluate::Request;
use crate::engine::Engine;
use crate::jobs::job::Job;
use crate::pending::shapes::RequestShape;
use crate::placement::plan::View;
use std::collections::BTreeSet;
use std::sync::Arc;

impl Engine {
    /// Shrinks what templates ask to shrink, and grows what is not elastic, as far as the budget
    /// goes.
    pub(crate) fn resize(&mut self, decisions: &mut Vec<Decision>) {
        for key in self.jobs.resizing().clone() {
            if decisions.len() >= self.config.decision_budget {
                return;
            }
            let cuts = self.jobs.get(&key).map(Job::beyond_template);
            decisions.extend(self.shrink(&key, &cuts.unwrap_or_default(), None, ""));
            let elastic = self
                .jobs
                .demand_of(&key)
                .is_some_and(|demand| demand.elastic);
            if !elastic && let Ok(Some(more)) = self.judge_growth(&key) {
                decisions.extend(self.scale_up(&key, &more));
            }
        }
    }

    /// The share by which a job may grow now; `Ok(None)` where it does not ask to.
    ///
    /// # Errors
    /// What stops it, in words.
    pub(crate) fn judge_growth(&self, key: &JobKey) -> Result<Option<Share>, String> {
        self.judge_growth_by(key, u32::MAX)
    }

    /// The same for no more than `most` pods.
    pub(crate) fn judge_growth_by(&self, key: &JobKey, most: u32) -> Result<Option<Share>, String> {
        let Some(job) = self.jobs.get(key) else {
            return Ok(None);
        };
        let (Some(demand), Some(released)) = (&job.demand, job.released.as_deref()) else {
            return Ok(None);
        };
        let needs = job.missing(most);
        if needs.is_empty() {
            return Ok(None);
        }
        let mut extra = Tally::default();
        for need in &needs {
            extra.add(&need.role.request, i64::from(need.count));
        }
        let shape = RequestShape {
            demand: Arc::clone(demand),
            total: extra.to_resources(),
            duration: job.duration,
            user: None,
            max_clusters: None,
            avoid: BTreeSet::new(),
            preempts: false,
        };
        let queue = &released.admission.queue;
        let rank = self.rank_of(key, job);
        let request = Request {
            queue,
            rank: &rank,
            shape: &shape,
            tells: false,
        };
        self.more_of(request, released.admission.shares.as_slice(), &needs)
            .map(Some)
    }

    fn more_of(
        &self,
        request: Request<'_>,
        shares: &[Share],
        needs: &[Need<'_>],
    ) -> Result<Share, String> {
        let ahead = if request.shape.demand.elastic {
            self.kept_by_others(&request.rank.key)
        } else {
            self.reservations_ahead(request)
        };
        let view = View {
            basis: Basis::Now,
            nodes: self.nodes_kept(&ahead),
            kept: self.headroom_kept(&ahead),
            tells: false,
        };
        let total = self
            .quota
            .check_total(request.queue, &request.shape.total, &view.kept);
        total.map_err(|short| short.message(&self.quota))?;
        let mut why = "it is placed nowhere".to_owned();
        for share in shares {
            let lens = crate::placement::plan::lens(&view, &share.cluster, None);
            let packing = self.capacity.room.pack(&share.cluster, needs, &lens);
            if let Some(lack) = packing.lack {
                why = format!(
                    "{} has room for {} of {} more pods",
                    share.cluster, lack.placed, lack.wanted
                );
                continue;
            }
            let more = self.share_of(&share.cluster, &request.shape.demand, &packing);
            let pools = pools_of(std::slice::from_ref(&more));
            match self.quota.check_pools(request.queue, &pools, &view.kept) {
                Ok(()) => return Ok(more),
                Err(short) => why = short.message(&self.quota),
            }
        }
        Err(why)
    }

    /// What other jobs keep, whoever stands where: growth waits behind them all.
    pub(crate) fn kept_by_others(&self, key: &JobKey) -> Vec<&JobKey> {
        let holders = self.reservations.iter().map(|kept| &kept.rank.key);
        holders.filter(|holder| *holder != key).collect()
    }
}
