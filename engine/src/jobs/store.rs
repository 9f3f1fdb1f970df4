//! The job store: every job, what is indexed of jobs, and when to look at one again.

use super::job::{Job, JobState};
use super::names::Names;
use super::preemptible_index::PreemptibleIndex;
use crate::amounts::hashed::Hashed;
use crate::api::facts::PriorityClassFact;
use crate::api::ids::{JobKey, QueueName, Time};
use std::collections::{BTreeMap, BTreeSet};

/// All jobs, and indexes over them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Jobs {
    /// Boxed, so that the map's free places stay small.
    pub(crate) by_key: Hashed<JobKey, Box<Job>>,
    /// Texts that many jobs are named by.
    pub(crate) names: Names,
    /// Priority classes by name.
    pub(crate) priority_classes: BTreeMap<String, PriorityClassFact>,
    /// When to look at a job again although no event came.
    pub(crate) timers: BTreeSet<(Time, JobKey)>,
    /// Until when the expected end of each charged job holds.
    pub(crate) ends: BTreeSet<(Time, JobKey)>,
    /// Released jobs that ask for another size than they have.
    pub(crate) resizing: BTreeSet<JobKey>,
    /// Jobs that may be evicted, by queue and priority.
    pub(crate) preemptible: PreemptibleIndex,
    /// Jobs that were stopped for a limit of run time.
    pub(crate) stopped: BTreeSet<JobKey>,
    /// Jobs with pods that have lost their node, looked at while they have no other.
    pub(crate) stranded: BTreeSet<JobKey>,
    /// Whether something came free since elastic jobs last tried to grow.
    pub(crate) scale_up_due: bool,
    /// Whether some job may have to leave its cluster.
    pub(crate) drain_due: bool,
}

impl Jobs {
    /// The value of the priority class that a job names, or of the global default; `None` if it
    /// names one that does not exist.
    pub(crate) fn priority_of(&self, job: &Job) -> Option<i32> {
        match &job.priority_class {
            Some(name) => Some(self.priority_classes.get(name.as_ref())?.value),
            // Kubernetes takes the smallest where several claim to be the default.
            None => Some(self.default_class().map_or(0, |class| class.value)),
        }
    }

    /// Whether a job's priority class lets it have other jobs evicted.
    pub(crate) fn preempts(&self, job: &Job) -> bool {
        let class = match &job.priority_class {
            Some(name) => self.priority_classes.get(name.as_ref()),
            None => self.default_class(),
        };
        class.is_none_or(|class| class.preempts)
    }

    fn default_class(&self) -> Option<&PriorityClassFact> {
        let classes = self.priority_classes.values();
        classes
            .filter(|class| class.global_default)
            .min_by_key(|class| class.value)
    }

    /// The queue and priority by which a job is listed as preemptible, if it holds something that
    /// could be evicted.
    pub(crate) fn preemptible_as(&self, job: &Job) -> Option<(QueueName, i32)> {
        let holds = matches!(
            job.state(),
            JobState::Assumed | JobState::Placed | JobState::Running
        );
        let released = job.released.as_ref().filter(|_| holds)?;
        let priority = self.priority_of(job).unwrap_or_default();
        Some((released.admission.queue.clone(), priority))
    }
}
