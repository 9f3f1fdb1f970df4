//! How much of what is free no job could use: after *Beware of Fragmentation* (Weng et al.,
//! USENIX ATC 2023), with the jobs of the scenario as the mix.
//!
//! A node's free devices are unusable for a pod that asks for more than the node has free. Of
//! all that is free, the share that is unusable, averaged over the pods of the mix.

use std::collections::BTreeMap;

/// The state of all nodes, kept as they change.
#[derive(Debug, Clone, Default)]
pub struct FragmentationTracker {
    /// Sizes of pods that ask for devices, and how often each is asked for.
    mix: BTreeMap<i64, u64>,
    free: Vec<i64>,
    /// How many nodes have so much free.
    nodes: BTreeMap<i64, i64>,
}

impl FragmentationTracker {
    /// Nodes that are wholly free, and pods by size.
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

    /// Takes from a node what is free on it; a negative amount gives back.
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

    /// The share of what is free that is unusable; zero where nothing is free.
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
        // Half of the pods want 8 devices, half want 2.
        let mut nodes = FragmentationTracker::new([8, 8], [(8, 5), (2, 5)]);
        assert_eq!(nodes.unusable(), 0.0);
        nodes.take(0, 1);
        // 7 of 15 are no good for the larger half.
        assert_eq!(nodes.unusable(), 7.0 / 15.0 / 2.0);
        nodes.take(0, 6);
        // 1 of 9 is no good for anybody.
        assert_eq!(nodes.unusable(), 1.0 / 9.0);
        nodes.take(0, -7);
        assert_eq!(nodes.unusable(), 0.0);
    }
}
