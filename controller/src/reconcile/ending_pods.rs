//! Pods that still end when the Works of their job are gone.
//!
//! Karmada deletes a job in a member in the background: its Work goes at once, and its pods have their grace period.
//! Until they have ended they use capacity. If the job counted as gone before, a preemptor for which it was evicted
//! would find its nodes in use, and evict another job.
//!
//! An evicted or deleted job is therefore charged until its pods have ended, too, as far as its members can be seen.
//! A member that was away may be seen by Karmada before its pods are listed here: it is waited for, too, for
//! [`PODS_END_MS`].
//! That may take as long as the longest grace period of the pods that are left, and [`SLACK_MS`] more; at least
//! [`PODS_END_MS`], and at most what an operator allows: a pod that a member cannot end must not keep its job from
//! starting elsewhere, or its name from being used again. What is left then stays charged by itself, in the engine
//! (`engine/src/cycle/pod_charges.rs`).

use crate::reconcile::JobPass;
use engine::matching::{LEAVING, OUT_OF_SERVICE};
use engine::{Engine, JobKey, Time};

/// Milliseconds for which the end of pods is waited for whatever their grace period: several times the usual one.
pub(crate) const PODS_END_MS: i64 = 120_000;
/// Milliseconds beyond their grace period that a member has to end pods.
const SLACK_MS: i64 = 60_000;
/// Milliseconds between two looks.
const LOOK_MS: i64 = 250;
/// Milliseconds between two looks after [`PODS_END_MS`].
const LATER_LOOK_MS: i64 = 2_000;

/// Returns when to look again at a job whose Works are gone, if pods of it have not ended yet.
pub(crate) fn pods_still_end(pass: &mut JobPass<'_>) -> Option<Time> {
    let now = pass.now;
    let grace_s = pass.engine.pods_of(pass.key).longest_grace();
    let grace_s = grace_s.or_else(|| is_unseen(pass.engine, pass.key).then_some(0))?;
    let most = pass.options.pods_end_ms;
    let since = pass.in_flight.works.pods_end_since(now);
    let by = since.after(allowed(grace_s, most));
    let look = match now < since.after(PODS_END_MS) {
        true => LOOK_MS,
        false => LATER_LOOK_MS,
    };
    (now < by).then(|| now.after(look).min(by))
}

/// Returns true if a job was admitted to a member that cannot be seen now, and that is neither out of service nor
/// removed.
fn is_unseen(engine: &Engine, key: &JobKey) -> bool {
    let admission = engine.job(key).and_then(|job| job.admission);
    let shares = admission
        .into_iter()
        .flat_map(|admission| &admission.shares);
    let mut clusters = shares.filter_map(|share| engine.fleet().cluster(&share.cluster));
    clusters.any(|cluster| {
        !cluster.usable && !cluster.has_taint(OUT_OF_SERVICE) && !cluster.has_taint(LEAVING)
    })
}

/// Returns for how many milliseconds the end of pods with this grace period is waited for.
fn allowed(grace_s: u32, most: i64) -> i64 {
    let of_grace = i64::from(grace_s) * 1_000 + SLACK_MS;
    of_grace.max(PODS_END_MS).min(most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_have_their_grace_period_and_a_minute_within_what_is_allowed() {
        let hour = 3_600_000;
        for (grace_s, most, want) in [
            (0, hour, PODS_END_MS),
            (60, hour, PODS_END_MS),
            (600, hour, 660_000),
            (u32::MAX, hour, hour),
            (600, 30_000, 30_000),
        ] {
            assert_eq!(allowed(grace_s, most), want, "{grace_s} {most}");
        }
    }
}
