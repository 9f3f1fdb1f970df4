//! What is remembered of the course of jobs: when they reached each stage, their traces, and when they were expected to
//! start.

use crate::status::job_trace::JobTraces;
use crate::status::timeline::StageLog;
use engine::{JobKey, StartForecasts, Time};

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct JobHistory {
    /// When jobs reached each stage.
    pub(super) stages: StageLog,
    /// The traces of jobs.
    pub(super) traces: JobTraces,
    /// When pending jobs are expected to start.
    pub(super) starts: StartForecasts,
}

impl JobHistory {
    /// Forgets a job.
    pub(super) fn forget(&mut self, key: &JobKey, now: Time) {
        self.stages.forget(key);
        self.traces.forget(key, crds::record::timestamp(now));
        self.starts.forget(key);
    }

    /// Forgets all jobs: another replica publishes them.
    pub(super) fn clear(&mut self) {
        self.stages.clear();
        self.traces.clear();
        self.starts = StartForecasts::default();
    }
}
