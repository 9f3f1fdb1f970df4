//! Metrics of pools. Their labels are clusters and classes of nodes, never nodes.

use super::status;
use crate::live::LivePools;
use engine::capacity::{PoolSummary, pods_that_fit};
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use runtime::Registry;
use runtime::metrics::{AmountGauge, ScopedFamily};

/// The sizes of pods, in devices, for which the largest gang is exported.
const POD_SIZES: [u32; 4] = [1, 2, 4, 8];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PoolLabel {
    cluster: String,
    pool: String,
}

/// What a number of devices is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
enum PoolDeviceState {
    Total,
    Usable,
    Used,
    Free,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PoolDeviceLabel {
    cluster: String,
    pool: String,
    state: PoolDeviceState,
}

/// What a number of nodes is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
enum PoolNodeState {
    Total,
    Usable,
    Avoided,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PoolNodeLabel {
    cluster: String,
    pool: String,
    state: PoolNodeState,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PoolGangLabel {
    cluster: String,
    pool: String,
    devices_per_pod: u32,
}

/// Gauges of all pools, which are recorded together.
type PoolGauges<L> = ScopedFamily<(), L, AmountGauge>;

/// Metrics of all pools.
#[derive(Debug, Clone)]
pub(super) struct PoolMetrics {
    devices: PoolGauges<PoolDeviceLabel>,
    nodes: PoolGauges<PoolNodeLabel>,
    largest_gang: PoolGauges<PoolGangLabel>,
    fragmentation: PoolGauges<PoolLabel>,
}

impl PoolMetrics {
    pub(super) fn new(registry: &Registry) -> Self {
        let devices = "Devices (cores where there are none) of a pool, by state";
        let nodes = "Nodes of a pool, by state";
        let gang = "Most pods with this many devices each that fit at once, by devices alone";
        let fragmentation = "Share of the free devices that are on partly used nodes";
        let new = AmountGauge::default;
        Self {
            devices: PoolGauges::register(registry, "pool_devices", devices, new),
            nodes: PoolGauges::register(registry, "pool_nodes", nodes, new),
            largest_gang: PoolGauges::register(registry, "pool_largest_gang_pods", gang, new),
            fragmentation: PoolGauges::register(
                registry,
                "pool_fragmentation_ratio",
                fragmentation,
                new,
            ),
        }
    }

    /// Exports exactly the pools of `pools`.
    pub(super) fn record(&self, pools: &LivePools) {
        let known = pools.pools.iter();
        let known = known.filter(|pool| pools.clusters.contains_key(&pool.cluster));
        let known: Vec<&PoolSummary> = known.collect();
        self.devices
            .replace(&(), known.iter().flat_map(|pool| devices(pool)));
        self.nodes
            .replace(&(), known.iter().flat_map(|pool| nodes(pool, pools)));
        let gangs = known.iter().flat_map(|pool| gangs(pool));
        self.largest_gang.replace(&(), gangs);
        let shares = known.iter().map(|pool| {
            let share = f64::from(pool.fragmentation_permille) / 1_000.0;
            (label(pool), share)
        });
        self.fragmentation.replace(&(), shares);
    }

    /// Removes everything.
    pub(super) fn clear(&self) {
        self.devices.clear();
        self.nodes.clear();
        self.largest_gang.clear();
        self.fragmentation.clear();
    }
}

fn label(pool: &PoolSummary) -> PoolLabel {
    PoolLabel {
        cluster: pool.cluster.to_string(),
        pool: pool.class.to_string(),
    }
}

fn devices(pool: &PoolSummary) -> [(PoolDeviceLabel, f64); 4] {
    let PoolLabel {
        cluster,
        pool: name,
    } = label(pool);
    let status = status(pool, None);
    [
        (PoolDeviceState::Total, status.total),
        (PoolDeviceState::Usable, status.allocatable),
        (PoolDeviceState::Used, status.used),
        (PoolDeviceState::Free, status.free),
    ]
    .map(|(state, count)| {
        let label = PoolDeviceLabel {
            cluster: cluster.clone(),
            pool: name.clone(),
            state,
        };
        (label, shown(count))
    })
}

fn nodes(pool: &PoolSummary, pools: &LivePools) -> [(PoolNodeLabel, f64); 3] {
    let PoolLabel {
        cluster,
        pool: name,
    } = label(pool);
    let avoided = pools
        .avoided
        .get(&(pool.cluster.clone(), pool.class.clone()));
    let avoided = u32::try_from(avoided.map_or(0, |nodes| nodes.len())).unwrap_or(u32::MAX);
    [
        (PoolNodeState::Total, pool.nodes),
        (PoolNodeState::Usable, pool.usable_nodes),
        (PoolNodeState::Avoided, avoided),
    ]
    .map(|(state, count)| {
        let label = PoolNodeLabel {
            cluster: cluster.clone(),
            pool: name.clone(),
            state,
        };
        (label, f64::from(count))
    })
}

fn gangs(pool: &PoolSummary) -> [(PoolGangLabel, f64); 4] {
    let PoolLabel {
        cluster,
        pool: name,
    } = label(pool);
    POD_SIZES.map(|size| {
        let label = PoolGangLabel {
            cluster: cluster.clone(),
            pool: name.clone(),
            devices_per_pod: size,
        };
        (label, shown(largest_gang(pool, size)))
    })
}

/// Returns how many pods of `size` devices fit at once.
fn largest_gang(pool: &PoolSummary, size: u32) -> i64 {
    let nodes = pool.histogram.iter();
    pods_that_fit(nodes.map(|(free, nodes)| (*free, i64::from(*nodes))), size)
}

// For display only.
#[allow(clippy::cast_precision_loss)]
fn shown(count: i64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests;
