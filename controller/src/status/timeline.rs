//! When a job reached each stage: the times in the status of its PodGroup.
//!
//! A stage has the time of the pass in which this process saw the job enter it; the metrics of waits use the
//! same time. What an earlier process has published stays. If a job had reached a stage before this process
//! saw it and no time was published, the time is not known, and stays absent.

use crds::podgroup::{FederationStatus, StatusWord, Timeline};
use crds::record::timestamp;
use engine::{JobKey, JobState, Time};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time as ApiTime;
use std::collections::HashMap;

/// Milliseconds after its submission within which a job that is seen first counts as eligible since then.
const NEW_MS: i64 = 5_000;

/// What this process has seen of the stages of jobs.
#[derive(Debug, Default)]
pub(crate) struct StageLog {
    jobs: HashMap<JobKey, SeenStages>,
}

/// A job at one moment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StageNow {
    /// Number of its last attempt; 0 before the first.
    pub(crate) attempt: u32,
    pub(crate) state: JobState,
    /// True if only quota, capacity and the jobs ahead of it keep it waiting.
    pub(crate) competes: bool,
    /// Pods that are placed.
    pub(crate) pods: u32,
    pub(crate) queued_at: Time,
    pub(crate) admitted_at: Option<Time>,
    pub(crate) now: Time,
}

#[derive(Debug)]
struct SeenStages {
    last: StageNow,
    times: Timeline,
}

impl StageLog {
    /// Notes a job as it is now. `published` is what its PodGroup shows. Returns true if this process has seen
    /// the job wait, and now sees it admitted.
    pub(crate) fn observe(
        &mut self,
        key: &JobKey,
        published: Option<&FederationStatus>,
        now: StageNow,
    ) -> bool {
        let waited = self.jobs.get(key).map(|seen| seen.last.state) == Some(JobState::Queued);
        let times = match self.jobs.get(key) {
            Some(seen) if seen.last.queued_at == now.queued_at => seen.then(now),
            _ => first(published, now),
        };
        self.jobs
            .insert(key.clone(), SeenStages { last: now, times });
        waited && now.state != JobState::Queued
    }

    /// Returns the times of a job that was observed.
    pub(crate) fn times(&self, key: &JobKey) -> Timeline {
        let seen = self.jobs.get(key);
        seen.map(|seen| seen.times.clone()).unwrap_or_default()
    }

    pub(crate) fn forget(&mut self, key: &JobKey) {
        self.jobs.remove(key);
    }

    pub(crate) fn clear(&mut self) {
        self.jobs.clear();
    }
}

impl SeenStages {
    /// Returns the times after a later observation.
    fn then(&self, now: StageNow) -> Timeline {
        let (last, known) = (self.last, &self.times);
        let same = last.attempt == now.attempt;
        let kept = |time: &Option<ApiTime>| time.clone().filter(|_| same);
        let enters = |of: fn(JobState) -> bool| of(now.state) && !(same && of(last.state));
        let date = |known: &Option<ApiTime>, of| {
            let entered = enters(of).then(|| at(now.now));
            kept(known).or(entered)
        };
        let resized = same && last.pods > 0 && now.pods > 0 && last.pods != now.pods;
        Timeline {
            queued: Some(at(now.queued_at)),
            eligible: eligible(last, now, known.eligible.clone()),
            admitted: now.admitted_at.map(at),
            placed: date(&known.placed, is_placed),
            running: date(&known.running, |state| state == JobState::Running),
            resized: match resized {
                true => Some(at(now.now)),
                false => kept(&known.resized),
            },
            finished: date(&known.finished, |state| state == JobState::Finished),
        }
    }
}

/// Since when a job is eligible that was seen before.
fn eligible(last: StageNow, now: StageNow, known: Option<ApiTime>) -> Option<ApiTime> {
    let waited = last.state == JobState::Queued;
    match now.state {
        JobState::Queued if !now.competes => None,
        JobState::Queued if waited && last.competes => known,
        JobState::Queued => Some(at(now.now)),
        // It became eligible and was admitted in one pass.
        _ if waited && !last.competes => now.admitted_at.map(at),
        _ => known,
    }
}

/// Returns the times of a job that this process sees for the first time.
fn first(published: Option<&FederationStatus>, now: StageNow) -> Timeline {
    let own = published.filter(|shown| shown.timeline.queued == Some(at(now.queued_at)));
    let attempt = |shown: &FederationStatus| shown.attempt.and_then(|n| u32::try_from(n).ok());
    let same = own.filter(|shown| attempt(shown) == Some(now.attempt));
    let times = same.map(|shown| shown.timeline.clone());
    Timeline {
        queued: Some(at(now.queued_at)),
        eligible: match own {
            Some(shown) => published_eligible(shown, attempt(shown), now),
            None => new_and_eligible(now),
        },
        admitted: now.admitted_at.map(at),
        ..times.unwrap_or_default()
    }
}

/// Since when a job is eligible by what an earlier process has published.
fn published_eligible(
    shown: &FederationStatus,
    attempt: Option<u32>,
    now: StageNow,
) -> Option<ApiTime> {
    let waited = shown.status_word() == Some(StatusWord::Queued);
    let same_wait = match now.state {
        JobState::Queued => now.competes && waited,
        _ => {
            attempt == Some(now.attempt) || (waited && attempt.map(|n| n + 1) == Some(now.attempt))
        }
    };
    shown.timeline.eligible.clone().filter(|_| same_wait)
}

/// A job that competes, or was admitted, right after its submission was eligible from the start.
fn new_and_eligible(now: StageNow) -> Option<ApiTime> {
    let by = match now.state {
        JobState::Queued => now.competes.then_some(now.now),
        _ => now.admitted_at.filter(|_| now.attempt == 1),
    };
    let new = |by: &Time| by.millis_since(now.queued_at) < NEW_MS;
    by.filter(new).map(|_| at(now.queued_at))
}

fn is_placed(state: JobState) -> bool {
    use JobState::{Finished, Placed, Running};
    matches!(state, Placed | Running | Finished)
}

/// The API has times in seconds; those that are compared with it must be, too.
fn at(time: Time) -> ApiTime {
    let time = timestamp(time);
    ApiTime(jiff::Timestamp::from_second(time.as_second()).unwrap_or(time))
}

#[cfg(test)]
mod tests;
