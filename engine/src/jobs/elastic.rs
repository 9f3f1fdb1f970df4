//! Elastic gangs: their sizes, and which of them may scale up.
//!
//! The sizes go from the gang's minimum to its full counts. Pods beyond the minimums of the roles
//! are given to the roles in the template's order.

use crate::jobs::job::Released;
use crate::jobs::store::Jobs;
use crate::pending::shapes::RequestShape;
use facts::{Demand, JobKey, Resources};
use std::borrow::Cow;

/// The sizes of an elastic demand, as the number of pods beyond the minimums of its roles.
pub(crate) struct Sizes<'a> {
    demand: &'a Demand,
    /// The size of the gang's minimum.
    pub(crate) least: u32,
    /// The full size.
    pub(crate) most: u32,
}

impl<'a> Sizes<'a> {
    /// `None` if the demand has one size only.
    pub(crate) fn of(demand: &'a Demand) -> Option<Self> {
        let roles = || demand.roles.iter();
        let sum = |pods: u64| u32::try_from(pods).unwrap_or(u32::MAX);
        let minimums = sum(roles()
            .map(|role| u64::from(role.min.min(role.count)))
            .sum());
        let most = sum(demand.pods()).saturating_sub(minimums);
        let least = demand.min_available.saturating_sub(minimums).min(most);
        // If nothing enforces the size of a job, it has that of its template.
        (demand.elastic && demand.is_held() && least < most).then_some(Self {
            demand,
            least,
            most,
        })
    }

    /// The demand with `beyond` pods beyond the minimums of its roles.
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

/// A shape at its smallest size; `None` if it has one size only.
pub(crate) fn smallest(shape: &RequestShape) -> Option<RequestShape> {
    let sizes = Sizes::of(&shape.demand)?;
    shape.resized(sizes.at(sizes.least))
}

/// Returns what all pods of a shape request at its smallest size.
pub(crate) fn least_total(shape: &RequestShape) -> Cow<'_, Resources> {
    let least = smallest(shape);
    least.map_or(Cow::Borrowed(&shape.total), |least| Cow::Owned(least.total))
}

/// The counts of an elastic demand at its smallest size, in the order of its roles.
pub(crate) fn least_counts(demand: &Demand) -> Option<Vec<u32>> {
    let sizes = Sizes::of(demand)?;
    let least = sizes.at(sizes.least);
    Some(least.roles.iter().map(|role| role.count).collect())
}

impl Jobs {
    /// Elastic jobs below their full size that may scale up. A job that is still shrinking may not:
    /// the member chooses which pods leave, so the first capacity to become free may be on other
    /// nodes than planned, and the job would use it again at once. Nor may a job that was shrunk
    /// for one that is still pending, since it would take that job's capacity during a back-off.
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

    /// Returns true if a job for which this one was shrunk is still pending.
    fn preemptor_is_pending(&self, released: &Released) -> bool {
        released.shrunk_for.iter().any(|preemptor| {
            let job = self.get(preemptor);
            job.is_some_and(|job| job.released.is_none() && job.cold.hold.is_none())
        })
    }

    /// Notes that a job goes or is held: jobs that were shrunk for it may scale up again if it is
    /// pending.
    pub(crate) fn note_given_up(&mut self, preemptor: &JobKey) {
        let pending = self
            .get(preemptor)
            .is_some_and(|job| job.released.is_none());
        let shrunk = |key: &JobKey| {
            let released = self.released(key);
            released.is_some_and(|released| released.shrunk_for.contains(preemptor))
        };
        if pending && self.resizing.iter().any(shrunk) {
            self.retry_scale_up();
        }
    }
}
