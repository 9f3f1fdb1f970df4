//! Nodes that end at a known time: spot capacity that is reclaimed, and maintenance. Which jobs may be placed
//! there, and when those that are there have to move.
//!
//! ```text
//! ends-at of nodes ─► taint of the engine's fact: how long the node is left (a power of two of minutes)
//!                     toleration of a job's fact: how long it declares to run
//!                 ─► shortly before the end: the jobs on the node are evicted
//! ```
//!
//! The taint is in the engine's facts only. The annotation on the node is the state. Pure.

use engine::facts::NodeFact;
use engine::matching::ends_taint;
use engine::{ClusterName, NodeName, Time};
use jiff::Timestamp;
use std::collections::BTreeMap;

/// Milliseconds before the end of a node after which no pod should run there: jobs on it are evicted, with the
/// grace period of their pods, and no job is placed there that would still run then.
pub(crate) const MOVE_BEFORE_MS: i64 = 5 * 60_000;

/// A node that ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct EndingNode {
    ends_at: Time,
    /// The taint's value that the engine knows.
    told: Option<i32>,
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct EndingNodes {
    nodes: BTreeMap<(ClusterName, NodeName), EndingNode>,
}

impl EndingNodes {
    /// Applies the end of a node. Returns true if that is the first node that ends.
    pub(crate) fn health(
        &mut self,
        cluster: &ClusterName,
        node: &NodeName,
        ends_at: Option<Timestamp>,
    ) -> bool {
        let key = (cluster.clone(), node.clone());
        let was_empty = self.nodes.is_empty();
        let ends_at = ends_at.map(|at| Time(at.as_millisecond()));
        match (ends_at, self.nodes.get_mut(&key)) {
            (Some(ends_at), Some(known)) => known.ends_at = ends_at,
            (Some(ends_at), None) => {
                self.nodes.insert(
                    key,
                    EndingNode {
                        ends_at,
                        told: None,
                    },
                );
            }
            // Its taint goes with the next comparison.
            (None, Some(known)) => known.ends_at = Time(i64::MIN),
            (None, None) => {}
        }
        was_empty && !self.nodes.is_empty()
    }

    /// Forgets a node or, without a name, those of a cluster.
    pub(crate) fn forget(&mut self, cluster: &ClusterName, node: Option<&NodeName>) {
        self.nodes
            .retain(|(of, name), _| of != cluster || node.is_some_and(|node| node != name));
    }

    /// Returns true if a node ends.
    pub(crate) fn is_any(&self) -> bool {
        !self.nodes.is_empty()
    }

    /// Adds the taint to the fact of a node that ends.
    pub(crate) fn mark(&mut self, fact: &mut NodeFact, now: Time) {
        let key = (fact.cluster.clone(), fact.name.clone());
        let Some(known) = self.nodes.get_mut(&key) else {
            return;
        };
        known.told = known.value(now);
        let taint = known.told.map(ends_taint);
        fact.taints
            .retain(|taint| taint.key != engine::matching::ENDS_AT);
        fact.taints.extend(taint);
    }

    /// Returns the nodes whose taint has to change at `now`. Those whose end is over are forgotten with it.
    pub(crate) fn changed(&mut self, now: Time) -> Vec<(ClusterName, NodeName)> {
        let differs = |known: &EndingNode| known.value(now) != known.told;
        let nodes = self.nodes.iter().filter(|(_, known)| differs(known));
        let changed = nodes.map(|(key, _)| key.clone()).collect();
        self.nodes
            .retain(|_, known| now < known.ends_at || known.told.is_some());
        changed
    }

    /// Returns the nodes of a cluster from which jobs have to move at `now`, and when each ends.
    pub(crate) fn to_leave(
        &self,
        cluster: &ClusterName,
        now: Time,
    ) -> impl Iterator<Item = (&NodeName, Time)> {
        let of_cluster = self.nodes.iter().filter(move |((of, _), _)| of == cluster);
        let soon = of_cluster.filter(move |(_, known)| known.is_soon(now));
        soon.map(|((_, node), known)| (node, known.ends_at))
    }

    /// Returns all nodes from which jobs have to move at `now`.
    pub(crate) fn all_to_leave(
        &self,
        now: Time,
    ) -> impl Iterator<Item = (&ClusterName, &NodeName)> {
        let soon = self
            .nodes
            .iter()
            .filter(move |(_, known)| known.is_soon(now));
        soon.map(|((cluster, node), _)| (cluster, node))
    }
}

impl EndingNode {
    /// Returns the value of its taint at `now`; `None` after the end time: a node that still exists then is not ending.
    fn value(&self, now: Time) -> Option<i32> {
        let left = self.ends_at.millis_since(now);
        (left > 0).then(|| engine::matching::left_for(left.saturating_sub(MOVE_BEFORE_MS)))
    }

    fn is_soon(&self, now: Time) -> bool {
        let left = self.ends_at.millis_since(now);
        (1..=MOVE_BEFORE_MS).contains(&left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::matching::{ENDS_AT, Taint};
    use engine::{PoolClass, Resources};

    const MINUTE: i64 = 60_000;

    fn fact() -> NodeFact {
        NodeFact {
            cluster: ClusterName::new("m1"),
            name: NodeName::new("n1"),
            class: PoolClass::from("h100"),
            labels: BTreeMap::new(),
            taints: Vec::new(),
            domains: Vec::new(),
            allocatable: Resources::new(),
            usable: true,
            lost: false,
        }
    }

    /// The value of the taint that the engine knows after a comparison at `minute`.
    fn told(nodes: &mut EndingNodes, fact: &mut NodeFact, minute: i64) -> Option<String> {
        let now = Time(minute * MINUTE);
        for (_, node) in nodes.changed(now) {
            assert_eq!(node, fact.name);
            nodes.mark(fact, now);
        }
        let mut taints = fact.taints.iter().filter(|taint| taint.key == ENDS_AT);
        let value = taints.next().map(|taint: &Taint| taint.value.clone());
        assert!(taints.next().is_none());
        value
    }

    #[test]
    fn the_time_that_is_left_shrinks_until_the_node_ends() {
        let mut nodes = EndingNodes::default();
        let (m1, n1) = (ClusterName::new("m1"), NodeName::new("n1"));
        let at = |minute: i64| Timestamp::from_millisecond(minute * MINUTE).ok();
        assert!(!nodes.health(&m1, &n1, None));
        assert!(nodes.health(&m1, &n1, at(105)), "the first one");
        assert!(!nodes.health(&m1, &n1, at(105)));
        let mut node = fact();
        let mut told = |nodes: &mut EndingNodes, minute| told(nodes, &mut node, minute);
        assert_eq!(told(&mut nodes, 0).as_deref(), Some("6"));
        assert_eq!(told(&mut nodes, 36).as_deref(), Some("6"), "64 minutes");
        assert_eq!(told(&mut nodes, 37).as_deref(), Some("5"));
        assert_eq!(nodes.to_leave(&m1, Time(99 * MINUTE)).count(), 0);
        assert_eq!(nodes.to_leave(&m1, Time(100 * MINUTE)).count(), 1);
        assert_eq!(told(&mut nodes, 100).as_deref(), Some("-1"));
        // It is still there after its end.
        assert_eq!(told(&mut nodes, 105), None);
        assert_eq!(nodes.to_leave(&m1, Time(105 * MINUTE)).count(), 0);
        assert_eq!(told(&mut nodes, 106), None);
        assert!(!nodes.is_any());
        // Somebody thinks better of it.
        nodes.health(&m1, &n1, at(300));
        assert!(told(&mut nodes, 107).is_some());
        nodes.health(&m1, &n1, None);
        assert_eq!(told(&mut nodes, 108), None);
        assert_eq!(told(&mut nodes, 109), None);
        assert!(!nodes.is_any());
    }
}
