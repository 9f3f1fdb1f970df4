//! The share of free devices that no job can use, after *Beware of Fragmentation* (Weng et al.,
//! USENIX ATC 2023), with the jobs of the scenario as the mix.
//!
//! A node's free devices are unusable for a pod that requests more than the node has free. The
//! result is the unusable share of all free devices, averaged over the pods of the mix.

use std::collections::BTreeMap;

/// The free devices of all nodes, updated with each change.
#[derive(Debug, Clone, Default)]
pub struct FragmentationTracker {
    /// The number of pods that request devices, by request.
    mix: BTreeMap<i64, u64>,
    free: Vec<i64>,
    /// The number of nodes, by free amount.
    nodes: BTreeMap<i64, i64>,
}

impl FragmentationTracker {
    /// Starts with empty nodes of these sizes, and the number of pods by size.
    pub fn new(
        capacities: impl IntoIterator<Item = i64>,
        pods: impl IntoIterator<Item = (i64, u64)>,
    ) -> Self {
        let mut all = Self::default();
        for (size, count) in pods {
            if size > 0 {
                *all.mix.entry(size).or_default() += count;
            }
        }
        for capacity in capacities {
            all.free.push(capacity);
            *all.nodes.entry(capacity).or_default() += 1;
        }
        all
    }

    /// Subtracts an amount from what is free on a node; a negative amount is added.
    pub fn take(&mut self, node: usize, amount: i64) {
        let Some(free) = self.free.get_mut(node) else {
            return;
        };
        let before = *free;
        *free -= amount;
        let after = *free;
        *self.nodes.entry(after).or_default() += 1;
        if let Some(count) = self.nodes.get_mut(&before) {
            *count -= 1;
            if *count == 0 {
                self.nodes.remove(&before);
            }
        }
    }

    /// Returns the unusable share of the free devices; zero if nothing is free.
    #[must_use]
    pub fn unusable(&self) -> f64 {
        let pods: u64 = self.mix.values().sum();
        let free: i64 = self.nodes.iter().map(|(size, nodes)| size * nodes).sum();
        if pods == 0 || free == 0 {
            return 0.0;
        }
        let lost = |asked: i64| -> i64 {
            let short = self.nodes.range(..asked);
            short.map(|(size, nodes)| size * nodes).sum()
        };
        let weighted: f64 = self
            .mix
            .iter()
            .map(|(asked, count)| lost(*asked) as f64 * *count as f64)
            .sum();
        weighted / pods as f64 / free as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_what_the_mix_cannot_use() {
        // Half of the pods request 8 devices, half request 2.
        let mut nodes = FragmentationTracker::new([8, 8], [(8, 5), (2, 5)]);
        assert_eq!(nodes.unusable(), 0.0);
        nodes.take(0, 1);
        // The larger half of the pods cannot use 7 of 15 devices.
        assert_eq!(nodes.unusable(), 7.0 / 15.0 / 2.0);
        nodes.take(0, 6);
        // No pod can use 1 of 9 devices.
        assert_eq!(nodes.unusable(), 1.0 / 9.0);
        nodes.take(0, -7);
        assert_eq!(nodes.unusable(), 0.0);
    }
}
