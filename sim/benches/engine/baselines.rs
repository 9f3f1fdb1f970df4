//! Four simple rules for choosing a node, with which the engine is compared.
//!
//! - best fit: the node with the least free amount over all its resources;
//! - dot product: the node whose free resources point in the direction of the request (Tetris);
//! - clustering: a node that already runs tasks with the same GPU request, then best fit;
//! - FGD: the node where the expected number of GPUs that the task mix cannot use grows least.

use crate::openb::{Left, asks};
use engine::Resources;
use engine::facts::NodeFact;
use engine::matching::NodeTerm;
use engine::resources::ResourceName;
use sim::input::OPENB_GPU;
use sim::scenario::Scenario;
use std::collections::BTreeMap;

/// A rule for choosing a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rule {
    BestFit,
    DotProduct,
    Clustering,
    Fgd,
}

/// CPU in millicores, memory in MiB, GPUs in thousandths.
type Vector = [i64; 3];

struct Task {
    asks: Vector,
    terms: Vec<NodeTerm>,
}

/// A cluster that is filled with tasks by one rule.
pub(crate) struct Fill<'a> {
    scenario: &'a Scenario,
    rule: Rule,
    nodes: Vec<&'a NodeFact>,
    free: Vec<Vector>,
    largest: Vector,
    /// For each node, the number of its tasks by GPU request.
    holds: Vec<BTreeMap<i64, u32>>,
    tasks: Vec<Task>,
    /// The kinds of tasks with the share of each in the mix.
    mix: Vec<(Vector, f64)>,
}

fn vector(resources: &Resources) -> Vector {
    let amount = |name: &str| resources.amount_of(&ResourceName::new(name)).0;
    [
        amount(ResourceName::CPU),
        amount(ResourceName::MEMORY) >> 20,
        amount(OPENB_GPU),
    ]
}

fn fits(asks: &Vector, free: &Vector) -> bool {
    asks.iter().zip(free).all(|(asks, free)| asks <= free)
}

fn less(free: &Vector, asks: &Vector) -> Vector {
    [free[0] - asks[0], free[1] - asks[1], free[2] - asks[2]]
}

impl<'a> Fill<'a> {
    pub(crate) fn new(scenario: &'a Scenario, rule: Rule) -> Self {
        let nodes: Vec<&NodeFact> = scenario.fleet.nodes.iter().collect();
        let free: Vec<Vector> = nodes.iter().map(|node| vector(&node.allocatable)).collect();
        let tasks: Vec<Task> = scenario
            .jobs
            .iter()
            .filter_map(|job| job.fact.demand.roles.first())
            .map(|role| Task {
                asks: vector(&role.request),
                terms: role.node_terms.clone(),
            })
            .collect();
        let mut kinds = BTreeMap::<Vector, u32>::new();
        for task in &tasks {
            *kinds.entry(task.asks).or_default() += 1;
        }
        let all = tasks.len().max(1) as f64;
        let mix = kinds
            .into_iter()
            .map(|(asks, count)| (asks, f64::from(count) / all));
        let largest = (0..3).map(|index| free.iter().map(|f| f[index]).max().unwrap_or(1).max(1));
        let largest: Vec<i64> = largest.collect();
        Self {
            scenario,
            rule,
            holds: vec![BTreeMap::new(); nodes.len()],
            largest: [largest[0], largest[1], largest[2]],
            mix: mix.collect(),
            nodes,
            free,
            tasks,
        }
    }

    /// Places the tasks in order and drops those that do not fit.
    pub(crate) fn fill(mut self, sequence: &[usize], capacity: i64) -> Left {
        let mut left = Left {
            at_full: capacity,
            at_end: capacity,
        };
        let mut asked = 0;
        for place in sequence {
            let gpus = asks(self.scenario, *place);
            if let Some(node) = self.choose(*place) {
                let task = self.tasks[*place].asks;
                self.free[node] = less(&self.free[node], &task);
                *self.holds[node].entry(task[2]).or_default() += 1;
                left.at_end -= gpus;
            }
            asked += gpus;
            if asked <= capacity {
                left.at_full = left.at_end;
            }
        }
        left
    }

    /// Returns the node with the lowest score, the first of equals.
    fn choose(&self, place: usize) -> Option<usize> {
        let task = &self.tasks[place];
        let mut known = BTreeMap::<(Vector, u32), f64>::new();
        let mut best: Option<(f64, usize)> = None;
        for (index, free) in self.free.iter().enumerate() {
            if !fits(&task.asks, free) || !self.matches(task, index) {
                continue;
            }
            let alike = self.holds[index].get(&task.asks[2]).copied().unwrap_or(0);
            let score = *known
                .entry((*free, alike))
                .or_insert_with(|| self.score(&task.asks, free, alike));
            if best.is_none_or(|(lowest, _)| score < lowest) {
                best = Some((score, index));
            }
        }
        best.map(|(_, index)| index)
    }

    fn matches(&self, task: &Task, index: usize) -> bool {
        let node = self.nodes[index];
        let term = |term: &NodeTerm| term.matches(node);
        task.terms.is_empty() || task.terms.iter().any(term)
    }

    fn score(&self, asks: &Vector, free: &Vector, alike: u32) -> f64 {
        let after = less(free, asks);
        let part = |index: usize, of: &Vector| of[index] as f64 / self.largest[index] as f64;
        let left: f64 = (0..3).map(|index| part(index, &after)).sum();
        match self.rule {
            Rule::BestFit => left,
            Rule::DotProduct => {
                let product = (0..3).map(|index| part(index, asks) * part(index, free));
                -product.sum::<f64>()
            }
            Rule::Clustering => left - 10.0 * f64::from(alike.min(1)),
            Rule::Fgd => self.unusable(&after) - self.unusable(free) + left * 1e-6,
        }
    }

    /// Returns the expected number of free GPUs, in thousandths, that tasks of the mix cannot use.
    fn unusable(&self, free: &Vector) -> f64 {
        let lost = self
            .mix
            .iter()
            .filter(|(asks, _)| !fits(asks, free) || asks[2] == 0);
        lost.map(|(_, part)| part).sum::<f64>() * free[2] as f64
    }
}
