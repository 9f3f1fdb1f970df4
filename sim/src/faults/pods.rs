//! The pods of running jobs, on the nodes of their plans.

use crate::scenario::{Fleet, SimJob};
use engine::facts::{Admission, PodFact, PodPhase};
use engine::{ClusterName, NodeName, Uid};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// A pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SimulatedPod {
    /// Its number, in order of start.
    pub(super) number: u64,
    /// The node's index in the fleet.
    pub(super) node: usize,
    /// The role's index in the job's demand.
    pub(super) role: usize,
    /// True if a fault of its node has stopped it.
    pub(super) failed: bool,
    /// True if it terminates, since its job was shrunk.
    pub(super) terminating: bool,
}

/// A number of pods, by role and node.
type PodPlan = BTreeMap<(usize, usize), u32>;

/// The pods of all jobs.
#[derive(Debug)]
pub(super) struct SimulatedPods {
    by_job: Vec<Vec<SimulatedPod>>,
    /// What the last admission of each job planned.
    plans: Vec<PodPlan>,
    /// For each node, the jobs of its pods, by the pods' numbers.
    on: Vec<BTreeMap<u64, usize>>,
    node_index: BTreeMap<(ClusterName, NodeName), usize>,
    clusters: Vec<ClusterName>,
    next: u64,
}

impl SimulatedPods {
    pub(super) fn new(fleet: &Fleet, jobs: usize) -> Self {
        let nodes = fleet.nodes.iter().zip(0..);
        Self {
            by_job: vec![Vec::new(); jobs],
            plans: vec![PodPlan::new(); jobs],
            on: vec![BTreeMap::new(); fleet.nodes.len()],
            node_index: nodes
                .map(|(node, index)| ((node.cluster.clone(), node.name.clone()), index))
                .collect(),
            clusters: fleet
                .nodes
                .iter()
                .map(|node| node.cluster.clone())
                .collect(),
            next: 0,
        }
    }

    /// Brings the pods of a job in step with its admission, and returns those that start: on the nodes
    /// that the plan has in addition to the last one. Those beyond it terminate.
    pub(super) fn follow(
        &mut self,
        job: usize,
        sim: &SimJob,
        admission: &Admission,
    ) -> Vec<SimulatedPod> {
        let planned = self.planned(sim, admission);
        let before = std::mem::replace(&mut self.plans[job], planned.clone());
        let mut started = Vec::new();
        for (place, count) in planned {
            let known = before.get(&place).copied().unwrap_or(0);
            let (role, node) = place;
            for _ in known..count {
                started.push(self.start(job, role, node));
            }
        }
        self.ends_surplus(job, sim, admission);
        started
    }

    /// The number of pods that an admission plans, by role and node.
    fn planned(&self, sim: &SimJob, admission: &Admission) -> PodPlan {
        let roles = &sim.fact.demand.roles;
        let mut planned = PodPlan::new();
        for share in &admission.shares {
            for slot in &share.slots {
                let role = roles.iter().position(|role| role.name == slot.role);
                let place = (share.cluster.clone(), slot.node.clone());
                if let Some(place) = role.zip(self.node_index.get(&place).copied()) {
                    *planned.entry(place).or_default() += slot.count;
                }
            }
        }
        planned
    }

    /// Ends pods of each role and cluster beyond an admission: those that failed, then the newest.
    fn ends_surplus(&mut self, job: usize, sim: &SimJob, admission: &Admission) {
        let pods = self.by_job[job].iter();
        let clusters: BTreeSet<ClusterName> =
            pods.map(|pod| self.clusters[pod.node].clone()).collect();
        for (role, named) in sim.fact.demand.roles.iter().enumerate() {
            for cluster in &clusters {
                let mut shares = admission.shares.iter();
                let share = shares.find(|share| share.cluster == *cluster);
                let count = share.map_or(0, |share| share.pods_of(&named.name)) as usize;
                let mut here = self.pods_of_role(job, role, cluster);
                here.sort_by_key(|pod| (!pod.failed, Reverse(pod.number)));
                here.truncate(here.len().saturating_sub(count));
                for pod in here {
                    self.change(job, pod.number, |pod| pod.terminating = true);
                }
            }
        }
    }

    fn pods_of_role(&self, job: usize, role: usize, cluster: &ClusterName) -> Vec<SimulatedPod> {
        let pods = self.by_job[job].iter().copied();
        pods.filter(|pod| {
            pod.role == role && !pod.terminating && self.clusters[pod.node] == *cluster
        })
        .collect()
    }

    fn start(&mut self, job: usize, role: usize, node: usize) -> SimulatedPod {
        let pod = SimulatedPod {
            number: self.next,
            node,
            role,
            failed: false,
            terminating: false,
        };
        self.next += 1;
        self.by_job[job].push(pod);
        self.on[node].insert(pod.number, job);
        pod
    }

    /// Starts a pod of a job in the place of another one, which is removed.
    pub(super) fn replace(&mut self, job: usize, lost: &SimulatedPod, node: usize) -> SimulatedPod {
        // The plan is of where pods run: the next one is compared with it.
        let mut plan = std::mem::take(&mut self.plans[job]);
        if let Some(count) = plan.get_mut(&(lost.role, lost.node)) {
            *count = count.saturating_sub(1);
        }
        *plan.entry((lost.role, node)).or_default() += 1;
        self.remove(job, |pod| pod.number == lost.number);
        self.plans[job] = plan;
        self.start(job, lost.role, node)
    }

    /// The index of a node.
    pub(super) fn index_of(&self, cluster: &ClusterName, node: &NodeName) -> Option<usize> {
        let at = (cluster.clone(), node.clone());
        self.node_index.get(&at).copied()
    }

    /// Changes one pod of a job.
    pub(super) fn change(&mut self, job: usize, number: u64, change: impl Fn(&mut SimulatedPod)) {
        let mut pods = self.by_job[job].iter_mut();
        if let Some(pod) = pods.find(|pod| pod.number == number) {
            change(pod);
        }
    }

    /// The pods of a job.
    pub(super) fn of(&self, job: usize) -> &[SimulatedPod] {
        &self.by_job[job]
    }

    /// The pods on a node, each with its job, in order of start.
    pub(super) fn on(&self, node: usize) -> Vec<(usize, SimulatedPod)> {
        let numbers = self.on[node].iter();
        let find = |(number, job): (&u64, &usize)| {
            let mut pods = self.by_job[*job].iter();
            Some((*job, *pods.find(|pod| pod.number == *number)?))
        };
        numbers.filter_map(find).collect()
    }

    /// Removes the pods of a job for which `which` holds, and returns them.
    pub(super) fn remove(
        &mut self,
        job: usize,
        which: impl Fn(&SimulatedPod) -> bool,
    ) -> Vec<SimulatedPod> {
        let removed: Vec<SimulatedPod> =
            self.by_job[job].extract_if(.., |pod| which(pod)).collect();
        for pod in &removed {
            self.on[pod.node].remove(&pod.number);
        }
        if self.by_job[job].is_empty() {
            self.plans[job].clear();
        }
        removed
    }

    /// The number of pods of a job that work.
    pub(super) fn working(&self, job: usize) -> u32 {
        let pods = self.by_job[job].iter();
        let working = pods.filter(|pod| !pod.failed && !pod.terminating).count();
        u32::try_from(working).unwrap_or(u32::MAX)
    }

    /// Returns true if a part of a job has fewer pods than its share of the gang's minimum, without those that are
    /// `lost`.
    pub(super) fn below_minimum(
        &self,
        job: usize,
        sim: &SimJob,
        lost: impl Fn(&SimulatedPod) -> bool,
    ) -> bool {
        let mut parts = BTreeMap::<&ClusterName, (u32, u32)>::new();
        for pod in self.by_job[job].iter().filter(|pod| !pod.terminating) {
            let (all, working) = parts.entry(&self.clusters[pod.node]).or_default();
            *all += 1;
            *working += u32::from(!lost(pod));
        }
        let all = parts.values().map(|(part, _)| u64::from(*part)).sum();
        let demand = &sim.fact.demand;
        parts
            .values()
            .any(|(part, working)| *working < demand.min_of_part(*part, all))
    }

    /// The UID of a pod.
    pub(super) fn uid(pod: &SimulatedPod) -> Uid {
        Uid::from(format!("pod-{}", pod.number).as_str())
    }

    /// The fact of a pod.
    pub(super) fn fact(
        pod: &SimulatedPod,
        sim: &SimJob,
        fleet: &Fleet,
        phase: PodPhase,
    ) -> PodFact {
        let node = &fleet.nodes[pod.node];
        PodFact {
            cluster: node.cluster.clone(),
            uid: Self::uid(pod),
            node: Some(node.name.clone()),
            request: sim.fact.demand.roles[pod.role].request.clone(),
            job: Some(sim.fact.key.clone()),
            phase,
            symptom: None,
            grace_s: 0,
        }
    }

    /// The devices of a pod, by this measure.
    pub(super) fn devices(
        pod: &SimulatedPod,
        sim: &SimJob,
        measure: crate::record::Measure,
    ) -> i64 {
        let request = &sim.fact.demand.roles[pod.role].request;
        measure.of_resources(request).unwrap_or(0)
    }
}
