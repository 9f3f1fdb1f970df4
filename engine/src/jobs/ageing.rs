//! Ageing: the priority of a pending job rises while it waits, if its queue wants that, so that no job waits for
//! ever behind jobs of higher priority.
//!
//! It rises in steps, by `raise` after each `every`, up to the highest class that the queue allows. Only the order
//! among pending jobs follows it: what a job may preempt, and what may preempt it, depends on its own class. A job
//! could otherwise evict jobs of its own class only because it waited, and they it in turn.
//!
//! A step is state of the job (`ColdState::age`), which is counted when the timer of a pending job comes. So the order
//! of a queue changes when a timer comes, and not with each reading of the clock.

use crate::jobs::job::Job;
use crate::jobs::store::Jobs;
use crate::quota::Quota;
use facts::{Ageing, Time};

/// Classes above this value are Kubernetes' own (`system-node-critical`), which no job reaches by waiting.
const MOST_OF_USERS: i32 = 1_000_000_000;

fn rule<'a>(quota: &'a Quota, job: &Job) -> Option<&'a Ageing> {
    quota.policy(&job.queue)?.ageing.as_ref()
}

/// Returns the priority by which a job is ordered in its queue.
pub(crate) fn priority(jobs: &Jobs, quota: &Quota, job: &Job) -> i32 {
    let own = jobs.priority_of(job).unwrap_or_default();
    match rule(quota, job).filter(|_| job.released.is_none()) {
        Some(ageing) => raised(own, job.cold.age, ageing.raise, highest(jobs, ageing)),
        None => own,
    }
}

/// Returns how many steps a job has waited at `now`.
pub(crate) fn age_at(quota: &Quota, job: &Job, now: Time) -> u32 {
    let Some(ageing) = rule(quota, job) else {
        return 0;
    };
    let steps = now.millis_since(job.queued_at).max(0) / ageing.every_ms.max(1);
    u32::try_from(steps).unwrap_or(u32::MAX)
}

/// Returns when the priority of a pending job rises next, if it does.
pub(crate) fn next_step(jobs: &Jobs, quota: &Quota, job: &Job) -> Option<Time> {
    let ageing = rule(quota, job)?;
    let own = jobs.priority_of(job)?;
    let most = highest(jobs, ageing);
    if raised(own, job.cold.age, ageing.raise, most) >= most {
        return None;
    }
    let steps = i64::from(job.cold.age).saturating_add(1);
    Some(job.queued_at.after(ageing.every_ms.saturating_mul(steps)))
}

/// Returns the highest class that a queue allows.
fn highest(jobs: &Jobs, ageing: &Ageing) -> i32 {
    let allowed = |name: &str| {
        let listed = ageing.classes.as_ref();
        listed.is_none_or(|listed| listed.iter().any(|class| class == name))
    };
    let classes = jobs.priority_classes();
    let values = classes
        .filter(|class| allowed(&class.name))
        .map(|class| class.value);
    values
        .filter(|value| *value <= MOST_OF_USERS)
        .max()
        .unwrap_or(i32::MIN)
}

fn raised(own: i32, steps: u32, raise: u32, most: i32) -> i32 {
    let more = i64::from(steps).saturating_mul(i64::from(raise));
    let raised = i64::from(own).saturating_add(more).min(i64::from(most));
    i32::try_from(raised).unwrap_or(i32::MAX).max(own)
}

#[cfg(test)]
mod tests {
    use super::raised;

    #[test]
    fn a_priority_rises_up_to_the_highest_class() {
        for (own, steps, raise, most, wanted) in [
            (0, 0, 1, 100, 0),
            (0, 7, 3, 100, 21),
            (-5, 10, 1, 100, 5),
            (0, 1_000, 1, 100, 100),
            // A class that the list of the queue does not have keeps its value.
            (500, 10, 1, 100, 500),
            (0, 5, 1, i32::MIN, 0),
            (i32::MIN, u32::MAX, u32::MAX, i32::MAX, i32::MAX),
        ] {
            assert_eq!(raised(own, steps, raise, most), wanted, "{own} {steps}");
        }
    }
}
