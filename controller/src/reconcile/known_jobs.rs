//! What is known of all jobs besides the engine's state and the objects themselves.

use crate::metrics::ControllerMetrics;
use crate::mirror::BindingIdentity;
use crate::reconcile::placed::lost_pods::LostPods;
use crate::reconcile::placed::shrink::LivePods;
use engine::JobKey;
use engine::facts::JobFact;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct KnownJobs {
    /// The fact of each job that the engine has; the same fact is not applied twice.
    pub(crate) last_facts: HashMap<JobKey, JobFact>,
    /// Bindings that are no workloads and go to every cluster; reconciled when clusters change.
    pub(crate) spread: BTreeSet<JobKey>,
    /// Jobs that are split only where their pods can find each other.
    pub(crate) rendezvous: BTreeSet<JobKey>,
    /// Jobs whose record this version cannot act on.
    pub(crate) untouched: BTreeSet<JobKey>,
    /// Jobs whose bindings are gone and that still have Works, and which binding that was.
    pub(crate) remains: BTreeMap<JobKey, BindingIdentity>,
    /// Pods of jobs that members show.
    pub(crate) pods: LivePods,
    /// What jobs have lost in their present attempts.
    pub(crate) lost_pods: LostPods,
}

impl KnownJobs {
    /// Drops what is known of a job, except for its remains and its pods.
    pub(crate) fn forget(&mut self, key: &JobKey, metrics: &ControllerMetrics) {
        self.last_facts.remove(key);
        self.lost_pods.attempt_over(key);
        self.spread.remove(key);
        self.rendezvous.remove(key);
        self.touched(key, metrics);
    }

    /// Records that this version cannot act on the record of a job. Returns true if that is new.
    pub(crate) fn not_touched(&mut self, key: &JobKey, metrics: &ControllerMetrics) -> bool {
        let is_new = self.untouched.insert(key.clone());
        self.count_untouched(metrics);
        is_new
    }

    /// Records that the record of a job can be read again, or that the job is gone.
    pub(crate) fn touched(&mut self, key: &JobKey, metrics: &ControllerMetrics) {
        if self.untouched.remove(key) {
            self.count_untouched(metrics);
        }
    }

    fn count_untouched(&self, metrics: &ControllerMetrics) {
        let count = i64::try_from(self.untouched.len()).unwrap_or(i64::MAX);
        metrics.records_unreadable.set(count);
    }
}
