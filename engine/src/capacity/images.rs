//! Which nodes have which images.
//!
//! Names are kept once, with a number for each, so that 10,000 nodes with 50 images each take a few megabytes. What is
//! here only orders possible placements: it never decides whether a pod fits.

use super::Capacity;
use facts::{ClusterName, NodeImages, NodeName};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The number of a name that some node lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ImageId(u32);

/// The images of all nodes.
#[derive(Debug, Clone, Default)]
pub(super) struct ImagesByNode {
    ids: BTreeMap<Arc<str>, ImageId>,
    /// By number: the name, and how many nodes list it.
    names: Vec<Option<(Arc<str>, u32)>>,
    unused: Vec<ImageId>,
    clusters: BTreeMap<ClusterName, ClusterImages>,
}

/// The images of the nodes of one cluster. Nodes without any are not here.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct ClusterImages {
    nodes: BTreeMap<NodeName, Arc<[ImageId]>>,
    /// How many of its nodes list each.
    counts: BTreeMap<ImageId, u32>,
}

impl ImagesByNode {
    fn set(&mut self, fact: &NodeImages) {
        let names: BTreeSet<&str> = fact.images.iter().map(String::as_str).collect();
        let mut ids: Vec<ImageId> = names.into_iter().map(|name| self.count_one(name)).collect();
        ids.sort_unstable();
        // The new ones are counted before the old ones are dropped, so that what stays keeps its number.
        self.clear(&fact.cluster, &fact.node);
        if ids.is_empty() {
            return;
        }
        let here = self.clusters.entry(fact.cluster.clone()).or_default();
        for id in &ids {
            *here.counts.entry(*id).or_default() += 1;
        }
        here.nodes.insert(fact.node.clone(), ids.into());
    }

    /// A node has none.
    pub(super) fn clear(&mut self, cluster: &ClusterName, node: &NodeName) {
        let Some(here) = self.clusters.get_mut(cluster) else {
            return;
        };
        let ids = here.nodes.remove(node).unwrap_or_default();
        for id in ids.iter() {
            if let Some(count) = here.counts.get_mut(id) {
                *count -= 1;
                if *count == 0 {
                    here.counts.remove(id);
                }
            }
        }
        if here.nodes.is_empty() {
            self.clusters.remove(cluster);
        }
        for id in ids.iter() {
            self.drop_one(*id);
        }
    }

    /// A cluster is gone.
    pub(super) fn clear_cluster(&mut self, cluster: &ClusterName) {
        let here = self.clusters.remove(cluster).unwrap_or_default();
        for id in here.nodes.values().flat_map(|ids| ids.iter()) {
            self.drop_one(*id);
        }
    }

    /// The number of a name that one node more lists.
    fn count_one(&mut self, name: &str) -> ImageId {
        let known = self.ids.get(name).copied();
        let id = known.unwrap_or_else(|| {
            let id = self.unused.pop().unwrap_or_else(|| {
                self.names.push(None);
                // Fewer than 2^32: each takes more than a byte of memory.
                ImageId(u32::try_from(self.names.len() - 1).unwrap_or(u32::MAX))
            });
            let name: Arc<str> = Arc::from(name);
            self.ids.insert(Arc::clone(&name), id);
            self.names[id.0 as usize] = Some((name, 0));
            id
        });
        if let Some((_, nodes)) = &mut self.names[id.0 as usize] {
            *nodes += 1;
        }
        id
    }

    fn drop_one(&mut self, id: ImageId) {
        let slot = &mut self.names[id.0 as usize];
        if let Some((name, nodes)) = slot {
            *nodes -= 1;
            if *nodes == 0 {
                self.ids.remove(name);
                *slot = None;
                self.unused.push(id);
            }
        }
    }

    fn facts(&self) -> impl Iterator<Item = NodeImages> {
        self.clusters.iter().flat_map(|(cluster, here)| {
            here.nodes.iter().map(|(node, ids)| NodeImages {
                cluster: cluster.clone(),
                node: node.clone(),
                images: self.names_of(ids),
            })
        })
    }

    fn names_of(&self, ids: &[ImageId]) -> Vec<String> {
        let names = ids
            .iter()
            .filter_map(|id| self.names[id.0 as usize].as_ref());
        names.map(|(name, _)| name.to_string()).collect()
    }

    /// What is derived and does not follow from the images of the nodes, in words.
    pub(super) fn audit(&self, wrong: &mut Vec<String>) {
        let mut again = Self::default();
        self.facts().for_each(|fact| again.set(&fact));
        let counted = |images: &Self| {
            let names = images.names.iter().flatten().cloned();
            let all: BTreeMap<Arc<str>, u32> = names.collect();
            let of = |(cluster, here): (&ClusterName, &ClusterImages)| {
                let counts = here.counts.iter();
                let named = counts.map(|(id, count)| (images.names_of(&[*id]), *count));
                (cluster.clone(), named.collect::<BTreeMap<_, _>>())
            };
            (all, images.clusters.iter().map(of).collect::<Vec<_>>())
        };
        if counted(self) != counted(&again) || self.ids.len() != again.ids.len() {
            wrong.push("images: their counts are not those of the nodes".to_owned());
        }
    }
}

impl Capacity {
    /// A node has these images, and no others.
    pub(crate) fn set_images(&mut self, fact: &NodeImages) {
        self.images.set(fact);
    }

    /// The images of each node that has any.
    pub(crate) fn images(&self) -> impl Iterator<Item = NodeImages> {
        self.images.facts()
    }

    /// Those of `images` that some node has. The others have to be pulled wherever a job goes.
    pub(crate) fn known_images<'a>(&self, images: impl Iterator<Item = &'a str>) -> Vec<ImageId> {
        images
            .filter_map(|name| self.images.ids.get(name).copied())
            .collect()
    }

    /// Returns true if a node has all of `images`.
    pub(crate) fn has_images<'a>(
        &self,
        mut images: impl Iterator<Item = &'a str>,
        cluster: &ClusterName,
        node: &NodeName,
    ) -> bool {
        let here = self.images.clusters.get(cluster);
        let ids = here.and_then(|here| here.nodes.get(node));
        images.all(|name| {
            let id = self.images.ids.get(name);
            ids.zip(id)
                .is_some_and(|(ids, id)| ids.binary_search(id).is_ok())
        })
    }

    /// Of these nodes, how many thousandths lack one of `images`.
    pub(crate) fn nodes_without<'a>(
        &self,
        images: &[ImageId],
        cluster: &ClusterName,
        nodes: impl Iterator<Item = &'a NodeName>,
    ) -> i64 {
        if images.is_empty() {
            return 0;
        }
        let here = self.images.clusters.get(cluster);
        let (mut all, mut without) = (0, 0);
        for node in nodes {
            let has = here.and_then(|here| here.nodes.get(node));
            let has = has.map_or(&[][..], |ids| ids);
            all += 1;
            without += i64::from(!images.iter().all(|id| has.binary_search(id).is_ok()));
        }
        without * 1000 / all.max(1)
    }

    /// The same of `count` nodes of a cluster of which it is not known which they are: as if nodes with the images were
    /// taken first.
    pub(crate) fn least_without(
        &self,
        images: &[ImageId],
        cluster: &ClusterName,
        count: u32,
    ) -> i64 {
        let here = self.images.clusters.get(cluster);
        let nodes = |id| here.and_then(|here| here.counts.get(id)).copied();
        let fewest = images.iter().map(|id| nodes(id).unwrap_or(0)).min();
        let without = count.saturating_sub(fewest.unwrap_or(count));
        i64::from(without) * 1000 / i64::from(count.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn images(cluster: &str, node: &str, images: &[&str]) -> NodeImages {
        NodeImages {
            cluster: ClusterName::from(cluster),
            node: NodeName::from(node),
            images: images.iter().map(ToString::to_string).collect(),
        }
    }

    fn sound(room: &Capacity) {
        let mut wrong = Vec::new();
        room.images.audit(&mut wrong);
        assert_eq!(wrong, [""; 0]);
    }

    #[test]
    fn the_share_of_nodes_without_an_image_is_counted() {
        let mut room = Capacity::new();
        for (node, has) in [("n1", &["a", "b"][..]), ("n2", &["a", "a"]), ("n3", &[])] {
            room.set_images(&images("x", node, has));
        }
        let nodes: Vec<NodeName> = ["n1", "n2", "n3", "n4"].map(NodeName::from).into();
        let cluster = ClusterName::from("x");
        for (wanted, of_all, of_two, of_three) in [
            (&["a"][..], 500, 0, 333),
            (&["a", "b"], 750, 500, 666),
            (&["c"], 0, 0, 0),
            (&["c", "b"], 750, 500, 666),
            (&[], 0, 0, 0),
        ] {
            let ids = room.known_images(wanted.iter().copied());
            let without = room.nodes_without(&ids, &cluster, nodes.iter());
            assert_eq!(without, of_all, "{wanted:?}");
            let least = |count| room.least_without(&ids, &cluster, count);
            assert_eq!((least(2), least(3)), (of_two, of_three), "{wanted:?}");
        }
        let a = room.known_images(["a"].into_iter());
        let elsewhere = ClusterName::from("y");
        assert_eq!(room.nodes_without(&a, &elsewhere, nodes.iter()), 1000);
        assert_eq!(room.least_without(&a, &elsewhere, 2), 1000);
        assert_eq!(room.least_without(&a, &elsewhere, 0), 0);
        sound(&room);
    }

    #[test]
    fn images_that_no_node_has_are_forgotten() {
        let mut room = Capacity::new();
        for round in 0..100 {
            room.set_images(&images("x", "n1", &[&format!("tag-{round}"), "stays"]));
            sound(&room);
        }
        room.set_images(&images("y", "n1", &["stays"]));
        assert!(room.images.names.len() < 5, "{:?}", room.images.names);
        room.remove_node(&ClusterName::from("x"), &NodeName::from("n1"));
        sound(&room);
        assert_eq!(room.images.ids.len(), 1);
        room.remove_cluster(&ClusterName::from("y"));
        assert!(room.images.ids.is_empty() && room.images.clusters.is_empty());
        sound(&room);
    }
}
