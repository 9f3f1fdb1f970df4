//! Events of clusters and nodes, and foreign pods.

use super::model::Model;
use crate::world::res;
use engine::facts::{PodFact, PodPhase};
use engine::{ClusterName, Event, NodeName, Uid};

impl Model {
    pub fn node_gone(&mut self, cluster: usize, node: usize) {
        let at = (
            ClusterName::from(self.cluster_at(cluster)),
            self.node_name(node),
        );
        if self.clusters.contains_key(&at.0) {
            self.nodes.remove(&at);
            self.apply(Event::NodeGone(at.0, at.1));
        }
    }

    pub fn usable(&mut self, cluster: usize, usable: bool) {
        let cluster = ClusterName::from(self.cluster_at(cluster));
        let Some(mut fact) = self.clusters.get(&cluster).cloned() else {
            return;
        };
        fact.usable = usable;
        self.cluster(fact);
    }

    /// Returns true if the cluster is watched.
    pub fn is_watched(&self, cluster: usize) -> bool {
        let name = ClusterName::from(self.cluster_at(cluster));
        self.clusters.contains_key(&name)
    }

    pub fn node_name(&self, node: usize) -> NodeName {
        let node = node % self.layout.most_nodes;
        NodeName::from(format!("n{node}").as_str())
    }

    pub fn node_told(&mut self, cluster: usize, node: usize, gpus: u32, usable: bool) {
        if self.is_watched(cluster) {
            let (cluster, node) = (self.cluster_at(cluster), node % self.layout.most_nodes);
            self.node(cluster, node, gpus, usable);
        }
    }

    pub fn foreign(&mut self, cluster: usize, node: usize, gpus: u32) {
        if !self.is_watched(cluster) {
            return;
        }
        self.pod(PodFact {
            cluster: ClusterName::from(self.cluster_at(cluster)),
            uid: Uid::from(format!("foreign-{}", node % self.layout.most_nodes).as_str()),
            node: Some(self.node_name(node)),
            request: res(&format!("gpu {gpus}, pods 1")),
            job: None,
            phase: PodPhase::Running,
            symptom: None,
            grace_s: 0,
        });
    }

    pub fn foreign_gone(&mut self, cluster: usize, node: usize) {
        let cluster = ClusterName::from(self.cluster_at(cluster));
        let uid = Uid::from(format!("foreign-{}", node % self.layout.most_nodes).as_str());
        if self.clusters.contains_key(&cluster) {
            self.pods.remove(&(cluster.clone(), uid.clone()));
            self.apply(Event::PodGone(cluster, uid));
        }
    }

    pub fn all_foreign_gone(&mut self) {
        let foreign = |(_, uid): &&(ClusterName, Uid)| uid.to_string().starts_with("foreign");
        let all: Vec<_> = self.pods.keys().filter(foreign).cloned().collect();
        for (cluster, uid) in all {
            self.pods.remove(&(cluster.clone(), uid.clone()));
            self.apply(Event::PodGone(cluster, uid));
        }
    }
}
