//! Nodes that are out of service, and which pods their faults stop.

use super::FaultKind;
use super::generator::NodeFault;
use super::inject::FaultInjector;
use super::pods::{SimulatedPod, SimulatedPods};
use crate::record::Measure;
use engine::Amount;
use engine::facts::NodeFact;
use std::collections::BTreeSet;

/// A node that is out of service.
#[derive(Debug)]
pub(super) struct Down {
    pub(super) fault: NodeFault,
    /// True if the engine has received it.
    pub(super) detected: bool,
    /// The number of the pod that had the failed device last.
    struck: Option<u64>,
}

impl Down {
    pub(super) fn new(fault: NodeFault) -> Self {
        Self {
            fault,
            detected: false,
            struck: None,
        }
    }
}

impl FaultInjector<'_> {
    /// The devices of a node, in thousandths; 0 in a fleet without devices.
    pub(super) fn devices_of(&self, node: usize) -> i64 {
        let allocatable = &self.scenario.fleet.nodes[node].allocatable;
        match self.measure {
            Measure::Devices => self.measure.of_resources(allocatable).unwrap_or(0),
            Measure::Cores => 0,
        }
    }

    /// Stops the pods that a node's fault hits, and returns their jobs.
    pub(super) fn strike(&mut self, node: usize) -> BTreeSet<usize> {
        let Some(down) = self.down.get(&node) else {
            return BTreeSet::new();
        };
        let on = self.pods.on(node);
        let hit: Vec<(usize, SimulatedPod)> = match down.fault.class {
            FaultKind::NodeLost => on,
            FaultKind::DeviceFault => {
                let owner = match down.struck {
                    Some(number) if on.iter().any(|(_, pod)| pod.number == number) => None,
                    Some(_) => self.next_owner(node, on),
                    None => self.owner(&down.fault, on),
                };
                owner.into_iter().collect()
            }
        };
        let hit: Vec<_> = hit.into_iter().filter(|(_, pod)| !pod.failed).collect();
        if let Some(down) = self.down.get_mut(&node) {
            down.struck = hit.last().map(|(_, pod)| pod.number).or(down.struck);
        }
        for (job, pod) in &hit {
            self.pods.change(*job, pod.number, |pod| pod.failed = true);
        }
        let jobs: BTreeSet<usize> = hit.into_iter().map(|(job, _)| job).collect();
        for job in &jobs {
            self.record.jobs[*job].faults += 1;
        }
        jobs
    }

    /// The pod that has the device that failed. Pods have the devices of a node in order of start.
    fn owner(
        &self,
        fault: &NodeFault,
        on: Vec<(usize, SimulatedPod)>,
    ) -> Option<(usize, SimulatedPod)> {
        let devices = i128::from(self.devices_of(fault.node));
        let failed = (devices * i128::from(fault.device)) >> 32;
        let mut before = 0;
        on.into_iter().find(|(job, pod)| {
            let own = SimulatedPods::devices(pod, self.job(*job), self.measure);
            before += i128::from(own);
            own > 0 && failed < before
        })
    }

    /// The pod that has the failed device of a node after the one that had it is gone: until the fault is detected, it
    /// is the last device that a node gives to a pod.
    fn next_owner(
        &self,
        node: usize,
        on: Vec<(usize, SimulatedPod)>,
    ) -> Option<(usize, SimulatedPod)> {
        let of = |(job, pod): &(usize, SimulatedPod)| {
            SimulatedPods::devices(pod, self.job(*job), self.measure)
        };
        let used: i64 = on.iter().map(of).sum();
        let all_used = used > self.devices_of(node) - DEVICE;
        let last = on.into_iter().rfind(|pod| of(pod) > 0);
        last.filter(|_| all_used)
    }
}

/// A device, in thousandths.
const DEVICE: i64 = 1_000;

/// A node with a fault. A lost node is not Ready. One with a failed device has one less, and is cordoned
/// by those who repair it.
pub(super) fn with_fault(node: &NodeFact, class: FaultKind) -> NodeFact {
    let mut fact = NodeFact {
        usable: false,
        lost: class == FaultKind::NodeLost,
        ..node.clone()
    };
    let mut resources = node.allocatable.iter();
    let device = resources.find(|(name, amount)| name.is_device() && amount.0 > 0);
    if let Some((name, amount)) = device.filter(|_| class == FaultKind::DeviceFault) {
        let milli = name.as_str().ends_with("-milli");
        let one = if milli { 1000 } else { 1 };
        let left = Amount((amount.0 - one).max(0));
        fact.allocatable.set(name.clone(), left);
    }
    fact
}
