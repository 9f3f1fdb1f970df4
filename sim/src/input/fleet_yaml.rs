//! A fleet in YAML: clusters with groups of equal nodes.

use super::amounts::{QuantityTexts, ResourceShorthand, Text};
use super::fleet::PODS_PER_NODE;
use super::plain;
use crate::error::{InputError, InputLocation, read};
use crate::scenario::Fleet;
use engine::ClusterName;
use engine::facts::{ClusterFact, NodeFact};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FleetFile {
    clusters: Vec<FleetCluster>,
}

/// A member cluster.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct FleetCluster {
    name: String,
    #[serde(default)]
    provider: String,
    #[serde(default)]
    region: String,
    #[serde(default)]
    zones: Vec<String>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    /// The price of a device per hour.
    price: Option<f64>,
    /// The round-trip time to other clusters in milliseconds.
    #[serde(default)]
    network: BTreeMap<String, f64>,
    nodes: Vec<FleetNodes>,
}

/// A group of equal nodes.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct FleetNodes {
    #[serde(default = "one")]
    count: u32,
    /// The class of the nodes' pool. Default: `gpu` if they have GPUs, else `cpu`.
    class: Option<String>,
    gpus: Option<u32>,
    cpu: Option<Text>,
    memory: Option<Text>,
    resources: Option<QuantityTexts>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    zone: Option<String>,
    /// The number of racks over which the nodes are spread, in order.
    racks: Option<u32>,
}

fn one() -> u32 {
    1
}

/// Reads the file.
pub(super) fn read_yaml(path: &Path) -> Result<Fleet, InputError> {
    let name = path.display().to_string();
    let text = read(path)?;
    let file: FleetFile = serde_saphyr::from_str(&text).map_err(|error| InputError::Malformed {
        file: name.clone(),
        reason: error.to_string(),
    })?;
    let mut fleet = Fleet::default();
    let mut names = BTreeSet::new();
    for cluster in &file.clusters {
        let place = InputLocation {
            file: &name,
            place: format!("cluster {}", cluster.name),
        };
        if cluster.name.is_empty() || !names.insert(&cluster.name) {
            return Err(place.refuse("name", &cluster.name, "a name of its own is needed"));
        }
        fleet.clusters.push(cluster.fact(&place)?);
        let mut next = 0;
        for (group, nodes) in cluster.nodes.iter().enumerate() {
            let place = InputLocation {
                file: &name,
                place: format!("cluster {}, nodes[{group}]", cluster.name),
            };
            nodes.add(&place, &cluster.name, &mut next, &mut fleet.nodes)?;
        }
    }
    Ok(fleet)
}

impl FleetCluster {
    fn fact(&self, place: &InputLocation<'_>) -> Result<ClusterFact, InputError> {
        let price_milli = match self.price {
            None => None,
            Some(price) if (0.0..1e9).contains(&price) => Some((price * 1000.0).round() as u64),
            Some(price) => {
                let needed = "a price of one device for one hour, 0 or more, is needed";
                return Err(place.refuse("price", &price.to_string(), needed));
            }
        };
        let mut network = BTreeMap::new();
        for (other, millis) in &self.network {
            if !(0.0..1e9).contains(millis) {
                let field = format!("network.{other}");
                let needed = "milliseconds to that cluster and back, 0 or more, are needed";
                return Err(place.refuse(&field, &millis.to_string(), needed));
            }
            let micros = (millis * 1000.0).round() as u64;
            network.insert(ClusterName::new(other), micros);
        }
        Ok(ClusterFact {
            network,
            labels: self.labels.clone(),
            provider: self.provider.clone(),
            region: self.region.clone(),
            zones: self.zones.clone(),
            price_milli,
            ..plain::cluster(&self.name)
        })
    }
}

impl FleetNodes {
    fn add(
        &self,
        place: &InputLocation<'_>,
        cluster: &str,
        next: &mut u32,
        nodes: &mut Vec<NodeFact>,
    ) -> Result<(), InputError> {
        let shape = ResourceShorthand {
            gpus: self.gpus,
            cpu: self.cpu.as_ref(),
            memory: self.memory.as_ref(),
            resources: self.resources.as_ref(),
        };
        let allocatable = shape.read(place, PODS_PER_NODE)?;
        let has_devices = allocatable.iter().any(|(name, _)| name.is_device());
        let class = self.class.as_deref();
        let class = class.unwrap_or(if has_devices { "gpu" } else { "cpu" });
        if self.racks == Some(0) {
            return Err(place.refuse("racks", "0", "1 or more, or no racks at all, is needed"));
        }
        for index in 0..self.count {
            nodes.push(NodeFact {
                allocatable: allocatable.clone(),
                labels: self.labels.clone(),
                domains: self.domains(index),
                ..plain::node(cluster, &format!("{cluster}-{next}"), class)
            });
            *next += 1;
        }
        Ok(())
    }

    /// Returns the zone and the rack of a node; consecutive nodes share a rack.
    fn domains(&self, index: u32) -> Vec<String> {
        let rack = self.racks.map(|racks| {
            let per_rack = self.count.div_ceil(racks).max(1);
            let zone = self.zone.as_deref().unwrap_or_default();
            let dash = if zone.is_empty() { "" } else { "-" };
            format!("{zone}{dash}rack-{}", index / per_rack)
        });
        self.zone.iter().cloned().chain(rack).collect()
    }
}
