//! Devices of one member (Dynamic Resource Allocation): how many of each DeviceClass each node
//! has, and which of them claims hold. Pure.
//!
//! ```text
//! ResourceSlices ─┐
//! DeviceClasses ──┴─► devices that count, with their node and classes ─► amounts per node
//! ResourceClaims ────────────────────────────────────────────────────► amounts per claim
//! ```
//!
//! A device counts if it is in the newest generation of a whole pool, on one node, healthy, and
//! whole: one that shares counters with others, or can be allocated several times, is no unit.
//! It counts in every class that selects it. What claims hold of devices that do not count is
//! not counted either, so that what a node has less what is held is what is free.

use super::known::Known;
use super::selectors::{Evaluator, Selectors};
use crds::devices::{AllocatedDevice, Device, DeviceClass, ResourceClaim, ResourceSlice};
use engine::{Amount, ResourceName, Resources, Uid};
use runtime::watch::{Delta, ObjectKey};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

/// A change of one of the kinds that devices are known from.
#[derive(Debug)]
pub(crate) enum DeviceDelta {
    Slice(Delta<ResourceSlice>),
    Class(Delta<DeviceClass>),
    Claim(Delta<SeenClaim>),
}

impl DeviceDelta {
    /// Whether it says that all of its kind has been told.
    pub(crate) fn is_listed(&self) -> bool {
        matches!(
            self,
            Self::Slice(Delta::Listed) | Self::Class(Delta::Listed) | Self::Claim(Delta::Listed)
        )
    }
}

/// A claim as far as devices are concerned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SeenClaim {
    pub(super) key: ObjectKey,
    pub(super) uid: Uid,
    /// The pod that it was made for.
    pub(super) pod: Option<Uid>,
    /// What it holds; `None` while nothing is allocated to it.
    devices: Option<Vec<DeviceId>>,
}

/// Driver, pool and name of a device.
type DeviceId = (String, String, String);

impl SeenClaim {
    fn new(claim: &ResourceClaim) -> Self {
        let mut owners = claim.metadata.owner_references.iter().flatten();
        let pod = owners.find(|owner| owner.kind == "Pod" && owner.controller == Some(true));
        let allocation = claim.status.allocation.as_ref();
        let id = |device: &AllocatedDevice| {
            let device = device.clone();
            (device.driver, device.pool, device.device)
        };
        Self {
            key: ObjectKey::of(claim),
            uid: Uid::new(claim.metadata.uid.as_deref().unwrap_or_default()),
            pod: pod.map(|pod| Uid::new(&pod.uid)),
            devices: allocation.map(|allocation| {
                let results = allocation.devices.results.iter();
                results.filter(|one| !one.admin_access).map(id).collect()
            }),
        }
    }
}

/// Turns `delta` of a claim into one of what is seen of it.
pub(crate) fn claim_delta(delta: Delta<ResourceClaim>) -> Delta<SeenClaim> {
    delta.map(|claim| SeenClaim::new(&claim))
}

/// A slice, and the classes of its devices while these are worked out.
#[derive(Debug)]
struct Slice {
    slice: ResourceSlice,
    classed: Option<Vec<Classed>>,
}

/// The classes of a device, and those of which it cannot be said, with why.
#[derive(Debug, Default)]
struct Classed {
    of: Vec<ResourceName>,
    unclear: Vec<(ResourceName, String)>,
}

/// A class, or why it cannot be evaluated.
type Class = Result<Selectors, String>;

/// A device that counts.
#[derive(Debug)]
struct CountedDevice {
    node: Arc<str>,
    classes: Vec<ResourceName>,
}

/// What may be another after a change.
#[derive(Debug, Default)]
pub(crate) struct Touched {
    /// Whether nodes may have another number of devices, and claims hold others.
    pub(crate) devices: bool,
    /// Claims that are there, changed, or gone, and the pods that they were made for.
    pub(crate) claims: Vec<(ObjectKey, Option<Uid>)>,
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct Devices {
    slices: Known<Slice>,
    classes: Known<Class>,
    claims: Known<SeenClaim>,
    /// Claims by the pod that they were made for.
    of_pods: HashMap<Uid, BTreeSet<ObjectKey>>,
    /// Whether slices or classes changed since devices were counted.
    stale: bool,
    counted: HashMap<DeviceId, CountedDevice>,
    /// What nodes have, zeros for classes whose devices there do not count.
    offered: BTreeMap<Arc<str>, Resources>,
    /// What was said last of classes that cannot be evaluated.
    said: BTreeMap<String, String>,
}

impl Devices {
    /// A new connection begins to list.
    pub(crate) fn begin(&mut self) {
        self.slices.begin();
        self.classes.begin();
        self.claims.begin();
    }

    /// Whether all has listed over the present connection.
    pub(crate) fn has_listed(&self) -> bool {
        self.slices.has_listed() && self.classes.has_listed() && self.claims.has_listed()
    }

    /// Takes in a change.
    pub(crate) fn take(&mut self, delta: DeviceDelta) -> Touched {
        match delta {
            DeviceDelta::Slice(delta) => {
                let delta = keyed(delta, |slice| Slice {
                    slice,
                    classed: None,
                });
                for (key, before) in self.slices.take(delta) {
                    match (before, self.slices.get_mut(&key)) {
                        (Some(before), Some(now)) if before.slice == now.slice => {
                            now.classed = before.classed;
                        }
                        _ => self.stale = true,
                    }
                }
                self.recounted()
            }
            DeviceDelta::Class(delta) => {
                let delta = keyed(delta, |class: DeviceClass| Selectors::of(&class));
                if !self.classes.take(delta).is_empty() {
                    self.stale = true;
                    for (_, slice) in self.slices.iter_mut() {
                        slice.classed = None;
                    }
                }
                self.recounted()
            }
            DeviceDelta::Claim(delta) => self.claim(delta),
        }
    }

    fn claim(&mut self, delta: Delta<SeenClaim>) -> Touched {
        let delta = delta.map(|claim| (claim.key.clone(), claim));
        let mut claims = Vec::new();
        for (key, before) in self.claims.take(delta) {
            if let Some(pod) = before.and_then(|before| before.pod) {
                if let Some(keys) = self.of_pods.get_mut(&pod) {
                    keys.remove(&key);
                    if keys.is_empty() {
                        self.of_pods.remove(&pod);
                    }
                }
                claims.push((key.clone(), Some(pod)));
            }
            let pod = self.claims.get(&key).and_then(|now| now.pod.clone());
            if let Some(pod) = &pod {
                let keys = self.of_pods.entry(pod.clone()).or_default();
                keys.insert(key.clone());
            }
            claims.push((key, pod));
        }
        Touched {
            devices: false,
            claims,
        }
    }

    /// What `node` has, by class; none where no class has a device there.
    pub(crate) fn of_node(&self, node: &str) -> Option<&Resources> {
        self.offered.get(node)
    }

    /// The nodes that have devices.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = &str> {
        self.offered.keys().map(|node| &**node)
    }

    /// All claims.
    pub(crate) fn claims(&self) -> impl Iterator<Item = (&ObjectKey, &SeenClaim)> {
        self.claims.iter()
    }

    /// The claim of this name.
    pub(crate) fn claim_of(&self, key: &ObjectKey) -> Option<&SeenClaim> {
        self.claims.get(key)
    }

    /// Whether the claim of this name has been seen with what is allocated to it.
    pub(crate) fn is_allocated(&self, key: &ObjectKey) -> bool {
        self.claims
            .get(key)
            .is_some_and(|claim| claim.devices.is_some())
    }

    /// The claims that were made for `pod`.
    pub(crate) fn claims_of(&self, pod: &Uid) -> impl Iterator<Item = &ObjectKey> {
        self.of_pods.get(pod).into_iter().flatten()
    }

    /// What `claim` holds, by node.
    pub(crate) fn held(&self, claim: &SeenClaim) -> BTreeMap<Arc<str>, Resources> {
        let mut held: BTreeMap<Arc<str>, Resources> = BTreeMap::new();
        // A claim that names a device twice (shares of it) holds it once.
        let devices: BTreeSet<&DeviceId> = claim.devices.iter().flatten().collect();
        for device in devices.into_iter().filter_map(|id| self.counted.get(id)) {
            let at_node = held.entry(Arc::clone(&device.node)).or_default();
            for class in &device.classes {
                add(at_node, class, 1);
            }
        }
        held.retain(|_, amounts| !amounts.is_empty());
        held
    }

    /// Counts again once all that it takes has listed.
    fn recounted(&mut self) -> Touched {
        let have_listed = self.slices.has_listed() && self.classes.has_listed();
        let counts = have_listed && std::mem::take(&mut self.stale);
        if counts {
            self.count();
        }
        Touched {
            devices: counts,
            claims: Vec::new(),
        }
    }

    fn count(&mut self) {
        self.classify();
        self.offered.clear();
        self.counted.clear();
        let mut unclear: BTreeMap<String, String> = BTreeMap::new();
        for (name, class) in self.classes.iter() {
            if let Err(why) = class {
                unclear.insert(name.name.clone(), why.clone());
            }
        }
        let pools = pools(self.slices.values());
        // Of which classes a node has devices of which it cannot be said whether they are one.
        let mut barred: HashSet<(Arc<str>, ResourceName)> = HashSet::new();
        for pool in pools.values() {
            let is_whole = pool.is_whole();
            for (device, classed, node) in pool.devices() {
                let offered = self.offered.entry(Arc::clone(&node)).or_default();
                for (class, why) in &classed.unclear {
                    add(offered, class, 0);
                    barred.insert((Arc::clone(&node), class.clone()));
                    let name = class.device_class().unwrap_or_default().to_owned();
                    unclear
                        .entry(name)
                        .or_insert_with(|| format!("on node {node}: {why}"));
                }
                let counts = is_whole && is_unit(device);
                for class in &classed.of {
                    add(offered, class, i64::from(counts));
                }
                if counts {
                    let counted = CountedDevice {
                        node,
                        classes: classed.of.clone(),
                    };
                    self.counted.insert(pool.id(device), counted);
                }
            }
        }
        self.bar(&barred);
        self.offered.retain(|_, amounts| !amounts.is_empty());
        self.say(unclear);
    }

    /// Where kube-scheduler cannot say of one device whether it is of a class, it gives nobody
    /// any of that class.
    fn bar(&mut self, barred: &HashSet<(Arc<str>, ResourceName)>) {
        if barred.is_empty() {
            return;
        }
        for (node, class) in barred {
            if let Some(amounts) = self.offered.get_mut(node) {
                amounts.set(class.clone(), Amount::ZERO);
            }
        }
        for device in self.counted.values_mut() {
            let node = &device.node;
            device
                .classes
                .retain(|class| !barred.contains(&(Arc::clone(node), class.clone())));
        }
    }

    /// Works out the classes of devices of slices that are new, or of all where a class changed.
    fn classify(&mut self) {
        let mut evaluator = Evaluator::new();
        let classes: Vec<(ResourceName, &Selectors)> = self
            .classes
            .iter()
            .filter_map(|(key, class)| {
                let selectors = class.as_ref().ok()?;
                Some((ResourceName::of_device_class(&key.name), selectors))
            })
            .collect();
        let open = self
            .slices
            .iter_mut()
            .map(|(_, slice)| slice)
            .filter(|slice| slice.classed.is_none());
        for Slice { slice, classed } in open {
            let devices = slice.spec.devices.iter();
            let of = |device| classes_of(&mut evaluator, &classes, &slice.spec.driver, device);
            *classed = Some(devices.map(of).collect());
        }
    }

    /// Tells of classes that cannot be evaluated, once each.
    fn say(&mut self, unclear: BTreeMap<String, String>) {
        for (class, why) in &unclear {
            if self.said.get(class) != Some(why) {
                tracing::warn!(deviceclass = %class, problem = %why, "its devices are not counted");
            }
        }
        self.said = unclear;
    }
}

fn classes_of(
    evaluator: &mut Evaluator,
    classes: &[(ResourceName, &Selectors)],
    driver: &str,
    device: &Device,
) -> Classed {
    let mut classed = Classed::default();
    for (name, selectors) in classes {
        match evaluator.matches(selectors, driver, device) {
            Ok(true) => classed.of.push(name.clone()),
            Ok(false) => {}
            Err(why) => classed.unclear.push((name.clone(), why)),
        }
    }
    classed
}

/// The slices of one pool in its newest generation.
struct DevicePool<'a> {
    driver: &'a str,
    name: &'a str,
    generation: i64,
    slices: Vec<(&'a ResourceSlice, &'a [Classed])>,
}

fn pools<'a>(
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
    /// Whether all its slices are there, and no two of its devices have one name: of any other
    /// pool kube-scheduler gives out nothing.
    fn is_whole(&self) -> bool {
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

    /// Its devices that are on one node, with their classes.
    fn devices(&self) -> impl Iterator<Item = (&Device, &Classed, Arc<str>)> {
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

    fn id(&self, device: &Device) -> DeviceId {
        let (driver, pool) = (self.driver.to_owned(), self.name.to_owned());
        (driver, pool, device.name.clone())
    }
}

/// Whether a device can be given to one claim as a whole.
fn is_unit(device: &Device) -> bool {
    !device.is_unhealthy()
        && device.consumes_counters.is_empty()
        && !device.allow_multiple_allocations
}

fn add(amounts: &mut Resources, class: &ResourceName, more: i64) {
    let amount = amounts.amount_of(class).0.saturating_add(more);
    amounts.set(class.clone(), Amount(amount));
}

fn keyed<K: kube::Resource, T>(
    delta: Delta<K>,
    read: impl FnOnce(K) -> T,
) -> Delta<(ObjectKey, T)> {
    delta.map(|object| (ObjectKey::of(&object), read(object)))
}

#[cfg(test)]
mod tests;
