//! What happens to clusters and nodes, and who else uses them.

use super::CLUSTERS;
use super::model::Model;
use crate::world::res;
use engine::facts::PodFact;
use engine::{ClusterName, Event, NodeName, Uid};

impl Model {
    pub fn node_gone(&mut self, cluster: usize, node: usize) {
        let at = (
            ClusterName::from(CLUSTERS[cluster]),
            NodeName::from(format!("n{node}").as_str()),
        );
        self.nodes.remove(&at);
        self.apply(Event::NodeGone(at.0, at.1));
    }

    pub fn usable(&mut self, cluster: usize, usable: bool) {
        let mut fact = self.clusters[&ClusterName::from(CLUSTERS[cluster])].clone();
        fact.usable = usable;
        self.cluster(fact);
    }

    pub fn foreign(&mut self, cluster: usize, node: usize, gpus: u32) {
        self.pod(PodFact {
            cluster: ClusterName::from(CLUSTERS[cluster]),
            uid: Uid::from(format!("foreign-{node}").as_str()),
            node: Some(NodeName::from(format!("n{node}").as_str())),
            request: res(&format!("gpu {gpus}, pods 1")),
            job: None,
            ended: false,
        });
    }

    pub fn foreign_gone(&mut self, cluster: usize, node: usize) {
        let cluster = ClusterName::from(CLUSTERS[cluster]);
        let uid = Uid::from(format!("foreign-{node}").as_str());
        self.pods.remove(&(cluster.clone(), uid.clone()));
        self.apply(Event::PodGone(cluster, uid));
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
