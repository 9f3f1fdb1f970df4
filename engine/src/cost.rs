//! How much work calls of the engine do, in steps instead of seconds: a test with a fixed input that expects exact
//! numbers is red after a change that makes a decision dearer, on every machine and under every load.
//!
//! Steps are counted for each thread, and only in builds with debug assertions, as tests are. In others there is
//! nothing of it. No decision may depend on it.

#[cfg(debug_assertions)]
use std::cell::Cell;

/// Steps of some calls of the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DecisionCost {
    /// Evaluations of a pending job at one size.
    pub evaluations: u64,
    /// Searches for a plan: where a gang goes, or which nodes are reserved for it.
    pub plans: u64,
    /// Nodes, or groups of nodes that look alike, that were compared with a pod.
    pub node_visits: u64,
}

impl std::fmt::Display for DecisionCost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            evaluations,
            plans,
            node_visits,
        } = self;
        write!(
            f,
            "{evaluations} evaluations, {plans} plans, {node_visits} node visits"
        )
    }
}

#[cfg(debug_assertions)]
thread_local! {
    static SPENT: Cell<DecisionCost> = const { Cell::new(DecisionCost { evaluations: 0, plans: 0, node_visits: 0 }) };
}

/// Runs `calls` and returns what they return, with their steps.
#[cfg(debug_assertions)]
pub fn of<R>(calls: impl FnOnce() -> R) -> (R, DecisionCost) {
    let before = SPENT.replace(DecisionCost::default());
    let result = calls();
    let spent = SPENT.replace(before);
    (result, spent)
}

#[cfg(debug_assertions)]
fn spend(step: impl FnOnce(&mut DecisionCost)) {
    let mut spent = SPENT.get();
    step(&mut spent);
    SPENT.set(spent);
}

#[cfg(not(debug_assertions))]
#[inline(always)]
fn spend(_: impl FnOnce(&mut DecisionCost)) {}

/// Counts an evaluation.
#[inline]
pub(crate) fn evaluation() {
    spend(|spent| spent.evaluations += 1);
}

/// Counts a search for a plan.
#[inline]
pub(crate) fn plan() {
    spend(|spent| spent.plans += 1);
}

/// Counts visits of nodes.
#[inline]
pub(crate) fn node_visits(nodes: usize) {
    let nodes = u64::try_from(nodes).unwrap_or(u64::MAX);
    spend(|spent| spent.node_visits += nodes);
}

#[cfg(all(test, debug_assertions))]
mod tests {
    use super::*;

    #[test]
    fn steps_count_for_the_calls_in_which_they_are_made() {
        plan();
        let (inner, cost) = of(|| {
            evaluation();
            of(|| node_visits(3)).1
        });
        assert_eq!(inner.to_string(), "0 evaluations, 0 plans, 3 node visits");
        assert_eq!(cost.to_string(), "1 evaluations, 0 plans, 0 node visits");
        assert_eq!(of(|| ()).1, DecisionCost::default());
    }
}
