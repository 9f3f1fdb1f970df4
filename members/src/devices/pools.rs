//! The pools of devices: the slices of their newest generation.

use super::{Classed, DeviceId, Slice};
use crds::devices::{Device, ResourceSlice};
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

/// The slices of one pool in its newest generation.
pub(super) struct DevicePool<'a> {
    pub(super) driver: &'a str,
    pub(super) name: &'a str,
    generation: i64,
    slices: Vec<(&'a ResourceSlice, &'a [Classed])>,
}

/// Returns the pools of `slices` by driver and name.
pub(super) fn pools<'a>(
    slices: impl Iterator<Item = &'a Slice>,
) -> BTreeMap<(&'a str, &'a str), DevicePool<'a>> {
    let mut pools: BTreeMap<(&str, &str), DevicePool<'_>> = BTreeMap::new();
    for Slice { slice, classed } in slices {
        let spec = &slice.spec;
        let (driver, name) = (spec.driver.as_str(), spec.pool.name.as_str());
        let generation = spec.pool.generation;
        let pool = pools.entry((driver, name)).or_insert_with(|| DevicePool {
            driver,
            name,
            generation,
            slices: Vec::new(),
        });
        if generation > pool.generation {
            pool.generation = generation;
            pool.slices.clear();
        }
        if generation == pool.generation {
            pool.slices
                .push((slice, classed.as_deref().unwrap_or_default()));
        }
    }
    pools
}

impl DevicePool<'_> {
    /// Returns true if all its slices exist and no two of its devices share a name: kube-scheduler allocates
    /// nothing from other pools.
    pub(super) fn is_whole(&self) -> bool {
        let mut names = HashSet::new();
        let devices = self
            .slices
            .iter()
            .flat_map(|(slice, _)| &slice.spec.devices);
        let count = i64::try_from(self.slices.len()).unwrap_or(i64::MAX);
        let stated =
            |(slice, _): &(&ResourceSlice, _)| slice.spec.pool.resource_slice_count == count;
        self.slices.iter().all(stated)
            && devices.into_iter().all(|device| names.insert(&device.name))
    }

    /// Returns its devices that are on one node, with their classes.
    pub(super) fn devices(&self) -> impl Iterator<Item = (&Device, &Classed, Arc<str>)> {
        self.slices.iter().flat_map(|(slice, classed)| {
            let spec = &slice.spec;
            let devices = spec.devices.iter().zip(*classed);
            devices.filter_map(|(device, classed)| {
                let node = match spec.per_device_node_selection {
                    true => device.node_name.as_deref(),
                    false => spec.node_name.as_deref(),
                };
                let node = node.filter(|name| !name.is_empty())?;
                Some((device, classed, Arc::from(node)))
            })
        })
    }

    /// Returns the identity of its `device`.
    pub(super) fn id(&self, device: &Device) -> DeviceId {
        let (driver, pool) = (self.driver.to_owned(), self.name.to_owned());
        (driver, pool, device.name.clone())
    }
}
