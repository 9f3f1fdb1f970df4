//! Pods that still end when the Works of their job are gone.
//!
//! Karmada deletes a job in a member in the background: its Work goes at once, and its pods have their grace period.
//! Until they have ended they use capacity. If the job counted as gone before, a preemptor for which it was evicted
//! would find its nodes in use, and evict another job.
//!
//! An evicted job is therefore charged until its pods have ended, too, as far as its members can be seen, for at
//! most [`PODS_END_MS`]: a pod that a member cannot end must not keep its job from starting elsewhere.

use crate::reconcile::Reconciler;
use engine::{JobKey, Time};

/// Milliseconds for which the end of pods is waited for at most: several times the usual grace period.
pub(crate) const PODS_END_MS: i64 = 120_000;
/// Milliseconds between two looks.
const LOOK_MS: i64 = 250;

impl Reconciler {
    /// Returns when to look again at an evicted job whose Works are gone, if pods of it have not ended yet.
    pub(crate) fn pods_still_end(&mut self, key: &JobKey, now: Time) -> Option<Time> {
        if self.engine.pods_left(key) == 0 {
            return None;
        }
        let by = self.in_flight_of(key).pods_end_by(now);
        (now < by).then(|| now.after(LOOK_MS).min(by))
    }
}
