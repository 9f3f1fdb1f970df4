//! The engine's public methods.
//!
//! `apply` records a fact and updates the indexes of the job, queue or node. `decide` admits,
//! evicts and resizes jobs. A job is charged from the decision to admit it until its end is
//! confirmed, so that old facts can only cause too few admissions. Pending jobs of one queue and
//! one request shape form a class, which is parked until something it waits for changes: `decide`
//! never scans all pending jobs.

use crate::amounts::resources::Resources;
use crate::api::decision::{
    Decisions, Explanation, Help, PrePull, QueueUsage, Reserved, StartEstimate,
};
use crate::api::demand::ClusterPlacement;
use crate::api::event::Event;
use crate::api::facts::{ClusterFact, Leaving, NodeFact, Slot};
use crate::api::faults::FaultRuleSet;
use crate::api::ids::{Attempt, ClusterName, JobKey, NodeName, QueueName, Time};
use crate::api::reason::Reason;
use crate::audit::snapshot::Snapshot;
use crate::audit::{invariants, snapshot};
use crate::capacity::{ClusterCapacity, PoolSummary};
use crate::config::EngineConfig;
use crate::cycle::{decide, events};
use crate::jobs::job::JobView;
use crate::placement::eligible;
use crate::report::advise::AdviceClass;
use crate::report::{advise, explain, pre_pull, start, usage};
use crate::state::{Changed, Engine};
use std::collections::{BTreeMap, BTreeSet};

impl Engine {
    /// The latest fact of a cluster.
    #[must_use]
    pub fn cluster(&self, name: &ClusterName) -> Option<&ClusterFact> {
        self.capacity.cluster_fact(name)
    }

    /// The names of all known clusters, in order.
    pub fn cluster_names(&self) -> impl Iterator<Item = &ClusterName> {
        self.capacity.cluster_names()
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

    /// The terminating pods of an admitted job that are still charged.
    #[must_use]
    pub fn leaving(&self, key: &JobKey) -> &[Leaving] {
        self.jobs.released(key).map_or(&[], |job| &job.leaving)
    }

    /// The charge of an admitted job beyond its admission, by cluster.
    #[must_use]
    pub fn excess(&self, key: &JobKey) -> Option<&BTreeMap<ClusterName, Resources>> {
        Some(&self.jobs.released(key)?.excess)
    }

    /// The request of the pods of a job in a cluster that have not ended.
    #[must_use]
    pub fn requested_by_pods(&self, key: &JobKey, cluster: &ClusterName) -> Resources {
        self.capacity.requested(key, cluster)
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

    /// All pools of all members, in order of cluster and class.
    #[must_use]
    pub fn pools(&self) -> Vec<PoolSummary> {
        self.capacity.pools()
    }

    /// The clusters for an object without pods, such as a ConfigMap: those of the first group of `placement` that
    /// has any. They need no live view and no capacity.
    #[must_use]
    pub fn clusters_for_objects(&self, placement: &ClusterPlacement) -> Vec<ClusterName> {
        eligible::clusters_for_objects(self.inputs(), placement)
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

    /// Whether a running job has fewer pods than it needs.
    #[must_use]
    pub fn has_lost_pods(&self, key: &JobKey) -> bool {
        let released = self.jobs.released(key);
        released.is_some_and(|released| released.loss.is_some())
    }

    /// Where capacity is held for pods of an admitted job that are not bound yet, or are to replace lost ones.
    #[must_use]
    pub fn assumed_pods(&self, key: &JobKey) -> Vec<(ClusterName, Slot)> {
        let assumption = self.capacity.assumed().get(key).into_iter();
        let each = assumption.flat_map(|assumption| {
            assumption.assumed.iter().filter_map(|pod| {
                let slot = Slot {
                    node: pod.node.clone()?,
                    role: assumption.demand.roles[pod.role].name.clone(),
                    count: pod.count,
                };
                Some((pod.cluster.clone(), slot))
            })
        });
        each.collect()
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

    /// The number of a job's `of` pods in a cluster that are bound to nodes and have not been lost, or ended by
    /// themselves and need no other in their place.
    #[must_use]
    pub fn bound_pods(&self, key: &JobKey, cluster: &ClusterName, of: u32) -> u32 {
        self.capacity.present_pods(key, cluster, of)
    }

    /// The longest grace period in seconds of a job's pods that still use capacity, of whichever attempt, in clusters
    /// and on nodes that can be seen; `None` if there are none.
    #[must_use]
    pub fn grace_of_pods_left(&self, key: &JobKey) -> Option<u32> {
        self.capacity.grace_of_pods_left(key)
    }

    /// The jobs with pods on a node that have not ended; none if the node is not known, or lost.
    #[must_use]
    pub fn jobs_on(&self, cluster: &ClusterName, node: &NodeName) -> BTreeSet<JobKey> {
        let nodes = self.capacity.cluster(cluster);
        let is_ready = |nodes: &&ClusterCapacity| {
            let info = nodes.nodes().get(node);
            info.is_some_and(|info| !info.fact.lost)
        };
        let pods = nodes.filter(is_ready).into_iter();
        let pods = pods.flat_map(|nodes| nodes.pods_on(node));
        pods.filter_map(|pod| pod.job.clone()).collect()
    }

    /// The rules in force that say whose fault a symptom is.
    #[must_use]
    pub fn fault_rules(&self) -> &FaultRuleSet {
        &self.fault_rules
    }

    /// The fact of a node.
    #[must_use]
    pub fn node(&self, cluster: &ClusterName, node: &NodeName) -> Option<&NodeFact> {
        let nodes = self.capacity.cluster(cluster)?.nodes();
        Some(&nodes.get(node)?.fact)
    }

    /// Whether a cluster has a node.
    #[must_use]
    pub fn has_node(&self, cluster: &ClusterName, node: &NodeName) -> bool {
        let nodes = self.capacity.cluster(cluster);
        nodes.is_some_and(|nodes| nodes.nodes().contains_key(node))
    }

    /// The number of known nodes of a cluster.
    #[must_use]
    pub fn nodes_in(&self, cluster: &ClusterName) -> usize {
        let nodes = self.capacity.cluster(cluster);
        nodes.map_or(0, |nodes| nodes.nodes().len())
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

    /// Whether only quota, capacity and the jobs ahead of it keep a queued job waiting: no hold, no
    /// back-off, no closed queue and no limit of pending jobs.
    #[must_use]
    pub fn competes(&self, key: &JobKey) -> bool {
        explain::competes(self.inputs(), key)
    }

    /// Whether a queue or a queue below it is charged.
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

    /// Which bound is exceeded in a resource that an admitted job uses, of its queue or of one
    /// above it, in words; `None` if none is.
    #[must_use]
    pub fn bound_passed_by(&self, key: &JobKey) -> Option<String> {
        let released = self.jobs.released(key)?;
        let queue = &released.admission.queue;
        self.quota.exceeded_bound(queue, &released.pools())
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
