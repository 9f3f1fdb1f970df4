//! Pods that are unbound, that have ended, and that a member binds where it chooses.

use crate::machine::model::Model;
use engine::facts::{PodFact, PodPhase, Role, Share};
use engine::{ClusterName, JobKey, JobState, NodeName, Resources, Uid};

impl Model {
    /// Unbound pods of an admitted job.
    pub fn unbound(&mut self, key: &JobKey, most: usize) {
        for (share, role) in self.missing(key).into_iter().take(most) {
            self.start_pod(key, &share.cluster, &role, None);
        }
    }

    /// Unbound pods are bound to a node of their cluster with free capacity; so are pods of a job
    /// from a record, which were not planned on any.
    pub fn bind_rest(&mut self, key: &JobKey, most: usize) {
        let waits = |pod: &&PodFact| pod.job.as_ref() == Some(key) && pod.node.is_none();
        let unbound: Vec<PodFact> = self.pods.values().filter(waits).cloned().collect();
        let role = self.jobs.get(key).map(|fact| fact.demand.roles[0].clone());
        for pod in unbound.into_iter().take(most) {
            let free = role.as_ref().map(|role| Role {
                request: pod.request.clone(),
                ..role.clone()
            });
            let node = free.and_then(|role| self.free_node(&pod.cluster, &role));
            if node.is_some() {
                self.pod(PodFact { node, ..pod });
            }
        }
        for (share, role) in self.missing(key).into_iter().take(most) {
            if share.slots.is_empty() {
                let node = self.free_node(&share.cluster, &role);
                self.start_pod(key, &share.cluster, &role, node);
            }
        }
    }

    /// A bound pod has ended.
    pub fn pod_ends(&mut self, key: &JobKey, gone: bool) {
        let runs =
            |pod: &&PodFact| pod.job.as_ref() == Some(key) && pod.node.is_some() && !pod.ended();
        let Some(pod) = self.pods.values().find(runs).cloned() else {
            return;
        };
        if gone {
            self.pods.remove(&(pod.cluster.clone(), pod.uid.clone()));
            self.apply(engine::Event::PodGone(pod.cluster, pod.uid));
        } else {
            self.pod(PodFact {
                phase: PodPhase::Ended,
                ..pod
            });
        }
    }

    fn start_pod(
        &mut self,
        key: &JobKey,
        cluster: &ClusterName,
        role: &Role,
        node: Option<NodeName>,
    ) {
        self.serial += 1;
        self.pod(PodFact {
            cluster: cluster.clone(),
            uid: Uid::from(format!("pod-{}", self.serial).as_str()),
            node,
            request: role.request.clone(),
            job: Some(key.clone()),
            phase: PodPhase::Running,
            symptom: None,
            grace_s: 0,
        });
    }

    /// The missing pods of an admitted job that has none yet, with their parts.
    fn missing(&self, key: &JobKey) -> Vec<(Share, Role)> {
        let view = self.engine.job(key);
        let over = |state| matches!(state, JobState::Finished | JobState::Ending);
        let view = view.filter(|view| !over(view.state));
        let (Some(admission), Some(fact)) = (
            view.and_then(|view| view.admission.cloned()),
            self.jobs.get(key),
        ) else {
            return Vec::new();
        };
        let mut missing = Vec::new();
        for share in admission.shares {
            if !self.clusters.contains_key(&share.cluster) {
                continue;
            }
            let of_job =
                |pod: &&PodFact| pod.job.as_ref() == Some(key) && pod.cluster == share.cluster;
            let there = self.pods.values().filter(of_job);
            let mut there: Vec<&Resources> = there.map(|pod| &pod.request).collect();
            let roles = share.pods.iter().flat_map(|pods| {
                let role = fact.demand.roles.iter().find(|role| role.name == pods.role);
                role.into_iter()
                    .flat_map(move |role| (0..pods.count).map(move |_| role.clone()))
            });
            for role in roles {
                match there.iter().position(|request| **request == role.request) {
                    Some(known) => drop(there.swap_remove(known)),
                    None => missing.push((share.clone(), role)),
                }
            }
        }
        missing
    }

    fn free_node(&self, cluster: &ClusterName, role: &Role) -> Option<NodeName> {
        let here = self.nodes.values().filter(|node| node.cluster == *cluster);
        let mut fits = here.filter(|node| {
            let on = |pod: &&PodFact| {
                pod.cluster == *cluster && pod.node.as_ref() == Some(&node.name) && !pod.ended()
            };
            let used: Vec<&Resources> = self
                .pods
                .values()
                .filter(on)
                .map(|pod| &pod.request)
                .collect();
            let has_room = role.request.iter().all(|(resource, asks)| {
                let used: i64 = used.iter().map(|used| used.amount_of(resource).0).sum();
                used + asks.0 <= node.allocatable.amount_of(resource).0
            });
            node.usable && has_room && super::checks::may_run_on(role, node)
        });
        fits.next().map(|node| node.name.clone())
    }
}
