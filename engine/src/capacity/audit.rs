//! Recomputes what the capacity store derives from its facts. For tests: it costs as much as a rebuild.

use super::Capacity;
use crate::amounts::totals::ResourceTotals;
use facts::{ClusterName, NodeName};
use std::collections::BTreeMap;

impl Capacity {
    /// Returns what is derived and does not follow from the facts, in words; nothing if all is right.
    pub(crate) fn audit(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        self.audit_free(&mut wrong);
        self.audit_clusters(&mut wrong);
        self.images.audit(&mut wrong);
        if !self.index.is_sound(&self.clusters) {
            wrong.push("index: its counts are not those of the nodes".to_owned());
        }
        wrong
    }

    /// What a node has free equals its allocatable amounts less its pods and assumed pods.
    fn audit_free(&self, wrong: &mut Vec<String>) {
        let used = self.used();
        for (cluster, nodes) in &self.clusters {
            for (name, node) in nodes.nodes() {
                let mut free = ResourceTotals::from(&node.fact.allocatable);
                if let Some(used) = used.get(&(cluster, name)) {
                    free.add_totals(used, -1);
                }
                if free != self.free_on(node) {
                    let has = self.free_on(node);
                    wrong.push(format!(
                        "node {cluster}/{name}: has free {has:?}, from facts {free:?}"
                    ));
                }
            }
        }
    }

    /// Returns what pods and assumed pods use of each node.
    fn used(&self) -> BTreeMap<(&ClusterName, &NodeName), ResourceTotals> {
        let mut used: BTreeMap<_, ResourceTotals> = BTreeMap::new();
        for (cluster, nodes) in &self.clusters {
            for pod in nodes.pods().values().filter(|pod| !pod.ended()) {
                if let Some(node) = &pod.node {
                    let on = used.entry((cluster, node)).or_default();
                    on.add(&pod.request, 1);
                }
            }
        }
        for assumption in self.assumed().values() {
            for pods in &assumption.assumed {
                if let Some(node) = &pods.node {
                    let request = assumption.request(pods);
                    let on = used.entry((&pods.cluster, node)).or_default();
                    on.add(request, i64::from(pods.count));
                }
            }
        }
        used
    }

    fn audit_clusters(&self, wrong: &mut Vec<String>) {
        for (name, cluster) in &self.clusters {
            let (pools, domains) = cluster.rebuilt();
            if *cluster.pools() != pools {
                wrong.push(format!(
                    "cluster {name}: its pools do not hold its nodes as they are"
                ));
            }
            if *cluster.domains() != domains {
                wrong.push(format!(
                    "cluster {name}: its domains do not hold its nodes as they are"
                ));
            }
            if cluster.overcommitted().is_empty() == self.overcommitted.contains(name) {
                wrong.push(format!(
                    "cluster {name}: whether assumed pods are overcommitted is stale"
                ));
            }
        }
    }
}
