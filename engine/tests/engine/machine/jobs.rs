//! Events of jobs from users, the controller and members.

use super::model::Model;
use super::pools::Phase;
use super::step::{Kind, Submitted};
use crate::world::{gang, pods, role};
use engine::facts::{Demand, Held, Hold, JobFact, PodFact, PodPhase, Share, Split, Topology};
use engine::{ClusterName, Event, JobKey, JobState, NodeName, Progress, Reason, Resources, Uid};

pub fn demand(count: u32, gpus: u32, kind: Kind) -> Demand {
    let request = if kind == Kind::WithoutDevices || gpus == 0 {
        "cpu 2".to_owned()
    } else {
        format!("cpu 1, gpu {gpus}")
    };
    let mut demand = pods(count, &request);
    match kind {
        Kind::Plain | Kind::WithoutDevices => {}
        Kind::Held => demand.held = Held::ByReplicas,
        Kind::Divisible => {
            demand.natively_divisible = true;
            demand.held = Held::ByReplicas;
        }
        Kind::Elastic => {
            demand.held = Held::ByReplicas;
            demand.elastic = true;
            demand.min_available = 1;
            demand.roles[0].min = 1;
        }
        Kind::Stretchable => {
            demand.held = Held::ByOverride;
            demand.split = Split::Allowed;
            demand.elastic = true;
            demand.min_available = 1;
            demand.roles[0].min = 0;
        }
        Kind::Split => {
            let worker = role("worker", count, &request);
            demand = gang(vec![worker, role("master", 1, "cpu 1")]);
            demand.split = Split::Allowed;
        }
        Kind::Close => {
            demand.topology = Some(Topology {
                hard: true,
                highest_tier: 1,
            });
        }
    }
    demand
}

/// The kind of a demand.
fn kind(demand: &Demand) -> Kind {
    match demand {
        Demand {
            held: Held::ByOverride,
            ..
        } => Kind::Stretchable,
        Demand { elastic: true, .. } => Kind::Elastic,
        Demand {
            natively_divisible: true,
            ..
        } => Kind::Divisible,
        Demand {
            held: Held::ByReplicas,
            ..
        } => Kind::Held,
        Demand {
            split: Split::Allowed | Split::Preferred,
            ..
        } => Kind::Split,
        Demand {
            topology: Some(_), ..
        } => Kind::Close,
        _ => Kind::Plain,
    }
}

/// An edit of numbers does not change where it may run.
fn keep_places(demand: &mut Demand, before: &Demand) {
    demand.placement.clone_from(&before.placement);
    if before.split == Split::Preferred {
        demand.split = Split::Preferred;
    }
    for role in &mut demand.roles {
        role.node_terms.clone_from(&before.roles[0].node_terms);
        role.tolerations.clone_from(&before.roles[0].tolerations);
    }
}

impl Model {
    pub fn submit(&mut self, told: Submitted) {
        self.submit_as(told, demand(told.count, told.gpus, told.kind));
    }

    pub fn submit_as(&mut self, told: Submitted, demand: Demand) {
        if !self.jobs.contains_key(&self.named(told.job)) {
            let fact = self.fact_of(told, demand);
            self.tell(fact);
        }
    }

    pub fn fact_of(&mut self, told: Submitted, demand: Demand) -> JobFact {
        self.serial += 1;
        let classes = [None, Some("p0"), Some("p1"), Some("p2")];
        JobFact {
            uid: Uid::from(format!("u{}", self.serial).as_str()),
            key: self.named(told.job),
            queue: self.leaf(told.queue),
            priority_class: classes[usize::from(told.class)].map(str::to_owned),
            queued_at: self.now,
            demand,
            hold: None,
            expected_duration_ms: told.lasts.map(|seconds| i64::from(seconds) * 1000),
            user: format!("user{}", told.user),
            preemptible: told.preemptible,
            checkpointed_at: None,
            images: Vec::new(),
        }
    }

    pub fn recreate(&mut self, key: &JobKey) {
        let Some(mut fact) = self.jobs.get(key).cloned() else {
            return;
        };
        self.serial += 1;
        fact.uid = Uid::from(format!("u{}", self.serial).as_str());
        fact.queued_at = self.now;
        if self.state(key) == Some(JobState::Finished) {
            self.live.remove(key);
            self.runs_since.remove(key);
            self.records.remove(key);
        }
        self.tell(fact);
    }

    pub fn grow(&mut self, key: &JobKey, count: u32, gpus: u32) {
        if let Some(mut fact) = self.jobs.get(key).cloned() {
            let before = fact.demand.clone();
            fact.demand = demand(count, gpus, kind(&before));
            keep_places(&mut fact.demand, &before);
            self.edited.insert(key.clone());
            self.tell(fact);
        }
    }

    pub fn hold(&mut self, key: &JobKey, held: bool) {
        if let Some(mut fact) = self.jobs.get(key).cloned() {
            fact.hold = held.then(|| Hold {
                reason: Reason::Suspended,
                message: "by its owner".to_owned(),
            });
            self.tell(fact);
        }
    }

    pub fn checkpoint(&mut self, key: &JobKey) {
        if let Some(mut fact) = self.jobs.get(key).cloned() {
            fact.checkpointed_at = Some(self.now);
            self.tell(fact);
        }
    }

    pub fn gone(&mut self, key: &JobKey) {
        self.over(key);
        self.records.remove(key);
        self.jobs.remove(key);
        self.promised.remove(key);
        self.failed.remove(key);
        self.apply(Event::JobGone(key.clone()));
    }

    pub fn finish(&mut self, key: &JobKey) {
        self.progress(key, Progress::Finished);
        if self.state(key) == Some(JobState::Finished) {
            self.record_phase(key, Phase::Ended);
            self.drop_pods(key);
        }
    }

    pub fn revive(&mut self, key: &JobKey) {
        if self.state(key) == Some(JobState::Finished) {
            self.progress(key, Progress::Running);
        }
    }

    pub fn refuse(&mut self, key: &JobKey, avoid: &str) {
        let Some(attempt) = self.engine.job(key).map(|job| job.attempts) else {
            return;
        };
        if !matches!(self.state(key), Some(JobState::Assumed)) {
            return;
        }
        self.record_taken(key, Reason::PlanRefused);
        self.over(key);
        self.failed.insert(key.clone());
        self.apply(Event::JobRefused {
            key: key.clone(),
            attempt,
            reason: Reason::PlanRefused,
            message: "no".to_owned(),
            avoid: Some(ClusterName::from(avoid)),
            at: self.clock(),
        });
    }

    pub fn end(&mut self, key: &JobKey, avoid: &str) {
        self.record_taken(key, Reason::MemberRefused);
        self.failed.insert(key.clone());
        self.apply(Event::JobEnding {
            key: key.clone(),
            reason: Reason::MemberRefused,
            message: "no".to_owned(),
            avoid: Some(ClusterName::from(avoid)),
            at: self.clock(),
        });
    }

    pub fn works_gone(&mut self, key: &JobKey) {
        if self.state(key) == Some(JobState::Ending) {
            self.over(key);
        }
        self.apply(Event::JobWorksGone {
            key: key.clone(),
            at: self.clock(),
        });
    }

    pub fn all_gone(&mut self) {
        let ending = |key: &JobKey| self.state(key) == Some(JobState::Ending);
        let ending: Vec<JobKey> = self
            .live
            .iter()
            .filter(|key| ending(key))
            .cloned()
            .collect();
        ending.iter().for_each(|key| self.works_gone(key));
    }

    /// Members stop the pods that an admitted job has beyond its admission, and report it.
    pub fn shed(&mut self, key: &JobKey) {
        let Some(admission) = self.engine.job(key).and_then(|job| job.admission.cloned()) else {
            return;
        };
        if matches!(self.state(key), Some(JobState::Finished | JobState::Ending)) {
            return;
        }
        let clusters: Vec<ClusterName> = self.clusters.keys().cloned().collect();
        for cluster in clusters {
            let share = admission
                .shares
                .iter()
                .find(|share| share.cluster == cluster);
            let admitted = share.map_or(0, engine::facts::Share::replicas);
            let there = self
                .pods
                .values()
                .filter(|pod| pod.job.as_ref() == Some(key) && pod.cluster == cluster);
            let beyond: Vec<Uid> = there
                .skip(admitted as usize)
                .map(|pod| pod.uid.clone())
                .collect();
            for uid in beyond {
                self.pods.remove(&(cluster.clone(), uid.clone()));
                self.apply(Event::PodGone(cluster.clone(), uid));
            }
            self.apply(Event::JobResized {
                key: key.clone(),
                attempt: admission.attempt,
                cluster,
                pods: admitted,
                at: self.clock(),
            });
        }
        // A removed cluster confirms nothing.
        if self.clusters.len() == self.layout.clusters.len() {
            self.shrinking.remove(key);
        }
    }

    /// Binds some pods of an admitted job, as planned or on the first node of the cluster.
    pub fn bind(&mut self, key: &JobKey, most: usize, elsewhere: bool) {
        let Some(admission) = self.engine.job(key).and_then(|job| job.admission.cloned()) else {
            return;
        };
        if matches!(self.state(key), Some(JobState::Finished | JobState::Ending)) {
            return;
        }
        let watched = |share: &&Share| self.clusters.contains_key(&share.cluster);
        let shares: Vec<Share> = admission.shares.iter().filter(watched).cloned().collect();
        let Some(demand) = self.jobs.get(key).map(|fact| fact.demand.clone()) else {
            return;
        };
        for share in &shares {
            let of_job =
                |pod: &&PodFact| pod.job.as_ref() == Some(key) && pod.cluster == share.cluster;
            let there = self.pods.values().filter(of_job);
            let mut there: Vec<Resources> = there.map(|pod| pod.request.clone()).collect();
            let planned = share.slots.iter().flat_map(|slot| {
                let role = demand.roles.iter().find(|known| known.name == slot.role);
                let pods = role.map(|role| (0..slot.count).map(move |_| (slot.node.clone(), role)));
                pods.into_iter().flatten()
            });
            let missing = planned.filter(|(_, role)| {
                let known = there.iter().position(|request| *request == role.request);
                known.map(|known| there.swap_remove(known)).is_none()
            });
            for (node, role) in missing.take(most) {
                self.serial += 1;
                self.pod(PodFact {
                    cluster: share.cluster.clone(),
                    uid: Uid::from(format!("pod-{}", self.serial).as_str()),
                    node: Some(if elsewhere {
                        NodeName::from("n0")
                    } else {
                        node
                    }),
                    request: role.request.clone(),
                    job: Some(key.clone()),
                    phase: PodPhase::Running,
                    symptom: None,
                    grace_s: 0,
                });
            }
        }
    }
}
