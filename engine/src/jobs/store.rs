//! The job store: every job, what is indexed of jobs, and when to look at one again.

use super::job::Job;
use super::names::Names;
use crate::amounts::hashed::Hashed;
use crate::api::facts::PriorityClassFact;
use crate::api::ids::{JobKey, Time};
use crate::preemption::preemptible_index::PreemptibleIndex;
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
