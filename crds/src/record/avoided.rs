//! The nodes that a job avoids because its own pods failed there, as its admission record has them.

use facts::{ClusterName, Demand, NodeName};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// A node that the next attempts of a job are not placed on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AvoidedByJob {
    /// Its cluster.
    pub cluster: ClusterName,
    /// The node.
    pub node: NodeName,
    /// Since when.
    pub since: Timestamp,
    /// Until when.
    pub until: Timestamp,
}

impl AvoidedByJob {
    /// Returns true if it is over at `now`, or a person has cleared the node at `cleared` (the annotation
    /// [`crate::names::CLEARED_NODES_ANNOTATION`] of its Cluster).
    #[must_use]
    pub fn is_over(&self, now: Timestamp, cleared: Option<Timestamp>) -> bool {
        self.until <= now || cleared.is_some_and(|cleared| self.since <= cleared)
    }

    /// Adds `nodes` to those that a job avoids. A node that it avoids already is avoided from now on; the oldest
    /// beyond `most` go.
    pub fn add(all: &mut Vec<Self>, nodes: impl IntoIterator<Item = Self>, most: usize) {
        for node in nodes {
            all.retain(|known| (&known.cluster, &known.node) != (&node.cluster, &node.node));
            all.push(node);
        }
        let excess = all.len().saturating_sub(most);
        all.drain(..excess);
    }

    /// Makes `demand`, that of the job, keep off all of them.
    pub fn keep_off(all: &[Self], demand: &mut Demand) {
        for role in &mut demand.roles {
            let nodes = all.iter().map(|avoided| (&avoided.cluster, &avoided.node));
            facts::matching::keep_off(&mut role.node_terms, nodes);
        }
    }

    /// Returns the names of those in `cluster`.
    #[must_use]
    pub fn in_cluster<'a>(all: &'a [Self], cluster: &ClusterName) -> Vec<&'a str> {
        let in_cluster = all.iter().filter(|avoided| avoided.cluster == *cluster);
        in_cluster.map(|avoided| avoided.node.as_str()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap_or_default()
    }

    fn avoided(node: &str, since: i64) -> AvoidedByJob {
        AvoidedByJob {
            cluster: ClusterName::new("m1"),
            node: NodeName::new(node),
            since: at(since),
            until: at(since + 60),
        }
    }

    #[test]
    fn the_newest_stay_and_a_node_counts_once() {
        let mut all = vec![avoided("n1", 1), avoided("n2", 2)];
        AvoidedByJob::add(&mut all, [avoided("n1", 3), avoided("n3", 3)], 2);
        assert_eq!(all, [avoided("n1", 3), avoided("n3", 3)]);
        assert_eq!(
            AvoidedByJob::in_cluster(&all, &ClusterName::new("m1")),
            ["n1", "n3"]
        );
        assert!(AvoidedByJob::in_cluster(&all, &ClusterName::new("m2")).is_empty());
    }

    #[test]
    fn it_is_over_with_its_time_or_when_a_person_clears_the_node() {
        let node = avoided("n1", 100);
        for (now, cleared, over) in [
            (159, None, false),
            (160, None, true),
            (101, Some(99), false),
            (101, Some(100), true),
        ] {
            assert_eq!(
                node.is_over(at(now), cleared.map(at)),
                over,
                "{now} {cleared:?}"
            );
        }
    }
}
