//! Devices of one member (Dynamic Resource Allocation): how many of each DeviceClass each node has, and
//! which claims hold them. Pure.
//!
//! ```text
//! ResourceSlices ───┐
//! DeviceClasses ────┤
//! DeviceTaintRules ─┴─► devices that count, with their node and classes ─► amounts per node
//! ResourceClaims ──────────────────────────────────────────────────────► amounts per claim
//! ```
//!
//! A device counts if it belongs to the newest generation of a complete pool, is on one node, has no taint
//! (neither in its slice nor by a rule), and is indivisible: a device that shares counters with others, or
//! can be allocated several times, does not count. It counts in every class that selects it. Claims of
//! devices that do not count are not counted either, so that a node's devices minus the claimed ones are the
//! free ones.

mod pools;
mod rules;
mod taints;

use super::known::Known;
use super::selectors::{Evaluator, Selectors};
use crds::devices::{
    AllocatedDevice, Device, DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice,
};
use crds::node_health::NodeCondition;
use facts::{Amount, ResourceName, Resources, Uid};
use pools::pools;
use rules::RuledTaints;
pub(crate) use rules::TaintRule;
use runtime::watch::{Delta, ObjectKey};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

/// A change of one of the kinds that devices are derived from.
#[derive(Debug)]
pub(crate) enum DeviceDelta {
    Slice(Delta<ResourceSlice>),
    Class(Delta<DeviceClass>),
    Claim(Delta<SeenClaim>),
    Rule(Delta<(ObjectKey, TaintRule)>),
}

impl DeviceDelta {
    /// Returns true if it says that all objects of its kind have been listed.
    pub(crate) fn is_listed(&self) -> bool {
        matches!(
            self,
            Self::Slice(Delta::Listed)
                | Self::Class(Delta::Listed)
                | Self::Claim(Delta::Listed)
                | Self::Rule(Delta::Listed)
        )
    }
}

/// The part of a claim that concerns devices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SeenClaim {
    pub(super) key: ObjectKey,
    pub(super) uid: Uid,
    /// The pod that it was created for.
    pub(super) pod: Option<Uid>,
    /// The devices allocated to it; `None` while there are none.
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

/// Converts `delta` of a claim.
pub(crate) fn claim_delta(delta: Delta<ResourceClaim>) -> Delta<SeenClaim> {
    delta.map(|claim| SeenClaim::new(&claim))
}

/// Converts `delta` of a rule.
pub(crate) fn rule_delta(delta: Delta<DeviceTaintRule>) -> Delta<(ObjectKey, TaintRule)> {
    keyed(delta, TaintRule::new)
}

/// A slice, and the classes of its devices once they are computed.
#[derive(Debug)]
struct Slice {
    slice: ResourceSlice,
    classed: Option<Vec<Classed>>,
}

/// The classes of a device, and the classes that cannot be evaluated for it, with the reason.
#[derive(Debug, Default)]
struct Classed {
    of: Vec<ResourceName>,
    unclear: Vec<(ResourceName, String)>,
}

/// The selectors of a class, or why they cannot be evaluated.
type Class = Result<Selectors, String>;

/// A device that counts.
#[derive(Debug)]
struct CountedDevice {
    node: Arc<str>,
    classes: Vec<ResourceName>,
}

/// What a change may affect.
#[derive(Debug, Default)]
pub(crate) struct Touched {
    /// True if the devices of nodes and claims may have changed.
    pub(crate) devices: bool,
    /// Claims that were added, changed or deleted, and the pods that they were created for.
    pub(crate) claims: Vec<(ObjectKey, Option<Uid>)>,
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct Devices {
    slices: Known<Slice>,
    classes: Known<Class>,
    claims: Known<SeenClaim>,
    rules: Known<TaintRule>,
    /// Claims by the pod that they were created for.
    of_pods: HashMap<Uid, BTreeSet<ObjectKey>>,
    /// True if slices, classes or rules have changed since devices were counted.
    stale: bool,
    counted: HashMap<DeviceId, CountedDevice>,
    /// The devices of each node; zero for classes whose devices there do not count.
    offered: BTreeMap<Arc<str>, Resources>,
    /// The taints of the devices of each node, as conditions of the node.
    tainted: BTreeMap<Arc<str>, Vec<NodeCondition>>,
    /// The last message about each class that cannot be evaluated.
    logged: BTreeMap<String, String>,
    /// The last message about each rule that cannot be evaluated.
    logged_rules: BTreeMap<String, String>,
}

impl Devices {
    /// Starts to list over a new connection.
    pub(crate) fn begin(&mut self) {
        self.slices.begin();
        self.classes.begin();
        self.claims.begin();
        self.rules.begin();
    }

    /// Returns true if all kinds have listed over the present connection.
    pub(crate) fn has_listed(&self) -> bool {
        self.have_sources_listed() && self.claims.has_listed()
    }

    /// Returns true if all has listed that devices are counted by.
    fn have_sources_listed(&self) -> bool {
        self.slices.has_listed() && self.classes.has_listed() && self.rules.has_listed()
    }

    /// Applies a change.
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
            DeviceDelta::Rule(delta) => {
                let changed = self.rules.take(delta);
                let is_other =
                    |(key, before): &(_, Option<TaintRule>)| self.rules.get(key) != before.as_ref();
                self.stale |= changed.iter().any(is_other);
                self.recounted()
            }
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

    /// Returns the devices of `node` by class, without classes that have no device there.
    pub(crate) fn of_node(&self, node: &str) -> Option<&Resources> {
        self.offered.get(node)
    }

    /// Returns the taints of the devices of `node`, by key.
    pub(crate) fn taints_of(&self, node: &str) -> &[NodeCondition] {
        self.tainted.get(node).map_or(&[], Vec::as_slice)
    }

    /// Returns the nodes of which devices have taints.
    pub(crate) fn tainted_nodes(&self) -> impl Iterator<Item = &str> {
        self.tainted.keys().map(|node| &**node)
    }

    /// Returns the nodes that have devices.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = &str> {
        self.offered.keys().map(|node| &**node)
    }

    /// Returns all claims.
    pub(crate) fn claims(&self) -> impl Iterator<Item = (&ObjectKey, &SeenClaim)> {
        self.claims.iter()
    }

    /// Returns the claim of this name.
    pub(crate) fn claim_of(&self, key: &ObjectKey) -> Option<&SeenClaim> {
        self.claims.get(key)
    }

    /// Returns true if the claim of this name has been seen with its allocation.
    pub(crate) fn is_allocated(&self, key: &ObjectKey) -> bool {
        self.claims
            .get(key)
            .is_some_and(|claim| claim.devices.is_some())
    }

    /// Returns the claims that were created for `pod`.
    pub(crate) fn claims_of(&self, pod: &Uid) -> impl Iterator<Item = &ObjectKey> {
        self.of_pods.get(pod).into_iter().flatten()
    }

    /// Returns the devices of `claim`, by node.
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

    /// Counts again once everything it depends on has listed.
    fn recounted(&mut self) -> Touched {
        let counts = self.have_sources_listed() && std::mem::take(&mut self.stale);
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
        let ruled = RuledTaints::new(&self.rules, &self.classes, &pools);
        // For each node, the classes that cannot be evaluated for one of its devices.
        let mut unclear_on: HashSet<(Arc<str>, ResourceName)> = HashSet::new();
        for pool in pools.values() {
            let is_whole = pool.is_whole();
            for (device, classed, node) in pool.devices() {
                let offered = self.offered.entry(Arc::clone(&node)).or_default();
                for (class, why) in &classed.unclear {
                    add(offered, class, 0);
                    unclear_on.insert((Arc::clone(&node), class.clone()));
                    let name = class.device_class().unwrap_or_default().to_owned();
                    unclear
                        .entry(name)
                        .or_insert_with(|| format!("on node {node}: {why}"));
                }
                let counts = is_whole && is_unit(device) && ruled.of(pool, device).is_empty();
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
        self.tainted = taints::of(pools.values().flat_map(|pool| {
            let devices = pool.devices();
            devices.map(|(device, _, node)| (node, device, ruled.of(pool, device)))
        }));
        let unclear_rules = ruled.into_unclear();
        self.exclude(&unclear_on);
        self.offered.retain(|_, amounts| !amounts.is_empty());
        self.log_unclear(unclear);
        self.log_unclear_rules(unclear_rules);
    }

    /// If kube-scheduler cannot evaluate a class for one device of a node, it allocates none of that class
    /// there.
    fn exclude(&mut self, unclear_on: &HashSet<(Arc<str>, ResourceName)>) {
        if unclear_on.is_empty() {
            return;
        }
        for (node, class) in unclear_on {
            if let Some(amounts) = self.offered.get_mut(node) {
                amounts.set(class.clone(), Amount::ZERO);
            }
        }
        for device in self.counted.values_mut() {
            let node = &device.node;
            device
                .classes
                .retain(|class| !unclear_on.contains(&(Arc::clone(node), class.clone())));
        }
    }

    /// Computes the classes of devices of new slices, or of all slices if a class has changed.
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

    /// Logs classes that cannot be evaluated, once for each message.
    fn log_unclear(&mut self, unclear: BTreeMap<String, String>) {
        for (class, why) in &unclear {
            if self.logged.get(class) != Some(why) {
                tracing::warn!(deviceclass = %class, problem = %why, "its devices are not counted");
            }
        }
        self.logged = unclear;
    }

    /// Does the same for rules.
    fn log_unclear_rules(&mut self, unclear: BTreeMap<String, String>) {
        for (rule, why) in &unclear {
            if self.logged_rules.get(rule) != Some(why) {
                tracing::warn!(devicetaintrule = %rule, problem = %why, "its taint is not seen");
            }
        }
        self.logged_rules = unclear;
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

/// Returns true if a device can be allocated to one claim as a whole.
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
