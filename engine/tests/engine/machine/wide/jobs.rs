//! Jobs that select nodes and clusters, and jobs that ran before.

use super::steps::Dressed;
use crate::machine::jobs::demand;
use crate::machine::model::Model;
use crate::machine::step::Submitted;
use crate::world::res;
use engine::facts::{Admission, Demand, RolePods, Share, Split};
use engine::matching::{ClusterRule, NodeTerm, Operator, Requirement, Toleration};
use engine::{
    Attempt, ClusterName, Event, JobKey, JobState, PoolClass, Progress, ResourceName, Resources,
};
use std::collections::{BTreeMap, BTreeSet};

/// The label by which jobs select nodes.
pub const LABEL: &str = "kind";
/// The taint of nodes and clusters.
pub const TAINT: &str = "dedicated";

fn toleration() -> Toleration {
    Toleration {
        key: TAINT.to_owned(),
        value: None,
        effect: None,
    }
}

fn dressed(told: &Dressed, clusters: BTreeSet<ClusterName>) -> Demand {
    let Submitted {
        count, gpus, kind, ..
    } = told.told;
    let mut demand = demand(count, gpus, kind);
    if told.prefers {
        demand.split = Split::Preferred;
    }
    let cpu = ResourceName::new("cpu");
    let cpus = res(&format!("cpu {}", told.cpus));
    for role in &mut demand.roles {
        role.request.set(cpu.clone(), cpus.amount_of(&cpu));
        if let Some(label) = told.node {
            let requirement = Requirement {
                key: LABEL.to_owned(),
                operator: Operator::In,
                values: vec![format!("k{label}")],
            };
            role.node_terms = vec![NodeTerm {
                labels: vec![requirement],
                fields: Vec::new(),
            }];
        }
        if told.tolerates_node {
            role.tolerations = vec![toleration()];
        }
    }
    if told.tolerates_cluster {
        demand.placement.tolerations = vec![toleration()];
    }
    demand.placement.max_clusters = told.max_clusters;
    if !clusters.is_empty() {
        demand.placement.groups = vec![ClusterRule {
            exclude: if told.excluded {
                clusters.clone()
            } else {
                BTreeSet::new()
            },
            names: (!told.excluded).then_some(clusters),
            ..ClusterRule::default()
        }];
    }
    demand
}

impl Model {
    pub fn submit_dressed(&mut self, told: &Dressed) {
        let clusters = told.clusters.iter();
        let clusters = clusters.map(|index| ClusterName::from(self.cluster_at(*index)));
        let demand = dressed(told, clusters.collect());
        self.submit_as(told.told, demand);
    }

    /// A job that runs in one cluster without an admission: it is charged as it is.
    pub fn adopt(&mut self, told: Submitted, cluster: usize) {
        let key = self.named(told.job);
        if self.jobs.contains_key(&key) || !self.is_watched(cluster) {
            return;
        }
        let fact = self.fact_of(told, demand(told.count, told.gpus, told.kind));
        let roles = &fact.demand.roles;
        let pods = roles.iter().map(|role| RolePods {
            role: role.name.clone(),
            count: role.count,
        });
        let share = Share {
            cluster: ClusterName::from(self.cluster_at(cluster)),
            pods: pods.collect(),
            charge: BTreeMap::from([(PoolClass::from("adopted"), total(&fact.demand))]),
            slots: Vec::new(),
        };
        let admission = Admission {
            uid: fact.uid.clone(),
            attempt: Attempt(1),
            queue: fact.queue.clone(),
            admitted_at: self.clock(),
            declared_ms: None,
            shares: vec![share],
        };
        self.jobs.insert(key.clone(), fact.clone());
        self.live.insert(key.clone());
        self.attempts.insert(admission.uid.clone(), 1);
        self.record(&key, &admission);
        self.granted.insert(key.clone(), total(&fact.demand));
        self.runs_since.insert(key.clone(), admission.admitted_at);
        self.admitted(&key, admission, Progress::Running);
        self.tell(fact);
        self.bind(&key, usize::MAX, false);
    }

    pub fn admitted(&mut self, key: &JobKey, admission: Admission, progress: Progress) {
        self.apply(Event::JobAdmitted {
            key: key.clone(),
            admission,
            progress,
        });
    }

    pub fn placed(&mut self, key: &JobKey) {
        if self.state(key) == Some(JobState::Assumed) {
            self.progress(key, Progress::Placed);
        }
    }
}

fn total(demand: &Demand) -> Resources {
    demand.total().unwrap()
}
