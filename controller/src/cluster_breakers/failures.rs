//! Jobs that failed in one cluster through no fault of their own.

use crds::fault_policy::ClusterBreaker;
use engine::facts::{PodFact, PodPhase};
use engine::faults::{FaultClass, FaultRuleSet};
use engine::{ClusterName, Event, JobKey, NodeName, QueueName, Time, Uid, counted};
use std::collections::BTreeSet;

/// The most failures that are remembered of one cluster.
const MOST: usize = 512;

/// A job that failed on a node.
#[derive(Debug)]
struct ClusterFailure {
    job: JobKey,
    queue: QueueName,
    node: NodeName,
    class: FaultClass,
    at: Time,
}

/// The failures of one cluster, the newest last.
#[derive(Debug, Default)]
pub(super) struct ClusterFailures {
    failures: Vec<ClusterFailure>,
}

impl ClusterFailures {
    pub(super) fn is_empty(&self) -> bool {
        self.failures.is_empty()
    }

    /// Notes a failure. A job counts once for each node, with its last failure.
    pub(super) fn note(
        &mut self,
        job: JobKey,
        queue: QueueName,
        node: NodeName,
        class: FaultClass,
        at: Time,
    ) {
        self.failures
            .retain(|known| (&known.job, &known.node) != (&job, &node));
        if self.failures.len() == MOST {
            self.failures.remove(0);
        }
        self.failures.push(ClusterFailure {
            job,
            queue,
            node,
            class,
            at,
        });
    }

    /// Forgets what failed at `time` or before.
    pub(super) fn forget_until(&mut self, time: Time) {
        self.failures.retain(|failure| time < failure.at);
    }

    /// Returns true if a job has failed there since.
    pub(super) fn has_since(&self, job: &JobKey, since: Time) -> bool {
        let mut failures = self.failures.iter();
        failures.any(|failure| failure.job == *job && since <= failure.at)
    }

    /// Returns what was seen if that is enough for `breaker` at `now`. Failures on a single node are for rules
    /// about nodes.
    pub(super) fn trips(&self, breaker: &ClusterBreaker, now: Time) -> Option<String> {
        let recent = |failure: &&ClusterFailure| now.millis_since(failure.at) < breaker.within_ms;
        let recent = self.failures.iter().filter(recent);
        let jobs: BTreeSet<_> = recent.clone().map(|failure| &failure.job).collect();
        let nodes: BTreeSet<_> = recent.clone().map(|failure| &failure.node).collect();
        let queues: BTreeSet<_> = recent.clone().map(|failure| &failure.queue).collect();
        let classes: BTreeSet<_> = recent.map(|failure| failure.class.as_str()).collect();
        let namespaces: BTreeSet<_> = jobs.iter().map(|job| &job.namespace).collect();
        let (enough, tenants) = (breaker.jobs as usize, breaker.namespaces as usize);
        let trips = jobs.len() >= enough
            && namespaces.len() >= tenants
            && queues.len() >= tenants
            && nodes.len() > 1;
        trips.then(|| {
            format!(
                "{} of {} failed there on {} within {} s (class {})",
                counted(jobs.len(), "job"),
                counted(namespaces.len(), "namespace"),
                counted(nodes.len(), "node"),
                breaker.within_ms / 1000,
                classes.into_iter().collect::<Vec<_>>().join(", ")
            )
        })
    }
}

/// A job that a fact shows as failed on a node.
#[derive(Debug)]
pub(super) struct FailedJob {
    pub(super) job: JobKey,
    pub(super) node: NodeName,
    pub(super) class: FaultClass,
}

/// Returns the cluster of a fact, and the jobs that failed there through no fault of their own.
pub(super) fn of_fact(
    fact: &Event,
    rules: &FaultRuleSet,
    was_there: impl Fn(&Uid) -> bool,
    jobs_on: impl Fn(&ClusterName, &NodeName) -> BTreeSet<JobKey>,
) -> Option<(ClusterName, Vec<FailedJob>)> {
    let (cluster, node) = match fact {
        Event::PodUpserted(pod) => {
            let failed = of_pod(pod, rules).filter(|_| !pod.ended() || was_there(&pod.uid));
            return Some((pod.cluster.clone(), failed.into_iter().collect()));
        }
        Event::NodeGone(cluster, node) => (cluster, node),
        Event::NodeUpserted(node) if node.lost => (&node.cluster, &node.name),
        _ => return None,
    };
    let jobs = jobs_on(cluster, node).into_iter();
    let lost = jobs.map(|job| FailedJob {
        job,
        node: node.clone(),
        class: FaultClass::Node,
    });
    Some((cluster.clone(), lost.collect()))
}

/// Returns the failure that a pod shows, if it is not the job's own.
fn of_pod(pod: &PodFact, rules: &FaultRuleSet) -> Option<FailedJob> {
    let goes_on = matches!(pod.phase, PodPhase::Running | PodPhase::Evicting);
    let symptom = pod.symptom.as_deref().filter(|_| !goes_on)?;
    let class = rules.class_of(symptom);
    if symptom.is_on_request() {
        return None;
    }
    let (job, node) = (pod.job.clone()?, pod.node.clone()?);
    is_infrastructure(class).then_some(FailedJob { job, node, class })
}

/// Returns true if faults of a class may be the cluster's: not the job's own, and known.
fn is_infrastructure(class: FaultClass) -> bool {
    match class {
        FaultClass::User | FaultClass::Unknown => false,
        FaultClass::Node
        | FaultClass::Device
        | FaultClass::Network
        | FaultClass::Storage
        | FaultClass::Cluster => true,
    }
}
