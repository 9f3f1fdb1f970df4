//! Where in a cluster a gang goes: in one topology domain where it can, the innermost first.
//!
//! Of the domains that hold it the one with the least free beside is taken, so that whole racks
//! stay whole. Where the gang must be in one domain of at most a tier, it goes nowhere else;
//! where no domain holds it and it need not be in one, it goes anywhere in the cluster.

use crate::amounts::resource_ids::{CPU, ResourceId};
use crate::capacity::domains::Domain;
use crate::capacity::mix::counted_in;
use crate::capacity::pack::{Need, NodeView, Packing};
use crate::capacity::{Capacity, ClusterCapacity};
use facts::{ClusterName, NodeName, Topology};
use std::collections::{BTreeMap, BTreeSet};

/// Domains of one tier that are tried for a gang which need not be in one.
const TRIED: usize = 8;

/// What a packing does to a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct PackEffect {
    /// The tier of the innermost domain that holds it: 1 for pods on one node, the largest
    /// number where none does.
    pub(crate) tier: u32,
    /// What becomes unusable by it, in thousandths of what it takes; below zero where less is
    /// than was.
    pub(crate) growth: i128,
    /// Free devices (cores) and free CPU that are left on the nodes that it uses.
    pub(crate) units_left: i128,
    pub(crate) cpu_left: i128,
}

/// The outermost tier in one domain of which all pods of a gang have to be, if its cluster has such tiers. The cluster
/// itself is the domain around the outermost that its nodes name. Where they name none, its own scheduler may know them
/// (HyperNodes): it is left to that.
fn hard_tier(room: &ClusterCapacity, topology: Option<&Topology>) -> Option<u32> {
    let outermost = room.domains().highest_tier();
    let highest = topology.filter(|topology| topology.hard)?.highest_tier;
    (outermost > 0 && highest <= outermost).then_some(highest)
}

impl Capacity {
    /// The domains in one of which all pods of a gang have to be on a cluster, the innermost first, single nodes that
    /// are in none last; `None` if they may be anywhere there.
    pub(crate) fn hard_domains(
        &self,
        cluster: &ClusterName,
        pods: u64,
        topology: Option<&Topology>,
    ) -> Option<Vec<BTreeSet<&NodeName>>> {
        let room = self.cluster(cluster).filter(|_| pods > 1)?;
        let highest = hard_tier(room, topology)?;
        let tiers = (1..=highest).flat_map(|tier| room.domains().of_tier(tier));
        let mut domains: Vec<BTreeSet<&NodeName>> = tiers
            .map(|(_, domain)| domain.nodes.iter().collect())
            .collect();
        let inside: BTreeSet<&NodeName> = domains.iter().flatten().copied().collect();
        let usable = room.nodes().values().filter(|node| node.fact.usable);
        let alone = usable
            .map(|node| &node.fact.name)
            .filter(|name| !inside.contains(name));
        domains.extend(alone.map(|name| BTreeSet::from([name])));
        Some(domains)
    }

    /// Places a whole gang on a cluster.
    pub(crate) fn place(
        &self,
        cluster: &ClusterName,
        needs: &[Need<'_>],
        node_view: NodeView<'_>,
        topology: Option<&Topology>,
    ) -> Packing {
        let pods: u64 = needs.iter().map(|need| u64::from(need.count)).sum();
        let Some(room) = self.cluster(cluster).filter(|_| pods > 1) else {
            return self.pack(cluster, needs, node_view);
        };
        let hard = topology.filter(|topology| topology.hard);
        let outermost = room.domains().highest_tier();
        let highest = hard.map_or(outermost, |hard| hard.highest_tier.min(outermost));
        let mut closest: Option<Packing> = None;
        for tier in 1..=highest {
            for (path, domain) in
                self.candidates((cluster, room), needs, node_view, tier, hard.is_none())
            {
                let mut packing = self.pack_within(cluster, needs, node_view, Some(&domain.nodes));
                let Some(lack) = &mut packing.lack else {
                    return packing;
                };
                lack.domain = Some(path.join("/"));
                if closest.as_ref().is_none_or(|known| closer(&packing, known)) {
                    closest = Some(packing);
                }
            }
        }
        match hard_tier(room, topology) {
            Some(_) => self.on_one_node(cluster, room, needs, node_view, closest),
            None => self.pack(cluster, needs, node_view),
        }
    }

    /// Places as many as fit of each of `needs`, one after another: a part of a gang. Where the
    /// gang's parts must each be in one domain, in the domain that takes most.
    pub(crate) fn fill(
        &self,
        cluster: &ClusterName,
        needs: &[Need<'_>],
        node_view: NodeView<'_>,
        topology: Option<&Topology>,
    ) -> Packing {
        let room = self.cluster(cluster);
        let hard = room.and_then(|room| Some((room, hard_tier(room, topology)?)));
        let Some((room, highest)) = hard else {
            return self.fill_within(cluster, needs, node_view, None);
        };
        let mut best = Packing::default();
        for tier in 1..=highest {
            for (_, domain) in room.domains().of_tier(tier) {
                let part = self.fill_within(cluster, needs, node_view, Some(&domain.nodes));
                if part.pods() > best.pods() {
                    best = part;
                }
            }
        }
        best
    }

    /// Domains of a tier that might hold all, the one with the least free first. Where a
    /// packing is a must, those that hold too little follow, for the sake of what is said.
    fn candidates<'a>(
        &self,
        (cluster, room): (&ClusterName, &'a ClusterCapacity),
        needs: &[Need<'_>],
        node_view: NodeView<'_>,
        tier: u32,
        optional: bool,
    ) -> Vec<(&'a [String], &'a Domain)> {
        let asked = self.asked(cluster, needs);
        let overlay = node_view.overlay;
        let differ = overlay
            .nodes_of(cluster)
            .is_some_and(|nodes| !nodes.is_empty());
        let sure = !overlay.is_of_empty_fleet() && !differ;
        // Beside others of its gang a role without devices may be on nodes with devices, which are
        // not counted in what it requests; a gang without any is to leave those alone.
        let devices = asked.iter().any(|(resource, ..)| *resource != CPU);
        let might = |domain: &Domain| {
            !sure
                || asked.iter().all(|(resource, each, count)| {
                    (devices && *resource == CPU)
                        || domain.fitting(*resource, *each) >= u64::from(*count)
                })
        };
        let unit = asked.first().map(|(resource, ..)| *resource);
        let mut domains: Vec<_> = room
            .domains()
            .of_tier(tier)
            .filter(|(_, domain)| !optional || might(domain))
            .map(|(path, domain)| {
                let units = unit.map_or(0, |resource| domain.units(resource));
                (!might(domain), units, path, domain)
            })
            .collect();
        domains.sort_by(|a, b| (a.0, a.1, a.2).cmp(&(b.0, b.1, b.2)));
        if optional {
            domains.truncate(TRIED);
        }
        domains
            .into_iter()
            .map(|(_, _, path, domain)| (path, domain))
            .collect()
    }

    /// By role: what its pods are counted in, how much each requests, and how many they are;
    /// devices before CPU.
    fn asked(&self, cluster: &ClusterName, needs: &[Need<'_>]) -> Vec<(ResourceId, i64, u32)> {
        let mut asked: Vec<(ResourceId, i64, u32)> = needs
            .iter()
            .map(|need| {
                let request = need.role.request_in(cluster);
                let resource = counted_in(request, &self.resource_ids);
                let each = self.resource_ids.request(request).get(resource);
                (resource, each, need.count)
            })
            .filter(|(_, each, count)| *each > 0 && *count > 0)
            .collect();
        asked.sort_by_key(|(resource, ..)| *resource == CPU);
        asked
    }

    /// A node is a domain too, of a gang that fits on one.
    fn on_one_node(
        &self,
        cluster: &ClusterName,
        room: &ClusterCapacity,
        needs: &[Need<'_>],
        node_view: NodeView<'_>,
        closest: Option<Packing>,
    ) -> Packing {
        let asked = self.asked(cluster, needs);
        let differ = node_view.overlay.nodes_of(cluster);
        let mut closest = closest;
        for node in room.nodes().values().filter(|node| node.fact.usable) {
            let differs = differ.is_some_and(|nodes| nodes.contains_key(&node.fact.name));
            let free = node.free_if(node_view.overlay.is_of_empty_fleet());
            let enough = |(resource, each, count): &(ResourceId, i64, u32)| {
                free.get(*resource) >= i128::from(*each) * i128::from(*count)
            };
            if !differs && !asked.iter().all(enough) && closest.is_some() {
                continue;
            }
            let only = BTreeSet::from([node.fact.name.clone()]);
            let mut packing = self.pack_within(cluster, needs, node_view, Some(&only));
            let Some(lack) = &mut packing.lack else {
                return packing;
            };
            lack.domain = Some(node.fact.name.to_string());
            if closest.as_ref().is_none_or(|known| closer(&packing, known)) {
                closest = Some(packing);
            }
        }
        closest.unwrap_or_else(|| {
            let first = needs
                .first()
                .map_or((0, 0), |need| (need.index, need.count));
            Packing::shortfall(first.0, first.1, 0)
        })
    }

    /// Returns what a packing that was found through `node_view` does.
    pub(crate) fn effect(
        &self,
        cluster: &ClusterName,
        needs: &[Need<'_>],
        packing: &Packing,
        node_view: NodeView<'_>,
    ) -> PackEffect {
        let mut effect = PackEffect::default();
        let Some(field) = self.field(cluster, node_view, None) else {
            return effect;
        };
        let mut taken: BTreeMap<&NodeName, Vec<(usize, u32)>> = BTreeMap::new();
        for placed in &packing.placed {
            let roles = taken.entry(&placed.node).or_default();
            roles.push((placed.role, placed.count));
        }
        let asks: BTreeMap<usize, _> = needs
            .iter()
            .map(|need| {
                let request = need.role.request_in(cluster);
                (need.index, self.resource_ids.request(request))
            })
            .collect();
        let mut units_taken = 0;
        for (name, roles) in &taken {
            let Some(node) = field.room.nodes().get(*name) else {
                continue;
            };
            let before = field.free(node);
            let mut after = before.clone();
            for (role, count) in roles {
                if let Some(ask) = asks.get(role) {
                    after.add_pods(ask, -i64::from(*count));
                }
            }
            effect.growth += self.mix.unusable(node.units, &after);
            effect.growth -= self.mix.unusable(node.units, before);
            units_taken += before.get(node.units) - after.get(node.units);
            effect.units_left += after.get(node.units);
            effect.cpu_left += after.get(CPU);
        }
        effect.growth /= units_taken.max(1);
        effect.tier = tier_of(field.room, taken.keys().copied());
        effect
    }
}

/// True if a packing that stopped came further.
fn closer(one: &Packing, other: &Packing) -> bool {
    one.pods() > other.pods()
}

/// The tier of the innermost domain that all these nodes are in.
fn tier_of<'a>(room: &ClusterCapacity, mut nodes: impl Iterator<Item = &'a NodeName>) -> u32 {
    let path = |name: &NodeName| {
        let node = room.nodes().get(name);
        node.map_or(&[][..], |node| node.fact.domains.as_slice())
    };
    let Some(first) = nodes.next() else {
        return 1;
    };
    let (mut common, mut many) = (path(first), false);
    for name in nodes {
        many = true;
        let same = common.iter().zip(path(name)).take_while(|(a, b)| a == b);
        common = &common[..same.count()];
    }
    match (many, room.domains().tier_of(common)) {
        (false, _) => 1,
        (true, Some(tier)) => tier,
        (true, None) => u32::MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capacity::pack::PlacedPods;
    use crate::capacity::testing::{demand, node, resources};
    use crate::overlay::Overlay;
    use facts::{NodeFact, PodFact, PodPhase, Uid};

    /// Two nodes in one rack and, in another, one of whose devices five are used; pods of four
    /// devices are usual.
    fn room() -> Capacity {
        let mut room = Capacity::new();
        for (name, rack) in [("n0", "r0"), ("n1", "r0"), ("n2", "r1")] {
            room.upsert_node(NodeFact {
                domains: vec![rack.to_owned()],
                ..node(name, "cpu 64, nvidia.com/gpu 8")
            });
        }
        room.upsert_pod(PodFact {
            cluster: ClusterName::from("a"),
            uid: Uid::from("other"),
            node: Some(NodeName::from("n2")),
            request: resources("nvidia.com/gpu 5"),
            job: None,
            phase: PodPhase::Running,
            symptom: None,
            grace_s: 0,
        });
        room.note_demand(&demand(1, "cpu 4, nvidia.com/gpu 4"));
        room
    }

    #[test]
    fn what_a_packing_does_is_summed_over_its_nodes() {
        let room = room();
        let demand = demand(3, "cpu 4, nvidia.com/gpu 3");
        let needs = [Need {
            index: 0,
            role: &demand.roles[0],
            count: 3,
        }];
        let overlay = Overlay::default();
        let node_view = NodeView::of(&overlay);
        let across = u32::MAX;
        for (pods, tier, growth, units_left, cpu_left) in [
            // Two devices are left of no use, of nine that are taken.
            (&[("n0", 1), ("n1", 2)][..], 1, 222, 7, 116_000),
            // Three devices that were of no use are all that is taken.
            (&[("n2", 1)], 1, -1000, 0, 60_000),
            (&[("n0", 1), ("n2", 1)], across, -500, 5, 120_000),
        ] {
            let fitting = pods.iter().map(|(node, count)| PlacedPods {
                role: 0,
                node: NodeName::from(*node),
                count: *count,
            });
            let packing = Packing {
                placed: fitting.collect(),
                lack: None,
            };
            let effect = PackEffect {
                tier,
                growth,
                units_left,
                cpu_left,
            };
            let found = room.effect(&ClusterName::from("a"), &needs, &packing, node_view);
            assert_eq!(found, effect, "{pods:?}");
        }
    }
}
