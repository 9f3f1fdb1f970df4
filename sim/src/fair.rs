//! The fair share of each queue at one moment, with which the record compares actual use.
//!
//! The tree is divided level by level from the root. Each queue first gets what it requests within
//! its guarantee and deserved; the rest is divided by weight among queues that request more, until
//! their requests are met (water filling). Devices count as divisible, so even a perfect scheduler
//! differs from the fair share by up to one job.

use crate::scenario::ScenarioQueues;
use engine::Resources;
use std::collections::BTreeMap;

/// The tree of queues, with amounts in the simulation's measure.
#[derive(Debug, Clone)]
pub struct FairTree {
    nodes: Vec<FairShareNode>,
    roots: Vec<usize>,
}

#[derive(Debug, Clone)]
struct FairShareNode {
    weight: f64,
    deserved: f64,
    capability: f64,
    children: Vec<usize>,
}

impl FairTree {
    /// Builds the tree of `queues`. `measure` returns an amount of resources, or `None` if the list
    /// has no resource that counts.
    pub fn new(queues: &ScenarioQueues, measure: impl Fn(&Resources) -> Option<i64>) -> Self {
        let index: BTreeMap<_, _> = queues.queues.iter().map(|q| &q.name).zip(0..).collect();
        let weights: BTreeMap<_, _> = queues
            .policies
            .iter()
            .filter_map(|policy| Some((&policy.queue, policy.fair_share.weight?)))
            .collect();
        let mut roots = Vec::new();
        let mut children = vec![Vec::new(); queues.queues.len()];
        for (place, queue) in queues.queues.iter().enumerate() {
            let parent = queue.parent.as_ref().and_then(|name| index.get(name));
            match parent {
                Some(parent) => children[*parent].push(place),
                None => roots.push(place),
            }
        }
        let nodes = queues.queues.iter().zip(children).map(|(queue, children)| {
            let deserved = measure(&queue.deserved).unwrap_or(0);
            FairShareNode {
                weight: f64::from(*weights.get(&queue.name).unwrap_or(&queue.weight)),
                deserved: deserved.max(measure(&queue.guarantee).unwrap_or(0)) as f64,
                capability: measure(&queue.capability).map_or(f64::INFINITY, |cap| cap as f64),
                children,
            }
        });
        Self {
            nodes: nodes.collect(),
            roots,
        }
    }

    /// Returns the fair share of `total` for each queue, in the order of the queues, given each
    /// queue's own requests.
    #[must_use]
    pub fn shares(&self, total: i64, asked: &[i64]) -> Vec<f64> {
        let mut wants = vec![0.0; self.nodes.len()];
        for root in &self.roots {
            self.want(*root, asked, &mut wants);
        }
        let mut shares = vec![0.0; self.nodes.len()];
        self.pour(&self.roots, total as f64, &wants, &mut shares);
        shares
    }

    /// Computes the most that a queue and its descendants can use.
    fn want(&self, node: usize, asked: &[i64], wants: &mut [f64]) -> f64 {
        let own = asked.get(node).copied().unwrap_or(0) as f64;
        let below: f64 = self.nodes[node]
            .children
            .iter()
            .map(|child| self.want(*child, asked, wants))
            .sum();
        wants[node] = (own + below).min(self.nodes[node].capability);
        wants[node]
    }

    fn pour(&self, siblings: &[usize], total: f64, wants: &[f64], shares: &mut [f64]) {
        let mut left = total;
        for &node in siblings {
            shares[node] = wants[node].min(self.nodes[node].deserved).min(left);
            left -= shares[node];
        }
        let mut thirsty: Vec<usize> = siblings.to_vec();
        // Each round satisfies a queue or divides the whole rest, so the loop ends.
        loop {
            thirsty.retain(|node| wants[*node] - shares[*node] > 1e-9);
            let weights: f64 = thirsty.iter().map(|node| self.nodes[*node].weight).sum();
            if thirsty.is_empty() || left <= 1e-9 || weights <= 0.0 {
                break;
            }
            let per_weight = thirsty
                .iter()
                .map(|node| (wants[*node] - shares[*node]) / self.nodes[*node].weight)
                .fold(left / weights, f64::min);
            for node in &thirsty {
                let more = per_weight * self.nodes[*node].weight;
                shares[*node] += more;
                left -= more;
            }
        }
        for &node in siblings {
            let children = &self.nodes[node].children;
            if !children.is_empty() {
                self.pour(children, shares[node], wants, shares);
            }
        }
    }
}

/// Returns Jain's index of the ratios of actual use to fair share: 1 if all ratios are equal, 1/n
/// if one queue has everything. Returns `None` for fewer than two queues.
#[must_use]
pub fn jain(parts: &[f64]) -> Option<f64> {
    let sum: f64 = parts.iter().sum();
    let squares: f64 = parts.iter().map(|part| part * part).sum();
    (parts.len() > 1 && squares > 0.0).then(|| sum * sum / (parts.len() as f64 * squares))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::plain_queue;
    use engine::resources::ResourceName;
    use engine::{Amount, QueueName};

    fn gpus(count: i64) -> Resources {
        Resources::from_iter([(ResourceName::new("gpu"), Amount(count))])
    }

    fn measure(resources: &Resources) -> Option<i64> {
        resources
            .get(&ResourceName::new("gpu"))
            .map(|amount| amount.0)
    }

    #[test]
    fn deserved_first_then_by_weight_level_by_level() {
        let queue = |name: &str, parent: Option<&str>, weight: u32| engine::facts::QueueFact {
            parent: parent.map(QueueName::from),
            weight,
            ..plain_queue(name)
        };
        let mut queues = ScenarioQueues {
            queues: vec![
                queue("a", None, 1),
                queue("a1", Some("a"), 1),
                queue("a2", Some("a"), 3),
                queue("b", None, 1),
            ],
            ..ScenarioQueues::default()
        };
        let tree = FairTree::new(&queues, measure);
        assert_eq!(tree.shares(100, &[0, 90, 90, 90]), [50.0, 12.5, 37.5, 50.0]);
        // An amount that one queue does not request goes to the others.
        assert_eq!(tree.shares(100, &[0, 90, 10, 20]), [80.0, 70.0, 10.0, 20.0]);
        queues.queues[3].deserved = gpus(70);
        queues.queues[0].capability = gpus(20);
        let tree = FairTree::new(&queues, measure);
        assert_eq!(tree.shares(100, &[0, 90, 0, 75]), [20.0, 20.0, 0.0, 75.0]);
    }

    #[test]
    fn jain_is_one_for_equals() {
        assert_eq!(jain(&[2.0, 2.0, 2.0]), Some(1.0));
        assert_eq!(jain(&[1.0, 0.0]), Some(0.5));
        assert_eq!(jain(&[1.0]), None);
    }
}
