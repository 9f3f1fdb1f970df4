//! The engine's public methods.
//!
//! `apply` records a fact and updates the indexes of the job, queue or node. `decide` admits,
//! evicts and resizes jobs. A job is charged from the decision to admit it until its end is
//! confirmed, so that old facts can only cause too few admissions. Pending jobs of one queue and
//! one request shape form a class, which is parked until something it waits for changes: `decide`
//! never scans all pending jobs.

use crate::api::charge::Pools as PoolCharges;
use crate::api::decision::{
    Decisions, Explanation, Help, PrePull, QueueUsage, Reserved, StartEstimate,
};
use crate::audit::snapshot::Snapshot;
use crate::audit::{invariants, snapshot};
use crate::config::EngineConfig;
use crate::cycle::{decide, events};
use crate::jobs::job::JobView;
use crate::report::advise::AdviceClass;
use crate::report::fleet::FleetView;
use crate::report::pods::PodsView;
use crate::report::{advise, explain, pre_pull, start, usage};
use crate::state::{Changed, Engine};
use facts::faults::FaultRuleSet;
use facts::{Attempt, ClusterName, Event, JobKey, NodeName, QueueName, Reason, Resources, Time};
use std::collections::BTreeMap;

impl Engine {
    /// The member clusters and their nodes.
    #[must_use]
    pub fn fleet(&self) -> FleetView<'_> {
        FleetView(self.inputs())
    }

    /// The pods of a job.
    #[must_use]
    pub fn pods_of<'a>(&'a self, key: &'a JobKey) -> PodsView<'a> {
        let inputs = self.inputs();
        PodsView { inputs, key }
    }

    /// All queues that exist or have jobs, in order of name.
    pub fn queues(&self) -> impl Iterator<Item = &QueueName> {
        self.quota.listed()
    }

    /// The state of a job, if it is known.
    #[must_use]
    pub fn job(&self, key: &JobKey) -> Option<JobView<'_>> {
        let job = self.jobs.get(key)?;
        Some(job.view(self.jobs.priority_of(job).unwrap_or_default()))
    }

    /// The charge of an admitted job beyond its admission, by cluster.
    #[must_use]
    pub fn excess(&self, key: &JobKey) -> Option<&BTreeMap<ClusterName, Resources>> {
        Some(&self.jobs.released(key)?.excess)
    }

    /// The charges for pods beyond those of their jobs, with the queue that is charged, in order of key: that of the
    /// job, or of the namespace of pods that belong to none ([`JobKey::of_namespace`]).
    pub fn pod_charges(&self) -> impl Iterator<Item = (&JobKey, &QueueName, &PoolCharges)> {
        let all = self.pod_charges.iter();
        all.map(|(key, charge)| (key, &charge.queue, &*charge.pools))
    }

    /// Applies an event. The cost does not depend on the number of pending jobs.
    pub fn apply(&mut self, event: Event) {
        events::apply(self, event);
    }

    /// Makes all decisions that are possible at `now`, up to the budget. Time does not go back: an
    /// earlier `now` counts as the latest one.
    pub fn decide(&mut self, now: Time) -> Decisions {
        decide::decide(self, now)
    }

    /// An engine in the state of `snapshot`.
    #[must_use]
    pub fn restore(snapshot: Snapshot, config: EngineConfig) -> Self {
        snapshot::restore(snapshot, config)
    }

    /// Jobs and queues that may have changed since the last call.
    pub fn take_changed(&mut self) -> Changed {
        std::mem::take(&mut self.changed)
    }

    /// The state of a job and the reason for it; `None` if the job is not known.
    #[must_use]
    pub fn explain(&self, key: &JobKey) -> Option<Explanation> {
        explain::explain(self.inputs(), key)
    }

    /// An estimate of the start of a pending job, as [`Engine::explain`] has it for a job that may start.
    #[must_use]
    pub fn start_estimate(&self, key: &JobKey) -> Option<StartEstimate> {
        start::estimate(self.inputs(), key)
    }

    /// The images that reserved nodes can pull before the jobs start, for jobs of the queues that are `wanted`: one
    /// pull for each cluster of a job, in order.
    #[must_use]
    pub fn pre_pulls(&self, wanted: &dyn Fn(&QueueName) -> bool) -> Vec<PrePull> {
        pre_pull::pre_pulls(self.inputs(), wanted)
    }

    /// The attempt of a job that is being evicted, with the reason and the message.
    #[must_use]
    pub fn evicted_because(&self, key: &JobKey) -> Option<(Attempt, Reason, &str)> {
        let released = self.jobs.released(key)?;
        let (cause, _) = released.ending.as_ref()?;
        Some((released.admission.attempt, cause.reason, &cause.message))
    }

    /// Until when a job that is being evicted will wait if its Works are gone at `at`; `None` without a back-off.
    #[must_use]
    pub fn requeued_until(&self, key: &JobKey, at: Time) -> Option<Time> {
        self.jobs.requeued_until(key, at, &self.config)
    }

    /// The nodes that a queue keeps as spare ones for its large gangs, and whether another job runs there meanwhile.
    #[must_use]
    pub fn spare_nodes(&self, queue: &QueueName) -> BTreeMap<(ClusterName, NodeName), bool> {
        let spares = self.spares.iter().filter(|spare| spare.queue == *queue);
        let nodes = spares.flat_map(|spare| {
            let lent = |node| spare.lent.contains(node);
            let nodes = spare.nodes.iter();
            nodes.map(move |node| ((spare.cluster.clone(), node.node.clone()), lent(&node.node)))
        });
        nodes.collect()
    }

    /// The rules in force that say whose fault a symptom is.
    #[must_use]
    pub fn fault_rules(&self) -> &FaultRuleSet {
        &self.fault_rules
    }

    /// The smallest changes with which a pending job would start now. There are none if neither
    /// quota nor capacity blocks it. Only queues for which `may_use` returns true are suggested.
    #[must_use]
    pub fn advise(&self, key: &JobKey, may_use: &dyn Fn(&QueueName) -> bool) -> Vec<Help> {
        advise::advise(self.inputs(), key, may_use)
    }

    /// The class of a pending job, of which all jobs get the same advice; `None` if it is not pending.
    #[must_use]
    pub fn advice_class(&self, key: &JobKey) -> Option<AdviceClass> {
        advise::class_of(self.inputs(), key)
    }

    /// Returns true if only quota, capacity and the jobs ahead of it keep a queued job waiting: no hold, no
    /// back-off, no closed queue and no limit of pending jobs.
    #[must_use]
    pub fn competes(&self, key: &JobKey) -> bool {
        explain::competes(self.inputs(), key)
    }

    /// Returns true if a queue or a queue below it is charged.
    #[must_use]
    pub fn is_charged(&self, queue: &QueueName) -> bool {
        self.quota.is_charged(queue)
    }

    /// The queues that are charged for the jobs of `queue`: from the top down to it, without the
    /// root.
    #[must_use]
    pub fn queue_path(&self, queue: &QueueName) -> Vec<QueueName> {
        usage::queue_path(self.inputs(), queue)
    }

    /// Usage, demand and bounds of a queue; `None` if it neither exists nor has jobs.
    #[must_use]
    pub fn queue_usage(&self, queue: &QueueName) -> Option<QueueUsage> {
        usage::queue_usage(self.inputs(), queue)
    }

    /// Returns which bound is exceeded in a resource that an admitted job uses, of its queue or of one
    /// above it, in words; `None` if none is.
    #[must_use]
    pub fn bound_passed_by(&self, key: &JobKey) -> Option<String> {
        let released = self.jobs.released(key)?;
        let queue = &released.admission.queue;
        self.quota.exceeded_bound(queue, &released.pools())
    }

    /// The first `most` pending jobs of a queue, in order.
    pub fn first_pending(
        &self,
        queue: &QueueName,
        most: usize,
    ) -> impl Iterator<Item = &JobKey> + use<'_> {
        let pending = self.pending.queues.pending_queue(queue);
        let ranks = pending
            .into_iter()
            .flat_map(|pending| pending.ranks().iter());
        ranks.take(most).map(|rank| &rank.key)
    }

    /// The number of a queue's own pending jobs that have a reservation, by what is reserved.
    #[must_use]
    pub fn reserved(&self, queue: &QueueName) -> Reserved {
        usage::reserved(self.inputs(), queue)
    }

    /// The state from which [`Engine::restore`] builds an equal engine.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        snapshot::snapshot(self.inputs())
    }

    /// The violated invariants, in words. For tests: it costs as much as rebuilding the engine.
    #[must_use]
    pub fn check_invariants(&self) -> Vec<String> {
        invariants::check_invariants(self.inputs())
    }
}
