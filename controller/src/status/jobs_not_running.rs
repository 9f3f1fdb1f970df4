//! How many admitted jobs something keeps from running, by reason: the metric behind three alerts.

use crate::metrics::ControllerMetrics;
use engine::{JobKey, Reason};
use std::collections::BTreeMap;

/// The reasons that are counted.
pub(crate) const COUNTED: [Reason; 3] = [
    Reason::PodsRefused,
    Reason::PodsNotStarting,
    Reason::PodsNotScheduled,
];

/// The jobs that show one of these reasons.
#[derive(Debug, Default)]
pub(crate) struct JobsNotRunning(BTreeMap<JobKey, Reason>);

impl JobsNotRunning {
    /// Notes the reason that a job shows.
    pub(crate) fn observe(&mut self, key: &JobKey, reason: Reason) {
        if COUNTED.contains(&reason) {
            self.0.insert(key.clone(), reason);
        } else {
            self.0.remove(key);
        }
    }

    /// Drops a job that is gone.
    pub(crate) fn forget(&mut self, key: &JobKey) {
        self.0.remove(key);
    }

    /// Drops all: another replica counts them.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// Returns the number of jobs that show `reason`.
    fn count(&self, reason: Reason) -> i64 {
        let jobs = self.0.values().filter(|shown| **shown == reason).count();
        i64::try_from(jobs).unwrap_or(i64::MAX)
    }

    /// Exports the numbers.
    pub(crate) fn export(&self, metrics: &ControllerMetrics) {
        for reason in COUNTED {
            metrics.not_running(reason, self.count(reason));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_counts_while_something_keeps_it() {
        let mut jobs = JobsNotRunning::default();
        let job = |name: &str| JobKey::new("team", name);
        jobs.observe(&job("b"), Reason::PodsNotStarting);
        for (reason, counts) in [
            (Reason::Placed, [0, 1, 0]),
            (Reason::PodsNotScheduled, [0, 1, 1]),
            (Reason::PodsNotStarting, [0, 2, 0]),
            (Reason::PodsRefused, [1, 1, 0]),
            (Reason::Running, [0, 1, 0]),
        ] {
            jobs.observe(&job("a"), reason);
            assert_eq!(COUNTED.map(|reason| jobs.count(reason)), counts, "{reason}");
        }
        jobs.forget(&job("b"));
        assert_eq!(COUNTED.map(|reason| jobs.count(reason)), [0; 3]);
    }
}
