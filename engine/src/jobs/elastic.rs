//! Elastic gangs: which sizes they may have, and which of them may scale up.
//!
//! A gang that may be smaller has sizes, from its minimum to its full counts; pods beyond the
//! minimums go to its roles in the template's order.

use crate::api::demand::Demand;
use crate::api::ids::JobKey;
use crate::jobs::job::Released;
use crate::jobs::store::Jobs;
use crate::pending::shapes::RequestShape;

/// The sizes that an elastic demand may have, by pods beyond its least.
pub(crate) struct Sizes<'a> {
    demand: &'a Demand,
    /// Pods beyond the roles' minimums that the gang's minimum calls for.
    pub(crate) least: u32,
    /// All pods beyond the roles' minimums.
    pub(crate) most: u32,
}

impl<'a> Sizes<'a> {
    /// `None` for a demand that has one size only.
    pub(crate) fn of(demand: &'a Demand) -> Option<Self> {
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
    pub(crate) fn at(&self, beyond: u32) -> Demand {
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

impl Jobs {
    /// Elastic jobs below their full size. Not those that are still shrinking: which of their pods
    /// leave is the member's choice, so what comes free first may be on other nodes than was
    /// planned, and the job that gave it up would take it at once. Nor those that were made smaller
    /// for a job that is still pending: what it was given would be lost while it backs off.
    pub(crate) fn may_scale_up(&self) -> impl Iterator<Item = &JobKey> {
        self.resizing.iter().filter(|key| {
            let demand = self.demand_of(key);
            let released = self.released(key);
            demand.is_some_and(|demand| demand.elastic)
                && released.is_some_and(|released| {
                    released.leaving.is_empty() && !self.preemptor_is_pending(released)
                })
        })
    }

    /// Whether a job for which this one was made smaller has yet to start.
    fn preemptor_is_pending(&self, released: &Released) -> bool {
        released.gave_to.iter().any(|preemptor| {
            let job = self.get(preemptor);
            job.is_some_and(|job| job.released.is_none() && job.cold.hold.is_none())
        })
    }

    /// A job goes or is not to be considered: jobs that were made smaller for it while it is
    /// pending may scale up again.
    pub(crate) fn note_given_up(&mut self, preemptor: &JobKey) {
        let pending = self
            .get(preemptor)
            .is_some_and(|job| job.released.is_none());
        let gave = |key: &JobKey| {
            let released = self.released(key);
            released.is_some_and(|released| released.gave_to.contains(preemptor))
        };
        if pending && self.resizing.iter().any(gave) {
            self.retry_scale_up();
        }
    }
}
