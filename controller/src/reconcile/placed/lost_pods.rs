//! The pods that jobs have lost in their present attempts, with what their members said of each.
//!
//! A pod may be gone when the end of its job is reported, so what was seen of it is kept until the attempt is
//! over, or the job has run whole for a while. The memory is that of this process.

use crate::reconcile::JobPass;
use engine::facts::{PodFact, PodPhase};
use engine::faults::{FaultClass, FaultRuleSet, Symptom};
use engine::{ClusterName, Event, JobKey, NodeName, Time, Uid};
use std::collections::{BTreeMap, BTreeSet};

/// Milliseconds for which a job has to run whole until what it lost before does not matter any more.
const WHOLE_FOR_MS: i64 = 30_000;
/// The most pods of one job of which it is known on which node they failed. The first are kept: others
/// follow from them as a rule.
const MOST_THERE: usize = 16;
/// The most entries of one job; further ones are of the same event as a rule.
const MOST: usize = 8;

/// A pod that was lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LostPod {
    /// Its cluster.
    pub(crate) cluster: ClusterName,
    /// What its member said.
    pub(crate) symptom: Symptom,
    /// True if its node or the control plane ended it; false if its container failed.
    ended_by_node: bool,
}

/// A pod that failed on a node, or does not start there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FailedThere {
    pod: Uid,
    /// Its cluster.
    pub(crate) cluster: ClusterName,
    /// The node.
    pub(crate) node: NodeName,
    /// What its member said.
    pub(crate) symptom: Symptom,
}

/// What one job has lost.
#[derive(Debug, Default)]
struct LostOfJob {
    pods: Vec<LostPod>,
    /// Where pods failed or do not start.
    failed_there: Vec<FailedThere>,
    /// Since when the job has run whole again.
    whole_since: Option<Time>,
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct LostPods {
    lost: BTreeMap<JobKey, LostOfJob>,
}

impl LostPods {
    /// Applies a fact of a member, before the engine knows it; `jobs_on` returns the jobs with pods on a node that
    /// the engine knows as Ready.
    pub(crate) fn note(
        &mut self,
        fact: &Event,
        jobs_on: impl Fn(&ClusterName, &NodeName) -> BTreeSet<JobKey>,
    ) {
        let (cluster, node) = match fact {
            Event::PodUpserted(pod) => return self.pod(pod),
            Event::NodeGone(cluster, node) => (cluster, node),
            Event::NodeUpserted(node) if node.lost => (&node.cluster, &node.name),
            _ => return,
        };
        let symptom = lost("NodeLost", &format!("node {node} is gone or not Ready"));
        for job in jobs_on(cluster, node) {
            self.add(&job, cluster, symptom.clone(), true);
        }
    }

    fn pod(&mut self, pod: &PodFact) {
        let Some(job) = &pod.job else {
            return;
        };
        let symptom = pod.symptom.as_deref();
        self.failed_there(job, pod);
        match pod.phase {
            PodPhase::Evicting | PodPhase::Disrupted => {
                let symptom = symptom.cloned().unwrap_or_else(|| lost("Disrupted", ""));
                self.add(job, &pod.cluster, symptom, true);
            }
            PodPhase::Ended => {
                if let Some(symptom) = symptom {
                    self.add(job, &pod.cluster, symptom.clone(), false);
                }
            }
            PodPhase::Starting | PodPhase::Running => {}
        }
    }

    /// Notes on which node a pod has failed or does not start. One that runs has overcome what was there.
    fn failed_there(&mut self, job: &JobKey, pod: &PodFact) {
        if pod.phase == PodPhase::Evicting {
            return;
        }
        if let Some(of_job) = self.lost.get_mut(job) {
            of_job.failed_there.retain(|failed| failed.pod != pod.uid);
        }
        let (Some(node), Some(symptom)) = (&pod.node, pod.symptom.as_deref()) else {
            return;
        };
        if pod.phase == PodPhase::Running || symptom.is_on_request() {
            return;
        }
        let of_job = self.lost.entry(job.clone()).or_default();
        of_job.whole_since = None;
        if of_job.failed_there.len() == MOST_THERE {
            return;
        }
        of_job.failed_there.push(FailedThere {
            pod: pod.uid.clone(),
            cluster: pod.cluster.clone(),
            node: node.clone(),
            symptom: symptom.clone(),
        });
    }

    /// Returns where pods of a job have failed or do not start, the oldest first.
    pub(crate) fn nodes_of(&self, job: &JobKey) -> &[FailedThere] {
        self.lost
            .get(job)
            .map_or(&[], |of_job| &of_job.failed_there)
    }

    fn add(&mut self, job: &JobKey, cluster: &ClusterName, symptom: Symptom, ended_by_node: bool) {
        let of_job = self.lost.entry(job.clone()).or_default();
        of_job.whole_since = None;
        let pod = LostPod {
            cluster: cluster.clone(),
            symptom,
            ended_by_node,
        };
        if of_job.pods.len() < MOST && !of_job.pods.contains(&pod) {
            of_job.pods.push(pod);
        }
    }

    /// Returns what a job has lost.
    pub(crate) fn of(&self, job: &JobKey) -> &[LostPod] {
        self.lost.get(job).map_or(&[], |of_job| &of_job.pods)
    }

    /// Returns the pod that a job lost in its present attempt through no fault of its own, and the class of that
    /// fault. Errors of the network count only if no pod failed in another way: they follow from any failure of
    /// another rank.
    pub(crate) fn infrastructure_fault(
        &self,
        job: &JobKey,
        rules: &FaultRuleSet,
    ) -> Option<(&LostPod, FaultClass)> {
        use FaultClass::{Cluster, Device, Network, Node, Storage, Unknown};
        let class_of = |pod: &LostPod| match rules.class_of(&pod.symptom) {
            Unknown if pod.ended_by_node => Node,
            class => class,
        };
        let lost = self.of(job).iter().map(|pod| (pod, class_of(pod)));
        let of_hardware = |class| matches!(class, Node | Device | Storage | Cluster);
        let mut hardware = lost.clone().filter(|(_, class)| of_hardware(*class));
        // What was asked for is no fault, and says nothing of one beside it.
        let fault = hardware
            .clone()
            .find(|(pod, _)| !pod.symptom.is_on_request());
        fault.or_else(|| hardware.next()).or_else(|| {
            let all = lost.clone().all(|(_, class)| class == Network);
            lost.clone().next().filter(|_| all)
        })
    }

    /// Returns the pod by whose failure a job failed by itself, and the class of that fault: one that a rule
    /// calls the job's own, or else the first.
    pub(crate) fn own_fault(
        &self,
        job: &JobKey,
        rules: &FaultRuleSet,
    ) -> Option<(&LostPod, FaultClass)> {
        let own = self.of(job).iter().filter(|pod| !pod.ended_by_node);
        let mut classed = own.map(|pod| (pod, rules.class_of(&pod.symptom)));
        let first = classed.clone().next();
        let users = classed.find(|(_, class)| *class == FaultClass::User);
        users.or(first)
    }

    /// Returns the exit codes with which containers of a job ended.
    pub(crate) fn exit_codes(&self, job: &JobKey) -> impl Iterator<Item = i32> {
        let pods = self.of(job).iter();
        pods.filter_map(|pod| pod.symptom.exit_code)
    }

    /// Notes whether a job runs whole at `now`, and forgets what it had lost before if it has for a while.
    fn runs_whole(&mut self, job: &JobKey, whole: bool, now: Time) {
        let Some(of_job) = self.lost.get_mut(job) else {
            return;
        };
        if !whole {
            of_job.whole_since = None;
            return;
        }
        let since = *of_job.whole_since.get_or_insert(now);
        if now.millis_since(since) >= WHOLE_FOR_MS {
            self.lost.remove(job);
        }
    }

    /// Forgets what jobs have lost: another replica decides what follows.
    pub(crate) fn stand_by(&mut self) {
        self.lost.clear();
    }

    /// Notes that an attempt of a job is over.
    pub(crate) fn attempt_over(&mut self, job: &JobKey) {
        self.lost.remove(job);
    }
}

/// Notes whether a job that runs has all the pods that it needs.
pub(crate) fn note_whole(pass: &mut JobPass<'_>, runs: bool) {
    let whole = runs && !pass.engine.pods_of(pass.key).are_too_few();
    pass.jobs.lost_pods.runs_whole(pass.key, whole, pass.now);
}

fn lost(reason: &str, message: &str) -> Symptom {
    Symptom {
        reason: reason.to_owned(),
        message: message.to_owned(),
        exit_code: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::Resources;

    fn key(name: &str) -> JobKey {
        JobKey::new("team", name)
    }

    fn pod(name: &str, phase: PodPhase) -> Event {
        Event::PodUpserted(PodFact {
            cluster: ClusterName::new("m1"),
            uid: Uid::new(name),
            node: Some(NodeName::new("n1")),
            request: Resources::new(),
            job: Some(key(name)),
            phase,
            symptom: None,
            grace_s: 0,
        })
    }

    #[test]
    fn a_pod_is_lost_with_its_node_or_by_an_eviction() {
        let mut pods = LostPods::default();
        let (m1, n1) = (ClusterName::new("m1"), NodeName::new("n1"));
        let jobs_on = |_: &ClusterName, _: &NodeName| BTreeSet::from([key("a")]);
        for fact in [
            pod("b", PodPhase::Running),
            pod("c", PodPhase::Ended),
            pod("d", PodPhase::Disrupted),
            pod("e", PodPhase::Evicting),
            Event::NodeGone(m1.clone(), n1.clone()),
        ] {
            pods.note(&fact, jobs_on);
        }
        let lost =
            |pods: &LostPods| ["a", "b", "c", "d", "e"].map(|name| pods.of(&key(name)).len());
        assert_eq!(lost(&pods), [1, 0, 0, 1, 1]);
        pods.attempt_over(&key("a"));
        // The node is known to be gone.
        pods.note(&Event::NodeGone(m1, n1), |_, _| BTreeSet::new());
        assert_eq!(lost(&pods), [0, 0, 0, 1, 1]);
        pods.stand_by();
        assert_eq!(lost(&pods), [0; 5]);
    }

    #[test]
    fn what_was_lost_is_forgotten_once_the_job_has_run_whole_for_a_while() {
        let mut pods = LostPods::default();
        pods.note(&pod("a", PodPhase::Evicting), |_, _| BTreeSet::new());
        pods.runs_whole(&key("a"), true, Time(0));
        pods.runs_whole(&key("a"), false, Time(20_000));
        pods.runs_whole(&key("a"), true, Time(40_000));
        assert_eq!(pods.of(&key("a")).len(), 1);
        pods.runs_whole(&key("a"), true, Time(70_000));
        assert_eq!(pods.of(&key("a")).len(), 0);
    }
}
