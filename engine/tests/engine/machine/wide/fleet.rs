//! Clusters that are added and removed, taints and labels.

use super::jobs::{LABEL, TAINT};
use super::steps::Taints;
use crate::machine::model::Model;
use crate::world::cluster;
use engine::facts::NodeFact;
use engine::matching::{LEAVING, Taint, TaintEffect};
use engine::{ClusterName, Event};

fn taint(effect: TaintEffect) -> Taint {
    Taint {
        key: TAINT.to_owned(),
        value: String::new(),
        effect,
    }
}

impl Model {
    /// A cluster is removed, with its nodes and pods, and reports nothing any more.
    pub fn cluster_gone(&mut self, index: usize) {
        let name = ClusterName::from(self.cluster_at(index));
        if self.clusters.remove(&name).is_some() {
            self.nodes.retain(|(cluster, _), _| *cluster != name);
            self.pods.retain(|(cluster, _), _| *cluster != name);
            self.apply(Event::ClusterGone(name));
        }
    }

    /// A removed cluster joins again, with its first nodes.
    pub fn cluster_back(&mut self, index: usize) {
        if self.is_watched(index) {
            return;
        }
        let name = self.cluster_at(index);
        self.cluster(cluster(name));
        let nodes = self.layout.nodes.get(index % self.layout.clusters.len());
        for (node, gpus) in nodes.cloned().unwrap_or_default().into_iter().enumerate() {
            self.node(name, node, gpus, true);
        }
    }

    pub fn cluster_taint(&mut self, index: usize, told: Option<Taints>) {
        let name = ClusterName::from(self.cluster_at(index));
        let Some(mut fact) = self.clusters.get(&name).cloned() else {
            return;
        };
        fact.taints = match told {
            None => Vec::new(),
            Some(Taints::NoSchedule) => vec![taint(TaintEffect::NoSchedule)],
            Some(Taints::NoExecute) => vec![taint(TaintEffect::NoExecute)],
            Some(Taints::Leaving) => vec![Taint {
                key: LEAVING.to_owned(),
                ..taint(TaintEffect::NoExecute)
            }],
        };
        self.cluster(fact);
    }

    pub fn node_taint(&mut self, cluster: usize, node: usize, yes: bool) {
        self.change_node(cluster, node, |fact| {
            let taints = yes.then(|| taint(TaintEffect::NoSchedule));
            fact.taints = taints.into_iter().collect();
        });
    }

    pub fn node_label(&mut self, cluster: usize, node: usize, label: u8) {
        self.change_node(cluster, node, |fact| {
            fact.labels.insert(LABEL.to_owned(), format!("k{label}"));
        });
    }

    fn change_node(&mut self, cluster: usize, node: usize, change: impl Fn(&mut NodeFact)) {
        let cluster = ClusterName::from(self.cluster_at(cluster));
        let at = (cluster, self.node_name(node));
        if let Some(mut fact) = self.nodes.get(&at).cloned() {
            change(&mut fact);
            self.nodes.insert(at, fact.clone());
            self.apply(Event::NodeUpserted(fact));
        }
    }
}
