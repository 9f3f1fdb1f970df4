//! The topology of one cluster: racks within zones, or whatever the path of its nodes says,
//! with how many nodes of each domain have how much free.
//!
//! A domain is named by its whole path, so that `r1` in one zone is not `r1` in another. Tier 1
//! is the innermost. Whether a domain has capacity for so many pods is a look-up; that it does is for
//! the packing to say.

use crate::amounts::resource_ids::{ResourceId, ResourceVec, times};
use facts::NodeName;
use std::collections::{BTreeMap, BTreeSet};

/// The domains of one cluster.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Domains(BTreeMap<Vec<String>, Domain>);

/// One domain, with all usable nodes in it or in a domain within it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Domain {
    pub(crate) nodes: BTreeSet<NodeName>,
    /// Nodes by what they are counted in and how much of it they have free.
    histogram: BTreeMap<(ResourceId, i128), u32>,
    /// Nodes by the length of their path.
    depths: BTreeMap<usize, u32>,
}

impl Domain {
    /// How many pods that each request so much of one resource its nodes might hold, as far
    /// as that resource goes.
    pub(crate) fn fitting(&self, resource: ResourceId, each: i64) -> u64 {
        self.free(resource)
            .map(|(free, nodes)| times(free, each).saturating_mul(u64::from(nodes)))
            .fold(0, u64::saturating_add)
    }

    /// Returns what its nodes have free of what they are counted in.
    pub(crate) fn units(&self, resource: ResourceId) -> i128 {
        self.free(resource)
            .map(|(free, nodes)| free.max(0) * i128::from(nodes))
            .sum()
    }

    fn free(&self, resource: ResourceId) -> impl Iterator<Item = (i128, u32)> {
        let all = (resource, i128::MIN)..=(resource, i128::MAX);
        self.histogram.range(all).map(|((_, free), n)| (*free, *n))
    }
}

impl Domains {
    /// A usable node is at `path`, or with `times` -1 is no more.
    pub(crate) fn count(
        &mut self,
        path: &[String],
        name: &NodeName,
        units: ResourceId,
        free: &ResourceVec,
        come: bool,
    ) {
        for depth in 1..=path.len() {
            let domain = match self.0.get_mut(&path[..depth]) {
                Some(known) => known,
                None => self.0.entry(path[..depth].to_vec()).or_default(),
            };
            change(&mut domain.histogram, (units, free.get(units)), come);
            change(&mut domain.depths, path.len(), come);
            if come {
                domain.nodes.insert(name.clone());
            } else {
                domain.nodes.remove(name);
                if domain.nodes.is_empty() {
                    self.0.remove(&path[..depth]);
                }
            }
        }
    }

    /// Moves a node whose free amount changed.
    pub(crate) fn move_node(
        &mut self,
        path: &[String],
        units: ResourceId,
        from: &ResourceVec,
        to: &ResourceVec,
    ) {
        let (from, to) = (from.get(units), to.get(units));
        if from == to {
            return;
        }
        for depth in 1..=path.len() {
            if let Some(domain) = self.0.get_mut(&path[..depth]) {
                change(&mut domain.histogram, (units, from), false);
                change(&mut domain.histogram, (units, to), true);
            }
        }
    }

    /// The outermost tier.
    pub(crate) fn highest_tier(&self) -> u32 {
        let tiers = self.0.iter().map(|(path, domain)| tier(path, domain));
        tiers.max().unwrap_or(0)
    }

    /// The tiers of the domains on a path, outermost first, as far as there are such domains.
    pub(crate) fn tiers_along(&self, path: &[String]) -> Vec<Option<u32>> {
        let depths = 1..=path.len();
        depths.map(|depth| self.tier_of(&path[..depth])).collect()
    }

    /// The domains of one tier, by path.
    pub(crate) fn of_tier(&self, wanted: u32) -> impl Iterator<Item = (&[String], &Domain)> {
        self.0
            .iter()
            .filter(move |(path, domain)| tier(path, domain) == wanted)
            .map(|(path, domain)| (path.as_slice(), domain))
    }

    /// The tier of a domain, if there is such a domain.
    pub(crate) fn tier_of(&self, path: &[String]) -> Option<u32> {
        self.0.get(path).map(|domain| tier(path, domain))
    }
}

/// 1 where no node of it has a longer path, one more for each level within.
fn tier(path: &[String], domain: &Domain) -> u32 {
    let deepest = domain.depths.keys().next_back().copied().unwrap_or(0);
    u32::try_from((deepest + 1).saturating_sub(path.len())).unwrap_or(u32::MAX)
}

fn change<K: Ord>(counts: &mut BTreeMap<K, u32>, key: K, come: bool) {
    if come {
        *counts.entry(key).or_default() += 1;
    } else if let Some(count) = counts.get_mut(&key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(&key);
        }
    }
}
